"""Sets of another kind, made of WordNet: `python benchmarks/wordnet.py OUT [--wordnet /usr/share/wordnet]`.

Contexts are tf-idf of the words of a gloss (7 a row). Arms are, in OUT/lemmas, the lemmas of the synset and of those
above it, without those that occur once; in OUT/related, the synsets that it points to. Most arms have one or two
labelled rows among 5,000, so that these sets say what a learner does where labels are few. WordNet's files (`data.noun`
and so on) come with the package wordnet-base of Debian; nothing of it is part of treetop. OUT/lemmas and OUT/related
are folders as `treetop simulate` and `benchmarks/quality.py` take them.
"""

from __future__ import annotations

import argparse
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

PARTS = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}
ABOVE = {"@", "@i", "&"}  # pointers to what is more general, or similar
STOP = """
a an the of or and in to for with by as on at from that is are be which who whose it its used usually having not into
one any some other than especially being his her their this was were has have e g
"""
TRAINING = 0.85  # of the rows, drawn at random

Synset = tuple[str, str]  # part of speech, offset in its file


@dataclass(frozen=True)
class Entry:
    lemmas: list[str]
    words: list[str]  # of the gloss
    points_to: list[tuple[str, Synset]]  # kind of pointer, synset


def entries(folder: Path) -> Iterator[tuple[Synset, Entry]]:
    """Every synset of the data files, in their order; wndb(5WN) says what a line is."""
    unsaid = frozenset(STOP.split())
    for name, part in PARTS.items():
        for line in (folder / f"data.{name}").read_text().splitlines():
            if line.startswith("  "):
                continue
            head, gloss = line.split("|", 1)
            fields = head.split()
            lemmas = int(fields[3], 16)
            first = 5 + 2 * lemmas
            pointers = [fields[first + 4 * i : first + 4 * i + 3] for i in range(int(fields[first - 1]))]
            words = [w for w in re.findall("[a-z]+", gloss.lower()) if len(w) > 1 and w not in unsaid]
            yield (
                (part, fields[0]),
                Entry(
                    [fields[4 + 2 * i].split("(")[0].lower() for i in range(lemmas)],
                    words,
                    [(kind, (of.replace("s", "a"), offset)) for kind, offset, of in pointers],
                ),
            )


def contexts(glosses: list[list[str]]) -> sp.csr_matrix:
    """tf-idf of the words that occur in two glosses at least, rows of length 1."""
    frequency = Counter(word for gloss in glosses for word in set(gloss))
    place = {word: i for i, word in enumerate(sorted(word for word, n in frequency.items() if n > 1))}
    start, index, value = [0], [], []
    for gloss in glosses:
        counts = Counter(word for word in gloss if word in place)
        weights = [(1 + math.log(n)) * math.log(len(glosses) / frequency[word]) for word, n in counts.items()]
        length = math.hypot(*weights) or 1.0
        index += [place[word] for word in counts]
        value += [weight / length for weight in weights]
        start.append(len(index))
    found = sp.csr_matrix((np.array(value, np.float32), index, start), shape=(len(glosses), len(place)))
    found.sort_indices()
    return found


def labels(names: list[set[str]], least: int) -> sp.csr_matrix:
    """A column for every name that at least so many rows have."""
    rows_of = Counter(name for row in names for name in row)
    place = {name: i for i, name in enumerate(sorted(name for name, n in rows_of.items() if n >= least))}
    pairs = [(row, place[name]) for row, found in enumerate(names) for name in sorted(found) if name in place]
    row, column = np.array(pairs).T
    return sp.csr_matrix((np.ones(len(pairs), np.float32), (row, column)), shape=(len(names), len(place)))


def write(folder: Path, X: sp.csr_matrix, Y: sp.csr_matrix, seed: int = 0) -> None:
    """Rows that have labels, at random in two files of each."""
    order = np.random.default_rng(seed).permutation(X.shape[0])
    order = order[np.diff(Y.indptr)[order] > 0]
    cut = int(TRAINING * len(order))
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("trn", order[:cut]), ("tst", order[cut:])):
        sp.save_npz(folder / f"X.{name}.npz", X[rows])
        sp.save_npz(folder / f"Y.{name}.npz", Y[rows])
    print(
        f"{folder}: {len(order):,} rows, {X.shape[1]:,} features, {Y.shape[1]:,} arms, {Y.nnz / len(order):.2f} a row"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--wordnet", type=Path, default=Path("/usr/share/wordnet"), help="where data.noun is")
    asked = parser.parse_args()
    if not (asked.wordnet / "data.noun").exists():
        parser.error(f"{asked.wordnet} has no data.noun: Debian's package wordnet-base brings it")
    known = dict(entries(asked.wordnet))
    X = contexts([entry.words for entry in known.values()])

    def lemmas(entry: Entry) -> set[str]:
        above = [known[to] for kind, to in entry.points_to if kind in ABOVE and to in known]
        return {lemma for each in (entry, *above) for lemma in each.lemmas}

    write(asked.out / "lemmas", X, labels([lemmas(entry) for entry in known.values()], least=2))
    related = [{"".join(to) for _, to in entry.points_to if to in known} for entry in known.values()]
    write(asked.out / "related", X, labels(related, least=1))


if __name__ == "__main__":
    main()
