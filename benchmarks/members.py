"""Members as they are: simplex weights beside equal votes, random members and the whole bag.

    SPARSEBAG_DATA=... python -m benchmarks.members

Bags of 50 trees, linear models and networks, on all columns and on half of them. Half of the rows,
at most 2000, train; others judge, by the Brier score or MSE. ``sparsebag.compress`` keeps 5, 10
and 20 members without calibration, and is made to weigh all of them, trees too; the same members
also vote equally, and random ones do (the mean over all draws, in closed form). Ridge regressors
that collapse into one model have a table of their own.
"""

import time
import warnings
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, scale
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from benchmarks.datasets import PAPER, SUITE, Unavailable
from benchmarks.kept_output import options, results_of
from benchmarks.problem import Problem, bag_of, split_rows
from benchmarks.progress import Progress
from sparsebag import compress, pipeline

N_MEMBERS, TRAIN_SHARE, MOST_TRAIN, MOST_TEST, SEEDS = 50, 0.5, 2000, 4000, 3
SIZES = (5, 10, 20)
NETWORK: dict[str, Any] = {"hidden_layer_sizes": (16,), "solver": "lbfgs", "max_iter": 40}
HALF_ROWS: dict[str, Any] = {"max_samples": 0.5}
# A scaler in front of a linear regressor keeps it from collapsing with the others into one.
MODELS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "trees": (DecisionTreeClassifier(), DecisionTreeRegressor(), {}),
    "linear": (
        make_pipeline(StandardScaler(), LogisticRegression()),
        make_pipeline(StandardScaler(), Ridge()),
        HALF_ROWS,
    ),
    "networks": (
        make_pipeline(StandardScaler(), MLPClassifier(**NETWORK)),
        make_pipeline(StandardScaler(), MLPRegressor(**NETWORK)),
        HALF_ROWS,
    ),
}
COLUMNS = {"all columns": 1.0, "half the columns": 0.5}
PAIRS = (("simplex", "equal"), ("equal", "random"), ("simplex", "random"), ("simplex", "whole"))
Scores = dict[str, float]


