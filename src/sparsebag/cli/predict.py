"""``sparsebag predict``: a compressed model on a table of any length, batch by batch."""

from __future__ import annotations

import contextlib
import io
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import typer

from sparsebag.cli.command import CommandError, Data, ExitCode, Jobs, Model, Screen, TrustPickle
from sparsebag.cli.data import (
    PARQUET,
    Table,
    UnknownTexts,
    Written,
    as_numbers,
    check_columns,
    shown,
)
from sparsebag.cli.models import check_can_be_written, read_compiled
from sparsebag.deploy.whole_file import whole_file

STDOUT = Path("-")


def predict(
    model: Model,
    data: Data,
    written: Written,
    screen: Screen,
    output: Annotated[
        Path, typer.Option("--output", "-o", help=".csv or .parquet; - is standard output (CSV).")
    ] = STDOUT,
    proba: Annotated[bool, typer.Option(help="Also write the probability of every class.")] = True,
    keep: Annotated[
        list[str] | None, typer.Option(help="A column to copy to the output; repeatable.")
    ] = None,
    trust_pickle: TrustPickle = False,
    jobs: Jobs = -1,
) -> None:
    """Predict every row of a table; the table may be larger than memory.

    Columns are matched by name where the model knows names; others are ignored. An interrupted or
    failed run leaves no output file.

    Example: sparsebag predict small.sbag new_rows.csv -o predictions.csv

    In a pipe: cat new_rows.csv | sparsebag predict small.sbag - | head
    """
    started, rows, kept = time.perf_counter(), 0, list(keep or [])
    if output == STDOUT and screen.as_json:
        raise CommandError(
            "--json and predictions cannot share standard output; name a file: -o.", ExitCode.USAGE
        )
    if output != STDOUT:
        check_can_be_written(output, unlike=(model, data))
        if output.suffix.lower() not in (".csv", ".txt", "", *PARQUET):
            raise CommandError(
                f"predictions cannot be written to '{output}'; use .csv or .parquet, or - for "
                "standard output.",
                ExitCode.USAGE,
            )
    compiled = read_compiled(model, trust_pickle=trust_pickle, whole=True)
    table = Table(data, written)
    features, unknown = _features(compiled, table, kept), UnknownTexts(compiled.categories)
    numbers = [name for name in features if name not in unknown.known]
    numbers = [] if hasattr(compiled, "is_whole") else numbers  # it may read text
    batches = table.batches(
        [*dict.fromkeys([*features, *kept])],
        as_written=[name for name in kept if name not in features],
        texts=list(unknown.known),
    )
    with _sink(output) as write:
        for batch in batches:
            if output != STDOUT:
                screen.step(f"predicting {data}")
            unknown.count(batch)
            as_numbers(data, batch[numbers])
            write(_predicted(compiled, batch[features], batch[kept], proba=proba, jobs=jobs))
            rows += len(batch)
    seconds, notes = time.perf_counter() - started, unknown.notes(data)
    if output != STDOUT:
        screen.say(f"{rows:,} rows predicted in {seconds:.1f} s, written to {output}")
    for note in notes:
        screen.say(f"note: {note}")
    facts = {"rows": rows, "seconds": round(seconds, 3), "output": str(output), "warnings": notes}
    screen.result(facts, "")


def _features(compiled: Any, table: Table, kept: list[str]) -> list[str]:
    """The columns the model reads, in its order."""
    unknown = [name for name in kept if name not in table.columns]
    if unknown:
        raise CommandError(f"'{table.path}' has no column {shown(unknown)} to keep.")
    if compiled.feature_names is not None:
        check_columns(compiled.feature_names, table.columns, table.path)
        return list(compiled.feature_names)
    others = [name for name in table.columns if name not in kept]
    if compiled.n_features is not None and compiled.n_features != len(others):
        raise CommandError(
            f"the model reads {compiled.n_features} columns and knows no names, but "
            f"'{table.path}' has {len(others)}; leave the others out, or name them with --keep."
        )
    return others


def _predicted(
    compiled: Any, X: pd.DataFrame, kept: pd.DataFrame, *, proba: bool, jobs: int
) -> pd.DataFrame:
    if compiled.classes is None:
        return kept.assign(prediction=compiled.predict(X, n_jobs=jobs))
    shares = compiled.predict_proba(X, n_jobs=jobs)
    out = kept.assign(prediction=compiled.classes[np.argmax(shares, axis=1)])
    named = {f"p_{label}": shares[:, c] for c, label in enumerate(compiled.classes)}
    return out.assign(**named) if proba else out


@contextlib.contextmanager
def _sink(output: Path) -> Iterator[Callable[[pd.DataFrame], None]]:
    """What takes the batches: a file that is whole or not there, or standard output."""
    with contextlib.ExitStack() as stack:
        if output == STDOUT:
            file: Any = sys.stdout.buffer
            if isinstance(file, io.RawIOBase):  # PYTHONUNBUFFERED: writes part of what it is given
                file = io.BufferedWriter(file)
                stack.callback(file.detach)  # or it would close standard output when it goes
        else:
            file = stack.enter_context(whole_file(output))
        writer: Any = None

        def write(frame: pd.DataFrame) -> None:
            nonlocal writer
            if output.suffix.lower() in PARQUET:  # a row group a batch
                table = pa.Table.from_pandas(frame, preserve_index=False)
                writer = writer or stack.enter_context(
                    pyarrow.parquet.ParquetWriter(file, table.schema)
                )
                writer.write_table(table)
            else:
                file.write(frame.to_csv(index=False, header=writer is None).encode())
                file.flush()
                writer = file

        yield write
