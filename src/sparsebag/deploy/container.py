"""The container of a ``.sbag`` file: preamble, JSON header, raw arrays; nothing in it is trusted.

docs/file_format.md describes it. What the header and the arrays mean is for
`sparsebag.deploy.artifact`.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

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


class ArtifactError(ValueError):
    """A file that is not a sound ``.sbag`` model.

    Examples
    --------
    >>> from sparsebag.deploy.artifact import loads
    >>> try:
    ...     loads(b"something else")
    ... except ArtifactError as error:
    ...     print(error)
    this is not a sound model file: it does not begin as a .sbag file does.
    """


# -- bytes -----------------------------------------------------------------------------------


def assembled(header: dict[str, Any], arrays: list[np.ndarray]) -> bytes:
    """The bytes of a file.

    Parameters
    ----------
    header : dict
        What JSON can hold.
    arrays : list of ndarray

    Returns
    -------
    bytes

    Examples
    --------
    >>> header, arrays, _ = taken_apart(assembled({"a": 1}, [np.ones(2)]))
    >>> header["a"], arrays[0].tolist()
    (1, [1.0, 1.0])
    """
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


def checked_preamble(first: Any, n_bytes: int) -> tuple[int, bytes]:
    """What a file's first bytes say of the rest, checked against its size.

    Parameters
    ----------
    first : bytes
        As many as the preamble has.
    n_bytes : int
        Of the whole file.

    Returns
    -------
    int, bytes
        Length of the header, and checksum.
    """
    if len(first) < PREAMBLE.size or first[: len(MAGIC)] != MAGIC:
        raise ArtifactError("it does not begin as a .sbag file does")
    _, version, n_header, n_file, digest = PREAMBLE.unpack(first)
    if version != VERSION:
        raise ArtifactError(
            f"it is in version {version} of the format and this sparsebag reads {VERSION}"
        )
    if n_file != n_bytes:
        raise ArtifactError(f"it has {n_bytes} bytes of {n_file}: it was cut or added to")
    return n_header, digest


def taken_apart(
    content: bytes, mapped: Any = None
) -> tuple[dict[str, Any], list[np.ndarray], list[np.ndarray] | None]:
    """Header, arrays, and the same arrays in the mapped file, if there is one.

    Parameters
    ----------
    content : bytes
    mapped : mmap, optional
        The same file; nothing is read from it here.

    Returns
    -------
    dict, list of ndarray, list of ndarray or None
    """
    view = memoryview(content)
    n_header, digest = checked_preamble(view[: PREAMBLE.size], len(view))
    if hashlib.sha256(view[PREAMBLE.size :]).digest() != digest:
        raise ArtifactError("its checksum is wrong: it was damaged")
    if n_header > min(MAX_HEADER, len(view) - PREAMBLE.size):
        raise ArtifactError("its header is too long")
    # Decoded here: the JSON reader would guess UTF-16 and UTF-32 too.
    text = str(view[PREAMBLE.size : PREAMBLE.size + n_header], "utf-8")
    header = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_distinct)
    if not isinstance(header, dict):
        raise ArtifactError("its header is no table")
    first = _aligned(PREAMBLE.size + n_header)
    table = listed(header["arrays"])
    arrays = [_array(entry, view, first) for entry in table]
    _check_apart(table, arrays)
    if mapped is None:
        return header, arrays, None
    if len(mapped) != len(view):
        raise ArtifactError("it was cut or added to while it was read")
    return header, arrays, [_array(entry, memoryview(mapped), first) for entry in table]


def _aligned(position: int) -> int:
    return -(-position // ALIGNMENT) * ALIGNMENT


def _array(entry: Any, view: memoryview, first: int) -> np.ndarray:
    entry = with_keys(entry, ("dtype", "shape", "offset"))
    dtype, offset = string(entry["dtype"]), whole(entry["offset"])
    sizes = tuple(whole(size) for size in listed(entry["shape"]))
    if dtype not in DTYPES or len(sizes) > MAX_DIMENSIONS:
        raise ArtifactError("an array is of a type that models do not hold")
    count = math.prod(sizes)
    outside = first + offset + count * np.dtype(dtype).itemsize > len(view)
    if offset % ALIGNMENT or outside or max(sizes, default=0) > len(view):
        raise ArtifactError("an array lies outside the file")
    if count == 0:
        return np.empty(sizes, dtype=dtype)
    return np.frombuffer(view, dtype=dtype, count=count, offset=first + offset).reshape(sizes)


def _check_apart(table: list[Any], arrays: list[np.ndarray]) -> None:
    spans = sorted(
        (entry["offset"], entry["offset"] + array.nbytes)
        for entry, array in zip(table, arrays, strict=True)
        if array.nbytes
    )
    if any(after[0] < before[1] for before, after in itertools.pairwise(spans)):
        raise ArtifactError("its arrays overlap")


def _no_constant(name: str) -> float:
    raise ArtifactError(f"its header holds {name}")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ArtifactError("its header says a thing twice")
    return found


# -- values of a header: what Python would take for another type is refused --------------------


def whole(value: Any) -> int:
    """A whole number, not negative."""
    if type(value) is not int or not 0 <= value < 2**62:
        raise ArtifactError(f"{str(value)[:20]!r} stands where a whole number should")
    return value


def number(value: Any) -> float:
    """A finite number."""
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ArtifactError(f"{str(value)[:20]!r} stands where a finite number should")
    return float(value)


def flag(value: Any) -> bool:
    """True or false."""
    if type(value) is not bool:
        raise ArtifactError(f"{str(value)[:20]!r} stands where true or false should")
    return value


def string(value: Any) -> str:
    """A string."""
    if type(value) is not str:
        raise ArtifactError(f"{str(value)[:20]!r} stands where a string should")
    return value


def listed(value: Any) -> list[Any]:
    """A list."""
    if type(value) is not list:
        raise ArtifactError(f"{str(value)[:20]!r} stands where a list should")
    return value


def with_keys(value: Any, keys: tuple[str, ...]) -> Mapping[str, Any]:
    """A table with these keys and no others."""
    if type(value) is not dict or set(value) != set(keys):
        raise ArtifactError(f"its header has no table of {', '.join(keys)}, where one should be")
    return value
