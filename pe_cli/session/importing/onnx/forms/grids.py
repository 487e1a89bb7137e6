"""Images at given places."""

from __future__ import annotations

from pe_cli.session.importing.onnx.forms.elementwise import floats
from pe_cli.session.importing.onnx.node import Node, form
from pe_cli.session.importing.onnx.values import Unimportable, Value

_MODES = {"nearest": "nearest", "linear": "bilinear", "bilinear": "bilinear", "cubic": "bicubic", "bicubic": "bicubic"}


@form("GridSample")
def grid_sample(node: Node) -> Value:
    x, grid, mode = floats(node), node.var(1), str(node.attr("mode", "linear"))
    if mode not in _MODES:
        raise Unimportable(f"mode {mode} is not known")
    outside, corners = str(node.attr("padding_mode", "zeros")), bool(node.attr("align_corners", 0))
    dims = [*x.dims[:2], *grid.dims[1:-1]]
    return node.out("grid_sample", x=x, grid=grid, mode=_MODES[mode], padding_mode=outside, align_corners=corners, dims=dims)
