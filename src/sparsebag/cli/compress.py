"""``sparsebag compress``, ``fit`` and ``demo``: small models of ensembles, or of tables alone."""

from __future__ import annotations

import re
import time
import webbrowser
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from typer import Argument, BadParameter, Option

from sparsebag.cli import models, tables
from sparsebag.cli.command import CommandError, Data, Jobs, Screen, Trust, one_line
from sparsebag.deploy.artifact import save
from sparsebag.deploy.rows import Categories
from sparsebag.judge.selection import in_bytes, in_lines
from sparsebag.report.changes import UNCLEAR
from sparsebag.report.compression_report import COMPILED, SPEED

COUNTS = {"": 1}
BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9}
DEMO_ROWS = 12_000
"""A forest of tens of MB, compressed and reported in half a minute."""
Task = Literal["auto", "classification", "regression"]
TASK = "classification, regression, or auto: classification for text or at most 20 integers."
SEED = "Random seed of the forest and of the held-out rows."
HOLDOUT = "Share of rows to hold out as test rows if there is no --test; 0 for none."
TOLERANCE = (
    "Accepted relative increase of the expected Brier score or squared error, as 0.05 or 5%; the "
    "smallest model within it is kept. Default: 0.01, or none with a budget."
)
CONFIDENCE = "Stay within the tolerance with this confidence, such as 0.95."
LOCAL = "Weights that depend on the row: if they help (auto), or always. Default: never."
BYTES_OF = (
    "Maximum file size: 100kB, or 5% of the forest's .sbag; a Pipeline's other steps excluded."
)
OUTPUT = "File for the small model. Default: small.sbag, if there is none."
EVIDENCE = (
    "oob: DATA holds the rows it was trained on. holdout: DATA holds rows it has never seen, as "
    "voting ensembles need."
)
REHEARSAL = "Estimate the loss at every size; without, the budget or 10% of the nodes is kept."
Rows = tuple[Any, Any]
Target = Annotated[str, Option("--target", "-t", help="Column to predict.")]


def limit(text: str, units: Mapping[str, int] = COUNTS) -> float:
    """The most to keep: a whole number, or a share as ``5%`` or ``0.05``; or without units a share.

    Examples
    --------
    >>> limit("20000"), limit("5%"), limit("0.05"), limit("100kB", BYTES)
    (20000, 0.05, 0.05, 100000)
    """
    found = re.fullmatch(r"((?:\d+\.?\d*|\.\d+)(?:e-\d+)?) *(%|[kmg]?b)?", text.strip().lower())
    number, unit = (float(found[1]), found[2] or "") if found else (0.0, "nothing")
    if unit == "%" or (unit == "" and number < 1.0):
        share = number / 100 if unit else number
        if not (0.0 < share <= 1.0 if units else share < 1.0):
            raise BadParameter(f"'{text}' is not a share between 0 and 100%.")
        return share
    if unit not in units:
        wanted = "bytes (B, kB, MB, GB) or " if units is BYTES else "a whole number (20000) or "
        raise BadParameter(f"'{text}' is not {wanted * bool(units)}a share (5%).")
    return round(number * units[unit])


Size = partial(Option, rich_help_panel="Size")
Count = partial(Size, parser=limit, metavar="COUNT|SHARE")
FileSize = partial(Size, parser=partial(limit, units=BYTES), metavar="BYTES|SHARE")
Share = partial(Size, parser=partial(limit, units={}), metavar="SHARE")


@dataclass(frozen=True)
class Method:
    """Options of `sparsebag.compress`, by its names."""

    max_estimators: Annotated[float | None, Count(help="Maximum members: 30 or 10%.")] = None
    max_nodes: Annotated[float | None, Count(help="Maximum nodes: 20000 or 5%.")] = None
    max_bytes: Annotated[float | None, FileSize(help=BYTES_OF)] = None
    tolerance: Annotated[float | None, Share(help=TOLERANCE)] = None
    confidence: Annotated[float | None, Size(help=CONFIDENCE, min=0.5, max=0.9999)] = None
    refine: Annotated[bool, Option(help="Prune and refit trees, or only select them.")] = True
    rehearsal: Annotated[bool, Option(help=REHEARSAL)] = True
    local: Annotated[Literal["auto", "always"] | None, Option(help=LOCAL)] = None
    n_jobs: Jobs = -1

    def compressor(self, evidence: str = "oob") -> Callable[..., Any]:
        """`sparsebag.compress` with these options."""
        from sparsebag.compress import compress

        switches = {
            "refine": "auto" if self.refine else None,
            "rehearsal": "auto" if self.rehearsal else False,
            "local": True if self.local == "always" else self.local,
        }
        return partial(compress, evidence=evidence, **(vars(self) | switches))


