"""How much a forest's trees really differ, measured on test rows: the prior of `pair_shrinkage`.

    SPARSEBAG_DATA=... python -m benchmarks.member_effects [data sets ...]

Test rows are cut in two halves; products of the halves' estimates are free of noise. Figures are
standard deviations in units of what averaging two trees saves, own risk less pair risk.
"""

from __future__ import annotations

import argparse
import os

import numpy as np

from benchmarks.datasets import PAPER, Unavailable
from benchmarks.datasets.suite import SUITE
from benchmarks.selection import deployed, make_problem


def effects(residuals: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """A member's effect in company and alone, a pair's, and own risk less pair risk."""
    n = len(residuals)
    flat = residuals.transpose(0, 2, 1).reshape(n, -1).astype(np.float64)
    risk = flat @ flat.T / residuals.shape[1]
    own = np.diag(risk).copy()
    np.fill_diagonal(risk, 0.0)
    mean = risk.sum() / (n * (n - 1))
    risk -= mean
    np.fill_diagonal(risk, 0.0)
    company = risk.sum(axis=1) / (n - 2)
    company -= company.mean()
    pair = risk - company[:, None] - company[None, :]
    np.fill_diagonal(pair, 0.0)
    return company, own - own.mean(), pair, float(own.mean() - mean)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="*")
    parser.add_argument("--data-dir", default=os.environ.get("SPARSEBAG_DATA"))
    parser.add_argument("--members", type=int, default=100)
    args = parser.parse_args()
    print(f"{'data':<20}{'company':>9}{'alone':>9}{'pair':>9}{'corr. company, alone':>22}")
    table = []
    for name in args.data or [*PAPER, *SUITE]:
        try:
            problem = make_problem(name, "forest", args.members, 0, args.data_dir)
        except Unavailable as reason:
            print(f"{name:<20}skipped: {reason}")
            continue
        residuals = deployed(problem).residuals
        half = residuals.shape[1] // 2
        one, two = effects(residuals[:, :half]), effects(residuals[:, half:])
        unit = ((one[3] + two[3]) / 2) ** 2
        company, alone, pair = (float(np.mean(one[i] * two[i])) / unit for i in range(3))
        both = float(np.mean(one[0] * two[1]) + np.mean(one[1] * two[0])) / (2 * unit)
        corr = both / np.sqrt(company * alone) if min(company, alone) > 0 else np.nan
        row = [np.sqrt(max(v, 0.0)) for v in (company, alone, pair)] + [corr]
        table.append(row)
        print(f"{name:<20}{row[0]:>9.4f}{row[1]:>9.4f}{row[2]:>9.4f}{row[3]:>22.2f}", flush=True)
    middle = np.nanmedian(np.array(table), axis=0)
    print(f"{'median':<20}{middle[0]:>9.4f}{middle[1]:>9.4f}{middle[2]:>9.4f}{middle[3]:>22.2f}")


if __name__ == "__main__":
    main()
