"""What `compress`, `fit` and `demo` share: compress, save, report, and say what came of it."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sparsebag.cli.failures import CommandError, ExitCode
from sparsebag.cli.outputs import check_can_be_written
from sparsebag.cli.terminal import Steps, finite, print_json, print_text
from sparsebag.deploy.artifact import save
from sparsebag.deploy.text_columns import Categories

REPORTS = (".html", ".md")


@dataclass(frozen=True)
class Size:
    """How much may be kept.

    Attributes
    ----------
    max_estimators, max_nodes, max_bytes : int or None
    tolerance : float or None
    """

    max_estimators: int | None = None
    max_nodes: int | None = None
    max_bytes: int | None = None
    tolerance: float | None = None

    def settings(self) -> dict[str, Any]:
        """As `sparsebag.compress` takes it: a budget alone is spent on the best it buys.

        Returns
        -------
        dict

        Examples
        --------
        >>> Size().settings()["tolerance"], Size(max_estimators=9).settings()["tolerance"]
        (0.01, None)
        """
        budgets = {
            "max_estimators": self.max_estimators,
            "max_nodes": self.max_nodes,
            "max_bytes": self.max_bytes,
        }
        limited = any(value is not None for value in budgets.values())
        default = None if limited else 0.01
        return {**budgets, "tolerance": default if self.tolerance is None else self.tolerance}


@dataclass(frozen=True)
class Destination:
    """Where a model and its report go.

    Attributes
    ----------
    model : Path
    report : Path or None
    """

    model: Path
    report: Path | None

    def check(self, *inputs: Path | None) -> None:
        """Refuse what cannot be written, before the work.

        Parameters
        ----------
        *inputs : Path
            Files that must not be overwritten.
        """
        check_can_be_written(self.model, unlike=inputs)
        check_can_be_written(self.report, unlike=(*inputs, self.model))
        if self.report is not None and self.report.suffix.lower() not in REPORTS:
            raise CommandError(
                f"a report cannot be written to '{self.report}'; use .html or .md.",
                ExitCode.USAGE,
            )


def compress_and_write(
    steps: Steps,
    ensemble: Any,
    X: Any,
    y: Any,
    *,
    size: Size,
    destination: Destination,
    test: tuple[Any, Any] | None = None,
    jobs: int = -1,
    trust_pickle: bool = False,
    evidence: str = "oob",
    local: str | None = None,
    categories: Categories | None = None,
) -> dict[str, Any]:
    """Compress a fitted ensemble, save it and its report, and tell what came of it.

    Parameters
    ----------
    steps : Steps
    ensemble : fitted ensemble
    X, y : array-like
        Its training rows.
    size : Size
    destination : Destination
    test : tuple of X, y, optional
        Rows nobody has trained on.
    jobs : int
    trust_pickle : bool
    evidence : {"oob", "holdout"}
    local : {"auto", "linear", "regions"}, optional
        Weights that depend on the row.
    categories : mapping of str to tuple of str, optional
        Texts the columns of X are codes of; the file carries them.

    Returns
    -------
    dict
        For ``--json``; ``"text"`` holds it in words.
    """
    from sparsebag.compress import compress  # scikit-learn takes a second; not all commands need it

    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with steps.step("compressing") as step, step.following_the_library():
            how = {**size.settings(), "evidence": str(evidence)}
            how["local"] = None if local is None else str(local)
            small = compress(ensemble, X, y, n_jobs=jobs, verbose=1, **how)
        seconds = time.perf_counter() - started
        report = None
        if test is not None or destination.report is not None:
            on = "on the test rows" if test is not None else "of what was chosen"
            with steps.step(f"making the report {on}"):
                report = small.report(*(test or ()))
    notes = steps.notes(caught)
    with steps.step(f"writing {destination.model}"):
        deployed = replace(small.compile(), categories=categories or None)
        save(deployed, destination.model, allow_pickle=trust_pickle)
    if report is not None and destination.report is not None:
        try:
            report.save(destination.report)
        except OSError as error:
            raise CommandError(
                f"{error} The model is in '{destination.model}'.", ExitCode.CANNOT_WRITE
            ) from None
    result = _facts(small, destination, seconds, notes)
    if report is not None and report.n_rows:
        result["test"] = {"rows": report.n_rows, "models": report.rows}
        result["test"]["changes"] = {c.name: c.as_dict() for c in report.changes}
        result["warnings"] += report.details.cautions
    if local is not None:
        gate = small.local_.gate
        told = str(small.local_)
        result["local"] = {"gate": None if gate is None else gate.kind, "told": told}
    result["text"] = _in_words(small, report, destination, result)
    return result


def print_result(result: dict[str, Any], *, as_json: bool) -> None:
    """The outcome, for a person or a machine.

    Parameters
    ----------
    result : dict
    as_json : bool
    """
    text = result.pop("text")
    if as_json:
        print_json(result)
    else:
        print_text(text)


def _facts(
    small: Any, destination: Destination, seconds: float, notes: list[str]
) -> dict[str, Any]:
    chosen = small.selection_
    return {
        "model": str(destination.model),
        "report": None if destination.report is None else str(destination.report),
        "task": "regression" if not hasattr(small, "classes_") else "classification",
        "members": int(small.n_active_),
        "of_members": len(small.weights_),
        "file_bytes": destination.model.stat().st_size,
        "expected_risk": finite(chosen.expected_risk),
        "interval": [finite(v) for v in chosen.interval],
        "full_risk": finite(chosen.full_risk),
        "increase": finite(chosen.increase),
        "bound": finite(chosen.bound),
        "tolerance": finite(chosen.tolerance) if chosen.tolerance >= 0 else None,
        "meets_tolerance": bool(chosen.meets_tolerance) if chosen.tolerance >= 0 else None,
        "rows_verified_by": small.verified_by_,
        "seconds": round(seconds, 3),
        "weights": np.asarray(small.weights_),
        "warnings": notes,
    }


def _in_words(small: Any, report: Any, destination: Destination, result: dict[str, Any]) -> str:
    parts = [str(small.selection_)]
    if "local" in result and result["local"]["told"] not in parts[0]:
        parts.append(result["local"]["told"])
    if report is not None and report.n_rows:
        parts.append(str(report))
    written = f"Model written to {destination.model} ({_size(result['file_bytes'])})."
    if destination.report is not None:
        written += f"\nReport written to {destination.report}: open it in a browser."
    return "\n\n".join([*parts, written])


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:.1f} MB" if n_bytes >= 1e6 else f"{n_bytes / 1e3:.1f} kB"
