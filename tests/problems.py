"""Problems shared by the tests of objective and solvers."""

import numpy as np

from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.objective.losses import LOSSES
from sparsebag.objective.objective import Objective
from sparsebag.objective.penalties import ConcaveQuadratic
from sparsebag.sources.readers import stream_rows
from sparsebag.sources.stream import StreamRows


def evidence(loss="log_loss", *, n_rows=120, n_members=12, n_classes=3, seed=0,
             weighted=False, holdout=False, dtype=np.float64):  # fmt: skip
    """Random evidence: members of unequal skill, about 37 % out of bag."""
    rng = np.random.default_rng(seed)
    mask = None if holdout else rng.random((n_rows, n_members)) < 0.37
    sample_weight = rng.uniform(0.0, 2.0, n_rows) if weighted else None
    skill = rng.uniform(0.3, 2.0, n_members)
    if LOSSES[loss].channel == "prediction":
        target = rng.normal(size=n_rows)
        votes = target[:, None] + rng.normal(size=(n_rows, n_members)) * skill
        votes = votes if mask is None else votes * mask
        return OOBEvidence(votes.astype(dtype), mask, target, "regression", sample_weight)
    target = rng.integers(0, n_classes, n_rows)
    logits = rng.normal(size=(n_rows, n_members, n_classes))
    logits[np.arange(n_rows), :, target] += skill
    proba = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    proba = proba if mask is None else proba * mask[:, :, None]
    votes = proba[np.arange(n_rows), :, target]
    planes = tuple(np.ascontiguousarray(proba[:, :, c]) for c in range(n_classes))
    every_class = LOSSES[loss].channel == "every_class" and n_classes > 2
    how = {"classes": np.arange(n_classes), "class_votes": planes if every_class else None}
    return OOBEvidence(votes.astype(dtype), mask, target, "classification", sample_weight, **how)


def every_vote(e):
    """Votes for every class, or numbers; (rows, members, C)."""
    if e.task == "regression":
        return e.votes[:, :, None]
    if e.class_votes is None:
        is_target = e.target[:, None, None] == np.arange(2)
        return np.where(is_target, e.votes[:, :, None], 1.0 - e.votes[:, :, None])
    return np.stack(e.class_votes, axis=2)


def objective_on(e, loss="log_loss", *, lam=0.05, floor=1e-3, prior_mass=0.02):
    """An objective on this evidence; a name means a loss of `LOSSES`."""
    loss = LOSSES[loss] if isinstance(loss, str) else loss
    return Objective(e, loss, ConcaveQuadratic(lam), floor=floor, prior_mass=prior_mass)


def objective(loss="log_loss", *, lam=0.05, floor=1e-3, prior_mass=0.02, **settings):
    """An objective on random evidence."""
    e = evidence(loss, **settings)
    return objective_on(e, loss, lam=lam, floor=floor, prior_mass=prior_mass)


def parts_of(e, size=50):
    """Tuples of some rows, as a generator gives them."""
    weighted = e.sample_weight is not None
    for i in range(0, e.n_rows, size):
        p = e.take(slice(i, i + size))
        yield p.votes, p.oob_mask, p.target, *([p.sample_weight] * weighted)


def streamed(f, *, memory=1 << 30, block_rows=None, generated=False):
    """The same objective, its rows read block by block; ``memory`` is what may be shared out."""
    e = f.evidence
    how = {"task": e.task, "labels": e.classes, "every_class": e.class_votes is not None}
    if generated:
        stream = stream_rows(list(parts_of(e)), **how)
    else:
        how |= {"sample_weight": e.sample_weight, "block_rows": block_rows}
        stream = stream_rows(e.votes, e.oob_mask, e.target, **how)
    source = StreamRows(stream)
    source.memory = memory
    return Objective(source, f.loss, f.penalty, floor=f.floor, prior_mass=f.prior_mass)


def is_native(f: Objective) -> bool:
    """Whether the compiled kernel reads the objective's rows."""
    return f._parts.block._native is not None


def general(f: Objective) -> Objective:
    """The same objective, read the general way."""
    other = Objective(f.evidence, f.loss, f.penalty, floor=f.floor, prior_mass=f.prior_mass)
    other._parts.block._native = None
    return other


def interior_point(n_members: int, seed: int = 0) -> np.ndarray:
    """A random point inside the simplex."""
    return np.random.default_rng(seed).dirichlet(np.ones(n_members))
