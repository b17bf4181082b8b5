"""Build the bundled `debian` set: which packages does a package depend on, judged by its name and description?

From the repository's root, with the two index files at hand (plain, .gz or .xz):

    python scripts/build_debian.py Packages.xz Translation-en.xz

or on a Debian 12 machine, where apt knows where they are:

    apt-get -o Acquire::Languages=en update
    python scripts/build_debian.py

The same index gives the same arrays, and with the same version of zlib the same bytes; the script prints the
numbers that `src/treetop/data/README.md` quotes. It needs NumPy and SciPy only, and reads nothing but the index.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import lzma
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

OUT = Path(__file__).parents[1] / "src" / "treetop" / "data" / "debian.npz"
APT_CAT = "/usr/lib/apt/apt-helper"

# The run-time libraries of the compilers: libc6 alone is needed by 39 % of the packages, whatever they are about.
EVERYWHERE = frozenset({"libc6", "libgcc-s1", "libstdc++6"})
RELATIONS = ("Pre-Depends", "Depends")
MIN_DF = 5
MAX_COUNT = 255

STOP_LIST = """
a about all also an and any are as at be been between both but by can do does each for from had has have if in into is
it its may more most no not of on one only or other our out over so some such than that the their them then there these
they this those to up use used uses using via was we were what when where which while who will with without you your
"""
STOP_WORDS = frozenset(STOP_LIST.split())
WORD = re.compile(r"[a-z]+[0-9]*|[0-9]+[a-z]+")
PACKAGE = re.compile(r"\s*([a-z0-9][a-z0-9+.-]*)")


@dataclass(frozen=True)
class Package:
    """What the set needs of one package; `needs` has no version, no architecture, and of alternatives the first."""

    name: str
    source: str
    summary: str
    text: str
    needs: tuple[str, ...]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read_index(path: Path) -> bytes:
    """The plain bytes of an index file. Apt's own cache may be lz4, which apt-helper reads."""
    if path.suffix == ".gz":
        return gzip.decompress(path.read_bytes())
    if path.suffix == ".xz":
        return lzma.decompress(path.read_bytes())
    if path.suffix == ".lz4":
        return subprocess.run([APT_CAT, "cat-file", str(path)], check=True, capture_output=True).stdout
    return path.read_bytes()


def ask_apt(created_by: str, which: str) -> Path:
    """Where apt keeps an index of bookworm's main component."""
    command = ["apt-get", "-o", "Acquire::Languages=en", "indextargets", "--format", "$(FILENAME)"]
    wanted = [f"Created-By: {created_by}", "Codename: bookworm", "Component: main", which]
    found = subprocess.run(command + wanted, check=True, capture_output=True, text=True).stdout.split()
    present = [path for path in map(Path, found) if path.exists()]
    if len(present) != 1:
        raise SystemExit(
            f"apt lists {len(found)} files for {wanted}, {len(present)} present, 1 needed; "
            "run: apt-get -o Acquire::Languages=en update"
        )
    return present[0]


def stanzas(text: str) -> Iterator[dict[str, str]]:
    """The paragraphs of a Debian control file, continuation lines joined by newlines."""
    for block in text.split("\n\n"):
        fields: dict[str, str] = {}
        key = ""
        for line in block.splitlines():
            if line.startswith((" ", "\t")):
                fields[key] += "\n" + line.strip()
            elif ":" in line:
                key, value = line.split(":", 1)
                fields[key] = value.strip()
        if fields:
            yield fields


def first_choices(relation: str) -> list[str]:
    """`a (>= 1) | b, c:any` -> [a, c]."""
    return [match[1] for clause in relation.split(",") if (match := PACKAGE.match(clause))]


def parse_packages(packages: str, translation: str) -> list[Package]:
    """Packages with at least one dependency left, neighbours by source (which also packs better)."""
    long_texts = {s["Description-md5"]: s["Description-en"] for s in stanzas(translation) if "Description-md5" in s}
    found: dict[str, Package] = {}
    for fields in stanzas(packages):
        needs = {name for relation in RELATIONS for name in first_choices(fields.get(relation, ""))}
        name, short = fields["Package"], fields.get("Description", "")
        found[name] = Package(
            name=name,
            source=fields.get("Source", name).split()[0],
            summary=" ".join(short.split("\n", 1)[0].split()),
            text=long_texts.get(fields.get("Description-md5", ""), short),
            needs=tuple(sorted(needs - EVERYWHERE - {name})),
        )
    kept = [package for package in found.values() if package.needs]
    if not kept:
        raise SystemExit(f"0 of {len(found)} packages have a dependency; is this a Packages index?")
    return sorted(kept, key=lambda package: (package.source, package.name))


def name_terms(name: str) -> list[str]:
    """The parts of a name, whole and without digits and `lib`; `^` and `$` mark its first and last part.

    >>> name_terms("libqt5core5a-dev")
    ['libqt5core5a', 'libqt', 'core', 'lib', 'qt', 'dev', '^libqt5core5a', 'dev$']
    """
    parts = [part for part in re.split(r"[-.+]", name) if part]
    terms: list[str] = []
    for part in parts:
        terms.append(part)
        terms += [piece for piece in re.split(r"[0-9]+", part) if len(piece) > 1 and piece != part]
        if part.startswith("lib") and len(part) > 4:
            terms += ["lib", re.split(r"[0-9]", part[3:])[0]]
    return [term for term in terms if len(term) > 1 and not term.isdigit()] + ["^" + parts[0], parts[-1] + "$"]


