"""The ``.sbag`` file, described in docs/file_format.md: a compiled ensemble without pickle.

Preamble, JSON header, arrays. Nothing in a file is trusted: lengths, types and shapes are checked
here, indices by the groups and the kernel that will follow them. Loading imports no scikit-learn.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import pickle
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from sparsebag.calibration.calibrator import Calibrator
from sparsebag.calibration.temperature import Temperature
from sparsebag.deploy.compiled import CompiledEnsemble, Group
from sparsebag.deploy.trees import FlatTrees
from sparsebag.deploy.verification import NotExportable, name_of
from sparsebag.deploy.votes import LayeredVotes, OtherMembers
from sparsebag.local.gate import LinearGate
from sparsebag.sources.whole_file import read_whole, write_whole

MAGIC = b"\x89SBAG\r\n\x1a"
"""Not text, and broken by transfers that translate line ends."""
VERSION = 2
PREAMBLE = struct.Struct("<8sIIQ32s")
"""Magic, version, length of the header, length of the file, SHA-256 of all that follows."""
ALIGNMENT = 8
"""Arrays start at multiples of this."""
WORTH_PACKING = 16
"""Bytes that compression must save; saying so in the header takes most of them."""
MAX_RATIO = 32
"""An array takes at most this many times its bytes in the file: a small file cannot fill memory."""
MAX_HEADER = 2**24
"""Bytes of JSON; a header lists arrays and labels, not data."""
DTYPES = ("<f4", "<f8", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "|b1")


HEADER = (
    *("task", "n_features", "feature_names", "categories", "classes", "floor"),
    *("allow_nan", "paths", "groups", "calibrator", "gate", "arrays"),
)
ABSENT = {"feature_names": None, "categories": None, "gate": None}
"""Keys that a header may leave out."""
CALIBRATORS: dict[str, Callable[..., Calibrator]] = {Temperature.kind: Temperature}
"""Kinds that files hold, to what makes them of their parameters, one number each."""


class ArtifactError(ValueError):
    """A file that is not a sound ``.sbag`` model.

    Examples
    --------
    >>> from sparsebag.deploy.artifact import ArtifactError, loads
    >>> try:
    ...     loads(b"something else")
    ... except ArtifactError as error:
    ...     print(error)
    this is not a valid model file: it does not start like a .sbag file.
    """


class Untrusted(ArtifactError):
    """A sound file that holds a pickle nobody has allowed."""


def save(model: Any, path: Any, *, allow_pickle: bool = False) -> None:
    """Write a compressed model to one file; a crash leaves the old file unchanged.

    Parameters
    ----------
    model : CompiledEnsemble or fitted sparsebag estimator, or a model around one
        Of a search, the best estimator is saved. A Pipeline or another wrapper is saved whole, with
        skops.
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
        from sparsebag.evidence.wrappers import wrapper_of

        if wrapper_of(model) is not None:
            from sparsebag.deploy.wrapped import save_wrapped

            return save_wrapped(model, path, allow_pickle=allow_pickle)
    if not isinstance(model, CompiledEnsemble):
        raise TypeError(
            f"save writes compressed ensembles, not a {type(model).__name__}; compress it first, "
            "small = sparsebag.compress(ensemble, X, y), then small.save(path)."
        )
    write_whole(path, dumps(model, allow_pickle=allow_pickle))


