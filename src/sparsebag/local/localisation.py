"""`Localisation`: whether the weights depend on the row, and what that is worth."""

from __future__ import annotations

from dataclasses import dataclass

from sparsebag.local.gate import LinearGate


@dataclass(frozen=True)
class Localisation:
    """Whether the weights depend on the row, and what that gains. ``print`` it.

    The losses are out-of-bag estimates for the vote of all kept members: squared error, or the
    Brier score after the best temperature-like rescaling of each vote, which a calibrator would
    give either of them. Each row is judged by a gate that was fitted without it.

    Attributes
    ----------
    gate : LinearGate or None
        None: every row has the same weights.
    loss_before, loss_after : float or None
        Of the global weights and of the gate; None where no gate was tried.
    gain, gain_error : float or None
        Their difference, and its standard error over rows.
    score : str
        What the losses are.
    reason : str
        Why there is a gate, or why not.
    temperature_ratio : float
        Best temperature of the gated vote over that of the global vote, to first order. A gate
        makes votes more or less sure, so a temperature fitted to the global vote is multiplied by
        this. 1 for regression.
    """

    gate: LinearGate | None = None
    loss_before: float | None = None
    loss_after: float | None = None
    gain: float | None = None
    gain_error: float | None = None
    score: str = ""
    reason: str = ""
    temperature_ratio: float = 1.0

    @property
    def used(self) -> bool:
        """Whether there is a gate."""
        return self.gate is not None

    @property
    def nbytes(self) -> int:
        """Bytes of the gate."""
        return 0 if self.gate is None else self.gate.nbytes

    def __str__(self) -> str:
        what = "Weights depend on the row" if self.used else "Every row has the same weights"
        lines = [f"{what}: {self.reason}."]
        if self.gain is not None:
            lines.append(
                f"{self.score}: {self.loss_before:.4g} with global weights, {self.loss_after:.4g} "
                f"with a gate (gain {self.gain:.2g} ± {self.gain_error:.1g}). Cross-fitted."
            )
        if self.gate is not None:
            lines.append(f"Gate: {self.gate.n_members} members, {self.nbytes:,} bytes.")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Localisation({'gate' if self.used else 'no gate'}: {self.reason})"
