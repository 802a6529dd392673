"""The container of a ``.sbag`` file: preamble, JSON header, arrays; nothing in it is trusted.

docs/file_format.md describes it. What the header and the arrays mean is for
`sparsebag.deploy.artifact`.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

MAGIC = b"\x89SBAG\r\n\x1a"
"""Not text, and broken by transfers that translate line ends."""
VERSION = 2
PREAMBLE = struct.Struct("<8sIIQ32s")
"""Magic, version, length of the header, length of the file, SHA-256 of all that follows."""
ALIGNMENT = 8
"""Arrays start at multiples of this, so that they can be mapped as they are."""
WORTH_PACKING = 16
"""Bytes that compression must save; saying so in the header takes most of them."""
LEVEL = 7
"""Of zlib; the highest takes up to seven times as long and saves at most 1.5 % of a file."""
MAX_RATIO = 32
"""An array takes at most this many times its bytes in the file: a small file cannot fill memory."""
DEFLATE = -15
"""zlib's name of a stream without a checksum of its own; the file has one."""
MAX_HEADER = 2**24
"""Bytes of JSON; a header lists arrays and labels, not data."""
MAX_DIMENSIONS = 3
DTYPES = ("<f4", "<f8", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "|b1")


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


StoredArray = tuple[list[Any], bytes]
"""What the header says of an array, and its bytes."""


def stored_array(array: np.ndarray, *, pack: bool = True) -> StoredArray:
    """An array as a file holds it.

    Parameters
    ----------
    array : ndarray
    pack : bool
        Whether to compress it, where that pays; else it can be mapped.

    Returns
    -------
    list, bytes
        What the header says of it, and its bytes.
    """
    array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    entry = [array.dtype.str, list(array.shape)]
    if pack and array.nbytes > WORTH_PACKING:
        plain, steps = _deflated(array, delta=False), _deflated(array, delta=True)
        content = min(plain, steps, key=len)
        if len(content) + WORTH_PACKING <= array.nbytes:
            return [*entry, len(content), content is steps], content
    return entry, array.tobytes()


def assembled(header: dict[str, Any], arrays: list[StoredArray]) -> bytes:
    """The bytes of a file.

    Parameters
    ----------
    header : dict
        What JSON can hold.
    arrays : list of (list, bytes)
        From `stored_array`.

    Returns
    -------
    bytes

    Examples
    --------
    >>> header, arrays, _ = taken_apart(assembled({"a": 1}, [stored_array(np.ones(2))]))
    >>> header["a"], arrays[0].tolist()
    (1, [1.0, 1.0])
    """
    table = {"arrays": [entry for entry, _ in arrays]}
    text = json.dumps({**header, **table}, allow_nan=False, separators=(",", ":")).encode()
    pieces = [text, *(content for _, content in arrays)]
    content = b"".join(piece.ljust(_aligned(len(piece)), b"\0") for piece in pieces)
    digest = hashlib.sha256(content).digest()
    return PREAMBLE.pack(MAGIC, VERSION, len(text), PREAMBLE.size + len(content), digest) + content


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
        todo = "save the model again" if version < VERSION else "update sparsebag"
        raise ArtifactError(
            f"it is in version {version} of the format and this sparsebag reads {VERSION}; {todo}"
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
    arrays, shared = [], []
    if mapped is not None and len(mapped) != len(view):
        raise ArtifactError("it was cut or added to while it was read")
    start = _aligned(PREAMBLE.size + n_header)
    for entry in listed(header["arrays"]):
        array, n_bytes = _array(entry, view, start)
        arrays.append(array)
        if mapped is not None and n_bytes and len(entry) == 2:
            array = np.frombuffer(mapped, array.dtype, array.size, start).reshape(array.shape)
        shared.append(array)
        start = _aligned(start + n_bytes)
    if start != len(view):
        raise ArtifactError("its arrays do not fill the file")
    return header, arrays, None if mapped is None else shared


def _aligned(position: int) -> int:
    return -(-position // ALIGNMENT) * ALIGNMENT


def _array(entry: Any, view: memoryview, start: int) -> tuple[np.ndarray, int]:
    """An array of a file, and how many bytes it takes there."""
    dtype, shape, *packed = listed(entry)
    sizes = [whole(size) for size in listed(shape)]
    if string(dtype) not in DTYPES or len(sizes) > MAX_DIMENSIONS:
        raise ArtifactError("an array is of a type that models do not hold")
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
        coder = zlib.compressobj(LEVEL, zlib.DEFLATED, DEFLATE, zlib.DEF_MEM_LEVEL, strategy)
        found.append(coder.compress(planes) + coder.flush())
    return min(found, key=len).ljust(-(-array.nbytes // MAX_RATIO), b"\0")


def _inflated(content: memoryview, count: int, itemsize: int, *, delta: bool) -> np.ndarray:
    n_bytes = count * itemsize
    if not 0 < n_bytes <= MAX_RATIO * len(content):
        raise ArtifactError("an array is larger than its compressed bytes may make it")
    coder = zlib.decompressobj(DEFLATE)
    try:
        planes = coder.decompress(content, n_bytes + 1)
    except zlib.error:
        raise ArtifactError("an array cannot be decompressed") from None
    if len(planes) != n_bytes or not coder.eof:
        raise ArtifactError("an array is not as long as it should be")
    numbers = np.frombuffer(planes, np.uint8).reshape(itemsize, count).T.copy()
    unsigned = numbers.reshape(-1).view(f"<u{itemsize}")
    return np.cumsum(unsigned, dtype=unsigned.dtype) if delta else unsigned


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
