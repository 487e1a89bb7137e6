"""device: which devices there are, and where executors run that are given no place."""

from __future__ import annotations

from pe_cli.paddle.fluid.places import (
    get_cudnn_version,
    get_device,
    is_compiled_with_cuda,
    is_compiled_with_xpu,
    set_device,
)
from pe_cli.paddle.reference_names import missing

__all__ = ["get_cudnn_version", "get_device", "is_compiled_with_cuda", "is_compiled_with_xpu", "set_device"]
__getattr__ = missing("paddle", lambda: globals())
