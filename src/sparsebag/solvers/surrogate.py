"""The objective's surrogate between two passes: a sample of rows, tilted, bent, and doubted.

What the sample says of the whole is mended by what passes have shown: tilted, it has the whole's
gradient at the anchor; bent, the curvature the sample lacks along steps already taken; pulled, it
is trusted less far from the anchor. Where it is asked whether a member outside a face can still
want weight, its standard errors say how far it may be believed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sparsebag.objective.objective import Objective
from sparsebag.objective.penalties import Penalty, Tilted
from sparsebag.solvers.active_set import ActiveSet, suits_active_set
from sparsebag.solvers.base import Point, Solution, SolveLog, Solver, Status
from sparsebag.solvers.projected_gradient import ProjectedGradient
from sparsebag.solvers.secants import Secants

Array = Any

TRUSTED_SHARE = 0.5
"""Share of the goal within which a gap found on the sample is as good as one found by a pass."""
SURE_ERRORS = 4.0
"""Standard errors of the sample's slopes that are added to them then; the largest of thousands."""
NOISE_PARTS = 16
"""Parts of the sample whose spread gives them."""
PULL_GROWTH = 8.0
MOST_BENT_STEPS = 200
"""Iterations on a sample of corrected curvature; one that is bent the wrong way has no end."""


