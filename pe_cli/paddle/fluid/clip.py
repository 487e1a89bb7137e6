"""Gradient clipping by the names of both generations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pe_cli.optim import clip as core
from pe_cli.optim.clip import GradientClip
from pe_cli.paddle.errors import FluidTypeError, FluidValueError, raised_as, raising
from pe_cli.paddle.fluid.framework import default_main_program
from pe_cli.paddle.reference_names import missing

BaseGradientClipAttr = GradientClipBase = GradientClip


class _Choosing(GradientClip):
    """A way to clip that leaves some parameters alone: `need_clip`, called with a parameter, says which are clipped."""

    def __init__(self, *args: Any, need_clip: Callable[[Any], bool] | None = None, **given: Any) -> None:
        if need_clip is not None and not callable(need_clip):
            raise FluidTypeError(f"need_clip must be a function of a parameter, got {type(need_clip).__name__}")
        # The core's classes are frozen dataclasses, which a plain assignment would not change.
        object.__setattr__(self, "_chooses", need_clip)
        super().__init__(*args, **given)

    def applies_to(self, parameter: Any) -> bool:
        """Return whether the gradient of a parameter is clipped."""
        # Read from the dictionary: the class in the middle of the inheritance has no field of that name.
        chooses = self.__dict__["_chooses"]
        return chooses is None or bool(chooses(parameter))


@raising
class GradientClipByGlobalNorm(_Choosing, core.GradientClipByGlobalNorm):
    """The core's, with `need_clip`."""


@raising
class GradientClipByNorm(_Choosing, core.GradientClipByNorm):
    """The core's, with `need_clip`."""


@raising
class GradientClipByValue(_Choosing, core.GradientClipByValue):
    """The core's, with `need_clip`."""


ClipGradByGlobalNorm = ClipByGlobalNorm = GradientClipByGlobalNorm
ClipGradByNorm = ClipByNorm = GradientClipByNorm
ClipGradByValue = ClipByValue = GradientClipByValue


class BaseErrorClipAttr:
    """Base of the ways to cut the gradient of a variable on the way back."""


class ErrorClipByValue(BaseErrorClipAttr):
    """Cut every element of the gradient of a variable to min and max; for `Variable._set_error_clip`.

    Args:
        max: upper bound, unit of the gradient.
        min: lower bound; -max by default.

    Raises:
        FluidValueError: min is above max.
    """

    def __init__(self, max: float, min: float | None = None) -> None:
        self.max = float(max)
        self.min = -self.max if min is None else float(min)
        if self.min > self.max:
            raise FluidValueError(f"ErrorClipByValue needs min <= max, got {self.min:g} and {self.max:g}")

    @property
    def bounds(self) -> tuple[float, float]:
        """Both."""
        return self.min, self.max


def append_gradient_clip_ops(param_grads: Sequence[Any]) -> list[Any]:
    """Append the clipping of gradients whose parameters have a way to clip of their own, as `set_gradient_clip` gives them.

    Args:
        param_grads: (parameter, gradient); pairs whose gradient is None are left out.

    Returns:
        (parameter, gradient) with the clipped gradients.
    """
    with raised_as(FluidValueError):
        # Gradients that are None belong to parameters that the loss does not depend on.
        return core.clip_gradients([(p, g) for p, g in param_grads if g is not None], None)


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
    "ClipGradByGlobalNorm", "ClipGradByNorm", "ClipGradByValue", "ErrorClipByValue", "GradientClipByGlobalNorm", "GradientClipByNorm",
    "GradientClipByValue", "append_gradient_clip_ops", "set_gradient_clip",
]  # fmt: skip
__getattr__ = missing("fluid.clip", lambda: globals())
