"""Mutated files raise the one error or load a model that predicts; the long run is `make fuzz`."""

from __future__ import annotations

import numpy as np
import pytest

from deploy_mutations import mutated, seeds, try_out
from fuzz_files import uncompressed_seeds


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_mutated_files():
    rng = np.random.default_rng(0)
    results = {name: [] for name in ("refused", "loaded", "predicted")}
    files = seeds() | uncompressed_seeds()
    for name, content in files.items():
        assert try_out(content) == "predicted"
        for _ in range(200):
            results[try_out(mutated(content, rng))].append(name)
    assert len(results["refused"]) > 1000  # most damage is noticed
    assert len(results["predicted"]) > 50  # and some, in numbers, is a model of its own
    assert set(results["predicted"]) == set(files)
