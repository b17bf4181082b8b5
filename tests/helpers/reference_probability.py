"""The slow twin of `policy.probability`: every sequence of arms that a decision can show, with its chance.

Decisions over effective arms are enumerated, each of their arms then shown in every way; a sequence of arms that comes
about in several ways has the sum of their chances. Shares no code with the package.
"""

from itertools import pairwise

from helpers.budgeted import Twin
from helpers.reference import Floats, Sequence, Strategy, decisions, shown_arms


def slates(
    scores: Floats, arms_of: list[list[int]], k: int, explore: int, strategy: Strategy, rate: float
) -> dict[Sequence, float]:
    """Of the paper's strategies: whole sequences of arms. `arms_of[i]` are the eligible arms of effective arm i."""
    return shown_arms(decisions(scores, k, explore, strategy, rate), arms_of)


def budgeted_slates(twin: Twin, arms_of: list[list[int]]) -> dict[Sequence, float]:
    """Of budgeted exploration, over both kinds of events."""
    whole = {d: [sum(p)] for d, p in twin.decisions().items() if len(d) == twin.slots}
    return shown_arms(whole, arms_of)


def slot_by_slot(found: dict[Sequence, float], arms: Sequence) -> list[float]:
    """The chance of each slot given those before it: that of all sequences that begin so, divided by one another."""
    begins = [sum(p for d, p in found.items() if d[:s] == arms[:s]) for s in range(len(arms) + 1)]
    return [later / earlier if earlier > 0 else 0.0 for earlier, later in pairwise(begins)]
