"""Tables in: CSV (gzipped too) and Parquet, whole or in batches; one sentence for each fault."""

from __future__ import annotations

import difflib
import io
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from sparsebag.cli.csv_source import GZIP, STDIN, CsvSource, is_pipe
from sparsebag.cli.failures import CommandError, one_line

PARQUET = (".parquet", ".pq")
BATCH_BYTES = 1 << 20
"""Bytes of CSV read at a time: predicting needs a few times this, whatever the file's size."""
SHOWN_COLUMNS = 12
ALIKE = 0.75
"""How alike two names must be, from 0 to 1, to be taken for a slip of the pen."""


def read_table(path: Path) -> pd.DataFrame:
    """A whole table.

    Parameters
    ----------
    path : Path
        Parquet by its suffix, else CSV with a header.

    Returns
    -------
    pandas.DataFrame
    """
    check_readable(path)
    try:
        if path.suffix.lower() in PARQUET:
            table = pyarrow.parquet.read_table(path)
        else:
            table = _read_csv(path)
    except (pa.ArrowException, OSError, UnicodeDecodeError, EOFError) as error:
        raise unsound(path, error) from None
    _check_names(path, table.column_names)
    if table.num_rows == 0:
        raise CommandError(f"'{path}' has a header but no rows.")
    return table.to_pandas()


def _read_csv(path: Path) -> Any:
    data = CsvSource(path).read() if is_pipe(path) else b""
    if is_pipe(path) and not data:
        raise CommandError(f"'{path}' is empty.")
    try:
        return pyarrow.csv.read_csv(io.BytesIO(data) if data else path)
    except pa.ArrowInvalid:
        # Again, on one thread: only so does the message name the line.
        again = io.BytesIO(data) if data else path
        pyarrow.csv.read_csv(again, pyarrow.csv.ReadOptions(use_threads=False))
        raise


def read_batches(
    source: CsvSource, features: Sequence[str], kept: Sequence[str] = (), texts: Sequence[str] = ()
) -> Iterator[pd.DataFrame]:
    """A table batch by batch, so that it may be larger than memory.

    Parameters
    ----------
    source : CsvSource
        Parquet by its path's suffix.
    features : sequence of str
        Columns the model reads, as numbers unless named in ``texts``.
    kept : sequence of str
        Other columns, read as they are.
    texts : sequence of str
        Features that hold text.

    Yields
    ------
    pandas.DataFrame
    """
    columns, path = [*dict.fromkeys([*features, *kept])], source.path
    try:
        if path.suffix.lower() in PARQUET:
            file = pyarrow.parquet.ParquetFile(path)
            for batch in file.iter_batches(columns=columns):
                yield batch.to_pandas()
            return
        text = {name: pa.string() for name in [*set(kept).difference(features), *texts]}
        flags = {name: pa.bool_() for name in flag_columns(source) if name not in text}
        numbers = {name: pa.float64() for name in features if name not in text}
        convert = pyarrow.csv.ConvertOptions(
            column_types={**numbers, **text, **flags}, include_columns=columns
        )
        if source.is_piped:
            for block in source.blocks(BATCH_BYTES):
                table = pyarrow.csv.read_csv(io.BytesIO(block), convert_options=convert)
                yield table.to_pandas()
            return
        with source.whole() as stream:
            reader = pyarrow.csv.open_csv(
                stream,
                read_options=pyarrow.csv.ReadOptions(block_size=BATCH_BYTES, use_threads=False),
                convert_options=convert,
            )
            for batch in reader:
                yield batch.to_pandas()
    except (pa.ArrowException, UnicodeDecodeError, EOFError, zlib.error) as error:
        raise unsound(path, error, column_names(source)) from None


