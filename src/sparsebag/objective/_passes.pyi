from numpy import ndarray

def forward(votes: ndarray, mask: ndarray, weights: ndarray, n: ndarray, d: ndarray) -> None: ...
def transposed(
    votes: ndarray, mask: ndarray, on_votes: ndarray, on_mask: ndarray, sums: ndarray
) -> None: ...
def loss_and_gradient(
    votes: ndarray,
    mask: ndarray,
    weights: ndarray,
    prior: ndarray,
    target: ndarray,
    row_weight: ndarray,
    log_loss: bool,
    prior_mass: float,
    least_denominator: float,
    least_vote: float,
    kept_share: float,
    floor: float,
    multiplicity: float,
    is_zeroed: bool,
    n_threads: int,
    gradient: ndarray,
) -> float: ...
def threads_taken(rows: int, members: int, most: int) -> int: ...
def kernels() -> list[str]: ...
def use_kernel(name: str) -> str: ...
