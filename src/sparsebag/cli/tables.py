"""Tables in: CSV (gzipped too, or from a pipe) and Parquet, whole or in batches, read by pandas."""

from __future__ import annotations

import contextlib
import csv
import difflib
import gzip
import io
import itertools
import os
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
from typer import BadParameter, Option

from sparsebag.cli.command import CommandError, WrongKind, one_line
from sparsebag.deploy.rows import Categories, encoded

Names = list[str] | None
PARQUET = (".parquet", ".pq")
UNSOUND = (pa.ArrowException, pd.errors.ParserError, csv.Error, EOFError, zlib.error, LookupError)
"""What readers raise of tables that are none; the last, of encodings that are none."""
STDIN = Path("-")
MODELS = (b"\x89S", b"PK", b"\x80\x04", b"\x80\x05")
"""How files of sparsebag, of skops, and pickles begin."""
BATCH_ROWS = 10_000
"""Rows read at a time: predicting needs the memory of these, whatever the file's size."""
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "-nan", "null", "NULL", "#N/A", "<NA>")
BY_ORDER = "the model has no column names; columns are taken in the order of the table."
PANDAS = tuple(pd.__version__.split(".")[:2])
EXACT = {"float_precision": "round_trip"} if PANDAS < ("3", "1") else {}
"""Numbers as Python reads them; pandas does so by itself from version 3.1."""
FEW_TEXTS, MOST_TEXTS = 30, 10_000
"""A column with up to this many texts is a category, however few rows there are; with more than
these it is none."""


@dataclass(frozen=True)
class Written:
    """How CSV files are written."""

    sep: Annotated[str, Option(help="Column separator of CSV: ';' or '\\t'.")] = ","
    encoding: Annotated[str, Option(help="Encoding of CSV, such as latin-1.")] = "utf-8"

    def __post_init__(self) -> None:
        if len(self.sep.replace("\\t", "\t")) != 1:
            raise BadParameter(f"--sep '{self.sep}' is not one character, such as ';' or '\\t'.")


class Table:
    """A table in a file: its columns at once, its rows when they are asked for, and only once.

    Parameters
    ----------
    path : Path
        Parquet by its suffix, else CSV with a header; ``-`` is standard input.
    written : Written
    """

    def __init__(self, path: Path, written: Written) -> None:
        check_readable(path)
        if path.is_file() and first_bytes(path) in MODELS:
            raise WrongKind(f"'{path}' is a model, not a table.")
        self.path, self.is_parquet = path, path.suffix.lower() in PARQUET
        self._sep, self._encoding = written.sep.replace("\\t", "\t"), written.encoding
        self._source: Any = None
        with self._one_sentence():
            if self.is_parquet:
                self._source = pyarrow.parquet.ParquetFile(path)
                self.columns = [str(name) for name in self._source.schema_arrow.names]
            else:
                self._source = _CsvRows(path, self._sep, self._encoding)
                self.columns = self._source.columns
            self._check_names()

    def _check_names(self) -> None:
        if not self.columns:
            raise CommandError(f"'{self.path}' is empty.")
        other = next((mark for mark in (";", "\t", "|") if mark in self.columns[0]), None)
        if len(self.columns) == 1 and other is not None:
            told = f"seems to separate its columns by {other!r}: add --sep {other!r}"
            raise CommandError(f"'{self.path}' {told}.")
        twice = next((name for name in self.columns if self.columns.count(name) > 1), None)
        if twice is not None:
            raise CommandError(f"'{self.path}' has two columns named '{twice}'; rename one.")

    def read(self, *, as_written: Sequence[str] = ()) -> pd.DataFrame:
        """The whole table; some columns of a CSV file as they are written."""
        with self._one_sentence():
            if self.is_parquet:
                table = self._source.read().to_pandas()
            else:
                table = self._read_csv(as_written)
        if not len(table):
            raise CommandError(f"'{self.path}' has a header but no rows.")
        return table

    def batches(
        self, columns: Sequence[str], *, as_written: Sequence[str] = (), texts: Sequence[str] = ()
    ) -> Iterator[pd.DataFrame]:
        """Some columns, batch by batch, so that the table may be larger than memory."""
        with self._one_sentence():
            if self.is_parquet:
                for batch in self._source.iter_batches(BATCH_ROWS, columns=list(columns)):
                    yield batch.to_pandas()
            else:
                some = {"usecols": list(columns), "chunksize": BATCH_ROWS}
                yield from self._read_csv(as_written, texts, **some)

    def _read_csv(self, as_written: Sequence[str], texts: Sequence[str] = (), **how: Any) -> Any:
        return pd.read_csv(
            self._source,
            sep=self._sep,
            header=None,
            names=self.columns,
            index_col=False,
            keep_default_na=False,
            na_values={name: MISSING for name in self.columns if name not in as_written},
            dtype={name: str for name in (*as_written, *texts)},
            low_memory=False,  # one type a column
            **EXACT,
            **how,
        )

    @contextlib.contextmanager
    def _one_sentence(self) -> Iterator[None]:
        """Whatever is wrong with a table is one sentence."""
        try:
            return (yield)
        except UnicodeDecodeError:
            told = (
                f"is not valid {self._encoding} text; pass its encoding, such as --encoding latin-1"
            )
        except UNSOUND as error:
            kind = "Parquet" if self.is_parquet else "CSV"
            told = f"is not a valid {kind} table: {one_line(error).rstrip('.')[:300]}"
        except OSError as error:
            why = os.strerror(error.errno).lower() if error.errno else one_line(error)
            told = f"cannot be read ({why})"
        raise CommandError(f"'{self.path}' {told}.")


