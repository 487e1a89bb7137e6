"""CUDA devices through numba-cuda. The only module that imports it."""

from __future__ import annotations


def cuda_count() -> tuple[int, str]:
    """Return the number of visible CUDA devices, and why there is none when it is 0."""
    try:
        from numba import cuda
    except ImportError:
        return 0, "numba-cuda is not installed (pip install 'pe-cli[cuda]')"
    if not cuda.is_available():
        return 0, "no CUDA device is visible"
    return len(cuda.gpus), ""
