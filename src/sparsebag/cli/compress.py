"""``sparsebag compress``: a fitted ensemble and its training rows in, a small model out."""

from __future__ import annotations

import re
import textwrap
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from typer import Argument, BadParameter, Option

from sparsebag.cli.command import CommandError, Data, ExitCode, Jobs, Screen, TrustPickle
from sparsebag.cli.data import Written, as_numbers, check_columns, check_readable, read_rows, typed
from sparsebag.cli.models import check_can_be_compressed, check_can_be_written, read_ensemble_file
from sparsebag.deploy.artifact import save
from sparsebag.deploy.rows import Categories
from sparsebag.report.compression_report import COMPILED, SPEED

BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9}
Rows = tuple[Any, Any]
Target = Annotated[str, Option("--target", "-t", help="Column to predict.")]


def limit(text: str, units: Mapping[str, int] | None = None) -> float:
    """The most to keep: a whole number, or a share as ``5%`` or ``0.05``.

    Examples
    --------
    >>> limit("20000"), limit("5%"), limit("0.05"), limit("100kB", BYTES)
    (20000, 0.05, 0.05, 100000)
    """
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*(%|[kmg]?b)?", text.strip().lower())
    unit = (found[2] or "") if found else "none"
    factors = {"": 1, "%": 1, **(units or {})}
    if found is None or unit not in factors:
        wanted = "bytes (100kB)" if units else "a whole number (20000)"
        raise BadParameter(f"'{text}' is not {wanted} or a share (5%).")
    number = float(found[1])
    if unit != "%" and (unit or number >= 1.0):
        return round(number * factors[unit])
    share = number / 100 if unit else number
    if not 0.0 < share <= 1.0:
        raise BadParameter(f"'{text}' is not a share between 0 and 100%.")
    return share


def byte_limit(text: str) -> float:
    """As `limit`, with units of bytes."""
    return limit(text, BYTES)


Size = partial(Option, rich_help_panel="Size")
Count = partial(Size, parser=limit, metavar="COUNT|SHARE")
FileSize = partial(Size, parser=byte_limit, metavar="BYTES|SHARE")
TOLERANCE = (
    "Accepted relative increase of the expected Brier score or squared error; the smallest model "
    "within it is kept. Default: 0.01, or none with a budget."
)
CONFIDENCE = "Stay within the tolerance with this confidence, such as 0.95."
LOCAL = (
    "Weights that depend on the row: where they gain (auto), or always. Default: the same for "
    "every row."
)


@dataclass(frozen=True)
class Method:
    """Options of `sparsebag.compress`, by its names."""

    max_estimators: Annotated[float | None, Count(help="Most members: 30 or 10%.")] = None
    max_nodes: Annotated[float | None, Count(help="Most nodes: 20000 or 5%.")] = None
    max_bytes: Annotated[float | None, FileSize(help="Largest file: 100kB or 5%.")] = None
    tolerance: Annotated[float | None, Size(help=TOLERANCE, min=0.0)] = None
    confidence: Annotated[float | None, Size(help=CONFIDENCE, min=0.5, max=0.9999)] = None
    refine: Annotated[
        bool, Option(help="Prune trees and refit leaves; without, only select trees.")
    ] = True
    rehearsal: Annotated[
        bool, Option(help="Estimate the loss of every size; without, quality is unknown.")
    ] = True
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

    output: Annotated[Path, Option("--output", "-o", help="Where to write the small model.")] = (
        Path("small.sbag")
    )
    report: Annotated[Path | None, Option(help="The report: .html, or .md.")] = None
    test: Annotated[Path | None, Option(help="Rows not used for training, to compare on.")] = None

    def check(self, *inputs: Path) -> None:
        """Refuse what cannot be written, or would overwrite an input, before the work."""
        check_can_be_written(self.output, unlike=(*inputs, self.test))
        if self.report is not None:
            check_can_be_written(self.report, unlike=(*inputs, self.test, self.output))
            if self.report.suffix.lower() not in (".html", ".md"):
                wrong = f"a report cannot be written to '{self.report}'; use .html or .md."
                raise CommandError(wrong, ExitCode.USAGE)


EVIDENCE = (
    "oob: DATA holds the rows it was trained on. holdout: DATA holds rows it has never seen, for "
    "ensembles without bootstrap."
)


