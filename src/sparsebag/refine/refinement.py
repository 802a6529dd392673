"""What refining did, in figures and in a sentence."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Refinement:
    """Whether and how the survivors' leaves were refitted. ``print`` it.

    Attributes
    ----------
    used : bool
        Whether the survivors vote with refitted leaves.
    twicing : float or None
        a: targets were moved away from the ensemble's own prediction by this share of its
        residual (above 0: less bias), or towards it (below 0: less noise).
    smoothing : float or None
        λ: each node counts its parent's value as so many rows.
    distilled : bool
        Whether the survivors' leaves were then fitted to what all refitted trees say.
    n_synthetic : int
        Synthetic rows that was done on.
    risk_before, risk_after : float or None
        Squared error, or log-loss after calibration, expected of some random trees with their
        own leaves, and with refitted ones; by rows that had no part in these, nor in how strongly
        they were refitted. What ``refine="auto"`` decides by.
    judged_members : int
        How many random trees these figures are of.
    score : str
        What these figures are.
    reason : str
        Why leaves were not refitted, or not distilled; the end of a sentence.
    judged_rows : tuple of int
        How many rows these figures, and those of the selection, are of; and of how many.
    """

    used: bool
    twicing: float | None = None
    smoothing: float | None = None
    distilled: bool = False
    n_synthetic: int = 0
    risk_before: float | None = None
    risk_after: float | None = None
    judged_members: int = 0
    score: str = ""
    reason: str = ""
    judged_rows: tuple[int, int] = (0, 0)

    def __str__(self) -> str:
        if not self.used:
            return f"No leaf values were refitted, because {self.reason}."
        how = "refitted on all training rows"
        if self.distilled:
            how += (
                ", and then adjusted so that together they reproduce the whole ensemble, refitted "
                f"likewise, on {self.n_synthetic:,} made-up rows (mixtures of neighbouring ones)"
            )
        elif self.reason:
            how += f" (not to what the whole ensemble says, because {self.reason})"
        return (
            f"The kept trees' leaf values were {how}. Tested on {self.judged_members} trees drawn "
            f"at random{self._on_rows()}: a {self.score} of {self.risk_before:.4g} with their own "
            f"leaves, of {self.risk_after:.4g} with refitted ones."
        )

    def _on_rows(self) -> str:
        judged, of = self.judged_rows
        if judged == of:
            return ""
        return f", on {judged:,} of the {of:,} rows, as all that is expected here"
