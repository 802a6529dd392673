"""``sparsebag predict``: a compressed model on a table of any length, batch by batch."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
from typer import Option

from sparsebag.cli import models, tables
from sparsebag.cli.command import CommandError, Data, ExitCode, Jobs, Model, Screen, Trust
from sparsebag.deploy.compiled import CompiledEnsemble
from sparsebag.sources.whole_file import whole_file

STDOUT = Path("-")


def predict(
    model: Model,
    data: Data,
    written: tables.Written,
    screen: Screen,
    trust: Trust,
    output: Annotated[
        Path, Option("--output", "-o", help=".csv or .parquet; - is standard output (CSV).")
    ] = STDOUT,
    proba: Annotated[bool, Option(help="Also write the probability of every class.")] = True,
    keep: Annotated[
        tables.Names, Option(help="A column to copy to the output; repeatable.")
    ] = None,
    jobs: Jobs = -1,
) -> None:
    """Predict every row of a table; the table may be larger than memory.

    Columns are matched by name if the model was fitted with names; others are ignored. An
    interrupted or failed run leaves no output file.

    Example: sparsebag predict small.sbag new_rows.csv -o predictions.csv

    In a pipe: cat new_rows.csv | sparsebag predict small.sbag - | head
    """
    started, n_rows = time.perf_counter(), 0
    if output != STDOUT:
        suffixes = (".csv", ".parquet", ".pq", ".txt", "")
        models.check_can_be_written(output, unlike=(model, data), suffixes=suffixes)
    elif screen.as_json:
        told = "--json and predictions cannot share standard output; name a file with -o."
        raise CommandError(told, ExitCode.USAGE)
    predictor = models.read_model(model, trust)
    is_whole = not isinstance(predictor, CompiledEnsemble)
    table, read = tables.Table(data, written), models.columns_read(predictor)
    kept = tables.columns_of(data, table.columns, keep or [])
    found = [name for name in table.columns if read[0] is not None or name not in kept]
    features = tables.columns_of(data, found, *read)
    unknown = tables.UnknownTexts(None if is_whole else predictor.categories)
    # A whole model may read text.
    numbers = [] if is_whole else [name for name in features if name not in unknown.known]
    batches = table.batches(
        [*dict.fromkeys([*features, *kept])],
        as_written=[name for name in kept if name not in features],
        texts=list(unknown.known),
    )
    to_stdout, writer = output == STDOUT, None
    opened: Any = whole_file(output)
    if to_stdout:  # not sys.stdout.buffer: with PYTHONUNBUFFERED it writes part of what it is given
        opened = open(sys.stdout.fileno(), "wb", closefd=False)  # noqa: SIM115
    with opened as file, contextlib.ExitStack() as stack:
        for batch in batches:
            if not to_stdout:
                screen.step(f"predicting {data}")
            unknown.count(batch)
            tables.as_numbers(data, batch[numbers])
            rows = tables.as_read(batch[features], *read) if is_whole else batch[features]
            how = {} if is_whole else {"n_jobs": jobs}
            try:
                out = _predicted(predictor, rows, batch[kept], proba, how)
            except ValueError as error:  # a Pipeline's steps do not know the file
                raise CommandError(f"'{data}': {' '.join(str(error).split())}") from None
            if output.suffix.lower() in tables.PARQUET:  # a row group a batch
                group = pa.Table.from_pandas(out, preserve_index=False)
                writer = writer or stack.enter_context(
                    pyarrow.parquet.ParquetWriter(file, group.schema)
                )
                writer.write_table(group)
            else:
                file.write(out.to_csv(index=False, header=n_rows == 0).encode())
                file.flush()
            n_rows += len(batch)
    seconds = time.perf_counter() - started
    if not to_stdout:
        screen.say(f"{n_rows:,} rows predicted in {seconds:.1f} s, written to {output}")
    others = [name for name in table.columns if name not in (*features, *kept)]
    ignored = [f"'{data}' has columns the model does not use: {tables.shown(others)}."]
    by_order = [tables.BY_ORDER] * (read[0] is None and len(features) > 1)
    notes = screen.notes(ignored * bool(others) + by_order + unknown.notes(data))
    facts = {"rows": n_rows, "seconds": round(seconds, 3), "output": output, "warnings": notes}
    screen.result(facts, "")


def _predicted(model: Any, X: Any, kept: pd.DataFrame, proba: bool, how: Any) -> pd.DataFrame:
    classes = getattr(model, "classes_", None)
    if classes is None:
        return kept.assign(prediction=model.predict(X, **how))
    shares = model.predict_proba(X, **how)
    if len(shares) != len(X):  # a vectorizer read the columns' names
        told = f"the model reads one text column, but the table has {tables.shown(list(X))}"
        raise CommandError(f"{told}; remove the others, or copy them with --keep.")
    out = kept.assign(prediction=classes[np.argmax(shares, axis=1)])
    named = {f"p_{label}": share for label, share in zip(classes, shares.T, strict=True)}
    return out.assign(**named) if proba else out
