"""Quality of compressed trees beside every baseline, on 32 data sets.

    SPARSEBAG_DATA=... python -m benchmarks.quality [--seeds 5] [--data ...] [--only default ...]

Forests and bags of 100 trees. Half of the rows, at most 2000, train; all others, at most 8000,
judge. Ratios are to the whole ensemble as it is. It gives some true classes the probability 0,
which log-loss does not forgive, so they are also told to that with the floor 0.001 mixed in.

Rows are appended to benchmarks/results/quality.csv as they come, those of ``--shard 1/2`` to a file
beside it; those of rivals, which take longest, are of the first split. A finished row is run again
only when sparsebag's source has changed since. Seeds are the outermost loop: a run that is stopped
is balanced.
"""

import argparse
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.optimize import minimize_scalar
from sklearn.base import clone
from sklearn.model_selection import KFold, train_test_split

from benchmarks import quality_summary, rivals
from benchmarks.datasets import PAPER, SUITE, Unavailable
from benchmarks.environment import environment
from benchmarks.kept_output import RESULTS, kept_output, options
from benchmarks.problem import Problem, at_temperature, floored, new_ensemble, split_rows
from benchmarks.progress import Progress
from benchmarks.results_store import FAILED, OK, SKIPPED, ResultsStore, key_of, rounded
from sparsebag import compress, pipeline, save

OUT = RESULTS / "quality.csv"
KINDS = ("forest", "bag")
N_TREES, TRAIN_SHARE, MOST_TRAIN = 100, 0.5, 2000
EPS = 1e-15
RANDOM_DRAWS = 10
TUNED, TUNED_TREES, TUNED_FOLDS = "tuned out-of-fold", 20, 3
TUNED_GRID = [
    {"min_samples_leaf": leaf, "max_features": features}
    for leaf in (1, 2, 5, 10)
    for features in ("sqrt", 0.33, 0.67, 1.0)
]

KEY = ("dataset", "ensemble", "seed", "method")
COLUMNS = (
    *KEY,
    *("status", "reason", "task", "train_rows", "test_rows"),
    *("log_loss", "brier", "accuracy", "mse", "r2", "ratio", "ratio_error"),
    *("n_nodes", "n_members", "file_bytes", "whole_nodes", "whole_bytes"),
    *("fit_seconds", "seconds", "expected", "expected_error", "warned", "source"),
)
Row = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """An ensemble fitted to one split, and what methods share of it."""

    problem: Problem
    kind: str
    fit_seconds: float
    known_nodes: int | None = None
    """Of the tuned forest, where a row of an earlier run says: tuning takes as long as the rest."""

    @property
    def classify(self) -> bool:
        return self.problem.task == "classification"

    def predict(self, model: Any, X: np.ndarray) -> np.ndarray:
        """Class probabilities of all classes of the problem, or numbers."""
        votes = self.problem.votes(model, X)
        return votes if self.classify else votes[:, 0]

    @cached_property
    def whole(self) -> np.ndarray:
        """The ensemble's prediction of the test rows."""
        return self.predict(self.problem.ensemble, self.problem.X_test)

    @cached_property
    def whole_nodes(self) -> int:
        return n_nodes(self.problem.ensemble.estimators_)

    @cached_property
    def whole_bytes(self) -> int:
        return rivals.packed(self.problem.ensemble)

    @cached_property
    def tuned(self) -> tuple[Any, np.ndarray]:
        """The small forest that cross-validation prefers, and its out-of-fold predictions."""
        p, best = self.problem, (np.inf, {}, np.empty(0))
        for params in TUNED_GRID:
            held_out = np.zeros((len(p.y), p.n_classes) if self.classify else len(p.y))
            folds = KFold(TUNED_FOLDS, shuffle=True, random_state=p.seed)
            for train, test in folds.split(p.X):
                model = new_ensemble(p.task, self.kind, TUNED_TREES, p.seed, **params)
                held_out[test] = self.predict(model.fit(p.X[train], p.y[train]), p.X[test])
            found = float(losses(floored(held_out), p.y).mean())
            best = min(best, (found, params, held_out), key=lambda one: one[0])
        model = new_ensemble(p.task, self.kind, TUNED_TREES, p.seed, **best[1])
        return model.fit(p.X, p.y), best[2]

    @cached_property
    def split(self) -> tuple[rivals.Data, rivals.Data, np.ndarray, float]:
        """The ensemble, a copy that has not seen a fifth of its rows, their targets, its time."""
        p, start = self.problem, time.process_time()
        X, X_held, y, y_held = train_test_split(p.X, p.y, test_size=0.2, random_state=p.seed)
        given = rivals.Data(p.ensemble, p.X, p.y, self.kind, p.n_classes, p.seed)
        refitted = replace(given, ensemble=clone(p.ensemble).fit(X, y), X=X, y=y, forests={})

        def loss(predicted: np.ndarray) -> float:
            seen = votes_of(predicted)
            warmed = tempered(seen, seen, y_held) if self.classify else seen
            return float(losses(warmed, y_held).mean())

        refitted = replace(refitted, X_held=X_held, loss_held=loss)
        return given, refitted, y_held, time.process_time() - start

    @property
    def tuned_nodes(self) -> int:
        return self.known_nodes or n_nodes(self.tuned[0].estimators_)

    def scores(self, predicted: np.ndarray) -> Row:
        """Losses on the test rows; Brier score or MSE over that of the ensemble as it is."""
        y = self.problem.y_test
        mine, whole = risks(predicted, y), risks(self.whole, y)
        ratio = mine.mean() / whole.mean()
        error = (mine - ratio * whole).std(ddof=1) / np.sqrt(len(y)) / whole.mean()
        compared = {"ratio": float(ratio), "ratio_error": float(error)}
        if not self.classify:
            mse = float(mine.mean())
            return {"mse": mse, "r2": 1.0 - mse / float(np.var(y)), **compared}
        return {
            **{"log_loss": float(losses(predicted, y).mean()), "brier": float(mine.mean())},
            **{"accuracy": float(np.mean(predicted.argmax(axis=1) == y)), **compared},
        }


