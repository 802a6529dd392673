"""Class labels in a model file: strings in the header, or an array."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsebag.deploy.container import (
    MAX_HEADER,
    ArtifactError,
    listed,
    string,
    whole,
    with_keys,
)
from sparsebag.deploy.not_exportable import NotExportable


def labels_entry(classes: np.ndarray | None, stored: Any) -> Any:
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


def read_labels(entry: Any, arrays: list[np.ndarray]) -> np.ndarray | None:
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
        raise ArtifactError("it has a class twice")
    return labels
