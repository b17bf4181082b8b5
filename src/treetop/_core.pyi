"""The native core of treetop: plain arrays in, plain arrays out."""

from collections.abc import Callable, Sequence
from typing import Annotated, overload

import numpy
from numpy.typing import NDArray


def layout(parents: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], leaf_of: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> tuple[Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')], int]:
    """begin, end, arm_at, position_of, depth of a valid tree."""

def synthesize(arms: int, features: int, topics: int, nonzeros: float, labels: float, zipf: float, noise: float, seed: int, init: int, rows: int, threads: int) -> tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')]]:
    """
    Made-up rows of contexts (start, index, value) and labels (start, index): `init` rows, then `rows` rows.
    """

def row_keys(key: int, first: int, n: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')]:
    """One key per row of a seeded batch."""

def uniform(key: int, slot: int) -> float:
    """The number in [0, 1) that belongs to a slot."""

def inspect_rows(start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], index: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], value: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: int, what: str) -> bool:
    """
    Refuses pointers, indices and values out of range; says whether indices rise strictly in every row.
    """

def keep_lock(keep: bool) -> None:
    """
    Whether single decisions keep Python's lock; for processes in which one thread makes them.
    """

def choose(scores: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], is_node: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu', writable=False)], id: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], k: int, explore: int, strategy: int, rate: float | Sequence[float] | tuple[Sequence[float], TrialCounts], key: int, value: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, new_share: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, prior: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> tuple[Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C')]]:
    """Slots from scores: which candidate, its probability, whether drawn."""

class Mask:
    """
    A set of positions with counts per node, prepared once for many decisions.
    """

    def __init__(self, begin: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], end: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], positions: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], arms: int, listed: bool) -> None: ...

    @staticmethod
    def filtered(arms: int, nodes: int, conditions: Sequence[tuple[SortedPositions, Sequence[int]]], base: Mask | None, only: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, banned: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Mask:
        """
        What meets every condition, for one decision: ranges in the order of attributes, of a mask, of listed positions, without the banned ones.
        """

    def below(self, node: int, begin: int, end: int) -> int:
        """
        How many eligible arms are below a node, which has the positions [begin, end).
        """

    def count(self, begin: int, end: int) -> int:
        """How many eligible positions are in [begin, end)."""

    def positions(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')]:
        """The eligible positions, ascending."""

    @property
    def empty(self) -> bool:
        """Whether there is no eligible position."""

    @property
    def total(self) -> int:
        """How many eligible positions there are."""

class SortedPositions:
    """Positions in the order of an attribute's values."""

    def __init__(self, order: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], cuts: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arms: int, values: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> None: ...

    def below(self, value: float, up_to: bool) -> int:
        """How many have a value below this one, or up to it."""

    def __len__(self) -> int: ...

def node_sums(parents: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], begin: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], end: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], arm_at: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], vectors: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: int, threads: int) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')]:
    """
    (nodes, columns): the sums of the vectors of the arms below every node.
    """

LAYOUT_VERSION: int = 4

def crc32(bytes: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], threads: int) -> int:
    """The same number as zlib.crc32, on several threads."""

def instruction_sets() -> list[str]:
    """
    What this machine has for the kernels, the one in use last unless TREETOP_SIMD names another.
    """

class TrialCounts:
    """How often arms were shown by now, where a model's counts are older."""

    def __init__(self, arms: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], counts: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def __len__(self) -> int: ...

class Ahead:
    """A thread that works ahead of whoever waits for results."""

    def __init__(self) -> None: ...

class Begun:
    """A decision that may have been begun by another thread."""

    def take(self) -> tuple[NDArray[numpy.int32], NDArray[numpy.float64], NDArray[numpy.float32], NDArray[numpy.bool_], NDArray[numpy.int32], NDArray[numpy.float32]]:
        """As `decide_one` gives it; once."""

