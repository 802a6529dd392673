"""What the evidence tests share: small problems, and the uniform vote of an evidence."""

import numpy as np
from sklearn.datasets import make_classification, make_regression

from sparsebag.evidence.collect import collect_evidence
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.evidence.members import FittedMembers


def classes(n_classes=3, n_rows=150, seed=0):
    """Classes of unequal size that no model gets all right."""
    return make_classification(
        n_rows,
        6,
        n_informative=4,
        n_classes=n_classes,
        n_clusters_per_class=1,
        weights=np.arange(1, n_classes + 1) / sum(range(1, n_classes + 1)),
        flip_y=0.1,
        random_state=seed,
    )


def numbers(n_rows=150, seed=0):
    """Regression targets with noise, in no particular unit."""
    return make_regression(n_rows, 6, n_informative=4, noise=20.0, random_state=seed)


def evidence_of(ensemble, X, y, **options):
    """Read an ensemble and collect its evidence."""
    return collect_evidence(read_ensemble(ensemble), X, y, **options)


def bootstrapped(model, X, y, n_members=5, seed=0, n_columns=None):
    """A list of models fitted by hand on bootstraps, with the rows and columns of each."""
    from sklearn.base import clone

    rng = np.random.default_rng(seed)
    models, rows, columns = [], [], []
    for _ in range(n_members):
        rows.append(rng.integers(0, len(y), len(y)))
        columns.append(rng.permutation(X.shape[1])[: n_columns or X.shape[1]])
        block = X[rows[-1]] if n_columns is None else X[rows[-1]][:, columns[-1]]
        models.append(clone(model).fit(block, y[rows[-1]]))
    return FittedMembers(models, rows, None if n_columns is None else columns)


def uniform_vote(evidence):
    """Mean vote over the members that have a row out of bag; NaN where none has."""
    voters = np.full(evidence.n_rows, evidence.n_members)
    if evidence.oob_mask is not None:
        voters = evidence.oob_mask.sum(axis=1)
    with np.errstate(invalid="ignore"):
        return evidence.votes.sum(axis=1, dtype=np.float64) / voters


def uniform_class_votes(evidence):
    """The same for every class, shape (M, C)."""
    voters = np.asarray(evidence.oob_mask).sum(axis=1)
    with np.errstate(invalid="ignore"):
        return np.stack([plane.sum(axis=1) / voters for plane in evidence.class_votes], axis=1)
