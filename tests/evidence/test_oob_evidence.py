"""`OOBEvidence`: its parallel arrays are sliced together, and uncovered rows are counted."""

import numpy as np
import pytest

from sparsebag.evidence.evidence import (
    OOBEvidence,
    zero_in_bag,
)
from sparsebag.evidence.from_predictions import from_predictions

ROWS, MEMBERS = 10, 4


@pytest.fixture
def evidence():
    rng = np.random.default_rng(0)
    tensor = rng.dirichlet(np.ones(3), size=(ROWS, MEMBERS))
    mask = rng.random((ROWS, MEMBERS)) < 0.5
    mask[:, 0] = True
    return from_predictions(
        tensor,
        mask,
        np.arange(ROWS) % 3,
        task="classification",
        sample_weight=np.arange(1.0, ROWS + 1),
        every_class=True,
    )


BOOLEAN = np.arange(ROWS) % 3 == 0


@pytest.mark.parametrize(
    "rows",
    [slice(2, 7), slice(None, None, 3), np.array([7, 0, 0, 3]), [1, 5], BOOLEAN, np.array([], int)],
    ids=["slice", "stride", "indices", "list", "boolean", "none"],
)
def test_take_slices_every_parallel_array(evidence, rows):
    part = evidence.take(rows)
    np.testing.assert_array_equal(part.votes, evidence.votes[rows])
    np.testing.assert_array_equal(part.oob_mask, evidence.oob_mask[rows])
    np.testing.assert_array_equal(part.target, evidence.target[rows])
    np.testing.assert_array_equal(part.sample_weight, evidence.sample_weight[rows])
    for plane, whole in zip(part.class_votes, evidence.class_votes, strict=True):
        np.testing.assert_array_equal(plane.toarray(), whole.toarray()[rows])
    assert part.n_rows == len(part.target)
    assert part.classes is evidence.classes
    assert part.n_members == MEMBERS


@pytest.mark.parametrize("members", [np.array([2, 0]), np.array([3]), np.array([1, 1, 1])])
def test_take_members_slices_every_column(evidence, members):
    part = evidence.take_members(members)
    np.testing.assert_array_equal(part.votes, evidence.votes[:, members])
    np.testing.assert_array_equal(part.oob_mask, evidence.oob_mask[:, members])
    np.testing.assert_array_equal(part.target, evidence.target)
    for plane, whole in zip(part.class_votes, evidence.class_votes, strict=True):
        np.testing.assert_array_equal(plane.toarray(), whole.toarray()[:, members])
    assert part.n_rows == ROWS


def test_planes_may_be_dense():
    """On an accelerator they are (there is no sparse matrix there)."""
    votes = np.ones((5, 3))
    whole = OOBEvidence(votes, None, np.arange(5), "classification", class_votes=(votes, votes))
    assert whole.nbytes == 3 * votes.nbytes
    assert whole.take([0, 2]).class_votes[1].shape == (2, 3)
    assert whole.take_members(np.array([1])).class_votes[0].shape == (5, 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_zeros_are_put_exactly_where_the_mask_is_false(dtype):
    votes = np.array([[0.3, np.nan, -2.0], [np.inf, 5e-40, -np.inf]], dtype=dtype)
    mask = np.array([[True, False, True], [False, True, False]])
    expected = np.array([[0.3, 0, -2.0], [0, 5e-40, 0]], dtype=dtype)
    before = votes.copy()
    odd = (mask.astype(np.uint8) * 255).view(bool)  # other libraries' true may be any byte
    for oob in (mask, odd):
        np.testing.assert_array_equal(zero_in_bag(votes, oob), expected)
        np.testing.assert_array_equal(zero_in_bag(votes.T, oob.T), expected.T)
        np.testing.assert_array_equal(
            zero_in_bag(np.stack([votes, votes], axis=2), oob)[:, :, 1], expected
        )
    np.testing.assert_array_equal(votes, before)
    assert zero_in_bag(votes, mask).dtype == dtype
    assert zero_in_bag(votes, None) is votes
