"""Selection: the expected risk against the deployed one, the guard, and equal-size baselines.

    SPARSEBAG_DATA=... python -m benchmarks.selection [--seeds 5] [--members 100 500] [--only ...]

Every data set of the paper and the suite, forests and bags of trees. 40 % of the rows, at most
2000 (1000 for ensembles of 500), are for training; all others, at most 8000, only judge. Rows of
results are appended to benchmarks/results/selection.csv as they come, and finished ones are not
run again; `python -m benchmarks.selection --only summary` prints what they say.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import sparsebag as sb
from benchmarks import selection_cost, selection_summary
from benchmarks.datasets import PAPER, Unavailable
from benchmarks.datasets.suite import SUITE, load
from benchmarks.environment import environment
from benchmarks.methods.selection import best_members, greedy_picks
from benchmarks.problem import Problem
from benchmarks.progress import Progress
from benchmarks.results_store import OK, ResultsStore
from sparsebag.evidence.collect import collect_evidence
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.objective.full_vote_risk import FullVoteRisk
from sparsebag.objective.losses import Brier, SquaredError
from sparsebag.objective.penalties import ConcaveQuadratic
from sparsebag.objective.simplex_objective import SimplexObjective
from sparsebag.selection.cross_fit import cross_fit
from sparsebag.selection.interval import risk_interval
from sparsebag.selection.judged_path import CrossFittedPath
from sparsebag.selection.select import MOST_MEMBERS
from sparsebag.settings import DEFAULT_FLOOR, DEFAULT_PRIOR_MASS
from sparsebag.weighting import disagreement_of

RESULTS = Path(__file__).parent / "results" / "selection.csv"
MADE_ON = RESULTS.with_suffix(".json")
"""Versions and machine of the run that wrote the results last."""
SIZES = (5, 10, 20, 50)
TOLERANCE = 0.02
TRAIN_SHARE, MOST_TEST = 0.4, 8000
MOST_TRAIN = {100: 2000, 500: 1000}
"""By members: 320 fits of 500 trees are to end within the hour."""

PARAMETERS = set(inspect.signature(sb.compress).parameters)
SELECTION_ALONE = {name: None for name in ("refine", "calibration") if name in PARAMETERS}

LAST_POINT = "paper"
"""Of a run: where it is, the run was finished."""
KEY = ("dataset", "ensemble", "members", "seed", "point")
COLUMNS = (
    *KEY,
    *("status", "task", "train_rows", "test_rows", "survivors"),
    *("expected", "low", "high", "deployed", "deployed_error", "oob_ratio"),
    *("full_expected", "full_deployed", "random", "random_needed", "best", "caruana", "paper"),
    *("increase", "bound", "fit_seconds", "select_seconds", "source"),
)
DIGITS = 6
"""Significant ones that the results keep."""


@dataclass(frozen=True)
class Deployed:
    """Test rows' residuals of every member, floored as deployed: judges any weights at once."""

    residuals: np.ndarray  # (N, rows, C)

    def risk(self, weights: np.ndarray) -> tuple[float, float]:
        """Mean risk on the test rows and its standard error."""
        error = np.tensordot(weights.astype(np.float32), self.residuals, 1)
        rows = np.square(error).sum(axis=1, dtype=float)
        return float(rows.mean()), float(rows.std() / np.sqrt(len(rows)))

    def random_k(self, k: np.ndarray | float) -> Any:
        """Exact mean over all k-subsets of the members."""
        own = float(np.square(self.residuals, dtype=float).sum(axis=(0, 2)).mean())
        whole = float(np.square(self.residuals.sum(axis=0, dtype=float)).sum(axis=1).mean())
        n = len(self.residuals)
        own_mean, pair_mean = own / n, (whole - own) / (n * (n - 1))
        return pair_mean + (own_mean - pair_mean) / k


def make_problem(
    name: str,
    kind: str,
    n_members: int,
    seed: int,
    data_dir: str | None,
    train_share: float = TRAIN_SHARE,
    most_train: int | None = None,
) -> Problem:
    X, y, task = load(name, 10**9, data_dir, seed)
    most = MOST_TRAIN.get(n_members, 1000) if most_train is None else most_train
    n = min(int(train_share * len(X)), most)
    test = slice(n, n + MOST_TEST)
    return fitted((X[:n], y[:n]), (X[test], y[test]), task, name, kind, n_members, seed)


