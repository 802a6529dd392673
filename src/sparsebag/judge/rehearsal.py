"""The rehearsal: copies of the ensemble, compressed in the same way, judged on held-out rows.

A copy is fitted on part of the rows and compressed at every size; the other rows judge it.
Refitted leaves have seen all training rows through their teacher, so nothing about them is out of
bag: only a copy that never saw the held-out rows is an honest judge. The user's own model is not
touched. An ensemble that comes with held-out rows needs no copy.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.evidence.members import MemberPool, take_rows
from sparsebag.evidence.wrappers import Fold
from sparsebag.progress import Progress
from sparsebag.student.student import are_scores, students, trees_for
from sparsebag.student.teacher import MOST_TREES, Recipe, Teacher, recipes_for
from sparsebag.student.trees import votes

FOLDS, TREES, MIXTURES = 4, 32, 2
"""Of the rehearsal: together no more than the ensemble's own fit costs, at 100 trees. Its students
learn from fewer mixtures a row than the one that is kept, which makes up for having picked."""
MANY_ROWS, FEW_TREES, MOST_HELD_OUT = 20_000, 25, 20_000
"""From so many rows one split into training and held-out rows, and fewer trees, say enough."""
FOLLOWED = 0.5
"""Of what more trees give a teacher, where a limit of trees leaves a student few of them."""
PARTS = 3
"""Of a fold, for the bar: the copy is fitted, teaches, its students are judged."""


@dataclass(frozen=True)
class TrainingRows:
    """The rows an ensemble was trained on, or held-out ones.

    Attributes
    ----------
    X : float32 ndarray or sparse matrix of shape (M, n_features)
        As `MemberPool.prepare` gives it.
    target : ndarray of shape (M, n_outputs)
        One-hot classes, or numbers.
    weight : ndarray of shape (M,)
        Row weights of every step, of mean one.
    sample_weight : ndarray of shape (M,) or None
        As the user gave them: what a copy is fitted with.
    held_out : bool
        Whether the ensemble has not seen them.
    """

    X: Any
    target: np.ndarray
    weight: np.ndarray
    sample_weight: np.ndarray | None = None
    held_out: bool = False

    def take(self, rows: np.ndarray) -> TrainingRows:
        """Some of the rows."""
        given = None if self.sample_weight is None else self.sample_weight[rows]
        parts = (take_rows(self.X, rows), self.target[rows], self.weight[rows], given)
        return TrainingRows(*parts, held_out=self.held_out)


Votes = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Of all trees, and of the first and the last half of them, each of shape (rows, n_outputs)."""


@dataclass(frozen=True)
class Rehearsal:
    """What copies of the ensemble and their students say of rows they have not seen.

    Attributes
    ----------
    recipes : tuple of Recipe
    judged_by : {"rehearsal", "held-out rows"}
    share : ndarray of shape (S,)
        Sizes of the students, as shares of the ensemble's nodes; falling.
    n_nodes, n_trees : ndarray of shape (S,)
        What a student of that size will have.
    target : ndarray of shape (R, n_outputs)
    weight : ndarray of shape (R,)
    as_is : ndarray of shape (R, n_outputs)
        What the copies themselves predict.
    whole : Votes
        The copies'.
    teachers : tuple of Votes
        Of the copies, with the node values of each recipe.
    missing : float
        By how much copies are worse than an ensemble with all trees, over how much halves of their
        trees are: the error of T trees is above that of endlessly many by a part of 1 / T.
    followed : float
        Share of what more trees would give a teacher that its students get.
    votes : tuple of tuple of ndarray of shape (R, n_outputs)
        By recipe, then by size.
    scored : bool ndarray of shape (S,)
        Whether students of that size have scores, which need no floor.
    widening : float
        Of standard errors over rows: other training rows would have made another model. As in
        Nadeau and Bengio (2003), ``sqrt(1 + J · held-out rows / training rows)`` for J splits.
    """

    recipes: tuple[Recipe, ...]
    judged_by: str
    share: np.ndarray
    n_nodes: np.ndarray
    n_trees: np.ndarray
    target: np.ndarray
    weight: np.ndarray
    as_is: np.ndarray
    whole: Votes
    teachers: tuple[Votes, ...]
    missing: float
    followed: float
    votes: tuple[tuple[np.ndarray, ...], ...]
    scored: np.ndarray
    widening: float


