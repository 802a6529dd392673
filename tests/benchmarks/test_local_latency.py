"""The latency of a gate is measured on models that are gated, with the same members."""

from __future__ import annotations

import numpy as np
from benchmarks.local_latency import members_of, models, predicting
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor


def test_models_differ_in_their_gate_alone():
    for forest, data in (
        (RandomForestClassifier(5, random_state=0), load_iris(return_X_y=True)),
        (RandomForestRegressor(5, random_state=0), load_diabetes(return_X_y=True)),
    ):
        setting = members_of("small", forest, *data)
        compiled = models(setting)
        for name, model in compiled.items():
            assert (model.gate is None) == name.startswith("global")
            assert model.n_models == 5
            assert (model.gate is not None and model.gate.has_temperature) == ("T(x)" in name)
        said = {name: predicting(model, 1000)(setting.rows) for name, model in compiled.items()}
        for name in ("linear", "sparsemax", "regions"):
            assert not np.allclose(said[name], said["global"])  # the gate moves weights
        one = predicting(compiled["linear"], 1)(setting.rows[:1])
        np.testing.assert_array_equal(one, said["linear"][0])
