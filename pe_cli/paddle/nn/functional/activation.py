"""Activations of 2.x that are more than one layer; the others are declared by their ops."""

from __future__ import annotations

from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle.fluid.framework import as_dtype
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.selection import select
from pe_cli.paddle.nn.functional.common import channels_first


def selu(x: Any, scale: float = 1.0507009873554805, alpha: float = 1.6732632423543772, name: str | None = None) -> Any:
    """Return scale x above 0 and scale alpha (exp(x) - 1) below."""
    return call("selu", x, scale, alpha)


def softmax(x: Any, axis: int = -1, dtype: Any = None, name: str | None = None) -> Any:
    """Turn logits along an axis into probabilities; a dtype casts x first."""
    return call("softmax", _cast(x, dtype), axis)


def log_softmax(x: Any, axis: int = -1, dtype: Any = None, name: str | None = None) -> Any:
    """Turn logits along an axis into logarithms of probabilities, in nats; a dtype casts x first."""
    return call("log_softmax", _cast(x, dtype), axis)


def _cast(x: Any, dtype: Any) -> Any:
    return x if dtype is None else call("cast", x, as_dtype(dtype))


def maxout(x: Any, groups: int, axis: int = 1, name: str | None = None) -> Any:
    """Take the largest of every `groups` channels in a row."""
    return call("maxout", x, groups, axis=axis)


def prelu(x: Any, weight: Any, data_format: str = "NCHW", name: str | None = None) -> Any:
    """Let x through where it is above 0, else return weight x.

    Args:
        x: [batch, channels, ...], or with the channels last.
        weight: [1], or [channels].
        data_format: where the channels are.
        name: without effect.
    """
    # max(x, 0) + weight * min(x, 0), of ops that are broadcast over any number of axes.
    below = call("scale", call("relu", call("scale", x, -1.0)), -1.0)
    axis = 1 if weight.shape != (1,) and channels_first("prelu", data_format) else -1
    return call("elementwise_add", call("relu", x), call("elementwise_mul", below, weight, axis))


def softplus(x: Any, beta: float = 1.0, threshold: float = 20.0, name: str | None = None) -> Any:
    """Return ln(1 + exp(beta x)) / beta, and x where beta x is above the threshold."""
    inner = x if beta == 1 else call("scale", x, float(beta))
    smooth = call("softplus", inner)
    smooth = smooth if beta == 1 else call("scale", smooth, 1.0 / beta)
    # From 20 on ln(1 + exp(x)) and x are one number in float32.
    return smooth if threshold >= 20 else select(_above(inner, threshold), x, smooth)


def silu(x: Any, name: str | None = None) -> Any:
    """Return x sigmoid(x)."""
    return call("swish", x)


def mish(x: Any, name: str | None = None) -> Any:
    """Return x tanh(ln(1 + exp(x)))."""
    return call("mish", x)


def celu(x: Any, alpha: float = 1.0, name: str | None = None) -> Any:
    """Let x through where it is above 0, else return alpha (exp(x / alpha) - 1)."""
    # elu with alpha has a kink at 0, this has none.
    return call("scale", call("elu", call("scale", x, 1.0 / alpha), 1.0), float(alpha))


def glu(x: Any, axis: int = -1, name: str | None = None) -> Any:
    """Multiply the first half of an axis by the sigmoid of the other half."""
    first, gate = call("split", x, 2, axis)
    return call("elementwise_mul", first, call("sigmoid", gate))


def _above(x: Any, limit: float) -> Any:
    level = LayerHelper("fill_like").one("fill_like", {"X": x}, {"value": float(limit)})
    return call("greater_than", x, level)


def elu_(x: Any, alpha: float = 1.0, name: str | None = None) -> Any:
    """Return `elu(x, alpha)`; the plan decides what shares memory."""
    return call("elu", x, alpha)


def relu_(x: Any, name: str | None = None) -> Any:
    """Return `relu(x)`; the plan decides what shares memory."""
    return call("relu", x)


def softmax_(x: Any, axis: int = -1, dtype: Any = None, name: str | None = None) -> Any:
    """Return `softmax(x, axis)`; the plan decides what shares memory."""
    return softmax(x, axis, dtype)


__all__ = [
    "celu", "elu_", "glu", "log_softmax", "maxout", "mish", "prelu", "relu_", "selu", "silu", "softmax", "softmax_", "softplus",
]  # fmt: skip
