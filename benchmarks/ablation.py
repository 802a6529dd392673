"""What each part of the student is worth: the same budget without it.

    SPARSEBAG_DATA=... python -m benchmarks.ablation

One seed, forests and bags. Parts are switched off inside sparsebag, not by its public parameters.
"""

from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

import sparsebag as sb
from benchmarks.kept_output import options, results_of
from benchmarks.problem import floored
from benchmarks.quality import KINDS, Run, fit
from sparsebag.judge import rehearsal
from sparsebag.student import student, teacher

SETS = (
    *("spambase", "segment", "adult", "magic", "phoneme", "satimage", "churn", "yeast"),
    *("california_housing", "abalone", "concrete", "kin8nm", "bike_sharing", "wine_quality"),
)
NODES = (0.1, 0.025)
PLAIN = teacher.Recipe(shrink=0.0, twice=0.0)


lesson = teacher.Teacher.lesson


def unclipped(self: Any, recipe: Any) -> Any:
    """A lesson whose votes count beyond zero and one, as they are added up."""
    return replace(lesson(self, recipe), is_vote=False)


def whole_trees(nodes: float, most: int, of_tree: float) -> int:
    return int(np.clip(nodes // of_tree, 1, most))


def parts() -> dict[str, list[Any]]:
    """Patches that switch a part off, by its name."""
    plain = (patch.object(rehearsal, "recipes_for", lambda *_, **__: (PLAIN,)),)
    one = (patch.object(rehearsal, "recipes_for", lambda *_, **__: (teacher.RECIPES[0],)),)
    no_refit = (patch.object(student, "SWEEPS", 0),)
    at_random = lambda self, mass: np.random.default_rng(n := len(self.trees)).random(n)  # noqa: E731
    return {
        "everything": [],
        "no smoothing": [*plain],
        "one recipe": [*one],
        "no refit": [*no_refit],
        "neither": [*plain, *no_refit],
        "not clipped": [patch.object(teacher.Teacher, "lesson", unclipped)],
        "no mixtures": [patch.object(teacher, "SHARE_OF_MIXTURES", 0.0)],
        "no scores": [patch.object(student, "SCORES_BELOW", 0.0)],
        "no pruning": [patch.object(student, "trees_for", whole_trees)],
        "random trees": [patch.object(student.Student, "spread", at_random)],
    }


def score(run: Run, nodes: float) -> float:
    """Log-loss or MSE over the whole ensemble's (floored)."""
    p = run.problem
    small = sb.compress(p.ensemble, p.X, p.y, max_nodes=nodes)
    name = "log_loss" if run.classify else "mse"
    whole = run.scores(floored(run.whole))[name]
    return run.scores(run.predict(small, p.X_test))[name] / whole


def main() -> None:
    options(__doc__).parse_args()
    with results_of("ablation", keep=True):
        for nodes in NODES:
            found: dict[str, list[float]] = {}
            for name in SETS:
                for kind in KINDS:
                    run = fit(name, kind, 0)
                    for part, patches in parts().items():
                        with ExitStack() as stack:
                            for one in patches:
                                stack.enter_context(one)
                            found.setdefault(part, []).append(score(run, nodes))
            print(f"\n{nodes:.2%} of the nodes, {len(SETS)} data sets, forests and bags:")
            print(f"  {'':<14}{'≤ 1.01 on':>10}{'median':>8}{'largest':>8}{'gives up':>9}")
            whole = np.array(found["everything"])
            for part, values in found.items():
                v = np.array(values)
                print(
                    f"  {part:<14}{(v <= 1.01).mean():>10.0%}{np.median(v):>8.3f}{v.max():>8.2f}"
                    f"{np.exp(np.mean(np.log(v / whole))) - 1:>+9.1%}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
