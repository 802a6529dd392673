"""``sparsebag predict``: a compressed model on a table of any length, batch by batch."""

from __future__ import annotations

import contextlib
import io
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
from typer import Option

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
from sparsebag.cli.models import check_can_be_written, read_model
from sparsebag.deploy.compiled import CompiledEnsemble
from sparsebag.deploy.whole_file import whole_file

STDOUT = Path("-")


def predict(
    model: Model,
    data: Data,
    written: Written,
    screen: Screen,
    output: Annotated[
        Path, Option("--output", "-o", help=".csv or .parquet; - is standard output (CSV).")
    ] = STDOUT,
    proba: Annotated[bool, Option(help="Also write the probability of every class.")] = True,
    keep: Annotated[
        list[str] | None, Option(help="A column to copy to the output; repeatable.")
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
    if output != STDOUT:
        check_can_be_written(output, unlike=(model, data))
        if output.suffix.lower() not in (".csv", ".txt", "", *PARQUET):
            raise CommandError(
                f"predictions cannot be written to '{output}'; use .csv or .parquet, or - for "
                "standard output.",
                ExitCode.USAGE,
            )
    elif screen.as_json:
        raise CommandError(
            "--json and predictions cannot share standard output; name a file: -o.", ExitCode.USAGE
        )
    predictor = read_model(model, trust_pickle=trust_pickle)
    is_whole = not isinstance(predictor, CompiledEnsemble)
    predictor = _as_compiled(predictor) if is_whole else predictor
    table = Table(data, written)
    features, unknown = _features(predictor, table, kept), UnknownTexts(predictor.categories)
    # A whole model may read text.
    numbers = [] if is_whole else [name for name in features if name not in unknown.known]
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
            write(_predicted(predictor, batch[features], batch[kept], proba=proba, jobs=jobs))
            rows += len(batch)
    seconds = time.perf_counter() - started
    if output != STDOUT:
        screen.say(f"{rows:,} rows predicted in {seconds:.1f} s, written to {output}")
    notes = screen.notes(unknown.notes(data))
    facts = {"rows": rows, "seconds": round(seconds, 3), "output": str(output), "warnings": notes}
    screen.result(facts, "")


def _as_compiled(model: Any) -> Any:
    """A Pipeline or another whole model, with a compiled ensemble's names."""
    return SimpleNamespace(
        classes=getattr(model, "classes_", None),
        feature_names=getattr(model, "feature_names_in_", None),
        n_features=getattr(model, "n_features_in_", None),
        categories=None,
        predict=lambda X, n_jobs: model.predict(X),
        predict_proba=lambda X, n_jobs: model.predict_proba(X),
    )


def _features(predictor: Any, table: Table, kept: list[str]) -> list[str]:
    """The columns the model reads, in its order."""
    unknown = [name for name in kept if name not in table.columns]
    if unknown:
        raise CommandError(f"'{table.path}' has no column {shown(unknown)} to keep.")
    if predictor.feature_names is not None:
        check_columns(predictor.feature_names, table.columns, table.path)
        return list(predictor.feature_names)
    others = [name for name in table.columns if name not in kept]
    if predictor.n_features not in (None, len(others)):
        raise CommandError(
            f"the model reads {predictor.n_features} columns and knows no names, but "
            f"'{table.path}' has {len(others)}; leave the others out, or name them with --keep."
        )
    return others


def _predicted(
    predictor: Any, X: pd.DataFrame, kept: pd.DataFrame, *, proba: bool, jobs: int
) -> pd.DataFrame:
    classes = predictor.classes
    if classes is None:
        return kept.assign(prediction=predictor.predict(X, n_jobs=jobs))
    shares = predictor.predict_proba(X, n_jobs=jobs)
    out = kept.assign(prediction=classes[np.argmax(shares, axis=1)])
    named = {f"p_{label}": share for label, share in zip(classes, shares.T, strict=True)}
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
