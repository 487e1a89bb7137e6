"""Initializers, with and without the original's suffix."""

from __future__ import annotations

from pe_cli.program.initializer import (
    MSRA,
    Bilinear,
    Constant,
    Initializer,
    Normal,
    NumpyArray,
    TruncatedNormal,
    Uniform,
    Xavier,
)

BilinearInitializer = Bilinear
ConstantInitializer = Constant
MSRAInitializer = MSRA
NormalInitializer = Normal
NumpyArrayInitializer = NumpyArray
TruncatedNormalInitializer = TruncatedNormal
UniformInitializer = Uniform
XavierInitializer = Xavier

__all__ = [
    "MSRA", "Bilinear", "BilinearInitializer", "Constant", "ConstantInitializer", "Initializer", "MSRAInitializer",
    "Normal", "NormalInitializer", "NumpyArray", "NumpyArrayInitializer", "TruncatedNormal",
    "TruncatedNormalInitializer", "Uniform", "UniformInitializer", "Xavier", "XavierInitializer",
]  # fmt: skip
