"""Models around ensembles: preprocessing inside the folds, saved and exported as a whole."""

import pickle
from dataclasses import replace

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
import skops.io
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.ensemble import BaggingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.model_selection import GridSearchCV, ShuffleSplit, cross_val_score
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from typer.testing import CliRunner

import sparsebag as sb
from models import KINDS, forest, head, made, rare, regressor, table, texts
from sparsebag.cli.app import app
from toy import DIABETES

X, Y = table()


class Counter(TransformerMixin, BaseEstimator):
    """Remembers how many rows every fit of it has seen."""

    seen: list[int] = []  # noqa: RUF012

    def fit(self, X, y=None):
        type(self).seen.append(len(X))
        self.fitted_ = True
        return self

    def transform(self, X):
        return np.asarray(X)


def test_preprocessing_is_fitted_inside_the_folds():
    X, y = DIABETES
    pipe = make_pipeline(Counter(), regressor()).fit(X, y)
    Counter.seen.clear()
    sb.compress(pipe, X, y)
    assert Counter.seen == [331, 331, 332, 332]


def test_a_head_that_cannot_be_fitted_to_a_fold_is_told():
    X = pd.DataFrame({"a": ["x", "y"] * 50 + ["z"], "b": np.arange(101.0)})
    y = np.arange(101) % 3 == 0
    encoder = OneHotEncoder(sparse_output=False)
    pipe = make_pipeline(encoder, forest()).fit(X[["a"]], y)
    with pytest.warns(UserWarning, match="cannot be refitted on part of the rows"):
        sb.compress(pipe, X[["a"]], y)


def test_a_transformed_target_is_judged_in_its_own_units():
    X, y = DIABETES
    target = TransformedTargetRegressor(regressor(), func=np.log, inverse_func=np.exp).fit(X, y)
    small = sb.compress(target, X, y)
    error = np.mean((y - y.mean()) ** 2)
    assert 0.2 * error < small.regressor_.selection_.expected_risk < error


@pytest.mark.filterwarnings("ignore:could not verify that X, y")
@pytest.mark.parametrize(("func", "inverse"), [(np.log, np.exp), (np.sqrt, np.square)])
def test_members_that_are_no_trees_are_judged_in_its_units_too(func, inverse):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (3000, 4))
    y = np.exp(2.0 + 1.5 * X[:, 0] + X[:, 1] * X[:, 2] + 0.4 * rng.normal(size=3000))
    bag = BaggingRegressor(KNeighborsRegressor(3), 20, max_samples=0.3, random_state=0)
    target = TransformedTargetRegressor(bag, func=func, inverse_func=inverse)
    target.fit(X[:1000], y[:1000])
    small = sb.compress(target, X[:1000], y[:1000], max_estimators=5)
    error = np.mean((small.predict(X[1000:]) - y[1000:]) ** 2)
    assert 0.6 * error < small.regressor_.selection_.expected_risk < 1.6 * error
    ratio = error / np.mean((target.predict(X[1000:]) - y[1000:]) ** 2)
    assert abs(small.regressor_.selection_.ratio - ratio) < 0.1


@pytest.mark.parametrize(
    "last",
    [GridSearchCV(forest(), {"max_depth": [4]}, cv=2), CalibratedClassifierCV(forest(), cv=2)],
)
def test_wrappers_inside_a_pipeline(last, tmp_path):
    pipe = make_pipeline("passthrough", head(), last).fit(X, Y)
    small = sb.compress(pipe, X, Y)
    assert np.mean(small.predict(X) == pipe.predict(X)) > 0.8
    sb.save(small, tmp_path / "m.sbag")  # of a search its best estimator
    again = sb.load(tmp_path / "m.sbag")
    assert sb.verify(small, again, X).largest_difference == 0.0
    assert sb.verify(small, sb.to_sklearn(small), X).largest_difference < 1e-9


@pytest.mark.parametrize("ensemble", [False, True])
def test_a_calibrated_frozen_forest_is_that_forest(ensemble):
    X, y = rare()
    frozen = FrozenEstimator(forest(20).fit(X[:900], y[:900]))
    model = CalibratedClassifierCV(frozen, ensemble=ensemble).fit(X[900:1200], y[900:1200])
    small = sb.compress(model, X[:900], y[:900], confidence=0.95)
    assert np.array_equal(small.path_.ratio, small.path_.ratio_calibrated)  # as the user's is
    assert "plus 1.64 of its error" in str(small.path_)
    assert small.selection_.before.members == 20
    assert clone(small).estimator.n_estimators == 20
    assert small.score(X[1200:], y[1200:]) > 0.9


