"""Distributions by 2.x's place."""

from __future__ import annotations

from pe_cli.paddle.fluid.layers.distributions import Categorical, Distribution, Normal, Uniform

__all__ = ["Categorical", "Distribution", "Normal", "Uniform"]
