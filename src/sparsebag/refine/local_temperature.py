"""A temperature that depends on the row: where the vote is too sure, and where not sure enough.

``log T(x) = log T + b'z(x)``, on honest votes of the deployed size. It takes the place of the
calibrator's one temperature T (no calibrator: T = 1); the share of a tempered floor stays.
"""

from __future__ import annotations

import numpy as np

from sparsebag.refine.calibrator import Calibrator
from sparsebag.refine.local_choice import Candidate, effective_rows
from sparsebag.refine.local_design import Deviation, FittedMap, LinearDesign, RegionDesign
from sparsebag.refine.local_weights import least
from sparsebag.refine.temperature import (
    SHARPEST,
    SOFTEST,
    SPREAD_OF_TEMPERATURES,
    Temperature,
    TemperedFloor,
)


def goes_with(calibrator: Calibrator | None) -> bool:
    """Whether a local temperature can take the place of a calibrator's.

    Parameters
    ----------
    calibrator : Calibrator or None

    Returns
    -------
    bool

    Examples
    --------
    >>> goes_with(Temperature(0.8))
    True
    """
    return calibrator is None or isinstance(calibrator, (Temperature, TemperedFloor))


class TemperatureProblem:
    """Rows to fit a local temperature to, as `local_choice` asks for them.

    Parameters
    ----------
    features : ndarray of shape (R, d)
    votes : ndarray of shape (R, draws, C)
        Honest votes of each row before calibration, none of them zero.
    target : int ndarray of shape (R,)
    weight : ndarray of shape (R,)
        Of the rows.
    design : LinearDesign or RegionDesign
        What a map may look at; of regions, those that are to be used.
    log_temperature, share : float
        Of the global calibrator; 0 without one.
    """

    def __init__(
        self,
        features: np.ndarray,
        votes: np.ndarray,
        target: np.ndarray,
        weight: np.ndarray,
        design: LinearDesign | RegionDesign,
        log_temperature: float,
        share: float,
    ) -> None:
        self.features, self.votes, self.target = features, votes, target
        self.row_weight = weight / weight.sum()
        self.design, self.log_temperature, self.share = design, log_temperature, share
        # Logits beside the true class's: p_true = 1 / Σ exp(β d_c), with d_true = 0.
        logits = np.log(votes)
        self._beside = logits - np.take_along_axis(logits, target[:, None, None], axis=2)

    @property
    def n_rows(self) -> int:
        """R."""
        return len(self.target)

    def take(self, rows: np.ndarray) -> TemperatureProblem:
        """The same for some rows.

        Parameters
        ----------
        rows : index array

        Returns
        -------
        TemperatureProblem
        """
        return TemperatureProblem(
            self.features[rows],
            self.votes[rows],
            self.target[rows],
            self.row_weight[rows],
            self.design,
            self.log_temperature,
            self.share,
        )

    def at_best_temperature(self) -> TemperatureProblem:
        """The same about the one temperature that is best for these votes.

        Returns
        -------
        TemperatureProblem
        """
        pull = 0.5 / SPREAD_OF_TEMPERATURES**2 / effective_rows(self.row_weight)

        def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
            losses, slopes = self._loss_and_slope(np.full(self.n_rows, theta[0]))
            value = float(self.row_weight @ losses) + pull * float(theta[0]) ** 2
            return value, np.array([float(self.row_weight @ slopes) + 2.0 * pull * theta[0]])

        return self._about(float(least(objective, np.zeros(1))[0]))

    def fit(self, candidate: Candidate) -> Deviation:
        """The map of least penalised log-loss.

        Parameters
        ----------
        candidate : Candidate

        Returns
        -------
        Deviation
        """
        design = self.design
        everywhere = np.full(self.n_rows, self.log_temperature)
        if candidate.kind == RegionDesign.kind and isinstance(design, LinearDesign):
            signal = -self._loss_and_slope(everywhere)[1][:, None]
            design = RegionDesign.grow(
                self.features, signal, self.row_weight, candidate.regions, unit=design.unit
            )
        columns = design.columns(self.features)
        pull = 0.5 * design.pull / candidate.spread**2 / effective_rows(self.row_weight)

        def objective(slopes: np.ndarray) -> tuple[float, np.ndarray]:
            losses, gradient = self._loss_and_slope(everywhere + columns @ slopes)
            value = float(self.row_weight @ losses) + pull * float(slopes @ slopes)
            return value, columns.T @ (self.row_weight * gradient) + 2.0 * pull * slopes

        return Deviation(design, least(objective, np.zeros(columns.shape[1]))[:, None])

    def losses(self, deviation: FittedMap | None) -> np.ndarray:
        """Each row's log-loss, at the one temperature for None.

        Parameters
        ----------
        deviation : FittedMap or None

        Returns
        -------
        ndarray of shape (R,)
        """
        log_t = np.full(self.n_rows, self.log_temperature)
        if deviation is not None:
            log_t += deviation.at(self.features)[:, 0]
        return self._loss_and_slope(log_t)[0]

    def _about(self, log_temperature: float) -> TemperatureProblem:
        return TemperatureProblem(
            self.features,
            self.votes,
            self.target,
            self.row_weight,
            self.design,
            log_temperature,
            self.share,
        )

    def _loss_and_slope(self, log_t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows' losses, means over their draws, and slopes in the temperature's logarithm.

        ``q = (1 − s) p_true + s/C`` and ``dp_true/dβ = −p_true E[d]``, the mean under the tempered
        vote; ``dβ/dlog T = −β``.
        """
        inside = (log_t > np.log(SHARPEST)) & (log_t < np.log(SOFTEST))
        beta = np.exp(-np.clip(log_t, np.log(SHARPEST), np.log(SOFTEST)))[:, None]
        z = beta[:, :, None] * self._beside
        top = z.max(axis=2, keepdims=True)  # at least zero
        odds = np.exp(z - top)
        total = odds.sum(axis=2)
        tempered = np.exp(-top[:, :, 0]) / total
        q = (1.0 - self.share) * tempered + self.share / self.votes.shape[2]
        mean_beside = np.einsum("irc,irc->ir", odds, self._beside) / total
        slope = -beta * (1.0 - self.share) * tempered * mean_beside / q
        return -np.log(q).mean(axis=1), np.where(inside, slope.mean(axis=1), 0.0)
