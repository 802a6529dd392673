"""The before/after table: its figures are scikit-learn's, and it is written whole or not at all."""

import pickle
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingClassifier,
)
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import accuracy_score, log_loss, mean_squared_error, r2_score
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from sparsebag import CompressionReport, compress
from sparsebag.report import compression_report, metrics

N = 40


@pytest.fixture(scope="module")
def classification():
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    X, X_test, y, y_test = train_test_split(X, names, random_state=0)
    # Leaves of five rows hold no zero probabilities where it matters, so no clip is compared.
    forest = RandomForestClassifier(N, min_samples_leaf=5, random_state=0).fit(X, y)
    small = compress(forest, X, y)
    return forest, small, X_test, y_test, small.report(X_test, y_test)


def one_hot(y, classes):
    return (np.asarray(y)[:, None] == classes).astype(float)


def expected_scores(y, proba, classes):
    return {
        "log-loss": log_loss(y, proba, labels=classes),
        "ECE": metrics.expected_calibration_error(y, proba, labels=classes),
        "Brier": np.mean(np.sum((proba - one_hot(y, classes)) ** 2, axis=1)),
        "accuracy": accuracy_score(y, classes[proba.argmax(axis=1)]),
    }


def test_rows_are_the_ensemble_and_the_compressed_estimator(classification):
    forest, small, X, y, report = classification
    full, sparse, *_ = report.rows.values()
    assert list(report.rows)[:2] == [f"full ensemble ({N})", f"sparsebag ({small.n_active_})"]
    for row, model, trees in ((full, forest, forest), (sparse, small, small.estimators_)):
        for name, value in expected_scores(y, model.predict_proba(X), model.classes_).items():
            assert row[name] == pytest.approx(value, abs=1e-9), name
        assert row["accuracy"] == model.score(X, y)
        assert row["members"] == len(trees)
        assert row["nodes"] == sum(tree.tree_.node_count for tree in trees)
    assert full["pickled (kB)"] == pytest.approx(len(pickle.dumps(list(forest), protocol=5)) / 1000)
    assert full["ms / 1000 rows"] > 0
    assert full["ms, compiled"] > 0
    assert 0 < full["file (kB)"] < full["pickled (kB)"]


def test_the_random_row_is_the_mean_over_draws_of_as_many_members(classification):
    forest, small, X, y, report = classification
    k = small.n_active_
    losses = []
    for seed in range(compression_report.RANDOM_DRAWS):
        drawn = np.random.default_rng(seed).choice(N, k, replace=False)
        votes = np.mean([forest.estimators_[j].predict_proba(X) for j in drawn], axis=0)
        floored = 0.999 * votes + 0.001 / 3
        losses.append(log_loss(y, floored, labels=forest.classes_))
    row = report.rows[f"random ({k})"]
    assert row["members"] == k
    assert row["log-loss"] == pytest.approx(np.mean(losses), abs=1e-9)


@pytest.mark.parametrize(
    "ensemble",
    [
        RandomForestRegressor(N, random_state=0),
        BaggingRegressor(LinearRegression(), n_estimators=N, random_state=0),
    ],
    ids=["trees", "linear models"],
)
def test_regression_figures(ensemble):
    X, X_test, y, y_test = train_test_split(*load_diabetes(return_X_y=True), random_state=0)
    small = compress(ensemble.fit(X, y), X, y)
    report = small.report(X_test, y_test)
    full, sparse, *_ = report.rows.values()
    for row, model in ((full, ensemble), (sparse, small)):
        predicted = model.predict(X_test)
        assert row["MSE"] == pytest.approx(mean_squared_error(y_test, predicted))
        assert row["R²"] == pytest.approx(r2_score(y_test, predicted))
    assert ("nodes" in report.columns) == isinstance(ensemble, RandomForestRegressor)


def test_a_voters_own_weights_are_its_before():
    X, X_test, y, y_test = train_test_split(*load_breast_cancer(return_X_y=True), random_state=0)
    members = [("nb", GaussianNB()), ("out", "drop"), ("tree", DecisionTreeClassifier(max_depth=3))]
    voter = VotingClassifier(members, voting="soft", weights=[3, 9, 1]).fit(X, y)
    small = compress(voter, X_test, y_test, evidence="holdout")
    full = next(iter(small.report(X_test, y_test).rows.values()))
    assert full["log-loss"] == pytest.approx(log_loss(y_test, voter.predict_proba(X_test)))