class Engine:
    @overload
    def __init__(self, parents: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], leaf_of: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], route_start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], route_index: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], route_value: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], reward_start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], reward_index: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], reward_value: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: int, geometric: bool, threads: int, file: str = '') -> None:
        """With `file`, a new one, the layout is made there instead of in memory."""

    @overload
    def __init__(self, parents: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], leaf_of: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], route_start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], route_index: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], route_value: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: int, geometric: bool, layout: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def layout(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', writable=False)]:
        """The serving layout as it is written to a file; memory of the engine."""

    def set_pooled(self, means: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], node_mean: float, sample_count: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], trial_value: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], new_trials: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], exploration_net: float, weights: Sequence[float]) -> None:
        """What scores start from; to be called before the engine is shared."""

    def set_path_weight(self, weight: float) -> None:
        """
        How much the path counts in routes of arms; to be called before the engine is shared.
        """

    def set_measure(self, kind: int, first: int, dims: int, scale: float, routes: bool, vectors: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], means: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], range: Sequence[float], context_dims: int, map: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """
        How contexts and items are compared; to be called before the engine is shared.
        """

    def set_coverage(self, start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], group: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], share: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], groups: int, saturation: float = 0.0) -> None:
        """
        Which groups each arm covers; to be called before the engine is shared.
        """

    @property
    def n_components(self) -> int:
        """How many terms a score is the sum of; 0 where the model gives none."""

    def routes(self, start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], index: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], value: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], arms: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], k: int, threads: int) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')]:
        """Log routing scores of given arms."""

    def decide(self, start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], index: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], value: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], keys: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], k: int, explore: int, beam: int, beta: float, strategy: int, rate: float | Sequence[float] | tuple[Sequence[float], TrialCounts], eligible_kind: int, positions: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], position_start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], threads: int, mask: Mask | None = None, diversity: float = 0.0) -> tuple[Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C')], Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')], Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C')], Annotated[NDArray[numpy.bool_], dict(shape=(None, None), order='C')], Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C')], Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order='C')]]:
        """
        Decisions for rows of contexts: arms, propensities, scores, explored, nodes, components.
        """

    def decide_one(self, start: object, index: object, value: object, columns: int, key: int, k: int, explore: int, beam: int, beta: float, strategy: int, rate: float | Sequence[float] | tuple[Sequence[float], TrialCounts], mask: Mask | None = None, diversity: float = 0.0) -> tuple[NDArray[numpy.int32], NDArray[numpy.float64], NDArray[numpy.float32], NDArray[numpy.bool_], NDArray[numpy.int32], NDArray[numpy.float32]] | None:
        """
        One decision for a context that is right as it is: arms, propensities, scores, explored, nodes, components; else None.
        """

    def begin_one(self, ahead: Ahead, start: object, index: object, value: object, columns: int, key: int, k: int, explore: int, beam: int, beta: float, strategy: int, rate: float | Sequence[float] | tuple[Sequence[float], TrialCounts], mask: Mask | None = None, diversity: float = 0.0) -> Begun | None:
        """`decide_one` begun by another thread."""

    def search(self, start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], index: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], value: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], wanted: int, beam: int, beta: float, eligible_kind: int, positions: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], mask: Mask | None = None, threads: int = 1, new_arm_trials: float = 0.0, trial_counts: TrialCounts | None = None) -> tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C')], Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C')]]:
        """
        Effective arms of contexts: where each row begins; is_node, id, log route, score, exploration value, components, new share, prior.
        """

    def new_arm_spending(self) -> list[float]:
        """
        What the decisions so far were expected to bring, those of them that lead to new arms, what draws of new arms were charged, what they cost by the scores, and the second times the part that their slots spend of what they may.
        """

    def lines(self, start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], index: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], value: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], wanted: int, beam: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')]:
        """
        The numbers of the layout's cache lines that a beam search for one context reads, each once.
        """

    def touch(self, numbers: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> tuple[float, int]:
        """Reads a word of these lines and nothing else: seconds, sum."""

    def stages(self, start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], index: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], value: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], key: int, k: int, explore: int, beam: int, strategy: int, rate: float | Sequence[float] | tuple[Sequence[float], TrialCounts]) -> tuple[float, float, float]:
        """
        Seconds of one decision: down the tree, the arms of the leaves, the choice.
        """

    def arm_below(self, node: int, key: int, slot: int, eligible_kind: int, positions: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], mask: Mask | None = None) -> tuple[int, int]:
        """A uniform eligible arm below a node, and how many there are."""

def controlled_terms(weights: NDArray[numpy.float64], rewards: NDArray[numpy.float64], score: NDArray[numpy.float64], expected: NDArray[numpy.float64], covered: NDArray[numpy.float64], largest: NDArray[numpy.float64], slots: NDArray[numpy.int32], level: NDArray[numpy.float64], slope: NDArray[numpy.float64], mean: NDArray[numpy.float64], whole: bool, caps: NDArray[numpy.float64], bound: float) -> tuple[NDArray[numpy.float64], NDArray[numpy.float64]]:
    """
    What rounds say of the value and of its complement, less control variates: (caps, n) each.
    """

def count_values(values: NDArray[numpy.float64], kinds: int, edges: NDArray[numpy.float64]) -> NDArray[numpy.float64]:
    """
    How often each value came, shared out between the two edges around it: (kinds, edges).
    """

def build_hierarchy(start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], index: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], value: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: int, branching: int, max_leaf: int, cocluster: bool, iterations: int, seed: int, threads: int, progress: Callable[[int, int], object] | None = None, level: int = 0, position: int = 0, levels: int = -1) -> tuple[Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')]]:
    """
    parents and leaf_of of a balanced tree over arm vectors: the whole tree, or so many `levels` of what is below the node at a `level` and `position` of it, which has these arms.
    """

def build_vector_tree(vectors: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: int, branching: int, max_leaf: int, spherical: bool, iterations: int, seed: int, threads: int, progress: Callable[[int, int], object] | None = None) -> tuple[Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')]]:
    """
    parents and leaf_of of a tree over dense vectors, by k-means; no leaf has more than max_leaf.
    """

def fit(start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], index: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], value: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: int, group_start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], group_rows: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], target: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], loss: int, cost: float, tolerance: float, passes: int, exact_up_to: int, thresholds: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], seed: int, threads: int, progress: Callable[[int, int], object] | None = None, keep: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, known_start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, known_index: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, known_value: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, first: int = 0) -> tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C')]]:
    """
    Sparse weights on [x; 1], one row per group of samples; the known row where keep says so. The groups have numbers from `first` on, which tell the order in which samples are visited.
    """

