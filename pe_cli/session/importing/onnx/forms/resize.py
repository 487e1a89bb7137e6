"""Resize and Upsample: images of another size."""

from __future__ import annotations

from typing import Any

from pe_cli.session.importing.onnx.forms.elementwise import floats
from pe_cli.session.importing.onnx.node import Node, form
from pe_cli.session.importing.onnx.values import Size, Unimportable, Value, known


@form("Resize", "Upsample")
def resize(node: Node) -> Value:
    x = floats(node)
    outs = _sizes(node, x)
    if list(outs[:2]) != list(x.dims[:2]) or len(outs) not in (3, 4):
        raise Unimportable(f"it makes {list(known(tuple(outs)))} of {list(known(x.dims))}: layers resize rows and images")
    where = _places(node)
    mode = str(node.attr("mode", "nearest"))
    target: dict[str, Any] = {"out_shape": [int(str(size)) for size in outs[2:]]}
    if mode == "nearest":
        return _nearest(node, x, outs, target, where)
    if mode not in ("linear", "bilinear"):
        raise Unimportable(f"mode {mode}: layers resize by nearest and linear")
    if node.attr("antialias", 0):
        raise Unimportable("antialias, which no layer has")
    names = {"half_pixel": (False, 0), "pytorch_half_pixel": (False, 0), "align_corners": (True, 1), "asymmetric": (False, 1)}
    if where not in names or (where == "pytorch_half_pixel" and 1 in outs[2:]):
        raise Unimportable(f"{where}: layers resize by half_pixel, align_corners and asymmetric")
    _check_scales(node, x, outs)
    corners, align_mode = names[where]
    how = "LINEAR" if len(outs) == 3 else "BILINEAR"
    return node.out("image_resize", input=x, resample=how, align_corners=corners, align_mode=align_mode, dims=outs, **target)


def _places(node: Node) -> str:
    if node.op == "Upsample" or node.opset < 11:
        return "asymmetric"
    return str(node.attr("coordinate_transformation_mode", "half_pixel"))


def _sizes(node: Node, x: Value) -> list[Size]:
    """Return the sizes of the output."""
    if node.attr("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Unimportable("it keeps the proportion of the sides")
    if "scales" in node.attrs or node.op == "Upsample" or node.opset < 11:
        scales = [float(v) for v in (node.attrs["scales"] if "scales" in node.attrs else node.const(1, "scales"))]
    elif node.has(3):
        value = node.value(3)
        given = list(value.sizes) if value.sizes is not None else [int(v) for v in node.const(3, "sizes")]
        axes = [int(a) % len(x.dims) for a in node.attr("axes", range(len(x.dims)))]
        return [given[axes.index(axis)] if axis in axes else size for axis, size in enumerate(x.dims)]
    else:
        scales = [float(v) for v in node.const(2, "scales")]
    axes = [int(a) % len(x.dims) for a in node.attr("axes", range(len(x.dims)))]
    made: list[Size] = list(x.dims)
    for axis, scale in zip(axes, scales, strict=True):
        size = x.dims[axis]
        if scale == 1:
            continue
        if not isinstance(size, int):
            raise Unimportable("it scales a size that is not known")
        made[axis] = int(size * scale)
    return made


def _check_scales(node: Node, x: Value, outs: list[Size]) -> None:
    """Refuse a scale that is not the ratio of the sizes: places would be others."""
    if node.has(2) and node.opset >= 11:
        scales = [float(v) for v in node.const(2, "scales").reshape(-1)]
        axes = [int(a) % len(x.dims) for a in node.attr("axes", range(len(x.dims)))]
        for axis, scale in zip(axes, scales, strict=False):
            size, out = x.dims[axis], outs[axis]
            if isinstance(size, int) and isinstance(out, int) and abs(size * scale - out) > 1e-6:
                raise Unimportable(f"a scale of {scale} makes {size} to {size * scale}, which is no whole size")


def _nearest(node: Node, x: Value, outs: list[Size], target: dict[str, Any], where: str) -> Value:
    """Append the layer for the nearest pixel, or repeat pixels where sizes are multiples."""
    pairs = zip(outs, x.dims, strict=True)
    times = [out // size if isinstance(out, int) and isinstance(size, int) and out % size == 0 else 0 for out, size in pairs]
    rounding = str(node.attr("nearest_mode", "round_prefer_floor")) if node.opset >= 11 and node.op == "Resize" else "floor"
    if all(times[2:]) and (where, rounding) in _REPEATS:
        return _repeated(node, x, outs, times[2:])
    if where == "asymmetric" and rounding == "floor" and len(outs) == 4:
        _check_scales(node, x, outs)
        return node.out("resize_nearest", input=x, align_corners=False, dims=outs, **target)
    raise Unimportable(f"nearest with {where} and {rounding}: the layer resize_nearest has asymmetric and floor")


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
