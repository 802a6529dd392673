"""Scale: how cost grows, Simplex SGD, evidence on disk, thousands of members, import time.

    python -m benchmarks.scale [--quick] [--only growth sgd out_of_core members import ...]

Each section is a module ``scale_<section>`` with ``run(quick=...)``; what it prints is kept in
``benchmarks/results/scale_<section>.txt`` unless ``--quick`` is given. Sections for which the
hardware or an extra is missing say so and are skipped.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import io
import os
import sys
from pathlib import Path

from benchmarks.environment import environment

RESULTS = Path(__file__).parent / "results"
SECTIONS = ("import", "growth", "sgd", "out_of_core", "members", "gpu", "dask")


class _Both(io.TextIOBase):
    """What is printed is seen and kept."""

    def __init__(self) -> None:
        self.kept = io.StringIO()

    def write(self, text: str) -> int:
        sys.__stdout__.write(text)
        return self.kept.write(text)

    def flush(self) -> None:
        sys.__stdout__.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes; nothing is kept")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS)
    args = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for section in args.only:
        if importlib.util.find_spec(f"benchmarks.scale_{section}") is None:
            print(f"\n## {section}: there is no such section here")
            continue
        both = _Both()
        with contextlib.redirect_stdout(both):
            print(f"python -m benchmarks.scale --only {section}")
            print(", ".join(f"{name} {value}" for name, value in environment().items() if value))
            ran = importlib.import_module(f"benchmarks.scale_{section}").run(quick=args.quick)
        if not args.quick and ran is not False:  # a skipped section's last results stay
            (RESULTS / f"scale_{section}.txt").write_text(both.kept.getvalue())


if __name__ == "__main__":
    main()
