"""Quality of small ensembles: calibrated, refined, both or neither, beside equal-size baselines.

    SPARSEBAG_DATA=... python -m benchmarks.quality [--seeds 5] [--data ...] [--shard 1/2]

Every data set of the paper and the suite, forests and bags of 100 trees. Half of the rows, at
most 2000, are for training; all others, at most 8000, only judge. The whole ensemble, random and
best members vote with sparsebag's floor: without it, one leaf without a class costs 36 nats.
Seeds are the outermost loop, so that a run that is stopped is balanced. Rows are appended to
benchmarks/results/quality.csv as they come (those of a shard to a file of its own beside it, so
that several processes can run at once); what is finished is not run again, unless the source has
changed since (column ``source``; ``--keep-stale`` lets it stand).
`python -m benchmarks.quality --only summary` prints what all these files say.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import log_loss

import sparsebag as sb
from benchmarks import honest_estimate, quality_cost, quality_summary
from benchmarks.datasets import PAPER, Unavailable
from benchmarks.datasets.suite import SUITE
from benchmarks.environment import environment
from benchmarks.methods.selection import best_members
from benchmarks.problem import Problem
from benchmarks.problem import make_problem as make_paper_problem
from benchmarks.progress import Progress
from benchmarks.results_store import FAILED, OK, ResultsStore
from benchmarks.selection import make_problem, rounded
from sparsebag.deploy.compiled import CompiledEnsemble
from sparsebag.deploy.from_members import compile_members
from sparsebag.evidence.collect import collect_evidence
from sparsebag.refine.calibrate import fit_calibrator
from sparsebag.refine.size_matched import finished_votes, size_matched_evidence
from sparsebag.settings import DEFAULT_FLOOR

RESULTS = Path(__file__).parent / "results" / "quality.csv"
MADE_ON = RESULTS.with_suffix(".json")
SIZES = (10, 20)
N_TREES = 100
TRAIN_SHARE, MOST_TRAIN = 0.5, 2000
RANDOM_DRAWS = 10
ECE_BINS = 15
TOLERANCE = 0.02
PAPER_SPLIT, FIRST_PAPER_SEED = "paper's split", 42
"""The paper's own protocol: 30 % test rows, bags of 100 trees, seed 42 and those after it."""
PAPER_SEEDS_PER_SEED = 4
"""One test set of 171 rows says little of an ECE: four splits for every seed asked for."""
PRINTED_SURVIVORS = {
    "breast_cancer": 11,
    "diabetes_clf": 31,
    "spambase": 31,
    "segment": 26,
    "diabetes_reg": 34,
    "california_housing": 67,
    "cpu_act": 66,
}
"""Of the SCSB rows with decision trees in the paper's tables."""
LABEL_DRAWS = 200
LAST = "paper"
"""The method that is run last."""
KINDS = ("forest", "bag", PAPER_SPLIT)

KEY = ("dataset", "ensemble", "seed", "method", "k")
COLUMNS = (
    *KEY,
    *("status", "reason", "task", "train_rows", "test_rows", "survivors"),
    *("log_loss", "brier", "ece", "accuracy", "mse"),
    *("expected_risk", "standard_error", "expected_log_loss", "bound", "low", "high"),
    *("test_error", "ratio_error", "over_scsb", "over_scsb_error", "ece_if_right"),
    *("calibrator", "temperature", "refined", "twicing", "smoothing"),
    *("seconds", "fit_seconds", "source"),
)

Row = dict[str, Any]


def scores(problem: Problem, predicted: np.ndarray) -> Row:
    y = problem.y_test
    if problem.task == "regression":
        return {"mse": float(np.mean((predicted - y) ** 2))}
    labels = np.arange(problem.n_classes)
    proba = np.clip(predicted, 0.0, 1.0)  # rounding: scikit-learn refuses 1 + 2e-16
    return {
        "log_loss": float(log_loss(y, proba, labels=labels)),
        "brier": sb.metrics.brier_score(y, proba, labels=labels),
        "ece": sb.metrics.expected_calibration_error(y, proba, n_bins=ECE_BINS, labels=labels),
        "accuracy": float(np.mean(proba.argmax(axis=1) == y)),
    }


