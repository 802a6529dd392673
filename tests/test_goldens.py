"""What must not change: weights at a given λ, the kernel and files, against kept numbers.

`goldens.json` has the numbers; ``python tests/test_goldens.py --write`` makes it anew, which is
right where a change of them is meant, or where scikit-learn fits other members than before.

The ensembles of the paper's preset have small bags: few rows then lose their last voter, where
SLSQP without prior mass follows rounding errors and two machines would disagree. Here neither
another order of the rows nor votes changed in their last digit moves a kept weight by 1e-8.
"""

import base64
import functools
import json
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import sklearn
from sklearn.base import is_classifier
from sklearn.datasets import load_wine
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_limits

import sparsebag as sb
from toy import CANCER, DIABETES, DIGITS, with_missing

PATH = Path(__file__).with_name("goldens.json")

WEIGHT_TOLERANCE = 1e-6
OBJECTIVE_TOLERANCE = 1e-9  # relative
PREDICTION_TOLERANCE = 1e-6
FILE_TOLERANCE = 1e-12
N_PINNED_ROWS = 5

LAM, PAPER_LAM = 0.02, 0.05
FLOOR, PRIOR_MASS = 1e-3, 0.02  # of a λ that is a number; the paper's preset has neither
PAPER_CLIP = 1e-15


