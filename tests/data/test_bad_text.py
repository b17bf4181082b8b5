"""Text that is no data: malformed lines are refused with number and reason, and no bytes crash a reader."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.strategies import few, many
from helpers.writers import SPARSE, SVMLIGHT, XMC, cut, run, whole_text
from hypothesis import given
from hypothesis import strategies as st

import treetop
from treetop import _core
from treetop.data import readers

# ------------------------------------------------------------------------------------------------- malformed

HEADER = "3 5 4\n"
MALFORMED = {
    "not a pair": (XMC, HEADER + "1 x3", "line 2: 'x3' is not a feature:value pair"),
    "later line": (XMC, HEADER + "1 0:1\r\n\r\n1 0:1 3", "line 4: '3' is not a feature:value pair"),
    "no value": (XMC, HEADER + "1 3:", "line 2: '3:' is not a feature:value pair"),
    "space after colon": (XMC, HEADER + "1 3: 2", "line 2: '3:' is not a feature:value pair"),
    "no feature": (XMC, HEADER + "1 :3", "line 2: ':3' is not a feature:value pair"),
    "two colons": (XMC, HEADER + "1 1:3:4", "line 2: '1:3:4' is not a feature:value pair"),
    "text behind": (XMC, HEADER + "1 1:3x", "line 2: '1:3x' is not a feature:value pair"),
    "two signs": (XMC, HEADER + "1 1:+-3", "line 2: '1:+-3' is not a feature:value pair"),
    "fraction of a feature": (XMC, HEADER + "1 1.5:3", "line 2: '1.5:3' is not a feature:value pair"),
    "feature beyond": (XMC, HEADER + "1 0:1 5:1", "line 2: feature 5 is outside [0, 5)"),
    "feature below": (XMC, HEADER + "1 -1:1", "line 2: feature -1 is outside [0, 5)"),
    "feature overflows": (XMC, HEADER + "1 99999999999999999999:1", "'99999999999999999999:1' is outside [0, 5)"),
    "label beyond": (XMC, HEADER + "4 0:1", "line 2: label 4 is outside [0, 4)"),
    "label below": (SVMLIGHT, "-1 0:1", "line 1: label -1 is outside [0, 2147483646)"),
    "label overflows": (XMC, HEADER + "99999999999999999999", "label '99999999999999999999' is outside [0, 4)"),
    "label in words": (XMC, HEADER + "one 0:1", "line 2: 'one' is not a label"),
    "fraction of a label": (SVMLIGHT, "1.5 0:1", "line 1: '1.5' is not a label"),
    "comma at the end": (XMC, HEADER + "1, 0:1", "line 2: '0:1' is not a label"),
    "comma at the beginning": (XMC, HEADER + ",1 0:1", "line 2: ',1' is not a label"),
    "nothing after the comma": (XMC, HEADER + "1,", "line 2: '' is not a label"),
    "labels in sparse text": (SPARSE, "1 5\n1 0:1", "line 2: '1' is not a feature:value pair"),
    "nan": (XMC, HEADER + "1 0:nan", "line 2: the value of '0:nan' is not finite"),
    "infinity": (XMC, HEADER + "1 0:-inf", "line 2: the value of '0:-inf' is not finite"),
    "beyond float32": (XMC, HEADER + "1 0:1e39", "line 2: the value of '0:1e39' is beyond the range of float32"),
    "beyond double": (XMC, HEADER + "1 0:1e999", "line 2: the value of '0:1e999' is beyond the range of float32"),
    "sum beyond": (XMC, HEADER + "1 2:3e38 2:3e38", "line 2: the values of feature 2 add up beyond the range"),
    "too few rows": (XMC, HEADER + "1 0:1\n", "ends after 1 rows; its header says 3"),
    "too many rows": (SPARSE, "1 5\n0:1\n\n0:1\n", "line 4: more rows than the 1 of the header"),
    "no header": (XMC, "", "is empty; it must begin with the header 'rows features labels'"),
    "short header": (XMC, "3 5\n", "line 1: the header must be 'rows features labels', 3 whole numbers from 0"),
    "long header": (SPARSE, "3 5 4\n", "line 1: the header must be 'rows columns', 2 whole numbers"),
    "header in words": (XMC, "n d L\n", "line 1: the header must be"),
    "negative header": (XMC, "3 -5 4\n", "line 1: the header must be"),
    "vast header": (XMC, "3 2147483647 4\n", "line 1: the header must be"),
    "fractions in the header": (XMC, "3.0 5 4\n", "it begins with '3.0'"),
    "comment in XMC": (XMC, HEADER + "1 0:1 # one", "line 2: '#' is not a feature:value pair"),
    "query id": (SVMLIGHT, "1 qid:3 0:1", "line 1: 'qid:3': query ids are not supported"),
    "old line ends": (SVMLIGHT, "1 0:1\r1 0:2", "line 1: '0:1?1' is not a feature:value pair"),
    "not ASCII": (XMC, HEADER + "1 é:1", "line 2: '??:1' is not a feature:value pair"),
    "a long word": (XMC, HEADER + "1 " + "x" * 99, f"line 2: '{'x' * 40}...' is not a feature:value pair"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_text_is_refused_with_line_and_reason(case: str, tmp_path: Path) -> None:
    form, text, message = MALFORMED[case]
    with pytest.raises(ValueError, match=re.escape(message)):
        whole_text(form, text)
    with pytest.raises(ValueError, match=re.escape(message)):
        run(form, [bytes([byte]) for byte in text.encode()])
    (tmp_path / "data.txt").write_bytes(text.encode())
    with pytest.raises(ValueError, match=f"^{re.escape(str(tmp_path / 'data.txt'))} .*{re.escape(message)}"):
        readers.parse_text(tmp_path / "data.txt", readers.TEXT_FORMS[form])


def test_a_reader_is_used_once() -> None:
    spent = [_core.TextReader(SVMLIGHT), _core.TextReader(SVMLIGHT)]
    spent[0].finish()
    with pytest.raises(ValueError, match="'x' is not a label"):
        spent[1].feed(b"1 0:1\nx\n")
    for reader in spent:
        with pytest.raises(ValueError, match="finished or failed"):
            reader.feed(b"1 0:1\n")
        with pytest.raises(ValueError, match="finished or failed"):
            reader.finish()
    with pytest.raises(ValueError, match=r"form is 3, outside \[0, 2\]"):
        _core.TextReader(3)


def test_a_line_without_end_is_refused() -> None:
    with pytest.raises(ValueError, match=f"line 2: longer than {1 << 26} bytes"):
        run(SVMLIGHT, [b"1\n", *[b"1" * (1 << 20)] * 65])


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda f: f.write_bytes(b""), "data.txt is empty"),
        (lambda f: f.write_bytes(b" \n\n"), "data.txt is empty: its 3 bytes are blank"),
        (lambda f: f.write_bytes(b"PK\x03\x04xyz"), "data.txt is a zip file; unpack it first"),
        (lambda f: f.write_bytes(b"\x1f\x8bxyz"), "data.txt is a gzip file; unpack it first"),
        (lambda f: f.write_text("1 5\n0:1\n"), "data.txt has a header of two numbers: it is one of trn_X_Xf.txt"),
    ],
)
def test_files_that_are_no_dataset_say_why(write: Any, message: str, tmp_path: Path) -> None:
    write(tmp_path / "data.txt")
    with pytest.raises(ValueError, match=re.escape(message)):
        treetop.load(tmp_path / "data.txt")


def test_folders_that_are_no_dataset_say_what_was_looked_for(tmp_path: Path) -> None:
    (tmp_path / "train.txt").mkdir()
    (tmp_path / "README.txt").write_text("hello")
    with pytest.raises(FileNotFoundError, match=r"looked for X\.trn\.npz.*; or trn_X_Xf\.txt.*; or train\.txt"):
        treetop.load(tmp_path)
    sp.save_npz(tmp_path / "X.npz", sp.eye(2).tocsr())
    with pytest.raises(ValueError, match=r"X\.npz is one matrix; load the folder"):
        treetop.load(tmp_path / "X.npz")
    (tmp_path / "a_test.txt").write_text("1 1 1\n0 0:1\n")
    with pytest.raises(FileNotFoundError, match=r"lacks train\.txt or \*_train\.txt; a dataset is"):
        treetop.load(tmp_path)
    (tmp_path / "a_train.txt").write_text("0 0:1\n")
    with pytest.raises(ValueError, match=r"a_test\.txt has a header, .*a_train\.txt has none"):
        treetop.load(tmp_path)
    (tmp_path / "a_train.txt").write_text("1 2 1\n0 0:1\n")
    with pytest.raises(ValueError, match="initialisation set has 1 features and 1 arms; 2 and 1 are needed"):
        treetop.load(tmp_path)


# ------------------------------------------------------------------------------------------------- bytes at random

WORDS = ["1", "20", "3:0.5", "0:1", ":", ",", " ", "\t", "\n", "\r\n", "#", "qid:1", "-", "nan", "1e999", "é"]
nearly = st.lists(st.sampled_from(WORDS), max_size=40).map(lambda words: "".join(words).encode())
headers = st.sampled_from([b"", b"2 30 30\n", b"2 30\n", b"0 0 0\n", b"0 0\n"])


def outcome(form: int, blocks: list[bytes]) -> Any:
    try:
        return [np.asarray(part).tolist() for part in run(form, blocks)]
    except ValueError as error:
        return str(error)


@many
@given(st.sampled_from([XMC, SVMLIGHT, SPARSE]), headers, st.binary(max_size=60) | nearly, st.lists(st.integers(0, 99)))
def test_any_bytes_in_any_blocks_are_rows_or_an_error(form: int, header: bytes, body: bytes, places: list[int]) -> None:
    text = header + body
    found = outcome(form, [text])
    assert outcome(form, cut(text, places)) == found
    if isinstance(found, str):
        assert found.isascii()
        assert found.isprintable()
        return
    start, index, value, label_start, label, columns, labels = run(form, [text])
    assert _core.inspect_rows(start, index, value, columns, "features")
    assert _core.inspect_rows(label_start, label, np.ones(len(label), np.float32), labels, "labels")
    assert len(start) == len(label_start)


@few
@given(st.binary(max_size=80) | nearly)
def test_any_file_is_a_set_or_an_error(tmp_path_factory: pytest.TempPathFactory, body: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "data.txt"
    path.write_bytes(body)
    try:
        good = len(treetop.load(path).X) > 0 or body.split()[0] == b"0"
    except ValueError as error:
        good = str(error).startswith(str(path))
    assert good
