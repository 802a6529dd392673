"""The choice in words: what was kept, what it is expected to cost, and why."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparsebag.selection.budget import Budget
from sparsebag.selection.guard import CONFIDENCE, Choice
from sparsebag.selection.judged_path import CrossFittedPath
from sparsebag.selection.table import PathTable

FAR_FEWER = 0.75
"""Share of the kept members below which it is worth a word that fewer are expected to do."""


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
    own_leaves: bool = True,
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
    own_leaves : bool, default True
        Whether the members vote with the leaves they were fitted with.

    Returns
    -------
    str
    """
    score = score_of(task)
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
            f"Kept all {_count(n, noun)}, with {whose}: no {smaller} is sure, with "
            f"{CONFIDENCE:.0%} confidence, to keep the expected {score} within {accepted} of "
            f"theirs ({path.full_risk:.4g}).\n"
            f"The best one found, {_count(table.k[best], noun)}, is expected to have one "
            f"{changed(change)}; {why}. To have a smaller ensemble all the same, set "
            "max_estimators or raise tolerance."
        )
    k, nodes, size = facts.cost
    of_nodes = f", {nodes:,} of {all_nodes:,} nodes" if noun == "trees" else ""
    # A tree is priced by its arrays, others by their pickles; see `budget.member_prices`.
    bytes_are = "in memory as scikit-learn's trees" if noun == "trees" else "pickled"
    within = f"within {accepted}"
    if not choice.meets_tolerance:
        within = f"more than {accepted}, but the best within {budget}"
    if tolerance < 0.0:  # none was given
        within = f"the best within {budget}"
    whose = "all " + _count(n, noun)
    theirs = f"{path.full_risk:.4g}"
    if uncalibrated is not None:
        whose += ", calibrated likewise"
        theirs += f"; uncalibrated, as you have them, {uncalibrated:.4g}"
    weights = ""
    if refitted is not None:
        loss = refitted.replace("_", "-")
        weights = f"\nTheir weights were refitted on {loss}, which was lower on held-out rows."
    summed = ", summed over classes" if task == "classification" else ""
    return (
        f"Kept {k} of {_count(n, noun)}{of_nodes} ({_kb(size)} of {_kb(all_bytes)} {bytes_are}).\n"
        f"Expected {score} on new rows{summed}: {facts.expected:.4g} (standard error "
        f"{facts.standard_error:.2g}).\n"
        f"Against {whose} ({theirs}), on the same rows: {changed(facts.increase)}, and with "
        f"{CONFIDENCE:.0%} confidence {_bounded(facts.bound)}: {within}."
        f"{_to_be_sure(path, k, tolerance, choice, budget, noun)}"
        f"{_random_ones(path, facts.expected, k, n, noun, own_leaves=own_leaves)}{weights}"
    )


def changed(change: float) -> str:
    """A relative change of a score in words.

    Parameters
    ----------
    change : float

    Returns
    -------
    str

    Examples
    --------
    >>> changed(-0.035), changed(0.0)
    ('3.5% lower', '0.0% higher')
    """
    return f"{abs(change):.1%} {'lower' if change < 0.0 else 'higher'}"


def _bounded(bound: float) -> str:
    return f"at least {-bound:.1%} lower" if bound < 0.0 else f"at most {bound:.1%} higher"


def score_of(task: str) -> str:
    """What the risk of a task is called."""
    return "squared error" if task == "regression" else "Brier score"


def table_notes(score: str, *, calibrated: bool, refitted: bool, picked: bool) -> tuple[str, ...]:
    """What a reader of the path's table must know of its figures.

    Parameters
    ----------
    score : str
    calibrated : bool
        Whether the risks are those of calibrated votes.
    refitted : bool
        Whether all sizes but the whole have refitted leaves.
    picked : bool
        Whether the kept size pays for having been picked.

    Returns
    -------
    tuple of str
    """
    summed = ", summed over classes" if score == "Brier score" else ""
    too = ", calibrated" if calibrated else ""
    notes = [f"expected risk: the {score} on new rows{summed}{too}"]
    if refitted:
        notes.append(
            f"the last row and random-k: your trees with their own leaves{too}; the rest: refitted"
        )
    if picked:
        notes.append("comparing many sizes flatters the one chosen; only the kept row is corrected")
    return tuple(notes)


def _to_be_sure(
    path: CrossFittedPath, k: int, tolerance: float, choice: Choice, budget: Budget, noun: str
) -> str:
    """Why so many, where far fewer are expected to do."""
    if tolerance < 0.0 or not choice.meets_tolerance or budget.named():
        return ""
    enough = path.sizes[path.expected() <= (1.0 + tolerance) * path.full_risk]
    if not len(enough) or enough.min() > FAR_FEWER * k:
        return ""
    fewer = int(enough.min())
    return (
        f"\n{_count(fewer, noun)} {_are(fewer)} expected to stay within {tolerance:.1%} too, but "
        f"not with {CONFIDENCE:.0%} confidence. To keep fewer, set max_estimators, raise "
        "tolerance, or give more rows."
    )


def _random_ones(
    path: CrossFittedPath, expected: float, k: int, n: int, noun: str, *, own_leaves: bool
) -> str:
    needed = path.random.members_needed(expected)
    how = "" if own_leaves else ", with their own leaves,"
    if needed > n * (1.0 + 1e-9):
        return f"\nTo do as well, more than {_count(n, noun)} drawn at random{how} would be needed."
    if round(needed) > k:
        many = _count(round(needed), noun)
        return f"\nTo do as well, about {many} drawn at random{how} would be needed."
    return f"\n{_count(k, noun)} drawn at random{how} {_are(k)} expected to do as well."


def _count(n: int, noun: str) -> str:
    return f"{n} {noun[:-1] if n == 1 else noun}"


def _are(n: int) -> str:
    return "is" if n == 1 else "are"


def _kb(size: int) -> str:
    return f"{size / 1e3:,.0f} kB" if size >= 1e4 else f"{size / 1e3:,.1f} kB"
