"""Rotate: pictures are turned about their middle."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pe_cli.data.augment.kinds.affine import matrices
from pe_cli.data.augment.random_draws import Draws
from pe_cli.data.augment.registry import AugmentOptions, Chance, Fill, PictureKind, augmentation, colour
from pe_cli.data.pictures.transform_programs import Shape, Step, instruction, only
from pe_cli.kernels.images.transforms import AFFINE


class RotateOptions(AugmentOptions):
    """Options of rotate."""

    degrees: Annotated[float, Field(strict=True, gt=0, le=180)] = Field(description="greatest angle, to either side")
    p: Chance = Field(1.0, description="chance of a picture to be turned")
    fill: Fill = Field(0, description="what stands where nothing was: a byte, or one per channel")


@augmentation
class Rotate(PictureKind[RotateOptions]):
    """Turn pictures about their middle, by an angle of [-degrees, degrees); what is between pixels is interpolated."""

    name = "rotate"
    options = RotateOptions

    def plan(self, options: RotateOptions, shape: Shape) -> Shape:
        """Return the same size."""
        colour(options.fill, shape)
        return shape

    def draw(self, options: RotateOptions, shape: Shape, draws: Draws) -> Step:
        """Draw the angles."""
        angle = draws.uniform("angle", -options.degrees, options.degrees)
        words = matrices(shape, angle, 1.0, 0.0, 0.0, 0.0)
        return only(instruction(AFFINE, len(draws), *words, *colour(options.fill, shape)), draws.chosen(options.p))
