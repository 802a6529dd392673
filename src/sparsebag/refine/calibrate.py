"""Which calibrator, if any: fitted on votes of the deployed size, judged on held-out rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparsebag.refine.calibrated import Calibrated
from sparsebag.refine.calibration_kinds import is_auto, resolve_kind
from sparsebag.refine.calibrator import Calibrator
from sparsebag.refine.isotonic import fit_isotonic
from sparsebag.refine.own_calibrator import fit_own
from sparsebag.refine.temperature import fit_temperature, fit_tempered_floor
from sparsebag.refine.vector_scaling import fit_vector_scaling

PREFERRED, RICHER = "tempered_floor", "vector_scaling"
FOLDS = 5
FEWEST_ROWS = 50
"""Below, "auto" leaves the votes as they are."""
ROWS_FOR_RICHER = 2000
ERRORS_FOR_RICHER = 2.0
"""Standard errors the richer family must be ahead of the preferred one by."""
SMALLEST = np.finfo(np.float64).tiny

Fit = Callable[[np.ndarray, np.ndarray, np.ndarray, int], Calibrator]
FAMILIES: dict[str, Fit] = {
    "temperature": fit_temperature,
    "tempered_floor": fit_tempered_floor,
    "vector_scaling": fit_vector_scaling,
    "isotonic": fit_isotonic,
}


def fit_calibrator(
    votes: np.ndarray,
    target: np.ndarray,
    row: np.ndarray | None = None,
    *,
    kind: Any = "auto",
    sample_weight: np.ndarray | None = None,
    seed: int = 0,
) -> Calibrated:
    """Fit a calibrator to honest votes and say what it gains on rows it has not seen.

    "auto" takes a temperature with a fitted floor where it lowers the log-loss of held-out rows,
    else nothing; with 2000 rows or more, a scale and a shift a class where they are clearly ahead
    of it. A temperature alone is the same with a floor of zero, and the fit may find that.

    Parameters
    ----------
    votes : ndarray of shape (n, C)
        Class probabilities as they will be deployed before calibration: of the deployed number
        of members (`size_matched_votes`), clipped and floored (`finished_votes`).
    target : int ndarray of shape (n,)
        Column of the true class of each vote.
    row : int ndarray of shape (n,), optional
        The row each vote is about; votes about one row stay in one fold. Default: all differ.
    kind : str, object or None, default "auto"
        "auto", "temperature", "tempered_floor", "vector_scaling" ("beta" where there are two
        classes), "isotonic"; an object with ``fit`` and ``predict``, ``transform`` or
        ``predict_proba``; or None. All but "auto" are used as asked for, whatever the gain.
    sample_weight : ndarray of shape (n,), optional
        Weight of each vote.
    seed : int, default 0
        Of the folds.

    Returns
    -------
    Calibrated

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.random(4000)
    >>> target = (rng.random(4000) < truth).astype(int)
    >>> timid = truth**0.5 / (truth**0.5 + (1 - truth) ** 0.5)  # the truth, at temperature 2
    >>> votes = np.stack([1 - timid, timid], axis=1)
    >>> found = fit_calibrator(votes, target, kind="temperature")
    >>> round(found.temperature, 1), found.gain > 0
    (0.5, True)
    """
    proba, target, group, weight = _checked(votes, target, row, sample_weight)
    kind = resolve_kind(kind, proba.shape[1])
    judge = _Judge(proba, target, group, weight, seed)
    before, brier = judge.mean(judge.before), judge.mean(judge.brier(judge.proba))
    identity = Calibrated(None, "identity", 0.0, 0.0, before, before, brier, brier, judge.n_rows)
    if kind is None:
        return identity
    if is_auto(kind):
        family, held_out, considered = _preferred(judge)
        if family is None:
            return replace(identity, considered=considered)
        return judge.result(FAMILIES[family], held_out, considered)
    fit: Fit = FAMILIES[kind] if isinstance(kind, str) else _fit_of(kind)
    return judge.result(fit, judge.held_out(fit))


def fit_family(
    kind: Any, votes: np.ndarray, target: np.ndarray, *, weight: np.ndarray, n_rows: int
) -> Calibrator:
    """A calibrator of a kind, whatever it is worth.

    Parameters
    ----------
    kind : str or object
        Any but "auto" and None.
    votes : ndarray of shape (n, C)
        None of them zero.
    target : int ndarray of shape (n,)
    weight : ndarray of shape (n,)
        Above zero.
    n_rows : int
        Rows behind the votes.

    Returns
    -------
    Calibrator
    """
    kind = resolve_kind(kind, votes.shape[1])
    fit: Fit = FAMILIES[kind] if isinstance(kind, str) else _fit_of(kind)
    return fit(votes, target, weight, n_rows)


@dataclass(frozen=True)
class HeldOutRows:
    """Rows' Brier scores, before and after a calibrator that was not fitted on them.

    Attributes
    ----------
    row : int ndarray of shape (R,)
    weight : ndarray of shape (R,)
        Summing to one.
    before, after : ndarray of shape (R,)
    kind : str or object
        Of the calibrator.
    """

    row: np.ndarray
    weight: np.ndarray
    before: np.ndarray
    after: np.ndarray
    kind: Any


def held_out_rows(
    votes: np.ndarray,
    target: np.ndarray,
    row: np.ndarray,
    *,
    kind: Any,
    sample_weight: np.ndarray | None = None,
    seed: int = 0,
) -> HeldOutRows | None:
    """What a kind of calibrator makes of rows' Brier scores, by cross-fitting.

    Parameters
    ----------
    votes, target, row, sample_weight, seed
        As in `fit_calibrator`.
    kind : str or object
        Any but None; "auto" is the family it considers, whatever that gains.

    Returns
    -------
    HeldOutRows or None
        None where rows are too few for "auto".
    """
    proba, position, group, weight = _checked(votes, target, row, sample_weight)
    kind = resolve_kind(kind, proba.shape[1])
    judge = _Judge(proba, position, group, weight, seed)
    if is_auto(kind):
        if judge.n_rows < FEWEST_ROWS:
            return None
        family, held_out, _ = _preferred(judge)
        kind = family or PREFERRED
    else:
        fit: Fit = FAMILIES[kind] if isinstance(kind, str) else _fit_of(kind)
        held_out = judge.held_out(fit)
    kept = np.asarray(row) if sample_weight is None else np.asarray(row)[sample_weight > 0.0]
    share = judge.row_weight / judge.row_weight.sum()
    after = judge.brier(held_out)
    return HeldOutRows(np.unique(kept), share, judge.brier(proba), after, kind)


def held_out_votes(
    votes: np.ndarray, target: np.ndarray, *, kind: Any, weight: np.ndarray, seed: int = 0
) -> np.ndarray:
    """Votes calibrated by what was fitted to other rows.

    Parameters
    ----------
    votes : ndarray of shape (n, C)
        One a row.
    target : int ndarray of shape (n,)
    kind : str or object
        Any but "auto" and None.
    weight : ndarray of shape (n,)
        Above zero.
    seed : int, default 0
        Of the folds.

    Returns
    -------
    ndarray of shape (n, C)
    """
    kind = resolve_kind(kind, votes.shape[1])
    fit: Fit = FAMILIES[kind] if isinstance(kind, str) else _fit_of(kind)
    weight = weight / weight.mean()
    return _Judge(votes, np.asarray(target, np.intp), np.arange(len(votes)), weight, seed).held_out(
        fit
    )


def needs_its_own(
    own: dict[str, Any],
    others: dict[str, Any],
    kind: Any,
    errors: float = ERRORS_FOR_RICHER,
) -> bool:
    """Whether votes are corrected better by what their other rows say than by others' votes.

    Parameters
    ----------
    own, others : dict
        ``votes``, ``target``, ``row`` and ``sample_weight``, as `fit_calibrator` takes them.
    kind : str or object
        Of calibrator; "auto" is judged by what it prefers.
    errors : float, default 2
        Standard errors that held-out rows must be sure of it by.

    Returns
    -------
    bool

    Examples
    --------
    >>> target = np.tile([0, 1], 200)
    >>> sure = np.where(target[:, None] == [0, 1], 0.9, 0.1)
    >>> given = {"target": target, "row": np.arange(400), "sample_weight": None}
    >>> needs_its_own({**given, "votes": sure}, {**given, "votes": sure[::-1]}, "auto")
    True
    """
    proba, target, group, weight = _checked(**own)
    kind = resolve_kind(PREFERRED if is_auto(kind) else kind, proba.shape[1])
    fit: Fit = FAMILIES[kind] if isinstance(kind, str) else _fit_of(kind)
    theirs, its_target, its_group, its_weight = _checked(**others)
    fitted = fit(theirs, its_target, its_weight, int(its_group.max()) + 1)
    judge = _Judge(proba, target, group, weight, 0)
    ahead = judge.losses(fitted.transform(proba)) - judge.losses(judge.held_out(fit))
    return judge.mean(ahead) > errors * judge.error(ahead)


def _preferred(judge: _Judge) -> tuple[str | None, np.ndarray, dict[str, float]]:
    """The rule of "auto": a family, or None for none; held-out votes; the gain of each tried."""
    if judge.n_rows < FEWEST_ROWS:
        return None, judge.proba, {}
    held_out = judge.held_out(FAMILIES[PREFERRED])
    losses = judge.losses(held_out)
    considered = {PREFERRED: judge.mean(judge.before - losses)}
    if judge.n_rows >= ROWS_FOR_RICHER:
        richer = judge.held_out(FAMILIES[RICHER])
        others = judge.losses(richer)
        considered[RICHER] = judge.mean(judge.before - others)
        ahead, error = judge.mean(losses - others), judge.error(losses - others)
        if ahead > ERRORS_FOR_RICHER * error and considered[RICHER] > 0.0:
            return RICHER, richer, considered
    if not considered[PREFERRED] > 0.0:
        return None, held_out, considered
    return PREFERRED, held_out, considered


class _Judge:
    """Votes with the folds of their rows; losses are means over the votes about a row."""

    def __init__(
        self,
        proba: np.ndarray,
        target: np.ndarray,
        group: np.ndarray,
        weight: np.ndarray,
        seed: int,
    ) -> None:
        self.proba, self.target, self.group, self.weight = proba, target, group, weight
        self.n_rows = int(group.max()) + 1
        self.row_weight = np.bincount(group, weight)
        n_folds = min(FOLDS, self.n_rows)
        order = np.random.default_rng(seed).permutation(self.n_rows)
        self.fold = (np.argsort(order) % n_folds)[group]
        self.before = self.losses(proba)

    def held_out(self, fit: Fit) -> np.ndarray:
        """Votes calibrated by what was fitted on the other folds, shape (n, C)."""
        calibrated = np.empty_like(self.proba)
        for f in np.unique(self.fold):
            out = self.fold == f
            if np.all(out):  # one row only: nothing to hold out
                return self.proba
            kept = ~out
            rows = len(np.unique(self.group[kept]))
            fitted = fit(self.proba[kept], self.target[kept], self.weight[kept], rows)
            calibrated[out] = fitted.transform(self.proba[out])
        return calibrated

    def result(
        self, fit: Fit, held_out: np.ndarray, considered: dict[str, float] | None = None
    ) -> Calibrated:
        """A fit to all rows, with the gain seen on held-out ones."""
        calibrator = fit(self.proba, self.target, self.weight, self.n_rows)
        losses = self.losses(held_out)
        gain = self.before - losses
        return Calibrated(
            calibrator=calibrator,
            kind=calibrator.kind,
            gain=self.mean(gain),
            gain_error=self.error(gain),
            loss_before=self.mean(self.before),
            loss_after=self.mean(losses),
            brier_before=self.mean(self.brier(self.proba)),
            brier_after=self.mean(self.brier(held_out)),
            n_rows=self.n_rows,
            considered=considered or {calibrator.kind: self.mean(gain)},
        )

    def mean(self, by_row: np.ndarray) -> float:
        """Weighted mean over rows."""
        return float(self.row_weight @ by_row / self.row_weight.sum())

    def error(self, by_row: np.ndarray) -> float:
        """Standard error of `mean`."""
        share = self.row_weight / self.row_weight.sum()
        return float(np.sqrt(np.sum((share * (by_row - self.mean(by_row))) ** 2)))

    def losses(self, proba: np.ndarray) -> np.ndarray:
        """Log-loss of each row."""
        of_true = np.take_along_axis(proba, self.target[:, None], axis=1)[:, 0]
        return self._by_row(-np.log(np.maximum(of_true, SMALLEST)))

    def brier(self, proba: np.ndarray) -> np.ndarray:
        """Brier score of each row."""
        hot = self.target[:, None] == np.arange(proba.shape[1])
        return self._by_row(np.sum((proba - hot) ** 2, axis=1))

    def _by_row(self, losses: np.ndarray) -> np.ndarray:
        return np.asarray(np.bincount(self.group, self.weight * losses) / self.row_weight)


def _fit_of(calibrator: Any) -> Fit:
    return lambda p, y, w, n: fit_own(calibrator, p, y, w)


def _checked(
    votes: Any, target: Any, row: Any, sample_weight: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    proba, y = np.asarray(votes, dtype=np.float64), np.asarray(target)
    if proba.ndim != 2 or proba.shape[1] < 2:
        raise ValueError(f"votes must have shape (n, C) with two classes or more: {proba.shape}.")
    group = np.arange(len(proba)) if row is None else np.asarray(row)
    weight = np.ones(len(proba)) if sample_weight is None else np.asarray(sample_weight, float)
    for name, array in (("target", y), ("row", group), ("sample_weight", weight)):
        if array.shape != (len(proba),):
            raise ValueError(f"{name} has shape {array.shape}, but there are {len(proba)} votes.")
    if not np.all(proba > 0.0):
        raise ValueError(
            "a vote is zero, negative or NaN, and its logarithm no number; pass the votes through "
            "finished_votes with a floor above 0."
        )
    keep = weight > 0.0
    if not np.any(keep):
        raise ValueError("every vote has sample_weight zero, so there is nothing to fit to.")
    proba, y, group, weight = proba[keep], y[keep].astype(np.intp), group[keep], weight[keep]
    return proba, y, np.unique(group, return_inverse=True)[1], weight
