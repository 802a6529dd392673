"""``sparsebag fit`` and ``demo``: from rows straight to a small model; the forest on the way."""

from __future__ import annotations

import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from typer import Argument, Option

from sparsebag.cli.command import CommandError, Data, Screen
from sparsebag.cli.compress import Destination, Method, Target, compress_and_write
from sparsebag.cli.data import (
    UnknownTexts,
    Written,
    as_numbers,
    check_columns,
    find_categories,
    is_numeric,
    read_rows,
    shown,
    typed,
)

DEMO_ROWS = 12_000
"""A forest of tens of MB, compressed and reported in half a minute."""

Task = Literal["auto", "classification", "regression"]
TASK = "auto: classes are text, or at most 20 different whole numbers."
SEED = "Random seed of the forest and of the held-out rows."
HOLDOUT = "Share of rows to hold out without --test; 0 for none."


@dataclass(frozen=True)
class Forest:
    """Options of the forest."""

    task: Annotated[Task, Option(help=TASK)] = "auto"
    trees: Annotated[int, Option(help="Trees of the forest.", min=20)] = 300
    seed: Annotated[int, Option(help=SEED)] = 0

    def grow(self, X: Any, y: np.ndarray, task: Task, jobs: int, screen: Screen) -> Any:
        """A random forest, grown a few trees at a time so that it can be interrupted.

        scikit-learn grows the same trees in parts as in one go.
        """
        from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

        kind = RandomForestClassifier if task == "classification" else RandomForestRegressor
        forest = kind(warm_start=True, random_state=self.seed, n_jobs=jobs)
        for grown in range(0, self.trees, 10):
            screen.step("growing tree", grown + 1, self.trees)
            forest.set_params(n_estimators=min(self.trees, grown + 10)).fit(X, y)
        return forest.set_params(warm_start=False)


def fit(
    data: Data,
    target: Target,
    where: Destination,
    forest: Forest,
    method: Method,
    written: Written,
    screen: Screen,
    holdout: Annotated[float, Option(help=HOLDOUT, min=0.0, max=0.9)] = 0.2,
    drop: Annotated[list[str] | None, Option(help="A column to leave out; repeatable.")] = None,
) -> None:
    """Train a random forest on a table and make it small, in one go.

    Columns are numbers or text; the model carries a code for every text, and one it never saw is
    read as missing. Cells may be empty: trees route them. The target may be text.

    Example: sparsebag fit data.csv --target y -o small.sbag --report report.html
    """
    from sklearn.model_selection import train_test_split

    where.check(data)
    screen.step(f"reading {data}")
    X, y = read_rows(data, target, written)
    X = _wanted(data, X, drop or [], screen)
    task, y = _task_of(y, forest.task)
    categories = find_categories(data, X)
    X = as_numbers(data, X, categories)
    of_text = f", {len(categories)} of them text" if categories else ""
    screen.say(f"target '{target}': {task}, {len(X)} rows, {X.shape[1]} columns{of_text}")
    test = None
    if where.test is not None:
        screen.step(f"reading {where.test}")
        X_test, y_test = read_rows(where.test, target, written)
        check_columns(X.columns, X_test.columns, where.test)
        X_test, unknown = X_test[X.columns], UnknownTexts(categories)
        unknown.count(X_test)
        screen.notes(unknown.notes(where.test))
        y_test = typed(y_test) if is_numeric(y) else y_test.astype(str)
        test = as_numbers(where.test, X_test, categories), y_test.to_numpy()
    elif holdout > 0.0:
        both = {"test_size": holdout, "random_state": forest.seed}
        try:
            by_class = y if task == "classification" else None
            X, X_test, y, y_test = train_test_split(X, y, stratify=by_class, **both)
        except ValueError:  # a class of one row, or very few rows
            X, X_test, y, y_test = train_test_split(X, y, **both)
        test = X_test, y_test.to_numpy()
        screen.say(f"{len(X_test)} rows held out for the report, {len(X)} to learn from")
    rows = X, y.to_numpy()
    ensemble = forest.grow(*rows, task, method.n_jobs, screen)
    facts, text = compress_and_write(
        ensemble, rows, test, where, screen, method.compressor(), categories=categories
    )
    screen.result({**facts, "trees": forest.trees}, text)


def demo(
    screen: Screen,
    folder: Annotated[
        Path, Argument(help="Where files go.", file_okay=False, metavar="FOLDER")
    ] = Path(),
    open_report: Annotated[bool, Option("--open", help="Open the report in a browser.")] = False,
) -> None:
    """Compress a forest of 300 trees on generated data with noisy labels.

    Takes less than a minute and writes the small model and a report.

    Example: sparsebag demo --open
    """
    from sklearn.datasets import make_friedman1
    from sklearn.model_selection import train_test_split

    model, report = folder / "sparsebag_demo.sbag", folder / "sparsebag_report.html"
    where, forest, method = Destination(model, report), Forest(), Method()
    where.check()
    X, signal = make_friedman1(DEMO_ROWS, noise=3.0, random_state=0)
    y = np.where(signal > 18.0, "leaves", "stays")
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=0)
    ensemble = forest.grow(X, y, "classification", method.n_jobs, screen)
    facts, text = compress_and_write(
        ensemble, (X, y), (X_test, y_test), where, screen, method.compressor()
    )
    text = (
        f"Which customers leave? Generated data with noisy labels: {len(X):,} training rows,\n"
        f"{len(X_test):,} test rows. A random forest of {forest.trees} trees, before → after:\n\n"
        f"{text}\n\n"
        f"Next:  open {report} in a browser\n"
        f"       sparsebag inspect {model}\n"
        "       sparsebag fit your_table.csv --target your_column --report report.html"
    )
    screen.result(facts, text)
    if open_report:
        webbrowser.open(report.absolute().as_uri())


def _wanted(data: Path, X: pd.DataFrame, drop: list[str], screen: Screen) -> pd.DataFrame:
    """The columns to learn from: without those named, and without a row number nobody named."""
    unknown = [name for name in drop if name not in X.columns]
    if unknown:
        raise CommandError(f"'{data}' has no column {shown(unknown)} to drop.")
    if "" in X.columns and X[""].tolist() == list(range(len(X))):
        screen.say("note: the column without a name counts the rows; it is left out.")
        drop = [*drop, ""]
    X = X.drop(columns=drop)
    if not X.shape[1]:
        raise CommandError(f"no column of '{data}' is left to learn from.")
    return X


def _task_of(written: pd.Series, task: Task) -> tuple[Task, pd.Series]:
    """What to learn, and the targets for it: numbers stay text where they are written as 007."""
    y = typed(written)
    if y.nunique() < 2:
        raise CommandError(f"every row has the same target ({y.iloc[0]}); nothing to learn.")
    numeric = is_numeric(y) and not pd.api.types.is_bool_dtype(y)
    if task == "regression" and not numeric:
        raise CommandError(f"the target holds '{y.iloc[0]}', which is not a number.")
    if task == "auto":
        few = numeric and y.nunique() <= 20 and bool(np.all(np.mod(y, 1) == 0))
        task = "classification" if few or not numeric else "regression"
    if task == "classification" and numeric and not is_numeric(written):
        as_again = y.map(repr).tolist() == written.tolist()
        y = y if as_again else written
    return task, y
