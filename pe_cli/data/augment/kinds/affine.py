"""Affine: pictures are moved, scaled and sheared."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pe_cli.data.augment.random_draws import Draws
from pe_cli.data.augment.registry import AugmentOptions, Chance, Fill, PictureKind, Range, augmentation, colour
from pe_cli.data.pictures.transform_programs import Shape, Step, instruction, only
from pe_cli.kernels.images.transforms import AFFINE

Share = Annotated[float, Field(strict=True, ge=0, le=1)]
Degrees = Annotated[float, Field(strict=True, ge=0, lt=90)]
Number = NDArray[np.float64] | float


class AffineOptions(AugmentOptions):
    """Options of affine."""

    translate: tuple[Share, Share] = Field((0.0, 0.0), description="greatest move down or up, and right or left, in shares of the size")
    scale: Range = Field((1.0, 1.0), description="least and greatest factor; above 1 things get larger")
    shear: Degrees = Field(0.0, description="greatest angle that columns lean to either side, in degrees")
    p: Chance = Field(1.0, description="chance of a picture to be changed")
    fill: Fill = Field(0, description="what stands where nothing was: a byte, or one per channel")


@augmentation
class Affine(PictureKind[AffineOptions]):
    """Scale and shear pictures about their middle, and move them; what is between pixels is interpolated."""

    name = "affine"
    options = AffineOptions

    def plan(self, options: AffineOptions, shape: Shape) -> Shape:
        """Return the same size.

        Raises:
            ValueError: nothing is changed; with a remedy.
        """
        colour(options.fill, shape)
        if not any((*options.translate, options.shear)) and options.scale == (1.0, 1.0):
            raise ValueError("nothing is changed", "give translate, scale or shear")
        return shape

    def draw(self, options: AffineOptions, shape: Shape, draws: Draws) -> Step:
        """Draw the move, the factor and the angle."""
        down, right = options.translate
        words = matrices(
            shape,
            0.0,
            draws.uniform("scale", *options.scale),
            draws.uniform("shear", -options.shear, options.shear),
            draws.uniform("down", -down, down) * shape.height,
            draws.uniform("right", -right, right) * shape.width,
        )
        return only(instruction(AFFINE, len(draws), *words, *colour(options.fill, shape)), draws.chosen(options.p))


def matrices(shape: Shape, angle: Number, scale: Number, shear: Number, down: Number, right: Number) -> tuple[Number, ...]:
    """Return from where pixel (i, j) of the result is taken: rows a i + b j + c, columns d i + e j + f.

    Args:
        shape: of the picture.
        angle: that it is turned by, anticlockwise, in degrees.
        scale: factor, no unit.
        shear: that columns lean to the left at their top, in degrees.
        down, right: that it is moved after that, in pixels.
    """
    turn, lean = np.deg2rad(angle), np.tan(np.deg2rad(shear))
    cos, sin = np.cos(turn) / scale, np.sin(turn) / scale
    # the inverse of (move) (turn) (shear) (scale), about the middle
    a, b = cos, sin
    d, e = -sin - lean * a, cos - lean * b
    y, x = (shape.height - 1) / 2, (shape.width - 1) / 2
    c = y - a * (y + down) - b * (x + right)
    f = x - d * (y + down) - e * (x + right)
    return a, b, c, d, e, f
