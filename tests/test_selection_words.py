"""`selection_`, `path_` and files: what is printed fits a screen, what is saved is the model."""

import os

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression

import sparsebag as sb
from sparsebag.deploy.from_members import compile_members
from sparsebag.evidence.from_ensemble import read_ensemble

IRIS = load_iris(return_X_y=True)
CANCER = load_breast_cancer(return_X_y=True)
DIABETES = load_diabetes(return_X_y=True)
DIGITS = load_digits(return_X_y=True)
GAPS = np.where(np.random.default_rng(0).random(CANCER[0].shape) < 0.1, np.nan, CANCER[0])
FORESTS = {
    "two classes": (RandomForestClassifier(30, random_state=0), CANCER),
    "ten classes": (RandomForestClassifier(20, random_state=0), (DIGITS[0][:600], DIGITS[1][:600])),
    "regression": (RandomForestRegressor(30, random_state=0), DIABETES),
    "missing values": (RandomForestClassifier(30, random_state=0), (GAPS, CANCER[1])),
    "small": (RandomForestClassifier(30, random_state=0), IRIS),
}
CALLS = [
    {},
    {"tolerance": 0.0},
    {"tolerance": 0.5, "confidence": 0.95},
    {"max_nodes": 0.05},
    {"max_nodes": 3},
    {"max_estimators": 5, "max_nodes": 300, "max_bytes": 50_000},
    {"max_bytes": 2000},
    {"rehearsal": False},
    {"refine": None},
    {"calibration": None},
    {"lam": 0.05},
]


@pytest.fixture(scope="module", params=FORESTS)
def problem(request):
    ensemble, (X, y) = FORESTS[request.param]
    return ensemble.fit(X, y), X, y


def fits_a_screen(text):
    lines = text.splitlines()
    assert len(lines) <= 8
    assert max(map(len, lines)) < 90  # none ends in the middle of a word because of its length
    assert all(line == line.rstrip() for line in lines)
    assert "nan" not in text.replace("finance", "")
    return lines


@pytest.mark.parametrize("how", CALLS, ids=str)
def test_what_was_chosen_fits_a_screen(problem, how):
    small = sb.compress(*problem, **how)
    lines = fits_a_screen(str(small.selection_))
    heads = [line.split()[0] for line in lines]
    assert heads[0] == "trees"
    assert {"file", "quality", "method"} <= set(heads)
    assert ("next" in heads) == (small.path_ is not None)  # a size was chosen from others
    assert "max_nodes=" not in lines[-1]  # the model may be smaller than any size named there


@pytest.mark.filterwarnings("ignore::sparsebag.UncoveredRowsWarning")
def test_of_members_that_are_no_trees():
    bag = BaggingClassifier(LogisticRegression(C=0.1), 20, random_state=0).fit(*IRIS)
    text = str(sb.compress(bag, *IRIS).selection_)
    lines = fits_a_screen(text)
    assert lines[0].startswith("members  20 → ")
    assert "nodes" not in text  # there are none, so none are spoken of
    assert "0 bytes" not in text


@pytest.mark.parametrize("how", [{}, {"refine": None}], ids=str)
def test_weights_are_told_of(how):
    forest = RandomForestClassifier(30, max_depth=4, class_weight="balanced", random_state=0)
    small = sb.compress(forest.fit(*CANCER), *CANCER, **how)
    line = fits_a_screen(str(small.selection_))[4]
    assert line.startswith("quality  class-weighted Brier score ")
    assert line.endswith("%)")
    weight = np.where(CANCER[1] == 1, 5.0, 1.0)
    forest = RandomForestClassifier(30, random_state=0).fit(*CANCER, sample_weight=weight)
    small = sb.compress(forest, *CANCER, sample_weight=weight, **how)
    assert small.path_.score == "weighted Brier score"


@pytest.mark.parametrize("how", [{}, {"rehearsal": 2}, {"refine": None}], ids=str)
@pytest.mark.parametrize("budget", [{"max_nodes": 0.2}, {"max_nodes": 0.0125}, {}])
def test_no_size_is_shown_twice(problem, how, budget):
    if how == {"refine": None} and budget == {"max_nodes": 0.0125}:
        pytest.skip("no whole tree is that small")
    lines = str(sb.compress(*problem, **how, **budget).path_).splitlines()
    sizes = [line.split()[0] for line in lines]
    assert len(set(sizes)) == len(sizes), lines


@pytest.mark.parametrize("how", [{"tolerance": 0.01}, {"confidence": 0.95}], ids=str)
def test_what_nothing_judges_cannot_be_promised(problem, how):
    said = f"{next(iter(how))}= .*need a rehearsal, .* leave rehearsal at 'auto', or name a budget"
    with pytest.raises(ValueError, match=said):
        sb.compress(*problem, rehearsal=False, **how)
    sb.compress(*problem, rehearsal=False, refine=None, **how)  # out-of-bag rows judge


@pytest.mark.parametrize("how", [{}, {"max_nodes": 0.05}, {"refine": None}], ids=str)
def test_the_path_is_a_table_and_a_picture(problem, how):
    small = sb.compress(*problem, **how)
    frame = small.path_.to_frame()
    assert len(frame) == len(small.path_)
    assert np.all(np.diff(frame["share"]) >= 0)
    assert frame["share"].iloc[-1] == 1.0
    assert np.all(np.isfinite(frame.to_numpy(dtype=float)))
    html = small.path_._repr_html_()
    assert html.startswith("<svg")
    assert "nan" not in html
    assert small.selection_.curve is small.path_


@pytest.mark.parametrize("how", [{}, {"max_nodes": 0.1}, {"max_nodes": 1}], ids=str)
def test_a_file_predicts_bit_for_bit(problem, how, tmp_path):
    ensemble, X, y = problem
    small = sb.compress(ensemble, X, y, **how)
    path = tmp_path / "small.sbag"
    small.save(path)
    assert os.path.getsize(path) == small.nbytes_
    loaded = sb.load(path)
    assert_array_equal(loaded.predict(X), small.predict(X))
    if hasattr(small, "classes_"):
        assert_array_equal(loaded.predict_proba(X), small.predict_proba(X))
        assert_array_equal(loaded.predict_proba_one(X[3]), small.predict_proba(X[3:4])[0])


def test_a_file_is_never_larger_than_the_whole_ensembles(problem):
    ensemble, X, y = problem
    pool = read_ensemble(ensemble)
    n = len(pool.members)
    for calibrated in (None, "auto"):
        small = sb.compress(ensemble, X, y, calibration=calibrated)
        calibrator = None if small.calibration_ is None else small.calibration_.calibrator
        whole = compile_members(pool, np.full(n, 1.0 / n), small.compile().floor, calibrator)
        assert small.nbytes_ <= whole.file_bytes
