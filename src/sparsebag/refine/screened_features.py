"""Which of very many features a shallow tree is grown on.

A tree looks at every feature at every node, for every output. Of thousands of features most have
nothing to say, and one matrix product tells which: the sums of the signal in a few bins of each.
"""

from __future__ import annotations

import numpy as np

MOST_FEATURES = 128
"""A tree is grown on all of so few features."""
CUTS = 7
"""Places a split is looked for at, with equal shares of the rows between them."""
ROWS_TO_CUT = 256
"""Rows that say where these places are."""
MOST_ELEMENTS = 2**24
"""Numbers of a table that are looked at together."""
LEAST_SHARE = 1e-6
"""Of the weight on one side: less is rounding."""


def screened(
    features: np.ndarray, signal: np.ndarray, weight: np.ndarray, most: int = MOST_FEATURES
) -> np.ndarray:
    """The features along which one split takes most off the signal's variance.

    Parameters
    ----------
    features : float ndarray of shape (R, d)
        Unknown ones are NaN, and count as very small.
    signal : ndarray of shape (R, outputs)
    weight : ndarray of shape (R,)
    most : int, default MOST_FEATURES
        How many to keep.

    Returns
    -------
    int ndarray
        Their positions, rising; all of them where they are no more than ``most``.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 50))
    >>> screened(X, np.sign(X[:, [7]] - 0.5) + np.sign(X[:, [30]]), np.ones(200), most=2).tolist()
    [7, 30]
    """
    d = features.shape[1]
    if d <= most:
        return np.arange(d)
    total = weight.sum()
    summed = np.hstack([weight[:, None] * (signal - weight @ signal / total), weight[:, None]])
    step = max(1, MOST_ELEMENTS // len(features))
    parts = [features[:, first : first + step] for first in range(0, d, step)]
    gains = np.concatenate([_gains(part, summed / total) for part in parts])
    return np.sort(np.argsort(-gains, kind="stable")[:most])


def _gains(features: np.ndarray, summed: np.ndarray) -> np.ndarray:
    """What each feature's best split takes off; ``summed`` are the signal and the weights."""
    with np.errstate(over="ignore"):  # beyond float32 is infinite, as it is to a tree
        known = np.where(np.isnan(features), -np.inf, features).astype(np.float32)
    cuts, on_a_value = _cuts(known[:: -(-len(known) // ROWS_TO_CUT)])
    gains = np.zeros(features.shape[1])
    for cut in cuts:
        gains = np.maximum(gains, _taken_off(known > cut, summed))
    # A value that many rows share has two sides: of a column of zeros and ones, in which ones are
    # most, every cut is one, and nothing is above it.
    shared = np.flatnonzero(on_a_value)
    if len(shared):
        known = known[:, shared]
        for cut in cuts[:, shared]:
            gains[shared] = np.maximum(gains[shared], _taken_off(known >= cut, summed))
    return gains


def _cuts(some: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where to cut each column, and the columns in which a cut may be a value, not between two.

    The same places from above and from below: a feature and its negative are one feature.
    """
    shares = np.arange(1, CUTS + 1) / (CUTS + 1)
    below, above = (np.quantile(some, shares, axis=0, method=m) for m in ("lower", "higher"))
    with np.errstate(invalid="ignore"):
        between = below / 2 + above / 2
    cuts = np.where(np.isfinite(between), between, below)
    return cuts, ((cuts == below) | (cuts == above)).any(axis=0)


def _taken_off(right: np.ndarray, summed: np.ndarray) -> np.ndarray:
    """S²/W of both sides, by feature: all that a split takes off a signal with mean zero."""
    total, addends = summed.sum(axis=0), summed.T.astype(np.float32)
    above = np.asarray(addends @ right.astype(np.float32), dtype=np.float64)
    gain = np.zeros(right.shape[1])
    for side in (above, total[:, None] - above):
        share = side[-1]
        gain += np.sum(side[:-1] ** 2, axis=0) / np.where(share > LEAST_SHARE, share, np.inf)
    return gain
