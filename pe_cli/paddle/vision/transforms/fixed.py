"""Transforms without random draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pe_cli.paddle.vision.transforms import functional as F
from pe_cli.paddle.vision.transforms.base import BaseTransform


class Resize(BaseTransform):
    """Resize pictures; arguments of `resize`."""

    def __init__(self, size: Any, interpolation: str = "bilinear", keys: Any = None) -> None:
        super().__init__(keys)
        F.pair("Resize", size)
        self.size, self.interpolation = size, interpolation

    def _apply_image(self, img: Any) -> Any:
        return F.resize(img, self.size, self.interpolation)


class CenterCrop(BaseTransform):
    """Cut the middle out.

    Args:
        size: (height, width), or one number for both.
        keys: of `BaseTransform`.
    """

    def __init__(self, size: Any, keys: Any = None) -> None:
        super().__init__(keys)
        self.size = F.pair("CenterCrop", size)

    def _apply_image(self, img: Any) -> Any:
        return F.center_crop(img, self.size)


class Pad(BaseTransform):
    """Put a border around pictures; arguments of `pad`."""

    def __init__(self, padding: Any, fill: Any = 0, padding_mode: str = "constant", keys: Any = None) -> None:
        super().__init__(keys)
        self.padding, self.fill, self.padding_mode = padding, fill, padding_mode

    def _apply_image(self, img: Any) -> Any:
        return F.pad(img, self.padding, self.fill, self.padding_mode)


class Grayscale(BaseTransform):
    """Take the brightness of pictures, in one channel or in three."""

    def __init__(self, num_output_channels: int = 1, keys: Any = None) -> None:
        super().__init__(keys)
        self.num_output_channels = num_output_channels

    def _apply_image(self, img: Any) -> Any:
        return F.to_grayscale(img, self.num_output_channels)


class ToTensor(BaseTransform):
    """Make arrays that can be fed of pictures; arguments of `to_tensor`."""

    def __init__(self, data_format: str = "CHW", keys: Any = None) -> None:
        super().__init__(keys)
        self.data_format = data_format

    def _apply_image(self, img: Any) -> Any:
        return F.to_tensor(img, self.data_format)


class Normalize(BaseTransform):
    """Subtract a mean and divide by a deviation; arguments of `normalize`, where one number is that of three channels."""

    def __init__(self, mean: Any = 0.0, std: Any = 1.0, data_format: str = "CHW", to_rgb: bool = False, keys: Any = None) -> None:
        super().__init__(keys)
        self.mean, self.std = ([v] * 3 if isinstance(v, (int, float)) else v for v in (mean, std))
        self.data_format, self.to_rgb = data_format, to_rgb

    def _apply_image(self, img: Any) -> Any:
        return F.normalize(img, self.mean, self.std, self.data_format, self.to_rgb)


class Transpose(BaseTransform):
    """Make arrays of pictures and change the order of their axes; a gray one gets an axis of one channel first."""

    def __init__(self, order: Sequence[int] = (2, 0, 1), keys: Any = None) -> None:
        super().__init__(keys)
        self.order = tuple(order)

    def _apply_image(self, img: Any) -> Any:
        values = np.asarray(img)
        return np.ascontiguousarray((values[..., None] if values.ndim == 2 else values).transpose(self.order))


__all__ = ["CenterCrop", "Grayscale", "Normalize", "Pad", "Resize", "ToTensor", "Transpose"]
