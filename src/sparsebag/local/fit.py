"""Fits a `LinearGate` to out-of-bag votes, and estimates by cross-fitting what it gains.

The gate is ``w(x) = softmax(log w + U'(g(x) - mean g))`` with w the global weights, see
`sparsebag.local.gate`. U = 0 is exactly the global model. The mean over rows is taken off: the
gate moves weight between places and cannot move it everywhere, for the global weights were judged
with all votes, and out-of-bag votes of 37 % of the members always ask for more equal ones.

Fitted to the out-of-bag loss, as the global weights are; judged by the loss of the vote of all
members (`RowVotes.full_vote`), on rows that the gate was not fitted to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.local.gate import LinearGate, bounded, softmax, standardised
from sparsebag.objective.full_vote_risk import vote_blocks
from sparsebag.objective.objective import PRIOR_MASS
from sparsebag.solvers.base import one_blas_thread

FEWEST_ROWS = 200
"""Below, folds cannot tell a gate from luck."""
MOST_ROWS = 4000
"""Rows a gate is fitted to; more change it little."""
ERRORS = 3.0
"""Standard errors a gain must be above zero by, for "auto": three shapes are tried, and the
largest gain is taken. At 2 plain forests get gates that lose on test rows."""


@dataclass(frozen=True)
class Localisation:
    """Whether the weights depend on the row, and what that gains. ``print`` it.

    The losses are out-of-bag estimates for the vote of all kept members: squared error, or the
    Brier score after the best temperature-like rescaling of each vote, which a calibrator would
    give either of them. Each row is judged by a gate that was fitted without it.

    Attributes
    ----------
    gate : LinearGate or None
        None: every row has the same weights.
    loss_before, loss_after : float or None
        Of the global weights and of the gate; None where no gate was tried.
    gain, gain_error : float or None
        Their difference, and its standard error over rows.
    score : str
        What the losses are.
    reason : str
        Why there is a gate, or why not.
    temperature_ratio : float
        Best temperature of the gated vote over that of the global vote, to first order. A gate
        makes votes more or less sure, so a temperature fitted to the global vote is multiplied by
        this. 1 for regression.
    """

    gate: LinearGate | None = None
    loss_before: float | None = None
    loss_after: float | None = None
    gain: float | None = None
    gain_error: float | None = None
    score: str = ""
    reason: str = ""
    temperature_ratio: float = 1.0

    @property
    def used(self) -> bool:
        """Whether there is a gate."""
        return self.gate is not None

    def __str__(self) -> str:
        what = "weights depend on the row" if self.used else "same weights for every row"
        lines = [f"{what}: {self.reason}"]
        if self.gain is not None:
            lines.append(
                f"{self.score}, cross-fitted: {self.loss_before:.4g} → {self.loss_after:.4g} with "
                f"a gate (gain {self.gain:.2g} ± {self.gain_error:.1g})"
            )
        if self.gate is not None:
            lines.append(f"gate: {self.gate.n_members} members, {self.gate.nbytes:,} bytes")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Localisation({'gate' if self.used else 'no gate'}: {self.reason})"


class Shape(NamedTuple):
    """How far a gate may move the weights, and how abruptly.

    Attributes
    ----------
    spread : float
        Bound on the entries of U, in nats of a logit.
    steepness : float
        Prior standard deviation of a row's position h: at 1 the change is smooth, at 16 a step.
    rank : int
        Directions in feature space.
    """

    spread: float
    steepness: float
    rank: int = 1


SHAPES = (Shape(0.3, 1.0), Shape(2.0, 16.0), Shape(2.0, 16.0, rank=3))
"""Cautious, one step, several. Rank 3 doubles the gain of bags of linear models; the cautious one
is for ``local=True`` where there is nothing to gain."""


def fit_gate(
    evidence: OOBEvidence,
    X_numbers: Any,
    weights: np.ndarray,
    *,
    local: str | bool,
    floor: float,
    seed: int = 0,
) -> Localisation:
    """Weights that depend on the row, for members with global weights.

    Parameters
    ----------
    evidence : OOBEvidence
        Votes of the members as they are deployed. With every class's votes where there are more
        than two classes.
    X_numbers : ndarray or sparse matrix of shape (M, d)
        The rows of the evidence.
    weights : ndarray of shape (N,)
        The global weights; members without weight get none.
    local : {"auto", True}
        "auto": only where cross-fitted out-of-bag rows are sure that a gate gains.
    floor : float
        Share of the uniform class distribution in the deployed vote.
    seed : int, default 0
        Of the folds.

    Returns
    -------
    Localisation
        The gate's members are those with weight, in their order.
    """
    if X_numbers.ndim != 2 or X_numbers.shape[0] != evidence.n_rows:
        raise ValueError(
            f"X has shape {X_numbers.shape}, but a gate needs one row for each of the "
            f"{evidence.n_rows} rows of the evidence."
        )
    rows, reason = RowVotes.read(evidence, X_numbers, weights, seed), ""
    if len(rows.base) < 2:
        reason = "one member has all the weight"
    elif rows.effective_rows < FEWEST_ROWS:
        reason = f"fewer than {FEWEST_ROWS} rows have out-of-bag votes of two members"
    if reason and local is True:
        raise ValueError(f"local=True cannot fit a gate, because {reason}; use local=None.")
    if reason:
        return Localisation(reason=reason)
    with one_blas_thread():  # hundreds of small products: threads would only wait
        return _best_gate(rows, floor, forced=local is True, seed=seed)


def _best_gate(rows: RowVotes, floor: float, *, forced: bool, seed: int) -> Localisation:
    moments = rows.moments()
    own_losses, own_heard, own_stretch = rows.full_vote(np.tile(rows.base, (rows.n_rows, 1)))
    share = np.where(own_heard, rows.weight, 0.0)
    share /= max(float(share.sum()), np.finfo(float).tiny)
    tried = []
    for shape in SHAPES:
        losses, heard, stretch = rows.full_vote(_cross_fitted(rows, floor, moments, shape, seed))
        saved = np.where(heard, own_losses - losses, 0.0)  # unheard is no gain
        gain = float(share @ saved)
        error = float(np.sqrt(np.sum((share * (saved - gain)) ** 2)))
        tried.append((gain, error, stretch, shape))
    gain, error, stretch, shape = max(tried, key=lambda found: found[0] - found[1])
    loss = float(share @ own_losses)
    sure = gain > max(ERRORS * error, 1e-6 * loss)  # less is the solver's tolerance
    reason = "significant gain" if sure else "no significant gain"
    return Localisation(
        gate=GateProblem(rows, floor, *moments).fit(shape) if sure or forced else None,
        loss_before=loss,
        loss_after=loss - gain,
        gain=gain,
        gain_error=error,
        score="Brier score" if rows.classifies else "Squared error",
        reason=f"{reason}, but local=True" if forced and not sure else reason,
        temperature_ratio=own_stretch / stretch if min(own_stretch, stretch) > 0.0 else 1.0,
    )


def _cross_fitted(
    rows: RowVotes, floor: float, moments: tuple[np.ndarray, ...], shape: Shape, seed: int
) -> np.ndarray:
    """Each row's weights, by a gate that was fitted without its fold."""
    n_folds = 5
    fold = np.random.default_rng(seed).permutation(rows.n_rows) % n_folds
    weights = np.empty(rows.mask.shape)
    for f in range(n_folds):
        others = rows.take(np.flatnonzero(fold != f))
        gate = GateProblem(others, floor, *moments).fit(shape)
        weights[fold == f] = gate.weights(rows.features[fold == f])
    return weights


