"""The three inputs of the page: our results, the paper's tables, the figures' experiments."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

PAPER_BASES = ("DecisionTree", "LogisticRegression", "Ridge")
"""The base models of the paper's tables; the others it names and leaves to future work."""
MAIN_SCORE = {"classification": "log_loss", "regression": "mse"}
CONFIGURATION = ["dataset", "base"]
VERSIONS = ("sparsebag", "sklearn", "numpy", "scipy", "python", "xgboost", "machine")
LATER_COLUMNS = ("mean_confidence", "speedup", "wall_seconds", "source")
"""Results files from before these columns have them empty."""
OURS = ("scsb_paper", "sparsebag_default")
TRIED = ("ok", "failed")


@dataclass(frozen=True)
class Results:
    """Rows of a results file: one a (data set, base, method, seed)."""

    frame: pd.DataFrame

    @classmethod
    def read(cls, path: Path) -> Results:
        frame = pd.read_csv(path)
        frame["base"] = frame["base"].fillna("none")
        for name in LATER_COLUMNS:
            if name not in frame:
                frame[name] = float("nan")
        return cls(frame)

    def of_paper(self) -> Results:
        """Only the base models of the paper's tables."""
        return Results(self.frame[self.frame["base"].isin(PAPER_BASES)])

    def complete_seeds(self) -> Results | None:
        """The rows that all splits have, splits still running aside; None without two splits."""
        counts = self.frame.groupby("seed").size()
        whole = counts.index[counts >= counts.median()]
        rows = self.frame[self.frame["seed"].isin(whole)]
        in_all = rows.groupby([*CONFIGURATION, "method"])["seed"].transform("size") == len(whole)
        return Results(rows[in_all]) if len(whole) > 1 else None

    def mean_over_seeds(self) -> Results:
        """One row a configuration and method: the mean of its seeds, failed if one of them is."""
        by_row = self.frame.groupby(["dataset", "task", "base", "method"], sort=False)
        means = by_row.mean(numeric_only=True)
        status = by_row["status"].agg(_worst_status)
        means[status != "ok"] = float("nan")
        return replace(self, frame=means.assign(status=status, reason="").reset_index())

    @cached_property
    def _by_key(self) -> dict[tuple[str, str, str], pd.Series]:
        keys = zip(self.frame["dataset"], self.frame["base"], self.frame["method"], strict=True)
        return {key: row for key, (_, row) in zip(keys, self.frame.iterrows(), strict=True)}

    def row(self, dataset: str, base: str, method: str) -> pd.Series | None:
        """One row, or None where the benchmark has not got to it."""
        return self._by_key.get((dataset, base, method))

    def finished(self, method: str) -> pd.DataFrame:
        """A method's finished rows, one a configuration."""
        rows = self.frame
        return rows[(rows["method"] == method) & (rows["status"] == "ok")].set_index(CONFIGURATION)

    def tried(self, method: str, rival: str | None = None, task: str | None = None) -> int:
        """Configurations a method ran or failed on: what its counts are out of.

        Parameters
        ----------
        method : str
        rival : str, optional
            Only those that have a row of this method too, whatever became of it.
        task : str, optional
            Only those of this task.
        """
        rows = self.frame if task is None else self.frame[self.frame["task"] == task]
        of_method = rows[(rows["method"] == method) & rows["status"].isin(TRIED)]
        configurations = set(map(tuple, of_method[CONFIGURATION].to_numpy()))
        if rival is not None:
            theirs = rows.loc[rows["method"] == rival, CONFIGURATION]
            configurations &= set(map(tuple, theirs.to_numpy()))
        return len(configurations)

    def sources(self) -> list[str]:
        """Hashes of the source that made the rows of our own methods; "unknown" for old rows."""
        ours = self.frame[self.frame["method"].isin(OURS) & self.frame["status"].isin(TRIED)]
        return sorted({str(v) for v in ours["source"].fillna("unknown")})

    def pairs(self, left: str, right: str, column: str) -> pd.DataFrame:
        """Two methods' values on the configurations both finished and both have a value for."""
        columns = {"left": self.finished(left)[column], "right": self.finished(right)[column]}
        return pd.DataFrame(columns).dropna()

    def versions(self) -> str:
        """What the rows were made with, for the reader who gets other numbers."""
        found = []
        for name in VERSIONS:
            if name in self.frame:
                values = sorted({str(v) for v in self.frame[name].dropna()})
                found.append(f"{name} {' / '.join(values)}" if values else "")
        return ", ".join(part for part in found if part)


def _worst_status(statuses: pd.Series) -> str:
    return next((s for s in ("failed", "ok") if (statuses == s).any()), "skipped")


def read_tables(path: Path | None) -> pd.DataFrame | None:
    """The paper's tables as text, so that the number of printed digits is kept."""
    if path is None or not path.exists():
        return None
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def read_experiments(path: Path | None) -> dict[str, Any]:
    """What ``benchmarks.paper_figures`` measured, by figure; empty where it has not run."""
    return json.loads(path.read_text()) if path is not None and path.exists() else {}


@dataclass(frozen=True)
class Inputs:
    """Everything a claim may be judged by."""

    results: Results
    tables: pd.DataFrame | None
    experiments: dict[str, Any]

    def printed(self, model: str) -> pd.DataFrame:
        """The tables' rows of one model, by configuration; empty without the tables."""
        if self.tables is None:
            return pd.DataFrame()
        return self.tables[self.tables["model"] == model].set_index(CONFIGURATION)
