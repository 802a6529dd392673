"""Exports predict what the model predicts, and say so when they do not."""

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier, RandomForestRegressor
from sklearn.svm import LinearSVC

import sparsebag as sb
from deploy.ensembles import CASES, OF_ARRAYS, OF_TREES, fitted, made, pool_of, with_leaves
from sparsebag.calibration.temperature import Temperature
from sparsebag.deploy import export_onnx, export_treelite
from sparsebag.deploy.artifact import dumps, loads
from sparsebag.deploy.export_sklearn import export_sklearn
from sparsebag.deploy.from_members import compile_members
from sparsebag.deploy.verification import ExportMismatch, NotExportable, probe_rows, verify
from sparsebag.evidence.from_ensemble import read_ensemble
from toy import CANCER, DIABETES, IRIS


@pytest.fixture
def to_onnx():
    pytest.importorskip("onnxruntime")
    return export_onnx.export_onnx


@pytest.fixture
def to_treelite():
    pytest.importorskip("treelite")
    return export_treelite.export_treelite


@pytest.mark.parametrize("calibrator", [None, Temperature(0.6)], ids=["as is", "calibrated"])
@pytest.mark.parametrize("name", OF_ARRAYS)
def test_onnx(name, calibrator, to_onnx, tmp_path):
    model, _, X = made(name, calibrator)
    export = to_onnx(model)
    found = export.verify(X)
    assert found.n_rows == len(X)
    assert found.largest_difference < 1e-12
    export.save(tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").stat().st_size > 0
    kinds = [node.op_type for node in export.graph.graph.node]
    assert kinds.count("TreeEnsemble") == ("trees" in CASES[name][0])
    assert "ZipMap" not in kinds
    if model.classes is not None:
        dtype = np.float32 if name in OF_TREES else np.float64
        (label,) = export.session.run(["label"], {"X": X.astype(dtype)})
        assert label.tolist() == model.predict(X).tolist()


@pytest.mark.parametrize("calibrator", [None, Temperature(0.6)], ids=["as is", "calibrated"])
@pytest.mark.parametrize("name", OF_TREES)
def test_treelite(name, calibrator, to_treelite):
    import treelite

    model, _, X = made(name, calibrator)
    export = to_treelite(model)
    assert isinstance(export.trees, treelite.Model)
    assert export.verify(X).largest_difference < 1e-12


NO_SKLEARN = {
    "linear svm votes": "linear members without predict_proba vote for one class",
    "ridge votes": "linear members without predict_proba vote for one class",
    "neighbours, some classes": "was trained without some class",
    "lines that know some classes": "was trained without some class",
}


@pytest.mark.parametrize("name", [name for name in OF_ARRAYS if name not in NO_SKLEARN])
def test_sklearn(name):
    model, _, X = made(name)
    out = export_sklearn(model)
    kind = "RandomForest" if name in OF_TREES else "Voting"
    assert type(out).__name__ == kind + ("Regressor" if model.classes is None else "Classifier")
    predict = out.predict if model.classes is None else out.predict_proba
    assert verify(model, predict, X, 1e-12).label_flips == 0
    assert np.array_equal(out.predict(X), model.predict(X)) or model.classes is None


def beyond_the_simplex(pool):
    """Trees whose leaves sum to one but give some classes less than nothing."""
    rng, n = np.random.default_rng(1), len(pool.classes)
    members = []
    for member in pool.members:
        table = rng.normal(size=(member.estimator.tree_.node_count, n))
        table += (1.0 - table.sum(axis=1, keepdims=True)) / n
        members.append(with_leaves(member, table, is_vote=True))
    return replace(pool, members=tuple(members))


CALIBRATORS = {
    "none": None,
    "sharper": Temperature(0.6),
    "softer": Temperature(1.7),
    "with a floor": Temperature(0.6, 0.05),
    "floor alone": Temperature(1.0, 0.2),
    "scores": Temperature(0.8, 0.01, 8.0),
}


@pytest.mark.parametrize("kind", CALIBRATORS)
@pytest.mark.parametrize(
    ("name", "refined"),
    [(name, refined) for name in ("two classes", "three classes") for refined in (False, True)]
    + [("logistic", False), ("multinomial", False)],
)
def test_every_calibrator_everywhere(name, refined, kind, to_onnx, to_treelite):
    calibrator = CALIBRATORS[kind]
    pool = beyond_the_simplex(pool_of(name)) if refined else None
    model, vote, X = made(name, calibrator, pool=pool)
    proba = model.predict_proba(X)
    assert proba.min() >= 0.0
    assert np.abs(proba.sum(axis=1) - 1.0).max() < 1e-12
    assert np.abs(proba[3] - model.predict_proba_one(X[3])).max() < 1e-15
    assert np.abs(vote.predict_proba(X) - proba).max() < 1e-13
    loaded = loads(dumps(model))
    assert np.array_equal(loaded.predict_proba(X), proba)
    assert np.array_equal(loaded.predict_proba_one(X[3]), model.predict_proba_one(X[3]))
    assert to_onnx(model).verify(X).largest_difference < 1e-12
    out = export_sklearn(model)
    assert verify(model, out.predict_proba, X, 1e-12).label_flips == 0
    assert np.array_equal(out.predict(X), model.predict(X))
    assert np.array_equal(pickle.loads(pickle.dumps(out)).predict_proba(X), out.predict_proba(X))
    if name in OF_TREES:
        export = to_treelite(model)
        assert export.verify(X).largest_difference < 1e-12
        is_softmax = kind == "scores" and not refined
        assert ("p = (1 - 0.01) * q + 0.01 / " in export.note) == (kind == "scores")
        assert ("q is the softmax of the trees' sum" in export.note) == is_softmax
        assert ("before calibration" in export.note) == (calibrator is not None and not is_softmax)
        if is_softmax:  # what another engine says
            import treelite

            alone = treelite.gtil.predict(export.trees, X.astype(np.float32).astype(float))
            alone = 0.99 * alone.reshape(proba.shape) + 0.01 / len(model.classes)
            assert np.abs(alone - proba).max() < 1e-6


@pytest.mark.parametrize("refined", [False, True])
@pytest.mark.parametrize("name", ["two classes", "three classes"])
def test_scikit_learn_tempers_votes_of_nothing(name, refined):
    pool = beyond_the_simplex(pool_of(name)) if refined else None
    model, _, X = made(name, Temperature(3.0), pool=pool, floor=0.0)
    out = export_sklearn(model)
    assert verify(model, out.predict_proba, X, 1e-12).label_flips == 0
    assert type(out.estimators_[0]).__name__ == "RandomForestClassifier"
    assert clone(out).get_params(deep=False).keys() == out.get_params(deep=False).keys()


def test_a_vote_beyond_the_simplex_is_clipped():
    pool = beyond_the_simplex(pool_of("three classes"))
    raw, vote, X = made("three classes", pool=pool, floor=0.0)
    said = sum(
        w * member.estimator.tree_.value[member.apply(pool.prepare(X)), 0]
        for w, member in zip(vote.weights, pool.members, strict=True)
    )
    assert said.min() < 0.0
    kept = np.maximum(said, 0.0)
    expected = kept / kept.sum(axis=1, keepdims=True)
    assert np.abs(raw.predict_proba(X) - expected).max() < 1e-12


class Unknown(Temperature):
    kind = "unknown"


class Own(Temperature):
    kind, models = "own", (LinearSVC(),)


OTHER = "kernel svm votes"
UNKNOWN = {"calibrator": Unknown(2.0)}
LARGE = {"classes": np.array([1, 2, 2**63 + 5], dtype=np.uint64)}
YEARS = {"classes": np.array(["2020", "2021", "2022"], dtype="datetime64[Y]")}
HALF = {"classes": np.array(["a", "b", "\ud800"], dtype=object)}
MIXED = {"classes": np.array([1, "a", None], dtype=object)}
NO_FORM = [
    ("onnx", OTHER, {}, "members predict for themselves and have no ONNX form"),
    ("onnx", "three classes", UNKNOWN, "the calibrator 'unknown' has no ONNX form"),
    *(
        ("onnx", "three classes", labels, "have no ONNX form; use text, integers of 64 bits")
        for labels in (LARGE, YEARS, HALF)
    ),
    ("treelite", OTHER, {}, "treelite holds trees only"),
    ("sklearn", "three classes", UNKNOWN, "no form for the calibrator 'unknown'"),
    *(("sklearn", name, {}, sentence) for name, sentence in NO_SKLEARN.items()),
    ("file", "three classes", LARGE, "above the largest 64-bit integer; use strings"),
    ("file", "three classes", YEARS, "use strings, integers, floats or bools"),
    ("file", "three classes", MIXED, "use strings, integers, floats or bools"),
    ("file", "three classes", {"calibrator": Own(2.0)}, r"your own \(LinearSVC\) cannot be stored"),
    ("file", OTHER, {}, r"members such as SVC can only be stored as a pickle"),
]


@pytest.mark.parametrize(("form", "name", "change", "sentence"), NO_FORM)
def test_what_has_no_such_form_gets_a_sentence(form, name, change, sentence, to_onnx, to_treelite):
    export = {"onnx": to_onnx, "treelite": to_treelite, "sklearn": export_sklearn, "file": dumps}
    model = replace(made(name)[0], **change)
    with pytest.raises(NotExportable, match=sentence):
        export[form](model)


@pytest.mark.parametrize("name", ["three classes", "missing values", "a missed class"])
def test_leaves_of_several_classes(name, to_onnx, monkeypatch):
    """In the leaves of the one node; where that is too much, in a table, a tree at a time."""
    from onnx import numpy_helper

    model, _, X = made(name)
    (trees,) = model.groups
    for limit in (export_onnx.MAX_LEAVES, 0):
        monkeypatch.setattr(export_onnx, "MAX_LEAVES", limit)
        export = to_onnx(model)
        assert export.verify(X).largest_difference < 1e-12
        nodes = export.graph.graph.node
        (node,) = [n for n in nodes if n.op_type == "TreeEnsemble"]
        (leaves,) = [a for a in node.attribute if a.name == "leaf_weights"]
        values = numpy_helper.to_array(leaves.t)
        assert (set(values) <= set(trees.values.ravel())) == (limit > 0)
        assert sum(n.op_type == "Gather" for n in nodes) == (1 if limit else 2)


def test_a_draw_goes_to_the_first_class(to_onnx):
    """Without an intercept all scores of a row of zeros are equal."""
    X, y = IRIS
    bag = BaggingClassifier(LinearSVC(fit_intercept=False), 5, random_state=0).fit(X, y)
    model = compile_members(read_ensemble(bag), np.full(5, 0.2), 1e-3)
    export = to_onnx(model)
    zeros = np.zeros((1, 4))
    assert np.abs(export.predict(zeros) - model.predict_proba(zeros)).max() < 1e-12
    assert model.predict(zeros).tolist() == [0]
    assert export.verify(np.concatenate([X, zeros])).label_flips == 0
    assert np.all(probe_rows(model)[0] == 0.0)


def test_a_wrong_export_raises():
    model, _, X = made("three classes")
    with pytest.raises(ExportMismatch, match="does not match the model: 150 rows"):
        verify(model, lambda rows: np.roll(model.predict_proba(rows), 1, axis=1), X, 1e-9)
    with pytest.raises(ExportMismatch):
        verify(model, lambda rows: np.full((len(rows), 3), np.nan), X, 1e-9)
    for unit in (1e-12, 1.0, 1e12):  # differences are relative to the predictions
        scaled = compiled_forest(DIABETES[0], DIABETES[1] * unit)
        assert verify(scaled, scaled.predict, DIABETES[0], 1e-9).largest_difference == 0.0
        with pytest.raises(ExportMismatch):
            verify(scaled, lambda rows, m=scaled: 1.0001 * m.predict(rows), DIABETES[0], 1e-9)
    forest = export_sklearn(model)
    forest.classes_ = forest.classes_[::-1]
    with pytest.raises(ExportMismatch, match="its classes are"):
        verify(model, forest, X)


def compiled_forest(X, y):
    forest = RandomForestRegressor(5, random_state=0).fit(X, y)
    return compile_members(read_ensemble(forest), np.full(5, 0.2))


def test_a_few_huge_predictions_hide_no_difference():
    X = np.random.default_rng(0).normal(size=(300, 3))
    model = compiled_forest(X, np.where(X[:, 0] > 2.5, 1e12, X[:, 1]))
    assert np.median(np.abs(model.predict(X))) < 10 < 1e10 < np.abs(model.predict(X)).max()
    for shift in (5.0, 1e-6):
        with pytest.raises(ExportMismatch):
            verify(model, lambda rows, shift=shift: model.predict(rows) + shift, X)
    (trees,) = model.groups
    turned = replace(trees, roots=np.ascontiguousarray(trees.roots[::-1]))
    turned = replace(model, groups=(turned,))  # another order of the sum
    assert verify(model, turned, X).largest_difference < 1e-12


@pytest.mark.parametrize(
    ("name", "array", "change"),
    [
        ("regression", "threshold", lambda a: np.nextafter(a, np.float32(np.inf))),
        ("missing values", "missing_left", lambda a: 1 - a),
    ],
)
def test_probe_rows_find_rows_sent_the_wrong_way(name, array, change):
    model, _, _ = made(name)
    (trees,) = model.groups
    wrong = replace(model, groups=(replace(trees, **{array: change(getattr(trees, array))}),))
    with pytest.raises(ExportMismatch):
        verify(model, wrong, probe_rows(model), 1e-9)


@pytest.mark.parametrize("case", ["three classes", "regression", "multinomial"])
def test_every_export_is_verified_in_one_way(case, to_onnx, to_treelite, tmp_path):
    ensemble, (X, y) = fitted(case), CASES[case][2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        small = sb.compress(ensemble, X, y, max_estimators=4, tolerance=None)
    small.save(tmp_path / "model.sbag")
    loaded = sb.load(tmp_path / "model.sbag")
    exports = [small.to_sklearn(), loaded, small.compile(), small.to_onnx(tmp_path / "model.onnx")]
    exports += [small.to_treelite()] if case in OF_TREES else []
    sb.to_onnx(loaded, tmp_path / "loaded.onnx")  # an ensemble needs no rows before the path
    assert all((tmp_path / f"{name}.onnx").exists() for name in ("model", "loaded"))
    for export in exports:
        for found in (small.verify(export, X), sb.verify(loaded, export, X)):
            assert found.n_rows == len(X)
            assert found.largest_difference < 1e-12
    with pytest.raises(sb.ExportMismatch):
        small.verify(ensemble, X)  # the whole ensemble
    with pytest.raises(TypeError, match="a str is not an export: pass what to_onnx"):
        small.verify("model.onnx", X)


def test_rows_of_exports_are_those_of_the_model(to_onnx, to_treelite):
    model, _, X = made("three classes")
    for export in (to_onnx(model), to_treelite(model)):
        assert export.verify(sp.csr_matrix(X)).n_rows == len(X)
        assert np.array_equal(export.predict(sp.csr_matrix(X)), export.predict(X))
    export = to_onnx(model)
    for call in (export.verify, export.predict):
        with pytest.raises(ValueError, match="X has 3 features, but 4 were fitted"):
            call(X[:, :3])


@pytest.mark.parametrize("calibration", [None, "temperature"])
def test_sklearn_keeps_the_names_of_columns(calibration):
    X, y = pd.DataFrame(CANCER[0]).add_prefix("f"), CANCER[1]
    forest = RandomForestClassifier(30, random_state=0).fit(X, y)
    small = sb.compress(forest, X, y, calibration=calibration)
    exported = small.to_sklearn()
    assert list(exported.feature_names_in_) == list(X.columns)
    assert np.abs(small.predict_proba(X) - exported.predict_proba(X)).max() < 1e-12
    with pytest.raises(ValueError, match="feature names"):
        exported.predict_proba(X[X.columns[::-1]])