def fit_routing(start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], index: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], value: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: int, functions: tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]], fold: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu', writable=False)], settings: tuple[float, float, float], passes: int, thresholds: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], unknown: tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]], threads: int, keep: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, known: Sequence[tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]]] = []) -> tuple[tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C')]], tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C')]], tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C')]]]:
    """
    Routing functions thrice: without the contexts of fold 0, without those of fold 1, and on all. `settings` are the cost and the tolerances of the last fit and of the others.
    """

def routing_fingerprints(start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], index: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], value: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: int, functions: tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]], key: int, threads: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')]:
    """
    64 bits per routing function, as `fingerprints` has them; 0 where nothing right is known.
    """

def fingerprints(start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], index: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], value: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: int, group_start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], group_rows: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], target: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], key: int, threads: int) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')]:
    """
    64 bits per group that tell its samples, their order and `key` apart; 0 without samples.
    """

def fit_truth(start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], index: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], value: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: int, column_start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], column_index: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], column_value: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], arm_start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arm_index: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], arm_value: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], ridge: float, kept: int, threads: int, progress: Callable[[int, int], object] | None = None) -> tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C')]]:
    """
    Sparse weights on [x; 1], one row an arm: its ridge regression over all contexts, on `kept` features.
    """

def means(start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], index: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], value: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: int, weight_start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], weight_index: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], weight_value: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], rows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arms: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], threads: int) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C')]:
    """
    (rows, k): [x; 1] . w of k arms for each row of the contexts, NaN for arm -1.
    """

def pair_routes(start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], index: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], value: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: int, weights: tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]], parents: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], leaf_of: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], rows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arms: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], path_weight: float, threads: int) -> Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')]:
    """
    Log routing scores of pairs of a row, which rise, and an arm, by linear functions of nodes and arms; the path to an arm with a function of its own counts `path_weight`.
    """

def named_row(features: dict[str, object], places: dict[str, int], columns: int, vectors: dict[str, tuple[int, int]] = {}) -> tuple[NDArray[numpy.int64], NDArray[numpy.int32], NDArray[numpy.float32], int] | None:
    """
    (start, index, value, names that have no place) of a context by names; None for what is not plain.
    """

def dense_rows(x: NDArray[numpy.float32]) -> tuple[NDArray[numpy.int64], NDArray[numpy.int32], NDArray[numpy.float32]]:
    """
    (start, index, value) of dense rows; their columns must be fewer than 2^31.
    """

def beyond(index: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], value: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], limit: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> int:
    """
    How many values of a row are larger in size than the limit of their column.
    """

def may_repeat_keys(json: bytes) -> bool:
    """
    False only if no object of this JSON has a key twice; it must have been decoded before.
    """

def slot_probabilities(engine: Engine, start: NDArray[numpy.int64], index: NDArray[numpy.int32], value: NDArray[numpy.float32], arms: NDArray[numpy.int32], width: int, asked: Sequence[tuple[int, int, int, float, int, float | Sequence[float] | tuple[Sequence[float], TrialCounts], float]], eligible_kind: int, positions: NDArray[numpy.int32], position_start: NDArray[numpy.int64], threads: int, mask: Mask | None, groups: NDArray[numpy.int32], served: Engine | None, served_asked: Sequence[tuple[int, int, int, float, int, float | Sequence[float] | tuple[Sequence[float], TrialCounts], float]]) -> list[tuple[NDArray[numpy.float64], NDArray[numpy.int32], NDArray[numpy.float64], NDArray[numpy.float64], NDArray[numpy.float64], NDArray[numpy.float64], NDArray[numpy.float64]]]:
    """
    The chances of given slots for policies (k, explore, beam, beta, strategy, rate, diversity): of each (n, width) probabilities, nodes, scores, mean scores, (n, width, D) chances of the group of each arm, and beside the policy that served the chance of what it may show, and the largest ratio of chances.
    """

class TextReader:
    def __init__(self, form: int) -> None: ...

    def feed(self, block: bytes) -> None:
        """Parses the lines that end in a block of bytes."""

    def finish(self) -> tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')], int, int]:
        """
        start, index, value of the features, start, index of the labels, how many of each there can be.
        """

class Flat:
    def __init__(self, start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], index: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], value: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: int, threads: int) -> None: ...

    def top(self, start: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], index: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], value: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], k: int) -> tuple[Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C')], Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C')], int]:
        """
        The k best arms of each context and their scores, every arm scored, on one thread; and how many weights were multiplied.
        """
