"""What refinement and calibration cost beside the forest's own fit: 500 trees, 20 000 rows."""

from __future__ import annotations

import time
import warnings

N_TREES, ROWS = 500, 20_000
DATA = ("electricity", "adult", "covertype_15k")
BUDGET = 20
ALLOWED = 0.5


def run(data_dir: str | None) -> None:
    """Time a forest's fit, selection alone, and selection with both steps, one thread."""
    from sklearn.ensemble import RandomForestClassifier
    from threadpoolctl import threadpool_limits

    import sparsebag as sb
    from benchmarks.datasets import Unavailable
    from benchmarks.datasets.suite import load

    print(f"\n## Cost: {N_TREES} trees, at most {ROWS} rows, down to {BUDGET}, processor time\n")
    for name in DATA:
        try:
            X, y, _ = load(name, ROWS, data_dir)
        except Unavailable as reason:
            print(f"{name} skipped: {reason}")
            continue
        start = time.process_time()
        forest = RandomForestClassifier(N_TREES, random_state=0).fit(X, y)
        fit = time.process_time() - start
        seconds = {}
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore", sb.RegretWarning)
            for what, options in (
                ("selection", {"refine": None, "calibration": None}),
                ("calibrate", {"refine": None}),
                ("both", {}),
            ):
                start = time.process_time()
                sb.compress(forest, X, y, max_estimators=BUDGET, tolerance=None, **options)
                seconds[what] = time.process_time() - start
        added = seconds["both"] - seconds["selection"]
        print(
            f"{name}, {len(y)} rows, {len(set(y.tolist()))} classes: fit {fit:.1f} s; selection "
            f"alone {seconds['selection']:.1f} s; with calibration {seconds['calibrate']:.1f} s; "
            f"with refinement and calibration {seconds['both']:.1f} s: the two add {added:.1f} s = "
            f"{added / fit:.0%} of the fit (allowed {ALLOWED:.0%})",
            flush=True,
        )


if __name__ == "__main__":
    import os

    run(os.environ.get("SPARSEBAG_DATA"))
