"""How far a run or a tree is, as bars on a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from treetop.cli.output import errors, is_shown


@contextmanager
def bars(quiet: bool) -> Iterator[_Bars]:
    """Bars on a terminal, on stderr; silent for machines.

    >>> with bars(quiet=True) as shown:
    ...     shown("igw", total=10)(5, 1.5)  # five rounds done, with a mean reward of 1.5
    """
    with Progress(
        TextColumn("{task.description:<18}"),
        BarColumn(bar_width=10),
        TextColumn("{task.fields[says]}"),
        TimeRemainingColumn(compact=True),
        console=errors,
        disable=not is_shown(quiet),
    ) as progress:
        yield _Bars(progress)


class _Bars:
    """A bar per run with rounds a second, the mean reward so far and the time left; others while something is built."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._built: dict[str, TaskID] = {}

    def __call__(self, name: str, total: int, done: int = 0) -> Callable[[int, float], None]:
        task = self._progress.add_task(name, total=total, completed=done, says=_run_so_far(done, 0.0, 0.0))
        began = time.perf_counter()

        def update(now: int, mean: float) -> None:
            rate = (now - done) / max(1e-9, time.perf_counter() - began)
            self._progress.update(task, completed=now, says=_run_so_far(now, mean, rate))

        return update

    def building(self, what: str, done: int, total: int) -> None:
        """A bar for what takes longer than a moment, gone when it is done."""
        if what not in self._built and done < total:
            self._built[what] = self._progress.add_task(what, total=total, says="")
        if what in self._built:
            self._progress.update(self._built[what], completed=done, says=f"{done / total:>9.0%}")
            if done >= total:
                self._progress.remove_task(self._built.pop(what))


def _run_so_far(rounds: int, mean: float, rate: float) -> str:
    return f"{rounds:>9,}  reward [bold]{mean:.3f}[/]" + (f" {rate:>7,.0f}/s" if rate else "")


@contextmanager
def steps(quiet: bool) -> Iterator[Callable[[str], None]]:
    """What is being made, and for how long, on one line of stderr; silent for machines.

    >>> with steps(quiet=True) as step:
    ...     step("the tree")
    """
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=errors, disable=not is_shown(quiet), transient=True) as progress:
        task = progress.add_task("", total=None)

        def step(what: str) -> None:
            progress.reset(task, description=what)

        yield step