def compress(
    model: Annotated[
        Path, Argument(help="The fitted ensemble: skops, or a pickle.", metavar="MODEL")
    ],
    data: Data,
    target: Target,
    where: Destination,
    method: Method,
    written: Written,
    screen: Screen,
    evidence: Annotated[Literal["oob", "holdout"], Option(help=EVIDENCE)] = "oob",
    trust_pickle: TrustPickle = False,
    trust_type: Annotated[
        list[str] | None, Option(help="A type in a skops file to trust; repeatable.")
    ] = None,
) -> None:
    """Make a fitted ensemble smaller, from the rows it was trained on.

    DATA holds the rows the ensemble was trained on, in order.
    Prints size, speed and expected quality before and after. The model goes to one .sbag file
    without pickle, which `sparsebag predict` and `sparsebag export` read.

    Example: sparsebag compress forest.skops train.csv --target y --test test.csv
    -o small.sbag --report report.html
    """
    from sparsebag.validation import unfrozen

    where.check(model, data)
    check_readable(model)
    # Tables first: they are read in no time, and their faults are the common ones.
    screen.step(f"reading {data}")
    tables = [(path, *read_rows(path, target, written)) for path in (data, where.test) if path]
    screen.step(f"reading {model}")
    with screen.noting():
        ensemble = unfrozen(
            read_ensemble_file(model, trust_pickle=trust_pickle, trusted=trust_type or ())
        )
    check_can_be_compressed(ensemble, trust_pickle=trust_pickle)
    rows, *test = (_as_trained(ensemble, *table) for table in tables)
    how = method.compressor(evidence)
    facts, text = compress_and_write(
        ensemble, rows, test[0] if test else None, where, screen, how, allow_pickle=trust_pickle
    )
    screen.result(facts, text)


def _as_trained(ensemble: Any, path: Path, X: pd.DataFrame, y: pd.Series) -> Rows:
    """Rows in the form the ensemble was trained on: named columns in its order, or an array."""
    from sparsebag.evidence.wrappers import wrapper_of

    names = getattr(ensemble, "feature_names_in_", None)
    if names is not None:
        check_columns(names, X.columns, path)
        X = X[list(names)]
        reads_text = wrapper_of(ensemble) is not None
        return X if reads_text else as_numbers(path, X), typed(y).to_numpy()
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
    how: Callable[..., Any],
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
    how : callable
        `sparsebag.compress`, its options set.
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
    screen.step(f"writing {where.output}")
    deployed = replace(small.compile(), categories=categories or None)
    save(deployed if made is small else made, where.output, allow_pickle=allow_pickle)
    if report is not None and where.report is not None:
        try:
            report.save(where.report)
        except (OSError, ImportError) as error:
            raise type(error)(f"{error} The model is in '{where.output}'.") from None
    facts = _facts(small, where) | {"seconds": round(seconds, 3), "warnings": notes}
    scored = report if report is not None and report.n_rows else None
    if scored is not None:
        changes = {change.name: change.as_dict() for change in scored.changes}
        facts["test"] = {"rows": scored.n_rows, "models": scored.rows, "changes": changes}
        facts["warnings"] += scored.cautions
    if small.local_ is not None:
        facts["local"] = {"gate": small.local_.gate is not None, "told": str(small.local_)}
    return facts, _in_words(small, scored, where)


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


def _in_words(small: Any, scored: Any, where: Destination) -> str:
    """Six lines: members, file, speed, expected quality, test scores, files written."""
    chosen = small.selection_
    # Texts that columns are codes of are in the file, and sparsebag.compress knows none of them.
    after = replace(chosen.after, nbytes=where.output.stat().st_size)
    told = replace(chosen, after=after).in_words()
    nodes = f" ({chosen.before.nodes:,} → {after.nodes:,} nodes)" if after.nodes else ""
    lines = {chosen.noun: told[chosen.noun] + nodes, "file": told["file"]}
    if scored is not None:
        full, kept, *_ = scored.rows.values()
        lines["speed"] = (
            f"{full[SPEED]:,.3g} → {kept[SPEED]:.3g} µs per row "
            f"(full ensemble compiled: {full[COMPILED]:.3g} µs)"
        )
    elif "work" in told:
        lines["speed"] = told["work"]
    lines["quality"] = told["quality"]
    if small.local_ is not None:
        lines["local"] = str(small.local_).splitlines()[0]
    if scored is not None:
        label = "train" if scored.rows_are.startswith("training") else "test"
        main = (change for change in scored.changes if change.is_main)
        lines[label] = "; ".join(f"{change.in_words}, {change.verdict}" for change in main)
    lines["written"] = ", ".join(str(path) for path in (where.output, where.report) if path)
    # Under the words, beside their label.
    shown = (f"{label:<9}{text}" for label, text in lines.items())
    return "\n".join(textwrap.fill(line, 80, subsequent_indent=" " * 9) for line in shown)
