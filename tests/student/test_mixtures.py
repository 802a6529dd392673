"""Mixtures of neighbouring rows, made in blocks."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.ensemble import RandomForestRegressor

from processes import peak_memory
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.student import mixtures as made
from sparsebag.student.teacher import Teacher


def test_wide_rows_do_not_fill_the_memory():
    X = np.random.default_rng(0).random((1000, 4000), dtype=np.float32)
    forest = RandomForestRegressor(2, max_depth=2, max_features=1, random_state=0).fit(X, X[:, 0])
    pool = read_ensemble(forest)
    _, peak = peak_memory(lambda: Teacher(pool, X, X[:, :1].astype(float), np.ones(len(X))))
    assert peak < 200e6  # all 6,000 mixtures are 96 MB, and several arrays are needed for each


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix, sp.csr_array])
def test_blocks_are_mixtures_of_their_own_rows(monkeypatch, kind):
    monkeypatch.setattr(made, "BLOCK_VALUES", 20)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3)).astype(np.float32)
    leaf = rng.integers(0, 9, (4, 50))
    first, second = made.neighbours(leaf, 100, rng)
    blocks = list(made.mixtures(kind(X), first, second, rng))
    assert max(block.shape[0] for block in blocks) <= 6
    mixed = np.concatenate([b if kind is np.asarray else b.toarray() for b in blocks])
    assert mixed.shape == (100, 3)
    assert mixed.dtype == np.float32
    low, high = np.minimum(X[first], X[second]), np.maximum(X[first], X[second])
    assert np.all((mixed >= low - 1e-6) & (mixed <= high + 1e-6))
    between = np.abs(mixed - X[first]) > 1e-6
    assert 0.2 < (between & (np.abs(mixed - X[second]) > 1e-6)).mean() < 0.8