def predict(model: CompiledEnsemble, X: np.ndarray) -> np.ndarray:
    return model.predict(X) if model.classes is None else model.predict_proba(X)


def voting(problem: Problem, weights: np.ndarray, floor: float = DEFAULT_FLOOR) -> CompiledEnsemble:
    """The members with a weight, their own leaves, no calibrator."""
    active = np.flatnonzero(weights)
    share = weights[active] / weights[active].sum()
    return compile_members(problem.pool.keep(active), share, floor)


def measured(problem: Problem, model: CompiledEnsemble) -> Row:
    return {"survivors": len(model.paths), **scores(problem, predict(model, problem.X_test))}


# -- what is compared ------------------------------------------------------------------------


def whole(problem: Problem, uniform: CompiledEnsemble) -> Iterator[tuple[Row, CompiledEnsemble]]:
    """The full ensemble, as it is and with a calibrator fitted out of bag."""
    n = len(problem.pool.members)
    yield {"method": "uniform", "k": n, **measured(problem, uniform)}, uniform
    if problem.task == "regression":
        return
    start = time.perf_counter()
    evidence = collect_evidence(problem.pool, problem.X, problem.y, class_votes=True)
    votes, row = size_matched_evidence(evidence, n, draws=1)
    votes, target = finished_votes(votes, DEFAULT_FLOOR), np.asarray(evidence.target)[row]
    for kind, name in (("temperature", "uniform + temperature"), ("auto", "uniform + calibrator")):
        found = fit_calibrator(votes, target, row, kind=kind)
        model = replace(uniform, calibrator=found.calibrator)
        yield (
            {
                **{"method": name, "k": n, "calibrator": found.kind},
                "temperature": found.temperature,
                "seconds": time.perf_counter() - start,
                **measured(problem, model),
            },
            model,
        )


def baselines(problem: Problem, k: int) -> Iterator[Row]:
    """As many members at random (mean over draws), and those of least own loss."""
    n = len(problem.pool.members)
    draws = []
    for draw in range(RANDOM_DRAWS):
        weights = np.zeros(n)
        rng = np.random.default_rng([problem.seed, draw])
        weights[rng.choice(n, k, replace=False)] = 1.0
        draws.append(measured(problem, voting(problem, weights)))
    mean = {name: float(np.mean([d[name] for d in draws])) for name in draws[0]}
    yield {"method": "random", "k": k, **mean}
    best = voting(problem, best_members(problem, k))
    yield {"method": "best", "k": k, **measured(problem, best)}


def ours(problem: Problem, k: int) -> Iterator[Row]:
    """The ablation. Calibration comes last, so that a model without it is the same without it."""
    yield from _compressed(problem, k, "calibrate", "none", refine=None)
    yield from _compressed(problem, k, "both", "refine")


def _compressed(
    problem: Problem, k: int, calibrated: str, uncalibrated: str, **options: Any
) -> Iterator[Row]:
    start = time.perf_counter()
    small = sb.compress(
        problem.ensemble, problem.X, problem.y, max_estimators=k, tolerance=None, **options
    )
    model, refinement, found = small.compile(), small.refinement_, small.calibration_
    told = {
        **{"k": k, "seconds": time.perf_counter() - start, "refined": int(refinement.used)},
        **{"twicing": refinement.twicing, "smoothing": refinement.smoothing},
        "expected_risk": small.selection_.uncalibrated_risk,
        "standard_error": small.selection_.standard_error,
    }
    plain = replace(model, calibrator=None)
    yield {"method": uncalibrated, **told, **measured(problem, plain)}
    if found is not None:
        yield {
            **{"method": calibrated, **told, "calibrator": found.kind},
            **{"temperature": found.temperature, "expected_log_loss": found.loss_after},
            **measured(problem, model),
        }


