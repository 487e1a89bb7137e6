"""Resize: pictures of another size."""

from __future__ import annotations

from pydantic import Field

from pe_cli.data.augment.random_draws import Draws
from pe_cli.data.augment.registry import AugmentOptions, PictureKind, Pixels, augmentation
from pe_cli.data.pictures.transform_programs import Shape, Step, instruction
from pe_cli.kernels.images.transforms import RESIZE


class ResizeOptions(AugmentOptions):
    """Options of resize."""

    size: tuple[Pixels, Pixels] = Field(description="[height, width]")


@augmentation
class Resize(PictureKind[ResizeOptions]):
    """Resize pictures with a bilinear filter that looks at all pixels (antialias), before or after another augmentation."""

    name = "resize"
    options = ResizeOptions

    def plan(self, options: ResizeOptions, shape: Shape) -> Shape:
        """Return that size."""
        return Shape(*options.size, shape.channels)

    def draw(self, options: ResizeOptions, shape: Shape, draws: Draws) -> Step:
        """Draw nothing."""
        return instruction(RESIZE, len(draws), 0, 0, shape.height, shape.width, *options.size)
