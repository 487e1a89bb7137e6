"""Tests that need a CUDA device: a real one, or numba's simulator (see ../test_simulator.py)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pe_cli.devices.cuda import cuda_count

HERE = Path(__file__).parent
if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
    # The simulator polls its threads in a busy loop, which would hold the interpreter for 5 ms at a time.
    sys.setswitchinterval(2e-5)


def pytest_collection_modifyitems(items):
    """Skip where there is no device."""
    count, why_not = cuda_count()
    if not count:
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=why_not))
