"""Judging a path honestly: what its members are worth on rows the weights were not fitted on."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import reduce

import numpy as np

from sparsebag.evidence.callers_warning import warn_caller
from sparsebag.objective.full_vote_risk import (
    SMALLEST_SHARE,
    Exchangeable,
    PairMoments,
    PairRisk,
)
from sparsebag.objective.pair_shrinkage import (
    PRIOR_COVARIANCE,
    Effects,
    Shrinkage,
    effects_of,
    measure_shrinkage,
)
from sparsebag.objective.vote_disagreement import (
    DisagreementShrinkage,
    VoteDisagreement,
    measure_disagreement,
)
from sparsebag.selection.judged_path import CrossFittedPath, collected
from sparsebag.selection.path import PathPoint, budget_path, larger_points
from sparsebag.selection.row_risks import RowRisks

FOLDS = 10
DENSE_SIZES = 64
"""Every number of members is kept up to this one; beyond, in steps of `GROWTH`."""
GROWTH = 1.04
FOLD_SIZES = 32
"""Longest path of a fold: larger ensembles collect next to nothing, and their paths cost most."""
MOST_FOLD_BYTES = 1 << 30
"""Memory for the folds' N×N sums; fewer folds where N is large."""
MOST_STRANGERS, ROWS_TO_MEET = 0.2, 100
"""Share of pairs without a common row above which the user is warned, given this many rows."""
PRIOR_SD_OF_SLOPE = 1.0
"""How far the model of the members' differences is trusted before the held-out rows are heard."""
UNKNOWN_SLOPE = 1.0, float("inf")
SLOPE_ON_MADE_UP_ROWS, SLOPE_A_LOG, SD_ON_MADE_UP_ROWS = 0.5, 0.8, 0.25
LEAST_SLOPE, MOST_SLOPE = 0.3, 1.0
SLOPE_OF_BLUNT_TREES, MUCH_LEFT_OVER = 0.75, 0.2
"""Where made-up rows told the differences: see `slope_on_made_up_rows`."""
USUAL_OUT_OF_BAG, SD_OUT_OF_BAG, DOUBT_OUT_OF_BAG = 0.5, 0.35, 0.25
"""Of members that are no trees. The rows a member is judged by are those its bag lacks: one that
went far astray for its bag errs the other way on them, so differences out of bag are larger than
on new rows, in every fold. Measured on linear, naive Bayes and neighbour models (0.1 to 1)."""