def text_terms(text: str) -> list[str]:
    """Lower-case words of two letters or more, stop words left out.

    >>> text_terms("Tools for the Qt5 and 3D world")
    ['tools', 'qt5', '3d', 'world']
    """
    return [word for word in WORD.findall(text.lower()) if len(word) > 1 and word not in STOP_WORDS]


def count_terms(documents: Sequence[Counter[str]], min_df: int) -> tuple[sp.csr_matrix, list[str]]:
    """Counts of the terms found in `min_df` documents or more; terms are numbered by falling frequency."""
    df = Counter(term for document in documents for term in document)
    terms = sorted((term for term, n in df.items() if n >= min_df), key=lambda term: (-df[term], term))
    return to_csr(documents, terms), terms


def to_csr(rows: Sequence[Counter[str]], columns: Sequence[str]) -> sp.csr_matrix:
    """Counters as a csr matrix with sorted indices; names outside `columns` are left out."""
    column_of = {name: j for j, name in enumerate(columns)}
    indices: list[int] = []
    values: list[int] = []
    indptr = [0]
    for row in rows:
        found = sorted((column_of[name], n) for name, n in row.items() if name in column_of)
        indices += [j for j, _ in found]
        values += [min(n, MAX_COUNT) for _, n in found]
        indptr.append(len(indices))
    return sp.csr_matrix((values, indices, indptr), shape=(len(rows), len(columns)), dtype=np.int64)


def pack_rows(matrix: sp.csr_matrix, prefix: str) -> dict[str, npt.NDArray[np.generic]]:
    """A row's sorted indices as gaps (its first one stands as it is): small, repetitive numbers pack well."""
    lengths = np.diff(matrix.indptr)
    if max(matrix.shape[1], int(lengths.max(initial=0))) > np.iinfo(np.uint16).max:
        raise SystemExit(f"{prefix}: {matrix.shape[1]} columns, rows up to {lengths.max()}: the limit is 65535")
    gaps = np.diff(matrix.indices, prepend=0)
    starts = matrix.indptr[:-1][lengths > 0]
    gaps[starts] = matrix.indices[starts]
    return {f"{prefix}_gaps": gaps.astype(np.uint16), f"{prefix}_lengths": lengths.astype(np.uint16)}


def pack_lines(lines: Sequence[str]) -> npt.NDArray[np.uint8]:
    return np.frombuffer("\n".join(lines).encode(), dtype=np.uint8)


def build(packages: str, translation: str, min_df: int = MIN_DF) -> dict[str, npt.NDArray[np.generic]]:
    """The arrays of the data file. Dependencies make the labels and nothing else."""
    kept = parse_packages(packages, translation)
    documents = [Counter(name_terms(package.name) + text_terms(package.text)) for package in kept]
    counts, terms = count_terms(documents, min_df)
    arms = sorted({arm for package in kept for arm in package.needs})
    labels = to_csr([Counter(package.needs) for package in kept], arms)
    return {
        **pack_rows(counts, "x"),
        "x_counts": counts.data.astype(np.uint8),
        **pack_rows(labels, "y"),
        "contexts": pack_lines([package.name for package in kept]),
        "descriptions": pack_lines([package.summary for package in kept]),
        "arms": pack_lines(arms),
        "features": pack_lines(terms),
    }


def summary(arrays: dict[str, npt.NDArray[np.generic]], path: Path) -> str:
    """The numbers for the README."""
    lines = {key: arrays[key].tobytes().count(b"\n") + 1 for key in ("contexts", "features", "arms")}
    per_row = arrays["y_lengths"].astype(float)
    return "\n".join(
        [f"{key}: {n}" for key, n in lines.items()]
        + [f"nonzeros of X: {len(arrays['x_gaps'])} ({len(arrays['x_gaps']) / len(per_row):.1f} a row)"]
        + [f"labels: {int(per_row.sum())} ({per_row.mean():.2f} a row, median {np.median(per_row):.0f})"]
        + [f"{path.name}: {path.stat().st_size} bytes, sha256 {sha256(path.read_bytes())}"]
    )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="?", type=Path, help="Packages index (default: ask apt)")
    parser.add_argument("translation", nargs="?", type=Path, help="Translation-en index (default: ask apt)")
    parser.add_argument("--min-df", type=int, default=MIN_DF, help="drop terms of fewer contexts (default %(default)s)")
    parser.add_argument("--out", type=Path, default=OUT, help="the data file to write")
    args = parser.parse_args(argv)
    packages = read_index(args.packages or ask_apt("Packages", "Architecture: amd64"))
    translation = read_index(args.translation or ask_apt("Translations", "Language: en"))
    arrays = build(packages.decode(), translation.decode(), args.min_df)
    np.savez_compressed(args.out, allow_pickle=False, **arrays)
    Path(f"{args.out}.sha256").write_text(f"{sha256(args.out.read_bytes())}  {args.out.name}\n")
    print(f"Packages: {len(packages)} bytes, sha256 {sha256(packages)}")
    print(f"Translation-en: {len(translation)} bytes, sha256 {sha256(translation)}")
    print(summary(arrays, args.out))


if __name__ == "__main__":
    main()
