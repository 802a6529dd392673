"""Before and after, in one table: the full ensemble, its survivors, and as many random members."""

from __future__ import annotations

import html
import os
import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from sparsebag.deploy.compiled import CompiledEnsemble
from sparsebag.deploy.from_members import COLLAPSED, collapses_into_one
from sparsebag.deploy.weighted_vote import WeightedVote
from sparsebag.evidence.collect import encode_target
from sparsebag.evidence.members import take_rows
from sparsebag.report import metrics

TIMED_ROWS = 1000
TIMED_REPEATS = 5
RANDOM_DRAWS = 5
"""Draws averaged for the random-members row: one draw is luck."""

_FORMATS: dict[str, Callable[[float], str]] = {
    "members": lambda v: f"{v:.0f}",
    "nodes": lambda v: f"{v:,.0f}",
    "size (kB)": lambda v: f"{v:,.0f}",
    "ms / 1000 rows": lambda v: f"{v:.2f}",
}


@dataclass(frozen=True, repr=False)
class CompressionReport:
    """Scores of the full ensemble, the survivors, and equally many random members.

    Attributes
    ----------
    rows : dict of str to dict
        One entry a model: column name to figure.
    n_rows : int
        Test rows the figures are from.
    notes : tuple of str
        Sentences that belong under the table.

    Examples
    --------
    >>> rows = {"full ensemble (100)": {"members": 100.0, "log-loss": 0.3111},
    ...         "sparsebag (9)": {"members": 9.0, "log-loss": 0.2875}}
    >>> print(CompressionReport(rows, n_rows=500))
    9 of 100 members kept (500 test rows)
    |                     | members | log-loss |
    |---------------------|---------|----------|
    | full ensemble (100) |     100 |   0.3111 |
    | sparsebag (9)       |       9 |   0.2875 |
    """

    rows: dict[str, dict[str, float]]
    n_rows: int
    notes: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """Names of the figures, in order."""
        return list(next(iter(self.rows.values())))

    def to_markdown(self) -> str:
        """The table in Markdown.

        Returns
        -------
        str
        """
        head = ["", *self.columns]
        body = [[name, *self._cells(row)] for name, row in self.rows.items()]
        widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]
        lines = [_padded(head, widths), "|" + "|".join("-" * (w + 2) for w in widths) + "|"]
        notes = ["", *self.notes] if self.notes else []
        return "\n".join([*lines, *(_padded(line, widths) for line in body), *notes])

    def to_frame(self) -> Any:
        """The table as a pandas DataFrame (needs pandas).

        Returns
        -------
        pandas.DataFrame
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("to_frame needs pandas; install it, or use to_markdown.") from error
        return pd.DataFrame.from_dict(self.rows, orient="index")

    def to_html(self) -> str:
        """The table as one self-contained HTML page.

        Returns
        -------
        str
        """
        return (
            "<!doctype html><html lang='en'><meta charset='utf-8'><title>sparsebag report</title>"
            "<style>:root{color-scheme:light dark}body{font:16px system-ui;margin:2em auto;"
            "max-width:70em}td,th{padding:.3em .8em;text-align:right}tr>:first-child"
            "{text-align:left}table{border-collapse:collapse}tbody tr{border-top:1px solid}"
            f"</style>{self._repr_html_()}</html>"
        )

    def headline(self) -> str:
        """What was kept, in one sentence.

        Returns
        -------
        str
        """
        full, small = list(self.rows.values())[:2]
        kept = f"{small['members']:.0f} of {full['members']:.0f} members kept"
        return f"{kept}, collapsed into one linear model" if COLLAPSED in self.notes else kept

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report: ``.html`` as a page, ``.md`` as Markdown.

        Parameters
        ----------
        path : path-like
        """
        target = Path(path)
        writers = {".html": self.to_html, ".md": self.to_markdown}
        write = writers.get(target.suffix.lower())
        if write is None:
            raise ValueError(f"cannot write a report to {target.name!r}; use .html or .md.")
        # A crash leaves the old report, never half a new one.
        partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
        try:
            partial.write_text(write() + "\n", encoding="utf-8")
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return f"{self.headline()} ({self.n_rows} test rows)\n{self.to_markdown()}"

    def _repr_html_(self) -> str:
        """For notebooks: without the page's style, which would restyle the whole notebook."""
        head = "".join(f"<th scope='col'>{html.escape(c)}</th>" for c in self.columns)
        body = "".join(
            f"<tr><th scope='row'>{html.escape(name)}</th>"
            + "".join(f"<td>{html.escape(c)}</td>" for c in self._cells(row))
            + "</tr>"
            for name, row in self.rows.items()
        )
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        return (
            f"<h1>{html.escape(self.headline())}</h1><table><thead><tr><td></td>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table><p>{self.n_rows} test rows. “random” is the mean of "
            f"{RANDOM_DRAWS} draws of as many members, equally weighted.</p>{notes}"
        )

    def _cells(self, row: dict[str, float]) -> list[str]:
        return [_FORMATS.get(name, _four_digits)(value) for name, value in row.items()]