@dataclass(frozen=True)
class Destination:
    """Where a model and its report go, and the rows the report is about."""

    output: Annotated[Path | None, Option("--output", "-o", help=OUTPUT)] = None
    report: Annotated[Path | None, Option(help="File for the report (.html or .md).")] = None
    test: Annotated[Path | None, Option(help="Table of unseen rows for the report.")] = None

    @property
    def model(self) -> Path:
        """Where the model goes."""
        return self.output or Path("small.sbag")

    def check(self, *inputs: Path) -> None:
        """Refuse what cannot be written, or would overwrite an input, before the work."""
        check = partial(models.check_can_be_written, unlike=(*inputs, self.test))
        check(self.model, is_named=self.output is not None, suffixes=(".sbag", ""))
        if self.report is not None:
            check(self.report, other=self.model, suffixes=(".html", ".md"))


def compress(
    model: Annotated[
        Path, Argument(help="The fitted ensemble: a skops file or a pickle.", metavar="MODEL")
    ],
    data: Data,
    target: Target,
    where: Destination,
    method: Method,
    written: tables.Written,
    screen: Screen,
    trust: Trust,
    evidence: Annotated[Literal["oob", "holdout"], Option(help=EVIDENCE)] = "oob",
) -> None:
    """Make a fitted ensemble smaller, from the rows it was trained on.

    DATA holds the rows the ensemble was trained on, in order.
    Prints size, speed and expected quality before and after. The model goes to one .sbag file
    without pickle, which `sparsebag predict` and `sparsebag export` read.

    Example: sparsebag compress forest.skops train.csv --target y --test test.csv
    -o small.sbag --report report.html
    """
    from sparsebag.evidence.from_ensemble import unfrozen

    where.check(model, data)
    tables.check_readable(model)
    # Tables first: they are read in no time, and their faults are the common ones.
    screen.step(f"reading {data}")
    paths = [path for path in (data, where.test) if path is not None]
    read = [(path, *tables.read_rows(path, target, written)) for path in paths]
    screen.step(f"reading {model}")
    with screen.noting():
        ensemble = unfrozen(models.read_ensemble_file(model, trust))
    models.check_can_be_compressed(ensemble, trust_pickle=trust.trust_pickle)
    screen.notes([tables.BY_ORDER] * (models.columns_read(ensemble)[0] is None))
    rows, *test = (_as_trained(ensemble, *each) for each in read)
    how = method.compressor(evidence)
    told = compress_and_write(ensemble, rows, test[0] if test else None, where, screen, how, trust)
    screen.result(*told)


def _as_trained(ensemble: Any, path: Path, X: pd.DataFrame, y: pd.Series) -> Rows:
    """Rows in the form the ensemble was trained on: named columns in its order, or an array."""
    from sparsebag.evidence.wrappers import wrapper_of

    names, width = models.columns_read(ensemble)
    X = X[tables.columns_of(path, X.columns, names, width)]
    if wrapper_of(ensemble) is None:
        X, width = tables.as_numbers(path, X), X.shape[1]
    return tables.as_read(X, names, width), tables.typed(y).to_numpy()  # a wrapper may read text


