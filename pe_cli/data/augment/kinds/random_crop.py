"""Random crop: a box of one size at a random place."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pe_cli.data.augment.random_draws import Draws
from pe_cli.data.augment.registry import AugmentOptions, Fill, PictureKind, Pixels, augmentation, colour
from pe_cli.data.pictures.transform_programs import Shape, Step, instruction
from pe_cli.kernels.images.transforms import CROP

Padding = Annotated[int, Field(strict=True, ge=0, le=4096)]


class RandomCropOptions(AugmentOptions):
    """Options of random_crop."""

    size: tuple[Pixels, Pixels] | None = Field(None, description="[height, width] that are cut out; those of a sample when absent")
    padding: Padding = Field(0, description="pixels added at every side before")
    fill: Fill = Field(0, description="what these pixels are: a byte, or one per channel")


@augmentation
class RandomCrop(PictureKind[RandomCropOptions]):
    """Cut a box out, at a place that is drawn: each place is equally likely."""

    name = "random_crop"
    options = RandomCropOptions

    def plan(self, options: RandomCropOptions, shape: Shape) -> Shape:
        """Return the size of the box.

        Raises:
            ValueError: the box is larger than the pictures; with a remedy.
        """
        colour(options.fill, shape)
        height, width = options.size or (shape.height, shape.width)
        if height > shape.height + 2 * options.padding or width > shape.width + 2 * options.padding:
            around = Shape(shape.height + 2 * options.padding, shape.width + 2 * options.padding, shape.channels)
            padded = f", with padding {around}" if options.padding else ""
            raise ValueError(
                f"size [{height}, {width}] does not fit into pictures of {shape}{padded}",
                "a smaller size, more padding, or crop_from on the column",
            )
        return Shape(height, width, shape.channels)

    def draw(self, options: RandomCropOptions, shape: Shape, draws: Draws) -> Step:
        """Draw the corner."""
        end = self.plan(options, shape)
        top = draws.whole("top", shape.height + 2 * options.padding - end.height + 1) - options.padding
        left = draws.whole("left", shape.width + 2 * options.padding - end.width + 1) - options.padding
        return instruction(CROP, len(draws), top, left, end.height, end.width, *colour(options.fill, shape))
