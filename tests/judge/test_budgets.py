"""Budgets are kept to, without a warning, or refused where no file is so small."""

import re

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, make_classification
from sklearn.ensemble import BaggingRegressor, RandomForestClassifier, RandomForestRegressor

import sparsebag as sb
from sparsebag.calibration.temperature import Temperature
from sparsebag.deploy.from_members import compile_members
from sparsebag.evidence.from_ensemble import read_ensemble
from toy import CANCER, DIABETES, DIGITS, IRIS

PROBLEMS = {
    "two classes": (RandomForestClassifier(30, random_state=0), CANCER),
    "three classes": (RandomForestClassifier(30, random_state=0), IRIS),
    "regression": (RandomForestRegressor(30, random_state=0), DIABETES),
    "bag": (BaggingRegressor(n_estimators=30, random_state=0), DIABETES),
}


@pytest.fixture(scope="module", params=PROBLEMS)
def problem(request):
    ensemble, (X, y) = PROBLEMS[request.param]
    return ensemble.fit(X, y), X, y


BUDGETS = [
    *({"max_nodes": n} for n in (1, 2, 3, 10, 200, 1e-9, 0.01, 0.3, 1.0)),
    *({"max_estimators": k, "refine": r} for k in (1, 2, 7, 0.01, 0.2) for r in ("auto", None)),
    *({"max_bytes": n} for n in (1000, 2000, 5000, 0.8)),
    {"max_estimators": 4, "max_nodes": 60, "max_bytes": 1500},
]


@pytest.mark.parametrize("how", BUDGETS, ids=str)
def test_budgets_are_kept_to(problem, how, tmp_path):
    ensemble, X, y = problem
    small = sb.compress(ensemble, X, y, **how)
    after, before = small.selection_.after, small.selection_.before

    def most(name, whole):
        allowed = how.get(name, 1.0)
        return allowed if isinstance(allowed, int) else max(1, int(allowed * whole))

    assert 1 <= small.n_nodes_ == after.nodes <= most("max_nodes", before.nodes)
    assert small.n_nodes_ == sum(tree.tree_.node_count for tree in small.estimators_)
    assert 1 <= small.n_active_ == small.compile().n_models <= most("max_estimators", 30)
    small.save(tmp_path / "small.sbag")
    size = (tmp_path / "small.sbag").stat().st_size
    assert size == small.nbytes_ == after.nbytes
    if "max_bytes" in how:
        calibrator = Temperature(1.0) if hasattr(small, "classes_") else None
        uniform = np.full(30, 1 / 30)
        whole = compile_members(read_ensemble(ensemble), uniform, calibrator=calibrator)
        assert size <= most("max_bytes", whole.file_bytes)
    assert np.isfinite(small.predict(X)).all()


def test_every_size_of_a_file_is_kept_to_or_refused(problem):
    ensemble, X, y = problem
    with pytest.raises(ValueError, match="Raise max_bytes") as refused:
        sb.compress(ensemble, X, y, max_bytes=100)
    least = int(re.search(r"smallest has (\d+)", str(refused.value))[1])
    for max_bytes in (least + 10, least + 20, least + 50, least + 100):  # its temperature differs
        assert sb.compress(ensemble, X, y, max_bytes=max_bytes).nbytes_ <= max_bytes


@pytest.mark.parametrize("max_bytes", [100, 0.01])
def test_members_that_are_too_large_are_refused(problem, max_bytes):
    ensemble, X, y = problem
    with pytest.raises(ValueError, match=r"no file of at most \d+ bytes can be made"):
        sb.compress(ensemble, X, y, max_bytes=max_bytes, refine=None)


def test_the_temperature_of_members_is_within_the_budget():
    forest = RandomForestClassifier(30, random_state=0).fit(*CANCER)
    small = sb.compress(forest, *CANCER, refine=None, max_estimators=8)
    again = sb.compress(forest, *CANCER, refine=None, max_bytes=small.nbytes_ - 1)
    assert again.nbytes_ < small.nbytes_


def test_names_of_columns_are_within_the_budget(tmp_path):
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    forest = RandomForestClassifier(30, random_state=0).fit(X, y)
    for refine in ("auto", None):
        small = sb.compress(forest, X, y, max_bytes=2000, refine=refine)
        small.save(tmp_path / "small.sbag")
        assert (tmp_path / "small.sbag").stat().st_size == small.selection_.after.nbytes <= 2000


def test_a_larger_budget_never_expects_to_lose_more(problem):
    ensemble, X, y = problem
    small = sb.compress(ensemble, X, y)
    curve = small.path_
    assert np.all(np.diff(curve.n_nodes) > 0)
    assert np.all(np.diff(curve.ratio[:-1]) <= 1e-12)
    assert np.all(np.diff(curve.ratio_calibrated[:-1]) <= 1e-12)


def test_what_is_expected_is_about_what_comes():
    X, y = DIGITS
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:1000], order[1000:]
    forest = RandomForestClassifier(40, random_state=0).fit(X[train], y[train])
    small = sb.compress(forest, X[train], y[train], max_nodes=0.1)
    truth = np.eye(10)[y[test]]
    loss = [np.sum((m.predict_proba(X[test]) - truth) ** 2, axis=1) for m in (small, forest)]
    assert loss[0].mean() / loss[1].mean() == pytest.approx(small.selection_.ratio, rel=0.25)


def test_a_budget_of_most_nodes_is_spent_unless_the_file_would_grow():
    forest = RandomForestRegressor(30, random_state=0).fit(*DIABETES)
    small = sb.compress(forest, *DIABETES, max_nodes=0.7)
    assert 0.65 < small.n_nodes_ / small.selection_.before.nodes <= 0.7
    how = {"n_classes": 20, "n_informative": 10, "n_clusters_per_class": 1, "random_state": 0}
    X, y = make_classification(600, **how)
    forest = RandomForestClassifier(20, random_state=0).fit(X, y)
    small, uniform = sb.compress(forest, X, y, max_nodes=0.7), np.full(20, 1 / 20)
    whole = compile_members(read_ensemble(forest), uniform, calibrator=Temperature(1.0))
    assert small.nbytes_ <= whole.file_bytes


def test_a_list_of_unlike_trees_is_judged_and_taught_by_all_kinds(monkeypatch):
    monkeypatch.setattr("sparsebag.student.teacher.MOST_TEACHING", 30)
    monkeypatch.setattr("sparsebag.student.teacher.MOST_TREES", 20)
    X, y = DIGITS
    stumps = RandomForestClassifier(60, max_depth=1, random_state=0).fit(X[:500], y[:500])
    deep = RandomForestClassifier(60, random_state=0).fit(X[:500], y[:500])
    scores = []
    for models in (stumps, deep), (deep, stumps):
        trees = [tree for model in models for tree in model.estimators_]
        small = sb.compress(trees, X[500:1200], y[500:1200], evidence="holdout", max_nodes=0.2)
        scores.append(small.score(X[1200:], y[1200:]))
    assert abs(scores[0] - scores[1]) < 0.1  # stumps alone are right on half as many
