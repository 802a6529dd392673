from numpy import ndarray

class Gate:
    def __init__(
        self,
        mean: ndarray,
        scale: ndarray,
        down: ndarray,
        offset: ndarray,
        up: ndarray,
        base: ndarray,
        clip: float,
        /,
    ) -> None: ...
    @property
    def nbytes(self) -> int: ...
    def weigh(self, X: ndarray, weights: ndarray, /) -> None: ...

class Forest:
    def __init__(
        self,
        threshold: ndarray,
        feature: ndarray,
        missing_left: ndarray,
        children: ndarray,
        roots: ndarray,
        values: ndarray,
        n_features: int,
        complement: bool,
        total: float,
        /,
    ) -> None: ...
    @property
    def nbytes(self) -> int: ...
    def predict(
        self,
        X: ndarray,
        out: ndarray,
        n_threads: int,
        allow_nan: bool,
        allow_inf: bool,
        vote: bool,
        floor: float,
        inverse_temperature: float,
        share: float,
        /,
    ) -> None: ...
    def predict_one(
        self,
        row: ndarray,
        out: ndarray,
        allow_nan: bool,
        vote: bool,
        floor: float,
        inverse_temperature: float,
        share: float,
        /,
    ) -> None: ...
    def predict_gated(
        self,
        gate: Gate,
        first: int,
        X: ndarray,
        out: ndarray,
        n_threads: int,
        allow_nan: bool,
        allow_inf: bool,
        vote: bool,
        floor: float,
        inverse_temperature: float,
        share: float,
        /,
    ) -> None: ...
    def predict_one_gated(
        self,
        gate: Gate,
        row: ndarray,
        out: ndarray,
        allow_nan: bool,
        vote: bool,
        floor: float,
        inverse_temperature: float,
        share: float,
        /,
    ) -> None: ...

class GatedLines:
    def __init__(self, gate: Gate, slopes: ndarray, intercepts: ndarray, /) -> None: ...
    @property
    def nbytes(self) -> int: ...
    def predict(self, X: ndarray, out: ndarray, /) -> bool: ...

def finish_votes(
    scores: ndarray, floor: float, inverse_temperature: float, share: float, /
) -> None: ...
def instruction_sets() -> list[str]: ...
def use_instructions(name: str, /) -> None: ...
