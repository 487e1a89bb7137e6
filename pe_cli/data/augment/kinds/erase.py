"""Erase: a box of random area and shape is painted over."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from pe_cli.data.augment.random_draws import Draws
from pe_cli.data.augment.registry import Area, AugmentOptions, Chance, Fill, PictureKind, Range, augmentation, colour
from pe_cli.data.pictures.transform_programs import Shape, Step, instruction, only
from pe_cli.kernels.images.transforms import ERASE

#: Boxes that are tried until one fits.
TRIES = 10


class EraseOptions(AugmentOptions):
    """Options of erase."""

    p: Chance = Field(0.5, description="chance of a picture to be changed")
    scale: Area = Field((0.02, 0.33), description="least and greatest share of the picture's area")
    ratio: Range = Field((0.3, 3.3), description="least and greatest width of the box by its height")
    fill: Fill = Field(0, description="what it is painted with: a byte, or one per channel")


@augmentation
class Erase(PictureKind[EraseOptions]):
    """Paint a box of a random area and shape over. Of ten boxes that are drawn the first that fits is taken; where none does, none is."""

    name = "erase"
    options = EraseOptions

    def plan(self, options: EraseOptions, shape: Shape) -> Shape:
        """Return the same size."""
        colour(options.fill, shape)
        return shape

    def draw(self, options: EraseOptions, shape: Shape, draws: Draws) -> Step:
        """Draw area, shape and place.

        Source:
            Zhong et al. 2017, "Random erasing data augmentation", algorithm 1.
        """
        low, high = options.scale
        area = shape.height * shape.width * (low + (high - low) * draws.several("area", TRIES))
        first, last = np.log(options.ratio[0]), np.log(options.ratio[1])
        ratio = np.exp(first + (last - first) * draws.several("ratio", TRIES))
        heights, widths = np.rint(np.sqrt(area / ratio)), np.rint(np.sqrt(area * ratio))
        fits = (heights >= 1) & (widths >= 1) & (heights <= shape.height) & (widths <= shape.width)
        index = (np.arange(len(draws)), fits.argmax(axis=1))
        some = fits.any(axis=1)
        height = np.where(some, heights[index], 1).astype(np.int64)
        width = np.where(some, widths[index], 1).astype(np.int64)
        top = draws.whole("top", shape.height - height + 1)
        left = draws.whole("left", shape.width - width + 1)
        step = instruction(ERASE, len(draws), top, left, height, width, *colour(options.fill, shape))
        return only(step, some & draws.chosen(options.p))
