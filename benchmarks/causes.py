"""Where the time of one decision goes, and why it differs from minute to minute: the profile of docs/performance.md.

    python benchmarks/causes.py [stages] [pages] [speed] [idle] [--shape amazon-3m] [--cache DIR] [--json]

`stages`: the Python API, the way down the tree, the leaves' arms and the choice, with memory cold and in the
second-level cache. `pages`: the same decisions through the mapped file and through copies in pages of 2 MB and of 4 kB,
in turns. `speed`: decisions by how fast the core was at that moment, told by arithmetic that needs no memory. `idle`:
the first decisions after some time in which nobody touched the model, the page faults of this process meanwhile, and
the same for memory that has nothing to do with treetop. Linux; the copies take twice the size of the layout.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import mmap
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import treetop
from treetop import _core
from treetop.bench.shape import SHAPES, BenchModel, cached_model, default_cache
from treetop.bench.table import markdown
from treetop.bench.timing import commit, load_average, machine, mapped_mb
from treetop.policy.eligibility import EVERY_ARM

HUGE = 1 << 21
Row = dict[str, Any]


class Subject:
    """A model, contexts that come one after the other and are never the same twice in a row, and the policy."""

    def __init__(self, found: BenchModel, beam: int = 10) -> None:
        self.model, self.policy = found.model, treetop.Policy(k=5, explore=3, beam=beam)
        self.rows = [found.contexts.row(i) for i in range(len(found.contexts))]
        self._next = itertools.cycle(range(len(self.rows)))

    def contexts(self, n: int) -> Iterator[tuple[int, Any]]:
        return ((i, self.rows[i]) for i in itertools.islice(self._next, n))

    def decide(self, n: int, again: int = 1) -> list[float]:
        """CPU microseconds of n decisions. `again`: 4 contexts in turns, so often; the first time is not timed."""
        if again == 1:
            return [self.decided(i, x) for i, x in self.contexts(n)]
        few = list(self.contexts(4))
        return [t for round_ in range(again) for i, x in few if (t := self.decided(i, x)) and round_ > 0]

    def decided(self, i: int, x: Any) -> float:
        return cpu_us(lambda: self.policy.decide(self.model, x, event_id=i))

    def asked(self, i: int, x: Any) -> tuple[Any, ...]:
        """What the core is asked for a decision."""
        quick = self.policy._quickly(x, str(i), EVERY_ARM, self.model.n_seen)
        if quick is None:
            raise ValueError("this context does not go to the core as it is")
        return quick

    def replay(self, n: int) -> list[float]:
        engine = self.model.engine
        lines = [engine.lines(x.start, x.index, x.value, 5, self.policy.beam) for _, x in self.contexts(n)]
        other = self.rows[next(self._next)]
        self.policy.decide(self.model, other)  # so that the last list of lines is not what the caches hold
        return [1e6 * engine.touch(numbers)[0] for numbers in lines]


def cpu_us(call: Callable[[], object]) -> float:
    began = time.thread_time_ns()
    call()
    return (time.thread_time_ns() - began) / 1e3


def stages(subject: Subject, n: int = 600) -> list[Row]:
    """Medians in microseconds; the Python side is the whole less what the core takes, on contexts of their own."""
    igw = subject.policy.strategy.native(subject.model.n_seen)  # type: ignore[attr-defined]
    found = []
    for memory, rounds in (("cold", 1), ("second-level cache", 60)):
        parts, core, whole = [], [], []
        for _ in range(3):
            for i, x in _repeated(subject, n // 3, rounds):
                parts.append(subject.model.engine.stages(x.start, x.index, x.value, i, 5, 3, subject.policy.beam, *igw))
            for i, x in _repeated(subject, n // 3, rounds):
                quick = subject.asked(i, x)
                core.append(cpu_us(lambda quick=quick: subject.model.engine.decide_one(*quick)))
            for i, x in _repeated(subject, n // 3, rounds):
                whole.append(cpu_us(lambda i=i, x=x: subject.policy.decide(subject.model, x, event_id=i)))
        tree, leaves, choice = (1e6 * np.median(np.array(parts), axis=0)).tolist()
        python = float(np.median(whole) - np.median(core))
        found.append(
            _rounded(
                memory=memory,
                whole=np.median(whole),
                core=np.median(core),
                python=python,
                tree=tree,
                leaves=leaves,
                choice=choice,
            )
        )
    return found


def _repeated(subject: Subject, n: int, rounds: int) -> Iterator[tuple[int, Any]]:
    """n new contexts, or few of them again and again."""
    if rounds == 1:
        return subject.contexts(n)
    return itertools.chain.from_iterable(itertools.repeat(list(subject.contexts(4)), rounds))


def pages(subject: Subject, turns: int = 6, n: int = 150) -> list[Row]:
    """The layout as it is mapped, and copied into pages of either size: decisions and replays, in turns."""
    model, whole = subject.model, subject.model.__dict__["layout"]
    file = mapped_mb("serving.bin")
    engines = {f"file, {file[1]} of {file[0]} MB in pages of 2 MB": model.engine}
    for size, advice in (("2 MB", mmap.MADV_HUGEPAGE), ("4 kB", mmap.MADV_NOHUGEPAGE)):
        copy = room(len(whole), advice)
        copy[:] = whole
        r = model.route_rows
        tree = model.tree.parents, model.tree.leaf_of, r.start, r.index, r.value, r.columns
        engines[f"copy in pages of {size}"] = _core.Engine(*tree, model.geometric, copy)
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in engines}
    for _, (name, engine) in itertools.product(range(turns), engines.items()):
        model.__dict__["engine"] = engine
        times[name][0].extend(subject.decide(n))
        times[name][1].extend(subject.replay(n // 3))
    model.__dict__["engine"] = next(iter(engines.values()))
    return [_rounded(memory=name, decision=np.median(a), replay=np.median(b)) for name, (a, b) in times.items()]


def room(size: int, advice: int) -> NDArray[np.uint8]:
    """Memory from the start of a huge page on."""
    raw = mmap.mmap(-1, size + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    raw.madvise(advice)
    found = np.frombuffer(raw, np.uint8)
    first = -found.ctypes.data % HUGE
    return found[first : first + size]


def speed(subject: Subject, n: int = 9000) -> list[Row]:
    """Decisions by how fast the core was just then: by a fixed piece of arithmetic before and after each of them."""
    block, found = bytes(4 << 10), []
    for i, x in subject.contexts(n):
        before = cpu_us(lambda: hashlib.blake2b(block))
        decided = subject.decided(i, x)
        found.append((before, cpu_us(lambda: hashlib.blake2b(block)), decided))
    times = np.array(found)
    quick = np.percentile(times[:, :2], 5)
    slower = times[:, :2].max(axis=1) / quick
    edges = [0, 1.1, 1.2, 1.35, 1.5, 1.75, np.inf]
    parts = [(low, high, times[(slower >= low) & (slower < high), 2]) for low, high in itertools.pairwise(edges)]
    return [
        {"arithmetic takes": f"{low:g} to {high:g} times the least", "share": round(len(t) / n, 3)}
        | _rounded(decision=np.median(t))
        for low, high, t in parts
        if len(t) >= 30
    ]


def idle(subject: Subject, waits: tuple[int, ...] = (0, 10, 30, 60, 60, 60), size: int = 1 << 30) -> list[Row]:
    """Decisions after a pause, by their number; and the first byte of each 2 MB of a gigabyte filled before."""
    memory, found = room(size, mmap.MADV_HUGEPAGE), []
    memory[:] = 1
    for wait in waits:
        time.sleep(wait)
        before = resource.getrusage(resource.RUSAGE_SELF)
        t = subject.decide(400)
        after = resource.getrusage(resource.RUSAGE_SELF)
        touched = [cpu_us(lambda at=at: memory[at]) for at in range(0, len(memory), HUGE)]
        again = [cpu_us(lambda at=at: memory[at]) for at in range(0, len(memory), HUGE)]
        faults = after.ru_minflt - before.ru_minflt + after.ru_majflt - before.ru_majflt
        parts = {f"{a}-{b}": np.median(t[a:b]) for a, b in ((0, 10), (10, 50), (50, 100), (100, 400))}
        found.append(
            {"idle s": wait}
            | _rounded(**parts)
            | {"page faults": faults}
            | _rounded(**{"other memory, 1st touch": np.mean(touched), "2nd": np.mean(again)})
        )
    return found


def _rounded(**row: Any) -> Row:
    return {key: value if isinstance(value, str) else round(float(value), 1) for key, value in row.items()}


PARTS: dict[str, Callable[[Subject], list[Row]]] = {"stages": stages, "pages": pages, "speed": speed, "idle": idle}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all if none is given")
    parser.add_argument("--shape", default="amazon-3m", choices=SHAPES)
    parser.add_argument("--cache", type=Path, default=default_cache(), help="where made-up models are kept")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if wrong := [part for part in asked.parts if part not in PARTS]:
        parser.error(f"no part {wrong[0]!r}; it must be one of {', '.join(PARTS)}")
    before, subject = load_average(), Subject(cached_model(SHAPES[asked.shape], asked.cache))
    subject.decide(2000)  # everything in place, but for what `idle` waits for
    tables = {part: PARTS[part](subject) for part in asked.parts or PARTS}
    rows = [{"bench": part, "name": "treetop", **row} for part, found in tables.items() for row in found]
    about = {
        "rows": rows,
        "checks": {},
        "left_out": [],
        "commit": commit(),
        "machine": machine(),
        "command": " ".join(["python benchmarks/causes.py", *asked.parts]),
        "load_average": [before, load_average()],
    }
    if asked.json:
        print(json.dumps(about, indent=1))
        return
    for part, found in tables.items():
        print(f"{part}: microseconds of CPU time, medians\n\n{markdown(found)}\n", flush=True)


if __name__ == "__main__":
    main()