def load(path: Any, *, allow_pickle: bool = False, trusted: Sequence[str] = ()) -> Any:
    """Load a saved model. An ensemble predicts without scikit-learn.

    Parameters
    ----------
    path : path-like
    allow_pickle : bool
        Whether members stored as pickles may be loaded. A pickle can run any code: only for
        files you made yourself.
    trusted : sequence of str
        For a Pipeline: types to load in addition to those that skops trusts.

    Returns
    -------
    CompiledEnsemble, or a Pipeline or other wrapper

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

    is_file = isinstance(path, (str, os.PathLike)) and os.path.isfile(path)  # no pipe, no device
    if is_file and zipfile.is_zipfile(path):
        from sparsebag.deploy.wrapped import load_wrapped  # it needs scikit-learn, and this module

        return load_wrapped(path, allow_pickle=allow_pickle, trusted=trusted)

    def check(first: bytes, n_bytes: int) -> None:
        with _one_clear_error():
            checked_preamble(first, n_bytes)

    content = read_whole(path, n_first=PREAMBLE.size, check=check)
    return loads(content, allow_pickle=allow_pickle)


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
        "floor": model.floor,
        "allow_nan": model.allow_nan,
        "paths": [[kind, len(list(run))] for kind, run in groupby(model.paths)],
        "groups": [],
        "calibrator": None,
        "classes": _labels_entry(model.classes, stored),
    }
    if model.feature_names is not None:
        header["feature_names"] = list(model.feature_names)
    if model.categories:
        header["categories"] = {name: list(texts) for name, texts in model.categories.items()}
    if model.calibrator is not None:
        if model.calibrator.kind not in CALIBRATORS:
            raise NotExportable(
                f"a calibrator of your own ({name_of(model.calibrator)}) cannot be stored in a "
                f"file; use one of {', '.join(sorted(CALIBRATORS))}, or pickle the estimator."
            )
        params = {k: np.asarray(v, dtype="<f8") for k, v in model.calibrator.params.items()}
        header["calibrator"] = {"kind": model.calibrator.kind, "arrays": stored(params)}
    for group in model.groups:
        if isinstance(group, OtherMembers):
            named = {"pickle": np.frombuffer(_pickled(group, allow_pickle), dtype=np.uint8)}
            settings: dict[str, Any] = {}
        else:
            named, settings = group.arrays(), group.settings()
        entry = {"kind": group.kind, "settings": settings, "arrays": stored(named)}
        header["groups"].append(entry)
    if model.gate is not None:
        header["gate"] = {"kind": "linear", "arrays": stored(model.gate.arrays())}
    return assembled(header, [stored_array(array) for array in arrays])


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
    with _one_clear_error():
        header, arrays = taken_apart(content)
        header = dict(with_keys({**ABSENT, **header}, HEADER))
        n_features = None if header["n_features"] is None else whole(header["n_features"])
        classes = _labels(header["classes"], arrays)
        if header["task"] != ("regression" if classes is None else "classification"):
            raise ArtifactError("its task and its classes disagree")
        n_outputs = 1 if classes is None else len(classes)
        _check_used_once(header)
        groups = tuple(_group(entry, arrays, allow_pickle) for entry in listed(header["groups"]))
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
            calibrator=_calibrator(header["calibrator"], arrays),
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
        raise ArtifactError("its members have different classes")
    if n_features is not None:
        of_arrays = [g for g in groups if not isinstance(g, OtherMembers)]
        if any(g.n_features != n_features for g in of_arrays):
            raise ArtifactError("its members read different numbers of features")
        if any(g.n_features > n_features for g in groups):
            raise ArtifactError("its members read features that do not exist")
    most = 1e150  # sums of leaves stay far from where float64 ends
    for group in groups:
        if isinstance(group, FlatTrees):
            largest = float(np.abs(group.values).max(initial=0.0)) * group.n_members
            if not largest <= most:
                raise ArtifactError("its leaf values are too large to sum")
            sound = 0.0 < group.total <= most
        else:
            total = float(np.sum(group.weights))
            sound = bool(np.all(group.weights >= 0.0)) and 0.0 < total <= most
        if is_vote and not sound:
            raise ArtifactError("its members' weights do not give probabilities")


def _paths(paths: Any, groups: tuple[Group, ...]) -> tuple[str, ...]:
    found: Counter[str] = Counter()
    members: Counter[str] = Counter()
    for kind, count in listed(paths):
        found[string(kind)] += whole(count)
    for group in groups:
        members[group.kind] += group.n_members
    if found != members:
        raise ArtifactError("its paths do not match its members")
    return tuple(kind for kind, count in paths for _ in range(count))


def _calibrator(entry: Any, arrays: list[np.ndarray]) -> Calibrator | None:
    if entry is None:
        return None
    entry = with_keys(entry, ("kind", "arrays"))
    kind, named = string(entry["kind"]), _named(entry["arrays"], arrays)
    if kind not in CALIBRATORS:
        raise ArtifactError(f"calibrator {kind[:20]!r} is not known to this version")
    params = {name: number(*values.tolist()) for name, values in _typed(kind, named).items()}
    calibrator = CALIBRATORS[kind](**params)
    with_keys(params, tuple(calibrator.params))
    return calibrator


def _gate(entry: Any, arrays: list[np.ndarray], groups: tuple[Group, ...]) -> LinearGate | None:
    if entry is None:
        return None
    entry = with_keys(entry, ("kind", "arrays"))
    if string(entry["kind"]) != "linear":
        raise ArtifactError(f"it holds a gate of unknown kind {entry['kind'][:20]!r}")
    named = _named(with_keys(entry["arrays"], LinearGate.ARRAYS), arrays)
    for group in groups:  # with weights of their own scores would be no probabilities
        own = group.total / group.n_members if isinstance(group, FlatTrees) else group.weights
        if np.any(np.asarray(own) != 1.0):
            raise ArtifactError("it has a gate, and fixed weights as well")
    return LinearGate(**_typed("gate", named))


def _group(entry: Any, arrays: list[np.ndarray], allow_pickle: bool) -> Group:
    entry = with_keys(entry, ("kind", "settings", "arrays"))
    named, kind = _named(entry["arrays"], arrays), string(entry["kind"])
    if kind == OtherMembers.kind:
        with_keys(entry["settings"], ())
        if not allow_pickle:
            raise Untrusted(
                "this file holds members stored as a pickle, which runs code when it is loaded; if "
                "you made it yourself, pass allow_pickle=True."
            )
        return _unpickled(with_keys(named, ("pickle",))["pickle"])
    made = next((each for each in (FlatTrees, LayeredVotes) if kind in each.SETTINGS), None)
    if made is None:
        raise ArtifactError(f"it holds members of unknown kind {kind[:20]!r}")
    types = made.SETTINGS[kind]
    given = with_keys(entry["settings"], tuple(types))
    settings = {name: SETTING[type_](given[name]) for name, type_ in types.items()}
    rebuilt: FlatTrees | LayeredVotes = made.rebuild(_typed(kind, named), settings)
    with_keys(named, FlatTrees.STORED if isinstance(rebuilt, FlatTrees) else rebuilt.arrays())
    return rebuilt


def _unpickled(stored: np.ndarray) -> OtherMembers:
    try:
        group = pickle.loads(stored.tobytes())
    except Exception as error:  # a damaged pickle raises anything
        raise ArtifactError(f"its pickle cannot be read ({type(error).__name__})") from None
    if not isinstance(group, OtherMembers):
        raise ArtifactError("its pickle does not hold members")
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
        raise ArtifactError("its feature names are not one string per feature")
    return tuple(names)


def _categories(entry: Any, names: Any) -> dict[str, tuple[str, ...]] | None:
    if entry is None:
        return None
    if not isinstance(entry, dict) or not set(entry) <= set(names or ()):
        raise ArtifactError("its text columns are not among its columns")
    found = {name: tuple(string(t) for t in listed(texts)) for name, texts in entry.items()}
    if any(len(set(texts)) < len(texts) for texts in found.values()):
        raise ArtifactError("a text column lists a text twice")
    return found


def _pickled(group: OtherMembers, allow_pickle: bool) -> bytes:
    if not allow_pickle:
        names = ", ".join(
            sorted({type(getattr(m, "estimator", m)).__name__ for m in group.members})
        )
        raise NotExportable(
            f"members such as {names} can only be stored as a pickle, which runs code when it is "
            "loaded; pass allow_pickle=True here and to load if you trust the file."
        )
    return pickle.dumps(group, protocol=5)


def _labels_entry(classes: np.ndarray | None, stored: Any) -> Any:
    """What a header says of the classes; ``stored`` puts arrays into the file."""
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


def _labels(entry: Any, arrays: list[np.ndarray]) -> np.ndarray | None:
    """The classes a header names, checked; None where there are none."""
    if entry is None:
        return None
    if "strings" in entry:
        strings = [string(label) for label in listed(with_keys(entry, ("strings",))["strings"])]
        if len(strings) * max(map(len, strings), default=0) > MAX_HEADER:
            raise ArtifactError("its labels are too long")  # an array pads all to the longest
        labels = np.array(strings, dtype=np.str_)
    else:
        labels = arrays[whole(with_keys(entry, ("array",))["array"])]
    if labels.ndim != 1 or len(labels) < 2:
        raise ArtifactError("its classes are not a list of labels")
    if len(np.unique(labels)) < len(labels):
        raise ArtifactError("it lists a class twice")
    return labels


@contextlib.contextmanager
def _one_clear_error() -> Iterator[None]:
    """Whatever a hostile header makes Python stumble over, the caller sees one kind of error."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        told = f"its header is malformed ({type(error).__name__})"
        raise ArtifactError(f"this is not a valid model file: {told}.") from None
    except Untrusted:
        raise
    except ValueError as error:  # ours, and those of the groups
        told = str(error).rstrip(".")
        raise ArtifactError(f"this is not a valid model file: {told}.") from None


