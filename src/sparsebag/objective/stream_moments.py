"""The full-vote risk's pair sums over a stream: one pass, a block in memory at a time."""

from __future__ import annotations

from sparsebag.evidence.row_stream import RowStream
from sparsebag.objective.full_vote_risk import FullVoteRisk, NoPairsError, PairMoments


def stream_moments(stream: RowStream, *, floor: float = 0.0) -> PairMoments:
    """Pair sums of all rows of a stream; `PairMoments.matrix` is its full-vote risk matrix.

    Parameters
    ----------
    stream : RowStream
        Of regression, of two classes, or with every class's votes of more.
    floor : float, default 0
        Share of the uniform class distribution in each vote, as deployed.

    Returns
    -------
    PairMoments
        With row weights that sum to one, as `FullVoteRisk.moments` has them.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebag.evidence.array_rows import ArrayRows
    >>> votes, y = np.array([[1.0, 3.0], [2.0, 2.0], [0.0, 1.0]]), np.array([1.0, 2.0, 2.0])
    >>> rows = ArrayRows(votes, None, y, task="regression", block_rows=2)
    >>> np.round(stream_moments(rows).matrix(), 3).tolist()
    [[1.333, 0.667], [0.667, 1.667]]
    """
    found: PairMoments | None = None
    for block in stream.blocks():
        try:
            risk = FullVoteRisk(block, floor=floor)
        except NoPairsError:
            continue
        part = risk.moments().scaled(risk.total_weight)
        found = part if found is None else found + part
    if found is None:
        raise NoPairsError.of_no_rows()
    return found.scaled(1.0 / found.row_weight)
