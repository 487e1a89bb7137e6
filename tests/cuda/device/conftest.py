"""Tests that need a CUDA device: a real one, or numba's simulator (see ../test_simulator.py)."""

from __future__ import annotations

import pytest

from pe_cli.devices.cuda import cuda_count


def pytest_collection_modifyitems(items):
    """Skip where neither is there."""
    count, why_not = cuda_count()
    if not count:
        for item in items:
            if "tests/cuda/device" in str(item.path):
                item.add_marker(pytest.mark.skip(reason=why_not))
