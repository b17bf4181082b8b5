"""Where replicas share files: a folder that all of them see, or object storage. Knows no contents.

A file's name is a digest of its bytes, so a name that is there is whole and never changes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from treetop.parallel import write_piece

DIGEST_BYTES = 20


def digest_name(data: bytes) -> str:
    """The name of a file with these bytes.

    >>> digest_name(b"tea") == digest_name(b"tea") != digest_name(b"coffee")
    True
    """
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


class Store(Protocol):
    """Whole files by name."""

    def put(self, name: str, data: bytes) -> None: ...
    def get(self, name: str) -> bytes: ...
    def delete(self, name: str) -> None: ...


@dataclass(frozen=True)
class FolderStore:
    """A folder, such as one of a network file system.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as place:
    ...     store = FolderStore(Path(place, "shared"))
    ...     store.put("a", b"tea")
    ...     store.get("a")
    b'tea'
    """

    path: Path

    def put(self, name: str, data: bytes) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        write_piece(self.path / name, lambda file: file.write(data))

    def get(self, name: str) -> bytes:
        return (self.path / name).read_bytes()

    def delete(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)


@dataclass(frozen=True)
class ObjectStore:
    """Object storage by fsspec: `s3://bucket/shop`, `gs://...`. An object appears whole or not at all."""

    files: Any  # fsspec's file system
    path: str

    def put(self, name: str, data: bytes) -> None:
        self.files.pipe_file(f"{self.path}/{name}", data)

    def get(self, name: str) -> bytes:
        return bytes(self.files.cat_file(f"{self.path}/{name}"))

    def delete(self, name: str) -> None:
        self.files.rm_file(f"{self.path}/{name}")


def open_store(where: str) -> Store:
    """A store by its path or URL.

    >>> open_store("/mnt/shop")
    FolderStore(path=PosixPath('/mnt/shop'))
    """
    if "://" not in where:
        return FolderStore(Path(where))
    try:
        from fsspec.core import url_to_fs
    except ModuleNotFoundError:
        raise ValueError(f"object storage such as {where} needs fsspec: pip install 'treetop-bandits[store]'") from None
    try:
        files, path = url_to_fs(where)
    except (ImportError, ValueError) as error:  # a kind of storage that needs another package, or none
        raise ValueError(f"the store {where} cannot be opened: {error}") from None
    return ObjectStore(files, str(path).rstrip("/"))
