"""`bench decide`, `batch`, `scale`: contexts to decisions, beside everyone else who could pick the arms."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from treetop import _core
from treetop.arrays import Rows
from treetop.bench.peers import Peer, save_rows
from treetop.bench.reference import TOLERANCE, check_decisions
from treetop.bench.setting import Contestant, Result, Setting, contest, with_own_contexts, with_pecos
from treetop.bench.shape import SHAPES, BenchModel
from treetop.bench.timing import Row, Taken, mapped_mb, seconds
from treetop.errors import Disagreement
from treetop.model.model import Model
from treetop.policy.eligibility import Eligible
from treetop.policy.policy import Policy

CHECKED = 5  # contexts that the slow reference decides as well
BATCH = 1000
VW_ARMS = (1_000, 10_000, 100_000)


def decide(setting: Setting) -> Result:
    """One decision at a time through the Python API."""
    result, subject = Result(), setting.model()
    singles = _singles(subject.contexts)
    with ExitStack() as stack:
        pecos = with_pecos(setting, subject, result, stack)  # before treetop's own index: loading takes twice its size
        everyone: list[Contestant] = []
        for beam in setting.beams:
            policy = setting.policy(beam)
            setting.say(f"check at beam {beam}")
            result.checks[f"beam {beam}"] = check_decisions(subject.model, policy, _some(subject.contexts))
            everyone += _ours(subject.model, policy, singles, setting.contexts)
            if pecos:
                result.checks[f"pecos at beam {beam}"] = _same_top(subject, policy, pecos)
                row = {"name": "pecos", "arms": subject.model.n_arms, "beam": beam}
                size = max(10, setting.contexts // 4)
                everyone.append(Contestant(row | {"how": "predict"}, pecos.timer("single", beam=beam, k=5), size))
                everyone.append(Contestant(row | {"how": "C call"}, pecos.timer("bare", beam=beam, k=5), size))
        result.checks["layout"] = dict(zip(("mapped_mb", "in_huge_pages_mb"), mapped_mb("serving.bin"), strict=True))
        setting.say(f"{len(everyone)} contestants in turns")
        result.rows.extend(contest(with_own_contexts(everyone, len(singles))))
    _every_arm(setting, subject, singles, result)
    _vw(setting, result)
    return result


def batch(setting: Setting) -> Result:
    """1,000 contexts at a time, on one thread and on all cores; times are per context."""
    result, subject = Result(), setting.model()
    size = min(BATCH, len(subject.contexts))
    rounds = max(3, setting.contexts // size)
    cores = os.cpu_count() or 1
    X = subject.contexts.csr()
    blocks = [X[first : first + size] for first in range(0, X.shape[0] - size + 1, size)]
    with ExitStack() as stack:
        pecos = with_pecos(setting, subject, result, stack)
        everyone = []
        for beam in setting.beams:
            policy = setting.policy(beam)
            result.checks[f"beam {beam}"] = check_decisions(subject.model, policy, _some(subject.contexts))
            _check_threads(subject.model, policy, blocks[0])
            for threads in dict.fromkeys((1, cores)):
                row = {"arms": subject.model.n_arms, "beam": beam, "threads": threads, "batch": size}
                ours = _batches(subject.model, policy, blocks, threads, size)
                everyone.append(Contestant({"name": "treetop"} | row, ours, rounds))
                if pecos:
                    theirs = _pecos_batches(pecos, beam, threads, size, len(blocks))
                    everyone.append(Contestant({"name": "pecos"} | row, theirs, rounds))
        setting.say(f"{len(everyone)} contestants in turns")
        result.rows.extend(contest(with_own_contexts(everyone, len(blocks))))
    return result


def scale(setting: Setting) -> Result:
    """The same features and leaves, one, three and ten times the arms: all models in memory, timed in turns."""
    result = Result()
    shapes = [setting.shape.sized(factor * setting.shape.arms) for factor in (1, 3, 10)]
    everyone = []
    for shape in shapes:
        subject = setting.model(shape)
        singles = _singles(subject.contexts)
        for beam in setting.beams:
            policy = setting.policy(beam)
            setting.say(f"check of {shape.arms:,} arms at beam {beam}")
            result.checks[f"{shape.arms} arms, beam {beam}"] = check_decisions(
                subject.model, policy, _some(subject.contexts)
            )
            ours = _ours(subject.model, policy, singles, setting.contexts, half=False)
            everyone += [Contestant(c.row | subject.facts, c.call, c.size) for c in ours]
    setting.say(f"{len(everyone)} contestants in turns")
    result.rows.extend(contest(with_own_contexts(everyone, len(singles))))
    base = {row["beam"]: row["cpu_ms"] for row in result.rows if row["arms"] == shapes[0].arms}
    for row in result.rows:
        row["times_smallest"] = round(row["cpu_ms"] / base[row["beam"]], 3)
    return result


def _singles(contexts: Rows) -> list[sp.csr_matrix]:
    """One-row matrices, as a caller has them."""
    return [contexts.row(i).csr() for i in range(len(contexts))]


def _some(contexts: Rows) -> list[Rows]:
    return [contexts.row(i) for i in range(CHECKED)]


def _ours(model: Model, policy: Policy, singles: list[sp.csr_matrix], size: int, half: bool = True) -> list[Contestant]:
    """A decision, and one with half of the arms eligible, prepared once."""
    size = min(size, len(singles))
    row = {"name": "treetop", "arms": model.n_arms, "beam": policy.beam}
    policy.decide(model, singles[0])

    def single(first: int, n: int) -> list[Taken]:
        return seconds(lambda i: policy.decide(model, singles[i], event_id=i), n, first)

    found = [Contestant(row, single, size)]
    if half:
        mask = np.random.default_rng(0).random(model.n_arms) < 0.5
        began = time.perf_counter()
        allowed = Eligible.of(model.tree, mask)
        row = row | {"eligible": "half", "prepare_ms": round(1e3 * (time.perf_counter() - began), 3)}

        def masked(first: int, n: int) -> list[Taken]:
            return seconds(lambda i: policy.decide(model, singles[i], event_id=i, eligible=allowed), n, first)

        shown = policy.decide(model, singles[0], event_id=0, eligible=allowed).arms
        if not mask[shown].all():
            raise Disagreement(f"arms {shown[~mask[shown]].tolist()} were shown and are not eligible")
        found.append(Contestant(row, masked, size))
    return found


def _every_arm(setting: Setting, subject: BenchModel, singles: list[sp.csr_matrix], result: Result) -> None:
    """Every arm scored, by the feature-major index and by scipy with one row an arm; treetop beside them once more."""
    setting.say("every arm scored")
    model = subject.model
    rows = model.reward_rows.slice(model.tree.n_nodes, model.tree.n_nodes + model.n_arms)
    if len(rows.value) >= 2**31:
        raise ValueError(f"{len(rows.value):,} arm weights; scipy's 32-bit rows hold at most {2**31 - 1:,}")
    arms = sp.csr_matrix((rows.value, rows.index, rows.start.astype(np.int32)), shape=(len(rows), rows.columns))
    flat = _core.Flat(rows.start, rows.index, rows.value, rows.columns, 0)

    def by_scipy(i: int) -> Any:
        x = subject.contexts.row(i)
        vector = np.zeros(rows.columns, np.float32)
        vector[x.index], vector[-1] = x.value, 1.0
        scores = arms @ vector
        best = np.argpartition(-scores, 5)[:5]
        return np.sort(scores[best])[::-1]

    def by_index(i: int) -> Any:
        x = subject.contexts.row(i)
        return flat.top(x.start, x.index, x.value, 5)

    for i in range(CHECKED):
        if (worst := float(np.abs(by_index(i)[1][0] - by_scipy(i)).max())) > TOLERANCE:
            raise Disagreement(f"a score of the flat index differs from scipy's by {worst:.3g}")
    result.checks["flat against scipy"] = {"contexts": CHECKED}
    slow = 9 if model.n_arms > 1_000_000 else 30
    everyone = [
        _ours(model, setting.policy(setting.beams[0]), singles, setting.contexts, half=False)[0],
        Contestant({"name": "flat"}, lambda first, n: seconds(by_index, n, first), max(10, setting.contexts // 10)),
        Contestant({"name": "scipy"}, lambda first, n: seconds(by_scipy, n, first), slow),
    ]
    ours, *found = contest(everyone)
    for row in found:
        times = {"arms": model.n_arms, "times_treetop": round(row["cpu_ms"] / ours["cpu_ms"], 2)}
        result.rows.append(row | times | (_work(flat, subject.contexts, row) if row["name"] == "flat" else {}))


def _work(flat: Any, contexts: Rows, row: Row) -> Row:
    """Multiply-adds a context of the flat index, and a second of a core at its median."""
    x = contexts.head(20)
    each = flat.top(x.start, x.index, x.value, 5)[2] / 20
    return {"multiply_adds": round(each), "g_per_second": round(each / row["cpu_ms"] / 1e6, 3)}


def _same_top(subject: BenchModel, policy: Policy, pecos: Peer) -> dict[str, int]:
    """PECOS's five best arms are the five best single arms of the search, with the same scores."""
    same, tree = 0, subject.model.tree
    answers = pecos.ask("top", beam=policy.beam, k=5, first=0, n=CHECKED)
    for x, (places, scores) in zip(_some(subject.contexts), answers, strict=True):
        found = policy.explain(subject.model, x)
        mine = dict(zip(found.id[~found.is_node].tolist(), found.score[~found.is_node].tolist(), strict=True))
        theirs = dict(zip(tree.arm_at[places].tolist(), scores, strict=True))
        best = sorted(mine.values(), reverse=True)[: len(theirs)]
        close = all(abs(mine.get(arm, np.inf) - score) <= TOLERANCE for arm, score in theirs.items())
        same += close and bool(np.allclose(sorted(theirs.values(), reverse=True), best, atol=TOLERANCE))
    if same < CHECKED - 1:  # one context may lie at a tie of routes
        raise Disagreement(f"beam {policy.beam}: PECOS finds other arms in {CHECKED - same} of {CHECKED} contexts")
    return {"contexts": CHECKED, "same_top_5": same}