def row_risks(problem: Problem, model: CompiledEnsemble) -> np.ndarray:
    """Squared error or Brier score of each test row."""
    predicted, y = predict(model, problem.X_test), problem.y_test
    if problem.task == "regression":
        return (predicted - y) ** 2
    return np.sum((predicted - np.eye(problem.n_classes)[y]) ** 2, axis=1)


def the_default(problem: Problem, best: CompiledEnsemble) -> Iterator[Row]:
    """No budget, only a tolerance: what the default keeps, and what it says of it.

    ``test_error`` is how far the test rows' own luck reaches: the standard error of the risk on
    them; ``ratio_error`` that of its ratio to the whole ensemble's, calibrated likewise.
    """
    start = time.perf_counter()
    small = sb.compress(problem.ensemble, problem.X, problem.y, tolerance=TOLERANCE)
    told, low_high = small.selection_, small.selection_.interval
    few, all_of_them = row_risks(problem, small.compile()), row_risks(problem, best)
    beside = few - few.mean() / all_of_them.mean() * all_of_them
    root = np.sqrt(len(few))
    yield {
        **{"method": "default", "k": "own", "seconds": time.perf_counter() - start},
        **{"expected_risk": told.expected_risk, "standard_error": told.standard_error},
        **{"bound": told.bound, "low": low_high[0], "high": low_high[1]},
        "test_error": float(few.std() / root),
        "ratio_error": float(beside.std() / root / all_of_them.mean()),
        **{"refined": int(small.refinement_.used), **measured(problem, small.compile())},
    }


def the_paper(problem: Problem) -> Iterator[Row]:
    """SCSB to the letter, at its own size, with the floor it lacks."""
    start = time.perf_counter()
    small = sb.compress(problem.ensemble, problem.X, problem.y, preset="paper")
    model = voting(problem, small.weights_)
    seconds = time.perf_counter() - start
    yield {"method": LAST, "k": "own", "seconds": seconds, **measured(problem, model)}


def rows_of(
    name: str, kind: str, seed: int, data_dir: Any, *, promise_only: bool = False
) -> Iterator[Row]:
    start = time.perf_counter()
    problem = make_problem(
        name, kind, N_TREES, seed, data_dir, train_share=TRAIN_SHARE, most_train=MOST_TRAIN
    )
    rows = _all_rows(problem, () if promise_only else SIZES)
    yield from _named(problem, kind, time.perf_counter() - start, rows)


def _all_rows(problem: Problem, sizes: tuple[int, ...]) -> Iterator[Row]:
    uniform = voting(problem, np.ones(len(problem.pool.members)))
    best = uniform
    for row, model in whole(problem, uniform):
        yield row
        best = model
    for k in sizes:
        yield from baselines(problem, k)
        yield from ours(problem, k)
    yield from the_default(problem, best)
    if sizes:
        yield from the_paper(problem)


def score_losses(problem: Problem, model: CompiledEnsemble) -> np.ndarray:
    """Each test row's log-loss or squared error: what the paper's tables average."""
    predicted, y = predict(model, problem.X_test), problem.y_test
    if problem.task == "regression":
        return np.asarray((predicted - y) ** 2)
    least = np.finfo(np.float64).eps  # as in scikit-learn's log_loss
    return np.asarray(-np.log(np.clip(predicted[np.arange(len(y)), y], least, 1.0)))


def ece_if_right(problem: Problem, model: CompiledEnsemble) -> Row:
    """The ECE these probabilities would show on as many rows if every one of them were right."""
    if problem.task == "regression":
        return {}
    proba = np.clip(predict(model, problem.X_test), 0.0, 1.0)
    labels = np.arange(problem.n_classes)
    edges = np.cumsum(proba, axis=1) / proba.sum(axis=1, keepdims=True)
    rng = np.random.default_rng(0)
    found = []
    for _ in range(LABEL_DRAWS):
        drawn = np.minimum((rng.random(len(proba))[:, None] > edges).sum(axis=1), labels[-1])
        found.append(
            sb.metrics.expected_calibration_error(drawn, proba, n_bins=ECE_BINS, labels=labels)
        )
    return {"ece_if_right": float(np.mean(found))}


