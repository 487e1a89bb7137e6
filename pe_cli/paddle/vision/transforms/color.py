"""Transforms that draw how bright and how colourful a picture gets; they draw from Python's `random`."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, ClassVar

from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.vision.transforms import functional as F
from pe_cli.paddle.vision.transforms.base import BaseTransform


class _Drawn(BaseTransform):
    """Change pictures by a random factor.

    Args:
        value: v draws from max(0, 1 - v) to 1 + v; or the least and the greatest factor. 0 changes nothing.
        keys: of `BaseTransform`.

    Raises:
        FluidValueError: value is no range; a ValueError.
    """

    adjust: ClassVar[Callable[..., Any]]
    middle: ClassVar[float] = 1.0
    limits: ClassVar[tuple[float, float]] = (0.0, float("inf"))

    def __init__(self, value: Any, keys: Any = None) -> None:
        super().__init__(keys)
        name = type(self).__name__
        if isinstance(value, (int, float)):
            if value < 0:
                raise FluidValueError(f"{name}: value is {value}", hint="at least 0")
            low, high = self.middle - value, self.middle + value
            # A negative factor means nothing for brightness, contrast and saturation; colours turn either way.
            low = max(0.0, low) if self.limits[0] == 0 else low
        else:
            low, high = value
        if not self.limits[0] <= low <= high <= self.limits[1]:
            raise FluidValueError(f"{name}: value is {value}", hint=f"within {self.limits[0]} and {self.limits[1]}, the least first")
        self.value = (low, high)

    def _get_params(self, inputs: tuple[Any, ...]) -> float:
        return random.uniform(*self.value)

    def _apply_image(self, img: Any) -> Any:
        return img if self.value == (self.middle, self.middle) else type(self).adjust(img, self.params)


class BrightnessTransform(_Drawn):
    __doc__ = _Drawn.__doc__
    adjust = staticmethod(F.adjust_brightness)


class ContrastTransform(_Drawn):
    __doc__ = _Drawn.__doc__
    adjust = staticmethod(F.adjust_contrast)


class SaturationTransform(_Drawn):
    __doc__ = _Drawn.__doc__
    adjust = staticmethod(F.adjust_saturation)


class HueTransform(_Drawn):
    """Turn the colours of pictures.

    Args:
        value: v of [0, 0.5] draws from -v to v; or the least and the greatest, within [-0.5, 0.5].
        keys: of `BaseTransform`.
    """

    adjust = staticmethod(F.adjust_hue)
    middle = 0.0
    limits = (-0.5, 0.5)


class ColorJitter(BaseTransform):
    """Change brightness, contrast, saturation and hue, in a random order; each as its own transform does."""

    def __init__(self, brightness: Any = 0, contrast: Any = 0, saturation: Any = 0, hue: Any = 0, keys: Any = None) -> None:
        super().__init__(keys)
        self.transforms = [
            BrightnessTransform(brightness), ContrastTransform(contrast), SaturationTransform(saturation), HueTransform(hue),
        ]  # fmt: skip

    def _get_params(self, inputs: tuple[Any, ...]) -> list[tuple[_Drawn, Any]]:
        order = random.sample(self.transforms, len(self.transforms))
        return [(each, each._get_params(inputs)) for each in order]

    def _apply_image(self, img: Any) -> Any:
        for each, params in self.params:
            # Drawn once for a sample in `_get_params`: this method is called for each of its parts.
            each.params = params
            img = each._apply_image(img)
        return img


__all__ = ["BrightnessTransform", "ColorJitter", "ContrastTransform", "HueTransform", "SaturationTransform"]
