"""Curves of any shape, for the tests of what is chosen from them."""

from typing import Any

import numpy as np

from sparsebag.judge.curve import RiskCurve


def curve_of(ratio: Any, error: Any = 0.0, **new: Any) -> RiskCurve:
    """A curve whose sizes double; the last is the whole ensemble."""
    ratio = np.asarray(ratio, dtype=float)
    n = len(ratio)
    error = np.broadcast_to(np.asarray(error, dtype=float), n)
    share = 2.0 ** np.arange(1 - n, 1)
    parts = {
        "share": share,
        "n_nodes": 1000 * share,
        "n_members": np.ceil(100 * share),
        "ratio": ratio,
        "error": error,
        "ratio_calibrated": ratio,
        "error_calibrated": error,
        "whole_risk": 0.25,
        "score": "Brier score",
        "judged_by": "rehearsal",
    }
    return RiskCurve(**{**parts, **new})
