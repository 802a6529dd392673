"""What tests of passes share."""

import pytest

from sparsebag.objective import _passes


@pytest.fixture(params=["avx2", "portable"])
def kernel(request):
    """Each kernel in turn, whichever the machine would take by itself."""
    if request.param not in _passes.instruction_sets():
        pytest.skip(f"this machine has no {request.param}")
    _passes.use_instructions(request.param)
    yield request.param
    _passes.use_instructions(_passes.instruction_sets()[-1])
