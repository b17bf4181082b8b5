"""The bundled Debian set, and the script that builds it."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import lzma
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import scipy.sparse as sp

from treetop.data import debian

ROOT = Path(__file__).parents[2]
DATA = ROOT / "src" / "treetop" / "data"

PACKAGES = """\
Package: libfoo-dev
Source: foo (1.0-2)
Version: 1.0-2+b1
Depends: libfoo1 (= 1.0-2), libc6 (>= 2.36), libbar-dev | libbaz-dev, python3:any (>= 3.11~), python3
Pre-Depends: dpkg (>= 1.17)
Recommends: never-read
Description: foo library, development files
Description-md5: 11

Package: libfoo1
Source: foo
Depends: libc6, libgcc-s1 (>= 3.0), libstdc++6
Description: foo library, nothing left to learn
Description-md5: 22

Package: lonely
Description: needs nothing

Package: bar-tools
Depends: libfoo1,
 perl
Description: tools   for the bar
Description-md5: 33
"""
TRANSLATION = """\
Package: libfoo-dev
Description-md5: 11
Description-en: foo library, development files
 The FOO library reads foo files, and more foo.
 .
 This package has the headers.

Package: bar-tools
Description-md5: 33
Description-en: tools for the bar
 Tools that read Foo4 files.
