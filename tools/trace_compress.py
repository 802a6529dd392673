"""Which modules a call of `sparsebag.compress` walks through, in order, and how deep.

python tools/trace_compress.py
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from sklearn.datasets import make_friedman1
from sklearn.ensemble import RandomForestClassifier

import sparsebag

HOME = Path(sparsebag.__file__).parent
MODULES, DEPTH = 30, 10
"""What one engineer can follow."""
WALK = ["evidence", "judge", "student", "deploy"]
"""The rehearsal says how large a student to make; it makes students of its own."""


def module_of(frame: FrameType) -> str | None:
    """The module of sparsebag that a frame runs in, as a path."""
    path = frame.f_code.co_filename
    if not path.startswith(str(HOME)) or frame.f_code.co_name.startswith("<"):
        return None
    return str(Path(path).relative_to(HOME).with_suffix(""))


class Trace:
    """Modules in the order they are first called in, folders as the pipeline calls them.

    Methods of the objects that flow along (a pool, a curve) are not counted as calls of a folder.
    """

    def __init__(self) -> None:
        self.modules: list[str] = []
        self.folders: list[str] = []
        self.deepest: list[str] = []

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        """Called by Python at every call and return."""
        here = module_of(frame)
        if event != "call" or here is None:
            return
        if here not in self.modules:
            self.modules.append(here)
        stack, above = [here], frame.f_back
        while above is not None:
            found = module_of(above)
            if found is not None:
                stack.append(found)
            above = above.f_back
        if len(stack) > len(self.deepest):
            self.deepest = stack[::-1]
        folder, code = here.split("/")[0], frame.f_code
        is_method = code.co_varnames[:1] in (("self",), ("cls",)) and code.co_name != "__init__"
        from_pipeline = "/" in here and stack[1:2] == ["pipeline"]
        if from_pipeline and not is_method and self.folders[-1:] != [folder]:
            self.folders.append(folder)


def main() -> None:
    """Trace the default call on a forest of 100 trees that it prunes and calibrates."""
    X, signal = make_friedman1(1500, noise=3.0, random_state=0)
    y = signal > 18.0
    forest = RandomForestClassifier(100, random_state=0).fit(X, y)
    small = sparsebag.compress(forest, X, y)  # imports are done now
    assert small.n_nodes_ < 0.5 * small.selection_.before.nodes
    trace = Trace()
    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        sparsebag.compress(forest, X, y)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    print(f"{len(trace.modules)} modules (at most {MODULES}): {', '.join(trace.modules)}")
    print(f"{len(trace.deepest)} calls deep (at most {DEPTH}): {' > '.join(trace.deepest)}")
    print(f"the pipeline's folders (should be {', '.join(WALK)}): {', '.join(trace.folders)}")
    if len(trace.modules) > MODULES or len(trace.deepest) > DEPTH or trace.folders != WALK:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
