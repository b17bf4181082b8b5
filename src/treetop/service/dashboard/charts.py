"""The data of the charts, of bounded length, in the form that the page's script takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from treetop.log.timeline import Stretch, Sums
from treetop.log.visit_totals import EDGES, OTHERS, Cell, VisitTotals, added_up
from treetop.service.dashboard.board import Board
from treetop.service.dashboard.latency import percentiles
from treetop.service.dashboard.requests import RequestTotals

MAX_POINTS, MIN_POINTS = 150, 12  # in a line, about
PER_POINT = 25  # visits or requests that a point should have, on average
GAP = 8  # times the usual step between two points: no line is drawn across
FEW = 5  # slots with a known reward that a point of their mean should have
VARIANTS = 5  # numbers of slots that have lines of their own
S = TypeVar("S", bound=Sums)


@dataclass(frozen=True, eq=False)
class Point(Generic[S]):
    """The sums of one step of a chart, which covers `seconds` of the range."""

    time: float
    seconds: float
    sums: list[S]


def series(board: Board) -> dict[str, Any]:
    """Data of every chart; null where there is nothing to draw."""
    asked = sum(board.request_total.requests.values())
    points = steps(board.requests, asked, board.bounds, board.now)
    charts: dict[str, Any] = {"latency": latency(points), "errors": errors(points), "experiment": experiment(board)}
    if board.logged is not None:
        visits = sum(cell.visits for cell in board.logged.total.cells())
        made = steps(board.logged.stretches, visits, board.bounds, board.now)
        counts = board.logged.total.propensities.tolist()
        charts.update(over_time(made), propensity={"counts": counts, "edges": EDGES.tolist()})
    return charts


def experiment(board: Board) -> dict[str, Any] | None:
    """Reward per visit of each variant, with its interval, by all visits up to each moment."""
    if board.result is None or len(board.result.history) < 2:
        return None
    result, lines = board.result, list[list[Any]]()
    for i in range(len(result.order)):
        found = [moment.rewards[i] for moment in result.history]
        lines += [[None if e is None else getattr(e, part) for e in found] for part in ("value", "low", "high")]
    return {"labels": list(result.order), "lines": [[moment.time for moment in result.history], *lines]}


def steps(stretches: Sequence[Stretch[S]], count: int, bounds: tuple[float, float], now: float) -> list[Point[S]]:
    """Stretches in MAX_POINTS steps or fewer, for `count` visits or requests in all. A step that has only just begun is
    left out, if there are others.

    Lengths are powers of two times the shortest, so a stretch lies in one step, or is longer and a step of its own.
    """
    if not stretches:
        return []
    shortest = min(stretch.end - stretch.begin for stretch in stretches)
    span = min(stretches[-1].end, now) - stretches[0].begin
    points = min(max(count // PER_POINT, MIN_POINTS), MAX_POINTS)
    step = shortest << math.ceil(math.log2(max(span / shortest / points, 1)))
    found: dict[float, tuple[float, list[S]]] = {}
    for stretch in stretches:
        length = max(step, stretch.end - stretch.begin)
        begin = stretch.begin // length * length
        found.setdefault(begin, (begin + length, []))[1].append(stretch.sums)
    made = [
        Point(max(begin, bounds[0]), min(end, now, bounds[1]) - max(begin, bounds[0]), sums)
        for begin, (end, sums) in found.items()
    ]
    ends = next(end for end, _ in reversed(found.values()))
    if len(made) > 1 and now < ends and made[-1].seconds < step / 2:
        made.pop()
    return made


def over_time(points: list[Point[VisitTotals]]) -> dict[str, Any]:
    """Lines by time: reward per visit with the model that served, the same by number of slots, traffic, exploration."""
    cells = [added_up(point.sums).cells() for point in points]
    times, told = [point.time for point in points], most_told(cells)
    reward: list[list[Any]] = [[_per_visit(found, told) for found in cells], [_busiest(found) for found in cells]]
    slots = [[_per_slot(found, how) for found in cells] for how in (0, 1)]
    share = [_ratio(_sum(c.slots[1] for c in found), _sum(sum(c.slots) for c in found)) for found in cells]
    return {
        "reward": _broken(times, reward),
        "variants": variants(points, cells, told),
        "slots": _broken(times, slots),
        "unlikely": _broken(times, [share]),
        "traffic": rates(points, [lambda cell: cell.visits, lambda cell: sum(cell.observed)], cells),
    }


def most_told(cells: list[list[Cell]]) -> bool:
    """Whether most visits have a reward sooner or later: those without any are pending then. Where few have one, as
    where clicks alone are told, a visit without any has brought nothing."""
    every = [cell for found in cells for cell in found]
    return 2 * _sum(sum(cell.observed) for cell in every) >= _sum(cell.visits for cell in every)


def variants(points: list[Point[VisitTotals]], cells: list[list[Cell]], told: bool) -> dict[str, Any] | None:
    """Reward per visit by number of slots; None if all visits had the same."""
    visits: dict[int, int] = {}
    for cell in (cell for found in cells for cell in found):
        visits[cell.k] = visits.get(cell.k, 0) + cell.visits
    if len(visits) < 2:
        return None
    most = sorted(sorted(set(visits) - {OTHERS}, key=lambda k: -visits[k])[:VARIANTS])
    lines = [[_per_visit([c for c in found if c.k == k], told) for found in cells] for k in most]
    labels = [f"k = {k}" for k in most]
    if len(visits) > len(most):
        lines.append([_per_visit([c for c in found if c.k not in most], told) for found in cells])
        labels.append("other k")
    return {"labels": labels, "lines": _broken([point.time for point in points], lines)}


def rates(points: list[Point[Any]], counts: list[Callable[[Any], int]], of: list[list[Any]]) -> list[list[Any]]:
    """Counts a minute, one line for each function of a point's parts; nothing between two points means 0."""
    lines = [
        [60 * sum(map(count, parts)) / max(p.seconds, 1.0) for p, parts in zip(points, of, strict=True)]
        for count in counts
    ]
    out: list[list[Any]] = [[], *([] for _ in counts)]
    for i, point in enumerate(points):
        _append(out, point.time, [line[i] for line in lines])
        after, following = point.time + point.seconds, points[i + 1].time if i + 1 < len(points) else None
        if following is not None and following - after > point.seconds:
            _append(out, after, [0.0] * len(counts))
            _append(out, following - point.seconds, [0.0] * len(counts))
    return out


