"""The ``.sbag`` file, described in docs/file_format.md: a compiled ensemble without pickle.

Nothing in a file is trusted: lengths, types and shapes are checked here, indices by the groups
and the kernel that will follow them. Loading imports no scikit-learn.
"""

from __future__ import annotations

import contextlib
import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Any

import numpy as np

from sparsebag.deploy.calibrators import check_can_be_carried, rebuild_calibrator
from sparsebag.deploy.compiled import CompiledEnsemble, Group
from sparsebag.deploy.container import (
    ALIGNMENT,
    MAGIC,
    PREAMBLE,
    VERSION,
    ArtifactError,
    StoredArray,
    assembled,
    checked_preamble,
    flag,
    listed,
    number,
    stored_array,
    string,
    taken_apart,
    whole,
    with_keys,
)
from sparsebag.deploy.labels_entry import labels_entry, read_labels
from sparsebag.deploy.linear import LinearVotes
from sparsebag.deploy.mlp import StackedNetworks
from sparsebag.deploy.not_exportable import NotExportable
from sparsebag.deploy.other import OtherMembers
from sparsebag.deploy.trees import FlatTrees
from sparsebag.deploy.whole_file import mapped_file, read_whole, write_whole
from sparsebag.local.gate import LinearGate

__all__ = [
    "ALIGNMENT",
    "MAGIC",
    "PREAMBLE",
    "VERSION",
    "ArtifactError",
    "dumps",
    "load",
    "loads",
    "save",
]

HEADER = (
    "task",
    "n_features",
    "feature_names",
    "categories",
    "classes",
    "floor",
    "allow_nan",
    "paths",
    "groups",
    "calibrator",
    "gate",
    "arrays",
)
ABSENT = {"feature_names": None, "categories": None, "gate": None}
"""Keys that a header may leave out."""
SETTINGS: dict[str, dict[str, Callable[[Any], Any]]] = {
    FlatTrees.kind: {"n_features": whole, "complement": flag, "total": number, "step": number},
    LinearVotes.kind: {"link": string, "n_outputs": whole, "n_members": whole},
    StackedNetworks.kind: {
        "n_layers": whole,
        "activation": string,
        "link": string,
        "n_outputs": whole,
    },
    OtherMembers.kind: {},
}
"""What the settings of each kind of group are, and how each is read."""
LARGEST_VOTE = 1e150
"""Sums of leaves stay far from where float64 ends."""
MAPPED_KINDS = (LinearVotes.kind, StackedNetworks.kind)
MAPPED_BYTES = 2**20
"""An array below this is not worth a mapping that a cut file would make fatal."""
GROUPS: dict[str, Any] = {kind.kind: kind for kind in (FlatTrees, LinearVotes, StackedNetworks)}


def save(model: Any, path: Any, *, allow_pickle: bool = False) -> None:
    """Write a compiled ensemble to one file; a crash leaves the old file, never half a new one.

    Parameters
    ----------
    model : CompiledEnsemble or fitted sparsebag estimator
        Of an estimator, what its ``compile`` returns.
    path : path-like
    allow_pickle : bool
        Members that are neither trees, linear models nor scikit-learn's networks can only be
        stored as pickles, which run code when they are loaded.

    Returns
    -------
    None

    Examples
    --------
    >>> import tempfile
    >>> import sparsebag as sb
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> small = sb.compress(RandomForestClassifier(50, random_state=0).fit(X, y), X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sb.save(small, f"{folder}/model.sbag")
    ...     loaded = sb.load(f"{folder}/model.sbag")
    >>> bool((loaded.predict(X) == small.predict(X)).all())
    True
    """
    if not isinstance(model, CompiledEnsemble):
        from sparsebag.deploy.deployable import Deployable  # it needs scikit-learn, and this module

        model = model.compile() if isinstance(model, Deployable) else model
    if not isinstance(model, CompiledEnsemble):
        raise TypeError(
            f"save writes compressed ensembles, not a {type(model).__name__}; compress it first, "
            "small = sparsebag.compress(ensemble, X, y), then small.save(path)."
        )
    write_whole(path, dumps(model, allow_pickle=allow_pickle))


