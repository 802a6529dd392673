"""What tests of passes share."""

import pytest

from sparsebag.objective import _passes


@pytest.fixture(params=["avx2", "portable"])
def kernel(request):
    """Each kernel in turn, whichever the machine would take by itself."""
    if request.param not in _passes.kernels():
        pytest.skip(f"this machine has no {request.param}")
    before = _passes.use_kernel(request.param)
    yield request.param
    _passes.use_kernel(before)