@dataclass(frozen=True)
class Forest:
    """Options of the forest."""

    task: Annotated[Task, Option(help=TASK, metavar="TASK")] = "auto"
    trees: Annotated[int, Option(help="Number of trees in the forest.", min=20)] = 300
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
    written: tables.Written,
    screen: Screen,
    holdout: Annotated[float, Option(help=HOLDOUT, min=0.0, max=0.9)] = 0.2,
    drop: Annotated[tables.Names, Option(help="A column to leave out; repeatable.")] = None,
) -> None:
    """Train a random forest on a table and compress it.

    Columns hold numbers or text. Text columns are categories, which the file stores; empty cells
    and texts not seen in training are missing values. The target may be text.

    Example: sparsebag fit data.csv --target y -o small.sbag --report report.html
    """
    from sklearn.model_selection import train_test_split

    where.check(data)
    screen.step(f"reading {data}")
    X, y = tables.read_rows(data, target, written)
    X = _wanted(data, X, drop or [], screen)
    task, y = _task_of(y, forest.task)
    categories = tables.find_categories(data, X)
    X = tables.as_numbers(data, X, categories)
    of_text = f", {len(categories)} of them text" if categories else ""
    screen.say(f"target '{target}': {task}, {len(X)} rows, {X.shape[1]} columns{of_text}")
    test = None
    if where.test is not None:
        screen.step(f"reading {where.test}")
        X_test, y_test = tables.read_rows(where.test, target, written)
        X_test = X_test[tables.columns_of(where.test, X_test.columns, X.columns)]
        unknown = tables.UnknownTexts(categories)
        unknown.count(X_test)
        screen.notes(unknown.notes(where.test))
        y_test = tables.typed(y_test) if tables.is_numeric(y) else y_test.astype(str)
        test = tables.as_numbers(where.test, X_test, categories), y_test.to_numpy()
    elif holdout > 0.0:
        both = {"test_size": holdout, "random_state": forest.seed}
        try:
            by_class = y if task == "classification" else None
            X, X_test, y, y_test = train_test_split(X, y, stratify=by_class, **both)
        except ValueError:  # a class of one row, or very few rows
            X, X_test, y, y_test = train_test_split(X, y, **both)
        test = X_test, y_test.to_numpy()
        screen.say(f"{len(X_test)} rows held out for the report, {len(X)} for training")
    rows = X, y.to_numpy()
    ensemble = forest.grow(*rows, task, method.n_jobs, screen)
    facts, text = compress_and_write(
        ensemble, rows, test, where, screen, method.compressor(), Trust(), categories
    )
    screen.result({**facts, "trees": forest.trees}, text)


