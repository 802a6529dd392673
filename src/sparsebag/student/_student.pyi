from numpy import ndarray

class Trees:
    def __init__(
        self,
        left: ndarray,
        right: ndarray,
        feature: ndarray,
        threshold: ndarray,
        missing_left: ndarray,
        offset: ndarray,
        n_features: int,
        /,
    ) -> None: ...
    def route(self, X: ndarray, leaf: ndarray, n_threads: int, /) -> None: ...

def add_rows(
    leaf: ndarray,
    weight: ndarray,
    values: ndarray,
    total_weight: ndarray,
    total: ndarray,
    n_threads: int,
    /,
) -> None: ...
def add_votes(leaf: ndarray, value: ndarray, vote: ndarray, n_threads: int, /) -> None: ...
def add_up(left: ndarray, right: ndarray, total: ndarray, /) -> None: ...
def shrink_to_parent(
    left: ndarray,
    right: ndarray,
    mass: ndarray,
    count: ndarray,
    offset: ndarray,
    shrink: float,
    value: ndarray,
    /,
) -> None: ...
def prune(
    left: ndarray, right: ndarray, offset: ndarray, lost: ndarray, most: int, ends: ndarray, /
) -> int: ...
def prune_jointly(
    leaf: ndarray,
    weight: ndarray,
    goal: ndarray,
    left: ndarray,
    right: ndarray,
    offset: ndarray,
    start: ndarray,
    ridge: float,
    clipped: bool,
    most: int,
    value: ndarray,
    ends: ndarray,
    /,
) -> None: ...
def backfit(
    leaf: ndarray,
    weight: ndarray,
    offset: ndarray,
    goal: ndarray,
    ridge: float,
    sweeps: int,
    clipped: bool,
    value: ndarray,
    /,
) -> None: ...