@pytest.fixture(scope="module")
def folds():
    """Forests of three folds, and the rows they were fitted on and not."""
    X, y = rare()
    model = CalibratedClassifierCV(forest(20), cv=3).fit(X[:900], y[:900])
    return model, (X[:900], y[:900]), (X[900:], y[900:])


def test_folds_drawn_without_a_seed_are_not_guessed():
    X, y = rare()
    model = CalibratedClassifierCV(forest(20), cv=ShuffleSplit(2)).fit(X[:900], y[:900])
    with pytest.warns(sb.UnverifiedRowsWarning):
        assert sb.compress(model, X[:900], y[:900]).score(X[900:], y[900:]) > 0.9


def test_the_users_pipeline_is_not_changed():
    pipe = make_pipeline(head(), forest()).fit(X, Y)
    sb.compress(pipe, X, Y).set_output(transform="pandas")
    assert pipe.predict(X).shape == Y.shape  # pandas has no form for its sparse columns


def test_the_forests_of_folds_are_judged_by_held_out_rows_or_by_their_own(folds):
    model, (X, y), held_out = folds
    small = sb.compress(model, *held_out, evidence="holdout")
    assert small.selection_.before.members == 60
    assert small.score(*held_out) > 0.9
    for n in (600, 3):
        with pytest.raises(ValueError, match=r"not the rows it was fitted on\. Pass rows"):
            sb.compress(model, X[:n], y[:n])


def test_missing_targets_are_told():
    X, y = DIABETES
    target = TransformedTargetRegressor(regressor(), func=np.log, inverse_func=np.exp).fit(X, y)
    with pytest.raises(ValueError, match="y holds NaN or infinity; drop those rows"):
        sb.compress(target, X, np.where(np.arange(len(y)) == 0, np.nan, y))
    table_X, table_y = table()
    pipe = make_pipeline(head(), forest()).fit(table_X, table_y)
    with pytest.raises(ValueError, match="y holds NaN or infinity; drop those rows"):
        sb.compress(pipe, table_X, [None, *table_y[1:]])


def test_a_clone_of_folds_is_one_forest(folds):
    model, (X, y), held_out = folds
    small = sb.compress(model, X, y)
    again = clone(small).fit(X[:700], y[:700])
    assert again.selection_.before.members == 20
    assert again.score(*held_out) > 0.9
    assert np.min(cross_val_score(small, *rare(), cv=2)) > 0.85


def test_resampling_belongs_to_training():
    pytest.importorskip("imblearn", reason="imbalanced-learn is optional")
    from imblearn.over_sampling import RandomOverSampler
    from imblearn.pipeline import make_pipeline as make

    X, y = rare()
    pipe = make(StandardScaler(), RandomOverSampler(random_state=0), forest()).fit(X[:900], y[:900])
    small = sb.compress(pipe, X[900:], y[900:], evidence="holdout")
    assert [name for name, _ in small.steps] == [name for name, _ in pipe.steps]
    with pytest.raises(ValueError, match="it has 900 rows and the ensemble was fitted on"):
        sb.compress(pipe, X[:900], y[:900])


def test_functions_of_the_user_must_be_trusted(tmp_path):
    pipe = make_pipeline(FunctionTransformer(np.asarray), regressor())
    X, y = DIABETES
    sb.save(sb.compress(pipe.fit(X, y), X, y), tmp_path / "m.sbag")
    assert sb.load(tmp_path / "m.sbag", trusted=["numpy.asarray"]).predict(X).shape == y.shape
    (tmp_path / "bad.sbag").write_bytes((tmp_path / "m.sbag").read_bytes()[:-30] + b"x" * 30)
    with pytest.raises(sb.ArtifactError):
        sb.load(tmp_path / "bad.sbag")
    with pytest.raises(TypeError, match="this RandomForestRegressor is not compressed; pass what"):
        sb.save(pipe, tmp_path / "m.sbag")
    pipe = make_pipeline(FunctionTransformer(lambda X: X), regressor()).fit(X, y)
    with pytest.raises(sb.ArtifactError, match=r"cannot save this Pipeline.*into a module"):
        sb.save(sb.compress(pipe, X, y), tmp_path / "m.sbag")


def test_sizes_are_those_of_the_ensemble():
    pipe = make_pipeline(head(), forest()).fit(X, Y)
    small = sb.compress(pipe, X, Y)
    lines = str(small[-1].selection_).splitlines()
    assert lines[2].startswith("file ")
    assert lines[2].endswith(" (ensemble only)")
    alone = sb.compress(pipe[-1], pipe[:-1].transform(X), Y)
    assert "alone" not in str(alone.selection_)