def rehearse(
    pool: MemberPool,
    rows: TrainingRows,
    share: np.ndarray,
    *,
    folds: int | None = None,
    most_trees: int | None = None,
    scores: bool = False,
    n_jobs: int | None = None,
    n_threads: int = 1,
    progress: Progress,
) -> Rehearsal:
    """Fit, compress and score copies of the ensemble.

    Parameters
    ----------
    pool : MemberPool
        Of trees.
    rows : TrainingRows
    share : ndarray of shape (S,)
        Sizes, falling.
    folds : int, optional
        Parts of the rows, each held out once; default: four, or one split of many rows.
    most_trees : int, optional
        Of a student.
    scores : bool, default False
        Whether leaves of small students may be scores, which only a calibrator can read.
    n_jobs : int, optional
        Of the copies' fits.
    n_threads : int, default 1
    progress : Progress

    Returns
    -------
    Rehearsal
    """
    recipes = recipes_for(pool, rows.target, rows.weight, knows_bags=not rows.held_out)
    splits = _splits(rows.target, folds, is_classification=pool.classes is not None)
    n_trees = TREES if len(rows.target) < MANY_ROWS else FEW_TREES
    parts: list[_Part] = []
    for number, held in enumerate(splits):
        done, parts_of_all = PARTS * number, PARTS * len(splits)
        progress.say("rehearsal step", done + 1, parts_of_all)
        kept = np.setdiff1d(np.arange(len(rows.target)), held)
        train, test = rows.take(kept), rows.take(held)
        fold = _fold(pool, kept, held, held_out=rows.held_out)
        if fold is not None and not rows.held_out:
            train = replace(train, X=pool.prepare(fold.X))
            test = replace(test, X=pool.prepare(fold.X_held))
            if fold.targets:
                train = replace(train, target=np.asarray(fold.y)[:, None])
        copy, columns = _copy(pool, train, n_trees, number, n_jobs)
        progress.say("rehearsal step", done + 2, parts_of_all)
        teacher = Teacher(
            *(copy, train.X, train.target[:, columns], train.weight),
            knows_bags=not rows.held_out,
            n_threads=n_threads,
            mixtures=MIXTURES,
        )
        del train  # a copy of almost all rows
        progress.say("rehearsal step", done + 3, parts_of_all)
        split = _Split(teacher, columns, test, len(pool.members), scores)
        part = _scored(split, share, recipes, most_trees, n_threads)
        if fold is not None and fold.targets:
            part = _on_users_scale(part, fold, np.asarray(pool.wrapping.y, dtype=float)[held])
        parts.append(part)
        if number == 0 and len(splits) > 1 and len(recipes) > 2:
            recipes, parts = _without_worst(recipes, part)
    nodes_a_tree = np.mean([member.estimator.tree_.node_count for member in pool.members])
    whole_nodes = nodes_a_tree * len(pool.members)
    most = min(len(pool.members), MOST_TREES, most_trees or MOST_TREES)
    held = np.concatenate(splits)
    n_train = len(rows.target) - len(held) / len(splits)
    judged = rows.take(held)
    by_recipe = zip(*(part.votes for part in parts), strict=True)
    return Rehearsal(
        recipes=recipes,
        judged_by="held-out rows" if rows.held_out else "rehearsal",
        share=share,
        n_nodes=share * whole_nodes,
        n_trees=np.array([trees_for(n, most, nodes_a_tree) for n in share * whole_nodes]),
        target=np.concatenate([part.target for part in parts]),
        weight=judged.weight,
        as_is=np.concatenate([part.as_is for part in parts]),
        whole=_joined([part.whole for part in parts]),
        teachers=tuple(map(_joined, zip(*(part.teachers for part in parts), strict=True))),
        missing=_missing(len(copy.members), len(pool.members)),
        followed=1.0 if most == min(len(pool.members), MOST_TREES) else FOLLOWED,
        votes=tuple(
            tuple(np.concatenate(size) for size in zip(*of_recipe, strict=True))
            for of_recipe in by_recipe
        ),
        scored=np.array([scores and are_scores(one, len(pool.members)) for one in share]),
        widening=float(np.sqrt(1.0 + len(held) / n_train)),
    )


@dataclass(frozen=True)
class _Split:
    """A copy of an ensemble of ``n_members``, its classes, and rows it has not seen."""

    teacher: Teacher
    columns: np.ndarray
    test: TrainingRows
    n_members: int
    scores: bool


@dataclass(frozen=True)
class _Part:
    target: np.ndarray
    as_is: np.ndarray
    whole: Votes
    teachers: tuple[Votes, ...]
    votes: tuple[tuple[np.ndarray, ...], ...]