def cross_fit(
    risk: PairRisk,
    limit: int,
    *,
    most: int | None = None,
    price: np.ndarray | None = None,
    trees: bool = True,
    disagreement: VoteDisagreement | None = None,
    n_folds: int = FOLDS,
    seed: int = 0,
    verbose: int = 0,
) -> CrossFittedPath:
    """Fit a budget path on all rows; on each fold, judge a path fitted on the others.

    The risk of members all alike is known well: every pair and row tells of it. What members of
    their own add is small and noisy. The model of `pair_shrinkage` predicts it; the folds say
    what share of the prediction came true on rows it had not seen, and the prediction is scaled
    by that (with the model's own word as a prior, for a few hundred rows cannot tell). Where
    made-up rows told how the votes differ, the folds set the model's strengths, and the share is
    `slope_on_made_up_rows`: the folds' own, over hundreds of fits, did not foretell new rows'.

    Parameters
    ----------
    risk : PairRisk
    limit : int
        Most members of a point with fitted weights.
    most : int, optional
        Most members of a point with equal ones; default: ``limit``.
    price : ndarray of shape (N,), optional
        Members' prices, see `budget_path`.
    trees : bool, default True
        Whether the members are trees, whose differences are of a known size; see
        `pair_shrinkage`.
    disagreement : VoteDisagreement, optional
        How the members' votes differ, from rows without labels. Labels then need to tell less.
    n_folds : int, default 10
    seed : int, default 0
        Of the rows' assignment to folds.
    verbose : int, default 0
        Progress on standard error.

    Returns
    -------
    CrossFittedPath
    """
    folds = _folds(risk, n_folds, seed)
    moments = []
    for f, fold in enumerate(folds):
        moments.append(risk.moments(fold))
        _say(verbose, f"pairs of members, fold {f + 1} of {len(folds)}")
    total = reduce(PairMoments.__add__, moments)
    shares = total.counts / total.row_weight
    if sum(map(len, folds)) >= ROWS_TO_MEET:
        _warn_of_strangers(shares)
    kept = risk.kept_effects()
    _say(verbose, "what members have of their own")
    effects = [effects_of(moment, shares, kept) for moment in moments]
    mean = total.exchangeable()

    def measure(estimates: list[Effects], of: PairMoments) -> Shrinkage | DisagreementShrinkage:
        alike = of.exchangeable()
        spread = alike.own - alike.pair
        if disagreement is None or len(estimates) < 2:
            prior = PRIOR_COVARIANCE if trees else None
            return measure_shrinkage(estimates, spread, prior=prior)
        return measure_disagreement(estimates, spread, disagreement, _overlap(shares))

    shrinkage = measure(effects, total)
    deviation = shrinkage.deviation_matrix(effects_of(total, kept=kept))
    matrix = _matrix(total, deviation)
    points = _thinned(budget_path(matrix, limit, price))
    points += larger_points(matrix, points[-1].members, most or limit, price)
    if disagreement is None:
        found = _slope(total, moments, effects, kept, points, price, measure, verbose)
        slope, slope_error = _with_usual(*found, 1.0, PRIOR_SD_OF_SLOPE)
        if not trees and np.min(shares) < 1.0:
            slope, slope_error = _with_usual(*found, USUAL_OUT_OF_BAG, SD_OUT_OF_BAG)
            slope_error = float(np.hypot(slope_error, DOUBT_OUT_OF_BAG))
    else:
        slope = slope_on_made_up_rows(mean, disagreement.left_over)
        slope_error = SD_ON_MADE_UP_ROWS
    judged = np.flatnonzero(risk.row_weight > 0)
    return CrossFittedPath(
        points=points,
        deviation=slope * deviation,
        rows=RowRisks(risk.own_risk[judged], risk.pair_risk[judged], risk.row_weight[judged]),
        random=mean,
        shrinkage=shrinkage,
        slope=slope,
        slope_error=slope_error,
        n_members=risk.n_members,
    )


def slope_on_made_up_rows(random: Exchangeable, left_over: float = 0.0) -> float:
    """Share of the gain foretold with made-up rows that new rows keep.

    Made-up rows tell how votes differ, not how much of the risk is noise that no vote can help.
    Where it is most of it, a vote more adds little to the risk of many, members that look good are
    lucky, and half of the gain or less is kept; where votes are what errs, all of it. Trees that
    stop early (few levels, large leaves) do not follow the noise of their bags, and most of what
    they differ by is real.

    Parameters
    ----------
    random : Exchangeable
        Random members' risk.
    left_over : float, default 0
        As in `VoteDisagreement`.

    Returns
    -------
    float

    Examples
    --------
    >>> noisy, clean = Exchangeable(own=0.36, pair=0.2), Exchangeable(own=0.12, pair=0.05)
    >>> round(slope_on_made_up_rows(noisy), 2), round(slope_on_made_up_rows(clean), 2)
    (0.32, 0.77)
    """
    own_part = max(random.own - random.pair, 0.0)
    if random.pair <= own_part * np.finfo(float).tiny:
        return MOST_SLOPE
    added = np.log(max(own_part / random.pair, np.finfo(float).tiny))
    slope = SLOPE_ON_MADE_UP_ROWS + SLOPE_A_LOG * float(added)
    slope = min(max(slope, LEAST_SLOPE), MOST_SLOPE)
    blunt = min(left_over / MUCH_LEFT_OVER, 1.0)
    return slope + blunt * (max(slope, SLOPE_OF_BLUNT_TREES) - slope)


