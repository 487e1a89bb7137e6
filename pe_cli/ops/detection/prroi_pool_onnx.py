"""prroi_pool in ONNX: how much rows and columns count in a part are integrals of hat functions, which two products apply."""

from __future__ import annotations

import numpy as np

from pe_cli.ops.define.onnx import Writer, element_type, in_onnx
from pe_cli.ops.detection.nms_onnx import columns
from pe_cli.ops.detection.regions_onnx import owners_of, sizes_of


def _area(o: Writer, t: str) -> str:
    """Return the integral of a hat, 1 - |t| where that is above 0, up to t."""
    def number(v: float) -> str:
        return o.const(v, dtype="float64")

    near = o.node("Clip", [t, number(-1), number(1)])
    half = o.node("Mul", [o.node("Mul", [near, o.node("Abs", [near])]), number(0.5)])
    return o.node("Sub", [o.node("Add", [near, number(0.5)]), half])


@in_onnx("prroi_pool")
def prroi_pool_onnx(o: Writer) -> None:
    """The integral over a part is a product from both sides.

    Raises:
        PeError: images whose size is not known.
    """
    a, sizes = o.attrs, sizes_of(o)

    def number(v: object) -> str:
        return o.const(v, dtype="float64")

    rois = o.node("Mul", [o.node("Cast", [o.x("ROIs")], to_=11), number(a["spatial_scale"])])
    weights, lengths = [], []
    for d, parts in ((1, a["pooled_height"]), (0, a["pooled_width"])):
        low, high = columns(o, rois, d, d + 1), columns(o, rois, d + 2, d + 3)  # [regions, 1]
        length = o.node("Div", [o.node("Max", [o.node("Sub", [high, low]), number(0)]), number(parts)])
        edges = [o.node("Add", [low, o.node("Mul", [length, number(np.arange(parts) + k)])]) for k in (0, 1)]
        pixels = number(np.arange(sizes[1 - d]).reshape(1, 1, -1))
        upto = [_area(o, o.node("Sub", [o.node("Unsqueeze", [e, o.const([2])]), pixels])) for e in edges]
        weights.append(o.node("Sub", upto[::-1]))  # [regions, parts, pixels]
        lengths.append(length)
    area = o.node("Mul", lengths)
    there = o.node("Greater", [area, number(0)])
    share = o.node("Where", [there, o.node("Div", [number(1), o.node("Where", [there, area, number(1)])]), number(0)])
    images = o.node("Gather", [o.node("Cast", [o.x()], to_=11), owners_of(o)])
    rows, along = (o.node("Unsqueeze", [w, o.const([1])]) for w in weights)
    total = o.node("MatMul", [o.node("MatMul", [rows, images]), o.node("Transpose", [along], perm=[0, 1, 3, 2])])
    mean = o.node("Mul", [total, o.node("Unsqueeze", [share, o.const([2, 3])])])
    o.node("Cast", [mean], to="Out", to_=element_type(o.type().dtype))
