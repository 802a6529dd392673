"""Text in tables: which columns hold it, and the codes a model reads in its place."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from sparsebag.cli.failures import CommandError
from sparsebag.cli.tables import is_numeric
from sparsebag.deploy.text_columns import Categories, text_codes

FEW_TEXTS = 30
"""A column with up to this many different texts is a category, however few rows there are."""
MOST_TEXTS = 10_000
"""More would be a list nobody wants in a model file."""


def find_categories(path: Path, X: pd.DataFrame) -> Categories:
    """The texts of every column that holds text, sorted: an order that does not know the target.

    Parameters
    ----------
    path : Path
        Where the table came from, for messages.
    X : pandas.DataFrame

    Returns
    -------
    dict of str to tuple of str
    """
    found = {}
    for name in X.columns:
        column = X[name]
        if is_numeric(column):
            continue
        values = column.dropna()
        example = values.iloc[0]
        if isinstance(example, bytes):
            raise CommandError(f"column '{name}' of '{path}' is not written in UTF-8; save it so.")
        if not isinstance(example, str):
            raise CommandError(
                f"column '{name}' of '{path}' holds {str(example)!r}, which is neither a number "
                f"nor text; turn it into numbers, or leave it out: --drop '{name}'."
            )
        texts = sorted({str(value) for value in values} - {""})
        if len(texts) > MOST_TEXTS or (len(texts) > FEW_TEXTS and 2 * len(texts) > len(values)):
            raise CommandError(
                f"column '{name}' of '{path}' has {len(texts):,} different texts in {len(X):,} "
                f"rows, so it is a key or prose and no category; leave it out: --drop '{name}'."
            )
        found[name] = tuple(texts)
    return found


def with_codes(X: pd.DataFrame, categories: Categories) -> pd.DataFrame:
    """A table with codes in place of text; its other columns as they are.

    Parameters
    ----------
    X : pandas.DataFrame
    categories : mapping of str to tuple of str

    Returns
    -------
    pandas.DataFrame

    Examples
    --------
    >>> with_codes(pd.DataFrame({"c": ["b", "a", ""]}), {"c": ("a", "b")})["c"].tolist()
    [1.0, 0.0, nan]
    """
    codes = {name: text_codes(X[name], texts) for name, texts in categories.items()}
    return X.assign(**codes)


class UnknownTexts:
    """Counts texts a model never saw, batch by batch, and tells of them once.

    Parameters
    ----------
    categories : mapping of str to tuple of str
    """

    def __init__(self, categories: Categories) -> None:
        self.known = {name: {*texts, ""} for name, texts in categories.items()}
        self.found: dict[str, tuple[str, int]] = {}

    def count(self, X: pd.DataFrame) -> None:
        """Look at a batch.

        Parameters
        ----------
        X : pandas.DataFrame
        """
        for name, known in self.known.items():
            strange = [v for v in _texts(X[name]) if v not in known]
            if strange:
                first, n = self.found.get(name, (strange[0], 0))
                self.found[name] = first, n + len(strange)

    def notes(self, path: Path) -> list[str]:
        """What was found, a sentence a column.

        Parameters
        ----------
        path : Path

        Returns
        -------
        list of str
        """
        return [
            f"column '{name}' of '{path}' holds texts the model never saw, such as '{first}' "
            f"({n:,} rows); they are read as missing."
            for name, (first, n) in self.found.items()
        ]


def _texts(column: pd.Series) -> Iterable[str]:
    return (v for v in np.asarray(column, dtype=object) if isinstance(v, str))
