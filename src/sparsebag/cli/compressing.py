"""What `compress`, `fit` and `demo` share: compress, save, report, and say what came of it."""

from __future__ import annotations

import textwrap
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sparsebag.cli.failures import CommandError, ExitCode
from sparsebag.cli.options import LocalWeights
from sparsebag.cli.outputs import check_can_be_written
from sparsebag.cli.terminal import Steps, finite, print_json, print_text
from sparsebag.deploy.artifact import save
from sparsebag.deploy.text_columns import Categories

REPORTS = (".html", ".md")


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


def library_options(
    *,
    no_refine: bool = False,
    no_rehearsal: bool = False,
    local: LocalWeights | None = None,
    **size: float | None,
) -> dict[str, Any]:
    """The command's options as `sparsebag.compress` takes them.

    Parameters
    ----------
    no_refine, no_rehearsal : bool
    local : LocalWeights or None
    **size : float or None
        Budgets, tolerance and confidence; None: not given.

    Returns
    -------
    dict

    Examples
    --------
    >>> library_options(max_nodes=0.05, tolerance=None, no_refine=True)
    {'max_nodes': 0.05, 'refine': None}
    """
    how: dict[str, Any] = {name: value for name, value in size.items() if value is not None}
    if no_refine:
        how["refine"] = None
    if no_rehearsal:
        how["rehearsal"] = False
    if local is not None:
        how["local"] = True if local is LocalWeights.ALWAYS else "auto"
    return how


def compress_and_write(
    steps: Steps,
    ensemble: Any,
    X: Any,
    y: Any,
    destination: Destination,
    *,
    how: dict[str, Any],
    test: tuple[Any, Any] | None = None,
    trust_pickle: bool = False,
    categories: Categories | None = None,
) -> dict[str, Any]:
    """Compress a fitted ensemble, save it and its report, and tell what came of it.

    Parameters
    ----------
    steps : Steps
    ensemble : fitted ensemble
    X, y : array-like
        Its training rows.
    destination : Destination
    how : dict
        Options of `sparsebag.compress`.
    test : tuple of X, y, optional
        Rows nobody has trained on.
    trust_pickle : bool
    categories : mapping of str to tuple of str, optional
        Texts the columns of X are codes of; the file carries them.

    Returns
    -------
    dict
        For ``--json``; ``"text"`` holds it in words.
    """
    from sparsebag.compress import compress  # scikit-learn takes a second; not all commands need it

    started, report = time.perf_counter(), None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        steps.begin("compressing")
        small = compress(ensemble, X, y, verbose=0 if steps.quiet else 1, **how)
        seconds = time.perf_counter() - started
        if test is not None or destination.report is not None:
            steps.begin("comparing with the whole ensemble")
            report = small.report(*(test or ()))
    notes = steps.notes(caught)
    steps.begin(f"writing {destination.model}")
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
        result["warnings"] += report.cautions
    if small.local_ is not None:
        result["local"] = {"gate": small.local_.gate is not None, "told": str(small.local_)}
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
        "members": chosen.after.members,
        "of_members": chosen.before.members,
        "nodes": chosen.after.nodes,
        "of_nodes": chosen.before.nodes,
        "file_bytes": destination.model.stat().st_size,
        "expected_risk": finite(chosen.expected_risk),
        "ratio": finite(chosen.ratio),
        "interval": [finite(end) for end in chosen.interval],
        "tolerance": chosen.tolerance,
        "kept_whole": chosen.kept_whole,
        "rows_verified_by": small.verified_by_,
        "seconds": round(seconds, 3),
        "weights": np.asarray(small.weights_),
        "warnings": notes,
    }


def _in_words(small: Any, report: Any, destination: Destination, result: dict[str, Any]) -> str:
    """The selection's lines, and six more at most."""
    # Texts that columns are codes of are in the file, and sparsebag.compress knows none of them.
    after = replace(small.selection_.after, nbytes=result["file_bytes"])
    lines = str(replace(small.selection_, after=after)).splitlines()
    if "local" in result:
        lines.append(f"{'local':<9}{result['local']['told'].splitlines()[0]}")
    if report is not None and report.n_rows:
        shown = [c for c in report.changes if c.name in ("log-loss", "accuracy", "MSE", "R²")]
        label = "train" if report.rows_are == "training rows" else "test"
        for c in shown:
            lines.append(f"{label:<9}{c.name} {c.before:.4g} → {c.after:.4g}: {c.verdict}")
            label = ""
        full, kept = list(report.rows.values())[:2]
        as_is, compiled = full["ms / 1000 rows"], full["ms, compiled"]
        lines.append(
            f"{'speed':<9}{as_is:.3g} → {kept['ms / 1000 rows']:.3g} ms for 1000 rows "
            f"(compiled ensemble: {compiled:.3g} ms)"
        )
    lines.append(f"{'written':<9}{destination.model}")
    if destination.report is not None:
        lines.append(f"{'':<9}{destination.report}")
    hang = " " * 9  # under the words, beside their label
    return "\n".join(textwrap.fill(line, 80, subsequent_indent=hang) for line in lines)
