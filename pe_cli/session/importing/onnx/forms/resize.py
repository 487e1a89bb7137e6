"""Resize and Upsample: images of another size, by a layer that does it, or by the weights of each axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.session.importing.onnx.fold import bounded
from pe_cli.session.importing.onnx.forms.elementwise import floats
from pe_cli.session.importing.onnx.forms.matrices import along_axis
from pe_cli.session.importing.onnx.forms.resize_weights import Way, weights
from pe_cli.session.importing.onnx.node import Node, form
from pe_cli.session.importing.onnx.values import Size, Unimportable, Value

#: Elements that a place of an axis counts for: its weights take time of their own.
_PLACE = 16
_MODES = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic"}


@form("Resize", "Upsample")
def resize(node: Node) -> Value:
    x = floats(node)
    outs, scales = _sizes(node, x)
    way = _way(node)
    roi = _region(node, x) if way.where == "tf_crop_and_resize" else {}
    outside = float(node.attr("extrapolation_value", 0.0))
    if tuple(outs) == x.dims and not roi:
        return node.out("assign", input=x, dims=x.dims)
    return _by_layer(node, x, outs, scales, way) or _by_weights(node, x, outs, scales, way, roi, outside)


def _way(node: Node) -> Way:
    """Return what the attributes say.

    Raises:
        Unimportable: a mode that is not known.
    """
    mode = str(node.attr("mode", "nearest"))
    if mode not in _MODES:
        raise Unimportable(f"mode {mode} is not known")
    # Before operator set 11 there was one way: a place of the output times the inverse scale, rounded down.
    if node.op == "Upsample" or node.opset < 11:
        return Way(_MODES[mode], "asymmetric", "floor")
    return Way(
        _MODES[mode], str(node.attr("coordinate_transformation_mode", "half_pixel")), str(node.attr("nearest_mode", "round_prefer_floor")),
        float(node.attr("cubic_coeff_a", -0.75)), bool(node.attr("exclude_outside", 0)), bool(node.attr("antialias", 0)),
    )  # fmt: skip


def _axes(node: Node, x: Value) -> list[int]:
    return [int(a) % len(x.dims) for a in node.attr("axes", range(len(x.dims)))]


def _region(node: Node, x: Value) -> dict[int, tuple[float, float]]:
    """Return which part of each axis is looked at."""
    numbers = [float(v) for v in node.const(1, "the region").reshape(-1)]
    axes = _axes(node, x)
    return {axis: (numbers[i], numbers[len(axes) + i]) for i, axis in enumerate(axes)}


def _sizes(node: Node, x: Value) -> tuple[list[Size], dict[int, float]]:
    """Return the sizes of the output, and the scale of each axis that has one.

    Raises:
        Unimportable: a size that is not known is scaled.
    """
    axes = _axes(node, x)
    made: list[Size] = list(x.dims)
    if node.op == "Resize" and node.opset >= 11 and node.has(3):
        value = node.value(3)
        given = list(value.sizes) if value.sizes is not None else [int(v) for v in node.const(3, "sizes")]
        given, scales = _proportional(node, x, axes, given)
        for axis, size in zip(axes, given, strict=True):
            made[axis] = size
        return made, scales
    index = 1 if node.op == "Upsample" or node.opset < 11 else 2
    found = node.attrs["scales"] if "scales" in node.attrs else node.const(index, "scales")
    scales = {}
    for axis, scale in zip(axes, map(float, found), strict=True):
        size = x.dims[axis]
        if scale != 1:
            if not isinstance(size, int):
                raise Unimportable("it scales a size that is not known")
            made[axis], scales[axis] = int(size * scale), scale
    return made, scales


def _proportional(node: Node, x: Value, axes: list[int], given: list[Size]) -> tuple[list[Size], dict[int, float]]:
    """Return sizes that keep the proportion of the sides, where that is asked for."""
    policy = str(node.attr("keep_aspect_ratio_policy", "stretch"))
    pairs = [(out, x.dims[axis]) for out, axis in zip(given, axes, strict=True)]
    if not all(isinstance(out, int) and isinstance(size, int) for out, size in pairs):
        if policy != "stretch":
            raise Unimportable("it keeps the proportion of sides that are not known")
        return given, {}
    ratios = [int(str(out)) / int(str(size)) for out, size in pairs]
    if policy == "stretch":
        return given, {axis: ratio for axis, ratio in zip(axes, ratios, strict=True) if ratio != 1}
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    # ONNX rounds the half up, Python and numpy to the even number: hence floor(x + 0.5).
    return [int(np.floor(int(str(size)) * ratio + 0.5)) for _, size in pairs], dict.fromkeys(axes, ratio)


def _by_layer(node: Node, x: Value, outs: list[Size], scales: dict[int, float], way: Way) -> Value | None:
    """Append a layer that resizes so; None where there is none."""
    whole = all(isinstance(size, int) for size in outs[2:])
    if list(outs[:2]) != list(x.dims[:2]) or len(outs) not in (3, 4) or not whole or way.antialias or way.exclude:
        return None
    sizes = [(int(str(out)), size, scales.get(axis + 2)) for axis, (out, size) in enumerate(zip(outs[2:], x.dims[2:], strict=True))]
    # The layers compute the scale from the two sizes. Where the file's scale was rounded off in the size, the layer's places would lie
    # beside the file's.
    exact = not any(isinstance(size, int) and scale is not None and abs(size * scale - out) > 1e-6 for out, size, scale in sizes)
    target: dict[str, Any] = {"out_shape": [out for out, _, _ in sizes]}
    if way.mode == "nearest":
        times = [out // size if isinstance(size, int) and out % size == 0 else 0 for out, size, _ in sizes]
        if all(times) and (way.where, way.rounding) in _REPEATS:
            return _repeated(node, x, outs, times)
        if way.where == "asymmetric" and way.rounding == "floor" and len(outs) == 4 and exact:
            return node.out("resize_nearest", input=x, align_corners=False, dims=outs, **target)
        return None
    names = {"half_pixel": (False, 0), "pytorch_half_pixel": (False, 0), "align_corners": (True, 1), "asymmetric": (False, 1)}
    if way.mode != "linear" or way.where not in names or not exact or (way.where == "pytorch_half_pixel" and 1 in outs[2:]):
        return None
    corners, align_mode = names[way.where]
    how = "LINEAR" if len(outs) == 3 else "BILINEAR"
    return node.out("image_resize", input=x, resample=how, align_corners=corners, align_mode=align_mode, dims=outs, **target)


def _by_weights(
    node: Node, x: Value, outs: list[Size], scales: dict[int, float], way: Way, roi: dict[int, tuple[float, float]], outside: float
) -> Value:
    """Multiply each axis by the weights of its places.

    Raises:
        Unimportable: sizes are not known.
    """
    made = x
    for axis, (size, out) in enumerate(zip(x.dims, outs, strict=True)):
        part = roi.get(axis, (0.0, 1.0))
        if size == out and axis not in scales and part == (0.0, 1.0):
            continue
        if not isinstance(size, int) or not isinstance(out, int):
            raise Unimportable("it resizes by what no layer does, and the sizes are not known")
        bounded([out, size, _PLACE], "the weights of an axis")
        matrix, beyond = weights(way, size, out, scales.get(axis, out / size), part)
        bias = np.where(beyond, outside, 0.0) if beyond.any() else None
        made = along_axis(node, made, axis, matrix.T, f"axis_{axis}", bias)
    return node.out("assign", input=made, dims=outs)


#: Ways in which a multiple of a size repeats every pixel.
_REPEATS = {
    ("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil"),
    ("pytorch_half_pixel", "round_prefer_floor"), ("pytorch_half_pixel", "round_prefer_ceil"),
}  # fmt: skip


def _repeated(node: Node, x: Value, outs: list[Size], times: list[int]) -> Value:
    """Repeat every pixel."""
    shape: list[Size] = list(x.dims[:2])
    many: list[Size] = list(x.dims[:2])
    expand = [1, 1]
    for size, n in zip(x.dims[2:], times, strict=True):
        shape += [size, 1]
        many += [size, n]
        expand += [1, n]
    apart = node.reshaped(x, shape, "apart")
    repeated = node.mid("expand", "repeated", x=apart, expand_times=expand, dims=many)
    return node.reshaped(repeated, outs)
