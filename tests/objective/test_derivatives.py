"""Every gradient and Hessian against finite differences, loss × sample_weight × floor × mask."""

import itertools

import numpy as np
import pytest

from problems import LOSSES, interior_point, objective

CASES = list(
    itertools.product(LOSSES, (2, 3), (False, True), (0.0, 1e-3, 0.2), (0.0, 0.02), (False, True))
)
STEP = 1e-6


@pytest.fixture(params=CASES, ids=lambda c: "-".join(map(str, c)))
def f(request):
    loss, n_classes, weighted, floor, prior_mass, holdout = request.param
    return objective(
        loss,
        n_classes=n_classes,
        weighted=weighted,
        floor=floor,
        prior_mass=prior_mass,
        holdout=holdout,
        n_rows=60,
        n_members=7,
    )


def test_gradient_is_the_value_s_derivative(f):
    w = interior_point(7)
    value, gradient = f.value_and_gradient(w)
    assert value == pytest.approx(f.value(w), rel=1e-14)
    numeric = [(f.value(w + STEP * e) - f.value(w - STEP * e)) / (2 * STEP) for e in np.eye(7)]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-8)


def test_hessian_product_is_the_gradient_s_derivative(f):
    w = interior_point(7)
    v = np.random.default_rng(1).normal(size=7)
    numeric = (f.gradient(w + STEP * v) - f.gradient(w - STEP * v)) / (2 * STEP)
    np.testing.assert_allclose(f.hessian_product(w, v), numeric, rtol=1e-5, atol=1e-6)


def test_dense_hessian_is_made_of_the_products(f):
    w = interior_point(7)
    columns = np.stack([f.hessian_product(w, e) for e in np.eye(7)], axis=1)
    np.testing.assert_allclose(f.hessian(w), columns, rtol=1e-9, atol=1e-9)