"""


@pytest.fixture(scope="module")
def data() -> debian.DebianData:
    return debian.load_debian()


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = ROOT / "scripts" / "build_debian.py"
    spec = importlib.util.spec_from_file_location("build_debian", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["build_debian"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tiny(script: ModuleType, tmp_path: Path) -> debian.DebianData:
    (tmp_path / "Packages").write_text(PACKAGES)
    (tmp_path / "Translation-en").write_text(TRANSLATION)
    return build(script, tmp_path / "Packages", tmp_path / "Translation-en", tmp_path / "tiny.npz")


def build(script: ModuleType, packages: Path, translation: Path, out: Path) -> debian.DebianData:
    script.main([str(packages), str(translation), "--out", str(out), "--min-df", "1"])
    return debian.decode(out.read_bytes(), Path(f"{out}.sha256").read_text().split()[0])


def needs(data: debian.DebianData, name: str) -> set[str]:
    return {data.arm_names[arm] for arm in data.Y[data.context_names.index(name)].indices}


def terms(data: debian.DebianData, name: str) -> set[str]:
    return {data.feature_names[j] for j in data.X[data.context_names.index(name)].indices}


def test_it_is_big_enough_for_the_demo(data: debian.DebianData) -> None:
    assert data.X.shape[0] == data.Y.shape[0] >= 53_000
    assert data.Y.shape[1] >= 20_000


def test_names_match_the_matrices(data: debian.DebianData) -> None:
    assert len(data.context_names) == len(data.descriptions) == data.X.shape[0]
    assert len(data.feature_names) == data.X.shape[1]
    assert len(data.arm_names) == data.Y.shape[1]
    for names in (data.context_names, data.feature_names, data.arm_names):
        assert len(set(names)) == len(names)
        assert all(names)
    assert all(data.descriptions)


def test_matrices_are_as_the_core_reads_them(data: debian.DebianData) -> None:
    for matrix in (data.X, data.Y):
        assert isinstance(matrix, sp.csr_matrix)
        assert [str(a.dtype) for a in (matrix.data, matrix.indices, matrix.indptr)] == ["float32", "int32", "int32"]
        assert matrix.indices.min() >= 0
        assert matrix.indices.max() < matrix.shape[1]
        unchecked = sp.csr_matrix((matrix.data, matrix.indices, matrix.indptr), shape=matrix.shape)
        assert unchecked.has_canonical_format  # computed afresh: sorted, no index twice


def test_rows_of_X_are_positive_and_of_length_one(data: debian.DebianData) -> None:
    assert (data.X.data > 0).all()
    lengths = np.sqrt(np.asarray(data.X.multiply(data.X).sum(axis=1)).ravel())
    np.testing.assert_allclose(lengths, 1, atol=1e-5)


def test_labels_are_ones_and_every_row_and_arm_has_one(data: debian.DebianData) -> None:
    assert (data.Y.data == 1).all()
    assert np.diff(data.Y.indptr).min() >= 1
    assert np.bincount(data.Y.indices, minlength=data.Y.shape[1]).min() >= 1


def test_arms_are_alphabetical_so_that_ties_do_not_favour_the_popular(data: debian.DebianData) -> None:
    assert list(data.arm_names) == sorted(data.arm_names)


def test_known_facts(data: debian.DebianData) -> None:
    assert {"python3", "python3-numpy"} <= needs(data, "python3-scipy")
    assert "scientific tools" in data.descriptions[data.context_names.index("python3-scipy")]
    assert {"scipy", "^python3", "numpy"} <= terms(data, "python3-scipy")
    assert not {"libc6", "libgcc-s1", "libstdc++6"} & set(data.arm_names)


def test_no_arm_is_nearly_everywhere(data: debian.DebianData) -> None:
    assert np.bincount(data.Y.indices).max() < 0.15 * data.Y.shape[0]


def test_tf_idf_agrees_with_its_formula_term_by_term() -> None:
    counts = np.random.default_rng(0).poisson(0.7, (30, 12)).astype(np.float32)
    counts[3] = 0
    expected = np.zeros(counts.shape)
    for i, row in enumerate(counts):
        for j, count in enumerate(row):
            if count:
                df = sum(other[j] > 0 for other in counts)
                expected[i, j] = (1 + np.log(count)) * (1 + np.log((1 + len(counts)) / (1 + df)))
        expected[i] /= np.linalg.norm(expected[i]) or 1
    np.testing.assert_allclose(debian.tf_idf(sp.csr_matrix(counts)).toarray(), expected, atol=1e-6)


def test_it_is_small_on_disk() -> None:
    assert sum(path.stat().st_size for path in DATA.glob("debian.*")) <= 6_000_000


def test_a_corrupt_file_is_a_clear_error() -> None:
    good = (DATA / "debian.npz").read_bytes()
    sha256 = hashlib.sha256(good).hexdigest()
    flipped = good[:1_000_000] + bytes([good[1_000_000] ^ 1]) + good[1_000_001:]
    for bad in (flipped, good[:-1], b"", b"not a zip file"):
        with pytest.raises(ValueError, match=rf"debian.npz is corrupt: {len(bad)} bytes with sha256 .* {sha256}"):
            debian.decode(bad, sha256)


def test_build_reads_dependencies_as_promised(tiny: debian.DebianData) -> None:
    assert tiny.context_names == ("bar-tools", "libfoo-dev")  # libfoo1 has only libc6 and its like, lonely has none
    assert needs(tiny, "libfoo-dev") == {"libfoo1", "libbar-dev", "python3", "dpkg"}
    assert needs(tiny, "bar-tools") == {"libfoo1", "perl"}
    assert tiny.descriptions == ("tools for the bar", "foo library, development files")


def test_build_takes_terms_from_name_and_description_only(tiny: debian.DebianData) -> None:
    name = {"libfoo", "lib", "foo", "dev", "^libfoo", "dev$"}
    assert terms(tiny, "libfoo-dev") == name | {"library", "development", "files", "reads", "package", "headers"}
    assert terms(tiny, "bar-tools") == {"bar", "tools", "^bar", "tools$", "read", "foo4", "files"}


def test_build_is_deterministic_and_reads_gz_and_xz(
    script: ModuleType, tiny: debian.DebianData, tmp_path: Path
) -> None:
    packages, translation = tmp_path / "Packages.gz", tmp_path / "Translation-en.xz"
    packages.write_bytes(gzip.compress(PACKAGES.encode()))
    translation.write_bytes(lzma.compress(TRANSLATION.encode()))
    build(script, packages, translation, tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "tiny.npz").read_bytes()


def test_build_says_what_is_wrong_with_an_empty_index(script: ModuleType) -> None:
    with pytest.raises(SystemExit, match="0 of 1 packages have a dependency"):
        script.build("Package: lonely\nDescription: needs nothing\n", "")