def risks(predicted: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Brier score or squared error of each row."""
    if predicted.ndim == 1:
        return (predicted - y) ** 2
    return np.sum((predicted - np.eye(predicted.shape[1])[y]) ** 2, axis=1)


def losses(predicted: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Log-loss or squared error of each row."""
    if predicted.ndim == 1:
        return (predicted - y) ** 2
    return -np.log(np.clip(predicted[np.arange(len(y)), y], EPS, 1.0))


def tempered(predicted: np.ndarray, seen: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Floored predictions with the temperature that suits ``seen``, the votes on rows ``y``."""

    def loss(log_t: float) -> float:
        return float(losses(at_temperature(seen, np.exp(log_t)), y).mean())

    best = minimize_scalar(loss, bounds=(-2.5, 2.5), method="bounded")
    return at_temperature(predicted, np.exp(best.x))


def n_nodes(trees: Any) -> int:
    return sum(tree.tree_.node_count for tree in trees)


def whole(run: Run, finish: Callable[[Run], np.ndarray]) -> Row:
    size = {"n_nodes": run.whole_nodes, "n_members": N_TREES, "file_bytes": run.whole_bytes}
    return {**size, **run.scores(finish(run))}


def whole_tempered(run: Run) -> np.ndarray:
    if not run.classify:
        return run.whole
    votes = run.problem.oob_votes.sum(axis=1)
    seen = votes.any(axis=1)
    return tempered(run.whole, votes[seen] / votes[seen].sum(axis=1)[:, None], run.problem.y[seen])


def compressed(run: Run, **options: Any) -> Row:
    """What `sparsebag.compress` makes of the ensemble."""
    p = run.problem
    start = time.process_time()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        small = compress(p.ensemble, p.X, p.y, **options)
    seconds = time.process_time() - start
    with tempfile.TemporaryDirectory() as folder:
        save(small, f"{folder}/model.sbag")
        file_bytes = os.path.getsize(f"{folder}/model.sbag")
    return {
        **{"seconds": seconds, "file_bytes": file_bytes},
        **{"n_nodes": small.n_nodes_, "n_members": small.n_active_},
        **_expected(small),
        "warned": "; ".join(sorted({f"{w.category.__name__}: {w.message}" for w in said}))[:200],
        **run.scores(run.predict(small, p.X_test)),
    }


def _expected(small: Any) -> Row:
    selection = small.selection_
    if selection.curve is None:
        return {}
    error = (selection.interval[1] - selection.ratio) / 1.96
    return {"expected": selection.ratio, "expected_error": error}


def random_members(run: Run, k: int) -> Row:
    """As many trees at random: mean over draws."""
    p = run.problem
    trees, rng, draws = p.ensemble.estimators_, np.random.default_rng(p.seed), []
    for _ in range(RANDOM_DRAWS):
        some = [trees[j] for j in rng.choice(len(trees), k, replace=False)]
        vote = np.mean([run.predict(tree, p.X_test) for tree in some], axis=0)
        draws.append({"n_nodes": n_nodes(some), **run.scores(floored(vote))})
    mean = {name: float(np.mean([draw[name] for draw in draws])) for name in draws[0]}
    return {"n_members": k, **mean}


def tuned(run: Run) -> Row:
    """A small forest with tuned leaves and features, and the temperature of out-of-fold votes."""
    p, (model, votes) = run.problem, run.tuned
    predicted = run.predict(model, p.X_test)
    predicted = tempered(predicted, votes, p.y) if run.classify else predicted
    size = {"n_nodes": n_nodes(model.estimators_), "n_members": TUNED_TREES}
    return {**size, **run.scores(predicted)}


def rival(run: Run, make: Callable[..., Any], grid: Any) -> Row:
    """A method of `benchmarks.rivals`, with the choice and the temperature of the held-out rows."""
    given, refitted, y_held, fit_seconds = run.split
    start, found = time.process_time(), []
    for choice in grid:
        if (model := make(refitted, **choice)) is not None:
            seen = model.predict(refitted.X_held)
            found.append((refitted.loss_held(seen), choice, votes_of(seen), model))
    if not found:
        return {"status": SKIPPED, "reason": "the method is not for this task and size"}
    _, choice, seen, model = min(found, key=lambda one: one[0])
    if make is not rivals.level_wise:  # which was judged by the held-out rows at every step
        model = make(given, **choice)
    seconds = fit_seconds + time.process_time() - start
    predicted = votes_of(model.predict(run.problem.X_test))
    predicted = tempered(predicted, seen, y_held) if run.classify else predicted
    size = {"n_nodes": model.n_nodes, "n_members": model.n_members, "file_bytes": model.n_bytes}
    return {**size, "seconds": seconds, **run.scores(predicted)}


def votes_of(votes: np.ndarray) -> np.ndarray:
    """Class shares, which fitted weights may have led out of [0, 1], or numbers."""
    return votes.clip(0.0, 1.0) if votes.shape[1] > 1 else votes[:, 0]


def slim_trees(run: Run) -> Row:
    """The whole ensemble in slim-trees' file."""
    from slim_trees import dump_sklearn_compressed, load_compressed

    with tempfile.TemporaryDirectory() as folder:
        dump_sklearn_compressed(run.problem.ensemble, path := Path(folder, "model.pkl.lzma"))
        size = {"n_nodes": run.whole_nodes, "n_members": N_TREES, "file_bytes": path.stat().st_size}
        return {**size, **run.scores(run.predict(load_compressed(path), run.problem.X_test))}


def budget(**options: Any) -> Callable[[Run], Row]:
    return partial(compressed, tolerance=None, **options)


BASELINES: dict[str, Callable[[Run], Row]] = {
    "whole": partial(whole, finish=lambda run: run.whole),
    "whole floored": partial(whole, finish=lambda run: floored(run.whole)),
    "whole temperature": partial(whole, finish=whole_tempered),
    **{f"random{k}": partial(random_members, k=k) for k in (10, 20)},
    TUNED: tuned,
    "slim-trees": slim_trees,
    **{name: partial(rival, make=make, grid=grid) for name, (make, grid) in rivals.RIVALS.items()},
}
"""Methods that do not run sparsebag: their rows outlive its changes."""
OURS: dict[str, Callable[[Run], Row]] = {
    "default": compressed,
    **{f"k{k}": budget(max_estimators=k) for k in (10, 20)},
    **{f"n{share:g}": budget(max_nodes=share / 100) for share in (10, 5, 2.5, 1.25)},
    "n5 uncalibrated": budget(max_nodes=0.05, calibration=None),
    "n5 unrehearsed": budget(max_nodes=0.05, rehearsal=False),
    "k20 members": budget(max_estimators=20, refine=None),
    "at tuned nodes": lambda run: compressed(run, max_nodes=run.tuned_nodes),
}
METHODS = {**BASELINES, **OURS}


def fit(name: str, kind: str, seed: int) -> Run:
    problem = split_rows(name, seed, TRAIN_SHARE, MOST_TRAIN)
    start = time.process_time()
    ensemble = new_ensemble(problem.task, kind, N_TREES, seed).fit(problem.X, problem.y)
    fitted = replace(problem, base=kind, ensemble=ensemble)
    return Run(fitted, kind, time.process_time() - start)


def remembering(rehearse: Callable[..., Any]) -> Callable[..., Any]:
    """A rehearsal that is held once: all budgets of nodes are judged by the same."""
    found: dict[Any, Any] = {}

    def known(pool: Any, rows: Any, share: np.ndarray, **how: Any) -> Any:
        key = (tuple(share), how["most_trees"], how["folds"])
        if key not in found:
            found[key] = rehearse(pool, rows, share, **how)
        return found[key]

    return known


def rows_of(run: Run, methods: list[str], source: str) -> Iterator[Row]:
    p = run.problem
    common = {
        **{"dataset": p.name, "ensemble": run.kind, "seed": p.seed, "task": p.task},
        **{"train_rows": len(p.y), "test_rows": len(p.y_test), "fit_seconds": run.fit_seconds},
        **{"whole_nodes": run.whole_nodes, "whole_bytes": run.whole_bytes},
    }
    rehearse = remembering(pipeline.rehearse)  # times but the default's, which is first, are less
    for method in methods:
        try:
            with patch.object(pipeline, "rehearse", rehearse), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # solvers of rivals that stop early
                found = METHODS[method](run)
        except Exception as error:  # one failure must not end a run of hours
            found = {"status": FAILED, "reason": f"{type(error).__name__}: {error}"[:300]}
            print(f"{p.name} {run.kind} {p.seed} {method}: {found['reason']}", flush=True)
        by = source if method in OURS else ""  # rivals are of no source
        yield {**common, "method": method, "status": OK, "source": by, **found}


def results_files() -> list[Path]:
    """The results file and those of shards, as far as they are there."""
    return [path for path in (OUT, *sorted(RESULTS.glob("quality_*_of_*.csv"))) if path.exists()]


def kept_rows() -> dict[tuple[str, ...], dict[str, str]]:
    """Rows of the results files that did not fail, by their keys."""
    return {
        key: row
        for file in results_files()
        for key, row in ResultsStore(file, COLUMNS, KEY).rows.items()
        if row["status"] != FAILED
    }


def run_all(args: argparse.Namespace) -> None:
    part, of = map(int, args.shard.split("/"))
    path, source = OUT, environment()["source"]
    kept = kept_rows()
    # Of all others, rows by this source need not be run again.
    done = {k for k, r in kept.items() if r["method"] in BASELINES or r["source"] == source}
    if of > 1:
        path = path.with_name(f"{path.stem}_{part}_of_{of}.csv")
    store = ResultsStore(path, COLUMNS, KEY)
    names = args.data or list({**PAPER, **SUITE})
    jobs = [(name, kind, seed) for seed in range(args.seeds) for name in names for kind in KINDS]
    # One more after every seed: else all bags would fall to one of two shards.
    mine = [job for i, job in enumerate(jobs) if (i // 2 + i + job[2]) % of == part - 1]
    progress = Progress(max(len(mine), 1))
    for name, kind, seed in mine:
        job = {"dataset": name, "ensemble": kind, "seed": seed}
        asked = [m for m in args.only if m not in rivals.RIVALS or seed == 0]
        todo = [m for m in asked if key_of({**job, "method": m}, KEY) not in done]
        if todo:
            try:
                known = kept.get(key_of({**job, "method": TUNED}, KEY))
                nodes = int(known["n_nodes"]) if known else None
                run = replace(fit(name, kind, seed), known_nodes=nodes)
                for row in rows_of(run, todo, source):
                    store.add({column: rounded(value) for column, value in row.items()})
            except Unavailable as reason:
                print(f"{name} skipped: {reason}", flush=True)
        progress.step(f"{name} {kind} {seed}")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--data", nargs="*", choices=[*PAPER, *SUITE], help="only these data sets")
    parser.add_argument("--only", nargs="*", choices=METHODS, default=list(METHODS))
    parser.add_argument("--shard", default="1/1", help="the first of two is 1/2")
    parser.add_argument("--summary", action="store_true", help="run nothing, print the summary")
    args = parser.parse_args()
    if not args.summary:
        run_all(args)
    with kept_output(OUT.with_suffix(".txt")):
        quality_summary.run(results_files(), KEY, environment())


if __name__ == "__main__":
    main()