# -- bytes ------------------------------------------------------------------------------------


StoredArray = tuple[list[Any], bytes]
"""What the header says of an array, and its bytes."""


def stored_array(array: np.ndarray) -> StoredArray:
    """What the header says of an array, and its bytes: compressed where that pays."""
    array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    entry = [array.dtype.str, list(array.shape)]
    if array.nbytes > WORTH_PACKING:
        plain, steps = _deflated(array, delta=False), _deflated(array, delta=True)
        content = min(plain, steps, key=len)
        if len(content) + WORTH_PACKING <= array.nbytes:
            return [*entry, len(content), content is steps], content
    return entry, array.tobytes()


def assembled(header: dict[str, Any], arrays: list[StoredArray]) -> bytes:
    """The bytes of a file with this header, of what JSON can hold, and these arrays."""
    table = {"arrays": [entry for entry, _ in arrays]}
    text = json.dumps({**header, **table}, allow_nan=False, separators=(",", ":")).encode()
    pieces = [text, *(content for _, content in arrays)]
    content = b"".join(piece.ljust(_aligned(len(piece)), b"\0") for piece in pieces)
    digest = hashlib.sha256(content).digest()
    return PREAMBLE.pack(MAGIC, VERSION, len(text), PREAMBLE.size + len(content), digest) + content


