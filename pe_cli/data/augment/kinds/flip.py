"""Flip: pictures are mirrored left to right or top to bottom."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pe_cli.data.augment.random_draws import Draws
from pe_cli.data.augment.registry import AugmentOptions, Chance, PictureKind, augmentation
from pe_cli.data.pictures.transform_programs import Shape, Step, instruction, only
from pe_cli.kernels.images.transforms import FLIP


class FlipOptions(AugmentOptions):
    """Options of flip."""

    direction: Literal["horizontal", "vertical"] = Field("horizontal", description="horizontal: left and right change places")
    p: Chance = Field(0.5, description="chance of a picture to be turned over")


@augmentation
class Flip(PictureKind[FlipOptions]):
    """Turn pictures over, left and right or up and down."""

    name = "flip"
    options = FlipOptions

    def draw(self, options: FlipOptions, shape: Shape, draws: Draws) -> Step:
        """Draw which ones."""
        vertical = options.direction == "vertical"
        return only(instruction(FLIP, len(draws), vertical, not vertical), draws.chosen(options.p))