def column_names(source: CsvSource) -> list[str]:
    """The columns of a table, from its head only.

    Parameters
    ----------
    source : CsvSource
        Parquet by its path's suffix.

    Returns
    -------
    list of str
    """
    path = source.path
    check_readable(path)
    try:
        if path.suffix.lower() in PARQUET:
            names = pyarrow.parquet.read_schema(path).names
        else:
            with pyarrow.csv.open_csv(source.head()) as reader:
                names = reader.schema.names
    except (pa.ArrowException, OSError, UnicodeDecodeError, EOFError) as error:
        raise unsound(path, error) from None
    _check_names(path, names)
    return [str(name) for name in names]


def flag_columns(source: CsvSource) -> list[str]:
    """Columns of a CSV table that say true or false, by its first lines.

    Parameters
    ----------
    source : CsvSource

    Returns
    -------
    list of str
    """
    with pyarrow.csv.open_csv(source.head()) as reader:
        return [field.name for field in reader.schema if pa.types.is_boolean(field.type)]


def split_target(path: Path, table: pd.DataFrame, target: str) -> tuple[pd.DataFrame, pd.Series]:
    """Features and targets of a table.

    Parameters
    ----------
    path : Path
        Where it came from, for messages.
    table : pandas.DataFrame
    target : str

    Returns
    -------
    features : pandas.DataFrame
    targets : pandas.Series
    """
    names = [str(name) for name in table.columns]
    if target not in names:
        near = difflib.get_close_matches(target, names, n=1, cutoff=ALIKE)
        hint = f"; did you mean '{near[0]}'?" if near else f"; it has {shown_names(names)}."
        raise CommandError(f"'{path}' has no column '{target}' to predict{hint}")
    y = table[target]
    missing = y.isna()
    if any(isinstance(value, bytes) for value in y.head()):
        raise CommandError(f"column '{target}' of '{path}' is not written in UTF-8; save it so.")
    if not is_numeric(y):  # a CSV file has no other way to leave a text out
        missing |= y.map(lambda value: isinstance(value, str) and not value.strip())
    if missing.any():
        first = int(missing.to_numpy().argmax()) + 1
        raise CommandError(
            f"'{path}' has no target in {int(missing.sum())} of its rows (the first is row "
            f"{first}): fill in '{target}', or leave those rows out."
        )
    X = table.drop(columns=[target])
    if X.shape[1] == 0:
        raise CommandError(
            f"'{path}' has no column but '{target}'; there is nothing to learn from."
        )
    return X, y


def labels_as_written(path: Path, target: str, y: pd.Series, *, always: bool = False) -> pd.Series:
    """Labels as the CSV file has them, where numbers would be written otherwise: 007, 1e5.

    Parameters
    ----------
    path : Path
    target : str
    y : pandas.Series
        As they were read.
    always : bool
        Whether numbers that are written as such become text too.

    Returns
    -------
    pandas.Series
    """
    numeric = pd.api.types.is_numeric_dtype(y) and not pd.api.types.is_bool_dtype(y)
    if not numeric or path.suffix.lower() in PARQUET or is_pipe(path):
        return y
    only = pyarrow.csv.ConvertOptions(include_columns=[target], column_types={target: pa.string()})
    written = pyarrow.csv.read_csv(path, convert_options=only)[target].to_pandas().str.strip()
    if written.map(_is_plain).all() and not always:
        return y
    return pd.Series(written.to_numpy(dtype=object), index=y.index, name=target)


def _is_plain(text: str) -> bool:
    """Whether a number is written as it would be written again."""
    value = float(text)
    return text == repr(value) or (value.is_integer() and text == str(int(value)))


def as_numbers(path: Path, X: pd.DataFrame) -> pd.DataFrame:
    """Features as the members read them; one sentence for a column of text.

    Parameters
    ----------
    path : Path
    X : pandas.DataFrame

    Returns
    -------
    pandas.DataFrame
    """
    for name in X.columns:
        if not is_numeric(X[name]):
            example = X[name].dropna().iloc[0]
            raise CommandError(
                f"column '{name}' of '{path}' holds {str(example)!r}, which is no number, and the "
                "model reads numbers: write the encoded table it was trained on to a file and pass "
                "that, or train with `sparsebag fit`, which encodes text itself."
            )
    return X.astype(float)


