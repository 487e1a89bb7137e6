"""asin, acos and atan, pointwise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pe_cli.kernels.language import T
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.onnx import same_in_onnx
from pe_cli.ops.math.pointwise import pointwise, shapes


def _inside(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return rng.uniform(-0.9, 0.9, shape)


@pointwise("asin", samples=shapes(_inside), faces=[Face()])
def asin(x):
    """Find the angle whose sine is given.

    Out = arcsin X, in radians; NaN outside [-1, 1].

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X, from -pi/2 to pi/2.

    Source:
        fluid.layers.asin.
    """
    return math.asin(x)


@asin.back
def asin_back(g, x):
    return g / math.sqrt(T(1) - x * x)


@pointwise("acos", samples=shapes(_inside), faces=[Face()])
def acos(x):
    """Find the angle whose cosine is given.

    Out = arccos X, in radians; NaN outside [-1, 1].

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X, from 0 to pi.

    Source:
        fluid.layers.acos.
    """
    return math.acos(x)


@acos.back
def acos_back(g, x):
    return -g / math.sqrt(T(1) - x * x)


@pointwise("atan", faces=[Face()])
def atan(x):
    """Find the angle whose tangent is given.

    Out = arctan X, in radians.

    Args:
        X: any shape, float32 or float64.

    Returns:
        Out: type of X, from -pi/2 to pi/2.

    Source:
        fluid.layers.atan.
    """
    return math.atan(x)


@atan.back
def atan_back(g, x):
    return g / (T(1) + x * x)


# --- ONNX -------------------------------------------------------------------------------------------------------------


same_in_onnx({"acos": "Acos", "asin": "Asin", "atan": "Atan"})
