"""Compress a 300-tree forest on data bundled with scikit-learn; print before and after."""

from __future__ import annotations

import time

from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

import sparsebag as sb

REPORT = "sparsebag_report.html"


def main() -> None:
    """Fit, compress, compare, write the report."""
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, stratify=y, random_state=0)

    print("Fitting a random forest of 300 trees on the digits (1257 rows, 64 columns) ...")
    start = time.perf_counter()
    forest = RandomForestClassifier(300, random_state=0, n_jobs=-1).fit(X, y)
    fitted = time.perf_counter() - start

    print("Compressing it, from the same rows ...")
    start = time.perf_counter()
    small = sb.compress(forest, X, y, n_jobs=-1)
    compressed = time.perf_counter() - start

    print(f"\n{small.selection_}")  # from the training rows alone

    report = small.report(X_test, y_test)
    print(f"\n{report}\n")
    print(f"forest fitted in {fitted:.1f} s, compressed in {compressed:.1f} s")
    report.save(REPORT)
    print(f"report written to {REPORT}")


if __name__ == "__main__":
    main()
