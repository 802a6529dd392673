"""The choice in words: what was kept, what it is expected to cost, and why."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparsebag.selection.budget import Budget
from sparsebag.selection.guard import CONFIDENCE, Choice
from sparsebag.selection.judged_path import CrossFittedPath
from sparsebag.selection.table import PathTable


@dataclass(frozen=True)
class Facts:
    """The figures of the ensemble that was kept.

    Attributes
    ----------
    expected, standard_error : float
        Expected risk on new rows.
    increase, bound : float
        Relative to the whole ensemble's: expected, and the upper confidence bound.
    cost : tuple of int
        Members, nodes, bytes.
    """

    expected: float
    standard_error: float
    increase: float
    bound: float
    cost: tuple[int, int, int]


NOTHING_SAVED = ": nothing is saved by dropping any"
"""Of members that are deployed as one model."""


def explain(
    facts: Facts,
    path: CrossFittedPath,
    choice: Choice,
    table: PathTable,
    whole: tuple[int, int, int],
    tolerance: float,
    budget: Budget,
    refitted: str | None,
    task: str,
    noun: str,
    *,
    equal: bool = True,
    whole_is_one: bool = False,
    uncalibrated: float | None = None,
) -> str:
    """A few sentences that need no documentation.

    Parameters
    ----------
    facts : Facts
    path : CrossFittedPath
    choice : Choice
    table : PathTable
    whole : tuple of int
        Members, nodes and bytes of the whole ensemble.
    tolerance : float
    budget : Budget
    refitted : str or None
        The loss the weights were refitted on.
    task : {"classification", "regression"}
    noun : str
        What members are called.
    equal : bool, default True
        Whether the whole ensemble weighs its members equally.
    whole_is_one : bool, default False
        Whether all members are deployed as one model.
    uncalibrated : float, optional
        Risk of the whole ensemble as it is, where the risks are those of calibrated votes.

    Returns
    -------
    str
    """
    score = "squared error" if task == "regression" else "Brier score"
    n, all_nodes, all_bytes = whole
    accepted = f"the {tolerance:.1%} you accept (tolerance={tolerance:g})"
    if choice.position is None:
        best = int(np.argmin(path.expected()))
        change = path.expected()[best] / path.full_risk - 1.0 if path.full_risk else 0.0
        whose = "equal weights" if equal else "the weights they have"
        if whole_is_one:
            return (
                f"Kept all {_count(n, noun)}, with {whose}{NOTHING_SAVED}. "
                f"Expected {score} on new rows: {path.full_risk:.4g} (standard error "
                f"{facts.standard_error:.2g})."
            )
        if tolerance < 0.0:  # none was given
            return (
                f"Kept all {_count(n, noun)}, with {whose}: within {budget} nothing smaller is "
                f"expected to have a lower {score} ({path.full_risk:.4g})."
            )
        reach = int(path.sizes.max())
        smaller = "smaller ensemble" if reach >= n - 1 else f"ensemble of up to {reach}"
        why = "the rows are too few to be sure" if change <= tolerance else "that is more"
        return (
            f"Kept all {_count(n, noun)}, with {whose}: of no {smaller} is it sure that its "
            f"expected {score} is within {accepted} of theirs ({path.full_risk:.4g}).\n"
            f"The best one found, {_count(table.k[best], noun)}, is expected to change it by "
            f"{change:+.1%}; {why}. To have a smaller ensemble all the same, set max_estimators or "
            "raise tolerance."
        )
    k, nodes, size = facts.cost
    of_nodes = f", {nodes:,} of {all_nodes:,} nodes" if noun == "trees" else ""
    # A tree is priced by its arrays, others by their pickles; see `budget.member_prices`.
    bytes_are = "in memory" if noun == "trees" else "pickled"
    within = f"within {accepted}"
    if not choice.meets_tolerance:
        within = f"more than {accepted}, but the best within {budget}"
    if tolerance < 0.0:  # none was given
        within = f"the best within {budget}"
    needed = path.random.members_needed(facts.expected)
    as_many = ""  # where random ones do as well, there is nothing to boast of
    if needed > n * (1.0 + 1e-9):
        as_many = f"\nTo do as well, more than {_count(n, noun)} drawn at random would be needed."
    elif round(needed) > k:
        many = _count(round(needed), noun)
        as_many = f"\nTo do as well, about {many} drawn at random would be needed."
    whole_risk = f"{path.full_risk:.4g}"
    if uncalibrated is not None:
        whole_risk += f" once they are calibrated too, {uncalibrated:.4g} as they are"
    weights = ""
    if refitted is not None:
        loss = refitted.replace("_", "-")
        weights = f"\nTheir weights were refitted on {loss}, which was lower on held-out rows."
    return (
        f"Kept {k} of {_count(n, noun)}{of_nodes} ({_kb(size)} of {_kb(all_bytes)} {bytes_are}).\n"
        f"Expected {score} on new rows: {facts.expected:.4g} (standard error "
        f"{facts.standard_error:.2g}); that is {facts.increase:+.1%} against all {n} "
        f"({whole_risk}), and with {CONFIDENCE:.0%} confidence at most {facts.bound:+.1%}: "
        f"{within}.{as_many}{weights}"
    )


def _count(n: int, noun: str) -> str:
    return f"{n} {noun[:-1] if n == 1 else noun}"


def _kb(size: int) -> str:
    return f"{size / 1e3:,.0f} kB" if size >= 1e4 else f"{size / 1e3:,.1f} kB"
