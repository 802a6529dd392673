"""``sparsebag predict``: a compressed model on a table of any length, batch by batch."""

from __future__ import annotations

import contextlib
import io
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Annotated, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import typer

from sparsebag.cli import options
from sparsebag.cli.csv_source import CsvSource
from sparsebag.cli.failures import CommandError, ExitCode, guarded
from sparsebag.cli.models import check_columns, read_compiled
from sparsebag.cli.outputs import check_can_be_written, written_whole
from sparsebag.cli.tables import PARQUET, as_numbers, column_names, read_batches, shown_names
from sparsebag.cli.terminal import Steps, print_json
from sparsebag.cli.text_columns import UnknownTexts, with_codes
from sparsebag.deploy.compiled import CompiledEnsemble

STDOUT = Path("-")
WRITTEN = (".csv", ".txt", "", *PARQUET)


@guarded
def predict(
    model: Annotated[Path, typer.Argument(help="A .sbag file.", metavar="MODEL")],
    data: Annotated[
        Path,
        typer.Argument(
            help="Rows to predict: CSV (.gz too) or Parquet; - is standard input (CSV).",
            allow_dash=True,
            metavar="DATA",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="CSV or Parquet by its suffix; - is standard output (CSV)."
        ),
    ] = STDOUT,
    proba: Annotated[bool, typer.Option(help="Also write the probability of every class.")] = True,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="A column of DATA to copy to the output; may be given again."),
    ] = None,
    trust_pickle: options.TrustPickle = False,
    jobs: options.Jobs = -1,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Predict every row of a table; the table may be larger than memory.

    Columns are matched by name where the model knows names; others are ignored. An interrupted or
    failed run leaves no output file.

    Example: sparsebag predict small.sbag new_rows.csv -o predictions.csv

    In a pipe: cat new_rows.csv | sparsebag predict small.sbag - | head
    """
    started = time.perf_counter()
    to_stdout = output == STDOUT
    if to_stdout and as_json:
        raise CommandError(
            "--json and predictions cannot share standard output; name a file: -o.", ExitCode.USAGE
        )
    if not to_stdout:
        check_can_be_written(output, unlike=(model, data))
        if output.suffix.lower() not in WRITTEN:
            raise CommandError(
                f"predictions cannot be written to '{output}'; use .csv or .parquet, or - for "
                "standard output.",
                ExitCode.USAGE,
            )
    compiled = read_compiled(model, trust_pickle=trust_pickle)
    kept = list(keep or [])
    source = CsvSource(data)
    features = _features(compiled, source, kept)
    unknown = UnknownTexts(compiled.categories or {})
    steps = Steps(quiet or as_json or to_stdout)
    steps.begin(f"predicting {data}")
    rows = 0
    with _sink(output) as write:
        for batch in read_batches(source, features, kept, list(unknown.known)):
            unknown.count(batch)
            X = as_numbers(data, with_codes(batch[features], compiled.categories or {}))
            write(_predicted(compiled, X, batch[kept], proba=proba, jobs=jobs))
            rows += len(batch)
    seconds = time.perf_counter() - started
    if not to_stdout:
        steps.say(f"{rows:,} rows predicted in {seconds:.1f} s, written to {output}")
    notes = unknown.notes(data)
    if not quiet and not as_json:  # also beside predictions on standard output
        for note in notes:
            print(f"note: {note}", file=sys.stderr)
    if as_json:
        facts = {"rows": rows, "seconds": round(seconds, 3), "output": str(output)}
        print_json({**facts, "warnings": notes})


def _features(compiled: CompiledEnsemble, source: CsvSource, kept: list[str]) -> list[str]:
    """The columns the model reads, in its order."""
    data, found = source.path, column_names(source)
    unknown = [name for name in kept if name not in found]
    if unknown:
        raise CommandError(f"'{data}' has no column {shown_names(unknown)} to keep.")
    if compiled.feature_names is not None:
        wanted = list(compiled.feature_names)
        check_columns(wanted, found, data)
        return wanted
    others = [name for name in found if name not in kept]
    if compiled.n_features is not None and compiled.n_features != len(others):
        raise CommandError(
            f"the model reads {compiled.n_features} columns and knows no names, but '{data}' has "
            f"{len(others)}; leave the others out, or name them with --keep."
        )
    return others


def _predicted(
    compiled: CompiledEnsemble,
    table: pd.DataFrame,
    kept: pd.DataFrame,
    *,
    proba: bool,
    jobs: int,
) -> pa.Table:
    X = table.to_numpy(dtype=np.float64)
    out: dict[str, Any] = {name: kept[name] for name in kept.columns}
    if compiled.classes is None:
        out["prediction"] = compiled.predict(X, n_jobs=jobs)
    else:
        shares = compiled.predict_proba(X, n_jobs=jobs)
        out["prediction"] = compiled.classes[np.argmax(shares, axis=1)]
        if proba:
            out |= {f"p_{label}": shares[:, c] for c, label in enumerate(compiled.classes)}
    return pa.Table.from_pydict(out)


@contextlib.contextmanager
def _sink(output: Path) -> Iterator[Callable[[pa.Table], None]]:
    """What takes the batches: a file that is whole or not there, or standard output."""
    if output == STDOUT:
        out: Any = sys.stdout.buffer
        if isinstance(out, io.RawIOBase):  # PYTHONUNBUFFERED: writes part of what it is given
            out = io.BufferedWriter(out)
        yield _CsvLines(out).write
        if out is not sys.stdout.buffer:
            out.detach()  # or it would close standard output when it goes
        return
    with written_whole(output) as file:
        if output.suffix.lower() in PARQUET:
            with _ParquetBatches(file) as batches:
                yield batches.write
        else:
            yield _CsvLines(file).write


class _CsvLines:
    """CSV with one header, batch after batch."""

    def __init__(self, file: IO[Any]) -> None:
        self.file, self.has_header = file, False

    def write(self, table: pa.Table) -> None:
        # Not pyarrow's writer, which quotes every word.
        text = table.to_pandas().to_csv(index=False, header=not self.has_header)
        self.file.write(text.encode())
        self.file.flush()
        self.has_header = True


class _ParquetBatches:
    """Parquet, a row group a batch."""

    def __init__(self, file: IO[Any]) -> None:
        self.file = file
        self.writer: Any = None

    def __enter__(self) -> _ParquetBatches:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self.writer is not None:
            self.writer.close()

    def write(self, table: pa.Table) -> None:
        if self.writer is None:
            self.writer = pyarrow.parquet.ParquetWriter(self.file, table.schema)
        self.writer.write_table(table)
