"""`sparsebag.compress` on every kind of model; what comes of it is the table in docs/models.md."""

import os
import re
import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_iris, load_wine

import sparsebag as sb
from models import KINDS, RF, XGB, forest, made, of, rare, says, table
from sparsebag.evidence.from_ensemble import read_ensemble

PAGE = Path(__file__).parents[1] / "docs" / "models.md"

made = cache(made)


@pytest.fixture(scope="module", autouse=True)
def _forget():
    """Compiled models that live until Python ends are called leaks."""
    yield
    made.cache_clear()


def tried(call):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            call()
    except (ValueError, TypeError) as error:
        told = str(error).strip()
        assert re.fullmatch(r".*[.)]", told), told  # a sentence in one line
        return told
    return "yes"


def same_kind(one):
    """The small model predicts what the model does: as many columns, the same labels."""
    X = one.test[0]
    before, after = one.model.predict(X), one.small.predict(X)
    assert after.shape == before.shape
    if is_classifier(one.model):
        assert after.dtype == before.dtype
        assert set(np.unique(after)) <= set(np.unique(one.test[1]))
        assert np.shape(says(one.small, X)) == np.shape(says(one.model, X))


def saved(one, path):
    def and_read(**how):
        sb.save(one.small, path, **how)
        again = sb.load(path, **how)
        assert_array_equal(again.predict(one.test[0]), one.small.predict(one.test[0]))

    try:
        and_read()
    except ValueError:
        and_read(allow_pickle=True)
        raise


def exported(one):
    small = getattr(one.small, "best_estimator_", one.small)
    export = sb.to_onnx(one.small, one.test[0])
    near = np.isclose(export.predict(one.test[0]), says(small, one.test[0]), atol=1e-3, rtol=1e-3)
    assert near.mean() > 0.98


def reported(one):
    found = sb.report_on(one.small, *one.test)
    for report in found if isinstance(found, list) else [found]:
        assert report.n_rows == len(one.test[1])


@pytest.mark.parametrize("name", KINDS)
def test_the_table(name, tmp_path):
    kind, cells = KINDS[name], []
    first = tried(lambda: made(kind))
    if first == "yes":
        one = made(kind)
        steps = (
            lambda: same_kind(one),
            lambda: saved(one, tmp_path / "model.sbag"),
            lambda: exported(one),
            lambda: reported(one),
        )
        cells = [tried(step) for step in steps]
        if kind.holdout:
            call = "sparsebag.compress(model, X_new, y_new, evidence='holdout')"
            with pytest.raises(ValueError, match=re.escape(call)):
                sb.compress(one.given, *one.train)
            first = 'yes, with `evidence="holdout"`'
    row = " | ".join(["", name, first, *cells, *[""] * (4 - len(cells)), ""]).strip()
    text = PAGE.read_text(encoding="utf-8")
    if os.environ.get("SPARSEBAG_WRITE_DOCS"):
        text = re.sub(rf"^\| {re.escape(name)} \|.*$", lambda _: row, text, flags=re.MULTILINE)
        PAGE.write_text(text, encoding="utf-8")
    assert row in text.splitlines(), "SPARSEBAG_WRITE_DOCS=1 pytest tests/test_models.py writes it"


def test_every_kind_has_a_line_and_no_other():
    text = PAGE.read_text(encoding="utf-8")
    lines = [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines() if "|" in line]
    assert lines == ["kind", "|---|---|---|---|---|---|", *KINDS]


def losses(model, X, y):
    """Brier score or squared error of each row; of several outputs, their mean in units of each."""
    y = np.asarray(y)
    if not is_classifier(model):
        return np.mean((((y - model.predict(X)) ** 2) / y.var(axis=0)).reshape(len(y), -1), axis=1)
    proba, columns = model.predict_proba(X), y.reshape(len(y), -1).T
    proba = proba if isinstance(proba, list) else [proba]
    known = model.classes_ if isinstance(model.classes_, list) else [model.classes_] * len(columns)
    errors = [
        np.sum((p - (column[:, None] == classes)) ** 2, axis=1)
        for p, column, classes in zip(proba, columns, known, strict=True)
    ]
    return np.mean(errors, axis=0)


@pytest.mark.parametrize("n_splits", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [name for name in KINDS if "Survival" not in name])
def test_held_out_rows_are_predicted_within_the_tolerance(name, n_splits):
    """Two standard errors of the ratio allowed: a split has a hundred rows or so."""
    ones = [made(KINDS[name], split) for split in range(n_splits)]
    found = [[losses(model, *one.test) for model in (one.model, one.small)] for one in ones]
    whole, small = np.concatenate(found, axis=1)
    ratio = small.mean() / whole.mean()
    error = np.sqrt(np.sum((small - ratio * whole) ** 2)) / whole.sum()  # by the delta method
    assert ratio - 2.0 * error <= 1.01, f"{ratio:.3f} ± {error:.3f}"


@pytest.mark.parametrize("name", ["`XGBRFClassifier`", '`LGBMClassifier("rf")`'])
def test_a_few_rows_calibrate_forests_of_scores(name):
    """Shares of single trees are less sure than their softmax: by a fifth of the Brier score."""
    kind = replace(KINDS[name], data=lambda: load_wine(return_X_y=True))
    found = []
    for one in (made(kind, split) for split in range(3)):
        found.append([losses(model, *one.test).mean() for model in (one.model, one.small)])
        full = one.small.report(*one.test).rows["full ensemble"]  # the forest itself
        assert_allclose(full["Brier"], found[-1][0], rtol=1e-3)
        assert_allclose(one.small.path_.whole_risk, losses(one.model, *one.rows).mean(), rtol=1e-3)
    assert np.divide(*np.mean(found, axis=0)[::-1]) < 1.01