@dataclass(frozen=True)
class RowVotes:
    """Votes of k members on R rows that they have not seen.

    Attributes
    ----------
    features : ndarray of shape (R, d)
        NaN where unknown.
    votes : ndarray of shape (R, k, C)
        Class probabilities, or with C = 1 predictions; 0 where ``mask`` is False.
    mask : ndarray of bool of shape (R, k)
        Where the member has not seen the row; two in every row at least.
    target : ndarray of shape (R,)
        Class positions, or numbers.
    weight : ndarray of shape (R,)
        Row weights, above zero, summing to one.
    base : ndarray of shape (k,)
        The global weights, none zero.
    """

    features: np.ndarray
    votes: np.ndarray
    mask: np.ndarray
    target: np.ndarray
    weight: np.ndarray
    base: np.ndarray

    @classmethod
    def read(cls, evidence: OOBEvidence, X: Any, weights: np.ndarray, seed: int = 0) -> RowVotes:
        """The rows that two members with weight can be asked about; a sample where there are many.

        Parameters
        ----------
        evidence : OOBEvidence
        X : ndarray or sparse matrix of shape (M, d)
            Numbers.
        weights : ndarray of shape (N,)
        seed : int, default 0
            Of the sample.

        Returns
        -------
        RowVotes
        """
        active = np.flatnonzero(weights)
        weight = np.ones(evidence.n_rows)
        if evidence.sample_weight is not None:
            weight = on_host(evidence.sample_weight).astype(np.float64)
        usable = weight > 0.0
        if evidence.oob_mask is not None:
            usable &= (on_host(evidence.oob_mask)[:, active] != 0).sum(axis=1) >= 2
        rows = np.flatnonzero(usable)
        wide = max(len(active) * (evidence.n_classes or 1), X.shape[1])
        most = min(MOST_ROWS, 2**25 // wide)  # 256 MiB
        if len(rows) > most:
            rows = np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))
        taken = evidence.take_members(active).take(rows)
        seen_by_none = np.ones((len(rows), len(active)), bool)
        mask = seen_by_none if taken.oob_mask is None else on_host(taken.oob_mask) != 0
        features = X[rows].toarray() if hasattr(X, "toarray") else np.asarray(X)[rows]
        votes = np.zeros((*mask.shape, evidence.n_classes or 1))
        for block, _, said in vote_blocks(taken):
            votes[block] = np.where(mask[block, :, None], said, 0.0)
        return cls(
            features=np.asarray(features, dtype=np.float64),
            votes=votes,
            mask=mask,
            target=on_host(taken.target),
            weight=weight[rows] / max(float(weight[rows].sum()), np.finfo(float).tiny),
            base=np.asarray(weights[active] / weights[active].sum()),
        )

    @property
    def classifies(self) -> bool:
        """Whether votes are class probabilities."""
        return bool(self.votes.shape[2] > 1)

    @property
    def n_rows(self) -> int:
        """R."""
        return len(self.target)

    @property
    def effective_rows(self) -> float:
        """How many rows of equal weight say as much (Kish 1965)."""
        return float(1.0 / np.sum(self.weight**2)) if self.n_rows else 0.0

    def take(self, rows: np.ndarray) -> RowVotes:
        """Slice every parallel array by row.

        Parameters
        ----------
        rows : index array

        Returns
        -------
        RowVotes
        """
        names = ("features", "votes", "mask", "target", "weight")
        taken = replace(self, **{name: getattr(self, name)[rows] for name in names})
        return replace(taken, weight=taken.weight / taken.weight.sum())

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations of the features; outliers are drawn in first.

        One code for "missing" of 1e9 would otherwise make all other values equal.

        Returns
        -------
        mean, scale : ndarrays of shape (d,)
            Scales are 1 for constant features.
        """
        with np.errstate(over="ignore"):
            X = self.features.astype(np.float32).astype(np.float64)
        X = np.where(np.isfinite(X), X, np.nan)
        X[:, np.isnan(X).all(axis=0)] = 0.0
        low, high = np.nanquantile(X, [0.01, 0.99], axis=0)
        reach = np.where(high > low, 3.0 * (high - low), np.inf)
        X = np.clip(X, low - reach, high + reach)
        mean, scale = np.nanmean(X, axis=0), np.nanstd(X, axis=0)
        # Rounding leaves a constant column a spread of 1e-16 of its size.
        return mean, np.where(scale > 1e-9 * np.abs(mean), scale, 1.0)

    def full_vote(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Each row's squared error or Brier score of the vote of *all* members.

        Out of bag a row hears 37 % of the members. A quadratic score of all of them needs only
        means over single members and over pairs, which those 37 % give without bias. Class votes
        are first rescaled about the uniform distribution by the one factor that is best for all
        rows: what a calibrator does for every vote is no merit of a gate.

        Parameters
        ----------
        weights : ndarray of shape (R, k)
            Of each row, on the simplex.

        Returns
        -------
        losses : ndarray of shape (R,)
        heard : ndarray of bool of shape (R,)
            False where too little weight is on members that have not seen the row.
        stretch : float
            Factor that class votes were multiplied by, about the uniform distribution.
        """
        w = np.where(self.mask, weights, 0.0)
        n_classes = self.votes.shape[2]
        centre = 1.0 / n_classes if self.classifies else self.target[:, None, None]
        votes = self.votes - centre
        vote = np.einsum("ij,ijc->ic", w, votes)
        squares = np.einsum("ij,ijc,ijc->i", w**2, votes, votes)
        total, alone = w.sum(axis=1), np.sum(w**2, axis=1)
        pairs = total**2 - alone
        heard = pairs > 0.01  # enough pairs of members that have not seen the row
        pair = (np.sum(vote**2, axis=1) - squares) / np.where(heard, pairs, 1.0)
        own = squares / np.where(heard, alone, 1.0)
        concentration = np.sum(weights**2, axis=1)
        square = (1.0 - concentration) * pair + concentration * own
        if not self.classifies:
            return square, heard, 1.0
        truth = np.eye(n_classes)[self.target] - centre
        along = np.sum(vote * truth, axis=1) / np.where(heard, total, 1.0)
        share = np.where(heard, self.weight, 0.0)
        curve = float(share @ square)
        stretch = float(share @ along) / curve if curve > 0.0 else 1.0
        losses = np.sum(truth**2, axis=1) - 2.0 * stretch * along + stretch**2 * square
        return losses, heard, stretch


