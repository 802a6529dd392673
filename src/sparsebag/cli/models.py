"""Models in: skops files, pickles where the user says so, ``.sbag`` files; and files out."""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sparsebag.cli.command import CommandError, ExitCode, Trust, WrongKind, one_line
from sparsebag.cli.tables import PARQUET, check_readable, first_bytes
from sparsebag.deploy.artifact import MAGIC, ArtifactError, load
from sparsebag.deploy.compiled import CompiledEnsemble
from sparsebag.sources.whole_file import whole_file

CHECKED_HERE = ["sklearn.tree._tree.Tree", "numpy.dtype"]
"""Not trusted by skops: a forged tree could read outside its arrays. `check_trees` looks."""
EXPORTED = ["numpy.clip", "sklearn.preprocessing._data.normalize", "sklearn.utils._bunch.Bunch"]
"""Harmless types that skops does not know, in what ``export --to sklearn`` writes."""


def read_ensemble_file(path: Path, trust: Trust) -> Any:
    """A fitted scikit-learn ensemble from a skops file or a pickle.

    Parameters
    ----------
    path : Path
    trust : Trust
    """
    if _is_compressed(path):
        raise CommandError(f"'{path}' is already compressed; pass the original model.")
    is_skops = zipfile.is_zipfile(path)
    if not is_skops and not trust.trust_pickle:
        raise CommandError(
            f"'{path}' is not a skops file; loading a pickle can run any code: add --trust-pickle "
            "if you made it yourself (skops.io.dump writes files that need no trust)."
        )
    try:
        if is_skops:
            return _from_skops(path, [*CHECKED_HERE, *EXPORTED, *(trust.trust_type or ())])
        import joblib

        return joblib.load(path)
    except CommandError:
        raise
    except Exception as error:  # a pickle, or a damaged file, may raise anything
        wrong = "is not a valid skops file" if is_skops else "cannot be loaded as a pickle"
        told = f"'{path}' {wrong} ({type(error).__name__}: {one_line(error)[:200]})."
        raise CommandError(told) from None


def _is_compressed(path: Path) -> bool:
    """Whether a file is one of sparsebag's; refuses tables."""
    check_readable(path)
    if path.name.lower().endswith((".csv", ".csv.gz", *PARQUET)):
        raise WrongKind(f"'{path}' is a table, not a model.")
    if zipfile.is_zipfile(path):
        with contextlib.suppress(Exception), zipfile.ZipFile(path) as file:  # it may be damaged
            return "0.sbag" in file.namelist()
    return first_bytes(path) == MAGIC[:2]


def _from_skops(path: Path, trusted: list[str]) -> Any:
    import skops.io as sio

    unknown = [kind for kind in sio.get_untrusted_types(file=path) if kind not in trusted]
    if unknown:
        flags = " ".join(f"--trust-type {name}" for name in unknown[:5])
        raise CommandError(
            f"'{path}' holds {len(unknown)} types that skops does not trust; if you made the "
            f"file yourself, add {flags}."
        )
    model = sio.load(path, trusted=trusted)
    check_trees(model)
    return model


def check_trees(model: Any) -> None:
    """Refuse trees whose nodes lead astray, or whose widths are not those of their models.

    scikit-learn's kernels follow a tree's nodes and count on the widths its models state; neither
    is checked when they predict.
    """
    from sklearn.ensemble._forest import BaseForest
    from sklearn.tree import BaseDecisionTree
    from sklearn.tree._tree import Tree

    for thing in _inside(model):
        if isinstance(thing, Tree):
            _check_nodes(thing)
        elif isinstance(thing, BaseDecisionTree) and hasattr(thing, "tree_"):
            _check_widths(thing)
        if hasattr(thing, "estimators_"):
            _check_members(thing, is_forest=isinstance(thing, BaseForest))


def _inside(model: Any) -> Iterator[Any]:
    """A model and everything it holds, each once."""
    seen: set[int] = set()
    pending = [model]
    while pending:
        thing = pending.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        yield thing
        if isinstance(thing, dict):
            pending += thing.values()
        elif isinstance(thing, (list, tuple, set)):
            pending += thing
        elif isinstance(thing, np.ndarray):
            pending += thing.ravel().tolist() if thing.dtype == object else []
        elif hasattr(thing, "__dict__"):
            pending += vars(thing).values()


def _check_nodes(tree: Any) -> None:
    at = np.flatnonzero(tree.children_left != -1)
    left, right, feature = (a[at] for a in (tree.children_left, tree.children_right, tree.feature))
    sound = np.array_equal(at, np.flatnonzero(tree.children_right != -1))
    for below in (left, right):
        sound = sound and bool(np.all((below > at) & (below < tree.node_count)))
    if not sound or np.any((feature < 0) | (feature >= tree.n_features)):
        raise ValueError("a tree's node indices are out of range")


