"""The explanation of a selection, with what was done to the members that it kept."""

from __future__ import annotations

from dataclasses import replace

from sparsebag.deploy.from_members import COLLAPSED
from sparsebag.evidence.evidence import INSTEAD_OF_WEIGHTS, OF_OTHER_CLASSES
from sparsebag.refine.calibrated import Calibrated
from sparsebag.refine.localisation import Localisation
from sparsebag.refine.refinement import Refinement
from sparsebag.refine.refitted_trees import ONLY_TREES
from sparsebag.selection.explain import NOTHING_SAVED
from sparsebag.selection.selection import Selection

NOT_ASKED = "refine is None"
NOT_COLLAPSED = (
    "Without a gate these linear regressors would be one linear regressor; with weights that "
    "depend on the row each of them is stored, and a budget (max_estimators) bounds their number; "
    "a smooth gate evaluates them all for every row, one of regions a single line."
)


def with_all_told(
    selection: Selection | None,
    refinement: Refinement,
    calibrated: Calibrated | None,
    local: Localisation,
    one: bool,
) -> Selection | None:
    """The explanation, with what was done to leaves and vote, and whether all became one model."""
    if selection is None:
        return None
    words = selection.explanation
    done = []
    if one and local.used:
        words = words.replace(NOTHING_SAVED, "")
        done.append(NOT_COLLAPSED)
    elif one:
        done.append(COLLAPSED)
    if refinement.reason not in (NOT_ASKED, ONLY_TREES):
        done.append(str(refinement))
    if calibrated is not None:
        done.append(str(calibrated))
    if local.gate is not None:
        if calibrated is not None and local.gate.has_temperature:
            done.append("The temperature is the gate's own, in place of that of the global vote.")
        done.append(f"The figures above are with global weights; a gate comes on top. {local}")
        done.append(f"Its arrays take {local.nbytes:,} bytes, which max_bytes counts.")
    return replace(selection, explanation="\n".join([words, *done]))


def of_other_classes(selection: Selection, lost: str, *, uncalibrated: bool) -> Selection:
    """The explanation, with what its figures are not about.

    Parameters
    ----------
    selection : Selection
    lost : str
        See `sparsebag.evidence.evidence.lost_class`.
    uncalibrated : bool
        Whether the vote was left uncalibrated because of it.

    Returns
    -------
    Selection
    """
    vote = "The vote is not calibrated for that reason. " if uncalibrated else ""
    words = f"{lost} are in every bag, {OF_OTHER_CLASSES} {vote}{INSTEAD_OF_WEIGHTS}"
    return replace(selection, explanation=f"{selection.explanation}\n{words}")
