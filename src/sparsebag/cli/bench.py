"""``sparsebag bench``: how fast a model is on this machine, and the project's own benchmarks."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from sparsebag.cli import options
from sparsebag.cli.failures import CommandError, ExitCode, guarded
from sparsebag.cli.models import check_columns, columns_for, read_compiled, read_ensemble_file
from sparsebag.cli.tables import as_numbers, read_table
from sparsebag.cli.terminal import Steps, print_json
from sparsebag.cli.text_columns import with_codes

BATCH = 1000
SECONDS_EACH = 1.0
"""Time spent on each figure; the best call counts, because load only ever adds."""
SUITES = {
    "solvers": "every solver against SLSQP, the bandwidth bound and R's mixsqp",
    "quality": "pruned and taught trees beside every baseline",
    "latency": "the compiled predictor beside scikit-learn, ONNX Runtime, treelite, XGBoost",
    "exports": "every export beside the model",
    "paper": "the paper's tables, every method",
}

bench = typer.Typer(no_args_is_help=True, help="Measure a model here, or rerun the project's own.")


@bench.command()
@guarded
def speed(
    model: Annotated[Path, typer.Argument(help="A .sbag file.", metavar="MODEL")],
    data: Annotated[Path, typer.Argument(help="Rows to predict: CSV or Parquet.", metavar="DATA")],
    against: Annotated[
        Path | None,
        typer.Option(help="The ensemble it was made of (skops, or a pickle), timed beside it."),
    ] = None,
    trust_pickle: options.TrustPickle = False,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Time a model on your rows: one row, and a thousand, one thread.

    Example: sparsebag bench speed small.sbag data.csv --against forest.skops
    """
    compiled = read_compiled(model, trust_pickle=trust_pickle)
    table = read_table(data)
    names = compiled.feature_names
    if names is not None:
        check_columns(list(names), [str(c) for c in table.columns], data)
        table = table[list(names)]
    X = as_numbers(data, with_codes(table, compiled.categories or {})).to_numpy(dtype=np.float32)
    batch = np.resize(X, (BATCH, X.shape[1]))
    regression = compiled.classes is None
    many = compiled.predict if regression else compiled.predict_proba
    one = compiled.predict_one if regression else compiled.predict_proba_one
    row = np.ascontiguousarray(batch[0])
    steps = Steps(quiet or as_json)
    steps.begin(f"timing {model}")
    found = {model.name: _times(lambda: one(row), lambda: many(batch))}
    if against is not None:
        ensemble = read_ensemble_file(against, trust_pickle=trust_pickle)
        ensemble = ensemble.set_params(n_jobs=1) if hasattr(ensemble, "n_jobs") else ensemble
        rows: Any = columns_for(ensemble, data, table.iloc[:1])
        rows = (
            table.iloc[np.resize(np.arange(len(table)), BATCH)]
            if hasattr(rows, "columns")
            else batch
        )
        call = ensemble.predict if regression else ensemble.predict_proba
        steps.begin(f"timing {against}")
        found[against.name] = _times(lambda: call(rows[:1]), lambda: call(rows))
    if as_json:
        print_json(found)
        return
    out = Table("", "one row", f"{BATCH} rows", box=None)
    for name, figures in found.items():
        out.add_row(name, f"{figures['one_row_us']:,.1f} µs", f"{figures['batch_ms']:,.2f} ms")
    Console(highlight=False).print(out)


@bench.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
@guarded
def run(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(SUITES)}.", metavar="NAME")],
) -> None:
    """Rerun one of the project's benchmarks, in a clone of the repository.

    What follows the name is passed on, as in: sparsebag bench run solvers --quick
    """
    if name not in SUITES:
        raise CommandError(
            f"there is no benchmark '{name}'; there are {', '.join(SUITES)}.", ExitCode.USAGE
        )
    sys.path.insert(0, "")
    if importlib.util.find_spec("benchmarks") is None:
        raise CommandError(
            "the benchmarks are not part of the package; run this in a clone of the repository."
        )
    done = subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *context.args], check=False)
    raise typer.Exit(done.returncode)


@bench.command("list")
@guarded
def list_suites() -> None:
    """List the project's benchmarks."""
    for name, text in SUITES.items():
        print(f"{name:<12}{text}")


def _times(one: Callable[[], Any], batch: Callable[[], Any]) -> dict[str, float]:
    return {"one_row_us": 1e6 * _best(one), "batch_ms": 1e3 * _best(batch)}


def _best(call: Callable[[], Any]) -> float:
    call()
    best, end = float("inf"), time.perf_counter() + SECONDS_EACH
    while time.perf_counter() < end:
        clock, processor = time.perf_counter(), time.process_time()
        call()
        took = min(time.perf_counter() - clock, time.process_time() - processor)
        best = min(best, took)
    return best
