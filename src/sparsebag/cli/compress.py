"""``sparsebag compress``: a fitted ensemble and its training rows in, a small model out."""

from __future__ import annotations

import warnings
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from sparsebag.cli import options
from sparsebag.cli.compressing import (
    Destination,
    compress_and_write,
    library_options,
    print_result,
)
from sparsebag.cli.failures import guarded
from sparsebag.cli.models import check_can_be_stored, columns_for, read_ensemble_file
from sparsebag.cli.tables import as_numbers, check_readable, read_table, split_target
from sparsebag.cli.terminal import Steps


class Evidence(StrEnum):
    """Which rows judge the members."""

    OOB = "oob"
    HOLDOUT = "holdout"


@guarded
def compress(
    model: Annotated[
        Path,
        typer.Argument(
            help="The fitted ensemble: a skops file, or a pickle (joblib).", metavar="MODEL"
        ),
    ],
    data: Annotated[
        Path,
        typer.Argument(
            help="The rows it was trained on, in order: CSV (.gz too) or Parquet.", metavar="DATA"
        ),
    ],
    target: options.Target,
    output: options.Output = Path("small.sbag"),
    report: options.Report = None,
    test: options.TestTable = None,
    max_estimators: options.MaxEstimators = None,
    max_nodes: options.MaxNodes = None,
    max_bytes: options.MaxBytes = None,
    tolerance: options.Tolerance = None,
    confidence: options.Confidence = None,
    no_refine: options.NoRefine = False,
    no_rehearsal: options.NoRehearsal = False,
    local: options.Local = None,
    trust_pickle: options.TrustPickle = False,
    trust_type: Annotated[
        list[str] | None,
        typer.Option(help="A type in a skops file to trust; may be given again."),
    ] = None,
    evidence: Annotated[
        Evidence,
        typer.Option(
            help="oob: DATA holds the rows it was trained on. holdout: DATA holds rows it has "
            "never seen, for ensembles without bootstrap."
        ),
    ] = Evidence.OOB,
    jobs: options.Jobs = -1,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Make a fitted ensemble smaller, from the rows it was trained on.

    Says what was kept and what that is expected to cost. The model goes to one .sbag file without
    pickle, which `sparsebag predict` and `sparsebag export` read.

    Example: sparsebag compress forest.skops train.csv --target y --test test.csv
    -o small.sbag --report report.html
    """
    destination = Destination(output, report)
    destination.check(model, data, test)
    check_readable(model)
    steps = Steps(quiet or as_json)
    # Tables first: they are read in no time, and their faults are the common ones.
    steps.begin(f"reading {data}")
    rows = split_target(data, read_table(data), target)
    unseen = None
    if test is not None:
        steps.begin(f"reading {test}")
        unseen = split_target(test, read_table(test), target)
    steps.begin(f"reading {model}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ensemble = read_ensemble_file(model, trust_pickle=trust_pickle, trusted=trust_type or ())
    steps.notes(caught)
    from sparsebag.validation import check_ensemble, unfrozen

    ensemble = unfrozen(ensemble)
    check_ensemble(ensemble)
    if not trust_pickle:
        check_can_be_stored(ensemble)
    X, y = _as_trained(ensemble, data, *rows)
    how = library_options(
        max_estimators=max_estimators,
        max_nodes=max_nodes,
        max_bytes=max_bytes,
        tolerance=tolerance,
        confidence=confidence,
        no_refine=no_refine,
        no_rehearsal=no_rehearsal,
        local=local,
    )
    result = compress_and_write(
        steps,
        ensemble,
        X,
        y,
        destination,
        how={**how, "evidence": str(evidence), "n_jobs": jobs},
        test=None if test is None or unseen is None else _as_trained(ensemble, test, *unseen),
        trust_pickle=trust_pickle,
    )
    print_result(result, as_json=as_json)


def _as_trained(ensemble: Any, path: Path, features: Any, y: Any) -> tuple[Any, Any]:
    """Rows in the form the ensemble was trained on: named columns in its order, or an array."""
    columns = columns_for(ensemble, path, features)
    if hasattr(columns, "columns"):
        return as_numbers(path, columns), y.to_numpy()
    return as_numbers(path, features).to_numpy(), y.to_numpy()