def compare(
    full: WeightedVote,
    small: WeightedVote,
    X: Any,
    y: Any,
    deployed: CompiledEnsemble | None = None,
) -> CompressionReport:
    """Score the full ensemble, the survivors and random members of the same number.

    Where the survivors' leaves were refitted or their vote calibrated, also as they were before.

    Parameters
    ----------
    full, small : WeightedVote
        Before and after.
    X, y : array-like
        Test rows.
    deployed : CompiledEnsemble, optional
        What serves the survivors; timed in their place.

    Returns
    -------
    CompressionReport
    """
    target = encode_target(full.pool, y)
    X = X.tocsr() if sp.issparse(X) else X
    n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
    if n_rows != len(target):
        raise ValueError(f"X has {n_rows} rows but y has {len(target)}.")
    k, n = len(small.weights), len(full.weights)
    draws = []
    for seed in range(RANDOM_DRAWS):
        members = np.sort(np.random.default_rng(seed).choice(n, k, replace=False))
        random_k = WeightedVote(full.pool.keep(members), np.full(k, 1.0 / k), small.floor)
        draws.append(_score(random_k, X, target))
    mean = {name: float(np.mean([d[name] for d in draws])) for name in draws[0]}
    rows = {
        f"full ensemble ({n})": {**_size(full), **_speed(full, X), **_score(full, X, target)},
        f"sparsebag ({k})": {
            **_size(small),
            **_speed(deployed or small, X),
            **_score(small, X, target),
        },
    }
    plain = _as_they_were(small)
    if plain is not None:
        scores = _score(plain, X, target)
        rows[f"its members as they were ({k})"] = {**_size(plain), **_speed(plain, X), **scores}
    rows[f"random ({k})"] = {**_size(random_k), **_speed(random_k, X), **mean}
    if not all("nodes" in row for row in rows.values()):  # trees among others: no number for all
        rows = {name: {c: v for c, v in row.items() if c != "nodes"} for name, row in rows.items()}
    notes = (COLLAPSED,) if collapses_into_one(small.pool) else ()
    return CompressionReport(rows=rows, n_rows=n_rows, notes=notes)


def _as_they_were(vote: WeightedVote) -> WeightedVote | None:
    """The survivors with their own leaves and no calibrator, where they have others or one."""
    if vote.calibrator is None and all(m.leaf_values is None for m in vote.pool.members):
        return None
    members = tuple(replace(member, leaf_values=None) for member in vote.pool.members)
    return replace(vote, pool=replace(vote.pool, members=members), calibrator=None)


def _score(vote: WeightedVote, X: Any, target: np.ndarray) -> dict[str, float]:
    if vote.pool.classes is None:
        error = vote.predict(X) - target
        return {
            "MSE": float(np.mean(error**2)),
            "R²": 1.0 - float(np.mean(error**2) / max(np.var(target), np.finfo(float).tiny)),
        }
    proba = vote.predict_proba(X)
    labels = np.arange(len(vote.pool.classes))
    return {
        "log-loss": metrics.log_loss(target, proba, labels=labels),
        "ECE": metrics.expected_calibration_error(target, proba, labels=labels),
        "Brier": metrics.brier_score(target, proba, labels=labels),
        "accuracy": float(np.mean(np.argmax(proba, axis=1) == target)),
    }


def _size(vote: WeightedVote) -> dict[str, float]:
    estimators = [member.estimator for member in vote.pool.members]
    size: dict[str, float] = {"members": float(len(estimators))}
    if all(member.is_tree for member in vote.pool.members):
        size["nodes"] = float(sum(e.tree_.node_count for e in estimators))
    size["size (kB)"] = len(pickle.dumps(estimators, protocol=5)) / 1000
    return size


def _speed(vote: WeightedVote | CompiledEnsemble, X: Any) -> dict[str, float]:
    """Median wall-clock milliseconds for a thousand rows, one thread."""
    n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
    block = take_rows(X, np.resize(np.arange(n_rows), TIMED_ROWS))
    classes = vote.classes if isinstance(vote, CompiledEnsemble) else vote.pool.classes
    predict = vote.predict if classes is None else vote.predict_proba
    predict(block)  # the first call pays for imports, caches and threads
    seconds = []
    for _ in range(TIMED_REPEATS):
        start = time.perf_counter()
        predict(block)
        seconds.append(time.perf_counter() - start)
    return {"ms / 1000 rows": 1e3 * float(np.median(seconds))}


def _four_digits(value: float) -> str:
    return f"{value:.4g}"


def _padded(cells: list[str], widths: list[int]) -> str:
    first, *rest = (
        c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))
    )
    return "| " + " | ".join([first, *rest]) + " |"
