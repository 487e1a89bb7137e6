"""ParamAttr and WeightNormParamAttr."""

from __future__ import annotations

from typing import Any

from pe_cli.paddle.errors import raising
from pe_cli.program import param_attr


@raising
class ParamAttr(param_attr.ParamAttr):
    """The core's."""


@raising
class WeightNormParamAttr(param_attr.WeightNormParamAttr, ParamAttr):
    """The core's, with the original's order of arguments."""

    def __init__(
        self,
        dim: int | None = None,
        name: str | None = None,
        initializer: Any = None,
        learning_rate: float = 1.0,
        regularizer: Any = None,
        trainable: bool = True,
        do_model_average: bool = False,
        gradient_clip: Any = None,
    ) -> None:
        super().__init__(name, initializer, learning_rate, regularizer, trainable, do_model_average, gradient_clip, dim)


__all__ = ["ParamAttr", "WeightNormParamAttr"]