def fitted(
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    task: str,
    name: str,
    kind: str,
    n_members: int,
    seed: int,
) -> Problem:
    """An ensemble fitted to some rows, with others that judge it."""
    (X, y), (X_test, y_test) = train, test
    classify = task == "classification"
    if kind == "forest":
        model: Any = (RandomForestClassifier if classify else RandomForestRegressor)(
            n_members, random_state=seed
        )
    else:
        tree = DecisionTreeClassifier() if classify else DecisionTreeRegressor()
        model = (BaggingClassifier if classify else BaggingRegressor)(
            tree, n_members, random_state=seed
        )
    n_classes = 0
    if classify:  # classes no training row has cannot be learnt; leave their test rows out
        known = np.unique(y)
        keep = np.isin(y_test, known)
        X_test, y_test = X_test[keep], np.searchsorted(known, y_test[keep])
        y, n_classes = np.searchsorted(known, y), len(known)
    return Problem(name, task, kind, seed, X, y, X_test, y_test, n_classes, model.fit(X, y))


def deployed(problem: Problem) -> Deployed:
    X, target = problem.pool.prepare(problem.X_test), problem.y_test
    residuals = []
    for member in problem.pool.members:
        if problem.task == "regression":
            residuals.append((target - member.predict(X))[:, None])
        else:
            votes = member.predict_proba(X, problem.n_classes)
            votes = (1.0 - DEFAULT_FLOOR) * votes + DEFAULT_FLOOR / problem.n_classes
            residuals.append((target[:, None] == np.arange(problem.n_classes)) - votes)
    return Deployed(np.asarray(residuals, dtype=np.float32))


def judged_path(problem: Problem, evidence: OOBEvidence) -> CrossFittedPath:
    """Every size and what is expected of it, from the training rows alone."""
    return cross_fit(
        FullVoteRisk(evidence, floor=DEFAULT_FLOOR),
        min(evidence.n_members - 1, MOST_MEMBERS),
        disagreement=disagreement_of(problem.pool, problem.X, evidence),
    )


def points(
    name: str, kind: str, n_members: int, seed: int, data_dir: Any, *, guard_alone: bool = False
) -> Iterator[dict]:
    """One row a size: what was expected of it, and what it did on the test rows.

    With ``guard_alone`` only the row of the size that the guard chose.
    """
    start = time.perf_counter()
    problem = make_problem(name, kind, n_members, seed, data_dir)
    fit_seconds = time.perf_counter() - start
    start = time.perf_counter()
    # Selection alone: what refitted leaves and a calibrator add is bench-quality's to show.
    small = sb.compress(
        problem.ensemble, problem.X, problem.y, tolerance=TOLERANCE, **SELECTION_ALONE
    )
    select_seconds = time.perf_counter() - start
    selection = small.selection_
    evidence = collect_evidence(problem.pool, problem.X, problem.y, class_votes=True)
    loss = SquaredError() if problem.task == "regression" else Brier()
    ratio = SimplexObjective(
        evidence,
        loss,
        ConcaveQuadratic(0.0),
        floor=DEFAULT_FLOOR,
        prior_mass=DEFAULT_PRIOR_MASS,
    )
    judge = deployed(problem)
    full, _ = judge.risk(np.full(n_members, 1.0 / n_members))
    common = {
        **{"dataset": name, "ensemble": kind, "members": n_members, "seed": seed},
        **{"status": OK, "task": problem.task, "train_rows": len(problem.y)},
        **{"test_rows": len(problem.y_test), "full_expected": selection.full_risk},
        **{"full_deployed": full, "fit_seconds": fit_seconds, "select_seconds": select_seconds},
    }

    def expected(at: int) -> dict:
        risk, error = float(path.expected()[at]), float(path.error_of()[at])
        low, high = risk_interval(risk, error, path.degrees_of_freedom())
        return {"expected": risk, "low": low, "high": high}

    risk, error = judge.risk(selection.weights)
    k = np.count_nonzero(selection.weights)
    yield {
        **common,
        **{"point": "chosen", "survivors": int(k), "deployed": risk, "deployed_error": error},
        **{"expected": selection.expected_risk},
        **dict(zip(("low", "high"), selection.interval, strict=True)),
        **{"oob_ratio": ratio.value(selection.weights), "increase": selection.increase},
        **{"bound": selection.bound, "random": float(judge.random_k(k))},
        "random_needed": _random_needed(judge, risk, n_members),
    }
    if guard_alone:
        return
    path = judged_path(problem, evidence)
    for k in SIZES:
        at = int(np.argmin(np.abs(path.sizes - k)))
        weights = path.points[at].spread(n_members)
        risk, error = judge.risk(weights)
        yield {
            **common,
            **{"point": k, "survivors": int(path.sizes[at]), "deployed": risk},
            **{"deployed_error": error, "oob_ratio": ratio.value(weights)},
            **expected(at),
            "random": float(judge.random_k(k)),
            "best": judge.risk(best_members(problem, k, brier=True))[0],
            "caruana": judge.risk(_normalised(greedy_picks(problem, k, brier=True)))[0],
        }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        paper = sb.compress(problem.ensemble, problem.X, problem.y, preset="paper")
    at = int(np.argmin(np.abs(path.sizes - paper.n_active_)))
    risk, error = judge.risk(path.points[at].spread(n_members))
    yield {
        **common,
        **{"point": "paper", "survivors": int(path.sizes[at]), "deployed": risk},
        **{"deployed_error": error, **expected(at)},
        **{"random": float(judge.random_k(paper.n_active_))},
        "paper": judge.risk(paper.weights_)[0],
    }


