"""The slow twin of `src/core/synthesize.hpp`: the same hidden hierarchy and the same draws, in plain Python."""

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

MASK = 2**64 - 1
FAN, DRIFT, OWN = 8, 0.25, 0.4


def mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def derive(key: int, part: int) -> int:
    return mix(mix((key + 0x9E3779B97F4A7C15) & MASK) ^ ((part * 0xD1342543DE82EF95 + 1) & MASK))


class Stream:
    def __init__(self, key: int) -> None:
        self.state = key

    def next(self) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        return mix(self.state)

    def uniform(self) -> float:
        return (self.next() >> 11) * 2.0**-53

    def below(self, n: int) -> int:
        while (r := self.next()) < 2**64 % n:
            pass
        return r % n


def shuffled(n: int, key: int) -> list[int]:
    order, stream = list(range(n)), Stream(key)
    for i in range(n - 1, 0, -1):
        j = stream.below(i + 1)
        order[i], order[j] = order[j], order[i]
    return order


def nearest_free(taken: Counter[int], i: int, n: int) -> int:
    return next(j % n for j in range(i, i + n) if j % n not in taken)


def length(mean: float, width: float, limit: float, stream: Stream) -> int:
    width = min(width, mean - 1, limit - mean)
    return int(min(mean + width * (2 * stream.uniform() - 1) + stream.uniform(), limit))


@dataclass(frozen=True)
class World:
    """Positions of arms, words of topics: everything that a row draws from."""

    arms: int
    features: int
    topics: int
    nonzeros: float
    labels: float
    zipf: float
    noise: float
    seed: int

    @cached_property
    def arm_at(self) -> list[int]:
        return shuffled(self.arms, derive(self.seed, 1))

    @cached_property
    def feature_at(self) -> list[int]:
        return shuffled(self.features, derive(self.seed, 2))

    @cached_property
    def below(self) -> list[float]:
        sums = [0.0]
        for rank in shuffled(self.arms, derive(self.seed, 3)):
            sums.append(sums[-1] + (rank + 1.0) ** -self.zipf)
        return [s / sums[-1] for s in sums]

    @cached_property
    def levels(self) -> int:
        return next(h for h in range(1, 99) if len(self.nodes(h)) <= FAN)

    @cached_property
    def words(self) -> list[int]:
        """How many an arm owns, and how many a topic of each level owns."""
        signal = self.nonzeros * (1 - self.noise)
        own, topic = min(max(signal / self.labels, 3), 24), min(max(signal / 2, 8), 400)
        return [math.floor(own + 0.5)] + [math.floor(topic + 0.5)] * self.levels

    def nodes(self, level: int) -> list[range]:
        """The topics of each node of a level."""
        step = FAN ** (level - 1)
        return [range(t, min(t + step, self.topics)) for t in range(0, self.topics, step)]

    def topic_of(self, position: int) -> int:
        return max(t for t in range(self.topics) if t * self.arms // self.topics <= position)

    def positions(self, topics: range) -> range:
        return range(topics.start * self.arms // self.topics, topics.stop * self.arms // self.topics)

    def word(self, level: int, node: int, j: int) -> int:
        return derive(derive(derive(self.seed, 16 + level), node), j) % self.features

    def draw_position(self, level: int, topic: int, stream: Stream) -> int:
        step = FAN ** (level - 1)
        inside = range(self.arms) if level > self.levels else self.positions(self.nodes(level)[topic // step])
        low, high = self.below[inside.start], self.below[inside.stop]
        at = low + stream.uniform() * (high - low)
        return next((p for p in inside if self.below[p + 1] > at), inside.stop - 1)

    def draw_labels(self, wanted: int, stream: Stream) -> list[int]:
        root = self.levels + 1
        first = self.draw_position(root, 0, stream)
        topic, taken = self.topic_of(first), Counter([first])
        while len(taken) < wanted:
            level = 1
            while level < root and stream.uniform() < DRIFT:
                level += 1
            tries = 1
            while (position := self.draw_position(level, topic, stream)) in taken and tries < 4 * (root + 1):
                level = min(level + (tries % 4 == 0), root)
                tries += 1
            taken[nearest_free(taken, position, self.arms)] += 1
        return list(taken)

    def draw_word(self, positions: list[int], stream: Stream) -> int:
        if stream.uniform() < self.noise:
            rank = int(math.exp(stream.uniform() * math.log(self.features + 1.0)) - 1)
            return self.feature_at[min(rank, self.features - 1)]
        position = positions[stream.below(len(positions))]
        if stream.uniform() < OWN:
            return self.word(0, position, stream.below(self.words[0]))
        level = 1 + stream.below(self.levels)
        node = self.topic_of(position) // FAN ** (level - 1)
        return self.word(level, node, stream.below(self.words[level]))

    def draw_words(self, wanted: int, positions: list[int], stream: Stream) -> Counter[int]:
        drawn: Counter[int] = Counter()
        left = 64 + 8 * wanted
        while len(drawn) < wanted and left > 0:
            drawn[self.draw_word(positions, stream)] += 1
            left -= 1
        while len(drawn) < wanted:
            drawn[nearest_free(drawn, self.draw_word(positions, stream), self.features)] += 1
        return drawn

    @cached_property
    def weights(self) -> list[float]:
        chance = [0.0] * self.features
        for rank, f in enumerate(self.feature_at):
            chance[f] = self.noise * math.log((rank + 2) / (rank + 1)) / math.log(self.features + 1)
        owners = [(0, p, OWN, range(p, p + 1)) for p in range(self.arms)] + [
            (level, node, (1 - OWN) / self.levels, self.positions(topics))
            for level in range(1, self.levels + 1)
            for node, topics in enumerate(self.nodes(level))
        ]
        for level, node, share, inside in owners:
            mass = share * (self.below[inside.stop] - self.below[inside.start])
            for j in range(self.words[level]):
                chance[self.word(level, node, j)] += (1 - self.noise) * mass / self.words[level]
        return [1 - math.log(1 - math.exp(-self.nonzeros * max(q, 1e-9))) for q in chance]

    def row(self, key: int) -> tuple[list[int], dict[int, float]]:
        """The sorted labels of a row, and its features with their values."""
        sizes, stream = Stream(derive(key, 0)), Stream(derive(key, 1))
        n_labels = length(self.labels, self.labels, self.arms, sizes)
        n_words = length(self.nonzeros, self.nonzeros / 2, self.features, sizes)
        positions = self.draw_labels(n_labels, stream)
        counts = self.draw_words(n_words, positions, stream)
        raw = {f: (1 + math.log(counts[f])) * self.weights[f] for f in sorted(counts)}
        norm = math.sqrt(sum(v * v for v in raw.values()))
        return sorted(self.arm_at[p] for p in positions), {f: v / norm for f, v in raw.items()}