@pytest.mark.parametrize("name", ["`Pipeline`", "`OneVsRestClassifier`"])
def test_a_clone_is_fitted_and_compressed_anew(name):
    one = made(KINDS[name])
    again = clone(one.small).fit(*one.rows)
    # Not the same model: a clone's rehearsal has no preprocessing inside its folds.
    assert type(again) is type(one.small)
    assert np.mean(again.predict(one.test[0]) == one.small.predict(one.test[0])) > 0.85


@pytest.mark.parametrize("name", ['`LGBMClassifier("rf")`', "`treelite.Model`"])
def test_splits_between_missing_values_and_all_others(name):
    X, y = KINDS[name].data()
    X = np.array(X, dtype=float)
    X[np.random.default_rng(0).random(X.shape) < 0.2] = np.nan
    model = KINDS[name].make().fit(X[:400], y[:400])
    given, model = getattr(model, "given", model), getattr(model, "forest", model)
    if name == "`treelite.Model`":
        theirs = pytest.importorskip("treelite").gtil.predict(given, X.astype(np.float32))
        if not np.allclose(np.squeeze(theirs), model.predict_proba(X), atol=1e-6):
            pytest.skip("this treelite imports a forest that read NaN as another one")
    pool = read_ensemble(given)
    vote = np.mean([m.predict_proba(X, len(pool.classes)) for m in pool.members], axis=0)
    if name == "`treelite.Model`":  # the mean of LightGBM's scores is not that of its shares
        assert_allclose(vote, model.predict_proba(X), atol=1e-6)
    assert np.mean(vote.argmax(axis=1) == model.predict(X)) > 0.95


def test_a_forest_pickled_by_an_old_scikit_learn():
    X, y = rare()
    old = forest().fit(X[:900], y[:900])
    for tree in old.estimators_:
        del tree.monotonic_cst  # as before 1.4
    assert sb.compress(old, X[900:], y[900:], evidence="holdout").score(X[900:], y[900:]) > 0.9


def test_columns_as_lightgbm_names_them():
    X, y = load_iris(return_X_y=True, as_frame=True)
    model = of("lightgbm", "LGBMClassifier", **RF)().fit(X, y)
    small = sb.compress(model, X, y, evidence="holdout")
    assert small.compile().feature_names == tuple(X.columns)
    assert_array_equal(small.predict(X[X.columns[::-1]]), small.predict(X))


def test_categories_are_passed_as_codes():
    X, y = table()
    X = X.assign(city=X.city.astype("category"))
    forest = of("lightgbm", "LGBMClassifier", **RF)().fit(X[:300], y[:300])
    call = "X.assign(**{c: X[c].cat.codes for c in X.select_dtypes('category')})"
    with pytest.raises(ValueError, match=re.escape(f"lightgbm reads their codes; pass {call}")):
        sb.compress(forest, X, y, evidence="holdout")
    codes = X.assign(**{c: X[c].cat.codes for c in X.select_dtypes("category")})
    small = sb.compress(forest, codes[300:], y[300:], evidence="holdout")
    assert np.mean(small.predict(codes) == forest.predict(X)) > 0.8


def test_what_xgboost_has_and_cannot_be_read():
    X, y = table()
    y, X = (y == "yes").astype(int), X.assign(city=X.city.astype("category"))
    model = of("xgboost", "XGBRFClassifier", enable_categorical=True, **XGB)().fit(X, y)
    with pytest.raises(ValueError, match=r"pandas categories, fit it on their codes with feature"):
        sb.compress(model, X, y, evidence="holdout")
    model = of("xgboost", "XGBRFClassifier", missing=-1, **XGB)().fit(X[["pay"]], y)
    with pytest.raises(ValueError, match="treats -1 as missing; use NaN instead, here and in"):
        sb.compress(model, X[["pay"]], y, evidence="holdout")
    model = of("xgboost", "XGBRFRegressor", objective="reg:logistic", **XGB)().fit(X[["pay"]], y)
    with pytest.raises(ValueError, match="1 outputs and the link sigmoid cannot be read"):
        sb.compress(model, X[["pay"]], y, evidence="holdout")


@pytest.mark.parametrize(
    ("how", "said"),
    [("zero_as_missing", "treats zeros as missing"), ("linear_tree", "linear trees")],
)
def test_what_lightgbm_has_and_cannot_be_read(how, said):
    X, y = KINDS['`LGBMRegressor("rf")`'].data()
    model = of("lightgbm", "LGBMRegressor", **RF, **{how: True})().fit(X, y)
    with pytest.raises(ValueError, match=said):
        sb.compress(model, X, y, evidence="holdout")


WEIGHTS = {"class_weight": {0: 1.0, 1: 6.0}}, {"is_unbalance": True}, {"scale_pos_weight": 6.0}


@pytest.mark.parametrize("how", WEIGHTS, ids=lambda how: next(iter(how)))
def test_what_classes_weigh_in_lightgbm(how):
    X, y = rare()
    model = of("lightgbm", "LGBMClassifier", **RF, **how)().fit(X[:700], y[:700])
    small = sb.compress(model, X[700:], y[700:], evidence="holdout")
    assert small.predict(X[y == 1]).mean() > 0.9 * model.predict(X[y == 1]).mean()


def test_the_slope_of_lightgbms_sigmoid():
    X, y = KINDS["`treelite.Model`"].data()
    model = of("lightgbm", "LGBMClassifier", sigmoid=3.0, **RF)().fit(X, y)
    for tree, member in enumerate(read_ensemble(model).members):
        alone = model.predict_proba(X, start_iteration=tree, num_iteration=1)
        np.testing.assert_allclose(member.predict_proba(X, 2), alone, rtol=1e-6)
