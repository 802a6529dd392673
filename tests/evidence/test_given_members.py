"""What `stream_members` is given: lists with their bags, rows nothing proves, paths."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import sparsebag as sb

X, Y = load_iris(return_X_y=True)
FOREST = RandomForestClassifier(12, random_state=0).fit(X, Y)
ORDER = np.random.default_rng(0).permutation(len(Y))


def bag(**how):
    lines = LogisticRegression(max_iter=1000)
    return BaggingClassifier(lines, n_estimators=40, random_state=0, **how).fit(X, Y)


def test_a_list_with_its_bags_is_streamed_as_the_ensemble():
    stream = sb.stream_members(
        list(FOREST.estimators_), X, Y, estimators_samples=FOREST.estimators_samples_
    )
    whole = sb.stream_members(FOREST, X, Y)
    np.testing.assert_array_equal(stream.block(0).votes, whole.block(0).votes)
    np.testing.assert_array_equal(stream.block(0).oob_mask, whole.block(0).oob_mask)


def test_columns_of_a_list_are_those_of_each():
    half = bag(max_features=0.5, oob_score=True)
    stream = sb.stream_members(
        half.estimators_, X, Y, evidence="holdout", estimators_features=half.estimators_features_
    )
    np.testing.assert_allclose(
        stream.block(0).votes,
        sb.stream_members(half, X, Y, evidence="holdout").block(0).votes,
        rtol=1e-6,
    )


def test_an_ensemble_knows_its_own_bags():
    with pytest.raises(ValueError, match="belong to a plain list of models; RandomForestClass"):
        sb.stream_members(FOREST, X, Y, estimators_samples=FOREST.estimators_samples_)


def test_rows_that_nothing_proves_are_warned_of_as_compress_does():
    with pytest.warns(sb.UnverifiedRowsWarning, match="nothing shows whether X, y are") as told:
        sb.stream_members(bag(), X[ORDER], Y[ORDER])
    assert told[0].filename == __file__
    sb.stream_members(bag(oob_score=True), X, Y)  # a warning would be an error
    sb.stream_members(bag(), X, Y, evidence="holdout")


@pytest.mark.parametrize("call", [sb.compress, sb.stream_members])
def test_a_path_is_no_table(call, tmp_path):
    np.save(tmp_path / "X.npy", X)
    for path in (tmp_path / "X.npy", str(tmp_path / "X.npy")):
        with pytest.raises(ValueError, match=r"X is a path; pass numpy\.load\(path, mmap_mode='r"):
            call(FOREST, path, Y)
        with pytest.raises(ValueError, match="y is a path; pass numpy"):
            call(FOREST, X, path)


def test_evidence_is_a_known_kind():
    with pytest.raises(ValueError, match="evidence='holdut' is not known; use 'oob' or 'holdout'"):
        sb.stream_members(FOREST, X, Y, evidence="holdut")