def latency(points: list[Point[RequestTotals]]) -> list[list[Any]]:
    """Percentiles of the milliseconds of a decision."""
    took = [percentiles(sum(sums.took for sums in point.sums)) for point in points]  # type: ignore[arg-type]
    lines: list[list[Any]] = [[None if found is None else 1000 * found[i] for found in took] for i in range(3)]
    return _broken([point.time for point in points], lines)


def errors(points: list[Point[RequestTotals]]) -> list[list[Any]]:
    """Refused requests (4xx) and failures (5xx) a minute."""
    kinds: list[Callable[[RequestTotals], int]] = [lambda sums: failed(sums, "4"), lambda sums: failed(sums, "5")]
    return rates(points, kinds, [point.sums for point in points])


def failed(sums: RequestTotals, kind: str, route: str | None = None) -> int:
    """Requests, of one route or all, whose status begins with a digit."""
    found = sums.requests.items()
    return sum(n for (to, status), n in found if status.startswith(kind) and route in (None, to))


def by_epoch(total: VisitTotals) -> dict[int, list[Cell]]:
    """The cells of each model."""
    out: dict[int, list[Cell]] = {}
    for cell in total.cells():
        out.setdefault(cell.epoch, []).append(cell)
    return out


def _append(lines: list[list[Any]], time: float, values: list[Any]) -> None:
    for line, value in zip(lines, [time, *values], strict=True):
        line.append(value)


def _sum(values: Any) -> float:
    return float(sum(values))


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _per_visit(cells: list[Cell], told: bool) -> float | None:
    """None where all rewards are pending, if most are `told` sooner or later."""
    if told and not any(any(cell.observed) for cell in cells):
        return None
    return _ratio(_sum(sum(cell.reward) for cell in cells), _sum(cell.visits for cell in cells))


def _per_slot(cells: list[Cell], how: int) -> float | None:
    """None where so few have a known reward that it would be noise."""
    observed = sum(cell.observed[how] for cell in cells)
    return _sum(cell.reward[how] for cell in cells) / observed if observed >= FEW else None


def _busiest(cells: list[Cell]) -> int:
    """The model with most visits."""
    visits: dict[int, int] = {}
    for cell in cells:
        visits[cell.epoch] = visits.get(cell.epoch, 0) + cell.visits
    return max(visits, key=lambda epoch: (visits[epoch], epoch))


def _broken(times: list[float], lines: list[list[Any]]) -> list[list[Any]]:
    """Inserts an empty point into every long gap, so that no line is drawn across it; the epoch goes on."""
    gaps = np.diff(times)
    wide = np.flatnonzero(gaps > GAP * np.median(gaps)) if len(gaps) else np.zeros(0, np.int64)
    out: list[list[Any]] = [list(times), *(list(line) for line in lines)]
    for i in reversed(wide.tolist()):
        out[0].insert(i + 1, float(times[i] + gaps[i] / 2))
        for line in out[1:]:
            line.insert(i + 1, line[i] if isinstance(line[i], int) else None)
    return out