def _scored(
    split: _Split,
    share: np.ndarray,
    recipes: tuple[Recipe, ...],
    most_trees: int | None,
    n_threads: int,
) -> _Part:
    """A copy's and its students' votes on the rows it has not seen."""
    teacher, columns, test = split.teacher, split.columns, split.test
    n_outputs = test.target.shape[1]
    leaf = teacher.table.route(test.X, n_threads)
    n_trees = teacher.table.n_trees
    # A share is one of the whole ensemble's nodes, and the copy has fewer trees.
    allowed = share * split.n_members * teacher.table.n_nodes / n_trees

    def as_votes(one: np.ndarray) -> np.ndarray:
        if teacher.pool.classes is not None and one.shape[1] == 1:
            one = np.concatenate([1.0 - one, one], axis=1)
        out = np.zeros((len(one), n_outputs))
        out[:, columns] = one
        return out

    def of_trees(value: np.ndarray, n: int) -> Votes:
        half = max(n // 2, 1)
        first, last = leaf[:half], leaf[n - half : n]
        whole, a, b = (votes(one, value, n_threads) / len(one) for one in (leaf[:n], first, last))
        return as_votes(whole), as_votes(a), as_votes(b)

    by_recipe, teachers = [], []
    for recipe in recipes:
        lesson, said = teacher.lesson(recipe), []
        teachers.append(of_trees(lesson.value, lesson.table.n_trees))
        for size, student in zip(share, students(lesson, allowed, most_trees), strict=True):
            is_score = split.scores and are_scores(size, split.n_members)
            said.append(as_votes((student.scored(lesson) if is_score else student).vote(leaf)))
        by_recipe.append(tuple(said))
    whole = of_trees(teacher.table.value, n_trees)
    as_is, own = whole[0], teacher.pool.source
    if not teacher.pool.leaves_are_shares and hasattr(own, "predict_proba"):
        with warnings.catch_warnings():  # a forest that adds scores up says it otherwise than trees
            warnings.simplefilter("ignore", UserWarning)  # rows without names
            as_is = as_votes(np.asarray(own.predict_proba(test.X)))
    return _Part(test.target, as_is, whole, tuple(teachers), tuple(by_recipe))


def _joined(parts: Sequence[Votes]) -> Votes:
    whole, first, last = (np.concatenate(one) for one in zip(*parts, strict=True))
    return whole, first, last


def _missing(n_trees: int, n_members: int) -> float:
    """What all trees would save of a copy's error, over what half of its trees would add to it."""
    half = max(n_trees // 2, 1)
    return 0.0 if n_trees == n_members else (1 / n_trees - 1 / n_members) / (1 / half - 1 / n_trees)


def _without_worst(
    recipes: tuple[Recipe, ...], part: _Part
) -> tuple[tuple[Recipe, ...], list[_Part]]:
    """Without the recipe that does worst in the first fold: its distance to the best is large."""
    errors = [[np.mean((vote - part.target) ** 2) for vote in of_size] for of_size in part.votes]
    worst = int(np.argmax(np.log(np.array(errors) + 1e-300).sum(axis=1)))
    left = [r for r in range(len(recipes)) if r != worst]
    kept = replace(
        part,
        teachers=tuple(part.teachers[r] for r in left),
        votes=tuple(part.votes[r] for r in left),
    )
    return tuple(recipes[r] for r in left), [kept]


def _fold(pool: MemberPool, kept: np.ndarray, held: np.ndarray, *, held_out: bool) -> Fold | None:
    """Preprocessing that has not seen the held-out rows, inside a pipeline."""
    if pool.wrapping is None:
        return None
    found: Fold = pool.wrapping.fitted() if held_out else pool.wrapping.refit(kept, held)
    return found


def _on_users_scale(part: _Part, fold: Fold, target: np.ndarray) -> _Part:
    """What a transformed target's regressors say, in the units of the target itself."""

    def back(one: tuple[np.ndarray, ...]) -> Any:
        return tuple(map(fold.back, one))

    teachers, votes = tuple(map(back, part.teachers)), tuple(map(back, part.votes))
    whole = back(part.whole)
    return _Part(target[:, None], whole[0], whole, teachers, votes)


def _copy(
    pool: MemberPool, train: TrainingRows, n_trees: int, seed: int, n_jobs: int | None
) -> tuple[MemberPool, np.ndarray]:
    """A copy fitted on some rows, with fewer trees, and the classes it has seen."""
    if train.held_out:
        n_outputs = train.target.shape[1]
        return pool, np.arange(n_outputs)
    y: Any = train.target[:, 0]
    if pool.classes is not None:  # labels, which a class_weight may name
        y = pool.classes[train.target.argmax(axis=1)]
    copy = clone(pool.source)
    params: dict[str, Any] = {
        "n_estimators": min(n_trees, len(pool.members)),
        "random_state": seed,
        "oob_score": False,
        "warm_start": False,
    }
    if n_jobs is not None:
        params["n_jobs"] = n_jobs
    own = copy.get_params(deep=False)
    most = own.get("max_samples")
    if isinstance(most, (int, np.integer)) and pool.n_rows:
        params["max_samples"] = max(1, round(most * len(y) / pool.n_rows))
    copy.set_params(**{name: params[name] for name in params if name in own})
    weights = {} if train.sample_weight is None else {"sample_weight": train.sample_weight}
    try:
        copy.fit(train.X, y, **weights)
        made = read_ensemble(copy)
    except Exception as error:
        error.add_note("(while fitting a copy for the rehearsal; rehearsal=False skips it)")
        raise
    columns = np.arange(1)
    if pool.classes is not None:
        columns = np.flatnonzero(np.isin(pool.classes, copy.classes_))
    return made, columns


def _splits(target: np.ndarray, folds: int | None, *, is_classification: bool) -> list[np.ndarray]:
    """Rows that are held out, each time; classes are spread evenly."""
    rng = np.random.default_rng(0)
    order = rng.permutation(len(target))
    if is_classification:
        order = order[np.argsort(target[order].argmax(axis=1), kind="stable")]
    if folds is None and len(target) >= MANY_ROWS:
        held = min(len(target) // 3, MOST_HELD_OUT)
        return [order[np.linspace(0, len(order) - 1, held).astype(np.intp)]]
    n_folds = min(folds or FOLDS, len(target))
    return [order[fold::n_folds] for fold in range(n_folds)]
