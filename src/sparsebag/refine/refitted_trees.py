"""Trees with refitted leaves, as selection sees them and as they are deployed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.stats import norm

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.evidence import OOBEvidence, lost_class
from sparsebag.evidence.leaves import MEAN_CRITERIA
from sparsebag.evidence.members import MemberPool
from sparsebag.objective.full_vote_risk import Exchangeable, FullVoteRisk
from sparsebag.refine.distil import Distillery
from sparsebag.refine.honest_votes import HonestVotes, honest_votes
from sparsebag.refine.leave_one_out import refitted_evidence
from sparsebag.refine.routed_rows import RoutedRows
from sparsebag.refine.size_matched import finished_votes
from sparsebag.refine.strength import (
    LAMS,
    RowMoments,
    Strength,
    choose_strength,
    equal_shares,
    judged_weight,
    row_moments,
    true_classes,
)
from sparsebag.refine.targets import Targets
from sparsebag.selection.cross_fit import MUCH_LEFT_OVER
from sparsebag.selection.disagreement import left_over
from sparsebag.selection.guard import CONFIDENCE
from sparsebag.selection.judged_path import CrossFittedPath
from sparsebag.selection.path import PathPoint
from sparsebag.selection.row_risks import RowRisks

VOTES_A_MEMBER = 2.4
"""What a distilled tree is worth, in trees of the teacher, by how far it is from it: the median
over 31 data sets. Sizes the votes that strengths and calibrators are fitted to."""
RISKED_VOTES_A_MEMBER = 2.0
"""The same by what it adds to the risk, which is more; see `distil.RISK_PER_MISS`."""
EXPECTED_MEMBERS = 20
"""Size the strength is chosen for where no budget says another."""
DOUBT_OF_RISK, DOUBT_OF_ADDED = 0.02, 0.25
"""Standard errors of a distilled ensemble's estimated risk that its rows do not show: strengths are
chosen on the rows that judge them, and how far made-up rows stand for real ones varies. Estimates
were off by 3 to 4 % at 10 to 20 trees over 31 data sets."""
DOUBT_OF_BLUNT_TREES = 0.1
"""The first of them for trees of few levels or large leaves, whose few splits a refit on the same
rows flatters: up to 12 % on made-up data."""
JUDGED_ROWS = 2000
JUDGED_ROWS_OF_MANY_CLASSES = 700
MANY_CLASSES = 6
MOST_CLASSES = 60
JUDGED_MEMBERS = 100
ONLY_TREES = "only decision trees have leaves"
FEWEST_ROWS = 50
FEWEST_MEMBERS = 20
"""Below, too few trees have two rows out of bag together for an honest estimate."""


def why_no_refitting(pool: MemberPool, evidence: OOBEvidence) -> str | None:
    """What stands against refitting leaves; None if nothing does.

    Parameters
    ----------
    pool : MemberPool
    evidence : OOBEvidence

    Returns
    -------
    str or None
        The end of a sentence that begins with "because".
    """
    trees = [member.estimator for member in pool.members if member.is_tree]
    if len(trees) < len(pool.members):
        return ONLY_TREES
    if evidence.oob_mask is None or pool.in_bag is None:
        return "the rows given are not those the trees were trained on"
    if pool.input_kind != "tree":
        return "the trees do not read a plain array of numbers"
    if len(trees) < FEWEST_MEMBERS:
        return f"there are fewer than {FEWEST_MEMBERS} trees to judge it by"
    if any(getattr(m, "class_weight", None) is not None for m in (pool.source, *trees)):
        return "the trees were fitted with class weights, which it would undo"
    if any(getattr(tree, "monotonic_cst", None) is not None for tree in trees):
        return "the trees keep a monotonic constraint, which it would break"
    if pool.classes is not None and len(pool.classes) > MOST_CLASSES:
        return f"with more than {MOST_CLASSES} classes judging it would take longer than the forest"
    if pool.classes is None and any(tree.criterion not in MEAN_CRITERIA for tree in trees):
        return "the trees' leaves are not means of their targets"
    lost = lost_class(evidence)
    if lost is not None:
        return f"{lost} are in every tree's bag, so that nothing tells what it would do to them"
    judged = on_host(evidence.oob_mask).sum(axis=1) >= 2
    if evidence.sample_weight is not None:
        judged = judged & (on_host(evidence.sample_weight) > 0)
    if np.count_nonzero(judged) < FEWEST_ROWS:
        return f"there are fewer than {FEWEST_ROWS} rows to judge it by"
    return None


@dataclass(frozen=True)
class Levels:
    """Judged rows' risks.

    Attributes
    ----------
    refitted : RowMoments
        Trees with refitted leaves, their votes clipped and floored as deployed.
    own : Exchangeable
        Trees with their own leaves.
    full : ndarray of shape (R,)
        The whole ensemble, as it was.
    weight : ndarray of shape (R,)
    finish : float
        What clipping and floor are expected to change; in ``refitted`` already.
    """

    refitted: RowMoments
    own: Exchangeable
    full: np.ndarray
    weight: np.ndarray
    finish: float


class RefittedTrees:
    """Every tree of an ensemble with leaves refitted on all rows, at the best honest strength.

    Parameters
    ----------
    pool : MemberPool
        Of trees that `why_no_refitting` has nothing against.
    X : array-like
        The training rows.
    evidence : OOBEvidence
        The trees' own votes; with ``class_votes`` where there are more than two classes.
    members : int, optional
        How many will be deployed, as far as is known.
    floor : float, default 0
        Share of the uniform class distribution in each vote.
    seed : int, default 0
        Of the rows and trees that are sampled.
    n_jobs : int, optional
        Threads; results do not depend on it.

    Attributes
    ----------
    strength : Strength
    honest : HonestVotes
    targets : Targets
    judged_members : int
        How many trees the strength was chosen for.
    distils : bool
        Whether the survivors will be fitted to the whole ensemble on synthetic rows.
    why_not_distilled : str
    """

    def __init__(
        self,
        pool: MemberPool,
        X: Any,
        evidence: OOBEvidence,
        *,
        members: int | None = None,
        floor: float = 0.0,
        seed: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        prepared = pool.prepare(X)
        sample_weight = _mean_one(evidence.sample_weight)
        self.pool, self.evidence, self.floor = pool, evidence, floor
        self._seed, self._n_jobs = seed, n_jobs
        self.distils = not sp.issparse(prepared)
        self.why_not_distilled = "" if self.distils else "rows between sparse ones are not sparse"
        self.routed = RoutedRows(pool, prepared, sample_weight)
        self.targets = Targets.of(evidence)
        rows, asked = self._sample(sample_weight)
        self.honest: HonestVotes = honest_votes(
            evidence, self.routed, self.targets, rows=rows, members=asked, lams=LAMS
        )
        weight = judged_weight(self.honest, sample_weight)
        size = min(members or EXPECTED_MEMBERS, len(pool.members))
        self.judged_members = size
        self.strength: Strength = choose_strength(
            self.honest,
            self.targets,
            weight,
            size=self.votes_a_member * size,
            plain_size=size,
            floor=floor,
            seed=seed,
        )
        self.levels = self._levels(weight, size)
        self._distillery: Distillery | None = None
        self._refits: list[_Refit] = []

    @property
    def votes_a_member(self) -> float:
        """How many trees' votes a deployed tree is worth."""
        return VOTES_A_MEMBER if self.distils else 1.0

    @property
    def n_synthetic(self) -> int:
        """Synthetic rows the survivors were fitted on."""
        return 0 if self._distillery is None else self._distillery.n_synthetic

    def refitted_evidence(self) -> OOBEvidence:
        """What the refitted trees say of rows they were neither grown nor refitted on."""
        return refitted_evidence(
            self.evidence,
            self.routed,
            self.targets,
            self.strength.lam,
            seed=self._seed,
            n_jobs=self._n_jobs,
        )

    def as_deployed(self, path: CrossFittedPath) -> CrossFittedPath:
        """The path with the risk of refitted trees, against the whole ensemble as it was.

        Parameters
        ----------
        path : CrossFittedPath
            Of `refitted_evidence`.

        Returns
        -------
        CrossFittedPath
        """
        levels = self.levels
        rows = RowRisks(levels.refitted.own, levels.refitted.pair, levels.weight, levels.full)
        shared = 1.0 / self._distil().n_teachers if self.distils else 0.0
        votes = RISKED_VOTES_A_MEMBER if self.distils else 1.0
        doubt = (self._doubt_of_risk(), DOUBT_OF_ADDED if self.distils else 0.0)
        return path.as_deployed(rows, levels.own, votes_a_member=votes, shared=shared, doubt=doubt)

    def _doubt_of_risk(self) -> float:
        blunt = min(left_over(self.pool) / MUCH_LEFT_OVER, 1.0)
        return float(np.hypot(DOUBT_OF_RISK if self.distils else 0.0, blunt * DOUBT_OF_BLUNT_TREES))

    def cannot_keep(self, tolerance: float) -> bool:
        """Whether not even all refitted trees together are sure to stay within a tolerance.

        Parameters
        ----------
        tolerance : float

        Returns
        -------
        bool
        """
        levels, alike = self.levels, 1.0 / len(self.pool.members)
        best = alike * levels.refitted.own + (1.0 - alike) * levels.refitted.pair
        excess = best - (1.0 + tolerance) * levels.full
        mean = float(levels.weight @ excess)
        of_rows = float(np.sqrt(np.sum((levels.weight * (excess - mean)) ** 2)))
        doubt = max(self._doubt_of_risk(), DOUBT_OF_RISK)
        error = np.hypot(of_rows, doubt * float(levels.weight @ best))
        return bool(mean + norm.ppf(CONFIDENCE) * error > 0.0)

    def measure(self, point: PathPoint) -> float | None:
        """Refit the point's trees, and measure what they miss of the whole ensemble.

        Parameters
        ----------
        point : PathPoint

        Returns
        -------
        float or None
            Their concentration as the risk shows it; None where they are not distilled.
        """
        if not self.distils:
            tables = [self._table(int(j)) for j in point.members]
            self._refits = [_Refit(point, tables, 0.0)]
            return None
        distillery = self._distil()
        known = [refit for refit in self._refits if refit.is_of(point)]
        refit = (
            known[0] if known else _Refit(point, *distillery.distil(point.members, point.weights))
        )
        # Of two sizes that were tried the first may be kept after all.
        self._refits = [*(r for r in self._refits if r is not refit), refit][-2:]
        moments, weight = self.levels.refitted, self.levels.weight
        spread = float(weight @ (moments.own - moments.pair))
        votes = self.strength.votes(self.honest)
        size = self.votes_a_member / float(point.weights @ point.weights)
        finish = float(weight @ self._finish(votes, size)) - self.levels.finish
        return 1.0 / distillery.n_teachers + (refit.missed + finish) / max(spread, 1e-300)

    def survivors(self, members: np.ndarray) -> MemberPool:
        """Copies of the trees that were measured last, with their refitted leaves.

        Parameters
        ----------
        members : ndarray of indices
            Among those that were measured.

        Returns
        -------
        MemberPool
        """
        last = self._refits[-1]
        table = dict(zip(last.point.members.tolist(), last.values, strict=True))
        kept = self.pool.keep(members)
        refitted = tuple(
            replace(member, leaf_values=self.targets.as_votes(table[int(j)]))
            for j, member in zip(members, kept.members, strict=True)
        )
        return replace(kept, members=refitted)

    # -- steps -------------------------------------------------------------------------------

    def _sample(self, sample_weight: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Rows to judge by, and trees to ask."""
        rng = np.random.default_rng(self._seed)
        n_members = len(self.pool.members)
        asked = np.sort(rng.permutation(n_members)[:JUDGED_MEMBERS])
        usable = on_host(self.evidence.oob_mask)[:, asked].sum(axis=1) >= 2
        if sample_weight is not None:
            usable = usable & (sample_weight > 0)
        many = (self.targets.n_classes or 0) >= MANY_CLASSES
        most = JUDGED_ROWS_OF_MANY_CLASSES if many else JUDGED_ROWS
        return np.sort(rng.permutation(np.flatnonzero(usable))[:most]), asked

    def _levels(self, weight: np.ndarray, size: float) -> Levels:
        votes = self.strength.votes(self.honest)
        residual = self.targets.observed[self.honest.rows][:, None, :] - votes
        moments = row_moments(self.honest.mask, residual, residual)
        unit = self.targets.multiplicity
        finish = self._finish(votes, self.votes_a_member * size)
        plain = FullVoteRisk(self.evidence.take(self.honest.rows), floor=self.floor)
        own, pair = float(weight @ plain.own_risk), float(weight @ plain.pair_risk)
        return Levels(
            refitted=RowMoments(unit * moments.own + finish, unit * moments.pair + finish),
            own=Exchangeable(own, pair),
            full=plain.uniform_row_risk(),
            weight=weight,
            finish=float(weight @ finish),
        )

    def _finish(self, votes: np.ndarray, size: float) -> np.ndarray:
        """What clipping and floor change of each row's risk at a number of votes."""
        if self.targets.n_classes is None:
            return np.zeros(len(votes))
        shares = equal_shares(self.honest.mask, size, self._seed)
        raw = self.targets.as_votes(np.einsum("rt,rtd->rd", shares, votes))
        position = true_classes(self.honest, self.targets)
        proba = finished_votes(raw, self.floor)
        truth = np.eye(self.targets.n_classes)[position]
        return np.asarray(np.sum((proba - truth) ** 2 - (raw - truth) ** 2, axis=1))

    def _distil(self) -> Distillery:
        if self._distillery is None:
            self._distillery = Distillery(
                self.routed, self.targets, self.strength.twicing, self.strength.lam, self._seed
            )
        return self._distillery

    def _table(self, j: int) -> np.ndarray:
        return self.targets.leaf_table(self.routed, j, self.strength.twicing, self.strength.lam)


@dataclass(frozen=True)
class _Refit:
    """Leaf values of a point's trees, and the squared error they miss the whole ensemble by."""

    point: PathPoint
    values: list[np.ndarray]
    missed: float

    def is_of(self, point: PathPoint) -> bool:
        same = np.array_equal(self.point.members, point.members)
        return same and np.array_equal(self.point.weights, point.weights)


def _mean_one(sample_weight: Any) -> np.ndarray | None:
    if sample_weight is None:
        return None
    weight = on_host(sample_weight).astype(np.float64)
    return np.asarray(weight / weight.mean())