def load(path: Any, *, mmap: bool = False, allow_pickle: bool = False) -> CompiledEnsemble:
    """Read a compiled ensemble; it predicts without scikit-learn.

    Parameters
    ----------
    path : path-like
    mmap : bool
        Map large arrays of linear models and networks (a megabyte and more) instead of keeping a
        copy: processes that load the same file share their memory. Replacing the file, as `save`
        does, is fine; it must not be cut or changed in place while the model is in use. Trees
        and small arrays are read either way: the kernel of the trees has a copy of its own.
    allow_pickle : bool
        Whether members stored as pickles may be loaded. A pickle can run any code: only for
        files you made yourself.

    Returns
    -------
    CompiledEnsemble

    Examples
    --------
    >>> import tempfile
    >>> import sparsebag as sb
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> small = sb.compress(RandomForestClassifier(50, random_state=0).fit(X, y), X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     small.save(f"{folder}/model.sbag")
    ...     sb.load(f"{folder}/model.sbag").n_features
    4
    """
    if isinstance(path, bytes | bytearray | memoryview) and bytes(path[: len(MAGIC)]) == MAGIC:
        raise TypeError(
            "load reads a file by its path, and these are the bytes of one; write them to a file, "
            "or pass them to sparsebag.deploy.artifact.loads."
        )
    content = read_whole(path, n_first=PREAMBLE.size, check=_check_preamble)
    return _loaded(content, allow_pickle, mapped_file(path) if mmap else None)


def dumps(model: CompiledEnsemble, *, allow_pickle: bool = False) -> bytes:
    """The bytes of a file.

    Parameters
    ----------
    model : CompiledEnsemble
    allow_pickle : bool

    Returns
    -------
    bytes
    """
    arrays: list[StoredArray] = []

    def stored(named: Mapping[str, np.ndarray], *, pack: bool = True) -> dict[str, int]:
        arrays.extend(stored_array(array, pack=pack) for array in named.values())
        return {name: len(arrays) - len(named) + i for i, name in enumerate(named)}

    header: dict[str, Any] = {
        "task": "regression" if model.classes is None else "classification",
        "n_features": model.n_features,
        "floor": model.floor,
        "allow_nan": model.allow_nan,
        "paths": [[kind, len(list(run))] for kind, run in groupby(model.paths)],
        "groups": [],
        "calibrator": None,
        "classes": labels_entry(model.classes, stored),
    }
    if model.feature_names is not None:
        header["feature_names"] = list(model.feature_names)
    if model.categories:
        header["categories"] = {name: list(texts) for name, texts in model.categories.items()}
    if model.calibrator is not None:
        check_can_be_carried(model.calibrator)
        params = {k: np.asarray(v, dtype="<f8") for k, v in model.calibrator.params.items()}
        header["calibrator"] = {"kind": model.calibrator.kind, "arrays": stored(params)}
    for group in model.groups:
        if isinstance(group, OtherMembers):
            named = {"pickle": np.frombuffer(_pickled(group, allow_pickle), dtype=np.uint8)}
            settings: dict[str, Any] = {}
        else:
            named, settings = group.arrays(), group.settings()
        positions = stored(named, pack=group.kind not in MAPPED_KINDS)
        header["groups"].append({"kind": group.kind, "settings": settings, "arrays": positions})
    if model.gate is not None:
        header["gate"] = {"kind": "linear", "arrays": stored(model.gate.arrays())}
    return assembled(header, arrays)


def loads(content: Any, *, allow_pickle: bool = False) -> CompiledEnsemble:
    """A compiled ensemble from the bytes of a file.

    Parameters
    ----------
    content : bytes
    allow_pickle : bool

    Returns
    -------
    CompiledEnsemble
    """
    return _loaded(content, allow_pickle)


def _check_preamble(first: bytes, n_bytes: int) -> None:
    with _one_clear_error():
        checked_preamble(first, n_bytes)


