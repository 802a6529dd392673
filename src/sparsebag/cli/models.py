"""Models in: skops files, pickles where the user says so, and ``.sbag`` files."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sparsebag.cli.failures import CommandError, ExitCode, one_line
from sparsebag.cli.sound_trees import check_trees
from sparsebag.cli.tables import check_readable, shown_names
from sparsebag.deploy.artifact import MAGIC, ArtifactError, load
from sparsebag.deploy.compiled import CompiledEnsemble

SHOWN_TYPES = 5
CHECKED_HERE = ("sklearn.tree._tree.Tree",)
"""Not trusted by skops: a forged tree could read outside its arrays. `check_trees` looks."""


def read_ensemble_file(path: Path, *, trust_pickle: bool, trusted: Sequence[str] = ()) -> Any:
    """A fitted scikit-learn ensemble from a skops file or a pickle.

    Parameters
    ----------
    path : Path
    trust_pickle : bool
        Whether a pickle may be loaded, which runs the code in it.
    trusted : sequence of str
        Types in a skops file to trust beside those skops knows.

    Returns
    -------
    object
    """
    check_readable(path)
    with open(path, "rb") as file:
        start = file.read(len(MAGIC))
    if start == MAGIC:
        raise CommandError(
            f"'{path}' is a compressed model already; give the ensemble it was made of."
        )
    if zipfile.is_zipfile(path):
        return _from_skops(path, trusted)
    if not trust_pickle:
        raise CommandError(
            f"'{path}' is no skops file; as a pickle it could run any code when it is loaded, so "
            "it is only read with --trust-pickle, for files you made yourself (skops.io.dump "
            "writes files that need no trust)."
        )
    try:
        import joblib

        return joblib.load(path)
    except KeyboardInterrupt:
        raise
    except Exception as error:  # a pickle may raise anything
        kind = type(error).__name__
        raise CommandError(
            f"'{path}' cannot be loaded as a pickle ({kind}: {one_line(error)[:200]})."
        ) from None


def _from_skops(path: Path, trusted: Sequence[str]) -> Any:
    try:
        import skops.io as sio
    except ImportError:
        raise CommandError(
            "reading skops files needs skops; run: pip install 'sparsebag[cli]'.",
            ExitCode.MISSING_EXTRA,
        ) from None
    trusted = [*CHECKED_HERE, *trusted]
    try:
        unknown = [t for t in sio.get_untrusted_types(file=path) if t not in trusted]
        if not unknown:
            model = sio.load(path, trusted=trusted)
            check_trees(model)
            return model
    except Exception as error:
        raise CommandError(
            f"'{path}' is no sound skops file ({type(error).__name__}: {one_line(error)[:200]})."
        ) from None
    flags = " ".join(f"--trust-type {name}" for name in unknown[:SHOWN_TYPES])
    raise CommandError(
        f"'{path}' holds {len(unknown)} types skops does not know to be harmless; if you made the "
        f"file yourself, add {flags}."
    )


def check_can_be_stored(ensemble: Any) -> None:
    """Refuse members a file could only hold as pickles, before they are compressed in vain.

    Parameters
    ----------
    ensemble : fitted ensemble
    """
    from sparsebag.deploy.from_members import compile_members
    from sparsebag.deploy.other import OtherMembers
    from sparsebag.evidence.from_ensemble import read_ensemble

    pool = read_ensemble(ensemble)
    if all(member.is_tree for member in pool.members):
        return
    n = len(pool.members)
    if any(isinstance(g, OtherMembers) for g in compile_members(pool, np.full(n, 1 / n)).groups):
        name = next(type(m.estimator).__name__ for m in pool.members if not m.is_tree)
        raise CommandError(
            f"members such as a {name} have no form but a pickle, which runs code when it is "
            "loaded; add --trust-pickle to store them all the same."
        )


def read_compiled(path: Path, *, trust_pickle: bool = False) -> CompiledEnsemble:
    """A compressed model from its ``.sbag`` file.

    Parameters
    ----------
    path : Path
    trust_pickle : bool
        Whether members stored as pickles may be loaded.

    Returns
    -------
    CompiledEnsemble
    """
    check_readable(path)
    try:
        return load(path, allow_pickle=trust_pickle)
    except ArtifactError as error:
        raise CommandError(f"'{path}': {one_line(error)}") from None


def columns_for(model: Any, path: Path, X: pd.DataFrame) -> Any:
    """The columns of a table that a fitted model was trained on, in its order.

    Parameters
    ----------
    model : fitted estimator
    path : Path
        Where the table came from, for messages.
    X : pandas.DataFrame

    Returns
    -------
    pandas.DataFrame or ndarray
        An array for a model that was fitted without column names.
    """
    names = getattr(model, "feature_names_in_", None)
    if names is not None:
        wanted = [str(name) for name in names]
        check_columns(wanted, [str(name) for name in X.columns], path)
        return X[wanted]
    n_features = getattr(model, "n_features_in_", X.shape[1])
    if n_features != X.shape[1]:
        raise CommandError(
            f"the model was trained on {n_features} columns without names, but '{path}' has "
            f"{X.shape[1]} beside the target; pass the table it was trained on."
        )
    return X.to_numpy()


def check_columns(wanted: Sequence[str], found: Sequence[str], path: Path) -> None:
    """Refuse a table that lacks columns the model was trained on.

    Parameters
    ----------
    wanted, found : sequence of str
    path : Path
    """
    known = set(found)
    missing = [name for name in wanted if name not in known]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise CommandError(
            f"the model was trained on other columns: {shown_names(missing)} {verb} not in "
            f"'{path}', which has {shown_names(found)}."
        )
