"""``import sparsebag`` is light: what it does not import, and how long it takes.

python -m benchmarks.scale --only import
"""

from __future__ import annotations

import subprocess
import sys

REPEATS = 5
HEAVY = (
    *("torch", "cupy", "triton", "dask", "distributed", "matplotlib", "pandas", "onnx"),
    *("onnxruntime", "treelite", "xgboost", "zarr", "pyarrow", "sklearn", "scipy"),
)
MEASURE = """
import sys, time
start = time.process_time()
import {module}
seconds = time.process_time() - start
print(seconds, *sorted(set({heavy!r}) & set(sys.modules)))
"""


def measured(module: str) -> tuple[float, list[str]]:
    runs = []
    for _ in range(REPEATS):
        code = MEASURE.format(module=module, heavy=HEAVY)
        out = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
        runs.append((float(out[0]), out[1:]))
    return min(runs)


def run(*, quick: bool) -> None:
    print("\n## Import\n")
    for module in ("numpy", "sparsebag", "sklearn.ensemble"):
        seconds, heavy = measured(module)
        print(
            f"import {module:<18}{1e3 * seconds:>7.0f} ms of CPU, best of {REPEATS}; of the heavy "
            f"modules it imports: {', '.join(heavy) or 'none'}"
        )
    print(f"\nheavy modules looked for: {', '.join(HEAVY)}")