def checked_preamble(first: Any, n_bytes: int) -> tuple[int, bytes]:
    """Length of the header and checksum, from a file's first bytes; its size is checked."""
    if len(first) < PREAMBLE.size or first[: len(MAGIC)] != MAGIC:
        raise ArtifactError("it does not start like a .sbag file")
    _, version, n_header, n_file, digest = PREAMBLE.unpack(first)
    if version != VERSION:
        todo = "save the model again" if version < VERSION else "update sparsebag"
        raise ArtifactError(
            f"it is in version {version} of the format and this sparsebag reads {VERSION}; {todo}"
        )
    if n_file != n_bytes:
        raise ArtifactError(f"it has {n_bytes} bytes instead of {n_file}")
    return n_header, digest


def taken_apart(content: bytes) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Header and arrays of the bytes of a file."""
    view = memoryview(content)
    n_header, digest = checked_preamble(view[: PREAMBLE.size], len(view))
    if hashlib.sha256(view[PREAMBLE.size :]).digest() != digest:
        raise ArtifactError("its checksum is wrong: it is damaged")
    if n_header > min(MAX_HEADER, len(view) - PREAMBLE.size):
        raise ArtifactError("its header is too long")
    # Decoded here: the JSON reader would guess UTF-16 and UTF-32 too.
    text = str(view[PREAMBLE.size : PREAMBLE.size + n_header], "utf-8")
    header = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_distinct)
    if not isinstance(header, dict):
        raise ArtifactError("its header is not an object")
    arrays = []
    start = _aligned(PREAMBLE.size + n_header)
    for entry in listed(header["arrays"]):
        array, n_bytes = _array(entry, view, start)
        arrays.append(array)
        start = _aligned(start + n_bytes)
    if start != len(view):
        raise ArtifactError("its arrays do not fill the file")
    return header, arrays


def _aligned(position: int) -> int:
    return -(-position // ALIGNMENT) * ALIGNMENT


def _array(entry: Any, view: memoryview, start: int) -> tuple[np.ndarray, int]:
    """An array of a file, and how many bytes it takes there."""
    dtype, shape, *packed = listed(entry)
    sizes = [whole(size) for size in listed(shape)]
    if string(dtype) not in DTYPES or len(sizes) > 3:
        raise ArtifactError("an array has an unsupported type")
    count, itemsize = math.prod(sizes), np.dtype(dtype).itemsize
    n_bytes = whole(packed[0]) if packed else count * itemsize
    if start + n_bytes > len(view) or (count == 0 and max(sizes) > len(view)):
        raise ArtifactError("an array lies outside the file")
    if packed:
        _, delta = packed
        numbers = _inflated(view[start : start + n_bytes], count, itemsize, delta=flag(delta))
        return numbers.view(dtype).reshape(sizes), n_bytes
    if count == 0:
        return np.empty(sizes, dtype=dtype), 0
    return np.frombuffer(view, dtype, count, start).reshape(sizes), n_bytes


def _deflated(array: np.ndarray, *, delta: bool) -> bytes:
    """Its numbers or their differences, all first bytes before all second ones, compressed."""
    numbers = array.reshape(-1).view(f"<u{array.itemsize}")
    if delta:  # modulo 2**bits, so that sums are exact
        numbers = np.diff(numbers, prepend=numbers.dtype.type(0))
    planes = numbers.view(np.uint8).reshape(-1, array.itemsize).T.tobytes()
    found = []
    for strategy in (zlib.Z_DEFAULT_STRATEGY, zlib.Z_FILTERED):  # the latter: no short matches
        # Level 9 takes up to seven times as long and saves at most 1.5 %; -15: no checksum.
        coder = zlib.compressobj(7, zlib.DEFLATED, -15, zlib.DEF_MEM_LEVEL, strategy)
        found.append(coder.compress(planes) + coder.flush())
    return min(found, key=len).ljust(-(-array.nbytes // MAX_RATIO), b"\0")


def _inflated(content: memoryview, count: int, itemsize: int, *, delta: bool) -> np.ndarray:
    n_bytes = count * itemsize
    if not 0 < n_bytes <= MAX_RATIO * len(content):
        raise ArtifactError("an array is larger than its compressed size allows")
    coder = zlib.decompressobj(-15)
    try:
        planes = coder.decompress(content, n_bytes + 1)
    except zlib.error:
        raise ArtifactError("an array cannot be decompressed") from None
    if len(planes) != n_bytes or not coder.eof:
        raise ArtifactError("an array has the wrong length")
    numbers = np.frombuffer(planes, np.uint8).reshape(itemsize, count).T.copy()
    unsigned = numbers.reshape(-1).view(f"<u{itemsize}")
    return np.cumsum(unsigned, dtype=unsigned.dtype) if delta else unsigned


def _no_constant(name: str) -> float:
    raise ArtifactError(f"its header holds {name}")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ArtifactError("its header has a duplicate key")
    return found


# -- values of a header: what Python would take for another type is refused --------------------


def _checked(value: Any, holds: bool, what: str) -> Any:
    if not holds:
        raise ArtifactError(f"{str(value)[:20]!r} is not {what}")
    return value


def whole(value: Any) -> int:
    """A whole number, not negative."""
    holds = type(value) is int and 0 <= value < 2**62
    return int(_checked(value, holds, "a whole number"))


def number(value: Any) -> float:
    """A finite number."""
    holds = type(value) in (int, float) and math.isfinite(value)
    return float(_checked(value, holds, "a finite number"))


def flag(value: Any) -> bool:
    """True or false."""
    return bool(_checked(value, type(value) is bool, "true or false"))


def string(value: Any) -> str:
    """A string."""
    return str(_checked(value, type(value) is str, "a string"))


def listed(value: Any) -> list[Any]:
    """A list."""
    return list(_checked(value, type(value) is list, "a list"))


def with_keys(value: Any, keys: Iterable[str]) -> Mapping[str, Any]:
    """A table with these keys and no others."""
    if type(value) is not dict or set(value) != set(keys):
        raise ArtifactError(f"its header lacks an object with {', '.join(keys)}")
    return value


SETTING: dict[type, Callable[[Any], Any]] = {int: whole, float: number, bool: flag, str: string}