def _loaded(content: bytes, allow_pickle: bool, mapped: Any = None) -> CompiledEnsemble:
    # Everything is checked in `content`, which nobody else can change; `mapped`, the same file in
    # memory shared with others, only lends linear models and networks their large arrays.
    with _one_clear_error():
        header, arrays, shared = taken_apart(content, mapped)
        if shared is not None:  # small ones as copies: a view would keep the whole content alive
            arrays = [a.copy() if a.nbytes < MAPPED_BYTES else a for a in arrays]
        header = dict(with_keys({**ABSENT, **header}, HEADER))
        n_features = None if header["n_features"] is None else whole(header["n_features"])
        classes = read_labels(header["classes"], arrays)
        if header["task"] != ("regression" if classes is None else "classification"):
            raise ArtifactError("its task and its classes disagree")
        n_outputs = 1 if classes is None else len(classes)
        _check_used_once(header)
        groups = tuple(
            _group(entry, arrays, shared, allow_pickle) for entry in listed(header["groups"])
        )
        _check_groups(groups, n_outputs, n_features, is_vote=classes is not None)
        floor = number(header["floor"])
        if not 0.0 <= floor < 1.0:
            raise ArtifactError("its floor is not a share")
        return CompiledEnsemble(
            groups=groups,
            paths=_paths(header["paths"], groups),
            classes=classes,
            n_features=n_features,
            floor=floor,
            calibrator=_calibrator(header["calibrator"], arrays, n_outputs),
            allow_nan=flag(header["allow_nan"]),
            feature_names=_feature_names(header["feature_names"], n_features),
            categories=_categories(header["categories"], header["feature_names"]),
            gate=_gate(header["gate"], arrays, groups),
        )


# -- parts of a model ------------------------------------------------------------------------


def _named(entry: Mapping[str, Any], arrays: list[np.ndarray]) -> dict[str, np.ndarray]:
    return {name: arrays[whole(position)] for name, position in entry.items()}


def _check_used_once(header: Mapping[str, Any]) -> None:
    optional = [header["calibrator"], header["gate"]]
    entries = [*listed(header["groups"]), *(entry for entry in optional if entry is not None)]
    used = [whole(i) for entry in entries for i in entry["arrays"].values()]
    used += [whole(header["classes"]["array"])] if "array" in (header["classes"] or ()) else []
    if len(set(used)) < len(used):
        raise ArtifactError("its members share arrays")


def _check_groups(
    groups: tuple[Group, ...], n_outputs: int, n_features: int | None, *, is_vote: bool
) -> None:
    if not groups or any(g.n_outputs != n_outputs for g in groups):
        raise ArtifactError("its members vote for other classes")
    if n_features is not None:
        of_arrays = [g for g in groups if not isinstance(g, OtherMembers)]
        if any(g.n_features != n_features for g in of_arrays):
            raise ArtifactError("its members read another number of features")
        if any(g.n_features > n_features for g in groups):
            raise ArtifactError("its members read features that do not exist")
    for group in groups:
        if isinstance(group, FlatTrees):
            largest = float(np.abs(group.values).max(initial=0.0)) * group.n_members
            if not largest <= LARGEST_VOTE:
                raise ArtifactError("its leaves say more than can be summed")
            sound = 0.0 < group.total <= LARGEST_VOTE
        else:
            total = float(np.sum(group.weights))
            sound = bool(np.all(group.weights >= 0.0)) and 0.0 < total <= LARGEST_VOTE
        if is_vote and not sound:
            raise ArtifactError("its members' weights make no probabilities")


def _paths(paths: Any, groups: tuple[Group, ...]) -> tuple[str, ...]:
    found: Counter[str] = Counter()
    members: Counter[str] = Counter()
    for kind, count in listed(paths):
        found[string(kind)] += whole(count)
    for group in groups:
        members[group.kind] += group.n_members
    if found != members:
        raise ArtifactError("its paths are not those of its members")
    return tuple(kind for kind, count in paths for _ in range(count))


def _calibrator(entry: Any, arrays: list[np.ndarray], n_outputs: int) -> Any:
    if entry is None:
        return None
    entry = with_keys(entry, ("kind", "arrays"))
    named = _named(entry["arrays"], arrays)
    calibrator = rebuild_calibrator(string(entry["kind"]), named, n_outputs)
    with_keys(named, tuple(calibrator.params))
    return calibrator


def _gate(entry: Any, arrays: list[np.ndarray], groups: tuple[Group, ...]) -> LinearGate | None:
    if entry is None:
        return None
    entry = with_keys(entry, ("kind", "arrays"))
    if string(entry["kind"]) != "linear":
        raise ArtifactError(f"it holds a gate of a kind, {entry['kind'][:20]!r}, that is not known")
    named = _named(with_keys(entry["arrays"], LinearGate.ARRAYS), arrays)
    for name, array in named.items():
        if array.dtype.str != "<f8":
            raise ArtifactError(f"its gate's {name!r} is of type {array.dtype.str}")
    for group in groups:  # with weights of their own scores would be no probabilities
        if isinstance(group, FlatTrees):
            weighted = group.total != group.n_members
        else:
            weighted = bool(np.any(group.weights != 1.0))
        if weighted:
            raise ArtifactError("its members have weights besides those of its gate")
    return LinearGate(**named)