class Surrogate:
    """What a sample, and the passes made so far, say of the objective between two passes.

    Parameters
    ----------
    objective : Objective
        The whole, of all rows and members.
    log : SolveLog
        Counts what the sample costs.
    goal : float
        Gap over all members that a solve has to meet.
    max_iter : int
        Most iterations on the sample at a time.
    """

    def __init__(self, objective: Objective, log: SolveLog, goal: float, max_iter: int) -> None:
        self.objective, self.log, self.goal, self.max_iter = objective, log, goal, max_iter
        self._pull = 0.0
        self._secants = Secants()
        self._tilted_from: tuple[Objective, Point, Array] | None = None

    def is_whole(self, sample: Objective) -> bool:
        """Whether the sample is all rows."""
        return sample.n_rows >= self.objective.n_rows

    def tilt(self, sample: Objective, anchor: Point, own: Penalty) -> Objective:
        """The sample with a penalty of its own and the whole's gradient at the anchor."""
        _, at_anchor = sample.value_and_gradient(anchor.weights)
        self.count(sample, 1, sample.nbytes_per_pass)
        if self._tilted_from is not None and self._tilted_from[0] is not sample:
            self._secants = Secants()  # of other rows, or other columns
        self._tilted_from = sample, anchor, at_anchor
        linear = anchor.gradient - at_anchor
        return sample.with_penalty(Tilted(own, linear, anchor.weights, self._pull))

    def minimise(self, tilted: Objective, begin: Array, wanted: float) -> Solution:
        """The tilted sample's minimum, to a gap: bent where that leads somewhere."""
        inner = self._minimise_bent(tilted, begin, wanted)
        if inner is None:
            inner = self.solve(tilted, begin, wanted)
        self.count(tilted, inner.n_evaluations, inner.nbytes_read)
        return inner

    def solve(self, objective: Objective, begin: Array, wanted: float) -> Solution:
        """Minimise what is in memory exactly, to a gap."""
        inner = polisher(objective, wanted / objective.scale, self.max_iter).solve(objective, begin)
        self.log.n_iterations += inner.n_iterations
        return inner

    def count(self, sample: Objective, n_evaluations: int, nbytes: int) -> None:
        """What the sample costs; a sample of all rows is a pass like any other."""
        self.log.nbytes_read += nbytes
        if self.is_whole(sample):
            self.log.n_evaluations += n_evaluations

    def learn_curvature(self, moved: Point, face: Array, face_rows: Any) -> None:
        """What a pass says of the curvature the sample lacked along the step it proposed.

        Parameters
        ----------
        moved : Point
            Where the pass was made.
        face : array of indices
            Members whose columns ``face_rows`` has.
        face_rows : Objective or None
            The sample of a face, if there is one; other samples are of all members.
        """
        if self._tilted_from is None:
            return
        sample, anchor, at_anchor = self._tilted_from
        if self.is_whole(sample):
            return
        members = face if sample is face_rows else slice(None)
        weights, gradient = moved.weights[members], moved.gradient[members]
        _, here = sample.value_and_gradient(weights)
        self.count(sample, 1, sample.nbytes_per_pass)
        self._secants.add(weights - anchor.weights, gradient - anchor.gradient, here - at_anchor)

    def trust_more(self) -> None:
        """After a round that lowered the objective."""
        self._pull /= PULL_GROWTH

    def trust_less(self, best: Point, moved: Point) -> None:
        """Pull towards the anchor: as much as the curvature seen on the way, then more."""
        xp = self.objective.xp
        step, bend = moved.weights - best.weights, moved.gradient - best.gradient
        curvature = abs(float(xp.sum(step * bend))) / max(float(xp.sum(step * step)), 1e-300)
        self._pull = max(PULL_GROWTH * self._pull, curvature)
        self._secants = Secants()

    def point_without_pass(
        self, sample: Objective, anchor: Point, face: Array, weights: Array, on_face: Point
    ) -> Point | None:
        """The face's minimum, if no member outside it can ask for weight; None: a pass must tell.

        Value and gradient on the face are those of all rows. Outside it the gradient is that of the
        last pass, and what the sample says has changed since then. Far from that pass the sample's
        noise alone looks like a gap; near it the noise is small, and a pass would say the same. How
        small parts of the sample tell: with some standard errors more, no slope may miss the goal.

        Parameters
        ----------
        sample : Objective
            Of all members.
        anchor : Point
            Of the last pass.
        face : array of indices
        weights : array of shape (N,)
            The face's minimum among all members.
        on_face : Point
            The same, of the face's members and all rows.

        Returns
        -------
        Point or None
        """
        here = sample.value_and_gradient(weights)[1]
        there = sample.value_and_gradient(anchor.weights)[1]
        self.count(sample, 2, 2 * sample.nbytes_per_pass)
        gradient = anchor.gradient + here - there
        gradient[face] = on_face.gradient
        end = Point(weights, on_face.value, gradient)
        if end.gap > TRUSTED_SHARE * self.goal:
            return None
        xp = self.objective.xp
        error = self._error_of_change(sample, anchor.weights, weights)
        error[face] = 0.0
        worst = float(xp.max(xp.sum(end.weights * gradient) - gradient + SURE_ERRORS * error))
        return end if worst <= self.goal else None

    def _error_of_change(self, sample: Objective, there: Array, here: Array) -> Array:
        """Standard errors of the change of the sample's gradient from one point to another."""
        xp = self.objective.xp
        parts, shares = [], []
        for k in range(min(NOISE_PARTS, sample.n_rows)):
            part = sample.at_rows(slice(k, None, NOISE_PARTS))
            change = part.value_and_gradient(here)[1] - part.value_and_gradient(there)[1]
            parts.append(change)
            shares.append(part.total_weight / sample.total_weight)
        self.count(sample, 2, 2 * sample.nbytes_per_pass)
        if len(parts) < 2:
            return xp.full_like(here, float("inf"))
        mean = sum(share * part for share, part in zip(shares, parts, strict=True))
        square = sum(
            share**2 * (part - mean) ** 2 for share, part in zip(shares, parts, strict=True)
        )
        return xp.sqrt(square * (len(parts) / (len(parts) - 1)))

    def _minimise_bent(self, tilted: Objective, begin: Array, wanted: float) -> Solution | None:
        """With the curvature passes have shown; None where there is none, or it leads nowhere."""
        if not self._secants.bends:
            return None
        assert isinstance(tilted.penalty, Tilted)
        bent = tilted.with_penalty(replace(tilted.penalty, bends=self._secants.bends))
        inner = polisher(bent, wanted / bent.scale, MOST_BENT_STEPS).solve(bent, begin)
        self.log.nbytes_read += inner.nbytes_read
        if inner.status in (Status.CONVERGED, Status.INTERRUPTED):
            self.log.n_iterations += inner.n_iterations
            return replace(inner, nbytes_read=0)
        self._secants = Secants()
        return None


def polisher(
    objective: Objective, tol: float, max_iter: int, *, newton_end: bool = False
) -> Solver:
    """The exact solver for an objective in memory; `select_solver` has the reasons."""
    if suits_active_set(objective):
        return ActiveSet(tol=tol, max_iter=max_iter, newton_end=newton_end)
    return ProjectedGradient(tol=tol, max_iter=max_iter, newton_end=newton_end)
