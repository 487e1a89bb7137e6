"""Perplexity: how many equally likely choices a model is between."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from pydantic import Field

from pe_cli.config.sections.section import Section
from pe_cli.config.sections.value_types import Name
from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.metrics.define import Array, Gathered, UndefinedError, metric


class PerplexityOptions(Section):
    """Options of `perplexity`."""

    losses: Name = Field(description="variable: [batch, ...] negative logarithms of probabilities, one per prediction, in nats")
    weights: Name | None = Field(
        default=None, description="variable of the same shape: how much each prediction counts, 0 for padding; all alike when absent"
    )


@metric
class Perplexity(Gathered[PerplexityOptions]):
    """exp of the mean loss of a prediction, which is not the mean of each batch's exp."""

    name = "perplexity"
    inputs = ("losses", "weights")
    options = PerplexityOptions

    def check(self, options: PerplexityOptions, types: Mapping[str, TensorType]) -> None:
        """Check that losses are floats, and that weights are as many.

        Raises:
            PeError: USAGE; options or types that do not fit.
        """
        losses, weights = types["losses"], types.get("weights")
        if not losses.dtype.startswith("float"):
            raise PeError(f"losses must be float32 or float64, got {losses}")
        if weights is not None and (
            len(weights.shape) != len(losses.shape)
            or any(-1 not in (a, b) and a != b for a, b in zip(weights.shape, losses.shape, strict=True))
        ):
            raise PeError(f"losses are {losses}, and weights are {weights}", hint="both have one shape")

    def result(self, options: PerplexityOptions, values: Mapping[str, Array]) -> float:
        """Return exp(sum weights losses / sum weights).

        Raises:
            UndefinedError: there is nothing to divide by.
        """
        losses = values["losses"].astype(np.float64).reshape(-1)
        weights = values["weights"].astype(np.float64).reshape(-1) if "weights" in values else np.ones_like(losses)
        total = float(weights.sum())
        if not total > 0:
            raise UndefinedError("no row counts")
        mean = float((weights * losses).sum()) / total
        return math.exp(mean) if mean < 700 else math.inf  # the largest float64 is about exp(709.78)
