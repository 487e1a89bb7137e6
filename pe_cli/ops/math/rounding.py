"""floor, ceil and round: the nearest integers."""

from __future__ import annotations

import math
from typing import Any

from pe_cli.kernels.cuda.math import replaces
from pe_cli.kernels.language import T, intrinsic
from pe_cli.kernels.math.vector_math import absolute, copysign
from pe_cli.ops.define.faces import ACTIVATION
from pe_cli.ops.define.onnx import same_in_onnx
from pe_cli.ops.math.pointwise import away_from, pointwise


def _rounding(name: str) -> Any:
    @intrinsic("T", "T", name=name)
    def emit(env: Any, args: list[Any]) -> Any:
        suffix = "f32" if env.dtype == "float32" else "f64"
        return env.builder.call(env.function(f"llvm.{name}.{suffix}", env.element, [env.element]), args)

    return emit


# rint rounds halves to the even number, as numpy does; LLVM's round would take them away from 0.
round_down, round_up, round_even = _rounding("floor"), _rounding("ceil"), _rounding("rint")


@pointwise("floor", uses="Out", kinks=away_from(-2.0, -1.0, 0.0, 1.0, 2.0), faces=[ACTIVATION])
def floor(x):
    """Round down.

    Out = the largest integer that is not above X; the gradient is 0.

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.floor.
    """
    return round_down(x)


@floor.back
def floor_back(g, out):
    return T(0)


@pointwise("ceil", uses="Out", kinks=away_from(-2.0, -1.0, 0.0, 1.0, 2.0), faces=[ACTIVATION])
def ceil(x):
    """Round up.

    Out = the smallest integer that is not below X; the gradient is 0.

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.ceil.
    """
    return round_up(x)


@ceil.back
def ceil_back(g, out):
    return T(0)


@pointwise("round", uses="Out", kinks=away_from(-2.5, -1.5, -0.5, 0.5, 1.5, 2.5), faces=[ACTIVATION])
def round_op(x):
    """Round to the nearest integer.

    Out = that integer; halves go to the even one (2.5 to 2, 3.5 to 4), as in NumPy; the gradient is 0.

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X.

    Source:
        fluid.layers.round.
    """
    return round_even(x)


@round_op.back
def round_back(g, out):
    return T(0)


# --- CUDA -------------------------------------------------------------------------------------------------------------

#: From here on every float is whole; there math.floor gives an int64, which does not hold all of them.
WHOLE = 2.0**52


@replaces(round_down)
def _round_down(x):
    return T(math.floor(x)) if absolute(x) < T(WHOLE) else x


@replaces(round_up)
def _round_up(x):
    return T(math.ceil(x)) if absolute(x) < T(WHOLE) else x


@replaces(round_even)
def _round_even(x):
    size = absolute(x)
    low = round_down(size)
    rest = size - low
    odd = low - T(2) * round_down(T(0.5) * low)
    return copysign(low + T(1) if rest > T(0.5) or (rest == T(0.5) and odd > T(0.5)) else low, x)


# --- ONNX -------------------------------------------------------------------------------------------------------------


same_in_onnx({"ceil": "Ceil", "floor": "Floor", "round": "Round"})
