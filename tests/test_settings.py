"""What a preset and "auto" resolve to; explicit values win."""

from __future__ import annotations

import numpy as np
import pytest

import sparsebag as sb
from sparsebag.objective.losses import LogLoss
from sparsebag.settings import (
    DEFAULT_FLOOR,
    DEFAULT_PRIOR_MASS,
    DROP_THRESHOLD,
    Settings,
    check_n_jobs,
    check_verbose,
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


@pytest.mark.parametrize("lam", [0, 1, np.float32(0.5), np.int64(2), np.float64(0.1)])
def test_any_number_is_a_number(lam):
    resolved = resolve_settings(**{**AUTO, "lam": lam})
    assert resolved.lam == lam
    assert type(resolved.lam) is float


@pytest.mark.parametrize("value", [True, np.nan, -np.inf, -1e-9, "0.1", [], np.array([0.1])])
@pytest.mark.parametrize("name", ["lam", "floor", "prior_mass"])
def test_what_is_no_usable_number_is_refused_by_name(name, value):
    wanted = "'auto' or a finite number" if name == "lam" else "a finite number"
    with pytest.raises(ValueError, match=rf"^{name}( must be {wanted}|='0.1' is not known)"):
        resolve_settings(**{**AUTO, name: value})


def test_unknown_names():
    with pytest.raises(ValueError, match="preset='Paper' is not known; use None or 'paper'"):
        resolve_settings(**{**AUTO, "preset": "Paper"})
    with pytest.raises(ValueError, match=r"solver='SLSQP' is not known; use one of \['auto', "):
        resolve_settings(**{**AUTO, "solver": "SLSQP"})


def test_verbosity_is_a_whole_number():
    for fine in (0, 1, 2, True, np.int64(1)):
        check_verbose(fine)
    for wrong in ("yes", None, -1, 0.5):
        with pytest.raises(ValueError, match=r"verbose must be 0 \(silent\), 1 .* or 2 .*, got "):
            check_verbose(wrong)
    with pytest.raises(ValueError, match="got 'yes'"):
        sb.fit_weights(np.eye(2), None, [0, 1], verbose="yes")
    with pytest.raises(ValueError, match="got 'yes'"):
        sb.SparseBaggingRegressor(verbose="yes").fit(np.eye(4), np.arange(4.0))


def test_threads_are_none_or_a_number_that_is_not_zero():
    for fine in (None, 1, -1, np.int64(2)):
        check_n_jobs(fine)
    for wrong in (0, "2", 1.5, True):
        with pytest.raises(ValueError, match=r"n_jobs must be None, a number of threads, or -1"):
            check_n_jobs(wrong)
    with pytest.raises(ValueError, match=r"n_jobs must be .*, got 0"):
        sb.SparseBaggingRegressor(n_jobs=0).fit(np.eye(4), np.arange(4.0))
