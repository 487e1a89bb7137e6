"""device/ needs a CUDA device: a real one, or numba's simulator, in which test_simulator.py runs it; it is left out where neither is."""

from __future__ import annotations

import os
import sys

import numpy as np

from pe_cli.devices.cuda import cuda_count

collect_ignore = [] if cuda_count()[0] else ["device"]


def shared_array(self, shape, dtype, alignment=None):
    """As the simulator's, where two threads that come to the line together may each get an array of their own."""
    assert alignment is None
    frame = sys._getframe(1)
    return self._allocations.setdefault((frame.f_code.co_filename, frame.f_lineno), np.empty(shape, dtype))


def pytest_configure(config):
    """Make the simulator right, fast and quiet."""
    if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
        # It polls its threads in a busy loop, which would hold the interpreter for 5 ms at a time.
        sys.setswitchinterval(2e-5)
        from numba.cuda.simulator.kernelapi import FakeCUDAShared

        FakeCUDAShared.array = shared_array
        # NumPy warns of overflow where a GPU wraps or gives infinity without a word.
        config.addinivalue_line("filterwarnings", "ignore::RuntimeWarning")
