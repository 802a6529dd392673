"""Weights and a temperature that depend on the row, where honest rows say that they should.

The survivors, their global weights and their calibrator are given; this step only adds a gate, and
the model without it is the global model to the last bit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from sparsebag.calibrating import VoteCalibration
from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.members import MemberPool
from sparsebag.refine.calibrated import Calibrated
from sparsebag.refine.calibration_kinds import is_auto
from sparsebag.refine.calibrator import Calibrator, positive_votes
from sparsebag.refine.carried_over import carried_over, change_of_temperature
from sparsebag.refine.full_vote import full_vote_risks
from sparsebag.refine.honest_votes import honest_votes
from sparsebag.refine.local_candidates import CAUTIOUS, TEMPERATURES, WEIGHTS
from sparsebag.refine.local_choice import (
    choose,
    cross_fit,
    effective_rows,
    mean_and_error,
)
from sparsebag.refine.local_design import FittedMap, LinearDesign, RegionDesign
from sparsebag.refine.local_gates import gate_of
from sparsebag.refine.local_judge import judged_weights
from sparsebag.refine.local_temperature import TemperatureProblem, goes_with
from sparsebag.refine.local_weights import LEAST_MASS, LocalEvidence, WeightsProblem
from sparsebag.refine.localisation import LocalGain, Localisation
from sparsebag.refine.recalibration import Recalibration
from sparsebag.refine.refitted_trees import RefittedTrees
from sparsebag.refine.size_matched import dense_votes
from sparsebag.refine.temperature import SHARPEST, SOFTEST, Temperature, TemperedFloor
from sparsebag.refine.vector_scaling import VectorScaling
from sparsebag.rows_to_gate import FEWEST_ROWS, MOST_ELEMENTS, MOST_ROWS, Rows, sample, usable_rows
from sparsebag.solvers.base import one_blas_thread

KINDS = (LinearDesign.kind, RegionDesign.kind)
ERRORS = 3.0
"""Standard errors a gain must be above zero by, for "auto". Two would be 95 % confidence, but four
maps are tried, and log-losses are skewed: few rows decide, and their error is underrated."""
UNMOVED = 1e-6
"""Weight that a gate which is none moves by, for its solver's tolerance."""
JOINT = "the leaves were fitted jointly, for the global weights"


class _Found(NamedTuple):
    """A map fitted to all rows, and what it gained on held-out ones."""

    deviation: FittedMap
    gain: LocalGain


def localise(
    local: str,
    calibration: VoteCalibration,
    pool: MemberPool,
    X: Any,
    weights: np.ndarray,
    calibrator: Calibrator | None,
    verbose: int = 0,
) -> Localisation:
    """A gate for survivors with weights.

    Parameters
    ----------
    local : {"auto", "linear", "regions"}
        "auto": whichever is better, where held-out rows are sure that it is; else what is named.
    calibration : VoteCalibration
        Of the members as they are deployed.
    pool : MemberPool
        All members.
    X : array-like
        The rows of the evidence.
    weights : ndarray of shape (N,)
    calibrator : Calibrator or None
        What corrects the global vote.
    verbose : int, default 0
        Progress on standard error.

    Returns
    -------
    Localisation
    """
    rows, reason = usable_rows(calibration.evidence, pool, X)
    if rows is None:
        if local != "auto":
            raise ValueError(
                f"local={local!r} cannot fit weights that depend on the row, because {reason}; "
                "use local='auto' or None."
            )
        return Localisation(reason=reason)
    with one_blas_thread():  # thousands of small products: threads would only wait
        return _Localiser(local, calibration, rows, weights, calibrator, verbose).result()


