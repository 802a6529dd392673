"""Warnings that point at the caller's line, however deep in the library they are raised."""

from __future__ import annotations

import os
import re
import sys
import warnings
from types import FrameType

LIBRARY = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
SEARCHES = f"{os.sep}sklearn{os.sep}model_selection{os.sep}"
"""Where scikit-learn's searches and cross-validations fit, hundreds of times."""

_said_in_a_search: set[tuple[type[Warning], str]] = set()


def warn_caller(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line outside this library that called it.

    A grid search fits hundreds of times, and each fit clears Python's own memory of what was said;
    there a text is said once, whatever its figures, and a kind of warning once, whatever its text.

    Parameters
    ----------
    text : str
    category : type of Warning

    Examples
    --------
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_caller("a few rows decide alone.")
    >>> str(caught[0].message)
    'a few rows decide alone.'
    """
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(LIBRARY):
        frame, level = frame.f_back, level + 1
    if _is_in_a_search(frame):
        # Every fold has figures of its own; a kind of ours says one thing, whatever its words.
        said = category, re.sub(r"[-+\d.]+", "#", text) if category is UserWarning else ""
        if said in _said_in_a_search:
            return
        _said_in_a_search.add(said)
    warnings.warn(text, category, stacklevel=level)


def _is_in_a_search(frame: FrameType | None) -> bool:
    while frame is not None and SEARCHES not in frame.f_code.co_filename:
        frame = frame.f_back
    return frame is not None
