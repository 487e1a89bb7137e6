"""Transforms that move the corners of pictures, or paint over a part of them."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.vision.transforms import arrays, pillow
from pe_cli.paddle.vision.transforms import functional as F
from pe_cli.paddle.vision.transforms.base import BaseTransform
from pe_cli.paddle.vision.transforms.random_kinds import TRIES, chance


def _warped(img: Any, matrix: Sequence[float], interpolation: str, fill: Any) -> Any:
    """Take every pixel from where a matrix of three rows says: x and y of its source, and what both are divided by."""
    if pillow.is_pillow(img):
        return pillow.warp(img, matrix, interpolation, fill)
    height, width = F.sizes_of(img)
    return arrays.warp(img, np.reshape([*matrix, 1.0], (3, 3)), (height, width), interpolation, fill)


def affine(
    img: Any,
    angle: float,
    translate: Sequence[float],
    scale: float,
    shear: Any,
    interpolation: str = "nearest",
    fill: Any = 0,
    center: Sequence[float] | None = None,
) -> Any:
    """Turn, move, resize and shear a picture about its middle, or about a point.

    Arrays are changed as Pillow changes pictures, where 2.6's functions of OpenCV move them elsewhere.

    Args:
        img: picture.
        angle: degrees, clockwise.
        translate: pixels to the right and down.
        scale: factor, above 0.
        shear: degrees along x, or along x and y.
        interpolation: nearest or bilinear; bicubic for Pillow's pictures.
        fill: value where nothing was, or one for each channel.
        center: (x, y) from the upper left corner, in pixels.

    Raises:
        FluidValueError: two numbers are needed, or scale is not above 0; a ValueError.
    """
    slants = [shear, 0.0] if isinstance(shear, (int, float)) else [*shear] * (2 if len(shear) == 1 else 1)
    if len(translate) != 2 or len(slants) != 2 or scale <= 0:
        raise FluidValueError(f"affine: translate {translate}, scale {scale}, shear {shear}", hint="two numbers, one above 0, one or two")
    height, width = F.sizes_of(img)
    x, y = center if center is not None else (0.5 * width, 0.5 * height)
    turn, sx, sy = (math.radians(v) for v in (angle, *slants))
    forward = np.array([
        [math.cos(turn - sy) / math.cos(sy), -math.cos(turn - sy) * math.tan(sx) / math.cos(sy) - math.sin(turn)],
        [math.sin(turn - sy) / math.cos(sy), -math.sin(turn - sy) * math.tan(sx) / math.cos(sy) + math.cos(turn)],
    ])  # fmt: skip
    back = np.linalg.inv(forward * scale)
    moved = np.array([x, y]) - back @ np.array([x + translate[0], y + translate[1]])
    rows = [[*back[i], moved[i]] for i in (0, 1)]
    return _warped(img, [*rows[0], *rows[1], 0.0, 0.0], interpolation, fill)


def perspective(
    img: Any, startpoints: Sequence[Any], endpoints: Sequence[Any], interpolation: str = "nearest", fill: Any = 0
) -> Any:
    """Move four points of a picture to others, as a camera that moves does.

    Args:
        img: picture.
        startpoints: four points (x, y), in pixels.
        endpoints: where they go.
        interpolation: nearest or bilinear; bicubic for Pillow's pictures.
        fill: value where nothing was, or one for each channel.

    Raises:
        FluidValueError: not four points; a ValueError.
    """
    if len(startpoints) != 4 or len(endpoints) != 4:
        raise FluidValueError(f"perspective: {len(startpoints)} points go to {len(endpoints)}", hint="four points each")
    equations = []
    for (x, y), (u, v) in zip(endpoints, startpoints, strict=True):
        equations += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
    found = np.linalg.lstsq(np.array(equations, "float64"), np.array(startpoints, "float64").reshape(8), rcond=None)[0]
    return _warped(img, [float(n) for n in found], interpolation, fill)


def erase(img: Any, i: int, j: int, h: int, w: int, v: Any, inplace: bool = False) -> Any:
    """Paint over a box of a picture.

    Args:
        img: picture.
        i: row of its upper edge.
        j: column of its left edge.
        h: rows.
        w: columns.
        v: a number, one for each channel, or an array of the box.
        inplace: change an array itself.
    """
    if pillow.is_pillow(img):
        from PIL import Image

        return Image.fromarray(erase(np.array(img), i, j, h, w, v, inplace=True))
    F.sizes_of(img)
    made = img if inplace else img.copy()
    made[i : i + h, j : j + w] = v
    return made


def _range(name: str, given: Any, counts: Sequence[int] = (2,)) -> list[float]:
    """Return the ends of a range: a number is one to either side.

    Raises:
        FluidValueError: it is none.
    """
    if isinstance(given, (int, float)):
        if given < 0:
            raise FluidValueError(f"{name}: {given}", hint="a number of at least 0, or both ends")
        return [-given, given]
    if len(given) not in counts:
        raise FluidValueError(f"{name}: {given}", hint=f"a number, or {' or '.join(map(str, counts))} of them")
    return list(given)


class RandomAffine(BaseTransform):
    """Turn, move, resize and shear pictures at random; see `affine`.

    Args:
        degrees: greatest angle to either side, or the least and the greatest.
        translate: greatest parts of the width and height, from 0 to 1; or None.
        scale: least and greatest factor; or None.
        shear: greatest angle to either side, or least and greatest along x, or along x and y; or None.
        interpolation, fill, center: see `affine`.
        keys: of `BaseTransform`.

    Raises:
        FluidValueError: no such parts or factors; a ValueError.
    """

    def __init__(
        self,
        degrees: Any,
        translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        shear: Any = None,
        interpolation: str = "nearest",
        fill: Any = 0,
        center: Sequence[float] | None = None,
        keys: Any = None,
    ) -> None:
        super().__init__(keys)
        self.degrees = _range("RandomAffine: degrees", degrees)
        if (translate is not None and (len(translate) != 2 or not all(0 <= t <= 1 for t in translate))) or (
            scale is not None and (len(scale) != 2 or min(scale) <= 0)
        ):
            raise FluidValueError(f"RandomAffine: translate {translate}, scale {scale}", hint="two parts from 0 to 1; two factors above 0")
        self.translate, self.scale = translate, scale
        self.shear = None if shear is None else _range("RandomAffine: shear", shear, (2, 4))
        self.interpolation, self.fill, self.center = interpolation, 0 if fill is None else fill, center

    def _get_params(self, inputs: tuple[Any, ...]) -> Any:
        height, width = F.sizes_of(inputs[self.keys.index("image")])
        angle = random.uniform(*self.degrees)
        most = (0.0, 0.0) if self.translate is None else (self.translate[0] * width, self.translate[1] * height)
        moved = tuple(int(random.uniform(-m, m)) if m else 0 for m in most)
        scale = 1.0 if self.scale is None else random.uniform(*self.scale)
        slants = [random.uniform(*(self.shear or [0.0, 0.0])[:2]) if self.shear else 0.0, 0.0]
        if self.shear and len(self.shear) == 4:
            slants[1] = random.uniform(*self.shear[2:])
        return angle, moved, scale, slants

    def _apply_image(self, img: Any) -> Any:
        angle, moved, scale, slants = self.params
        return affine(img, angle, moved, scale, slants, self.interpolation, self.fill, self.center)


class RandomPerspective(BaseTransform):
    """Move the corners of pictures inwards with a probability; see `perspective`.

    Args:
        prob: of a change.
        distortion_scale: how far, of half of the picture: from 0 to 1.
        interpolation, fill: see `perspective`.
        keys: of `BaseTransform`.

    Raises:
        FluidValueError: prob or distortion_scale are not from 0 to 1; a ValueError.
    """

    def __init__(
        self, prob: float = 0.5, distortion_scale: float = 0.5, interpolation: str = "nearest", fill: Any = 0, keys: Any = None
    ) -> None:
        super().__init__(keys)
        self.prob, self.distortion_scale = chance(prob), chance(distortion_scale)
        self.interpolation, self.fill = interpolation, fill

    def _get_params(self, inputs: tuple[Any, ...]) -> Any:
        if random.random() >= self.prob:
            return None
        height, width = F.sizes_of(inputs[self.keys.index("image")])
        across, down = int(self.distortion_scale * (width // 2)), int(self.distortion_scale * (height // 2))

        def near(low: int, size: int, reach: int) -> int:
            return int(random.uniform(size - reach - 1, size) if low else random.uniform(0, reach + 1))

        corners = [(0, 0), (1, 0), (1, 1), (0, 1)]
        starts = [[x * (width - 1), y * (height - 1)] for x, y in corners]
        return starts, [[near(x, width, across), near(y, height, down)] for x, y in corners]

    def _apply_image(self, img: Any) -> Any:
        if self.params is None:
            return img
        starts, ends = self.params
        return perspective(img, starts, ends, self.interpolation, self.fill)


class RandomErasing(BaseTransform):
    """Paint over a random box with a probability (Zhong et al. 2017).

    Args:
        prob: of a change.
        scale: least and greatest part of the picture.
        ratio: least and greatest height by width.
        value: a number, one for each channel, or "random": normal numbers.
        inplace: change arrays themselves.
        keys: of `BaseTransform`.

    Raises:
        FluidValueError: no such range or value; a ValueError.
    """

    def __init__(
        self,
        prob: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: Any = 0,
        inplace: bool = False,
        keys: Any = None,
    ) -> None:
        super().__init__(keys)
        if not 0 <= scale[0] <= scale[1] <= 1 or not 0 < ratio[0] <= ratio[1] or (isinstance(value, str) and value != "random"):
            raise FluidValueError(f"RandomErasing: scale {scale}, ratio {ratio}, value {value!r}", hint="least and greatest; or 'random'")
        self.prob, self.scale, self.ratio, self.value, self.inplace = chance(prob), scale, ratio, value, inplace

    def _get_params(self, inputs: tuple[Any, ...]) -> Any:
        if random.random() >= self.prob:
            return None
        picture = inputs[self.keys.index("image")]
        height, width = F.sizes_of(picture)
        for _ in range(TRIES):
            area = height * width * random.uniform(*self.scale)
            shape = math.exp(random.uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            tall, wide = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
            if tall < height and wide < width:
                value = self.value
                if isinstance(value, str):
                    drawn = np.random.default_rng(random.getrandbits(64))
                    value = drawn.standard_normal((tall, wide, *np.asarray(picture).shape[2:]))
                return random.randint(0, height - tall), random.randint(0, width - wide), tall, wide, value
        return None

    def _apply_image(self, img: Any) -> Any:
        if self.params is None:
            return img
        top, left, tall, wide, value = self.params
        return erase(img, top, left, tall, wide, value, self.inplace)


__all__ = ["RandomAffine", "RandomErasing", "RandomPerspective", "affine", "erase", "perspective"]
