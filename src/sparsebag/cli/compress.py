"""``sparsebag compress``: a fitted ensemble and its training rows in, a small model out."""

from __future__ import annotations

import re
import textwrap
import time
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

from sparsebag.cli.command import CommandError, Data, ExitCode, Jobs, Screen, TrustPickle
from sparsebag.cli.data import Written, as_numbers, check_columns, check_readable, read_rows, typed
from sparsebag.cli.models import check_can_be_stored, check_can_be_written, read_ensemble_file
from sparsebag.deploy.artifact import save
from sparsebag.deploy.rows import Categories

BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9}
Rows = tuple[Any, Any]
Target = Annotated[str, typer.Option("--target", "-t", help="Column to predict.")]


class LocalWeights(StrEnum):
    """Weights that depend on the row."""

    AUTO = "auto"
    ALWAYS = "always"


class Evidence(StrEnum):
    """Which rows judge the members."""

    OOB = "oob"
    HOLDOUT = "holdout"


def limit(text: str, units: dict[str, int] | None = None) -> float:
    """The most to keep: a whole number, or a share as ``5%`` or ``0.05``.

    Examples
    --------
    >>> limit("20000"), limit("5%"), limit("0.05"), limit("100kB", BYTES)
    (20000, 0.05, 0.05, 100000)
    """
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*(%|[kmg]?b)?", text.strip(), re.IGNORECASE)
    unit = (found[2] or "").lower() if found else ""
    factor = {"": 1.0, "%": 1.0, **(units or {})}.get(unit)
    if found is None or factor is None:
        wanted = "bytes (100kB)" if units else "a whole number (20000)"
        raise typer.BadParameter(f"'{text}' is not {wanted} or a share (5%).")
    number = float(found[1])
    if unit == "%" or (unit == "" and number < 1.0):
        share = number / 100 if unit == "%" else number
        if not 0.0 < share <= 1.0:
            raise typer.BadParameter(f"'{text}' is not a share between 0 and 100%.")
        return share
    return round(number * factor)


def byte_limit(text: str) -> float:
    """As `limit`, with units of bytes."""
    return limit(text, BYTES)


COUNT: dict[str, Any] = {"parser": limit, "metavar": "COUNT|SHARE"}
FILE_SIZE: dict[str, Any] = {"parser": byte_limit, "metavar": "BYTES|SHARE"}


def _size(help: str, **more: Any) -> Any:
    return typer.Option(help=help, rich_help_panel="Size", **more)


@dataclass(frozen=True)
class Method:
    """Options of `sparsebag.compress`."""

    max_estimators: Annotated[float | None, _size("Most members: 30 or 10%.", **COUNT)] = None
    max_nodes: Annotated[float | None, _size("Most nodes: 20000 or 5%.", **COUNT)] = None
    max_bytes: Annotated[float | None, _size("Largest file: 100kB or 5%.", **FILE_SIZE)] = None
    tolerance: Annotated[
        float | None,
        _size(
            "Accepted relative increase of the expected Brier score or squared error; the smallest "
            "model within it is kept. Default: 0.01, or none with a budget.",
            min=0.0,
        ),
    ] = None
    confidence: Annotated[
        float | None,
        _size("Stay within the tolerance with this confidence, such as 0.95.", min=0.5, max=0.9999),
    ] = None
    refine: Annotated[
        bool, typer.Option(help="Prune trees and refit leaves; without, only select trees.")
    ] = True
    rehearsal: Annotated[
        bool, typer.Option(help="Estimate the loss of every size; without, quality is unknown.")
    ] = True
    local: Annotated[
        LocalWeights | None,
        typer.Option(
            help="Weights that depend on the row: where they gain (auto), or always. Default: the "
            "same for every row."
        ),
    ] = None
    jobs: Jobs = -1

    def options(self) -> dict[str, Any]:
        """As `sparsebag.compress` takes them."""
        how = {name: value for name, value in vars(self).items() if value is not None}
        how |= {"n_jobs": how.pop("jobs"), "refine": "auto" if self.refine else None}
        how["rehearsal"] = "auto" if self.rehearsal else False
        if self.local is not None:
            how["local"] = True if self.local is LocalWeights.ALWAYS else "auto"
        return how