def standardised(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Targets of training and test rows; numbers have mean 0 and variance 1 in training."""
    y, y_test = problem.y, problem.y_test[:MOST_TEST]
    if problem.task == "classification":
        return y, y_test
    return scale(y), (y_test - y.mean()) / y.std()


def fit_bag(base: Any, problem: Problem, y: np.ndarray, **bagging: Any) -> Any:
    how = {"n_estimators": N_MEMBERS, "random_state": problem.seed, **bagging}
    return bag_of(problem.task, base, problem.X, y, **how)


def residual_products(bag: Any, problem: Problem, y: np.ndarray) -> np.ndarray:
    """G of the test rows: ``wᵀGw`` is the Brier score or MSE of members weighted by w."""
    X = problem.X_test[:MOST_TEST]
    truth = y[:, None] if problem.task == "regression" else np.eye(problem.n_classes)[y]
    members = zip(bag.estimators_, bag.estimators_features_, strict=True)
    residuals = [(truth - problem.votes(m, X[:, columns])).ravel() for m, columns in members]
    found = np.array(residuals)
    return found @ found.T / len(y)


def small_weights(bag: Any, problem: Problem, y: np.ndarray, **how: Any) -> np.ndarray:
    with warnings.catch_warnings(), patch.object(pipeline, "_are_alike", return_value=False):
        warnings.simplefilter("ignore")  # the rows are the bag's, and few are in every bag
        how |= {"calibration": None} if problem.task == "classification" else {}
        return np.asarray(compress(bag, problem.X, y, refine=None, **how).weights_)


def scores(products: np.ndarray, weights: np.ndarray, k: int) -> Scores:
    """Test scores of weighted members, of the same with equal votes, of k random ones, of all."""
    n, own = len(products), float(np.trace(products)) / len(products)
    equal, whole = (weights > 0) / np.count_nonzero(weights), np.full(n, 1.0 / n)
    pair = float(products.sum() - n * own) / (n * (n - 1))
    return {
        "simplex": float(weights @ products @ weights),
        "equal": float(equal @ products @ equal),
        "random": pair + (own - pair) / k,
        "whole": float(whole @ products @ whole),
        "kept": float(np.count_nonzero(weights)),
    }


def judged(problem: Problem) -> Iterator[tuple[tuple[str, str, int], Scores]]:
    """(members, columns, size) and scores; size 0 is the one model of all Ridge regressors."""
    y, y_test = standardised(problem)
    is_regression = problem.task == "regression"
    for columns, share in COLUMNS.items():
        for name, (*bases, bagging) in MODELS.items():
            bag = fit_bag(bases[is_regression], problem, y, max_features=share, **bagging)
            products = residual_products(bag, problem, y_test)
            for k in SIZES:
                weights = small_weights(bag, problem, y, max_estimators=k)
                yield (name, columns, k), scores(products, weights, k)
        if is_regression:
            bag = fit_bag(Ridge(), problem, y, max_features=share, **HALF_ROWS)
            products = residual_products(bag, problem, y_test)
            yield ("ridge", columns, 0), scores(products, small_weights(bag, problem, y), N_MEMBERS)


def compared(of_sets: list[list[Scores]], first: str, second: str) -> str:
    """Share of data sets on which the first is better, and the mean log ratio in percent."""
    logs = [np.mean([100.0 * np.log(s[first] / s[second]) for s in one]) for one in of_sets]
    error = np.std(logs, ddof=1) / np.sqrt(len(logs)) if len(logs) > 1 else np.nan
    return f"{np.mean(np.array(logs) < 0.0):>5.0%}{np.mean(logs):>+7.2f} ± {error:.2f}"


def print_tables(found: dict[tuple[str, str, int], dict[str, list[Scores]]]) -> None:
    print("Brier score or MSE: share of data sets on which the first is better, and the mean")
    print("log ratio in percent with its standard error over data sets; negative: better.\n")
    heads = [f"{first} / {second}" for first, second in PAIRS]
    print(f"{'members':<36}{'kept':>5}" + "".join(f"{head:>21}" for head in heads))
    rows = [(f"{name}, {columns}, {k}", [(name, columns, k)]) for name, columns, k in found if k]
    for columns in COLUMNS:
        others = [key for key in found if key[0] in MODELS and key[0] != "trees"]
        rows += [
            (f"all but trees, {columns}, {k}", [key for key in others if key[1:] == (columns, k)])
            for k in SIZES
        ]
    for title, keys in rows:
        names = dict.fromkeys(name for key in keys for name in found[key])
        of_sets = [[s for key in keys for s in found[key].get(name, [])] for name in names]
        if of_sets:
            kept = np.mean([s["kept"] for one in of_sets for s in one])
            line = "".join(f"{compared(of_sets, *pair):>21}" for pair in PAIRS)
            print(f"{title:<36}{kept:>5.1f}{line}")
    print("\nRidge regressors, which collapse into one model: as compressed / whole")
    for (name, columns, _), by_set in found.items():
        if name == "ridge":
            print(f"  {columns:<39}{compared(list(by_set.values()), 'simplex', 'whole')}")


def main() -> None:
    options(__doc__).parse_args()
    names, start = list({**PAPER, **SUITE}), time.process_time()
    progress = Progress(len(names) * SEEDS)
    found: dict[tuple[str, str, int], dict[str, list[Scores]]] = {}
    for name in names:
        for seed in range(SEEDS):
            try:
                problem = split_rows(name, seed, TRAIN_SHARE, MOST_TRAIN)
                for key, one in judged(problem):
                    found.setdefault(key, {}).setdefault(name, []).append(one)
            except Unavailable as reason:
                print(f"{name} skipped: {reason}", flush=True)
            progress.step(f"{name} {seed}")
    with results_of("members", keep=True):
        seconds = time.process_time() - start
        print(f"{len(names)} data sets, {SEEDS} seeds, {N_MEMBERS} members, {seconds:.0f} s\n")
        print_tables(found)


if __name__ == "__main__":
    main()
