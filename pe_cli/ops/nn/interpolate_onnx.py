"""bilinear_interp, nearest_interp, trilinear_interp and grid_sampler in ONNX."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.ops.define.onnx import Writer, in_onnx


def _resized(o: Writer, axes: list[int], **how: str) -> None:
    """Write a Resize to the sizes of Out.

    Raises:
        PeError: only a step knows them.
    """
    if o.has("OutSize"):
        raise PeError("a resize whose size is fed cannot be exported", hint="give its size as numbers")
    o.node("Resize", [o.x(), "", "", o.const([o.out_type().shape[axis] for axis in axes])], to="Out", axes=axes, **how)


@in_onnx("bilinear_interp", "trilinear_interp")
def linear_onnx(o: Writer) -> None:
    """Append ONNX's op; a result of one pixel is taken from the first one, as in PyTorch."""
    # Mode 1 counts from pixels' first corners, which ONNX calls asymmetric.
    by_centres = "pytorch_half_pixel" if o.attrs["align_mode"] == 0 else "asymmetric"
    where = "align_corners" if o.attrs["align_corners"] else by_centres
    _resized(o, list(range(2, len(o.type().shape))), mode="linear", coordinate_transformation_mode=where)


@in_onnx("nearest_interp")
def nearest_onnx(o: Writer) -> None:
    """ONNX's own."""
    corners = o.attrs["align_corners"]
    # Places halfway between pixels go to the later one, as the op's floor(x + 0.5) does.
    where, rounds = ("align_corners", "round_prefer_ceil") if corners else ("asymmetric", "floor")
    _resized(o, [2, 3], mode="nearest", coordinate_transformation_mode=where, nearest_mode=rounds)


@in_onnx("grid_sampler")
def grid_sampler_onnx(o: Writer) -> None:
    """ONNX's own, zeros outside."""
    o.node("GridSample", [o.x("X"), o.x("Grid")], to="Output", align_corners=1, mode="bilinear", padding_mode="zeros")
