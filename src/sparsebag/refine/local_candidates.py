"""Maps that are tried: how far they may go from the global model, and in what shape."""

from __future__ import annotations

from sparsebag.refine.local_choice import Candidate

WEIGHTS = {
    "linear": (
        Candidate("linear", 0.3),
        Candidate("linear", 1.0, steepness=4.0),
        *(Candidate("linear", spread, steepness=16.0) for spread in (1.5, 4.0)),
        Candidate("linear", 1.0, rank=3, steepness=4.0),
    ),
    "regions": (
        *(Candidate("regions", spread, 4) for spread in (1.5, 4.0)),
        *(Candidate("regions", spread, 16) for spread in (0.3, 1.5)),
        Candidate("regions", 1.0, 16, rank=3),
        *(Candidate("regions", spread, 4, oblique=True) for spread in (0.5, 1.5, 4.0)),
    ),
}
"""Candidates: spreads, in nats of a logit, numbers of regions, ranks, and steps or slopes."""
TEMPERATURES = {
    "linear": tuple(Candidate("linear", spread) for spread in (0.1, 0.3)),
    "regions": tuple(
        Candidate("regions", spread, regions) for regions in (4, 12) for spread in (0.1, 0.4)
    ),
}
"""The same of a temperature's logarithm."""
CAUTIOUS = {
    "linear": (Candidate("linear", 0.03), Candidate("linear", 0.1)),
    "regions": (Candidate("regions", 0.03, 4), Candidate("regions", 0.2, 4)),
}
"""Tried besides where a gate was asked for by name, and may have nothing to gain."""
