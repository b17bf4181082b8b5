"""Datasets and the streams drawn from them."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.datasets import folder
from helpers.problems import topics

import treetop
from treetop.arrays import as_rows


def test_a_folder_gives_stream_and_initialisation_set(tmp_path: Path) -> None:
    data = treetop.load(folder(tmp_path))
    assert data.X_init is not None
    assert (len(data.X), len(data.X_init), data.n_arms) == (100, 100, 60)
    stream = treetop.Stream.draw(data, init=30, horizon=100, seed=1)
    assert len(stream.X_init) == 30
    assert sorted(stream.rows) == list(range(100))  # without replacement while they last
    longer = treetop.Stream.draw(data, init=30, horizon=1000, seed=1)
    assert len(np.unique(longer.rows)) <= 100
    np.testing.assert_array_equal(longer.X.csr()[5].toarray(), data.X.csr()[longer.rows[5]].toarray())
    assert (treetop.Stream.draw(data, 30, 100, seed=2).rows != stream.rows).any()


def test_a_single_set_keeps_initialisation_and_stream_apart() -> None:
    X, Y = topics(n=120)
    marked = sp.csr_matrix(np.hstack([X.toarray(), np.arange(120)[:, None] + 1]).astype(np.float32))
    data = treetop.Dataset("made up", as_rows(marked), as_rows(Y))
    stream = treetop.Stream.draw(data, init=50, horizon=70, seed=0)
    init = set((stream.X_init.csr().toarray()[:, -1] - 1).astype(int).tolist())
    assert len(init) == 50
    assert not init & set(stream.rows.tolist())
    assert not init & set(treetop.Stream.draw(data, 50, 700, 0).rows.tolist())


def test_missing_and_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="neither 'debian' nor a folder"):
        treetop.load(tmp_path / "nowhere")
    folder(tmp_path)
    (tmp_path / "Y.tst.npz").unlink()
    with pytest.raises(FileNotFoundError, match=r"lacks Y\.tst\.npz"):
        treetop.load(tmp_path)
    (tmp_path / "Y.tst.npz").write_bytes(b"PK nonsense")
    with pytest.raises(ValueError, match=r"Y\.tst\.npz is not a scipy sparse matrix"):
        treetop.load(tmp_path)
    sp.save_npz(tmp_path / "Y.tst.npz", sp.csr_matrix((99, 60)))
    with pytest.raises(ValueError, match="100 contexts, but 99 rows"):
        treetop.load(tmp_path)
    sp.save_npz(tmp_path / "Y.tst.npz", sp.csr_matrix(np.full((100, 60), 2.0)))
    with pytest.raises(ValueError, match="from 2 to 2"):
        treetop.load(tmp_path)


def test_debian_is_bundled() -> None:
    facts = treetop.load("debian").facts()
    assert facts["name"] == "debian"
    assert int(str(facts["arms"])) >= 20_000
