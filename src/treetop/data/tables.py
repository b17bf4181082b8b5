"""Rows of CSV, JSON lines and Parquet files, one after the other, with their line numbers. Knows no meanings."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

TABLES = (".csv", ".jsonl", ".parquet")
LONGEST_CELL = 1 << 24  # characters: a vector of a thousand numbers takes some ten thousand
BATCH = 4096  # rows of a Parquet file read at once


@dataclass(frozen=True)
class TableRow:
    """One row: `values` by column, None where a cell is empty, and where it stands, for errors."""

    values: dict[str, Any]
    where: str


class MissingColumn(ValueError):
    """A file does not have a column that was asked for."""


def table_form(path: Path) -> str:
    """The form of a file by its name; .csv.gz and .jsonl.gz are read too. Raises ValueError for any other.

    >>> table_form(Path("items.csv.gz"))
    '.csv'
    """
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    if plain.suffix not in TABLES or (path.suffix == ".gz" and plain.suffix == ".parquet"):
        raise ValueError(f"{path} must end with {', '.join(TABLES[:-1])} or {TABLES[-1]}; the first two may be .gz")
    return plain.suffix


def read_table(path: Path, columns: Sequence[str]) -> Generator[TableRow, None, None]:
    """The rows of a file, with these columns. Raises ValueError that names the line, or the column that is missing.

    Values of a CSV file are text; those of the others are what the file says.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "items.csv").write_text("sku,price\\nmint,4.5\\n")
    ...     [row.values for row in read_table(Path(folder, "items.csv"), ["sku", "price"])]
    [{'sku': 'mint', 'price': '4.5'}]
    """
    read = {".csv": _csv_rows, ".jsonl": _json_rows, ".parquet": _parquet_rows}[table_form(path)]
    return read(path, list(dict.fromkeys(columns)))


def check_columns(path: Path, there: Sequence[str], wanted: Sequence[str]) -> None:
    """Raises MissingColumn if a file has not the columns wanted.

    >>> check_columns(Path("items.csv"), ["sku"], ["sku", "price"])
    Traceback (most recent call last):
    treetop.data.tables.MissingColumn: items.csv has no column 'price'; it has sku
    """
    if missing := next((name for name in wanted if name not in there), None):
        raise MissingColumn(f"{path} has no column {missing!r}; it has {', '.join(there)}")


def _opened(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _csv_rows(path: Path, columns: list[str]) -> Generator[TableRow, None, None]:
    csv.field_size_limit(LONGEST_CELL)
    with _opened(path) as file:
        reader = csv.reader(file, strict=True)
        try:
            head = next(reader, None)
            if head is None:
                raise ValueError(f"{path} is empty; its first line has the names of the columns")
            if len(set(head)) < len(head):
                raise ValueError(f"{path}, line 1: two columns have one name")
            check_columns(path, head, columns)
            places = [(name, head.index(name)) for name in columns]
            for cells in reader:
                where = f"{path}, line {reader.line_num}"
                if not cells:
                    continue
                if len(cells) != len(head):
                    raise ValueError(f"{where}: {len(cells)} cells; there are {len(head)} columns")
                yield TableRow({name: cells[at] or None for name, at in places}, where)
        except csv.Error as error:
            raise ValueError(f"{path}, line {reader.line_num}: {error}") from None
        except (UnicodeDecodeError, EOFError, gzip.BadGzipFile) as error:
            raise ValueError(f"{path}, after line {reader.line_num}: {error}") from None


def _json_rows(path: Path, columns: list[str]) -> Generator[TableRow, None, None]:
    number = 0
    with _opened(path) as file:
        try:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                where = f"{path}, line {number}"
                try:
                    found = json.loads(line)
                except ValueError as error:
                    raise ValueError(f"{where}: {error}") from None
                if not isinstance(found, dict):
                    raise ValueError(f"{where}: an object with a value for each column is needed, not {line[:40]!r}")
                if number == 1:
                    check_columns(path, list(found), columns)
                yield TableRow({name: found.get(name) for name in columns}, where)
        except (UnicodeDecodeError, EOFError, gzip.BadGzipFile) as error:
            raise ValueError(f"{path}, after line {number}: {error}") from None


def _parquet_rows(path: Path, columns: list[str]) -> Generator[TableRow, None, None]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise ValueError("Parquet needs pyarrow: pip install 'treetop-bandits[parquet]'") from None
    number = 0
    try:
        source = pyarrow.parquet.ParquetFile(path)
        check_columns(path, source.schema_arrow.names, columns)
        for batch in source.iter_batches(BATCH, columns=columns):
            for values in batch.to_pylist():
                number += 1
                yield TableRow(values, f"{path}, row {number}")
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path}, after row {number}: {error}") from None
