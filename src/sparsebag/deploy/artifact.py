"""The ``.sbag`` file, described in docs/file_format.md: a compiled ensemble without pickle.

Nothing in a file is trusted: lengths, types and shapes are checked here, indices by the groups
and the kernel that will follow them. Loading imports no scikit-learn.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import pickle
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from sparsebag.deploy.calibrators import check_can_be_carried, rebuild_calibrator
from sparsebag.deploy.compiled import CompiledEnsemble, Group
from sparsebag.deploy.linear import LinearVotes
from sparsebag.deploy.mlp import StackedNetworks
from sparsebag.deploy.not_exportable import NotExportable
from sparsebag.deploy.other import OtherMembers
from sparsebag.deploy.trees import FlatTrees
from sparsebag.deploy.whole_file import mapped_file, read_whole, write_whole

MAGIC = b"\x89SBAG\r\n\x1a"
"""Not text, and broken by transfers that translate line ends."""
VERSION = 1
PREAMBLE = struct.Struct("<8sIIQ32s")
"""Magic, version, length of the header, length of the file, SHA-256 of all that follows."""
ALIGNMENT = 64
"""Arrays start at multiples of this, so that they can be mapped as they are."""
MAX_HEADER = 2**24
"""Bytes of JSON; a header lists arrays and labels, not data."""
MAX_DIMENSIONS = 3
DTYPES = ("<f4", "<f8", "<i4", "<i8", "|u1", "|b1")
MAPPED_KINDS = (LinearVotes.kind, StackedNetworks.kind)
MAPPED_BYTES = 2**20
"""An array below this is not worth a mapping that a cut file would make fatal."""
GROUPS: dict[str, Any] = {kind.kind: kind for kind in (FlatTrees, LinearVotes, StackedNetworks)}


class ArtifactError(ValueError):
    """A file that is not a sound ``.sbag`` model.

    Examples
    --------
    >>> try:
    ...     loads(b"something else")
    ... except ArtifactError as error:
    ...     print(error)
    this is not a sound model file: it does not begin as a .sbag file does.
    """


def save(model: CompiledEnsemble, path: Any, *, allow_pickle: bool = False) -> None:
    """Write a compiled ensemble to one file; a crash leaves the old file, never half a new one.

    Parameters
    ----------
    model : CompiledEnsemble
    path : path-like
    allow_pickle : bool
        Members that are neither trees, linear models nor scikit-learn's networks can only be
        stored as pickles, which run code when they are loaded.

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
    ...     loaded = sb.load(f"{folder}/model.sbag")
    >>> bool((loaded.predict(X) == small.predict(X)).all())
    True
    """
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
    content = read_whole(path, start=MAGIC)
    if mmap and content.startswith(MAGIC):
        return _loaded(content, allow_pickle, mapped_file(path))
    return _loaded(content, allow_pickle)


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
    arrays: list[np.ndarray] = []

    def stored(named: Mapping[str, np.ndarray]) -> dict[str, int]:
        arrays.extend(named.values())
        return {name: len(arrays) - len(named) + i for i, name in enumerate(named)}

    header: dict[str, Any] = {
        "task": "regression" if model.classes is None else "classification",
        "n_features": model.n_features,
        "feature_names": None if model.feature_names is None else list(model.feature_names),
        "floor": model.floor,
        "allow_nan": model.allow_nan,
        "paths": list(model.paths),
        "groups": [],
        "calibrator": None,
        "classes": _labels(model.classes, stored),
    }
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
        header["groups"].append({"kind": group.kind, "settings": settings, "arrays": stored(named)})
    return _assembled(header, arrays)


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


def _loaded(content: bytes, allow_pickle: bool, mapped: Any = None) -> CompiledEnsemble:
    # Everything is checked in `content`, which nobody else can change; `mapped`, the same file in
    # memory shared with others, only lends linear models and networks their large arrays.
    with _one_clear_error():
        header, arrays, shared = _taken_apart(content, mapped)
        n_features = _whole(header["n_features"]) if header["n_features"] is not None else None
        classes = _read_labels(header["classes"], arrays)
        if (header["task"] == "classification") != (classes is not None):
            raise ArtifactError("its task and its classes disagree")
        n_outputs = 1 if classes is None else len(classes)
        used = [i for entry in header["groups"] for i in entry["arrays"].values()]
        if len(set(used)) < len(used):
            raise ArtifactError("its members share arrays")
        groups = tuple(_group(entry, arrays, shared, allow_pickle) for entry in header["groups"])
        paths = tuple(str(path) for path in header["paths"])
        if sum(group.n_members for group in groups) != len(paths):
            raise ArtifactError("its number of members is wrong")
        if not groups or any(g.n_outputs != n_outputs for g in groups):
            raise ArtifactError("its members vote for other classes")
        if n_features is not None and any(g.n_features > n_features for g in groups):
            raise ArtifactError("its members read features that do not exist")
        floor = float(header["floor"])
        if not 0.0 <= floor < 1.0:
            raise ArtifactError("its floor is not a share")
        calibrator = None
        if header["calibrator"] is not None:
            entry = header["calibrator"]
            named = _named(entry["arrays"], arrays)
            calibrator = rebuild_calibrator(str(entry["kind"]), named, n_outputs)
        return CompiledEnsemble(
            groups=groups,
            paths=paths,
            classes=classes,
            n_features=n_features,
            floor=floor,
            calibrator=calibrator,
            allow_nan=bool(header["allow_nan"]),
            feature_names=_feature_names(header.get("feature_names"), n_features),
        )


# -- bytes -----------------------------------------------------------------------------------


def _aligned(position: int) -> int:
    return -(-position // ALIGNMENT) * ALIGNMENT


def _assembled(header: dict[str, Any], arrays: list[np.ndarray]) -> bytes:
    arrays = [np.ascontiguousarray(a, dtype=a.dtype.newbyteorder("<")) for a in arrays]
    # Offsets count from the first array, so that they do not depend on the header's length.
    position = 0
    table: list[dict[str, Any]] = []
    for array in arrays:
        table.append({"dtype": array.dtype.str, "shape": list(array.shape), "offset": position})
        position = _aligned(position + array.nbytes)
    text = json.dumps({**header, "arrays": table}, allow_nan=False).encode()
    first = _aligned(PREAMBLE.size + len(text))
    body = io.BytesIO()
    body.write(text)
    for array, entry in zip(arrays, table, strict=True):
        body.seek(first - PREAMBLE.size + entry["offset"])
        body.write(array.tobytes())
    end = first + (table[-1]["offset"] + arrays[-1].nbytes if arrays else 0)
    content = body.getvalue().ljust(end - PREAMBLE.size, b"\0")
    digest = hashlib.sha256(content).digest()
    return PREAMBLE.pack(MAGIC, VERSION, len(text), end, digest) + content


def _taken_apart(
    content: bytes, mapped: Any
) -> tuple[dict[str, Any], list[np.ndarray], list[np.ndarray] | None]:
    """Header, arrays, and the same arrays in the mapped file, if there is one."""
    view = memoryview(content)
    if len(view) < PREAMBLE.size or view[: len(MAGIC)] != MAGIC:
        raise ArtifactError("it does not begin as a .sbag file does")
    _, version, n_header, n_file, digest = PREAMBLE.unpack(view[: PREAMBLE.size])
    if version != VERSION:
        raise ArtifactError(
            f"it is in version {version} of the format and this sparsebag reads {VERSION}"
        )
    if n_file != len(view):
        raise ArtifactError(f"it has {len(view)} bytes of {n_file}: it was cut or added to")
    if hashlib.sha256(view[PREAMBLE.size :]).digest() != digest:
        raise ArtifactError("its checksum is wrong: it was damaged")
    if n_header > min(MAX_HEADER, len(view) - PREAMBLE.size):
        raise ArtifactError("its header is too long")
    text = bytes(view[PREAMBLE.size : PREAMBLE.size + n_header])
    header = json.loads(text, parse_constant=_no_constant)
    if not isinstance(header, dict):
        raise ArtifactError("its header is no table")
    first = _aligned(PREAMBLE.size + n_header)
    arrays = [_array(entry, view, first) for entry in header["arrays"]]
    if sum(array.nbytes for array in arrays) > len(view):  # overlaps would multiply the work
        raise ArtifactError("its arrays overlap")
    if mapped is None:
        return header, arrays, None
    if len(mapped) != len(view):
        raise ArtifactError("it was cut or added to while it was read")
    return header, arrays, [_array(e, memoryview(mapped), first) for e in header["arrays"]]


def _array(entry: Mapping[str, Any], view: memoryview, first: int) -> np.ndarray:
    dtype, shape, offset = entry["dtype"], entry["shape"], _whole(entry["offset"])
    if dtype not in DTYPES or len(shape) > MAX_DIMENSIONS:
        raise ArtifactError("an array is of a type that models do not hold")
    sizes = tuple(_whole(size) for size in shape)
    count = math.prod(sizes)
    if offset % ALIGNMENT or first + offset + count * np.dtype(dtype).itemsize > len(view):
        raise ArtifactError("an array lies outside the file")
    if count == 0:
        return np.empty(sizes, dtype=dtype) if max(sizes) <= len(view) else _too_large()
    return np.frombuffer(view, dtype=dtype, count=count, offset=first + offset).reshape(sizes)


def _too_large() -> np.ndarray:
    raise ArtifactError("an array lies outside the file")


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**62:
        raise ArtifactError(f"{str(value)[:20]!r} stands where a whole number should")
    return value


def _no_constant(name: str) -> float:
    raise ArtifactError(f"its header holds {name}")


# -- parts of a model ------------------------------------------------------------------------


def _named(entry: Mapping[str, Any], arrays: list[np.ndarray]) -> dict[str, np.ndarray]:
    return {str(name): arrays[_whole(position)] for name, position in entry.items()}


def _group(
    entry: Mapping[str, Any],
    arrays: list[np.ndarray],
    shared: list[np.ndarray] | None,
    allow_pickle: bool,
) -> Group:
    named, kind = _named(entry["arrays"], arrays), str(entry["kind"])
    if shared is not None and kind in MAPPED_KINDS:
        mapped = _named(entry["arrays"], shared)
        # Copies of the small ones: a view would keep the whole content alive.
        named = {k: mapped[k] if a.nbytes >= MAPPED_BYTES else a.copy() for k, a in named.items()}
    if kind == OtherMembers.kind:
        if not allow_pickle:
            raise ArtifactError(
                "it holds members stored as a pickle, which runs code when it is loaded; if you "
                "made the file yourself, pass allow_pickle=True"
            )
        group = pickle.loads(named["pickle"].tobytes())
        if not isinstance(group, OtherMembers):
            raise ArtifactError("its pickle holds something else than members")
        return group
    if kind not in GROUPS:
        raise ArtifactError(f"it holds members of a kind, {kind[:20]!r}, that is not known")
    rebuilt: Group = GROUPS[kind].rebuild(_typed(kind, named), entry["settings"])
    return rebuilt


def _typed(kind: str, named: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays, once each is of the type its name asks for."""
    for name, array in named.items():
        whole = name == "class_columns"
        expected = GROUPS[kind].DTYPES.get(name, "") if hasattr(GROUPS[kind], "DTYPES") else ""
        expected = expected or ("<i4" if whole else "<f8")
        if array.dtype.str != expected:
            raise ArtifactError(f"its array {name[:20]!r} is of type {array.dtype.str}")
    return named