@pytest.mark.parametrize("name", ["`Pipeline`", "`FrozenEstimator`"])
def test_what_was_read_from_a_file(name, tmp_path):
    one = made(KINDS[name])
    for path, model in (("whole", one.small), ("part", getattr(one.small, "estimator", None))):
        if model is None:
            continue
        sb.save(model, tmp_path / path)
        again, rows = sb.load(tmp_path / path), one.test[0]
        with pytest.raises(ValueError, match="not kept in files, pickles and copies; pass it as"):
            sb.report_on(again, *one.test)
        assert sb.report_on(again, *one.test, baseline=one.model).n_rows == len(one.test[1])
        copied = pickle.loads(pickle.dumps(one.small))
        assert sb.report_on(copied, *one.test, baseline=one.model).n_rows == len(one.test[1])
        assert_allclose(sb.to_onnx(again, rows).predict(rows), again.predict_proba(rows), atol=1e-3)
        assert_allclose(
            sb.to_sklearn(again).predict_proba(rows), again.predict_proba(rows), atol=1e-9
        )


def test_scikit_learns_tools_and_set_output():
    with sklearn.config_context(transform_output="pandas"):
        columns = head().set_params(onehotencoder__sparse_output=False)
        pipe = make_pipeline(columns, forest()).fit(X, Y)
        small = sb.compress(pipe, X, Y)
        assert list(small[-1].feature_names_in_) == list(pipe[-1].feature_names_in_)
        assert "SparseBaggingClassifier" in small._repr_html_()
        assert np.min(cross_val_score(small, X, Y, cv=2)) > 0.6
        assert permutation_importance(small, X, Y, n_repeats=1).importances.shape == (3, 1)
        rows = X.dropna()
        found = partial_dependence(small, rows, ["pay"], grid_resolution=5)
        assert found["average"].shape == (1, 5)


def test_leaves_paths_and_importances():
    X, y = DIABETES
    small = sb.compress(regressor().fit(X, y), X, y, max_nodes=0.2)
    leaves, (paths, ends) = small.apply(X), small.decision_path(X)
    assert leaves.shape == (len(X), small.n_active_)
    assert paths.shape == (len(X), small.n_nodes_) == (len(X), ends[-1])
    for j, start in enumerate(ends[:-1]):
        assert paths[0, start + leaves[0, j]] == 1
    assert_allclose(small.feature_importances_.sum(), 1.0)
    with pytest.raises(NotFittedError):
        clone(small).feature_importances_
    assert np.argmax(small.feature_importances_) in (2, 8)  # bmi and s5, as known of these data


def test_one_row_by_names():
    frame = pd.DataFrame(DIABETES[0], columns=[f"c{j}" for j in range(10)])
    small = sb.compress(regressor().fit(frame, DIABETES[1]), frame, DIABETES[1])
    expected = small.predict(frame[:1])[0]
    row = frame.iloc[0]
    for one in (row, row[::-1], dict(row), {**row, "more": 1.0}):
        assert small.predict_one(one) == expected == small.compile().predict_one(one)
    with pytest.raises(TypeError, match="'c9' are missing"):
        small.predict_one({"c1": 0.0})
    assert_array_equal(small.compile().predict(frame[frame.columns[::-1]]), small.predict(frame))


@pytest.mark.parametrize("name", ["`Pipeline`", "`TransformedTargetRegressor`", "`treelite.Model`"])
def test_shap_adds_up_to_the_vote(name):
    shap = pytest.importorskip("shap", reason="shap is in the models extra")
    one = made(KINDS[name])
    core = getattr(one.small, "regressor_", one.small)
    rows = one.test[0][:20]
    if name == "`Pipeline`":  # small enough for scores
        pipeline = sb.compress(one.model, *one.rows, max_nodes=0.04, calibration="temperature")
        core, rows = pipeline[-1], pipeline[:-1].transform(rows)
    explainer = shap.TreeExplainer(core.to_shap())
    added = explainer(np.asarray(rows)).values.sum(axis=1) + explainer.expected_value
    if name == "`Pipeline`":  # of scores: all that is left is the temperature
        found = core.calibration_.calibrator
        assert found.scale > 0.0
        vote = replace(found, scale=1.0).transform(added)
        assert_allclose(vote, core.predict_proba(rows), atol=1e-9)
        return
    vote = sum(
        weight * tree.tree_.predict(np.asarray(rows, dtype=np.float32)).reshape(len(rows), -1)
        for weight, tree in zip(core.weights_[core.active_], core.estimators_, strict=True)
    )
    assert_allclose(added.reshape(vote.shape), vote, atol=1e-9)