def _slope(
    total: PairMoments,
    moments: list[PairMoments],
    effects: list[Effects],
    kept: tuple[float, float],
    points: list[PathPoint],
    price: np.ndarray | None,
    measure: Callable[[list[Effects], PairMoments], Shrinkage | DisagreementShrinkage],
    verbose: int,
) -> tuple[float, float]:
    """Held-out gain over predicted gain, pooled over folds and sizes, and its standard error."""
    sizes = [len(point.members) for point in points if len(point.members) <= FOLD_SIZES]
    products, squares = np.zeros(len(moments)), np.zeros(len(moments))
    if len(moments) < 2:
        return UNKNOWN_SLOPE
    for f, moment in enumerate(moments):
        others = total - moment
        rest = measure([e for g, e in enumerate(effects) if g != f], others)
        predicted = rest.deviation_matrix(effects_of(others, kept=kept))
        found = Shrinkage.none().deviation_matrix(effects[f])
        path = budget_path(_matrix(others, predicted), sizes[-1], price)
        for k in sizes:
            point = path[min(k, len(path)) - 1]
            expected = collected(predicted, point)
            products[f] += expected * collected(found, point)
            squares[f] += expected**2
        _say(verbose, f"paths judged on fold {f + 1} of {len(moments)}")
    if not squares.sum() > 0:
        return UNKNOWN_SLOPE
    slope = products.sum() / squares.sum()
    left = squares.sum() - squares
    if not np.all(left > SMALLEST_SHARE * squares.sum()):  # one fold says it all: too little
        return UNKNOWN_SLOPE
    without = (products.sum() - products) / left
    n = len(moments)
    variance = (n - 1) / n * float(np.sum((without - without.mean()) ** 2))
    return float(slope), float(np.sqrt(variance))


def _with_usual(slope: float, error: float, usual: float, sd: float) -> tuple[float, float]:
    """A slope and its standard error, combined with what slopes usually are."""
    if not np.isfinite(error):
        return usual, sd
    trust = sd**2 / (sd**2 + error**2)
    return usual + trust * (slope - usual), float(np.sqrt(trust)) * error


def _overlap(shares: np.ndarray) -> float:
    """Share of a member's out-of-bag rows that another member has out of bag too, on average."""
    n, own = len(shares), float(np.trace(shares))
    return (float(shares.sum()) - own) / max((n - 1) * own, 1e-300)


def _warn_of_strangers(shares: np.ndarray) -> None:
    """Say so where many members are never judged together, as in a library of fold models."""
    n = len(shares)
    never = (np.count_nonzero(shares <= SMALLEST_SHARE) - np.sum(np.diag(shares) <= 0)) / (
        n * max(n - 1, 1)
    )
    if never > MOST_STRANGERS:
        warn_caller(
            f"{never:.0%} of the pairs of members have no row out of bag together, so how they "
            "vote together is taken from the other pairs; the expected risk may be off. Held-out "
            "rows (evidence='holdout') would tell.",
            UserWarning,
        )


def _matrix(moments: PairMoments, deviation: np.ndarray) -> np.ndarray:
    mean = moments.exchangeable()
    matrix = deviation + mean.pair
    np.fill_diagonal(matrix, np.diag(deviation) + mean.own)
    return matrix


def _folds(risk: PairRisk, n_folds: int, seed: int) -> list[np.ndarray]:
    rows = np.flatnonzero(risk.row_weight > 0)
    rows = np.random.default_rng(seed).permutation(rows)
    affordable = MOST_FOLD_BYTES // (3 * 8 * risk.n_members**2)
    n = int(min(n_folds, max(2, affordable), max(2, len(rows) // 2), len(rows)))
    return [rows[f::n] for f in range(n)]


def _thinned(path: list[PathPoint]) -> list[PathPoint]:
    kept, last = [], 0
    for k, point in enumerate(path, start=1):
        if k <= DENSE_SIZES or k >= GROWTH * last or k == len(path):
            kept.append(point)
            last = k
    return kept


def _say(verbose: int, text: str) -> None:
    if verbose:
        print(f"[selection] {text}", file=sys.stderr, flush=True)
