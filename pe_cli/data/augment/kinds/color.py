"""Color: brightness, contrast, saturation and hue."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pe_cli.data.augment.random_draws import Draws
from pe_cli.data.augment.registry import AugmentOptions, Chance, PictureKind, augmentation
from pe_cli.data.pictures.transform_programs import Shape, Step, instruction, only
from pe_cli.kernels.images.transforms import COLOR

Strength = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]


class ColorOptions(AugmentOptions):
    """Options of color."""

    brightness: Strength = Field(0.0, description="greatest change v: bytes are multiplied by a factor from max(0, 1 - v) to 1 + v")
    contrast: Strength = Field(0.0, description="likewise, of the distance to the picture's mean brightness")
    saturation: Strength = Field(0.0, description="likewise, of the distance to a pixel's brightness")
    hue: Annotated[float, Field(strict=True, ge=0, le=0.5)] = Field(0.0, description="greatest turn of the colour circle, to either side")
    p: Chance = Field(1.0, description="chance of a picture to be changed")


@augmentation
class Color(PictureKind[ColorOptions]):
    """Change brightness, contrast, saturation and hue, in this order; alpha stays."""

    name = "color"
    options = ColorOptions

    def plan(self, options: ColorOptions, shape: Shape) -> Shape:
        """Return the same size.

        Raises:
            ValueError: nothing is changed, or colours of gray pictures; with a remedy.
        """
        if not any((options.brightness, options.contrast, options.saturation, options.hue)):
            raise ValueError("nothing is changed", "give brightness, contrast, saturation or hue")
        if shape.channels < 3 and (options.saturation or options.hue):
            raise ValueError("gray pictures have no saturation and no hue", "leave these out, or set mode: rgb on the column")
        return shape

    def draw(self, options: ColorOptions, shape: Shape, draws: Draws) -> Step:
        """Draw the factors."""
        factors = [
            draws.uniform(name, max(0.0, 1 - strength), 1 + strength)
            for name, strength in (("brightness", options.brightness), ("contrast", options.contrast), ("saturation", options.saturation))
        ]
        turns = draws.uniform("hue", -options.hue, options.hue)
        return only(instruction(COLOR, len(draws), *factors, turns), draws.chosen(options.p))
