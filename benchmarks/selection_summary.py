"""What benchmarks/results/selection.csv says, target by target."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np

SIZES = ("5", "10", "20", "50")
MOST_ERROR, MOST_RATIO, SHARE_SAFE, SHARE_BETTER, COVERAGE = 0.05, 1.03, 0.9, 0.8, 0.9
NORMAL = 1.96


def summary(path: Path, made_on: dict[str, dict[str, str]]) -> str:
    """What a results file says, and the environment each ensemble size was run in."""
    text = io.StringIO()
    with redirect_stdout(text):
        _print(path, made_on)
    return text.getvalue().strip("\n")


def _print(path: Path, made_on: dict[str, dict[str, str]]) -> None:
    import pandas as pd

    table = pd.read_csv(path, dtype={"source": str})
    table["point"] = table["point"].astype(str)
    whole = table[table["status"] == "ok"]
    for size, machine in made_on.items():
        told = ", ".join(f"{name} {value}" for name, value in machine.items())
        print(f"\n{path.name}, ensembles of {size}: {told}")
    for n_members, part in whole.groupby("members"):
        _of_size(int(n_members), part)


def _of_size(n_members: int, part) -> None:
    runs = part.drop_duplicates(["dataset", "ensemble", "seed"])
    print(
        f"\n## Ensembles of {n_members}: {runs['dataset'].nunique()} data sets, "
        f"{runs['seed'].nunique()} seeds, forests and bags, {len(runs)} runs\n"
    )
    print(
        "k     expected risk against deployed: mean |relative error|                        "
        "95 % interval covers\n"
        "      a run   a data set's mean  beside the whole's  OOB ratio  whole ensemble  "
        "deployed  + test's own error"
    )
    least = []
    for k in SIZES:
        rows = part[part["point"] == k]
        if len(rows):
            _expected(k, rows)
            least.append(_least_error(rows))
    covered, with_test = _covered(part[part["point"].isin(SIZES)])
    told = f"{covered:.1%} (target {COVERAGE:.0%}), {with_test:.1%}"
    print(f"of all four sizes the interval covers {told}")
    exact, sampled = np.mean(least, axis=0)
    print(
        f"the least a run's error could be: {exact:.1%} for a risk that is known exactly (the test "
        f"rows' own luck),\n{sampled:.1%} for one measured on as many new rows as there are to "
        "train on"
    )
    chosen = part[part["point"] == "chosen"]
    ratio = chosen["deployed"] / chosen["full_deployed"]
    covered, with_test = _covered(chosen)
    print(
        f"\ntolerance 0.02: deployed ≤ {MOST_RATIO} × the whole ensemble's on "
        f"{(ratio <= MOST_RATIO).mean():.1%} of {len(ratio)} runs (target {SHARE_SAFE:.0%}); mean "
        f"{ratio.mean():.4f}, worst {ratio.max():.3f}\n"
        f"members kept: median {chosen['survivors'].median():.0f} "
        f"(quartiles {chosen['survivors'].quantile(0.25):.0f} to "
        f"{chosen['survivors'].quantile(0.75):.0f}), the whole ensemble on "
        f"{(chosen['survivors'] == n_members).mean():.0%}; random members that do as well on the "
        f"test rows: median {chosen['random_needed'].median():.0f}\n"
        f"its stated interval covers the deployed risk on "
        f"{covered:.1%} (target {COVERAGE:.0%}), with the test rows' own error on {with_test:.1%}"
    )
    print("\nat equal k, deployed risk of ours over theirs: mean ratio, win / tie / loss")
    for k in SIZES:
        rows = part[part["point"] == k]
        cells = [_against(rows, name) for name in ("random", "best", "caruana")]
        print(f"k = {k:<4}" + "   ".join(cells))
    rows = part[part["point"] == "paper"]
    if len(rows):
        print(
            f"k of preset='paper' (median {rows['survivors'].median():.0f})   "
            + "   ".join(_against(rows, name) for name in ("paper", "random"))
        )


def _expected(k: str, rows) -> None:
    error = rows["expected"] / rows["deployed"] - 1.0
    beside = (rows["expected"] / rows["full_expected"]) / (
        rows["deployed"] / rows["full_deployed"]
    ) - 1.0
    means = rows.groupby(["dataset", "ensemble"])[["expected", "deployed"]].mean()
    of_means = means["expected"] / means["deployed"] - 1.0
    ratio = rows["oob_ratio"] / rows["deployed"] - 1.0
    whole = rows["full_expected"] / rows["full_deployed"] - 1.0
    covered, with_test = _covered(rows)
    print(
        f"{k:<6}{error.abs().mean():>5.1%}{of_means.abs().mean():>16.1%}"
        f"{beside.abs().mean():>20.1%}{ratio.abs().mean():>14.1%}{whole.abs().mean():>14.1%}"
        f"{covered:>12.1%}{with_test:>14.1%}"
    )


def _least_error(rows) -> tuple[float, float]:
    """Mean |relative error| that test rows alone cause, and test and training rows together.

    A mean over n rows with relative spread σ misses by σ √(2 / πn) on average. Whoever knows the
    risk still meets the test rows' luck; whoever reads it off rows meets that of these rows too.
    """
    spread = rows["deployed_error"] / rows["deployed"] * np.sqrt(rows["test_rows"])
    mean_of_normal = np.sqrt(2.0 / np.pi)
    exact = mean_of_normal * spread / np.sqrt(rows["test_rows"])
    sampled = mean_of_normal * spread * np.sqrt(1 / rows["test_rows"] + 1 / rows["train_rows"])
    return float(exact.mean()), float(sampled.mean())


def _covered(rows) -> tuple[float, float]:
    """Share of intervals around the deployed risk, without and with the test rows' own error."""
    over, own = rows["deployed"] - rows["expected"], NORMAL * rows["deployed_error"]
    above, below = rows["high"] - rows["expected"], rows["expected"] - rows["low"]
    inside = (over <= above) & (-over <= below)
    allowed = (over <= np.hypot(above, own)) & (-over <= np.hypot(below, own))
    return float(inside.mean()), float(allowed.mean())


def _against(rows, name: str) -> str:
    ratio = rows["deployed"] / rows[name]
    win, loss = int((ratio < 1.0 - 1e-3).sum()), int((ratio > 1.0 + 1e-3).sum())
    better = float((ratio < 1.0).mean())
    return (
        f"{name} {ratio.mean():.3f}, {win}/{len(ratio) - win - loss}/{loss} (better {better:.0%})"
    )
