"""What local weights and temperatures are worth, in figures and in a sentence."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparsebag.refine.calibrated import Calibrated
from sparsebag.refine.gate import LinearGate
from sparsebag.refine.region_gate import RegionGate

ERRORS_TO_AGREE = 2.0
"""Standard errors a second estimate must be above zero by, where its error is known."""
AGREEING_ERRORS = 1.0
"""The same of the first, where the second is the sure one."""
NOTHING = 1e-6
"""Share of a loss that rounding and the solver's tolerance leave."""


@dataclass(frozen=True)
class LocalGain:
    """What a local map gained on rows it was not fitted on.

    Attributes
    ----------
    kind : {"linear", "regions"}
    loss_before, loss_after : float
        Log-loss, or squared error, of those rows under the global model and under the map.
    gain, gain_error : float
        Their difference, and its standard error over rows.
    second_gain : float or None
        Another estimate, which must agree. Of weights in classification: what the full-vote Brier
        score gains. Of a temperature: what the survivors' own out-of-bag votes gain.
    second_error : float
        Its standard error; 0 where its sign alone counts.
    full_vote_error : float or None
        Of weights in classification: the standard error of what the full-vote Brier score gains.
    deployed_gain, deployed_error : float or None
        Of weights of a calibrated vote: what is left of the gain when all members vote, not only
        those that have a row out of bag, and the standard error of that. Rather too little than
        too much; with held-out evidence, where all vote on every row, the gain itself.
    """

    kind: str
    loss_before: float
    loss_after: float
    gain: float
    gain_error: float
    second_gain: float | None = None
    second_error: float = 0.0
    full_vote_error: float | None = None
    deployed_gain: float | None = None
    deployed_error: float | None = None

    def is_sure(self, errors: float) -> bool:
        """Whether the gain is more than so many standard errors, and nothing speaks against it.

        A log-loss of the third of the members that is out of bag is noisier than the Brier score of
        all of them. Either may be the sure one: then the other must only agree.

        Parameters
        ----------
        errors : float

        Returns
        -------
        bool

        Examples
        --------
        >>> LocalGain("linear", 1.0, 0.9, 0.1, 0.04).is_sure(2.0)
        True
        >>> LocalGain("linear", 1.0, 1.0, 3e-17, 1e-17).is_sure(2.0)
        False
        """
        if self.gain <= NOTHING * abs(self.loss_before):  # its error is as small, and says nothing
            return False
        least = ERRORS_TO_AGREE * self.second_error
        agreed = self.second_gain is None or self.second_gain > least
        if agreed and self.gain > errors * self.gain_error:
            return True
        if self.second_gain is None or self.full_vote_error is None:
            return False
        is_sure = self.second_gain > errors * self.full_vote_error
        return is_sure and self.gain > AGREEING_ERRORS * self.gain_error


@dataclass(frozen=True)
class Localisation:
    """Whether and how weights depend on the row. ``print`` it.

    Attributes
    ----------
    gate : LinearGate, RegionGate or None
        None: the weights are global.
    weights, temperature : LocalGain or None
        What the gate's weights, and its temperature, gained on held-out rows; None for what is
        global.
    score : str
        What the figures are.
    considered : dict of str to LocalGain
        Every map that was judged, such as "linear weights".
    reason : str
        Why the weights are global, where they are; the end of a sentence.
    calibrated : Calibrated or None
        The calibrator of the gated vote, where it is another one than that of the global vote.
    dropped : Localisation or None
        What was fitted, but is more than ``max_bytes`` allows.
    """

    gate: LinearGate | RegionGate | None = None
    weights: LocalGain | None = None
    temperature: LocalGain | None = None
    score: str = ""
    considered: dict[str, LocalGain] = field(default_factory=dict)
    reason: str = ""
    calibrated: Calibrated | None = None
    dropped: Localisation | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the gate's arrays, which a budget counts with those of the members."""
        return 0 if self.gate is None else sum(a.nbytes for a in self.gate.arrays().values())

    @property
    def used(self) -> bool:
        """Whether there is a gate."""
        return self.gate is not None

    def __repr__(self) -> str:
        """A line, for a notebook: a gate's arrays would be a page."""
        if self.gate is None:
            return f"Localisation(no gate: {self.reason})"
        size = f"{self.gate.kind} gate of {self.gate.n_members} members, {self.nbytes:,} bytes"
        gain = self.weights or self.temperature
        if gain is None:
            return f"Localisation({size})"
        losses = f"{gain.loss_before:.4g} before, {gain.loss_after:.4g} after"
        return f"Localisation({size}; {self.score} on held-out rows {losses})"

    def __str__(self) -> str:
        if not self.used:
            return f"The weights do not depend on the row, because {self.reason}."
        done = [
            f"{what} on {_LOOKS_AT[gain.kind]} ({self.score} {gain.loss_before:.4g} before and "
            f"{gain.loss_after:.4g} after on held-out rows, {_saved(gain)})"
            for what, gain in (
                ("weights depend", self.weights),
                ("the temperature depends", self.temperature),
            )
            if gain is not None
        ]
        text = "; ".join(done)
        return text[0].upper() + text[1:] + "."


def _saved(gain: LocalGain) -> str:
    if abs(gain.gain) <= NOTHING * abs(gain.loss_before):
        return "nothing saved"
    figure = f"{abs(gain.gain):.2g} ± {gain.gain_error:.1g}"
    if gain.gain <= 0.0:
        return f"{figure} lost; local='auto' would not use it"
    if gain.deployed_gain is None or gain.deployed_gain >= gain.gain:
        return f"{figure} saved"
    saved = f"{figure} saved by the members that had not seen a row, and less by all together"
    # A low estimate, and no more than that: of nothing or less it would say what is not known.
    return f"{saved}: some {gain.deployed_gain:.2g} or more" if gain.deployed_gain > 0.0 else saved


_LOOKS_AT = {"linear": "the features, smoothly", "regions": "the region of a row"}
