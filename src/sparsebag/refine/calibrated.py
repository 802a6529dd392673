"""A calibrator, what it is worth, and both in words."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparsebag.refine.calibrator import Calibrator

MEASURED_ON = {
    "others": "about as many members as were kept (not these very ones), each row by members that "
    "had not seen it",
    "all": "the members that were kept, each row by those that had not seen it",
    "survivors": "the kept members themselves, on rows that none of them had seen",
    "own": "the kept members themselves, each row by those of them that had not seen it",
    "gated": "the kept members' votes with the weights of each row, each row by members that had "
    "not seen it",
    "carried over": "It is the one of the vote with global weights, changed by as much as weights "
    "that depend on the row change the best one out of bag",
}


@dataclass(frozen=True)
class Calibrated:
    """A calibrator and what it is worth.

    Attributes
    ----------
    calibrator : Calibrator or None
        None: the votes are best left as they are.
    kind : str
        Its kind, or "identity".
    gain, gain_error : float
        Log-loss it saves on rows it was not fitted on, and the standard error of that.
    loss_before, loss_after : float
        The log-loss on those rows.
    brier_before, brier_after : float
        Their Brier score.
    n_rows : int
        Rows behind these figures.
    considered : dict of str to float
        Kinds that were tried, with the gain of each.
    whose : {"others", "all", "survivors", "own", "gated", "carried over"}
        The votes behind these figures: of as many other members; of all, where all are kept; of
        those that are kept, where all of them vote on every row, or those of them that have not
        seen it ("own"); the same with weights of the row's own. "carried over": the figures are of
        votes without a gate, and the calibrator is changed by what a gate changes.
    """

    calibrator: Calibrator | None
    kind: str
    gain: float
    gain_error: float
    loss_before: float
    loss_after: float
    brier_before: float
    brier_after: float
    n_rows: int
    considered: dict[str, float] = field(default_factory=dict)
    whose: str = "others"

    @property
    def temperature(self) -> float | None:
        """The temperature, where the calibrator has one."""
        return getattr(self.calibrator, "temperature", None)

    def __str__(self) -> str:
        if self.calibrator is None:
            tried = ", ".join(self.considered).replace("_", " ")
            told = f" ({tried} tried)" if tried else ""
            return f"The vote is not calibrated: that gained nothing on rows it had not seen{told}."
        told = f"The vote is calibrated: {self._in_words()}."
        if self.whose == "carried over":
            return f"{told} {MEASURED_ON[self.whose]}."
        return (
            f"{told} Measured on {MEASURED_ON[self.whose]}: log-loss "
            f"{self.loss_before:.4g} before, {self.loss_after:.4g} after ({abs(self.gain):.2g} "
            f"{'lost' if self.gain < 0.0 else 'saved'}, standard error {self.gain_error:.1g})."
        )

    def _in_words(self) -> str:
        """What the calibrator does to a probability, for people who never met its name."""
        share = float(getattr(self.calibrator, "share", 0.0))
        spread = f", and {share:.2%} of the probability is shared out equally to all classes"
        spread = spread if share else ""
        if self.temperature is not None:
            shown = f"{self.temperature:.3g}"
            does = "sharpens" if self.temperature < 1.0 else "softens"
            does = "leaves" if float(shown) == 1.0 else does
            return f"a temperature of {shown} {does} its probabilities{spread}"
        known = {
            "own": "the calibrator you passed corrects its probabilities",
            "vector_scaling": "a scale and a shift for every class correct its probabilities",
            "isotonic": "a fitted rising curve maps its probabilities",
        }
        text = known.get(self.kind, f"{self.kind.replace('_', ' ')} corrects its probabilities")
        return f"{text}{spread}"