def _check_widths(model: Any) -> None:
    tree, classes = model.tree_, getattr(model, "classes_", None)
    n_classes = 1 if classes is None else len(classes)
    sound = (
        tree.n_features == model.n_features_in_
        and tree.n_outputs == 1 == getattr(model, "n_outputs_", 1)
        and int(tree.n_classes[0]) == n_classes == int(np.max(getattr(model, "n_classes_", 1)))
        and tree.value.shape[1:] == (1, n_classes)
    )
    if not sound:
        raise ValueError("a tree's shape is not that of its model")


def _check_members(ensemble: Any, *, is_forest: bool) -> None:
    members = np.ravel(np.asarray(ensemble.estimators_, dtype=object))
    width = getattr(ensemble, "n_features_in_", None)
    subsets = getattr(ensemble, "estimators_features_", None)
    n_classes = len(getattr(ensemble, "classes_", ()))
    for j, member in enumerate(members):
        reads, expected = getattr(member, "n_features_in_", None), width
        if subsets is not None:
            columns = np.asarray(subsets[j])
            expected = len(columns)
            if width is not None and np.any((columns < 0) | (columns >= width)):
                raise ValueError("a member uses columns that its ensemble does not have")
        if None not in (reads, expected) and reads != expected:
            raise ValueError("a member and its ensemble have different numbers of columns")
        if is_forest and len(getattr(member, "classes_", ())) != n_classes:
            raise ValueError("a tree and its forest have different classes")


def check_can_be_compressed(model: Any, *, trust_pickle: bool) -> None:
    """Refuse what is no ensemble, and members a file could only hold as pickles, before the work.

    Parameters
    ----------
    model : fitted ensemble, or a model around one
    trust_pickle : bool
        Whether the file may hold pickles.
    """
    from sparsebag.deploy.from_members import compile_members
    from sparsebag.evidence.from_ensemble import read_ensemble
    from sparsebag.evidence.wrappers import innermost

    parts = innermost(model)
    if len(parts) > 1:
        told = "holds several ensembles; call sparsebag.compress in Python"
        raise CommandError(f"this {type(model).__name__} {told}.")
    for part, _ in parts:
        pool = read_ensemble(part.model)
        if trust_pickle:
            continue
        others = [member for member in pool.members if not member.is_tree]
        weights = np.full(len(pool.members), 1 / len(pool.members))
        if others and "other" in compile_members(pool, weights).paths:
            raise CommandError(
                f"members such as {type(others[0].estimator).__name__} can only be stored as a "
                "pickle, which runs code when it is loaded; add --trust-pickle to do so."
            )


def read_model(path: Path, trust: Trust) -> Any:
    """A model from a ``.sbag`` file, compiled or whole; pickled members only if trusted."""
    if not _is_compressed(path):
        raise CommandError(f"'{path}' is not compressed; run `sparsebag compress` first.")
    try:
        return load(path, allow_pickle=trust.trust_pickle, trusted=trust.trust_type or ())
    except ArtifactError as error:
        raise CommandError(f"'{path}': {one_line(error)}") from None


def columns_read(model: Any) -> tuple[Any, Any]:
    """Names and number of the columns a model reads, where it knows them."""
    ending = "" if isinstance(model, CompiledEnsemble) else "_in_"
    return getattr(model, f"feature_names{ending}", None), getattr(
        model, f"n_features{ending}", None
    )


class _OnlyTried(Exception):
    """Ends the writing of a file, which leaves nothing behind."""


def check_can_be_written(
    path: Path,
    *,
    unlike: Sequence[Path | None],
    is_named: bool = True,
    other: Path | None = None,
    suffixes: Sequence[str] = (),
) -> None:
    """Refuse a path that cannot be written, before hours are spent on what belongs there.

    Parameters
    ----------
    path : Path
    unlike : sequence of Path
        Files that are read.
    is_named : bool
        Whether the user named it; no other file is overwritten.
    other : Path, optional
        The other output.
    suffixes : sequence of str
        What its name may end in; anything where there are none.
    """
    taken = [*((each, "both input and output") for each in unlike), (other, "given twice")]
    for same, told in taken:
        if same is not None and path.resolve() == same.resolve():
            raise CommandError(f"'{path}' is {told}; choose another file.", ExitCode.USAGE)
    if suffixes and path.suffix.lower() not in suffixes:
        told = f"'{path}' cannot be written; use {' or '.join(filter(None, suffixes))}."
        raise CommandError(told, ExitCode.USAGE)
    if not is_named and path.exists():
        raise CommandError(f"'{path}' exists; name a file with -o.", ExitCode.CANNOT_WRITE)
    try:
        with contextlib.suppress(_OnlyTried), whole_file(path):
            raise _OnlyTried
    except OSError as error:
        raise CommandError(str(error), ExitCode.CANNOT_WRITE) from None