def rows_on_paper_split(name: str, seed: int, data_dir: Any) -> Iterator[Row]:
    """Ours at no more survivors than SCSB's, scored as the paper scores: votes without a floor."""
    start = time.perf_counter()
    problem = make_paper_problem(PAPER[name], "DecisionTree", seed, data_dir)
    fit_seconds = time.perf_counter() - start
    scsb = sb.compress(problem.ensemble, problem.X, problem.y, preset="paper")

    def beside_scsb(model: CompiledEnsemble) -> Row:
        """A model's scores, how far from SCSB's, and how much of that one test set can tell."""
        over = score_losses(problem, model) - score_losses(problem, scsb.compile())
        return {
            **measured(problem, model),
            **{"over_scsb": float(over.mean())},
            **{"over_scsb_error": float(over.std(ddof=1) / np.sqrt(len(over)))},
            **ece_if_right(problem, model),
        }

    def rows() -> Iterator[Row]:
        n = len(problem.pool.members)
        uniform = voting(problem, np.ones(n), floor=0.0)
        yield {"method": "uniform", "k": n, **measured(problem, uniform)}
        k = min(PRINTED_SURVIVORS[name], scsb.n_active_)
        start = time.perf_counter()
        small = sb.compress(problem.ensemble, problem.X, problem.y, max_estimators=k)
        seconds = time.perf_counter() - start
        yield {"method": "both", "k": k, "seconds": seconds, **beside_scsb(small.compile())}
        # The default keeps fewer where the tolerance allows; this is what the budget can buy.
        spent = sb.compress(
            problem.ensemble, problem.X, problem.y, max_estimators=k, tolerance=None
        )
        yield {"method": "whole budget", "k": k, **beside_scsb(spent.compile())}
        yield {"method": LAST, "k": "own", **measured(problem, scsb.compile())}

    yield from _named(problem, PAPER_SPLIT, fit_seconds, rows())


def _named(problem: Problem, kind: str, fit_seconds: float, rows: Iterator[Row]) -> Iterator[Row]:
    common = {
        **{"dataset": problem.name, "ensemble": kind, "seed": problem.seed, "status": OK},
        **{"task": problem.task, "train_rows": len(problem.y), "test_rows": len(problem.y_test)},
        **{"fit_seconds": fit_seconds, "source": environment()["source"]},
    }
    for row in rows:
        yield {**common, **row}


# -- running ---------------------------------------------------------------------------------


Job = tuple[str, str, int]


def results_files() -> list[Path]:
    """The results file and those of shards, as far as they are there."""
    return sorted(RESULTS.parent.glob(f"{RESULTS.stem}*.csv"))


def in_shard(job: Job, names: list[str], shard: tuple[int, int]) -> bool:
    """Whether a job falls to a shard; every shard gets as many forests as bags."""
    name, kind, seed = job
    part, of = shard
    return (names.index(name) + KINDS.index(kind) + seed) % of == part - 1


def finished_jobs(keep_stale: bool) -> set[tuple[str, ...]]:
    """Jobs whose last row is there, made by today's source unless stale ones may stand."""
    source = environment()["source"]
    done = set()
    for path in results_files():
        for key, row in ResultsStore(path, COLUMNS, KEY).rows.items():
            stands = row["status"] == OK and (keep_stale or row["source"] == source)
            if stands and row["method"] == LAST:
                done.add(key[:3])
    return done