def demo(
    screen: Screen,
    folder: Annotated[
        Path, Argument(help="Folder to write to.", file_okay=False, metavar="FOLDER")
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
        ensemble, (X, y), (X_test, y_test), where, screen, method.compressor(), Trust()
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
    tables.columns_of(data, list(X.columns), drop)
    if "" in X.columns and X[""].tolist() == list(range(len(X))):
        screen.say("note: the unnamed column is a row index and is ignored.")
        drop = [*drop, ""]
    X = X.drop(columns=drop)
    if not X.shape[1]:
        raise CommandError(f"'{data}' has no usable feature column.")
    return X


def _task_of(written: pd.Series, task: Task) -> tuple[Task, pd.Series]:
    """What to learn, and the targets for it: numbers stay text where they are written as 007."""
    y = tables.typed(written)
    if y.nunique() < 2:
        raise CommandError(f"every row has the same target ({y.iloc[0]}); nothing to learn.")
    numeric = tables.is_numeric(y) and not pd.api.types.is_bool_dtype(y)
    if task == "regression" and not numeric:
        raise CommandError(f"the target holds '{y.iloc[0]}', which is not a number.")
    if task == "auto":
        few = numeric and y.nunique() <= 20 and bool(np.all(np.mod(y, 1) == 0))
        task = "classification" if few or not numeric else "regression"
    if task == "classification" and numeric and not tables.is_numeric(written):
        as_again = y.map(repr).tolist() == written.tolist()
        y = y if as_again else written
    return task, y


def compress_and_write(
    ensemble: Any,
    rows: Rows,
    test: Rows | None,
    where: Destination,
    screen: Screen,
    how: Callable[..., Any],
    trust: Trust,
    categories: Categories | None = None,
) -> tuple[dict[str, Any], str]:
    """Compress a fitted ensemble, save it and its report, and tell what came of it.

    Parameters
    ----------
    ensemble : fitted ensemble
    rows, test : tuple of X, y
        Its training rows, and rows nobody has trained on.
    where : Destination
    screen : Screen
    how : callable
        `sparsebag.compress`, its options set.
    trust : Trust
    categories : mapping of str to tuple of str, optional
        Texts the columns of X are codes of; the file carries them.

    Returns
    -------
    facts : dict
        For ``--json``.
    text : str
        The same for people.
    """
    from sparsebag.evidence.wrappers import innermost
    from sparsebag.report.wrapped import report_on

    started, report = time.perf_counter(), None
    with screen.noting() as notes:
        made = how(ensemble, *rows, verbose=screen.listen)
        small = innermost(made)[0][0].model
        seconds = time.perf_counter() - started
        if test is not None or where.report is not None:
            screen.step("comparing with the whole ensemble")
            report = report_on(made, *(test or ()))
    screen.step(f"writing {where.model}")
    seen = test is not None and pd.DataFrame(test[0]).equals(pd.DataFrame(rows[0]))
    notes += screen.notes(["--test holds the rows of DATA, which the model was made of."] * seen)
    deployed = replace(small.compile(), categories=categories or None)
    save(deployed if made is small else made, where.model, allow_pickle=trust.trust_pickle)
    if report is not None and where.report is not None:
        try:
            report.save(where.report)
        except (OSError, ImportError) as error:
            raise type(error)(f"{error} The model is in '{where.model}'.") from None
    scored = report if report is not None and report.n_rows else None
    facts = _facts(small, scored, where) | {"seconds": round(seconds, 3)}
    facts["warnings"] = [*notes, *(() if scored is None else scored.cautions)]
    return facts, _in_words(small, scored, where, seen)


def _facts(small: Any, scored: Any, where: Destination) -> dict[str, Any]:
    chosen, gated = small.selection_, small.local_
    facts = {
        "model": where.model,
        "report": where.report,
        "task": "classification" if hasattr(small, "classes_") else "regression",
        "members": chosen.after.members,
        "of_members": chosen.before.members,
        "nodes": chosen.after.nodes,
        "of_nodes": chosen.before.nodes,
        "file_bytes": where.model.stat().st_size,
        "tolerance": None if chosen.curve is None else chosen.tolerance,
        "rows_verified_by": small.verified_by_,
    }
    judged = ("expected_risk", "ratio", "interval", "kept_whole")
    facts |= {name: getattr(chosen, name) for name in judged}
    if scored is not None:
        changes = {change.name: change.as_dict() for change in scored.changes}
        speeds = [row[SPEED] for row in scored.rows.values()]
        facts["test"] = {"rows": scored.n_rows, "us_per_row": speeds, "changes": changes}
    if gated is not None:
        facts["local"] = {"gate": gated.gate is not None, "told": str(gated)}
    return facts


def _in_words(small: Any, scored: Any, where: Destination, seen: bool) -> str:
    """Six lines: members, file, speed, expected quality, test scores, files written."""
    chosen = small.selection_
    # Texts that columns are codes of, and steps of a Pipeline, are in the file too.
    whole, after = where.model.stat().st_size, chosen.after
    after = after if chosen.is_part else replace(after, nbytes=whole)
    told = replace(chosen, after=after).in_words()
    told["file"] += f"; {in_bytes(whole)} with the rest" * chosen.is_part
    nodes = f" ({chosen.before.nodes:,} → {after.nodes:,} nodes)" if after.nodes else ""
    lines = {chosen.noun: told[chosen.noun] + nodes, "file": told["file"]}
    if scored is not None:
        full, kept = scored.rows.values()
        lines["speed"] = (
            f"{full[SPEED]:,.3g} → {kept[SPEED]:.3g} µs per row in batches "
            f"(full ensemble compiled: {full[COMPILED]:.3g} µs)"
        )
    elif after.comparisons:
        lines["work"] = told["work"]
    label = "train" if seen else "test"
    if chosen.curve is None and scored is not None:
        told["quality"] = f"not estimated: see the {label} rows"
    lines["quality"] = one_line(told["quality"])
    if small.local_ is not None:
        lines["local"] = f"{'gate' if small.local_.used else 'no gate'}: {small.local_.reason}"
    if scored is not None:
        main = [change for change in scored.changes if change.is_main]
        clear = [change for change in main if change.verdict != UNCLEAR]
        words = [f"{c.name} {c.in_words}" + f" ({c.verdict})" * (c in clear) for c in main]
        lines[label] = ", ".join(words) + ("" if clear else f" ({UNCLEAR})")
    lines["written"] = ", ".join(str(path) for path in (where.model, where.report) if path)
    return in_lines(lines)
