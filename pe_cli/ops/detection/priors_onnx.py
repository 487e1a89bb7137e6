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
    # Only the map's size counts, not its values: everything is computed here in float64, and rounded once.
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


# --- box_coder --------------------------------------------------------------------------------------------------------


@in_onnx("box_coder")
def box_coder_onnx(o: Writer) -> None:
    """Centres and sides, two numbers each."""
    one = o.const(0.0 if o.attrs["box_normalized"] else 1.0, "PriorBox")
    half = o.const(0.5, "PriorBox")
    prior, target = o.x("PriorBox"), o.x("TargetBox")
    decode = o.attrs["code_type"] == "decode_center_size"
    rows = decode and o.attrs["axis"] == 1

    def pair(of: str, first: int) -> str:
        return o.node("Slice", [of, o.const([first]), o.const([first + 2]), o.const([-1])])

    def by_prior(of: str) -> str:
        # By row, the prior is that of the code's row: its axis stands before that of the columns.
        return o.node("Unsqueeze", [of, o.const([1])]) if rows else of

    def two(kind: str, a: str, b: str) -> str:
        return o.node(kind, [a, b])

    if o.has("PriorBoxVar"):
        var = o.x("PriorBoxVar")
        scales = [by_prior(pair(var, 0)), by_prior(pair(var, 2))]
    else:
        numbers = o.attrs["variance"] or [1.0] * 4
        scales = [o.const(numbers[:2], "PriorBox"), o.const(numbers[2:], "PriorBox")]
    low, high = pair(prior, 0), pair(prior, 2)
    sides = two("Add", two("Sub", high, low), one)
    centres = two("Add", low, two("Mul", sides, half))
    sides, centres = by_prior(sides), by_prior(centres)
    first, last = pair(target, 0), pair(target, 2)
    if decode:
        middle = two("Add", two("Mul", two("Mul", scales[0], first), sides), centres)
        reach = two("Mul", two("Mul", o.node("Exp", [two("Mul", scales[1], last)]), sides), half)
        found = [two("Sub", middle, reach), two("Sub", two("Add", middle, reach), one)]
    else:
        whole = o.node("Unsqueeze", [two("Add", two("Sub", last, first), one), o.const([1])])
        middle = o.node("Unsqueeze", [two("Mul", two("Add", first, last), half), o.const([1])])
        away = two("Div", two("Div", two("Sub", middle, centres), sides), scales[0])
        larger = two("Div", o.node("Log", [o.node("Abs", [two("Div", whole, sides)])]), scales[1])
        found = [away, larger]
    o.node("Concat", found, to="OutputBox", axis=-1)
