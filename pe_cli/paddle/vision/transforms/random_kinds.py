"""Transforms with random crops and turns; they draw from Python's `random`, so `random.seed` repeats them."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.vision.transforms import functional as F
from pe_cli.paddle.vision.transforms.base import BaseTransform

#: Boxes that are tried until one fits.
TRIES = 10


def chance(prob: float) -> float:
    """Return a probability.

    Raises:
        FluidValueError: it is none; a ValueError.
    """
    if not 0 <= prob <= 1:
        raise FluidValueError(f"prob is {prob}", hint="from 0 to 1")
    return prob


class RandomHorizontalFlip(BaseTransform):
    """Mirror pictures with a probability."""

    def __init__(self, prob: float = 0.5, keys: Any = None) -> None:
        super().__init__(keys)
        self.prob = chance(prob)

    def _get_params(self, inputs: tuple[Any, ...]) -> bool:
        return random.random() < self.prob

    def _apply_image(self, img: Any) -> Any:
        return F.hflip(img) if self.params else img


class RandomVerticalFlip(BaseTransform):
    """Turn pictures upside down with a probability."""

    def __init__(self, prob: float = 0.5, keys: Any = None) -> None:
        super().__init__(keys)
        self.prob = chance(prob)

    def _get_params(self, inputs: tuple[Any, ...]) -> bool:
        return random.random() < self.prob

    def _apply_image(self, img: Any) -> Any:
        return F.vflip(img) if self.params else img


class RandomCrop(BaseTransform):
    """Cut a box of one size out, anywhere.

    Args:
        size: (height, width), or one number for both.
        padding: border that is put around first; see `pad`.
        pad_if_needed: make pictures that are too small as large as the box, by a border on both sides.
        fill: value of a constant border.
        padding_mode: constant, edge, reflect or symmetric.
        keys: of `BaseTransform`.

    Raises:
        FluidValueError: when called: a picture is too small; a ValueError.
    """

    def __init__(
        self,
        size: Any,
        padding: Any = None,
        pad_if_needed: bool = False,
        fill: Any = 0,
        padding_mode: str = "constant",
        keys: Any = None,
    ) -> None:
        super().__init__(keys)
        self.size, self.padding, self.pad_if_needed = F.pair("RandomCrop", size), padding, pad_if_needed
        self.fill, self.padding_mode = fill, padding_mode

    def _padded(self, img: Any) -> Any:
        if self.padding is not None:
            img = F.pad(img, self.padding, self.fill, self.padding_mode)
        height, width = F.sizes_of(img)
        tall, wide = self.size
        if self.pad_if_needed and (height < tall or width < wide):
            # Both sides get the whole difference, as in the original, so that the box has room to move.
            img = F.pad(img, (max(0, wide - width), max(0, tall - height)), self.fill, self.padding_mode)
        return img

    def _get_params(self, inputs: tuple[Any, ...]) -> tuple[int, int]:
        height, width = F.sizes_of(self._padded(self.image_of(inputs)))
        tall, wide = self.size
        if height < tall or width < wide:
            raise FluidValueError(f"RandomCrop: a picture is [{height}, {width}], the box [{tall}, {wide}]", hint="pad_if_needed=True")
        return random.randint(0, height - tall), random.randint(0, width - wide)

    def _apply_image(self, img: Any) -> Any:
        top, left = self.params
        return F.crop(self._padded(img), top, left, *self.size)


class RandomResizedCrop(BaseTransform):
    """Cut a box of a random area and shape out, and resize it.

    Args:
        size: (height, width) of the result, or one number for both.
        scale: least and greatest share of the picture's area.
        ratio: least and greatest width of the box by its height.
        interpolation: see `resize`.
        keys: of `BaseTransform`.

    Source:
        Szegedy et al. 2014, "Going deeper with convolutions".

    Raises:
        FluidValueError: scale or ratio is no range of numbers above 0.
    """

    def __init__(
        self,
        size: Any,
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3.0 / 4, 4.0 / 3),
        interpolation: str = "bilinear",
        keys: Any = None,
    ) -> None:
        super().__init__(keys)
        if not (0 < scale[0] <= scale[1] and 0 < ratio[0] <= ratio[1]):
            raise FluidValueError(f"RandomResizedCrop: scale is {scale}, ratio is {ratio}", hint="the least above 0, then the greatest")
        self.size, self.scale, self.ratio, self.interpolation = F.pair("RandomResizedCrop", size), scale, ratio, interpolation

    def _get_params(self, inputs: tuple[Any, ...]) -> tuple[int, int, int, int]:
        height, width = F.sizes_of(self.image_of(inputs))
        # Evenly in the logarithm, so that a shape and its inverse are equally likely.
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        for _ in range(TRIES):
            area, shape = random.uniform(*self.scale) * height * width, math.exp(random.uniform(low, high))
            tall, wide = round(math.sqrt(area / shape)), round(math.sqrt(area * shape))
            if 0 < tall <= height and 0 < wide <= width:
                return random.randint(0, height - tall), random.randint(0, width - wide), tall, wide
        # As in the original, the largest box in the middle whose shape is allowed.
        tall, wide = height, width
        if width / height < self.ratio[0]:
            tall = max(1, round(width / self.ratio[0]))
        elif width / height > self.ratio[1]:
            wide = max(1, round(height * self.ratio[1]))
        return (height - tall) // 2, (width - wide) // 2, tall, wide

    def _apply_image(self, img: Any) -> Any:
        return F.resize(F.crop(img, *self.params), self.size, self.interpolation)


class RandomRotation(BaseTransform):
    """Turn pictures by a random angle.

    Args:
        degrees: greatest angle to either side, or the least and the greatest.
        interpolation: see `rotate`; False is the older word for nearest.
        expand, center, fill: see `rotate`.
        keys: of `BaseTransform`.

    Raises:
        FluidValueError: degrees are no range; a ValueError.
    """

    def __init__(
        self,
        degrees: Any,
        interpolation: str | bool = "nearest",
        expand: bool = False,
        center: Sequence[float] | None = None,
        fill: Any = 0,
        keys: Any = None,
        resample: str | bool | None = None,
    ) -> None:
        super().__init__(keys)
        low, high = (-degrees, degrees) if isinstance(degrees, (int, float)) else degrees
        if low > high:
            raise FluidValueError(f"RandomRotation: degrees are {degrees}", hint="a number of at least 0, or (least, greatest)")
        self.degrees, self.expand, self.center, self.fill = (low, high), expand, center, fill
        self.interpolation = (interpolation if resample is None else resample) or "nearest"

    def _get_params(self, inputs: tuple[Any, ...]) -> float:
        return random.uniform(*self.degrees)

    def _apply_image(self, img: Any) -> Any:
        return F.rotate(img, self.params, str(self.interpolation), self.expand, self.center, self.fill)


__all__ = ["RandomCrop", "RandomHorizontalFlip", "RandomResizedCrop", "RandomRotation", "RandomVerticalFlip"]
