"""The objective over any source is the objective of all its rows at once."""

from dataclasses import replace

import numpy as np
import pytest

from problems import interior_point, objective, streamed
from sparsebag.objective.objective import NoWeightError, Objective
from sparsebag.sources.dask import DaskRows

LITTLE = 1000
"""Memory without room for any column."""


def on_dask(f, size=64):
    dask = pytest.importorskip("dask", reason="needs the dask extra")
    e = replace(f.evidence, prior=None)
    parts = [e.take(slice(i, i + size)) for i in range(0, e.n_rows, size)]
    tasks = [dask.delayed(part, traverse=False) for part in parts]
    with dask.config.set(scheduler="sync"):
        rows = DaskRows(tasks, e.n_members, e.task, e.classes, has_mask=e.oob_mask is not None)
        return Objective(rows, f.loss, f.penalty, floor=f.floor, prior_mass=f.prior_mass)


WAYS = {
    "stream": lambda f: streamed(f, block_rows=50),
    "little memory": lambda f: streamed(f, block_rows=50, memory=LITTLE),
    "generator": lambda f: streamed(f, generated=True),
    "dask": on_dask,
}


def pair(way, loss="log_loss", **how):
    n_classes = 2 if loss == "brier" else 3
    f = objective(loss, n_rows=230, n_members=9, n_classes=n_classes, **how)
    return f, WAYS[way](f)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("loss", ["log_loss", "squared_error", "brier"])
@pytest.mark.parametrize(
    "how",
    [{}, {"weighted": True}, {"holdout": True}, {"weighted": True, "dtype": np.float32}],
    ids=str,
)
def test_every_quantity_is_the_same(way, loss, how):
    here, there = pair(way, loss, **how)
    w, v = interior_point(9), interior_point(9, 1)
    close = 1e-12 if "dtype" not in how else 1e-6
    value, gradient = here.value_and_gradient(w)
    for _ in range(2):  # what is known of rows is found in the first pass and kept
        ours = there.value_and_gradient(w)
        assert ours[0] == pytest.approx(value, rel=close)
        assert ours[1] == pytest.approx(gradient, abs=10 * close)
    assert there.hessian(w) == pytest.approx(here.hessian(w), abs=1e3 * close)
    product = here.hessian_product(w, v)
    assert there.hessian_product(w, v) == pytest.approx(product, abs=1e3 * close)
    assert np.array_equal(there.rows_won(), here.rows_won())
    for name in ("scale", "rounding", "n_rows", "n_members", "total_weight", "nbytes_per_pass"):
        assert getattr(there, name) == pytest.approx(getattr(here, name)), name
    for name in ("provides", "is_convex", "is_well_posed", "has_mask"):
        assert getattr(there, name) == getattr(here, name), name


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("weighted", [False, True])
def test_samples_are_rows_of_the_whole(way, weighted):
    here, there = pair(way, weighted=weighted)
    w = interior_point(9)
    if way != "little memory":
        assert there.row_sample(10**6, 0).value(w) == pytest.approx(here.value(w), rel=1e-12)
        sample = there.row_sample(150, 3)
        assert sample.n_rows == 150
        assert sample.value(w) == pytest.approx(here.value(w), rel=0.3)
        if way != "generator":
            assert sample.value(w) == pytest.approx(here.row_sample(150, 3).value(w), rel=1e-12)
    face = there.restrict(np.array([3, 7, 8])).row_sample(20, 0)
    assert (face.n_members, face.n_rows <= 20) == (3, True)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_no_member_has_out_of_bag(way, weighted):
    f = objective(n_rows=230, n_members=6, weighted=weighted)
    mask = f.evidence.oob_mask.copy()
    mask[40:170] = False  # whole blocks, and parts of two
    e = replace(f.evidence, oob_mask=mask, votes=f.evidence.votes * mask, prior=None)
    here = Objective(e, f.loss, f.penalty, floor=f.floor, prior_mass=f.prior_mass)
    raw = Objective(e, f.loss, f.penalty, floor=f.floor, prior_mass=f.prior_mass)
    raw._rows.block = e  # weights as the user gave them
    there = WAYS[way](raw)
    w = interior_point(6)
    for _ in range(2):
        assert there.value(w) == pytest.approx(here.value(w), rel=1e-12)
    assert there.survey.n_covered == int(mask.any(axis=1).sum())
    with pytest.warns(UserWarning, match="rows are out of bag for no member and are left out"):
        there.warn_of_rows()


@pytest.mark.parametrize("way", WAYS)
def test_nothing_to_judge_by(way):
    f = objective(n_rows=120, n_members=6)
    e = replace(f.evidence, prior=None, sample_weight=None)
    none = replace(e, oob_mask=np.zeros_like(e.oob_mask), votes=np.zeros_like(e.votes))
    for rows, said in (
        (none, "no row is out of bag for any member"),
        (replace(e, sample_weight=np.where(e.covered(), 0.0, 1.0)), "sample_weight zero"),
        (replace(e, votes=np.zeros_like(e.votes)), "true class probability zero"),
    ):
        f._rows.block = rows
        with pytest.raises((ValueError, NoWeightError), match=said):
            WAYS[way](f).value(interior_point(6))
