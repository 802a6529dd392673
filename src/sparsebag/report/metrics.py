"""Scores of predicted probabilities: calibration error, Brier score, log-loss.

Conventions shared by every function here:

- ``p`` is ``(n,)``, the probability of the second class, or ``(n, C)``, one column a class;
- ``labels`` names the columns of ``p`` in order (default: the sorted labels found in ``y``);
- ``sample_weight`` counts rows: weight 2 is the same as the row written twice;
- the predicted class is the most probable one, the first of them on a tie.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sparsebag.evidence.evidence import PROBABILITY_TOLERANCE

__all__ = [
    "ReliabilityCurve",
    "brier_score",
    "expected_calibration_error",
    "log_loss",
    "paper_ece",
    "reliability_curve",
]

Kind = Literal["top-label", "classwise"]
Binning = Literal["width", "mass"]
_Float = NDArray[np.float64]
_Int = NDArray[np.intp]


# eq=False: comparing arrays has no single truth value.
@dataclass(frozen=True, eq=False)
class ReliabilityCurve:
    """The points of a reliability diagram: one entry a non-empty bin, in increasing confidence.

    Attributes
    ----------
    confidence : ndarray of shape (n_nonempty_bins,)
        Mean predicted probability in the bin.
    accuracy : ndarray of shape (n_nonempty_bins,)
        Share of the bin's predictions that came true.
    count : ndarray of shape (n_nonempty_bins,)
        Rows in the bin, or the sum of their weights.
    edges : ndarray of shape (n_nonempty_bins, 2)
        Lower and upper edge of the bin. A bin holds its upper edge and not its lower one,
        save that the first bin also holds 0.

    Examples
    --------
    >>> curve = reliability_curve([0, 1, 1, 1], [0.25, 0.75, 0.75, 0.25], n_bins=2)
    >>> curve.confidence, curve.accuracy
    (array([0.75]), array([0.75]))
    """

    confidence: _Float
    accuracy: _Float
    count: _Float
    edges: _Float


class _Scored(NamedTuple):
    """Validated input: the column of each row's true class, the probabilities, the weights."""

    true: _Int
    p: _Float
    weight: _Float