class _CsvRows(io.TextIOBase):
    """The rows of a CSV file as pandas reads them: each must have as many fields as the header.

    pandas itself fills short lines up, and would so take half a file for a whole one.
    """

    def __init__(self, path: Path, sep: str, encoding: str) -> None:
        self._taken: list[str] = []
        # A byte-order mark is no part of the first column's name.
        is_utf8 = encoding.lower() in ("utf-8", "utf8")
        lines = self._lines(path, "utf-8-sig" if is_utf8 else encoding)
        self._rows = csv.reader(lines, delimiter=sep)
        self.columns = next(self._rows, [])
        self._taken.clear()

    def read(self, size: int | None = -1) -> str:
        """Some rows, whole ones."""
        n = len(self.columns)
        for row in itertools.islice(self._rows, 100):
            if row and len(row) != n:
                raise csv.Error(
                    f"line {self._rows.line_num} has {len(row)} fields where the header has {n}"
                )
        text = "".join(self._taken)
        self._taken.clear()
        return text

    def _lines(self, path: Path, encoding: str) -> Iterator[str]:
        source: Any = sys.stdin.fileno() if path == STDIN else path
        with open(source, "rb", closefd=path != STDIN) as raw:
            packed: Any = gzip.GzipFile(fileobj=raw) if raw.peek(2)[:2] == b"\x1f\x8b" else raw
            with io.TextIOWrapper(packed, encoding=encoding, newline="") as lines:
                for line in lines:
                    self._taken.append(line)
                    yield line


def first_bytes(path: Path) -> bytes:
    """By which models are told from tables."""
    with open(path, "rb") as file:
        return file.read(2)


def check_readable(path: Path) -> None:
    """Refuse what is no readable file."""
    if path == STDIN:
        return
    if not path.exists():
        raise CommandError(f"'{path}' does not exist.")
    if path.is_dir():
        raise CommandError(f"'{path}' is a folder; name a file.")
    if not os.access(path, os.R_OK):
        raise CommandError(f"'{path}' cannot be read (permission denied).")
    if path.is_file() and path.stat().st_size == 0:
        raise CommandError(f"'{path}' is empty.")


def read_rows(path: Path, target: str, written: Written) -> tuple[pd.DataFrame, pd.Series]:
    """Features and targets of a table; those of a CSV file as they are written."""
    table = Table(path, written)
    columns_of(path, table.columns, [target])
    if len(table.columns) == 1:
        raise CommandError(
            f"'{path}' has only the column '{target}'; there is nothing to learn from."
        )
    X = table.read(as_written=[target])
    y = X.pop(target)
    if not is_numeric(y) and pd.api.types.is_string_dtype(y):
        y = y.str.strip()
    missing = (y.isna() | (y == "")).to_numpy(dtype=bool)
    if missing.any():
        raise CommandError(
            f"'{path}' has no target in {missing.sum()} of its rows (first: row "
            f"{missing.argmax() + 1}); fill in '{target}' or remove those rows."
        )
    return X, y


def typed(y: pd.Series) -> pd.Series:
    """Targets that are all written as numbers, or true and false, as such; else as they are.

    Examples
    --------
    >>> typed(pd.Series(["1", "2"])).tolist(), typed(pd.Series(["1", "x"])).tolist()
    ([1, 2], ['1', 'x'])
    """
    if is_numeric(y):
        return y
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return y.astype(object).map(kind)
    flags = y.str.lower().map({"true": True, "false": False})
    return y if flags.isna().any() else flags.astype(bool)


def is_numeric(column: pd.Series) -> bool:
    """Whether a column holds numbers, true and false, or nothing at all.

    Examples
    --------
    >>> is_numeric(pd.Series([True, None])), is_numeric(pd.Series(["a", None]))
    (True, False)
    """
    if pd.api.types.is_numeric_dtype(column):
        return True
    return all(isinstance(value, (bool, np.bool_)) for value in column.dropna())


