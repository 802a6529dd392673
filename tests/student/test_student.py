"""Students through `compress`: deterministic, weighed, monotone, and on copies of the trees."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_diabetes, make_classification, make_regression
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier, RandomForestRegressor

import sparsebag as sb
from sparsebag.calibration.temperature import Temperature
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.student.student import students
from sparsebag.student.teacher import RECIPES, Recipe, Teacher
from student.forests import CANCER, FORESTS, fitted, one_hot, teacher_of


@pytest.mark.parametrize("max_nodes", [0.3, 0.04, 5])
@pytest.mark.parametrize("name", FORESTS)
def test_the_users_trees_are_untouched_and_predictions_are_sound(name, max_nodes):
    ensemble, pool, X, y = fitted(name)
    before = pickle.dumps(ensemble)
    small = sb.compress(ensemble, X, y, max_nodes=max_nodes)
    assert pickle.dumps(ensemble) == before
    assert isinstance(small.refinement_, Recipe)
    if pool.classes is None:
        assert_allclose(small.predict(X), small._vote.predict(X), rtol=1e-10)
    else:
        proba = small.predict_proba(X)
        assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-12)
        assert proba.min() >= 0.0
        assert_allclose(proba, small._vote.predict_proba(X), atol=1e-10)


@pytest.mark.parametrize("name", ["two classes", "three classes", "regression", "columns drawn"])
def test_the_number_of_threads_changes_nothing(name):
    ensemble, _, X, y = fitted(name)
    one, two = (sb.compress(ensemble, X, y, max_nodes=0.2, n_jobs=n) for n in (1, 2))
    assert one.compile().file_bytes == two.compile().file_bytes
    assert_array_equal(one.weights_, two.weights_)
    assert_array_equal(one.path_.ratio, two.path_.ratio)
    vote = "predict_proba" if hasattr(one, "predict_proba") else "predict"
    assert_array_equal(getattr(one, vote)(X), getattr(two, vote)(X))


@pytest.mark.parametrize("name", ["three classes", "regression"])
def test_a_weight_of_two_is_a_row_twice(name):
    _, pool, X, y = fitted(name)
    counts = np.random.default_rng(0).integers(1, 4, len(y))
    weighted = Teacher(pool, pool.prepare(X), one_hot(pool, y), counts.astype(float))
    rows = np.repeat(np.arange(len(y)), counts)
    bags = [np.flatnonzero(np.isin(rows, pool.in_bag[j])) for j in range(len(pool.members))]
    repeated = Teacher(
        type(pool)(**{**vars(pool), "in_bag": bags}),
        pool.prepare(X)[rows],
        one_hot(pool, y)[rows],
        np.ones(len(rows)),
    )
    assert_allclose(weighted.oob_vote[rows], repeated.oob_vote, atol=1e-12)
    for twice in (0.0, 1.0):  # weights say what rows are worth, not how many there are to shrink by
        one, two = (t.lesson(Recipe(0.0, twice)) for t in (weighted, repeated))
        assert_allclose(one.mass, two.mass)
        assert_allclose(one.value, two.value, rtol=1e-5, atol=1e-6)


def test_out_of_bag_votes_are_scikit_learns():
    X, y = CANCER
    forest = RandomForestClassifier(60, oob_score=True, random_state=0).fit(X, y)
    pool = read_ensemble(forest)
    teacher = Teacher(pool, pool.prepare(X), one_hot(pool, y), np.ones(len(y)))
    assert_allclose(teacher.oob_vote, forest.oob_decision_function_, atol=1e-12)


@pytest.mark.parametrize("name", FORESTS)
def test_sizes_keep_to_their_limits(name):
    teacher = teacher_of(name)
    whole = teacher.table.n_nodes
    allowed = whole * np.array([0.7, 0.3, 0.1, 0.02, 0.001])
    trees = teacher.table.n_trees
    for limit, student in zip(allowed, students(teacher.lesson(RECIPES[0]), allowed), strict=True):
        assert student.n_nodes <= max(1, limit)
        assert len(student.trees) <= trees
        trees = len(student.trees)
        assert len(np.unique(student.trees)) == trees
        assert student.offset[-1] == student.n_nodes
        assert np.all(student.offset[1:] > student.offset[:-1])
    most = list(students(teacher.lesson(RECIPES[0]), [0.5 * whole], 3))[-1]
    assert len(most.trees) <= 3


def test_a_student_is_taught_by_the_whole_ensemble():
    """Two trees that were refitted to the vote of all are better than two as they are."""
    X, y = make_regression(600, 8, noise=20.0, random_state=0)
    forest = RandomForestRegressor(60, random_state=0).fit(X[:300], y[:300])
    taught = sb.compress(forest, X[:300], y[:300], max_estimators=3)
    plain = sb.compress(forest, X[:300], y[:300], max_estimators=3, refine=None)
    assert taught.score(X[300:], y[300:]) > plain.score(X[300:], y[300:])


def test_targets_far_from_zero_are_pruned_alike():
    X, y = load_diabetes(return_X_y=True)
    y = y / np.std(y)
    small = [
        sb.compress(RandomForestRegressor(20, random_state=0).fit(X, t), X, t, max_nodes=0.05)
        for t in (y, y + 1e6)
    ]
    near, far = small[0].predict(X), small[1].predict(X) - 1e6
    assert np.mean((near - far) ** 2) < 0.02 * np.var(near)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_leaves_of_small_classifiers_are_scores(n_classes):
    """What files and exports read from rounded shares of the vote is what the student said."""
    X, y = make_classification(600, 8, n_informative=6, n_classes=n_classes, random_state=0)
    forest = RandomForestClassifier(60, random_state=0).fit(X, y)
    pool = read_ensemble(forest)
    teacher = Teacher(pool, pool.prepare(X), one_hot(pool, y), np.ones(len(y)))
    lesson = teacher.lesson(RECIPES[0])
    *_, student = students(lesson, teacher.table.n_nodes * np.array([0.2, 0.05]))
    scored = student.scored(lesson)

    def of_classes(vote):
        return np.concatenate([1.0 - vote, vote], axis=1) if vote.shape[1] == 1 else vote

    def cross_entropy(student):
        said = np.clip(of_classes(student.vote(lesson.leaf)), 1e-3, 1.0)
        return -np.sum(lesson.weight[:, None] * of_classes(lesson.goal) * np.log(said))

    assert student.scale is None
    assert cross_entropy(scored) < cross_entropy(student)
    members = scored.members(pool, lesson)
    votes = np.mean([member.estimator.predict_proba(X) for member in members], axis=0)
    assert votes.min() >= 0.0
    said = Temperature(1.0, scale=scored.scale).transform(votes)
    expected = of_classes(scored.vote(lesson.leaf))[: len(y)]
    assert_allclose(said, expected, atol=0.02)
    small, large = (sb.compress(forest, X, y, max_nodes=share, floor=0.1) for share in (0.05, 0.3))
    assert small.calibration_.calibrator.scale > 0.0 == small.compile().floor  # scores need none
    assert large.calibration_.calibrator.scale == 0.0 < large.compile().floor
    leaves = np.stack([tree["values"].max(axis=0) for tree in small.to_shap()["trees"]]).sum(axis=0)
    assert leaves.max() > 1.0  # scores, not shares of a vote


@pytest.mark.parametrize("name", ["two classes", "three classes"])
def test_scores_end_where_the_cross_entropy_is_least(name, monkeypatch):
    teacher = teacher_of(name)
    lesson = teacher.lesson(RECIPES[0])
    [student] = students(lesson, [0.2 * teacher.table.n_nodes])
    monkeypatch.setattr("sparsebag.student.student.SCORE_SWEEPS", 500)
    error = lesson.weight[:, None] * (lesson.goal - student.scored(lesson).vote(lesson.leaf))
    for leaf in student.leaf_of[lesson.leaf[student.trees]]:
        slope = [np.bincount(leaf, column, student.n_nodes) for column in error.T]
        assert_allclose(slope, 0.0, atol=0.05)


# -- monotonic constraints --------------------------------------------------------------------


def monotone_data(n=500, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 4))
    signal = X[:, 0] - np.sin(X[:, 1]) - 0.5 * X[:, 1] + X[:, 2] ** 2
    return X, signal + 1.5 * rng.normal(size=n)


@pytest.mark.parametrize("how", [{}, {"max_nodes": 0.1}, {"max_nodes": 20}], ids=str)
@pytest.mark.parametrize(
    ("kind", "n_classes"),
    [(RandomForestRegressor, None), (RandomForestClassifier, 2), (ExtraTreesClassifier, 2)],
    ids=["regression", "two classes", "extra trees"],
)
def test_monotone_forests_stay_monotone(kind, n_classes, how):
    X, y = monotone_data()
    y = y if n_classes is None else (y > np.median(y)).astype(int)
    forest = kind(40, monotonic_cst=[1, -1, 0, 0], bootstrap=True, random_state=0).fit(X, y)
    small = sb.compress(forest, X, y, **how)

    def said(rows):
        return small.predict(rows) if n_classes is None else small.predict_proba(rows)[:, 1]

    rng = np.random.default_rng(1)
    rows = rng.uniform(-2.5, 2.5, size=(4000, 4))
    for column, sign in ((0, 1), (1, -1)):
        moved = rows.copy()
        moved[:, column] += rng.exponential(1.0, len(rows))
        assert np.min(sign * (said(moved) - said(rows))) >= -1e-12