class GateProblem:
    """The penalised out-of-bag loss of a gate, and its least value.

    Parameters
    ----------
    rows : RowVotes
    floor : float
        Share of the uniform class distribution in the deployed vote.
    mean, scale : ndarrays of shape (d,)
        That standardise the features; of all rows, for they look at no target.
    """

    def __init__(self, rows: RowVotes, floor: float, mean: np.ndarray, scale: np.ndarray) -> None:
        self.rows, self.mean, self.scale = rows, mean, scale
        self.columns = standardised(rows.features, mean, scale)
        self.heard = rows.mask.astype(np.float64)
        self.log_base = np.log(rows.base)
        if rows.classifies:
            floor = max(floor, 1e-3)  # members may be sure and wrong
            of_true = rows.votes[np.arange(rows.n_rows), :, rows.target]
            self.judged = self.heard * ((1.0 - floor) * of_true + floor / rows.votes.shape[2])
        else:
            self.judged = rows.votes[:, :, 0]
        own = self.heard * rows.base
        own /= own.sum(axis=1, keepdims=True)
        self.anchor = PRIOR_MASS * np.sum(own * self.judged, axis=1)
        # Mean squared error of a member: it counts as half a nat, so priors mean the same.
        error = np.sum(own * (self.judged - rows.target[:, None]) ** 2, axis=1)
        self.unit = float(rows.weight @ error) or 1.0

    def losses(self, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Out-of-bag losses of rows, and their gradients in the logits.

        With ``p = (Σ w I P + τ u) / (Σ w I + τ)``: ``dp/dw_j = I_j (P_j - p) / (Σ w I + τ)``, and
        through the softmax ``dL/dlogit_j = w_j (c_j - Σ_l w_l c_l)`` for ``c = dL/dw``.

        Parameters
        ----------
        logits : ndarray of shape (R, k)

        Returns
        -------
        losses : ndarray of shape (R,)
        gradient : ndarray of shape (R, k)
        """
        weights = softmax(logits)
        heard = weights * self.heard
        total = heard.sum(axis=1) + PRIOR_MASS
        p = (np.sum(heard * self.judged, axis=1) + self.anchor) / total
        if self.rows.classifies:
            losses, slope = -np.log(p), -1.0 / p
        else:
            error = p - self.rows.target
            losses, slope = 0.5 * error**2 / self.unit, error / self.unit
        ahead = (slope / total)[:, None] * (self.judged - p[:, None]) * heard
        return losses, ahead - weights * ahead.sum(axis=1, keepdims=True)

    def objective(self, flat: np.ndarray, shape: Shape) -> tuple[float, np.ndarray]:
        """Penalised mean loss and its gradient in the coefficients.

        Parameters
        ----------
        flat : ndarray of shape ((d + 1 + k) * rank,)
            Directions with their offsets, then what U is a bounded function of.
        shape : Shape

        Returns
        -------
        float, ndarray
        """
        weight, n = self.rows.weight, self.rows.effective_rows
        down, offset, part = self._split(flat, shape)
        h, up = self.columns @ down + offset, shape.spread * bounded(part)
        side = bounded(h)
        side -= weight @ side
        losses, gradient = self.losses(self.log_base + side @ up)
        gradient *= weight[:, None]
        # Minus the logarithms of normal priors, as a row's share of nats; d columns add up to h,
        # and what is bounded in U has a standard deviation of two.
        of_down, of_part = 0.5 * len(down) / shape.steepness**2 / n, 0.125 / n
        value = float(weight @ losses) + of_part * float(np.sum(part**2))
        value += of_down * float(np.sum(down**2) + np.sum(offset**2))
        of_side = gradient @ up.T
        of_side -= weight[:, None] * of_side.sum(axis=0)  # the mean side is taken off
        of_h = of_side * _bounded_slope(h)
        d_down = self.columns.T @ of_h + 2.0 * of_down * down
        d_offset = of_h.sum(axis=0) + 2.0 * of_down * offset
        d_part = shape.spread * (side.T @ gradient) * _bounded_slope(part) + 2.0 * of_part * part
        return value, np.concatenate([d_down.ravel(), d_offset, d_part.ravel()])

    def fit(self, shape: Shape) -> LinearGate:
        """The gate of least penalised loss.

        Parameters
        ----------
        shape : Shape

        Returns
        -------
        LinearGate
        """
        shape = shape._replace(rank=min(shape.rank, self.columns.shape[1], len(self.log_base)))
        gradient = self.losses(np.tile(self.log_base, (self.rows.n_rows, 1)))[1]
        signal = -self.columns.T @ (self.rows.weight[:, None] * gradient)
        left, _, right = np.linalg.svd(signal, full_matrices=False)
        start = (left[:, : shape.rank], np.zeros(shape.rank), right[: shape.rank] / shape.spread)
        found = minimize(
            self.objective,
            0.3 * np.concatenate([part.ravel() for part in start]),  # zero is stationary
            args=(shape,),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 60},  # folds cannot see what is left to gain
        )
        down, offset, part = self._split(found.x, shape)
        up = shape.spread * bounded(part)
        centre = self.rows.weight @ bounded(self.columns @ down + offset)
        base = self.log_base - centre @ up
        return LinearGate(self.mean, self.scale, down.T, offset, up.T, base)

    def _split(self, flat: np.ndarray, shape: Shape) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        d, k, r = self.columns.shape[1], len(self.log_base), shape.rank
        down, offset, part = np.split(flat, [d * r, (d + 1) * r])
        return down.reshape(d, r), offset, part.reshape(r, k)


def _bounded_slope(h: np.ndarray) -> np.ndarray:
    """The derivative of `bounded`."""
    return np.asarray((1.0 + h * h) ** -1.5)
