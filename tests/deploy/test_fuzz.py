"""Mutated files raise the one error or load a model that predicts; the long run is `make fuzz`."""

from __future__ import annotations

import numpy as np
import pytest

from deploy_mutations import mutated, seeds, try_out


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_mutated_files():
    rng = np.random.default_rng(0)
    results = {name: [] for name in ("refused", "loaded")}
    for name, content in seeds().items():
        assert try_out(content) == "loaded"
        for _ in range(400):
            results[try_out(mutated(content, rng))].append(name)
    assert len(results["refused"]) > 1000  # most damage is noticed
    assert len(results["loaded"]) > 50  # and some, in numbers, is a model of its own