def test_onnx_reads_true_and_false_and_categories(tmp_path):
    pytest.importorskip("skl2onnx", reason="needs the onnx extra")
    rows = pd.DataFrame({"a flag": X.pay > 0, "size (cm)": pd.Categorical(X.city)})
    named = sklearn.compose.make_column_selector("size")
    columns = make_column_transformer(("passthrough", ["a flag"]), (OneHotEncoder(), named))
    small = sb.compress(make_pipeline(columns, forest()).fit(rows, Y), rows, Y)
    export = sb.to_onnx(small, rows)
    assert [each.name for each in export.session.get_inputs()] == list(rows.columns)
    assert sb.verify(small, export, rows, 1e-5).label_flips == 0
    assert str(export).startswith("<PipelineOnnx of CompiledEnsemble(")
    far = X[["pay"]] + 1e9  # few numbers in single precision
    scaled = sb.compress(make_pipeline(StandardScaler(), forest()).fit(far, Y), far, Y)
    told = r"600 rows: \d+ differ, .*\. ONNX computes the preprocessing in single precision; run"
    with pytest.raises(sb.ExportMismatch, match=told):
        sb.to_onnx(scaled, far)
    sb.save(small, tmp_path / "m.sbag")
    assert_array_equal(sb.load(tmp_path / "m.sbag").predict(rows), small.predict(rows))


# -- the command line -------------------------------------------------------------------------


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_saved_pipeline_on_the_command_line(kind, tmp_path):
    rows, model, out = (tmp_path / name for name in (f"rows.{kind}", "m.joblib", "p.csv"))
    frame = X.assign(y=Y, city=X.city.str.replace("Kiel", "Köln"))
    pipe = make_pipeline(head(), forest()).fit(frame[X.columns], Y)
    joblib.dump(pipe, model)
    if kind == "parquet":
        model = tmp_path / "m.skops"
        skops.io.dump(pipe, model)
    how = ["--sep", ";", "--encoding", "latin-1"] if kind == "csv" else []
    if how:
        frame.to_csv(rows, index=False, sep=";", encoding="latin-1")
    else:
        frame.to_parquet(rows)
    small = tmp_path / "small.sbag"
    where = ["-t", "y", "-o", small, "--trust-pickle", "--test", rows]
    done = run("compress", model, rows, *where, *how)
    assert done.exit_code == 0, done.output
    done = run("predict", small, rows, "-o", out, *how)
    assert done.exit_code == 0, done.output
    assert_array_equal(pd.read_csv(out)["prediction"], sb.load(small).predict(frame[X.columns]))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_pipeline_of_texts_on_the_command_line(kind, tmp_path):
    rows, model, out = (tmp_path / name for name in (f"rows.{kind}", "m.joblib", "p.csv"))
    text, y = texts()
    frame = pd.DataFrame({"text": text, "y": y})
    frame.to_csv(rows, index=False) if kind == "csv" else frame.to_parquet(rows)
    joblib.dump(make_pipeline(TfidfVectorizer(), forest()).fit(text, y), model)
    small = tmp_path / "small.sbag"
    done = run("compress", model, rows, "-t", "y", "-o", small, "--trust-pickle")
    assert done.exit_code == 0, done.output
    assert f"; {small.stat().st_size / 1000:.3g} kB with the rest" in done.output
    done = run("predict", small, rows, "-o", out)
    assert done.exit_code == 3
    assert "the model reads one text column, but the table has 'text', 'y'" in done.output
    assert run("predict", small, rows, "-o", out, "--keep", "y").exit_code == 0
    assert_array_equal(pd.read_csv(out)["prediction"], sb.load(small).predict(text))
    done = run("compress", small, rows, "-t", "y", "-o", tmp_path / "again.sbag")
    assert "is already compressed" in done.output


def test_several_ensembles_in_one_model_are_told(tmp_path):
    frame = pd.DataFrame(DIABETES[0], columns=[f"c{j}" for j in range(10)])
    frame.assign(y=DIABETES[1]).to_csv(tmp_path / "rows.csv", index=False)
    joblib.dump(regressor().fit(frame, np.column_stack([DIABETES[1]] * 2)), tmp_path / "m")
    done = run("compress", tmp_path / "m", tmp_path / "rows.csv", "-t", "y", "--trust-pickle")
    assert done.exit_code == 3
    assert "holds several ensembles; call sparsebag.compress in Python" in done.output


def test_all_columns_that_cannot_be_used_are_listed(tmp_path):
    days = pd.date_range("2020-01-01", periods=80)
    frame = pd.DataFrame({"day": days, "key": [f"k{i}" for i in range(80)], "x": np.arange(80.0)})
    frame.assign(y=np.arange(80) % 2).to_parquet(tmp_path / "rows.parquet")
    done = run("fit", tmp_path / "rows.parquet", "-t", "y", "-o", tmp_path / "m.sbag")
    assert done.exit_code == 3
    assert "--drop 'day' --drop 'key'" in " ".join(done.output.split())
