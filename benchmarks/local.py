"""Weights that depend on the row: what they gain, where they should and where they cannot.

    SPARSEBAG_DATA=... python -m benchmarks.local [--only experts suite des summary]

- experts: bags whose members are each competent in one half-space; share of an oracle gate's gain.
- suite: every data set of the paper and the suite; ``local="auto"`` beside the same survivors with
  global weights, on the same test rows.
- des: beside DESlib's KNORA-E, KNORA-U and META-DES on the classification sets, each with the
  held-out quarter of the training rows that it needs.

The gate's cost in the compiled model is measured by `benchmarks.local_latency`.
Rows are appended to benchmarks/results/local_*.csv as they come, seeds outermost; what is finished
is not run again. ``--shard 1/2`` runs every second job into a file of its own.
"""

from __future__ import annotations

import argparse
import os
import warnings

import sparsebag as sb
from benchmarks import local_des, local_experts, local_suite, local_summary
from benchmarks.local_jobs import shard

STEPS = ("experts", "suite", "des", "summary")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", default=os.environ.get("SPARSEBAG_DATA"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--data", nargs="*", help="only these data sets")
    parser.add_argument("--shard", type=shard, default=(1, 1), help="1/2: the first half of jobs")
    parser.add_argument("--only", nargs="*", choices=STEPS, default=STEPS)
    args = parser.parse_args()
    for category in (sb.UncoveredRowsWarning, sb.UnverifiedRowsWarning, sb.RegretWarning):
        warnings.filterwarnings("ignore", category=category)
    if "experts" in args.only:
        local_experts.run(args)
    if "suite" in args.only:
        local_suite.run(args)
    if "des" in args.only:
        local_des.run(args)
    if "summary" in args.only:
        local_summary.run()


if __name__ == "__main__":
    main()
