"""Stores of pieces: a folder, or object storage by fsspec."""

from __future__ import annotations

from pathlib import Path

import pytest

from treetop.bandit.stores import FolderStore, ObjectStore, open_store


def test_object_storage_by_fsspec(tmp_path: Path) -> None:
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    for store in (open_store("memory://shop"), open_store(str(tmp_path / "shop"))):
        store.put("a", b"tea")
        assert store.get("a") == b"tea"
        store.delete("a")
        with pytest.raises(FileNotFoundError):
            store.get("a")
    assert isinstance(open_store("memory://shop"), ObjectStore)
    assert isinstance(open_store("/mnt/shop"), FolderStore)
    with pytest.raises(ValueError, match="cannot be opened"):
        open_store("nosuch://shop")
