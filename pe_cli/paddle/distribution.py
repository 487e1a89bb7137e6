"""paddle.distribution: the distributions of fluid.layers under their name of 2.x."""

from __future__ import annotations

from pe_cli.paddle.fluid.layers.distributions import Categorical, Distribution, Normal, Uniform

__all__ = ["Categorical", "Distribution", "Normal", "Uniform"]
