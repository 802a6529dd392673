"""Methods by name. To add one, write a file with its `run` and list it here."""

from __future__ import annotations

from benchmarks.methods import boosting, lasso, scsb, selection, uniform
from benchmarks.methods.base import Method

METHODS: dict[str, Method] = {
    method.name: method
    for family in (uniform, lasso, boosting, scsb, selection)
    for method in family.METHODS
}
