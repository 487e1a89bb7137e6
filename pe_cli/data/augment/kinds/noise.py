"""Noise: numbers are changed a little."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pe_cli.core.types import FLOATS
from pe_cli.data.augment.random_draws import Draws
from pe_cli.data.augment.registry import AugmentOptions, Chance, Column, ColumnKind, Positive, augmentation
from pe_cli.data.dataset import Array


class NoiseOptions(AugmentOptions):
    """Options of noise."""

    deviation: Positive = Field(0.1, description="standard deviation of the noise, in the unit of the field: after the column's scale")
    p: Chance = Field(1.0, description="chance of a sample to be changed")


@augmentation
class Noise(ColumnKind[NoiseOptions]):
    """Add numbers of a normal distribution of mean 0 to a column of numbers, or to the numbers of a feed that joins several."""

    name = "noise"
    options = NoiseOptions
    needs = "floats"

    def fits(self, column: Column) -> bool:
        """Return whether samples are floats that are no classes."""
        return column.type.dtype in FLOATS and column.classes is None

    def change(self, options: NoiseOptions, values: Array, offsets: NDArray[np.int64] | None, draws: Draws) -> None:
        """Draw the noise."""
        each = int(np.prod(values.shape[1:]))
        counts = np.full(len(draws), each, np.int64) if offsets is None else np.diff(offsets) * each
        chosen = np.repeat(draws.chosen(options.p), counts)
        # the two numbers of Box and Muller
        radius = np.sqrt(-2 * np.log1p(-draws.each("radius", counts)))
        noise = radius * np.cos(2 * np.pi * draws.each("angle", counts))
        values += (options.deviation * np.where(chosen, noise, 0)).reshape(values.shape).astype(values.dtype)