def standardised(X, y):
    """Columns and target of unit variance: λ = 0.02 means something then."""
    return (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()


GRAPES, REGIONS = load_wine(return_X_y=True)
WINE = GRAPES, np.array(["nebbiolo", "barbera", "grignolino"])[REGIONS]  # not in numbers' order
TEN_DIGITS = DIGITS[0][:300], DIGITS[1][:300]
CHOSEN = np.flatnonzero(np.isin(DIGITS[1], [1, 3, 8, 9]))[:300]
FOUR_DIGITS = DIGITS[0][CHOSEN] / 16.0, DIGITS[1][CHOSEN]
PROGRESS = standardised(*DIABETES)


def of(kind, data, *given, **how):
    return kind(*given, random_state=0, **how), data


FEW, THIRD = {"max_samples": 0.15}, {"max_samples": 0.3}
DRAWN = {"bootstrap": True, **THIRD}
STUMP = DecisionTreeClassifier(max_depth=3)
LINE = LogisticRegression(C=10.0, tol=1e-10, solver="newton-cholesky")
CASES = {
    "forest": of(RandomForestClassifier, CANCER, 30, min_samples_leaf=2, **FEW),
    "extra trees, ten classes": of(ExtraTreesClassifier, TEN_DIGITS, 30, max_depth=6, **DRAWN),
    "bagged trees, named classes": of(BaggingClassifier, WINE, STUMP, 30, max_features=0.5, **FEW),
    "bagged logistic": of(
        BaggingClassifier, FOUR_DIGITS, LINE, 24, max_samples=0.2, max_features=0.2
    ),
    "missing values": of(RandomForestClassifier, with_missing(CANCER), 30, max_depth=3, **FEW),
    "full bootstrap": of(RandomForestClassifier, CANCER, 30),
    "forest, regression": of(RandomForestRegressor, PROGRESS, 30, min_samples_leaf=5, **THIRD),
    "extra trees, regression": of(ExtraTreesRegressor, PROGRESS, 30, max_depth=5, **DRAWN),
    "bagged ridge": of(BaggingRegressor, PROGRESS, Ridge(), 24, max_samples=0.1, max_features=0.2),
    "missing values, regression": of(
        RandomForestRegressor, with_missing(PROGRESS), 30, min_samples_leaf=5, **THIRD
    ),
}
LINEAR = ("bagged logistic", "bagged ridge")
ILL_POSED = "full bootstrap"  # without prior mass, as in the paper's preset
WAYS = {"paper": {"preset": "paper"}, "lam": {"lam": LAM, "refine": None, "calibration": None}}
MODELS = [(name, way) for name in CASES for way in WAYS if (name, way) != (ILL_POSED, "paper")]
KEPT_FILES = [
    ("bagged trees, named classes", "lam"),
    ("missing values", "paper"),
    ("bagged ridge", "paper"),
]


@functools.cache
def fitted(name):
    ensemble, (X, y) = CASES[name]
    with threadpool_limits(1):  # threads would wait for one another in many small fits
        return ensemble.fit(X, y), X, y


@functools.cache
def compressed(name, way):
    return sb.compress(*fitted(name), **WAYS[way])


def member_votes(ensemble, X):
    """What each member itself says of X: (rows, members), or (rows, members, classes)."""
    members = ensemble.estimators_
    columns = getattr(ensemble, "estimators_features_", [slice(None)] * len(members))
    if not is_classifier(ensemble):
        said = [member.predict(X[:, own]) for member, own in zip(members, columns, strict=True)]
        return np.stack(said, axis=1)
    votes = np.zeros((len(X), len(members), len(ensemble.classes_)))
    for j, (member, own) in enumerate(zip(members, columns, strict=True)):
        votes[:, j, member.classes_.astype(int)] = member.predict_proba(X[:, own])
    return votes


@functools.cache
def matrices(name):
    """Votes, out-of-bag mask and targets, as `fit_weights` takes them."""
    ensemble, X, y = fitted(name)
    mask = np.ones((len(y), len(ensemble.estimators_)), dtype=bool)
    for j, rows in enumerate(ensemble.estimators_samples_):
        mask[rows, j] = False
    return member_votes(ensemble, X), mask, y


def rows_of(X):
    """The rows, as trees read them."""
    return X.astype(np.float32)


def rows_with_gaps(X):
    """More missing values than any tree has seen, and a row of nothing else."""
    rows = rows_of(X)
    rows[np.random.default_rng(1).random(rows.shape) < 0.3] = np.nan
    rows[0] = np.nan
    return rows


def rows_to_try(name, X):
    """Whole rows and rows with gaps; linear models have no way for those."""
    return rows_of(X) if name in LINEAR else np.concatenate([rows_of(X), rows_with_gaps(X)])


def pinned_rows(rows):
    return rows[:: len(rows) // N_PINNED_ROWS][:N_PINNED_ROWS]


def numbers(model, rows):
    """Probabilities, or predictions of a regressor."""
    return model.predict_proba(rows) if hasattr(model, "predict_proba") else model.predict(rows)


def plain_vote(name, way, rows):
    """The members' weighted vote in NumPy, with the floor of a λ that is a number."""
    votes = member_votes(fitted(name)[0], rows)
    vote = np.tensordot(votes, compressed(name, way).weights_, axes=(1, 0))
    if votes.ndim == 3 and way == "lam":
        vote = (1.0 - FLOOR) * vote + FLOOR / votes.shape[2]
    return vote


def calls(name):
    """Calls of `fit_weights` that are kept, by a name of their own."""
    loss = "log_loss" if is_classifier(CASES[name][0]) else "squared_error"
    kept = {"lam": {"loss": loss, "lam": LAM}}
    if name != ILL_POSED:
        kept["paper"] = {"loss": loss, "preset": "paper"}
    if is_classifier(CASES[name][0]):
        kept["brier"] = {"loss": "brier", "lam": LAM}
    if name in ("forest", "forest, regression"):
        kept["no penalty"] = {"loss": loss}
        for solver in ("slsqp", "active_set", "projected_gradient", "mirror"):
            kept[solver] = {"loss": loss, "lam": LAM, "solver": solver}
    return kept


SOLVES = [(name, call) for name in CASES for call in calls(name)]


@functools.cache
def solved(name, call):
    return sb.fit_weights(*matrices(name), **calls(name)[call])


def plain_objective(name, call, weights):
    """f(w) of docs and paper, in plain NumPy."""
    votes, mask, y = matrices(name)
    how = calls(name)[call]
    paper = "preset" in how
    lam = PAPER_LAM if paper else how.get("lam", 0.0)
    floor, mass = (0.0, 0.0) if paper else (FLOOR, PRIOR_MASS)
    votes = votes if votes.ndim == 3 else votes[:, :, None]
    said = votes * mask[:, :, None]
    uniform = said.sum(axis=1) / mask.sum(axis=1)[:, None]
    vote = np.tensordot(said, weights, axes=(1, 0)) + mass * uniform
    vote /= (mask @ weights + mass)[:, None]
    if how["loss"] == "squared_error":
        losses = (vote[:, 0] - y) ** 2
    else:
        truth = y[:, None] == np.unique(y)
        vote = (1.0 - floor) * vote + floor / truth.shape[1]
        if how["loss"] == "brier":
            losses = np.sum((vote - truth) ** 2, axis=1)
        else:
            losses = -np.log(np.maximum(vote[truth], PAPER_CLIP))
    return losses.mean() - lam * np.sum(weights**2)


def kept_weights(weights):
    """Those above zero, by member: the other ones are exact zeros."""
    return {str(j): round(float(weights[j]), 9) for j in np.flatnonzero(weights)}


def fingerprint(name):
    """A number that tells whether scikit-learn has fitted the members that are kept here."""
    votes, mask, _ = matrices(name)
    votes = votes.reshape(*votes.shape[:2], -1) * mask[:, :, None]
    return round(float(np.sum(votes * np.cos(np.arange(votes.size)).reshape(votes.shape))), 6)


def made_goldens(folder):
    models, files = {}, {}
    for name, way in MODELS:
        X, small = fitted(name)[1], compressed(name, way)
        kept = {
            "weights": kept_weights(small.weights_),
            "predictions": numbers(small, pinned_rows(rows_of(X))).round(9).tolist(),
        }
        if name not in LINEAR:
            gaps = numbers(small, pinned_rows(rows_with_gaps(X)))
            kept["predictions with gaps"] = gaps.round(9).tolist()
        models.setdefault(name, {})[way] = kept
    for name, way in KEPT_FILES:
        small, path = compressed(name, way), folder / "model.sbag"
        small.save(path)
        rows = pinned_rows(rows_to_try(name, fitted(name)[1]))
        files[name] = {
            "content": base64.b64encode(zlib.compress(path.read_bytes(), 9)).decode(),
            "predictions": numbers(small, rows).tolist(),
            "labels": small.predict(rows).tolist(),
        }
    fits = {}
    for name, call in SOLVES:
        found = solved(name, call)
        fits.setdefault(name, {})[call] = {
            "objective": float(f"{found.objective:.12g}"),
            "weights": kept_weights(found.weights),
        }
    return {
        "sklearn": sklearn.__version__,
        "fingerprints": {name: fingerprint(name) for name in CASES},
        "models": models,
        "fits": fits,
        "files": files,
    }


@functools.cache
def goldens():
    return json.loads(PATH.read_text(encoding="utf-8"))


def kept(kind, name, which):
    """Kept numbers of an ensemble, if it is the one that was kept."""
    same = abs(fingerprint(name) - goldens()["fingerprints"][name]) < 1e-4
    if not same and sklearn.__version__ != goldens()["sklearn"]:
        pytest.skip(
            f"scikit-learn {sklearn.__version__} fits other members than "
            f"{goldens()['sklearn']}, of which numbers are kept"
        )
    assert same, "the members, or their bags, are not those that numbers are kept of"
    return goldens()[kind][name][which]


def close(found, expected, tolerance):
    return np.testing.assert_allclose(found, expected, rtol=0.0, atol=tolerance)


def check_weights(weights, expected):
    assert [str(j) for j in np.flatnonzero(weights)] == list(expected)
    close(weights[weights > 0], list(expected.values()), WEIGHT_TOLERANCE)
    assert weights.min() >= 0.0
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(("name", "way"), MODELS)
def test_weights(name, way):
    check_weights(compressed(name, way).weights_, kept("models", name, way)["weights"])


@pytest.mark.parametrize(("name", "call"), SOLVES)
def test_fit_weights_and_its_objective_on_paper(name, call):
    found, expected = solved(name, call), kept("fits", name, call)
    assert found.status.success
    assert found.objective == pytest.approx(expected["objective"], rel=OBJECTIVE_TOLERANCE)
    check_weights(found.weights, expected["weights"])
    plain = plain_objective(name, call, found.weights)
    assert found.objective == pytest.approx(plain, rel=OBJECTIVE_TOLERANCE)


@pytest.mark.parametrize(("name", "way"), MODELS)
def test_predictions_are_the_kept_ones_and_the_members_weighted_vote(name, way):
    X, small, expected = fitted(name)[1], compressed(name, way), kept("models", name, way)
    for rows, label in ((rows_of(X), ""), (rows_with_gaps(X), " with gaps")):
        if f"predictions{label}" in expected:
            found = numbers(small.compile(), pinned_rows(rows))
            close(found, expected[f"predictions{label}"], PREDICTION_TOLERANCE)
    ensemble, rows = fitted(name)[0], rows_to_try(name, X)
    vote = plain_vote(name, way, rows)
    close(numbers(small.compile(), rows), vote, PREDICTION_TOLERANCE)
    assert np.array_equal(numbers(small, rows), numbers(small.compile(), rows))
    if is_classifier(ensemble):
        best = np.sort(vote, axis=1)
        clear = best[:, -1] - best[:, -2] > PREDICTION_TOLERANCE
        labels = ensemble.classes_[vote.argmax(axis=1)]
        assert clear.mean() > 0.9
        assert np.array_equal(small.predict(rows)[clear], labels[clear])


@pytest.mark.parametrize("name", [name for name, _ in KEPT_FILES])
def test_files_of_before_are_read(name, tmp_path):
    expected = goldens()["files"][name]
    (tmp_path / "model.sbag").write_bytes(zlib.decompress(base64.b64decode(expected["content"])))
    loaded = sb.load(tmp_path / "model.sbag")
    X, _ = CASES[name][1]
    rows = pinned_rows(rows_to_try(name, X))
    close(numbers(loaded, rows), expected["predictions"], FILE_TOLERANCE)
    if not is_classifier(CASES[name][0]):
        close(loaded.predict(rows), expected["labels"], FILE_TOLERANCE)
    else:
        assert loaded.predict(rows).tolist() == expected["labels"]


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        raise SystemExit("python tests/test_goldens.py --write makes tests/goldens.json anew")
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        made = made_goldens(Path(folder))
    PATH.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    print(f"{PATH}: {PATH.stat().st_size:,} bytes")
