"""Files of replicas as pieces in their store: each named by a digest of its bytes, so that none is written twice."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from treetop.bandit.stores import Store, digest_name
from treetop.files import sync

PIECE = 32 << 20  # bytes of a file that go into one piece
GRACE = 3600.0  # seconds that a piece outlives the last that lists it, for replicas that are reading it

Pieces: TypeAlias = list[list[str | int]]  # (name in the store, bytes) each


def upload(
    store: Store, path: Path, there: set[str], first: int = 0, end: int | None = None, prefix: str = ""
) -> Pieces:
    """Puts a stretch of a file into the store; pieces that are `there` are not written again.

    >>> from tempfile import TemporaryDirectory
    >>> from treetop.bandit.stores import open_store
    >>> with TemporaryDirectory() as place:
    ...     store, file = open_store(f"{place}/store"), Path(place, "tea")
    ...     _ = file.write_bytes(b"mint")
    ...     upload(store, file, set()) == [[digest_name(b"mint"), 4]]
    True
    """
    pieces: Pieces = []
    for data in _stretches(path, first, path.stat().st_size if end is None else end):
        name = prefix + digest_name(data)
        if name not in there:
            store.put(name, data)
            there.add(name)
        pieces.append([name, len(data)])
    return pieces


def extend(store: Store, path: Path, have: int, pieces: Pieces) -> None:
    """A file from its pieces, of which the first `have` bytes are there already.

    >>> from tempfile import TemporaryDirectory
    >>> from treetop.bandit.stores import open_store
    >>> with TemporaryDirectory() as place:
    ...     store, file = open_store(f"{place}/store"), Path(place, "tea")
    ...     store.put(digest_name(b"mint"), b"mint")
    ...     extend(store, file, 0, [[digest_name(b"mint"), 4]])
    ...     file.read_bytes()
    b'mint'
    """
    with path.open("r+b" if path.exists() else "wb") as file:
        file.truncate(have)
        file.seek(have)
        begin = 0
        for name, size in pieces:
            if begin + int(size) > have:
                file.write(_piece(store, str(name))[max(0, have - begin) :])
            begin += int(size)
        sync(file)


def total(pieces: Pieces) -> int:
    """Their bytes.

    >>> total([["a", 3], ["b", 4]])
    7
    """
    return sum(int(size) for _, size in pieces)


def names(files: Mapping[str, Pieces]) -> set[str]:
    """The pieces of all files.

    >>> names({"tea": [["a", 3]]})
    {'a'}
    """
    return {str(name) for pieces in files.values() for name, _ in pieces}


def retire(
    before: set[str], retired: Mapping[str, float], after: set[str], now: float
) -> tuple[dict[str, float], set[str]]:
    """Pieces that nothing lists any more, and since when; and those of them that may be deleted by now.

    >>> retire({"a", "b"}, {"c": 0.0}, {"b"}, now=GRACE + 1)
    ({'a': 3601.0}, {'c'})
    """
    since = {name: retired.get(name, now) for name in (before | retired.keys()) - after}
    late = {name for name, at in since.items() if now - at > GRACE}
    return {name: at for name, at in since.items() if name not in late}, late


def delete(store: Store, some: Collection[str]) -> None:
    """Deletes pieces, as far as the store can: what stays is in nobody's way.

    >>> from treetop.bandit.stores import open_store
    >>> delete(open_store("/no/such/store"), {"a"})
    """
    for name in some:
        with suppress(OSError):
            store.delete(name)


def _piece(store: Store, name: str) -> bytes:
    data = store.get(name)
    if digest_name(data) != name.rpartition("-")[2]:
        raise OSError(f"the piece {name} of the store is damaged: it has {len(data):,} bytes that are not its own")
    return data


def _stretches(path: Path, first: int, end: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(first)
        while first < end:
            data = file.read(min(PIECE, end - first))
            if not data:
                raise ValueError(f"{path} has {first:,} bytes; {end:,} were written")
            first += len(data)
            yield data