@dataclass(frozen=True)
class Destination:
    """Where a model and its report go, and the rows the report is about."""

    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where to write the small model.")
    ] = Path("small.sbag")
    report: Annotated[Path | None, typer.Option(help="The report: .html, or .md.")] = None
    test: Annotated[
        Path | None, typer.Option(help="Rows not used for training, to compare on.")
    ] = None

    def check(self, *inputs: Path) -> None:
        """Refuse what cannot be written, or would overwrite an input, before the work."""
        check_can_be_written(self.output, unlike=(*inputs, self.test))
        check_can_be_written(self.report, unlike=(*inputs, self.test, self.output))
        if self.report is not None and self.report.suffix.lower() not in (".html", ".md"):
            raise CommandError(
                f"a report cannot be written to '{self.report}'; use .html or .md.", ExitCode.USAGE
            )


@dataclass(frozen=True)
class Trust:
    """What a file may hold."""

    trust_pickle: TrustPickle = False
    trust_type: Annotated[
        list[str] | None, typer.Option(help="A type in a skops file to trust; repeatable.")
    ] = None


def compress(
    model: Annotated[
        Path, typer.Argument(help="The fitted ensemble: skops, or a pickle.", metavar="MODEL")
    ],
    data: Data,
    target: Target,
    where: Destination,
    method: Method,
    trust: Trust,
    written: Written,
    screen: Screen,
    evidence: Annotated[
        Evidence,
        typer.Option(
            help="oob: DATA holds the rows it was trained on. holdout: DATA holds rows it has "
            "never seen, for ensembles without bootstrap."
        ),
    ] = Evidence.OOB,
) -> None:
    """Make a fitted ensemble smaller, from the rows it was trained on.

    DATA holds the rows the ensemble was trained on, in order.
    Prints size, speed and expected quality before and after. The model goes to one .sbag file
    without pickle, which `sparsebag predict` and `sparsebag export` read.

    Example: sparsebag compress forest.skops train.csv --target y --test test.csv
    -o small.sbag --report report.html
    """
    from sparsebag.evidence.wrappers import wrapper_of
    from sparsebag.validation import check_ensemble, unfrozen

    where.check(model, data)
    check_readable(model)
    # Tables first: they are read in no time, and their faults are the common ones.
    screen.step(f"reading {data}")
    rows = read_rows(data, target, written)
    unseen = None if where.test is None else read_rows(where.test, target, written)
    screen.step(f"reading {model}")
    with screen.noting():
        ensemble = unfrozen(
            read_ensemble_file(
                model, trust_pickle=trust.trust_pickle, trusted=trust.trust_type or ()
            )
        )
    if wrapper_of(ensemble) is None:
        check_ensemble(ensemble)
    if not trust.trust_pickle:
        check_can_be_stored(ensemble)
    facts, text = compress_and_write(
        ensemble,
        _as_trained(ensemble, data, *rows),
        None
        if unseen is None or where.test is None
        else _as_trained(ensemble, where.test, *unseen),
        where,
        screen,
        {**method.options(), "evidence": str(evidence)},
        allow_pickle=trust.trust_pickle,
    )
    screen.result(facts, text)


def _as_trained(ensemble: Any, path: Path, X: pd.DataFrame, y: pd.Series) -> Rows:
    """Rows in the form the ensemble was trained on: named columns in its order, or an array."""
    from sparsebag.evidence.wrappers import wrapper_of

    names = getattr(ensemble, "feature_names_in_", None)
    if names is not None:
        wanted = [str(name) for name in names]
        check_columns(wanted, list(X.columns), path)
        if wrapper_of(ensemble) is not None:  # it may read text
            return X[wanted], typed(y).to_numpy()
        return as_numbers(path, X[wanted]), typed(y).to_numpy()
    n_features = getattr(ensemble, "n_features_in_", X.shape[1])
    if n_features != X.shape[1]:
        raise CommandError(
            f"the model was trained on {n_features} columns without names, but '{path}' has "
            f"{X.shape[1]} beside the target; pass the table it was trained on."
        )
    return as_numbers(path, X).to_numpy(), typed(y).to_numpy()


