"""A calibrator for a vote whose weights depend on the row.

The one of the global vote is right for no other vote. Where all members vote on every row of the
evidence, a new one is fitted to the gated votes; where few do, see `carried_over`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparsebag.refine.calibrate import PREFERRED, fit_calibrator, held_out_votes
from sparsebag.refine.calibrated import Calibrated
from sparsebag.refine.calibration_kinds import is_auto
from sparsebag.refine.calibrator import positive_votes
from sparsebag.refine.local_weights import LocalEvidence


@dataclass(frozen=True)
class Recalibration:
    """How gated votes are corrected.

    Attributes
    ----------
    kind : str or object
        Of calibrator, as ``calibration=`` has it; not None.
    """

    kind: Any

    def losses(self, evidence: LocalEvidence, weights: np.ndarray) -> np.ndarray:
        """Each row's log-loss under weights of its own, corrected by what other rows say.

        Parameters
        ----------
        evidence : LocalEvidence
        weights : ndarray of shape (R, k)

        Returns
        -------
        ndarray of shape (R,)
        """
        votes = positive_votes(evidence.voted(weights))
        kind = PREFERRED if is_auto(self.kind) else self.kind
        proba = held_out_votes(votes, evidence.target, kind=kind, weight=evidence.weight)
        of_true = proba[np.arange(len(proba)), evidence.target]
        return np.asarray(-np.log(positive_votes(of_true, votes.shape[1])))

    def fit(self, evidence: LocalEvidence, weights: np.ndarray) -> Calibrated:
        """The calibrator of the gated vote.

        Parameters
        ----------
        evidence : LocalEvidence
        weights : ndarray of shape (R, k)
            From other rows.

        Returns
        -------
        Calibrated
        """
        votes = positive_votes(evidence.voted(weights))
        weight = evidence.weight * len(votes)
        found = fit_calibrator(votes, evidence.target, kind=self.kind, sample_weight=weight)
        return replace(found, whose="gated")
