"""Random resized crop: a box of random area and shape, brought to one size."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from pe_cli.data.augment.random_draws import Draws
from pe_cli.data.augment.registry import Area, AugmentOptions, PictureKind, Pixels, Range, augmentation
from pe_cli.data.pictures.transform_programs import Shape, Step, instruction
from pe_cli.kernels.images.transforms import RESIZE

#: Boxes that are tried until one fits.
TRIES = 10


class RandomResizedCropOptions(AugmentOptions):
    """Options of random_resized_crop."""

    size: tuple[Pixels, Pixels] | None = Field(None, description="[height, width] of the result; those of a sample when absent")
    scale: Area = Field((0.08, 1.0), description="least and greatest share of the picture's area")
    ratio: Range = Field((0.75, 4 / 3), description="least and greatest width of the box by its height")


@augmentation
class RandomResizedCrop(PictureKind[RandomResizedCropOptions]):
    """Cut a box of a random area and shape out, and resize it with a bilinear filter that looks at all its pixels.

    Of ten boxes that are drawn the first that fits is taken; where none does, the greatest box in the middle whose shape is allowed.
    """

    name = "random_resized_crop"
    options = RandomResizedCropOptions

    def plan(self, options: RandomResizedCropOptions, shape: Shape) -> Shape:
        """Return the size of the result."""
        height, width = options.size or (shape.height, shape.width)
        return Shape(height, width, shape.channels)

    def draw(self, options: RandomResizedCropOptions, shape: Shape, draws: Draws) -> Step:
        """Draw area, shape and place.

        Source:
            Szegedy et al. 2014, "Going deeper with convolutions"; sizes are rounded as in torchvision.
        """
        end, batch = self.plan(options, shape), len(draws)
        low, high = options.scale
        area = shape.height * shape.width * (low + (high - low) * draws.several("area", TRIES))
        first, last = np.log(options.ratio[0]), np.log(options.ratio[1])
        ratio = np.exp(first + (last - first) * draws.several("ratio", TRIES))
        widths, heights = np.rint(np.sqrt(area * ratio)), np.rint(np.sqrt(area / ratio))
        fits = (widths >= 1) & (heights >= 1) & (widths <= shape.width) & (heights <= shape.height)
        index = (np.arange(batch), fits.argmax(axis=1))
        some = fits.any(axis=1)
        other = _greatest(shape, options.ratio)
        height = np.where(some, heights[index], other[0]).astype(np.int64)
        width = np.where(some, widths[index], other[1]).astype(np.int64)
        top = np.where(some, draws.whole("top", shape.height - height + 1), (shape.height - height) // 2)
        left = np.where(some, draws.whole("left", shape.width - width + 1), (shape.width - width) // 2)
        return instruction(RESIZE, batch, top, left, height, width, end.height, end.width)


def _greatest(shape: Shape, ratio: tuple[float, float]) -> tuple[int, int]:
    """Return height and width of the greatest box whose shape is allowed."""
    found = shape.width / shape.height
    if found < ratio[0]:
        return max(1, round(shape.width / ratio[0])), shape.width
    if found > ratio[1]:
        return shape.height, max(1, round(shape.height * ratio[1]))
    return shape.height, shape.width