def as_numbers(path: Path, X: pd.DataFrame, categories: Categories | None = None) -> pd.DataFrame:
    """Features as the members read them; one sentence for all columns of text or dates.

    Parameters
    ----------
    path : Path
        Of the table, for the error.
    X : DataFrame
    categories : mapping of str to tuple of str, optional
        Texts that become their codes.
    """
    X = encoded(X, categories, list(X.columns))
    wrong = [name for name in X.columns if not is_numeric(X[name])]
    if wrong:
        values = X[wrong[0]]
        text = values[pd.to_numeric(values.astype(str), errors="coerce").isna() & values.notna()]
        others = f" (and in {shown(wrong[1:])})" if wrong[1:] else ""
        raise CommandError(
            f"column '{wrong[0]}', row {text.index[0] + 1}, of '{path}' holds "
            f"{str(text.iloc[0])!r}, which is not a number{others}; pass the encoded table the "
            "model was trained on, or train with `sparsebag fit`, which encodes text itself."
        )
    return X.astype(float)


def as_read(X: pd.DataFrame, names: Any, width: int | None) -> Any:
    """A table as a model reads it: by names, as an array, or a column of texts for a vectorizer.

    Parameters
    ----------
    X : DataFrame
    names : sequence of str or None
        Columns the model was trained on, where it knows them.
    width : int or None
        How many they are; a Pipeline that begins with a vectorizer does not know.

    Examples
    --------
    >>> as_read(pd.DataFrame({"text": ["good day", "bad day"]}), None, None).tolist()
    ['good day', 'bad day']
    """
    if names is None and width is not None:
        return X.to_numpy()
    is_text = names is None and X.shape[1] == 1 and not is_numeric(X.iloc[:, 0])
    return X.iloc[:, 0].to_numpy(dtype=object) if is_text else X


def columns_of(
    path: Path, found: Sequence[str], names: Sequence[str] | None, n_features: int | None = None
) -> list[str]:
    """The columns a model reads, in its order; refuses a table that is not as it was trained on.

    Parameters
    ----------
    path : Path
        Of the table, for the error.
    found : sequence of str
        Its columns.
    names : sequence of str or None
        Columns the model was trained on, where it knows them.
    n_features : int, optional
        How many they are.
    """
    wanted = list(found if names is None else names)
    missing = [name for name in wanted if name not in set(found)]
    if missing:
        has, plural = _nearest(missing[0], found), "s" * (len(missing) > 1)
        raise CommandError(f"'{path}' lacks column{plural} {shown(missing)} (it has {has}).")
    if names is None and n_features not in (None, len(wanted)):
        raise CommandError(
            f"the model was trained on {n_features} columns without names, but '{path}' has "
            f"{len(wanted)} features; remove the others."
        )
    return wanted


def _nearest(name: str, found: Sequence[str]) -> str:
    """The column whose name is most like this one; where none is, the first and last ones."""
    lower = {other.lower(): other for other in found}
    near = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.75)
    if not near and len(found) > 12:
        return f"{shown(found[:6])}, … {shown(found[-6:])}"
    return shown([lower[other] for other in near] or found)


def find_categories(path: Path, X: pd.DataFrame) -> Categories:
    """The texts of every column that holds text, sorted: an order that does not know the target."""
    found, wrong = {}, {}
    for name in X.columns:
        if is_numeric(X[name]):
            continue
        values = X[name].dropna()
        if not isinstance(values.iloc[0], str):
            wrong[name] = f"holds {str(values.iloc[0])!r}, which is neither a number nor text"
            continue
        found[name] = tuple(sorted(set(map(str, values)) - {""}))
        n = len(found[name])
        if n > MOST_TEXTS or (n > FEW_TEXTS and 2 * n > len(values)):
            wrong[name] = (
                f"has {n:,} distinct values in {len(X):,} rows; it looks like a date, an "
                f"identifier or free text, not a category"
            )
    if wrong:
        told = "; ".join(f"column '{name}' of '{path}' {why}" for name, why in wrong.items())
        flags = " ".join(f"--drop '{name}'" for name in wrong)
        raise CommandError(f"{told}. Turn it into numbers, or drop it: {flags}.")
    return found


class UnknownTexts:
    """Counts texts a model never saw, batch by batch, and tells of them once."""

    def __init__(self, categories: Categories | None) -> None:
        self.known = {name: {*texts, ""} for name, texts in (categories or {}).items()}
        self.found: dict[str, Counter[str]] = {name: Counter() for name in self.known}

    def count(self, X: pd.DataFrame) -> None:
        """Look at a batch."""
        for name, known in self.known.items():
            self.found[name].update(v for v in X[name] if isinstance(v, str) and v not in known)

    def notes(self, path: Path) -> list[str]:
        """What was found, a sentence a column."""
        return [
            f"column '{name}' of '{path}' has values not seen in training, such as "
            f"'{next(iter(texts))}' ({texts.total():,} rows); they are treated as missing."
            for name, texts in self.found.items()
            if texts
        ]


def shown(names: Sequence[str], most: int = 12) -> str:
    """Names for a message, not too many.

    Examples
    --------
    >>> shown(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(f"'{name}'" for name in names[:most]) + more
