from numpy import ndarray

def forward(votes: ndarray, mask: ndarray, weights: ndarray, n: ndarray, d: ndarray) -> None: ...
def transposed(
    votes: ndarray, mask: ndarray, on_votes: ndarray, on_mask: ndarray, sums: ndarray
) -> None: ...
def loss_and_gradient(
    votes: ndarray,
    mask: ndarray,
    prior: ndarray,
    target: ndarray,
    row_weight: ndarray,
    log_loss: bool,
    least_denominator: float,
    least_vote: float,
    kept_share: float,
    floor: float,
    multiplicity: float,
    is_zeroed: bool,
    weights: ndarray,
    prior_mass: float,
    n_threads: int,
    gradient: ndarray,
) -> float: ...
def threads_taken(rows: int, members: int, most: int) -> int: ...
def instruction_sets() -> list[str]: ...
def use_instructions(name: str, /) -> None: ...