def test_frame_and_markdown_hold_the_same_figures(classification):
    *_, report = classification
    frame = report.to_frame()
    assert list(frame.index) == list(report.rows)
    assert list(frame.columns) == report.columns
    assert_allclose(frame.to_numpy(), [list(row.values()) for row in report.rows.values()])
    lines = report.to_markdown().split("\n\n")[0].splitlines()
    assert len(lines) == 2 + len(report.rows)
    assert len({len(line) for line in lines}) == 1, "columns are aligned"
    assert [cell.strip() for cell in lines[0].strip("|").split("|")] == ["", *report.columns]


def test_speed_is_also_compared_with_the_whole_ensemble_compiled():
    full = {"members": 1500.0, "ms / 1000 rows": 43.2, "ms, compiled": 2.25}
    small = {"members": 30.0, "ms / 1000 rows": 0.09, "ms, compiled": 0.09}
    report = CompressionReport({"full (1500)": full, "sparsebag (30)": small}, n_rows=9)
    assert "480x faster (25x against the full ensemble compiled)" in report.sentence()


def test_the_headline_says_what_was_kept(classification):
    _, small, _, y, report = classification
    assert report.headline() == f"{small.n_active_} of {N} members kept"
    assert str(report).startswith(f"{report.headline()} ({len(y)} test rows)\n\n")
    assert max(map(len, str(report).splitlines())) <= 80, "fits a terminal"


@pytest.mark.parametrize(
    ("package", "form", "message"),
    [
        ("pandas", "to_frame", "to_frame needs pandas; install it, or use to_markdown"),
        ("jinja2", "to_html", r"needs jinja2; run: pip install 'sparsebag\[report\]'"),
    ],
)
def test_what_is_not_installed_is_named(package, form, message, classification, monkeypatch):
    *_, report = classification
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=message):
        getattr(report, form)()
    assert (report._repr_html_() is None) == (package == "jinja2")  # a notebook shows the text
    assert "full ensemble" in str(report)


@pytest.mark.parametrize("name", ["report.html", "report.md", "REPORT.HTML", "of.two.dots.md"])
def test_save(name, classification, tmp_path):
    *_, report = classification
    report.save(tmp_path / name)
    text = report.to_html() if name.lower().endswith("html") else report.to_markdown()
    assert (tmp_path / name).read_text(encoding="utf-8") == text + "\n"
    report.save(str(tmp_path / name))  # again, by name
    for other in ("report.pdf", "report", ".html"):
        with pytest.raises(ValueError, match=r"cannot write a report to '.*'; use \.html or \.md"):
            report.save(tmp_path / other)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_linear_regressors_are_reported_as_one():
    X, X_test, y, y_test = train_test_split(*load_diabetes(return_X_y=True), random_state=0)
    bag = BaggingRegressor(LinearRegression(), 20, max_features=0.5, random_state=0).fit(X, y)
    small = compress(bag, X, y)
    report = small.report(X_test, y_test)
    assert small.n_active_ > 1
    assert small.compile().n_models == 1
    assert small.compile().groups[0].coef.shape == (10, 1)
    assert "collapsed into 1" in repr(small.compile())
    assert report.headline() == "20 members collapsed into one linear model"
    assert [row["members"] for row in report.rows.values()][:2] == [20, 1]
    for text in (str(report), report.to_markdown(), report.to_html()):
        assert "weighted average is one linear regressor, exactly" in text
    # exactly: the vote of the members, one by one
    assert_allclose(small.predict(X_test), small._vote.predict(X_test), rtol=1e-12)


def test_what_is_no_regressor_and_no_tree_is_not_reported_as_one(tmp_path):
    X, y = load_breast_cancer(return_X_y=True)
    members = [("tree", DecisionTreeClassifier(max_depth=3)), ("nb", GaussianNB())]
    voter = VotingClassifier(members, voting="soft").fit(X[::2], y[::2])
    small = compress(voter, X[1::2], y[1::2], evidence="holdout", max_estimators=1)
    report = small.report(X[1::2], y[1::2])
    assert "nodes" not in str(report)
    assert {len(row) for row in report.rows.values()} == {len(report.columns)}
    report.save(tmp_path / "report.html")
    X, y = load_iris(return_X_y=True)
    bag = BaggingClassifier(LogisticRegression(max_iter=1000), 30, random_state=0).fit(X, y)
    small = compress(bag, X, y, lam=0.0)
    assert small.compile().n_models == small.n_active_
    assert "collapsed" not in str(small.report(X, y))
