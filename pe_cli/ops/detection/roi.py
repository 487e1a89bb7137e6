"""What ops on regions of images share: which image a region belongs to, and their slots and types."""

from __future__ import annotations

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.codes import OUT_OF_RANGE
from pe_cli.kernels.lang import Int, PtrI64, Status, kernel
from pe_cli.ops.define.lowering import STATUS, Buffer, Lowering
from pe_cli.ops.define.registry import Attr

INPUTS = "X ROIs BatchRoINums?"
ATTRS = {
    "spatial_scale": Attr(1.0, "pixels of X to one of the regions' units"),
    "pooled_height": Attr(1, "rows of a region's output"),
    "pooled_width": Attr(1, "columns of a region's output"),
}


@kernel
def owners(counts: PtrI64, out: PtrI64, images: Int, regions: Int, status: Status):
    """out[r] = image of region r, where counts[i] regions in a row belong to image i."""
    r = 0
    for i in range(images):
        for _ in range(counts[i]):
            if r < regions:
                out[r] = i
            r += 1
    if r != regions:
        status[0], status[1], status[2], status[3] = OUT_OF_RANGE, regions, r, regions + 1


@kernel
def no_owners(out: PtrI64, regions: Int):
    """out = 0: one image has all regions."""
    for r in range(regions):
        out[r] = 0


def check(name: str, x: TensorType, rois: TensorType, counts: TensorType | None, height: int, width: int) -> TensorType:
    """Return the type of the output, [regions, channels, height, width].

    Raises:
        PeError: types that do not fit.
    """
    if len(x.shape) != 4 or len(rois.shape) != 2 or rois.shape[1] != 4 or rois.dtype != x.dtype:
        raise PeError(f"{name} needs images X of rank 4 and ROIs [regions, 4] of its element type, got {x} and {rois}")
    if counts is not None and (len(counts.shape) != 1 or counts.dtype != "int64"):
        raise PeError(f"{name} needs BatchRoINums [images] int64, got {counts}", hint="cast it")
    if height < 1 or width < 1:
        raise PeError(f"{name} needs an output of at least one by one, got {height} by {width}")
    return x.with_shape(rois.shape[0], x.shape[1], height, width)


def image_of(o: Lowering, name: str) -> Buffer:
    """Return scratch with the image of every region.

    Raises:
        PeError: several images, and nothing says whose the regions are.
    """
    x, regions = o.input("X"), o.input("ROIs").shape[0]
    out = o.scratch(regions, "int64")
    if o.inputs("BatchRoINums"):
        o.call(owners, o.input("BatchRoINums"), out, x.shape[0], regions, STATUS)
    elif x.shape[0] == 1 or regions == 0:
        o.call(no_owners, out, regions)
    else:
        hint = "give the number of regions of every image"
        raise PeError(f"{name}: {x.shape[0]} images, and nothing says whose the regions are", hint=hint, code=ExitCode.DATA)
    return out
