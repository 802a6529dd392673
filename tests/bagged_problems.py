"""Small problems on data that scikit-learn bundles, for the tests of the benchmarks."""

from functools import cache

from benchmarks.datasets import Dataset
from benchmarks.problem import Problem, make_problem
from sklearn.datasets import load_diabetes, load_iris

IRIS = Dataset("tiny_iris", "classification", lambda: load_iris(return_X_y=True))
DIABETES = Dataset("tiny_diabetes", "regression", lambda: load_diabetes(return_X_y=True))


@cache
def problem(task: str = "classification") -> Problem:
    return make_problem(IRIS if task == "classification" else DIABETES, "DecisionTree", 42)
