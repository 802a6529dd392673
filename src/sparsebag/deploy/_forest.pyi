from numpy import ndarray

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
        weights: ndarray | None,
        out: ndarray,
        n_threads: int,
        allow_nan: bool,
        vote: bool,
        floor: float,
        inverse_temperature: float,
        share: float,
        scale: float,
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
        scale: float,
        /,
    ) -> None: ...

def finish_votes(
    scores: ndarray, floor: float, inverse_temperature: float, share: float, scale: float, /
) -> None: ...
def instruction_sets() -> list[str]: ...
def use_instructions(name: str, /) -> None: ...
