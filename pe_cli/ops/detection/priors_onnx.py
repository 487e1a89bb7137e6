"""prior_box, density_prior_box and anchor_generator in ONNX: constants, as the sizes of maps are known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.detection.prior_box import Box, _anchors, _dense, _priors


def _constants(
    o: Writer, boxes: Iterable[Box], slot: str, *, steps: Sequence[float], per: Sequence[float], shift: float, clip: bool
) -> None:
    """Write boxes and variances.

    Args:
        o: gets them.
        boxes: kinds of every pixel.
        slot: of the boxes.
        steps: from pixel to pixel of the map, along width and height.
        per: what sides are parts of, likewise.
        shift: where the first pixel is; see `prior_box._lower`.
        clip: cut what is outside.
    """
    rows, columns = o.type("Input").shape[2:]
    kinds = np.array(list(boxes))
    pixels = np.stack(np.meshgrid(np.arange(columns), np.arange(rows)), -1)[:, :, None]
    centres = pixels * np.array(steps) + o.attrs["offset"] * (np.array(steps) - shift) + kinds[:, 2:]
    found = np.concatenate([centres - kinds[:, :2], centres + kinds[:, :2]], -1) / np.array([*per, *per])
    found = found.clip(0, 1) if clip else found
    for made, to in ((found, slot), (np.broadcast_to(o.attrs["variances"], found.shape), "Variances")):
        o.node("Identity", [o.const(made, "Input")], to=to)


def _of_image(o: Writer, kinds: Callable[[Any, float, float], Iterable[Box]], *, clip: bool) -> None:
    """Write boxes whose sides are parts of the image."""
    (rows, columns), (height, width) = o.type("Input").shape[2:], o.type("Image").shape[2:]
    steps = o.attrs["step_w"] or width / columns, o.attrs["step_h"] or height / rows
    _constants(o, kinds(dict(o.attrs), *steps), "Boxes", steps=steps, per=(width, height), shift=0.0, clip=clip)


@in_onnx("prior_box")
def prior_box_onnx(o: Writer) -> None:
    """Constants."""
    _of_image(o, lambda attrs, *_: _priors(attrs), clip=o.attrs["clip"])


@in_onnx("density_prior_box")
def density_prior_box_onnx(o: Writer) -> None:
    """Constants."""
    _of_image(o, _dense, clip=True)


@in_onnx("anchor_generator")
def anchor_generator_onnx(o: Writer) -> None:
    """Constants."""
    _constants(o, _anchors(dict(o.attrs)), "Anchors", steps=o.attrs["stride"], per=(1.0, 1.0), shift=1.0, clip=False)
