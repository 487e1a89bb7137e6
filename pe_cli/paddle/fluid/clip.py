"""Gradient clipping by the names of both generations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pe_cli.optim import clip as core
from pe_cli.optim.clip import GradientClip, GradientClipByGlobalNorm, GradientClipByNorm, GradientClipByValue
from pe_cli.paddle.errors import FluidTypeError, FluidValueError, raised_as
from pe_cli.paddle.fluid.framework import default_main_program

BaseGradientClipAttr = GradientClipBase = GradientClip
ClipGradByGlobalNorm = GradientClipByGlobalNorm
ClipGradByNorm = GradientClipByNorm
ClipGradByValue = GradientClipByValue


def set_gradient_clip(clip: Any, param_list: Sequence[Any] | None = None, program: Any = None) -> None:
    """Give parameters their own clipping; arguments of the core's function.

    Raises:
        FluidTypeError: clip is no way to clip; a TypeError.
    """
    if not isinstance(clip, GradientClip):
        raise FluidTypeError(f"clip must be a GradientClipBy..., got {type(clip).__name__}")
    with raised_as(FluidValueError):
        core.set_gradient_clip(clip, param_list, program or default_main_program())


__all__ = [
    "ClipGradByGlobalNorm", "ClipGradByNorm", "ClipGradByValue", "GradientClipByGlobalNorm", "GradientClipByNorm",
    "GradientClipByValue", "set_gradient_clip",
]  # fmt: skip