def _group(
    entry: Mapping[str, Any],
    arrays: list[np.ndarray],
    shared: list[np.ndarray] | None,
    allow_pickle: bool,
) -> Group:
    entry = with_keys(entry, ("kind", "settings", "arrays"))
    named, kind = _named(entry["arrays"], arrays), string(entry["kind"])
    if kind not in SETTINGS:
        raise ArtifactError(f"it holds members of a kind, {kind[:20]!r}, that is not known")
    settings = with_keys(entry["settings"], tuple(SETTINGS[kind]))
    if kind == OtherMembers.kind:
        if not allow_pickle:
            raise ArtifactError(
                "it holds members stored as a pickle, which runs code when it is loaded; if you "
                "made the file yourself, pass allow_pickle=True"
            )
        return _unpickled(with_keys(named, ("pickle",))["pickle"])
    if shared is not None and kind in MAPPED_KINDS:
        mapped = _named(entry["arrays"], shared)
        named = {k: mapped[k] if a.nbytes >= MAPPED_BYTES else a for k, a in named.items()}
    settings = {name: SETTINGS[kind][name](value) for name, value in settings.items()}
    rebuilt: FlatTrees | LinearVotes | StackedNetworks
    rebuilt = GROUPS[kind].rebuild(_typed(kind, named), settings)
    with_keys(named, tuple(rebuilt.STORED if isinstance(rebuilt, FlatTrees) else rebuilt.arrays()))
    return rebuilt


def _unpickled(stored: np.ndarray) -> OtherMembers:
    try:
        group = pickle.loads(stored.tobytes())
    except Exception as error:  # a damaged pickle raises anything
        raise ArtifactError(f"its pickle cannot be read ({type(error).__name__})") from None
    if not isinstance(group, OtherMembers):
        raise ArtifactError("its pickle holds something else than members")
    return group


def _typed(kind: str, named: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays, once each is of a type its name allows."""
    for name, array in named.items():
        allowed = FlatTrees.STORED.get(name, ()) if kind == FlatTrees.kind else ()
        allowed = allowed or ("<i4" if name == "class_columns" else "<f8",)
        if array.dtype.str not in allowed:
            raise ArtifactError(f"its array {name[:20]!r} is of type {array.dtype.str}")
    return named


def _feature_names(names: Any, n_features: int | None) -> tuple[str, ...] | None:
    if names is None:
        return None
    if not all(isinstance(name, str) for name in listed(names)) or len(names) != n_features:
        raise ArtifactError("its names of features are not one string a feature")
    return tuple(names)


def _categories(entry: Any, names: Any) -> dict[str, tuple[str, ...]] | None:
    if entry is None:
        return None
    if not isinstance(entry, dict) or not set(entry) <= set(names or ()):
        raise ArtifactError("its columns of text are not columns it reads")
    found = {name: tuple(string(t) for t in listed(texts)) for name, texts in entry.items()}
    if any(len(set(texts)) < len(texts) for texts in found.values()):
        raise ArtifactError("a column of text has a text twice")
    return found


def _pickled(group: OtherMembers, allow_pickle: bool) -> bytes:
    if not allow_pickle:
        names = ", ".join(
            sorted({type(getattr(m, "estimator", m)).__name__ for m in group.members})
        )
        raise NotExportable(
            f"{group.n_members} members ({names}) can only be stored as a pickle, which runs code "
            "when it is loaded; pass allow_pickle=True here and to load if you trust the file."
        )
    return pickle.dumps(group, protocol=5)


@contextlib.contextmanager
def _one_clear_error() -> Iterator[None]:
    """Whatever a hostile header makes Python stumble over, the caller sees one kind of error."""
    try:
        yield
    except ArtifactError as error:
        raise ArtifactError(f"this is not a sound model file: {error}.") from None
    except ValueError as error:
        text = str(error).rstrip(".")
        raise ArtifactError(f"this is not a sound model file: {text}.") from None
    except (
        KeyError,
        TypeError,
        IndexError,
        AttributeError,
        RecursionError,
        OverflowError,
    ) as error:
        raise ArtifactError(
            f"this is not a sound model file: its header is malformed ({type(error).__name__})."
        ) from None
