"""``sparsebag fit``: from a table straight to a small model; the forest is trained on the way."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

from sparsebag.cli import options
from sparsebag.cli.compressing import (
    Destination,
    compress_and_write,
    library_options,
    print_result,
)
from sparsebag.cli.failures import CommandError, guarded
from sparsebag.cli.models import check_columns
from sparsebag.cli.signals import check_stopped
from sparsebag.cli.tables import (
    as_numbers,
    is_numeric,
    labels_as_written,
    read_table,
    shown_names,
    split_target,
)
from sparsebag.cli.terminal import Steps
from sparsebag.cli.text_columns import UnknownTexts, find_categories, with_codes
from sparsebag.deploy.text_columns import Categories

MOST_CLASSES = 20
"""Distinct whole numbers in a target beyond which it is taken for a quantity."""
TREES_AT_A_TIME = 10


class Task(StrEnum):
    """What the target is."""

    AUTO = "auto"
    CLASSIFICATION = "classification"
    REGRESSION = "regression"


@guarded
def fit(
    data: Annotated[
        Path,
        typer.Argument(
            help="Rows to learn from: CSV (.gz too) or Parquet; - is standard input.",
            metavar="DATA",
            allow_dash=True,
        ),
    ],
    target: options.Target,
    output: options.Output = Path("small.sbag"),
    report: options.Report = None,
    test: options.TestTable = None,
    holdout: Annotated[
        float,
        typer.Option(
            help="Share of DATA held out for the report where --test is not given; 0: none.",
            min=0.0,
            max=0.9,
        ),
    ] = 0.2,
    drop: Annotated[
        list[str] | None,
        typer.Option(help="A column not to learn from, such as a key; may be given again."),
    ] = None,
    task: Annotated[
        Task,
        typer.Option(
            help="auto: classification for text and for up to 20 distinct whole numbers, else "
            "regression."
        ),
    ] = Task.AUTO,
    trees: Annotated[int, typer.Option(help="Trees of the forest.", min=20)] = 300,
    seed: Annotated[int, typer.Option(help="Of the forest and of the rows held out.")] = 0,
    max_estimators: options.MaxEstimators = None,
    max_nodes: options.MaxNodes = None,
    max_bytes: options.MaxBytes = None,
    tolerance: options.Tolerance = None,
    confidence: options.Confidence = None,
    no_refine: options.NoRefine = False,
    no_rehearsal: options.NoRehearsal = False,
    local: options.Local = None,
    jobs: options.Jobs = -1,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Train a random forest on a table and make it small, in one go.

    Columns are numbers or text; the model carries a code for every text, and one it never saw is
    read as missing. Empty cells are allowed: trees route them. The target may be text.

    Example: sparsebag fit data.csv --target y -o small.sbag --report report.html
    """
    destination = Destination(output, report)
    destination.check(data, test)
    steps = Steps(quiet or as_json)
    steps.begin(f"reading {data}")
    features, y = split_target(data, read_table(data), target)
    X = _wanted(data, features, drop or [], steps)
    kind, categories = _task(y, task), find_categories(data, X)
    if kind is Task.CLASSIFICATION:
        y = labels_as_written(data, target, y)
    X = as_numbers(data, with_codes(X, categories))
    of_text = f", {len(categories)} of them text" if categories else ""
    steps.say(f"target '{target}': {kind}, {len(X)} rows, {X.shape[1]} columns{of_text}")
    unseen = None
    if test is not None:
        steps.begin(f"reading {test}")
        features, y_test = split_target(test, read_table(test), target)
        if not is_numeric(y):
            y_test = labels_as_written(test, target, y_test, always=True)
        check_columns(list(X.columns), list(features.columns), test)
        unseen = _coded(test, features[list(X.columns)], categories, steps), y_test.to_numpy()
    elif holdout > 0.0:
        X, X_test, y, y_test = _split(X, y, kind, holdout, seed)
        unseen = X_test, y_test.to_numpy()
        steps.say(f"{len(X_test)} rows held out for the report, {len(X)} to learn from")
    forest = grow_forest(steps, X, y.to_numpy(), kind, trees, seed, jobs)
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
        forest,
        X,
        y.to_numpy(),
        destination,
        how={**how, "n_jobs": jobs},
        test=unseen,
        categories=categories,
    )
    result["trees"] = trees
    print_result(result, as_json=as_json)


def _wanted(data: Path, X: pd.DataFrame, drop: list[str], steps: Steps) -> pd.DataFrame:
    """The columns to learn from: without those named, and without a row number nobody named."""
    unknown = [name for name in drop if name not in X.columns]
    if unknown:
        raise CommandError(f"'{data}' has no column {shown_names(unknown)} to drop.")
    if "" in X.columns and X[""].to_numpy().tolist() == list(range(len(X))):
        steps.say("note: the column without a name counts the rows; it is left out.")
        drop = [*drop, ""]
    X = X.drop(columns=drop)
    if not X.shape[1]:
        raise CommandError(f"no column of '{data}' is left to learn from.")
    return X


def _coded(path: Path, X: pd.DataFrame, categories: Categories, steps: Steps) -> pd.DataFrame:
    """Test rows as the forest reads them."""
    unknown = UnknownTexts(categories)
    unknown.count(X)
    for note in unknown.notes(path):
        steps.say(f"note: {note}")
    return as_numbers(path, with_codes(X, categories))


def grow_forest(
    steps: Steps, X: Any, y: np.ndarray, task: Task, trees: int, seed: int, jobs: int
) -> Any:
    """A random forest, grown a few trees at a time so that it can be interrupted.

    scikit-learn grows the same trees in parts as in one go.

    Parameters
    ----------
    steps : Steps
    X, y : array-like
    task : Task
    trees, seed, jobs : int

    Returns
    -------
    RandomForestClassifier or RandomForestRegressor
    """
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    kind = RandomForestClassifier if task is Task.CLASSIFICATION else RandomForestRegressor
    forest = kind(warm_start=True, random_state=seed, n_jobs=jobs)
    steps.begin(f"growing {trees} trees")
    for grown in range(0, trees, TREES_AT_A_TIME):
        check_stopped()
        forest.set_params(n_estimators=min(trees, grown + TREES_AT_A_TIME)).fit(X, y)
    return forest.set_params(warm_start=False)


def _task(y: pd.Series, task: Task) -> Task:
    if y.nunique() < 2:
        raise CommandError(f"every row has the same target ({y.iloc[0]}); nothing to learn.")
    numeric = pd.api.types.is_numeric_dtype(y) and not pd.api.types.is_bool_dtype(y)
    if task is Task.REGRESSION and not numeric:
        raise CommandError(f"the target holds '{y.iloc[0]}', which is no number to regress on.")
    if task is not Task.AUTO:
        return task
    whole = not numeric or bool(np.all(np.mod(y.to_numpy(dtype=float), 1.0) == 0.0))
    few = whole and (not numeric or y.nunique() <= MOST_CLASSES)
    return Task.CLASSIFICATION if few else Task.REGRESSION


def _split(X: pd.DataFrame, y: pd.Series, task: Task, share: float, seed: int) -> Any:
    from sklearn.model_selection import train_test_split

    stratify = y if task is Task.CLASSIFICATION else None
    try:
        return train_test_split(X, y, test_size=share, random_state=seed, stratify=stratify)
    except ValueError:  # a class of one row, or very few rows
        return train_test_split(X, y, test_size=share, random_state=seed)