def compress_and_write(
    ensemble: Any,
    rows: Rows,
    test: Rows | None,
    where: Destination,
    screen: Screen,
    how: dict[str, Any],
    *,
    allow_pickle: bool = False,
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
    how : dict
        Options of `sparsebag.compress`.
    allow_pickle : bool
    categories : mapping of str to tuple of str, optional
        Texts the columns of X are codes of; the file carries them.

    Returns
    -------
    facts : dict
        For ``--json``.
    text : str
        The same for people.
    """
    from sparsebag.compress import compress as compress_ensemble
    from sparsebag.evidence.wrappers import innermost
    from sparsebag.report.wrapped import report_on

    started, report = time.perf_counter(), None
    with screen.noting() as notes:
        made = compress_ensemble(ensemble, *rows, verbose=screen.listen, **how)
        small = innermost(made)[0][0].model
        seconds = time.perf_counter() - started
        if test is not None or where.report is not None:
            screen.step("comparing with the whole ensemble")
            report = report_on(made, *(test or ()))
    screen.step(f"writing {where.output}")
    deployed = replace(small.compile(), categories=categories or None)
    save(deployed if made is small else made, where.output, allow_pickle=allow_pickle)
    if report is not None and where.report is not None:
        try:
            report.save(where.report)
        except (OSError, ImportError) as error:
            raise type(error)(f"{error} The model is in '{where.output}'.") from None
    facts = _facts(small, where) | {"seconds": round(seconds, 3), "warnings": notes}
    if report is not None and report.n_rows:
        changes = {change.name: change.as_dict() for change in report.changes}
        facts["test"] = {"rows": report.n_rows, "models": report.rows, "changes": changes}
        facts["warnings"] += report.cautions
    if small.local_ is not None:
        facts["local"] = {"gate": small.local_.gate is not None, "told": str(small.local_)}
    return facts, _in_words(small, report, where, facts)


def _facts(small: Any, where: Destination) -> dict[str, Any]:
    chosen = small.selection_
    ratio, *interval = (
        float(value) if np.isfinite(value) else None for value in (chosen.ratio, *chosen.interval)
    )
    return {
        "model": str(where.output),
        "report": None if where.report is None else str(where.report),
        "task": "classification" if hasattr(small, "classes_") else "regression",
        "members": chosen.after.members,
        "of_members": chosen.before.members,
        "nodes": chosen.after.nodes,
        "of_nodes": chosen.before.nodes,
        "file_bytes": where.output.stat().st_size,
        "expected_risk": None if ratio is None else float(chosen.expected_risk),
        "ratio": ratio,
        "interval": interval,
        "tolerance": chosen.tolerance,
        "kept_whole": chosen.kept_whole,
        "rows_verified_by": small.verified_by_,
        "weights": small.weights_,
    }


def _in_words(small: Any, report: Any, where: Destination, facts: dict[str, Any]) -> str:
    """Six lines: members, file, speed, expected quality, test scores, files written."""
    # Texts that columns are codes of are in the file, and sparsebag.compress knows none of them.
    after = replace(small.selection_.after, nbytes=facts["file_bytes"])
    named = {
        line[:9].strip(): line[9:]
        for line in str(replace(small.selection_, after=after)).splitlines()
    }
    nodes = f" ({named['nodes'].rpartition(' (')[0]} nodes)" if "nodes" in named else ""
    noun = small.selection_.noun
    lines = [(noun, named[noun] + nodes), ("file", named["file"])]
    if report is not None and report.n_rows:
        full, kept = list(report.rows.values())[:2]
        before, now, compiled = full["ms / 1000 rows"], kept["ms / 1000 rows"], full["ms, compiled"]
        whole = f"full ensemble compiled: {compiled:.3g} µs"
        lines.append(("speed", f"{before:,.3g} → {now:.3g} µs per row ({whole})"))
    elif "work" in named:
        lines.append(("speed", named["work"]))
    lines.append(("quality", named["quality"]))
    if "local" in facts:
        lines.append(("local", facts["local"]["told"].splitlines()[0]))
    if report is not None and report.n_rows:
        scores = [f"{c.in_words}, {c.verdict}" for c in report.changes if c.is_main]
        label = "train" if report.rows_are.startswith("training") else "test"
        lines.append((label, "; ".join(scores)))
    lines.append(("written", ", ".join(str(p) for p in (where.output, where.report) if p)))
    # Under the words, beside their label.
    shown = (f"{label:<9}{text}" for label, text in lines)
    return "\n".join(textwrap.fill(line, 80, subsequent_indent=" " * 9) for line in shown)