def _batches(
    model: Model, policy: Policy, blocks: list[Any], threads: int, size: int
) -> Callable[[int, int], list[Taken]]:
    on_threads = replace(policy, threads=threads)

    def call(first: int, n: int) -> list[Taken]:
        times = seconds(lambda i: on_threads.decide_batch(model, blocks[i % len(blocks)], seed=i), n, first)
        return [(wall / size, cpu / size) for wall, cpu in times]

    return call


def _pecos_batches(pecos: Peer, beam: int, threads: int, size: int, blocks: int) -> Callable[[int, int], list[Taken]]:
    def call(first: int, n: int) -> list[Taken]:
        return [
            (wall / size, cpu / size)
            for i in range(first, first + n)
            for wall, cpu in pecos.ask("batch", beam=beam, k=5, threads=threads, first=i % blocks * size, n=size)
        ]

    return call


def _check_threads(model: Model, policy: Policy, block: Any) -> None:
    one, all_ = (replace(policy, threads=threads).decide_batch(model, block, seed=0) for threads in (1, 0))
    if not (np.array_equal(one.arms, all_.arms) and np.array_equal(one.propensities, all_.propensities)):
        raise Disagreement("a batch on one thread and on all cores decides differently")


def _vw(setting: Setting, result: Result) -> None:
    """Vowpal Wabbit at the arm counts it can bear, beside treetop at the same ones."""
    if setting.peers is None:
        result.leave_out("vw")
        return
    for arms in [n for n in VW_ARMS if n <= setting.shape.arms]:
        subject = setting.model(SHAPES["small"].sized(arms))
        with tempfile.TemporaryDirectory() as folder, Peer(setting.peers, "vw") as peer:
            save_rows(subject.contexts.head(60), Path(folder) / "contexts.npz")
            setting.say(f"Vowpal Wabbit with {arms:,} arms")
            peer.ask("load", contexts=f"{folder}/contexts.npz", arms=arms)
            n = 3 if arms > 10_000 else 9
            row = {"name": "vw", "arms": arms}
            everyone = [
                Contestant(row | {"how": "text"}, peer.timer("text"), n),
                Contestant(row | {"how": "parsed"}, peer.timer("parsed"), n),
            ]
            singles, policy = _singles(subject.contexts), setting.policy(setting.beams[0])
            everyone += _ours(subject.model, policy, singles, setting.contexts, half=False)
            result.rows.extend(contest(everyone))
