"""What a preset and "auto" resolve to; explicit values win."""

import numpy as np
import pytest

import sparsebag as sb
from sparsebag.objective.losses import LogLoss
from sparsebag.settings import (
    DEFAULT_FLOOR,
    DEFAULT_PRIOR_MASS,
    DROP_THRESHOLD,
    Settings,
    check_params,
    resolve_settings,
)
from sparsebag.solvers.slsqp import SLSQP

AUTO = {
    "lam": None,
    "loss": "auto",
    "solver": "auto",
    "floor": "auto",
    "prior_mass": "auto",
    "preset": None,
}


def test_our_defaults():
    assert resolve_settings(**AUTO) == Settings(
        lam=0.0,
        loss="auto",
        solver="auto",
        floor=DEFAULT_FLOOR,
        prior_mass=DEFAULT_PRIOR_MASS,
        drop_threshold=DROP_THRESHOLD,
        evidence_dtype=np.float32,
    )


def test_the_papers():
    assert resolve_settings(**{**AUTO, "preset": "paper"}) == Settings(
        lam=0.05,
        loss="auto",
        solver="slsqp",
        floor=0.0,
        prior_mass=0.0,
        drop_threshold=DROP_THRESHOLD,
        evidence_dtype=np.float64,
        drops_always=True,
    )


def test_auto_lam_selects_by_risk_and_is_the_papers_own_in_its_preset():
    assert resolve_settings(**{**AUTO, "lam": "auto"}).lam is None
    assert resolve_settings(**{**AUTO, "lam": "auto", "preset": "paper"}).lam == 0.05


@pytest.mark.parametrize("preset", [None, "paper"])
@pytest.mark.parametrize(
    "explicit",
    [
        {"lam": 0.2},
        {"loss": LogLoss()},
        {"solver": "active_set"},
        {"solver": SLSQP(max_iter=5)},
        {"floor": 0.3},
        {"prior_mass": 0.5},
        {"floor": 0, "prior_mass": 0},
    ],
    ids=str,
)
def test_explicit_values_win(explicit, preset):
    resolved = resolve_settings(**{**AUTO, "preset": preset, **explicit})
    assert {name: getattr(resolved, name) for name in explicit} == explicit


NO_SIZES = [0, -1, 1.5, 2.0, 0.0, np.nan, np.inf, True, False, "10", [5]]
NO_STRENGTHS = [True, np.nan, -np.inf, -1e-9, "0.1", [], np.array([0.1])]
WRONG = {
    **dict.fromkeys(["max_estimators", "max_nodes", "max_bytes"], NO_SIZES),
    **dict.fromkeys(["lam", "floor", "prior_mass"], NO_STRENGTHS),
    "confidence": [0.4, 1, -1, np.nan, True, "0.9"],
    "rehearsal": [True, 1, 0, "yes", 2.5],
    "refine": ["leaves", True],
    "local": [False, "linear"],
    "preset": ["Paper"],
    "evidence": ["cv", None],
    "n_jobs": [0, "2", 1.5, True],
    "verbose": ["yes", None, -1],
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, vs in WRONG.items() for v in vs])
def test_what_a_parameter_cannot_be_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"The '{name}' parameter of compress must be .* Got "):
        check_params("compress", **{name: value})


@pytest.mark.parametrize(
    "fine",
    [
        {"max_nodes": 0.1, "max_bytes": np.int64(2000), "max_estimators": 1, "lam": "auto"},
        {"n_jobs": -1, "verbose": True, "rehearsal": False, "local": True, "confidence": 0.5},
        {"n_jobs": np.int64(2), "verbose": 2, "rehearsal": 2, "floor": 0, "prior_mass": "auto"},
    ],
)
def test_what_a_parameter_can_be(fine):
    check_params("compress", **fine)


def test_both_faces_check():
    with pytest.raises(ValueError, match="'verbose' parameter of fit_weights must be"):
        sb.fit_weights(np.eye(2), None, [0, 1], verbose="yes")
    with pytest.raises(ValueError, match="'n_jobs' parameter of SparseBaggingRegressor must be"):
        sb.SparseBaggingRegressor(n_jobs=0).fit(np.eye(4), np.arange(4.0))
    with pytest.raises(ValueError, match=r"solver='SLSQP' is not known; use one of \['auto', "):
        resolve_settings(**{**AUTO, "solver": "SLSQP"})
