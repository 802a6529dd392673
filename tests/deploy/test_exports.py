"""Exports predict what the model predicts, and say so when they do not."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier, SGDClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import sparsebag as sb
from sparsebag.calibration.temperature import Temperature
from sparsebag.deploy.artifact import dumps, loads
from sparsebag.deploy.export_sklearn import export_sklearn
from sparsebag.deploy.from_members import compile_members
from sparsebag.deploy.verification import ExportMismatch, NotExportable, probe_rows, verify
from sparsebag.deploy.weighted_vote import WeightedVote
from sparsebag.evidence.from_ensemble import read_ensemble
from tree_leaves import with_leaves, with_random_leaves

IRIS = load_iris(return_X_y=True)
NAMED = (IRIS[0], np.array(["setosa", "versicolor", "virginica"])[IRIS[1]])
CANCER = load_breast_cancer(return_X_y=True)
DIABETES = load_diabetes(return_X_y=True)


def with_missing(data):
    X, y = data
    return np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X), y


def net(kind):
    return kind(hidden_layer_sizes=(6, 4), max_iter=15, random_state=0)


TREES = {
    "three classes": (RandomForestClassifier(8, random_state=0), NAMED),
    "two classes": (RandomForestClassifier(8, random_state=0), CANCER),
    "regression": (RandomForestRegressor(8, random_state=0), DIABETES),
    "extra trees": (ExtraTreesClassifier(8, bootstrap=True, random_state=0), IRIS),
    "missing values": (RandomForestClassifier(8, random_state=0), with_missing(IRIS)),
    "missing, two classes": (RandomForestClassifier(8, random_state=0), with_missing(CANCER)),
    "missing, regression": (RandomForestRegressor(8, random_state=0), with_missing(DIABETES)),
    "feature subsets": (
        BaggingClassifier(DecisionTreeClassifier(), 8, max_features=0.5, random_state=0),
        IRIS,
    ),
    "a missed class": (
        BaggingClassifier(DecisionTreeClassifier(), 8, max_samples=4, random_state=0),
        NAMED,
    ),
    "single leaves": (
        BaggingRegressor(DecisionTreeRegressor(min_samples_split=9999), 8, random_state=0),
        DIABETES,
    ),
}
OTHERS = {
    "multinomial": (BaggingClassifier(LogisticRegression(), 8, random_state=0), NAMED),
    "logistic": (
        BaggingClassifier(LogisticRegression(), 8, max_features=0.5, random_state=0),
        CANCER,
    ),
    "ridge": (BaggingRegressor(Ridge(), 8, max_features=0.5, random_state=0), DIABETES),
    "networks": (BaggingClassifier(net(MLPClassifier), 8, random_state=0), IRIS),
    "networks, regression": (BaggingRegressor(net(MLPRegressor), 8, random_state=0), DIABETES),
}
VOTES = {
    "linear svm": (BaggingClassifier(LinearSVC(), 8, random_state=0), IRIS),
    "ridge votes": (BaggingClassifier(RidgeClassifier(), 8, random_state=0), CANCER),
    "one against the rest": (
        BaggingClassifier(SGDClassifier(loss="log_loss", random_state=0), 8, random_state=0),
        IRIS,
    ),
}


def made(case, temperature=None):
    ensemble, (X, y) = case
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few steps do not converge; so be it
        pool = read_ensemble(ensemble.fit(X, y))
    weights = np.random.default_rng(0).dirichlet(np.ones(len(pool.members)))
    calibrator = None if pool.classes is None or temperature is None else Temperature(temperature)
    return compile_members(pool, weights, 1e-3, calibrator), pool, weights, X


@pytest.mark.parametrize("temperature", [None, 0.6])
@pytest.mark.parametrize("name", [*TREES, *OTHERS, *VOTES])
def test_onnx(name, temperature, tmp_path):
    pytest.importorskip("onnxruntime")
    from sparsebag.deploy.export_onnx import export_onnx

    model, _, _, X = made({**TREES, **OTHERS, **VOTES}[name], temperature)
    export = export_onnx(model)
    found = export.verify(X)
    assert found.n_rows == len(X)
    assert found.largest_difference < 1e-12
    export.save(tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").stat().st_size > 0
    kinds = [node.op_type for node in export.graph.graph.node]
    assert kinds.count("TreeEnsemble") == (name in TREES)
    assert "ZipMap" not in kinds
    if model.classes is not None:
        dtype = np.float32 if name in TREES else np.float64
        (label,) = export.session.run(["label"], {"X": X.astype(dtype)})
        assert label.tolist() == model.predict(X).tolist()


@pytest.mark.parametrize("temperature", [None, 0.6])
@pytest.mark.parametrize("name", TREES)
def test_treelite(name, temperature):
    treelite = pytest.importorskip("treelite")
    from sparsebag.deploy.export_treelite import export_treelite

    model, _, _, X = made(TREES[name], temperature)
    export = export_treelite(model)
    assert isinstance(export.trees, treelite.Model)
    assert export.verify(X).largest_difference < 1e-12


@pytest.mark.parametrize("name", [*TREES, *OTHERS])
def test_sklearn(name):
    model, *_, X = made({**TREES, **OTHERS}[name])
    out = export_sklearn(model)
    kind = "RandomForest" if name in TREES else "Voting"
    assert type(out).__name__ == kind + ("Regressor" if model.classes is None else "Classifier")
    predict = out.predict if model.classes is None else out.predict_proba
    assert verify(model, predict, X, 1e-12).label_flips == 0
    assert np.array_equal(out.predict(X), model.predict(X)) or model.classes is None


CALIBRATORS = {
    "none": None,
    "sharper": Temperature(0.6),
    "softer": Temperature(1.7),
    "with a floor": Temperature(0.6, 0.05),
    "floor alone": Temperature(1.0, 0.2),
}


def beyond_the_simplex(pool):
    """Trees whose leaves sum to one but give some classes less than nothing."""
    rng, n = np.random.default_rng(1), len(pool.classes)
    members = []
    for member in pool.members:
        table = rng.normal(size=(member.estimator.tree_.node_count, n))
        table += (1.0 - table.sum(axis=1, keepdims=True)) / n
        members.append(with_leaves(member, table, is_vote=True))
    return replace(pool, members=tuple(members))


@pytest.mark.parametrize("kind", CALIBRATORS)
@pytest.mark.parametrize("refined", [False, True])
@pytest.mark.parametrize("name", ["two classes", "three classes", "logistic", "multinomial"])
def test_every_calibrator_everywhere(name, refined, kind):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("treelite")
    from sparsebag.deploy.export_onnx import export_onnx
    from sparsebag.deploy.export_treelite import export_treelite

    _, pool, weights, X = made({**TREES, **OTHERS}[name])
    if refined:
        if name not in TREES:
            pytest.skip("only trees have leaves")
        pool = beyond_the_simplex(pool)
    calibrator = CALIBRATORS[kind]
    model = compile_members(pool, weights, 1e-3, calibrator)
    proba = model.predict_proba(X)
    assert proba.min() >= 0.0
    assert np.abs(proba.sum(axis=1) - 1.0).max() < 1e-12
    assert np.abs(proba[3] - model.predict_proba_one(X[3])).max() < 1e-15
    vote = WeightedVote(pool, weights, 1e-3, calibrator).predict_proba(X)
    assert np.abs(vote - proba).max() < 1e-13
    loaded = loads(dumps(model))
    assert np.array_equal(loaded.predict_proba(X), proba)
    assert np.array_equal(loaded.predict_proba_one(X[3]), model.predict_proba_one(X[3]))
    assert export_onnx(model).verify(X).largest_difference < 1e-12
    out = export_sklearn(model)
    assert verify(model, out.predict_proba, X, 1e-12).label_flips == 0
    assert np.array_equal(out.predict(X), model.predict(X))
    assert np.array_equal(pickle.loads(pickle.dumps(out)).predict_proba(X), out.predict_proba(X))
    if name in TREES:
        export = export_treelite(model)
        assert export.verify(X).largest_difference < 1e-12
        assert ("before calibration" in export.note) == (calibrator is not None)


def test_a_vote_beyond_the_simplex_is_clipped():
    _, pool, weights, X = made(TREES["three classes"])
    raw = compile_members(beyond_the_simplex(pool), weights)
    said = sum(
        w * member.estimator.tree_.value[member.apply(pool.prepare(X)), 0]
        for w, member in zip(weights, beyond_the_simplex(pool).members, strict=True)
    )
    assert said.min() < 0.0
    kept = np.maximum(said, 0.0)
    expected = kept / kept.sum(axis=1, keepdims=True)
    assert np.abs(raw.predict_proba(X) - expected).max() < 1e-12


def test_a_calibrator_of_the_users_own_stays_out_of_files():
    class Mine(Temperature):
        kind = "own"
        models = (LogisticRegression(),)

    model, *_ = made(TREES["three classes"])
    message = r"a calibrator of your own \(LogisticRegression\) cannot be stored in a file"
    with pytest.raises(ValueError, match=message):
        dumps(replace(model, calibrator=Mine(2.0)))


def test_sklearn_keeps_refined_leaves():
    model, pool, weights, X = made(TREES["three classes"])
    refined = with_random_leaves(pool)
    model = compile_members(refined, weights, 1e-3)
    forest = export_sklearn(model)
    assert np.abs(forest.predict_proba(X) - model.predict_proba(X)).max() < 1e-12


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (VOTES["linear svm"], "linear members without predict_proba vote for one class"),
        (
            (
                BaggingClassifier(KNeighborsClassifier(1), 8, max_samples=4, random_state=0),
                IRIS,
            ),
            "was trained without some class",
        ),
    ],
)
def test_what_scikit_learn_cannot_express(case, message):
    model, *_ = made(case)
    with pytest.raises(ValueError, match=message):
        export_sklearn(model)


@pytest.mark.parametrize("name", ["three classes", "missing values", "a missed class"])
def test_leaves_of_several_classes(name, monkeypatch):
    """In the leaves of the one node; where that is too much, in a table, a tree at a time."""
    pytest.importorskip("onnxruntime")
    from onnx import numpy_helper

    from sparsebag.deploy import export_onnx

    model, *_, X = made(TREES[name])
    (trees,) = model.groups
    for limit in (export_onnx.MAX_LEAVES, 0):
        monkeypatch.setattr(export_onnx, "MAX_LEAVES", limit)
        export = export_onnx.export_onnx(model)
        assert export.verify(X).largest_difference < 1e-12
        nodes = export.graph.graph.node
        (node,) = [n for n in nodes if n.op_type == "TreeEnsemble"]
        (leaves,) = [a for a in node.attribute if a.name == "leaf_weights"]
        values = numpy_helper.to_array(leaves.t)
        assert (set(values) <= set(trees.values.ravel())) == (limit > 0)
        assert sum(n.op_type == "Gather" for n in nodes) == (1 if limit else 2)


def test_a_draw_goes_to_the_first_class():
    """Without an intercept all scores of a row of zeros are equal."""
    pytest.importorskip("onnxruntime")
    from sparsebag.deploy.export_onnx import export_onnx

    bag = BaggingClassifier(LinearSVC(fit_intercept=False), 5, random_state=0)
    model, *_, X = made((bag, IRIS))
    export = export_onnx(model)
    zeros = np.zeros((1, 4))
    assert np.abs(export.predict(zeros) - model.predict_proba(zeros)).max() < 1e-12
    assert model.predict(zeros).tolist() == [0]
    assert export.verify(np.concatenate([X, zeros])).label_flips == 0
    assert np.all(probe_rows(model)[0] == 0.0)


def test_a_wrong_graph_does_not_verify():
    pytest.importorskip("onnxruntime")
    from onnx import numpy_helper

    from sparsebag.deploy.export_onnx import OnnxExport, export_onnx

    model, *_, X = made(TREES["two classes"])
    graph = export_onnx(model).graph
    (node,) = [n for n in graph.graph.node if n.op_type == "TreeEnsemble"]
    (leaves,) = [a for a in node.attribute if a.name == "leaf_weights"]
    values = numpy_helper.to_array(leaves.t)[::-1]
    leaves.t.CopyFrom(numpy_helper.from_array(values.copy(), "leaf_weights"))
    with pytest.raises(ExportMismatch):
        OnnxExport(graph, model).verify(X)


def test_members_without_a_graph():
    pytest.importorskip("onnxruntime")
    pytest.importorskip("treelite")
    from sparsebag.deploy.export_onnx import export_onnx
    from sparsebag.deploy.export_treelite import export_treelite

    model, *_ = made((BaggingClassifier(SVC(), 5, random_state=0), IRIS))
    with pytest.raises(ValueError, match="5 members predict for themselves and have no ONNX form"):
        export_onnx(model)
    with pytest.raises(ValueError, match="treelite holds trees only"):
        export_treelite(model)


def test_a_calibrator_without_a_graph():
    pytest.importorskip("onnxruntime")
    from sparsebag.deploy.export_onnx import export_onnx

    class Unknown(Temperature):
        kind = "unknown"

    model, *_ = made(TREES["three classes"])
    with pytest.raises(ValueError, match="the calibrator 'unknown' has no ONNX form"):
        export_onnx(replace(model, calibrator=Unknown(2.0)))
    with pytest.raises(ValueError, match="no form for the calibrator 'unknown'"):
        export_sklearn(replace(model, calibrator=Unknown(2.0)))


def test_a_wrong_export_raises():
    model, *_, X = made(TREES["three classes"])
    with pytest.raises(ExportMismatch, match="does not match the model: 150 rows"):
        verify(model, lambda rows: np.roll(model.predict_proba(rows), 1, axis=1), X, 1e-9)
    with pytest.raises(ExportMismatch):
        verify(model, lambda rows: np.full((len(rows), 3), np.nan), X, 1e-9)


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e12])
def test_differences_are_relative_to_the_predictions(unit):
    X, y = DIABETES
    model, *_ = made((RandomForestRegressor(4, random_state=0), (X, y * unit)))
    assert verify(model, model.predict, X, 1e-9).largest_difference == 0.0
    with pytest.raises(ExportMismatch):
        verify(model, lambda rows: 1.0001 * model.predict(rows), X, 1e-9)


def test_a_few_huge_predictions_hide_no_difference():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = np.where(X[:, 0] > 2.5, 1e12, X[:, 1])
    model, *_ = made((RandomForestRegressor(5, random_state=0), (X, y)))
    assert np.median(np.abs(model.predict(X))) < 10 < 1e10 < np.abs(model.predict(X)).max()
    for shift in (5.0, 1e-6):
        with pytest.raises(ExportMismatch):
            verify(model, lambda rows, shift=shift: model.predict(rows) + shift, X)
    turned = replace(model, groups=tuple(_trees_reversed(group) for group in model.groups))
    assert verify(model, turned, X).largest_difference < 1e-12  # another order of the sum


def _trees_reversed(trees):
    return replace(trees, roots=np.ascontiguousarray(trees.roots[::-1]))


@pytest.mark.parametrize("case", ["three classes", "regression", "multinomial"])
def test_every_export_is_verified_in_one_way(case, tmp_path):
    ensemble, (X, y) = {**TREES, **OTHERS}[case]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        small = sb.compress(ensemble.fit(X, y), X, y, max_estimators=4, tolerance=None)
    small.save(tmp_path / "model.sbag")
    loaded = sb.load(tmp_path / "model.sbag")
    for export in (small.to_sklearn(), loaded, small.compile()):
        for found in (small.verify(export, X), sb.verify(loaded, export, X)):
            assert found.n_rows == len(X)
            assert found.largest_difference < 1e-12
    with pytest.raises(sb.ExportMismatch):
        small.verify(ensemble, X)  # the whole ensemble
    with pytest.raises(TypeError, match="a str is no export: pass what to_onnx"):
        small.verify("model.onnx", X)


def test_an_export_with_other_classes_does_not_verify():
    model, *_, X = made(TREES["three classes"])
    forest = export_sklearn(model)
    forest.classes_ = forest.classes_[::-1]
    with pytest.raises(ExportMismatch, match="its classes are"):
        verify(model, forest, X)


def test_too_few_columns_are_told_as_the_model_tells_them():
    pytest.importorskip("onnxruntime")
    from sparsebag.deploy.export_onnx import export_onnx

    model, *_, X = made(TREES["three classes"])
    export = export_onnx(model)
    for call in (export.verify, export.predict):
        with pytest.raises(ValueError, match="X has 3 features, but 4 were fitted"):
            call(X[:, :3])


def test_sparse_rows_are_verified_too():
    pytest.importorskip("onnxruntime")
    pytest.importorskip("treelite")
    from sparsebag.deploy.export_onnx import export_onnx
    from sparsebag.deploy.export_treelite import export_treelite

    model, *_, X = made(TREES["three classes"])
    for export in (export_onnx(model), export_treelite(model)):
        assert export.verify(sp.csr_matrix(X)).n_rows == len(X)
        assert np.array_equal(export.predict(sp.csr_matrix(X)), export.predict(X))


@pytest.mark.parametrize(
    "labels",
    [
        np.array([1, 2, 2**63 + 5], dtype=np.uint64),
        np.array(["2020", "2021", "2022"], dtype="datetime64[Y]"),
        np.array(["a", "b", "\ud800"], dtype=object),
    ],
)
def test_labels_without_a_form_get_a_sentence(labels):
    pytest.importorskip("onnxruntime")
    from sparsebag.deploy.export_onnx import export_onnx

    model, *_, X = made(TREES["three classes"])
    model = replace(model, classes=labels)
    with pytest.raises(NotExportable, match="have no ONNX form; use text, integers of 64 bits"):
        export_onnx(model)
    if labels.dtype.kind == "O":  # a file holds half a character too
        assert loads(dumps(model)).predict(X).tolist() == model.predict(X).tolist()
        return
    with pytest.raises(NotExportable, match="use strings"):
        dumps(model)


def test_probe_rows_find_a_threshold_rounded_up():
    model, *_ = made(TREES["regression"])
    (trees,) = model.groups
    up = np.nextafter(trees.threshold, np.float32(np.inf))
    wrong = replace(model, groups=(replace(trees, threshold=up),))
    with pytest.raises(ExportMismatch):
        verify(model, wrong.predict, probe_rows(model), 1e-9)


def test_probe_rows_find_missing_values_sent_the_wrong_way():
    model, *_ = made(TREES["missing values"])
    (trees,) = model.groups
    wrong = replace(model, groups=(replace(trees, missing_left=1 - trees.missing_left),))
    with pytest.raises(ExportMismatch):
        verify(model, wrong.predict_proba, probe_rows(model), 1e-9)


def test_the_estimator_exports(tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("treelite")
    X, y = IRIS
    small = sb.compress(RandomForestClassifier(40, random_state=0).fit(X, y), X, y)
    path = tmp_path / "model.onnx"
    assert small.to_onnx(path).verify(X).largest_difference < 1e-12
    assert path.exists()
    assert small.to_treelite().verify(X).largest_difference < 1e-12
    assert np.abs(small.to_sklearn().predict_proba(X) - small.predict_proba(X)).max() < 1e-12


@pytest.mark.parametrize("calibration", [None, "temperature"])
def test_sklearn_keeps_the_names_of_columns(calibration):
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    forest = RandomForestClassifier(30, random_state=0).fit(X, y)
    small = sb.compress(forest, X, y, calibration=calibration)
    exported = small.to_sklearn()
    assert list(exported.feature_names_in_) == list(X.columns)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours, theirs = small.predict_proba(X), exported.predict_proba(X)
    assert np.abs(ours - theirs).max() < 1e-12
    with pytest.raises(ValueError, match="feature names"):
        exported.predict_proba(X[X.columns[::-1]])


def test_the_example_of_the_docs_runs(tmp_path, monkeypatch, capsys):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("treelite")
    page = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    exec(page.partition("```python\n")[2].partition("```")[0], {})
    assert capsys.readouterr().out.startswith("150 rows: largest difference")
