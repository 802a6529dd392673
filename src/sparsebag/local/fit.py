"""Fits a `LinearGate` to out-of-bag votes, and tells by cross-fitting what it gains.

The gate is ``w(x) = softmax(log w + U'(g(x) - mean g))`` with w the global weights, see
`sparsebag.local.gate`. U = 0 is exactly the global model. The mean over rows is taken off: the
gate moves weight between places and cannot move it everywhere, for the global weights were judged
with all votes, and out-of-bag votes of 37 % of the members always ask for more equal ones.

Fitted to the out-of-bag loss, as the global weights are; judged by the loss of the vote of all
members (`RowVotes.full_vote`), on rows that the gate was not fitted to.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.local.gate import LinearGate, bounded, softmax
from sparsebag.local.localisation import Localisation
from sparsebag.local.row_votes import RowVotes
from sparsebag.solvers.base import one_blas_thread

FOLDS = 5
FEWEST_ROWS = 200
"""Below, folds cannot tell a gate from luck."""
ERRORS = 3.0
"""Standard errors a gain must be above zero by, for "auto": three shapes are tried, and the
largest gain is taken. At 2 plain forests get gates that lose on test rows."""
NOTHING = 1e-6
"""Share of a loss that the solver's tolerance leaves."""
PRIOR_MASS = 0.02
"""τ: weight of the row's global vote, which keeps a vote defined where a gate trusts only members
that have seen the row."""
LEAST_FLOOR = 1e-3
"""Share of the uniform distribution in votes while fitting: members may be sure and wrong."""
MOST_STEPS = 60
"""Of L-BFGS; folds cannot see what is left to gain after so many."""
FIRST_STEP = 0.3
"""Length of the first step; zero is stationary."""
PARTED = 2.0
"""Prior standard deviation of what is bounded in U."""


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
    if local is not True and local != "auto":
        raise ValueError(f"local={local!r} is not known; use None, 'auto' or True.")
    if X_numbers.ndim != 2 or X_numbers.shape[0] != evidence.n_rows:
        raise ValueError(
            f"X has shape {X_numbers.shape}, but a gate needs one row for each of the "
            f"{evidence.n_rows} rows of the evidence."
        )
    if np.count_nonzero(weights) < 2:
        return _without(local, "one member has all the weight")
    rows = RowVotes.read(evidence, X_numbers, weights, seed)
    if rows.effective_rows < FEWEST_ROWS:
        few = f"fewer than {FEWEST_ROWS} rows have out-of-bag votes of two members"
        return _without(local, few)
    with one_blas_thread():  # hundreds of small products: threads would only wait
        return _best_gate(rows, floor, forced=local is True, seed=seed)


def _without(local: str | bool, reason: str) -> Localisation:
    if local is True:
        raise ValueError(f"local=True cannot fit a gate, because {reason}; use local=None.")
    return Localisation(reason=reason)


def _best_gate(rows: RowVotes, floor: float, *, forced: bool, seed: int) -> Localisation:
    mean, scale = rows.moments()
    own = rows.full_vote(np.tile(rows.base, (rows.n_rows, 1)))
    share = np.where(own.heard, rows.weight, 0.0)
    share /= max(float(share.sum()), np.finfo(float).tiny)
    tried = []
    for shape in SHAPES:
        local = rows.full_vote(_cross_fitted(rows, floor, mean, scale, shape, seed))
        saved = np.where(local.heard, own.losses - local.losses, 0.0)  # unheard is no gain
        gain = float(share @ saved)
        error = float(np.sqrt(np.sum((share * (saved - gain)) ** 2)))
        tried.append((gain, error, local.stretch, shape))
    gain, error, stretch, shape = max(tried, key=lambda found: found[0] - found[1])
    loss = float(share @ own.losses)
    sure = gain > max(ERRORS * error, NOTHING * loss)
    reason = "the gain is beyond chance" if sure else "no gain is beyond chance"
    return Localisation(
        gate=GateProblem(rows, floor, mean, scale).fit(shape) if sure or forced else None,
        loss_before=loss,
        loss_after=loss - gain,
        gain=gain,
        gain_error=error,
        score="Brier score" if rows.classifies else "Squared error",
        reason=f"{reason}, but local=True" if forced and not sure else reason,
        temperature_ratio=own.stretch / stretch if min(own.stretch, stretch) > 0.0 else 1.0,
    )


def _cross_fitted(
    rows: RowVotes, floor: float, mean: np.ndarray, scale: np.ndarray, shape: Shape, seed: int
) -> np.ndarray:
    """Each row's weights, by a gate that was fitted without its fold."""
    fold = np.random.default_rng(seed).permutation(rows.n_rows) % FOLDS
    weights = np.empty(rows.mask.shape)
    for f in range(FOLDS):
        others = rows.take(np.flatnonzero(fold != f))
        gate = GateProblem(others, floor, mean, scale).fit(shape)
        weights[fold == f] = gate.weights(rows.features[fold == f])
    return weights


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
        self.columns = rows.columns(mean, scale)
        self.heard = rows.mask.astype(np.float64)
        self.log_base = np.log(rows.base)
        if rows.classifies:
            floor = max(floor, LEAST_FLOOR)
            of_true = rows.votes[np.arange(rows.n_rows), :, rows.target]
            self.judged = self.heard * ((1.0 - floor) * of_true + floor / rows.votes.shape[2])
        else:
            self.judged = rows.votes[:, :, 0]
        own = self.heard * rows.base
        mean_vote = np.sum(own * self.judged, axis=1) / own.sum(axis=1)
        self.anchor = PRIOR_MASS * mean_vote

    @cached_property
    def unit(self) -> float:
        """Mean squared error of a member: it counts as half a nat, so priors mean the same."""
        own = self.heard * self.rows.base
        error = np.sum(own * (self.judged - self.rows.target[:, None]) ** 2, axis=1)
        return float(self.rows.weight @ (error / own.sum(axis=1))) or 1.0

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
        # Minus the logarithms of normal priors, as a row's share of nats; d columns add up to h.
        of_down, of_part = 0.5 * len(down) / shape.steepness**2 / n, 0.5 / PARTED**2 / n
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
            FIRST_STEP * np.concatenate([part.ravel() for part in start]),
            args=(shape,),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": MOST_STEPS},
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