def _feature_names(names: Any, n_features: int | None) -> tuple[str, ...] | None:
    if names is None:
        return None
    if not all(isinstance(name, str) for name in names) or len(names) != n_features:
        raise ArtifactError("its names of features are not one string a feature")
    return tuple(names)


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


def _labels(classes: np.ndarray | None, stored: Any) -> Any:
    if classes is None:
        return None
    if classes.dtype.kind == "U" or all(isinstance(c, str) for c in classes.tolist()):
        return {"strings": [str(c) for c in classes]}
    if classes.dtype.kind == "u" and classes.max() > np.iinfo(np.int64).max:
        raise NotExportable("a label is above the largest 64-bit integer; use strings instead.")
    if classes.dtype.kind in "iuf":
        dtype = "<f8" if classes.dtype.kind == "f" else "<i8"
        return {"array": stored({"labels": classes.astype(dtype)})["labels"]}
    if classes.dtype.kind == "b":
        return {"array": stored({"labels": classes})["labels"]}
    raise NotExportable(
        f"labels of type {classes.dtype} cannot be stored; use strings, integers, floats or bools."
    )


def _read_labels(entry: Any, arrays: list[np.ndarray]) -> np.ndarray | None:
    if entry is None:
        return None
    if "strings" in entry:
        if not all(isinstance(label, str) for label in entry["strings"]):
            raise ArtifactError("a label is no string")
        if len(entry["strings"]) * max(map(len, entry["strings"]), default=0) > MAX_HEADER:
            raise ArtifactError("its labels are too long")  # an array pads all to the longest
        labels = np.array(entry["strings"], dtype=np.str_)
    else:
        labels = arrays[_whole(entry["array"])]
    if labels.ndim != 1 or len(labels) < 2:
        raise ArtifactError("its classes are not a list of labels")
    return labels


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