class _Localiser:
    """The steps, weights first: a temperature is fitted to the vote they make."""

    def __init__(
        self,
        local: str,
        calibration: VoteCalibration,
        rows: Rows,
        weights: np.ndarray,
        calibrator: Calibrator | None,
        verbose: int,
    ) -> None:
        self.verbose = verbose
        self.forced = local != "auto"
        self.kinds = (local,) if self.forced else KINDS
        self.calibration, self.calibrator = calibration, calibrator
        self.rows, self.all_weights = rows, weights
        self.active = np.flatnonzero(weights)
        self.base = weights[self.active] / weights[self.active].sum()
        self.linear = LinearDesign.of(rows.features, np.ones(len(rows.at)))
        self.considered: dict[str, LocalGain] = {}
        self.calibrated: Calibrated | None = None
        self.may_temper = calibration.is_wanted and goes_with(calibrator)
        self.log_temperature, self.share = 0.0, 0.0
        if self.may_temper:
            self.log_temperature = float(np.log(getattr(calibrator, "temperature", 1.0)))
            self.share = float(getattr(calibrator, "share", 0.0))
        self.reason = "no gain was sure on held-out rows"

    def result(self) -> Localisation:
        found = self._weights()
        if found is not None:
            return self._with_local_weights(*found)
        tempered = None
        if self.may_temper:
            tempered = self._temperature(self._size_matched(), self.kinds, self._own_votes)
        if tempered is None:
            return self._global()
        gate = gate_of(self.base, None, (self.log_temperature, tempered.deviation))
        return self._told(gate=gate, temperature=tempered.gain)

    def _global(self) -> Localisation:
        """Why there is no gate; an error where one was asked for by name."""
        tried = max(self.considered.values(), key=lambda gain: gain.gain, default=None)
        one = len(self.active) == 1
        if not self.forced:
            told = f"{self.reason}, and {_not_sure(tried)}" if one and tried else self.reason
            return Localisation(considered=self.considered, reason=told)
        if one and self.may_temper:
            raise ValueError(
                f"local={self.kinds[0]!r} needs two members or more to weigh, and one has all the "
                f"weight; {_not_sure(tried)}; use local='auto' or None, or keep more members."
            )
        raise ValueError(
            f"local={self.kinds[0]!r} needs two members or more to weigh, or a calibrated "
            "classifier to temper; use local='auto' or None."
        )

    def _with_local_weights(
        self, found: _Found, evidence: LocalEvidence, held_out: np.ndarray
    ) -> Localisation:
        """The vote is another one now, as sure as its members are here: tempered anew."""
        if self._moves(found, evidence):
            if self._recalibration is not None:
                self.calibrated = self._recalibration.fit(evidence, held_out)
            elif self.calibration.is_wanted:
                # No temperature of the row besides: the gate's regions were drawn by all rows,
                # so none is left to judge it, and it would be one for a third of the voters.
                self._carry_over(change_of_temperature(evidence, held_out))
        gate = gate_of(self.base, found.deviation, None)
        return self._told(gate=gate, weights=found.gain)

    def _moves(self, found: _Found, evidence: LocalEvidence) -> bool:
        """Whether the map that is deployed moves weights at all."""
        final = WeightsProblem(evidence, self.linear).weights(found.deviation)
        return float(np.abs(final - self.base).max()) >= UNMOVED

    def _carry_over(self, change: float) -> None:
        """The calibrator of the global vote, changed as the gate changes the best temperature."""
        calibrated = self.calibration.fit(self.all_weights)
        assert calibrated is not None
        fitted: Calibrator
        if self.may_temper:
            value = float(np.clip(np.exp(self.log_temperature + change), SHARPEST, SOFTEST))
            fitted = Temperature(value) if self.share == 0.0 else TemperedFloor(value, self.share)
        else:
            kind = self.calibration.settings.calibration
            kind = VectorScaling.kind if is_auto(kind) else kind  # what "auto" took
            fitted = carried_over(self.calibration.votes_of(self.all_weights), kind, change)
        self.calibrated = replace(
            calibrated, calibrator=fitted, kind=fitted.kind, whose="carried over"
        )

    def _say(self, what: str) -> None:
        if self.verbose:
            print(f"[sparsebag] fitting and judging a gate: {what}", file=sys.stderr, flush=True)

    def _told(self, **found: Any) -> Localisation:
        regression = self.calibration.evidence.n_classes is None
        score = "squared error" if regression else "log-loss"
        return Localisation(
            score=score, considered=self.considered, calibrated=self.calibrated, **found
        )

    # -- weights -----------------------------------------------------------------------------

    def _weights(self) -> tuple[_Found, LocalEvidence, np.ndarray] | None:
        """The best map of the weights, the rows it was judged on, and their held-out weights."""
        trees = self.calibration.trees
        if len(self.active) < 2:
            self.reason = "one member has all the weight"
            return None
        if trees is not None and trees.distils and not self.forced:
            self.reason = JOINT
            self.reason += ", and no gain of a local temperature was sure" * self.may_temper
            return None
        evidence = self._evidence(trees)
        own = np.tile(self.base, (evidence.n_rows, 1))
        heard = evidence.weight[full_vote_risks(evidence, own)[1]]
        if len(heard) == 0 and self.forced:
            raise ValueError(
                f"local={self.kinds[0]!r} needs rows that two of the survivors have not seen, and "
                "there are none; use local='auto' or None."
            )
        if len(heard) == 0 or (effective_rows(heard) < FEWEST_ROWS and not self.forced):
            few = f"fewer than {FEWEST_ROWS} rows"
            self.reason = f"{few} have out-of-bag votes of two survivors"
            if len(heard) >= FEWEST_ROWS:
                self.reason = f"the row weights let {few} of equal weight decide"
            return None
        problem = WeightsProblem(evidence, self.linear)
        best: tuple[_Found, LocalEvidence, np.ndarray] | None = None
        for kind in self.kinds:
            self._say(f"{kind} weights")
            candidates = WEIGHTS[kind] + (CAUTIOUS[kind] if self.forced else ())
            chosen = choose(problem, candidates, forced=self.forced)
            if chosen is None:  # the first rows that were asked say no: so would the folds
                continue
            held_out = np.empty(evidence.mask.shape)
            for held in cross_fit(problem, candidates, forced=self.forced):
                held_out[held.rows] = problem.take(held.rows).weights(held.deviation)
            gain = judged_weights(
                *(evidence, held_out, kind),
                calibrates=self.calibration.is_wanted,
                recalibration=self._recalibration,
            )
            self.considered[f"{kind} weights"] = gain
            if not (self.forced or gain.is_sure(ERRORS)):
                continue
            if best is None or gain.gain > best[0].gain.gain:
                best = _Found(problem.fit(chosen), gain), evidence, held_out
        return best

    @property
    def _recalibration(self) -> Recalibration | None:
        """Where every vote gets a calibrator of its own; None: the global one's is carried over."""
        if not (self.calibration.is_wanted and self.calibration.all_vote_everywhere):
            return None
        return Recalibration(self.calibration.settings.calibration)

    def _evidence(self, trees: RefittedTrees | None) -> LocalEvidence:
        """Honest votes of the survivors as they are deployed."""
        settings, everything = self.calibration.settings, self.calibration.evidence
        votes_a_row = len(self.active) * (everything.n_classes or 1)
        at = sample(self.rows.at, min(MOST_ROWS, MOST_ELEMENTS // votes_a_row))
        if trees is None:
            taken = everything.take_members(self.active).take(at)
            mask, votes = dense_votes(taken)
        else:
            at, mask, votes = _honest(trees, self.active, self.rows.at)
        keep = mask.any(axis=1)
        at, mask, votes = at[keep], mask[keep], votes[keep]
        return LocalEvidence(
            features=self._features(at),
            votes=votes,
            mask=mask,
            target=on_host(everything.target)[at],
            weight=self._row_weight(at),
            base=self.base,
            classifies=everything.n_classes is not None,
            floor=settings.floor if everything.n_classes is not None else 0.0,
            mass=max(settings.prior_mass, LEAST_MASS),
        )

    def _features(self, at: np.ndarray) -> np.ndarray:
        return self.rows.features[np.searchsorted(self.rows.at, at)]

    def _row_weight(self, at: np.ndarray) -> np.ndarray:
        given = self.calibration.evidence.sample_weight
        weight = np.ones(len(at)) if given is None else on_host(given)[at].astype(np.float64)
        return np.asarray(weight / weight.sum())

    # -- temperature -------------------------------------------------------------------------

    def _size_matched(self) -> TemperatureProblem:
        """Votes of as many members as are deployed, as the calibrator was fitted to them."""
        given = self.calibration.votes_of(self.all_weights)
        at = np.unique(given["row"])
        draws = len(given["row"]) // len(at)
        # The draws are stacked, each with the same rows in the same order.
        votes = given["votes"].reshape(draws, len(at), -1).swapaxes(0, 1)
        rows = given["row"][: len(at)]
        known = np.isin(rows, self.rows.at)
        rows, votes = rows[known], votes[known]
        target = on_host(self.calibration.evidence.target)[rows]
        return self._tempered(
            votes, self._features(rows), target, self._row_weight(rows), self.linear
        )

    def _tempered(
        self,
        votes: np.ndarray,
        features: np.ndarray,
        target: np.ndarray,
        weight: np.ndarray,
        design: LinearDesign | RegionDesign,
    ) -> TemperatureProblem:
        about, votes = self.log_temperature, positive_votes(votes)
        return TemperatureProblem(features, votes, target, weight, design, about, self.share)

    def _own_votes(self) -> TemperatureProblem:
        """The survivors' own out-of-bag votes, about their own best temperature.

        Size-matched votes are of any members. Where members are of unlike kinds, what they are too
        sure of need not be what the survivors are too sure of.
        """
        evidence = self._evidence(self.calibration.trees)
        votes = evidence.voted(np.tile(self.base, (evidence.n_rows, 1)))[:, None, :]
        given = evidence.features, evidence.target, evidence.weight
        return self._tempered(votes, *given, self.linear).at_best_temperature()

    def _temperature(
        self,
        problem: TemperatureProblem,
        kinds: tuple[str, ...],
        second: Callable[[], TemperatureProblem] | None = None,
    ) -> _Found | None:
        """The best map of the temperature, where held-out rows are sure of one.

        ``second`` makes other votes, which must gain too.
        """
        best: _Found | None = None
        if effective_rows(problem.row_weight) < FEWEST_ROWS:
            return None
        before = problem.losses(None)
        for kind in kinds:
            self._say(f"{kind} temperature")
            chosen = choose(problem, TEMPERATURES[kind], forced=False)
            if chosen is None:
                continue
            after = _held_out(problem, kind)
            mean, error = mean_and_error(before - after, problem.row_weight)
            old, new = (float(problem.row_weight @ losses) for losses in (before, after))
            gain = LocalGain(kind, old, new, mean, error)
            if second is not None and gain.is_sure(ERRORS):
                own = second()
                saved = own.losses(None) - _held_out(own, kind)
                also, its_error = mean_and_error(saved, own.row_weight)
                gain = replace(gain, second_gain=also, second_error=its_error)
            self.considered[f"{kind} temperature"] = gain
            if gain.is_sure(ERRORS) and (best is None or gain.gain > best.gain.gain):
                best = _Found(problem.fit(chosen), gain)
        return best


def _not_sure(tried: LocalGain | None) -> str:
    figures = ""
    if tried is not None:
        saved = f"{tried.gain:.2g} ± {tried.gain_error:.1g}"
        figures = f" ({saved} of log-loss saved on held-out rows)"
    return f"a temperature that depends on the row was tried and is not sure to gain{figures}"


def _held_out(problem: TemperatureProblem, kind: str) -> np.ndarray:
    """Each row's loss at a temperature that was fitted without it."""
    losses = np.empty(problem.n_rows)
    for held in cross_fit(problem, TEMPERATURES[kind], forced=False):
        losses[held.rows] = problem.take(held.rows).losses(held.deviation)
    return losses


def _honest(
    trees: RefittedTrees, active: np.ndarray, at: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, mask and votes of trees on rows that their refitted leaves have not seen."""
    honest = trees.honest
    position = {int(j): t for t, j in enumerate(honest.members)}
    if not all(int(j) in position for j in active):  # of a large forest, only some were asked
        rows = honest.rows
        honest = honest_votes(
            trees.evidence,
            trees.routed,
            trees.targets,
            rows=rows,
            members=active,
            lams=np.unique([lam for _, lam in trees.strength.of_fold]),
        )
        position = {int(j): t for t, j in enumerate(active)}
    columns = [position[int(j)] for j in active]
    votes = trees.targets.as_votes(trees.strength.votes(honest))[:, columns]
    known = np.isin(honest.rows, at)
    return honest.rows[known], honest.mask[known][:, columns], np.asarray(votes)[known]