def run(args: argparse.Namespace) -> None:
    part, of = args.shard
    path = RESULTS if of == 1 else RESULTS.with_name(f"{RESULTS.stem}_{part}_of_{of}.csv")
    store = ResultsStore(path, COLUMNS, KEY)
    everything = list({**PAPER, **SUITE})
    names = [name for name in everything if not args.data or name in args.data]
    work: list[Job] = []
    for seed in range(args.seeds):
        work += [(name, kind, seed) for name in names for kind in KINDS[:2]]
    for seed in range(FIRST_PAPER_SEED, FIRST_PAPER_SEED + PAPER_SEEDS_PER_SEED * args.seeds):
        work += [(name, PAPER_SPLIT, seed) for name in names if name in PAPER]
    work = [job for job in work if job[1] in args.kinds]
    done = set() if args.promise_only else finished_jobs(args.keep_stale)
    if args.promise_only:
        work = [job for job in work if job[1] != PAPER_SPLIT]
    todo = [
        job
        for job in work
        if in_shard(job, everything, args.shard) and tuple(map(str, job)) not in done
    ]
    if todo:  # beside the results: the same words on every row would be half of the file
        MADE_ON.write_text(json.dumps(environment(), indent=1) + "\n", encoding="utf-8")
    progress = Progress(max(len(todo), 1))
    for name, kind, seed in todo:
        try:
            if kind == PAPER_SPLIT:
                rows = rows_on_paper_split(name, seed, args.data_dir)
            else:
                rows = rows_of(name, kind, seed, args.data_dir, promise_only=args.promise_only)
            for row in rows:
                store.add({name: rounded(value) for name, value in row.items()})
        except Unavailable as reason:
            print(f"{name} skipped: {reason}", flush=True)
        except Exception as error:  # one failure must not end a run of hours
            failed = {"dataset": name, "ensemble": kind, "seed": seed, "method": LAST, "k": "own"}
            reason = f"{type(error).__name__}: {error}"
            store.add({**failed, "status": FAILED, "reason": reason})
            print(f"{name} {kind} {seed} failed: {reason}", flush=True)
        progress.step(f"{name} {kind} {seed}")


def shard(text: str) -> tuple[int, int]:
    """``"1/2"`` as (1, 2)."""
    part, _, of = text.partition("/")
    if not (part.isdigit() and of.isdigit() and 1 <= int(part) <= int(of)):
        raise argparse.ArgumentTypeError(f"{text!r} is no shard; the first of two is 1/2.")
    return int(part), int(of)


@contextmanager
def kept_in(path: Path) -> Iterator[None]:
    """Write what is printed to a file too."""
    said = io.StringIO()
    with redirect_stdout(said):
        yield
    print(said.getvalue(), end="")
    path.write_text(said.getvalue().lstrip("\n"), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", default=os.environ.get("SPARSEBAG_DATA"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--data", nargs="*", help="only these data sets")
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS)
    parser.add_argument("--shard", type=shard, default=(1, 1), help="1/2: the first half of jobs")
    parser.add_argument("--keep-stale", action="store_true", help="rows of older source stand")
    parser.add_argument(
        "--promise-only", action="store_true", help="only the default without a budget, again"
    )
    steps = ("run", "summary", "figure", "cost")
    parser.add_argument("--only", nargs="*", choices=steps, default=steps)
    args = parser.parse_args()
    warnings.filterwarnings("ignore", category=sb.UncoveredRowsWarning)
    warnings.filterwarnings("ignore", category=sb.RegretWarning)
    if "run" in args.only:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # SLSQP on the paper's objective stops early
            run(args)
    if "summary" in args.only:
        with kept_in(RESULTS.with_suffix(".txt")):
            made_on = json.loads(MADE_ON.read_text(encoding="utf-8")) if MADE_ON.exists() else {}
            quality_summary.run(results_files(), KEY, environment()["source"], made_on)
    if "figure" in args.only:
        honest_estimate.run(args.data_dir, args.data)
    if "cost" in args.only:
        with kept_in(RESULTS.with_name("quality_cost.txt")):
            quality_cost.run(args.data_dir)


if __name__ == "__main__":
    main()