def expected_calibration_error(
    y: ArrayLike,
    p: ArrayLike,
    *,
    kind: Kind = "top-label",
    binning: Binning = "width",
    n_bins: int = 15,
    debiased: bool = False,
    labels: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Mean absolute gap between stated confidence and observed frequency, over bins (0 to 1).

    Parameters
    ----------
    y : array-like of shape (n,)
        True labels.
    p : array-like of shape (n,) or (n, C)
        Probability of the second class, or of every class.
    kind : {"top-label", "classwise"}
        "top-label" bins the largest probability against whether that class is right [1]_.
        "classwise" is the mean over classes of the binary error of that class's column [2]_ [3]_.
    binning : {"width", "mass"}
        Bins of equal width, or of equal numbers of rows. Tied confidences share a bin, so
        equal-mass bins may be uneven or fewer than ``n_bins``.
    n_bins : int
    debiased : bool
        Chance alone gives a perfect predictor a positive error. If true, subtract from each bin
        the Gaussian estimate of that bias [4]_,
        ``E|N(acc, acc (1 - acc) / count) - conf| - |acc - conf|``, in closed form (the mean of a
        folded normal), and clip the result at 0. It reduces the bias and does not end it:
        a perfect predictor keeps 2 - sqrt(2) = 59 % of its plain error.
    labels : array-like of shape (C,), optional
        Classes in the order of the columns of ``p``.
    sample_weight : array-like of shape (n,), optional
        Row counts; ``debiased`` depends on their scale.

    Returns
    -------
    float

    References
    ----------
    .. [1] Guo et al., "On calibration of modern neural networks", ICML 2017.
    .. [2] Kull et al., "Beyond temperature scaling", NeurIPS 2019.
    .. [3] Nixon et al., "Measuring calibration in deep learning", CVPR workshops 2019.
    .. [4] Kumar, Liang and Ma, "Verified uncertainty calibration", NeurIPS 2019; the authors'
       package ``uncertainty-calibration`` resamples the same Gaussian for the L1 error.

    Examples
    --------
    >>> expected_calibration_error(["no", "yes", "yes"], [0.25, 0.75, 0.75])
    0.25
    """
    scored = _validate(y, p, labels, sample_weight)
    gaps = []
    for confidence, correct in _binary_views(scored, kind):
        edges = _edges(confidence, scored.weight, binning, n_bins)
        gaps.append(_mean_gap(_bin(confidence, correct, scored.weight, edges), debiased))
    # Clipping once, after the mean over classes, leaves less bias than clipping each class.
    return max(0.0, float(np.mean(gaps)))


def reliability_curve(
    y: ArrayLike,
    p: ArrayLike,
    *,
    kind: Kind = "top-label",
    binning: Binning = "width",
    n_bins: int = 15,
    labels: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> ReliabilityCurve:
    """Observed frequency against stated confidence, one point a non-empty bin.

    Parameters
    ----------
    y, p, binning, n_bins, labels, sample_weight
        As in `expected_calibration_error`.
    kind : {"top-label", "classwise"}
        "top-label" has one prediction a row, and its gaps average to the top-label error.
        "classwise" pools the C predictions of every row into one curve, so that over- and
        under-confident classes may cancel: its gaps average to at most the classwise error
        of equal-width bins.

    Returns
    -------
    ReliabilityCurve

    Examples
    --------
    >>> curve = reliability_curve(["a", "b", "b"], [0.1, 0.9, 0.6], n_bins=2)
    >>> curve.count, curve.edges
    (array([3.]), array([[0.5, 1. ]]))
    """
    scored = _validate(y, p, labels, sample_weight)
    views = list(_binary_views(scored, kind))
    confidence = np.concatenate([view[0] for view in views])
    correct = np.concatenate([view[1] for view in views])
    weight = np.tile(scored.weight, len(views))
    return _bin(confidence, correct, weight, _edges(confidence, weight, binning, n_bins))


def brier_score(
    y: ArrayLike,
    p: ArrayLike,
    *,
    labels: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Mean over rows of ``sum_c (p_c - 1[y = c])**2``, between 0 and 2.

    This is Brier's own definition, the same for two classes and for many. With two classes it is
    twice what `sklearn.metrics.brier_score_loss` returns by default.

    Parameters
    ----------
    y, p, labels, sample_weight
        As in `expected_calibration_error`.

    Returns
    -------
    float

    Examples
    --------
    >>> brier_score([0, 1], [0.0, 0.5])
    0.25
    """
    scored = _validate(y, p, labels, sample_weight)
    residual = scored.p.copy()
    residual[np.arange(len(residual)), scored.true] -= 1.0
    return float(np.average(np.square(residual).sum(axis=1), weights=scored.weight))


def log_loss(
    y: ArrayLike,
    p: ArrayLike,
    *,
    clip: float = 1e-15,
    labels: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Mean over rows of ``-log(max(p_true, clip))``, in nats.

    Only the true class's probability is clipped, and the row is not renormalised, so one row costs
    at most ``-log(clip)``: 34.5 nats at 1e-15. `sklearn.metrics.log_loss` clips at 2.2e-16
    (36.0 nats); the two agree where no true class has a probability below 1e-15.

    Parameters
    ----------
    y, p, labels, sample_weight
        As in `expected_calibration_error`.
    clip : float
        Smallest probability of the true class, between 0 and 1, both excluded.

    Returns
    -------
    float

    Examples
    --------
    >>> round(log_loss([0, 1], [0.5, 0.5]), 4)
    0.6931
    """
    if not 0.0 < clip < 1.0:
        raise ValueError(f"clip must lie strictly between 0 and 1; got {clip}; try clip=1e-15.")
    scored = _validate(y, p, labels, sample_weight)
    p_true = scored.p[np.arange(len(scored.p)), scored.true]
    return float(np.average(-np.log(np.maximum(p_true, clip)), weights=scored.weight))


def paper_ece(
    y: ArrayLike, p: ArrayLike, *, n_bins: int = 10, labels: ArrayLike | None = None
) -> float:
    """Give what the SCSB paper's code prints as "ECE", to compare with its tables and no more.

    With two classes the code bins P(second class) but compares its mean in each bin with the
    accuracy of the *predicted label*. A confident, correct "first class" (P near 0, accuracy near
    1) then counts as an error of almost 1, so a perfect predictor scores the share of the first
    class, and every model scores 0.52 or more on spambase. It is not a calibration error: use
    `expected_calibration_error`. With more classes it is the ordinary top-label error.

    The bins are ten of equal width, each holding its lower edge (the last one also holds 1), and
    P = 0.5 predicts the second class: inferred by matching the values the paper's code gave.

    Parameters
    ----------
    y, p, labels
        As in `expected_calibration_error`.
    n_bins : int
        Number of equal-width bins; the paper's is 10.

    Returns
    -------
    float

    Examples
    --------
    A perfect predictor, with three rows of four in the first class:

    >>> paper_ece([0, 0, 0, 1], [0.0, 0.0, 0.0, 1.0])
    0.75
    """
    scored = _validate(y, p, labels, None)
    if scored.p.shape[1] == 2:
        confidence = scored.p[:, 1]
        correct = (confidence >= 0.5) == (scored.true == 1)
    else:
        confidence, correct = next(_binary_views(scored, "top-label"))
    edges = _edges(confidence, scored.weight, "width", n_bins)
    curve = _bin(confidence, correct, scored.weight, edges, closed="lower")
    return _mean_gap(curve, debiased=False)


def _binary_views(scored: _Scored, kind: Kind) -> Iterator[tuple[_Float, NDArray[np.bool_]]]:
    """Yield (confidence, correct) for each binary question that `kind` asks of the rows."""
    if kind == "top-label":
        predicted = scored.p.argmax(axis=1)
        yield scored.p.max(axis=1), predicted == scored.true
    elif kind == "classwise":
        for c in range(scored.p.shape[1]):
            yield scored.p[:, c], scored.true == c
    else:
        raise ValueError(f"kind must be 'top-label' or 'classwise'; got {kind!r}.")


def _edges(confidence: _Float, weight: _Float, binning: Binning, n_bins: int) -> _Float:
    """Increasing bin edges from 0 to 1; equal-mass ones depend on the weighted ECDF alone."""
    if not isinstance(n_bins, (int, np.integer)) or n_bins < 1:
        raise ValueError(f"n_bins must be an integer of at least 1; got {n_bins!r}.")
    if binning == "width":
        return np.linspace(0.0, 1.0, n_bins + 1)
    if binning != "mass":
        raise ValueError(f"binning must be 'width' or 'mass'; got {binning!r}.")
    order = np.argsort(confidence, kind="stable")
    mass = np.cumsum(weight[order])
    # k-th inner edge: the smallest x with F(x) >= k / n_bins, compared without dividing, so that
    # integer weights are exact and equal to repeated rows.
    inner = np.searchsorted(mass * n_bins, mass[-1] * np.arange(1, n_bins))
    return np.concatenate([[0.0], np.unique(confidence[order[inner]]), [1.0]])


def _bin(
    confidence: _Float,
    correct: NDArray[np.bool_],
    weight: _Float,
    edges: _Float,
    closed: Literal["lower", "upper"] = "upper",
) -> ReliabilityCurve:
    side: Literal["left", "right"] = "left" if closed == "upper" else "right"
    index = np.searchsorted(edges[1:-1], confidence, side=side)
    size = len(edges) - 1
    count: _Float = np.bincount(index, weight, size).astype(np.float64)
    kept = count > 0
    return ReliabilityCurve(
        confidence=np.bincount(index, weight * confidence, size)[kept] / count[kept],
        accuracy=np.bincount(index, weight * correct, size)[kept] / count[kept],
        count=count[kept],
        edges=np.column_stack([edges[:-1], edges[1:]])[kept],
    )


def _mean_gap(curve: ReliabilityCurve, debiased: bool) -> float:
    gap = np.abs(curve.accuracy - curve.confidence)
    if debiased:
        # Rounding can put a weighted accuracy at 1 + 1e-16.
        variance = np.maximum(curve.accuracy * (1.0 - curve.accuracy), 0.0) / curve.count
        gap = gap - (_folded_normal_mean(gap, np.sqrt(variance)) - gap)
    return float(np.average(gap, weights=curve.count))


def _folded_normal_mean(mean: _Float, sd: _Float) -> _Float:
    """E|N(m, s^2)| = s sqrt(2/pi) exp(-m^2 / 2s^2) + m erf(m / (s sqrt 2)), and |m| at s = 0."""
    z = np.divide(mean, sd * math.sqrt(2.0), out=np.full_like(mean, np.inf), where=sd > 0)
    erf = np.array([math.erf(v) for v in z])
    folded: _Float = sd * math.sqrt(2.0 / math.pi) * np.exp(-np.square(z)) + mean * erf
    return folded


def _validate(
    y: ArrayLike, p: ArrayLike, labels: ArrayLike | None, sample_weight: ArrayLike | None
) -> _Scored:
    y, p = np.asarray(y), np.asarray(p, dtype=np.float64)
    if y.ndim != 1 or p.ndim not in (1, 2) or len(y) != len(p) or len(y) == 0:
        raise ValueError(
            f"y has shape {y.shape} and p has shape {p.shape}; expected (n,) and (n,) or (n, C) "
            "with the same n of at least 1; pass one label and one row of probabilities per row."
        )
    # Written so that NaN fails it too.
    if not np.all((p >= -PROBABILITY_TOLERANCE) & (p <= 1.0 + PROBABILITY_TOLERANCE)):
        raise ValueError(
            "p has values that are NaN or outside [0, 1]; expected probabilities; "
            "pass the output of predict_proba, not scores or logits."
        )
    if p.ndim == 1:
        p = np.column_stack([1.0 - p, p])
    worst = float(np.abs(p.sum(axis=1) - 1.0).max())
    if worst > PROBABILITY_TOLERANCE:
        raise ValueError(
            f"The rows of p must sum to 1; one is off by {worst:.3g}; "
            "divide each row by its sum, or pass the second class's probability alone as (n,)."
        )
    return _Scored(
        _columns_of(y, labels, p.shape[1]), np.clip(p, 0.0, 1.0), _weights(sample_weight, len(y))
    )


def _columns_of(y: NDArray[np.generic], labels: ArrayLike | None, n_columns: int) -> _Int:
    """Map each label to its column of p."""
    found, inverse = np.unique(y, return_inverse=True)
    names = (found if labels is None else np.asarray(labels)).ravel().tolist()
    column = {name: c for c, name in enumerate(names)}
    if len(column) != n_columns or len(names) != n_columns:
        source = "y" if labels is None else "labels"
        raise ValueError(
            f"{source} names {len(column)} distinct classes but p gives probabilities for "
            f"{n_columns}; pass labels= with one distinct class for each column of p, in order."
        )
    unknown = [name for name in found.tolist() if name not in column]
    if unknown:
        raise ValueError(
            f"y has classes that labels does not name: {unknown[:5]}; "
            "pass labels= with every class of y, in the order of p's columns."
        )
    return np.array([column[name] for name in found.tolist()], dtype=np.intp)[inverse]


def _weights(sample_weight: ArrayLike | None, n: int) -> _Float:
    if sample_weight is None:
        return np.ones(n)
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (n,) or not np.all((weight >= 0) & (weight < np.inf)) or not weight.any():
        expected = f"{n} finite numbers, none negative and not all 0, one for each row of p"
        raise ValueError(f"sample_weight of shape {weight.shape} was passed; expected {expected}.")
    return weight