def is_numeric(column: pd.Series) -> bool:
    """Whether a column holds numbers, true and false, or nothing at all.

    Parameters
    ----------
    column : pandas.Series

    Returns
    -------
    bool

    Examples
    --------
    >>> is_numeric(pd.Series([True, None])), is_numeric(pd.Series(["a", None]))
    (True, False)
    """
    if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
        return True
    return all(isinstance(value, bool) for value in column.dropna())


def check_readable(path: Path) -> None:
    """Refuse what is no readable file.

    Parameters
    ----------
    path : Path
    """
    if path == STDIN:
        return
    if not path.exists():
        raise CommandError(f"'{path}' does not exist.")
    if path.is_dir():
        raise CommandError(f"'{path}' is a folder; name a file.")
    if not os.access(path, os.R_OK):
        raise CommandError(f"'{path}' may not be read: permission denied.")
    if path.is_file() and path.stat().st_size == 0:
        raise CommandError(f"'{path}' is empty.")


def unsound(path: Path, error: Exception, names: Sequence[str] = ()) -> CommandError:
    """The sentence for a table that cannot be read as one.

    Parameters
    ----------
    path : Path
    error : Exception
    names : sequence of str
        Its columns, where they are known.

    Returns
    -------
    CommandError
    """
    if isinstance(error, OSError) and not isinstance(error, pa.ArrowException) and error.errno:
        return CommandError(f"'{path}' cannot be read ({os.strerror(error.errno).lower()}).")
    kind = "Parquet" if path.suffix.lower() in PARQUET else "CSV"
    text = one_line(error)
    if kind == "CSV" and _is_binary(path):
        return CommandError(
            f"'{path}' is no CSV table: it holds no text. Parquet ends in .parquet."
        )
    if isinstance(error, UnicodeDecodeError) or "invalid UTF8" in text:
        return CommandError(f"'{path}' is not written in UTF-8; save it so.")
    value = re.search(r"column #(\d+): (?:Row #(\d+): )?CSV conversion error.*value '(.*)'", text)
    if value:
        line, at = f", line {value[2]}," if value[2] else "", int(value[1])
        column = f"'{names[at]}'" if at < len(names) else f"{at + 1}"
        return CommandError(
            f"column {column}{line} of '{path}' holds '{value[3]}', which is no number, "
            "and the model reads numbers there."
        )
    found = re.search(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+)", text)
    if found:
        row = f"line {found[1]}" if found[1] else "a line"
        text = f"{row} has {found[3]} fields where the header has {found[2]}"
    return CommandError(f"'{path}' is not a sound {kind} table: {text.rstrip('.')[:300]}.")


def shown_names(names: Sequence[str]) -> str:
    """Column names for a message, not too many.

    Parameters
    ----------
    names : sequence of str

    Returns
    -------
    str

    Examples
    --------
    >>> shown_names(["a", "b"])
    "'a', 'b'"
    """
    more = f" and {len(names) - SHOWN_COLUMNS} more" if len(names) > SHOWN_COLUMNS else ""
    return ", ".join(f"'{name}'" for name in names[:SHOWN_COLUMNS]) + more


def _is_binary(path: Path) -> bool:
    """Whether a file holds something else than text, by its first bytes."""
    if is_pipe(path):
        return False
    with open(path, "rb") as file:
        first = file.read(4096)
    return b"\0" in first and not first.startswith(GZIP)


def _check_names(path: Path, names: Sequence[str]) -> None:
    if len(names) == 1:
        other = next((mark for mark in (";", "\t", "|") if mark in names[0]), None)
        if other is not None:
            raise CommandError(
                f"'{path}' seems to separate its columns by {other!r}, and only commas are read; "
                "save it with commas (and points in numbers)."
            )
    if len(set(names)) < len(names):
        twice = next(name for name in names if list(names).count(name) > 1)
        raise CommandError(f"'{path}' has two columns named '{twice}'; rename one.")
