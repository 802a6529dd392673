"""The paper benchmark: methods, scores, its problem in NumPy, every row once by one source."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import sklearn
from benchmarks.datasets import PAPER, Dataset
from benchmarks.methods import METHODS, Model, xgboost
from benchmarks.paper_experiments import FLOOR, PaperProblem
from benchmarks.problem import N_MEMBERS, Problem, bag_of, make_problem, member
from benchmarks.results_store import ResultsStore
from benchmarks.scoring import figures_on_test_rows, score
from sklearn.datasets import load_diabetes, load_iris, make_classification, make_regression
from sklearn.metrics import accuracy_score, log_loss, mean_squared_error, r2_score
from sklearn.model_selection import train_test_split

import sparsebag as sb
from benchmarks import paper

IRIS = Dataset("tiny_iris", "classification", lambda: load_iris(return_X_y=True))
DIABETES = Dataset("tiny_diabetes", "regression", lambda: load_diabetes(return_X_y=True))
TASKS = ["classification", "regression"]
# Data set, base, method, score, what the authors' code gave, its survivors.
RECORDED = [
    ("breast_cancer", "DecisionTree", "uniform", "log_loss", "0.112532", 100),
    ("breast_cancer", "DecisionTree", "lasso_pruned", "log_loss", "0.105782", 53),
    ("breast_cancer", "none", "xgboost", "log_loss", "0.080558", 100),
    ("diabetes_reg", "DecisionTree", "lasso_pruned", "mse", "2998.13", 53),
    ("diabetes_reg", "Ridge", "lasso_pruned", "mse", "3123.13", 39),
    ("diabetes_reg", "none", "xgboost", "mse", "3513.66", 100),
]

cached_problem = cache(make_problem)


def problem(task="classification"):
    return cached_problem(IRIS if task == "classification" else DIABETES, "DecisionTree", 42)


@pytest.mark.skipif(not sklearn.__version__.startswith("1.9."), reason="recorded with sklearn 1.9")
@pytest.mark.parametrize(("dataset", "base", "method", "column", "figure", "survivors"), RECORDED)
def test_the_protocol_gives_the_figures_of_the_authors_code(
    dataset, base, method, column, figure, survivors
):
    if method == "xgboost" and xgboost is None:
        pytest.skip("xgboost is not installed")
    p = cached_problem(PAPER[dataset], base, 42)
    (model,) = METHODS[method].run(p, None)
    assert f"{figures_on_test_rows(model, p)[column]:.6g}" == figure
    assert model.survivors == survivors


def test_scores_are_scikit_learns():
    p = problem()
    proba = p.ensemble.predict_proba(p.X_test)
    scores = score([Model(p.ensemble.predict_proba, 100, 100, p.ensemble)], p)
    assert scores["accuracy"] == accuracy_score(p.y_test, p.ensemble.predict(p.X_test))
    assert scores["log_loss"] == log_loss(p.y_test, proba)
    assert scores["brier"] == pytest.approx(((proba - np.eye(3)[p.y_test]) ** 2).sum(axis=1).mean())
    p = problem("regression")
    scores = score([Model(p.ensemble.predict, 100, 100, p.ensemble)], p)
    assert scores["mse"] == mean_squared_error(p.y_test, p.ensemble.predict(p.X_test))
    assert scores["r2"] == r2_score(p.y_test, p.ensemble.predict(p.X_test))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("lam", [0.0, 0.05])
def test_the_preset_prunes_the_authors_toy_and_is_better_in_sample_without_a_penalty(task, lam):
    classify = task == "classification"
    toy = (make_classification if classify else make_regression)(500, 10, random_state=42)
    X, X_test, y, y_test = train_test_split(*toy, test_size=0.3, random_state=42)
    tree = member(task, "DecisionTree").set_params(max_depth=3)
    bag = bag_of(task, tree, X, y, n_estimators=30, random_state=42)
    small = sb.compress(bag, X, y, preset="paper", lam=lam)
    w = small.weights_
    assert (w.sum(), w.min()) == (pytest.approx(1.0), 0.0)
    assert w[w > 0].min() > 1e-5
    assert small.score(X_test, y_test) >= bag.score(X_test, y_test) - 0.05  # lower on either toy
    f = PaperProblem.of(Problem("toy", task, "", 42, X, y, X_test, y_test, 2 * classify, bag))
    value, equal = (f.value_and_gradient(v)[0] + (f.lam - lam) * v @ v for v in (w, w * 0 + 1 / 30))
    assert value == pytest.approx(small.solution_.objective, rel=1e-9)
    assert value <= equal or (lam and classify)  # small weights dropped: rows without a vote


@pytest.mark.parametrize("task", TASKS)
def test_gradient_and_curvature_are_those_of_the_value(task):
    p = problem(task)
    f = replace(PaperProblem.of(p), lam=0.0)
    if task == "classification":
        floored = (1 - FLOOR) * f.votes + FLOOR / 3
        f = replace(f, votes=floored * f.mask)
    rng = np.random.default_rng(0)
    w = rng.dirichlet(np.ones(100))
    step = rng.normal(size=100)
    step -= step.mean()
    step *= 1e-4 / np.linalg.norm(step)
    values = [f.value_and_gradient(w + s * step)[0] for s in (-1, 0, 1)]
    assert f.value_and_gradient(w)[1] @ step == pytest.approx((values[2] - values[0]) / 2, rel=1e-3)
    curved = (values[2] - 2 * values[1] + values[0]) / 1e-8
    least, *_, largest = PaperProblem.of(p).loss_curvature(w, p.n_classes)
    slack = 1e-3 * max(abs(least), abs(largest))
    assert least - slack <= curved <= largest + slack


def test_every_method_gives_a_row(tmp_path, monkeypatch):
    monkeypatch.setitem(N_MEMBERS, "DecisionTree", 30)  # enough to leave no row without a vote
    store = ResultsStore(tmp_path / "results.csv", paper.COLUMNS, paper.KEY)
    cells = [(IRIS, "DecisionTree", 42), (IRIS, "none", 42), (DIABETES, "DecisionTree", 42)]
    paper.run(cells, store)
    written = store.path.read_bytes()
    paper.run(cells, store)
    assert store.path.read_bytes() == written or xgboost is None
    rows = {(row["dataset"], row["method"]): row for row in store.rows.values()}
    of_numbers = set(METHODS) - {"uniform_temperature", "xgboost"}
    assert {m for data, m in rows if data == DIABETES.name} == of_numbers
    rows = {method: row for (data, method), row in rows.items() if data == IRIS.name}
    assert set(rows) == set(METHODS)
    assert rows.pop("xgboost")["status"] == ("skipped" if xgboost is None else "ok")
    for row in rows.values():
        assert row["status"] == "ok", row["reason"]
        assert bool(row["source"]) == METHODS[row["method"]].is_ours
        empty = {"reason", "mse", "r2", "xgboost", "source"}
        assert {name for name in paper.COLUMNS if not row[name]} <= empty
    size_from = METHODS["random_k"].size_from
    assert rows["random_k"]["survivors"] == rows[size_from]["survivors"]


def test_without_the_papers_tables_nothing_is_run(tmp_path, monkeypatch, capsys):
    path = tmp_path / "results.csv"
    path.write_text("kept")
    monkeypatch.setattr(paper, "TABLES", path.with_name("absent.csv"))
    assert paper.main(["--out", str(path)]) == 1
    told = capsys.readouterr().err
    assert told == f"Nothing was run or written: {path.with_name('absent.csv')} is not there.\n"
    assert path.read_text() == "kept"