def _random_needed(judge: Deployed, risk: float, n_members: int) -> int:
    """Fewest random members whose mean test risk is no higher."""
    enough = np.flatnonzero(judge.random_k(np.arange(1, n_members + 1)) <= risk)
    return int(enough[0]) + 1 if len(enough) else n_members


def _normalised(picks: np.ndarray) -> np.ndarray:
    return picks / picks.sum()


def rounded(value: Any) -> Any:
    """Floats to as many digits as mean something: the file is read by people and by git."""
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def made_on_by_size() -> dict[str, dict[str, str]]:
    """Source, versions and machine that made the rows of each ensemble size."""
    if not MADE_ON.exists():
        return {}
    return dict(json.loads(MADE_ON.read_text(encoding="utf-8")))


def run(args: argparse.Namespace) -> None:
    store = ResultsStore(RESULTS, COLUMNS, KEY)
    names = [name for name in {**PAPER, **SUITE} if not args.data or name in args.data]
    work = [
        (name, kind, n, seed)
        for n in args.members
        for seed in range(args.seeds)
        for name in names
        for kind in ("forest", "bag")
    ]
    todo = [job for job in work if (*map(str, job), LAST_POINT) not in store.rows]
    if args.guard:  # resumed by the source that made the row
        source = environment()["source"]
        done = [key for key, row in store.rows.items() if row["source"] == source]
        todo = [job for job in work if (*map(str, job), "chosen") not in done]
    if todo:  # beside the results: the same words on every row would be most of the file
        guard = ", the guard's choice"
        again = guard if args.guard else ""
        made_on = made_on_by_size() | {f"{job[2]}{again}": environment() for job in todo}
        if not args.guard:  # a whole run makes the guard's choice, too
            made_on = {what: on for what, on in made_on.items() if not what.endswith(guard)}
        MADE_ON.write_text(json.dumps(made_on, indent=1) + "\n", encoding="utf-8")
    progress = Progress(max(len(todo), 1))
    for job in todo:
        try:
            for row in points(*job, args.data_dir, guard_alone=args.guard):
                known = {name: rounded(value) for name, value in row.items()}
                store.add({**known, "source": environment()["source"]})
        except Unavailable as reason:
            print(f"{job[0]} skipped: {reason}")
        progress.step(" ".join(map(str, job)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", default=os.environ.get("SPARSEBAG_DATA"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--members", nargs="*", type=int, default=[100, 500])
    parser.add_argument("--data", nargs="*", help="only these data sets")
    told = "only the size the guard chooses, for all runs: after a change of the guard alone"
    parser.add_argument("--guard", action="store_true", help=told)
    steps = ("run", "cost", "summary")
    parser.add_argument("--only", nargs="*", choices=steps, default=steps)
    args = parser.parse_args()
    warnings.filterwarnings("ignore", category=sb.UncoveredRowsWarning)
    if "run" in args.only:
        run(args)
    if "summary" in args.only:
        text = selection_summary.summary(RESULTS, made_on_by_size())
        print(text)
        RESULTS.with_suffix(".txt").write_text(text + "\n", encoding="utf-8")
    if "cost" in args.only:
        selection_cost.run(args.data_dir)


if __name__ == "__main__":
    main()
