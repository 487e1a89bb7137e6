"""What ops on regions of images share: which image a region belongs to, and their slots and types."""

from __future__ import annotations

import math

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.language import Int, PtrI64, Status, helper, kernel
from pe_cli.kernels.status_codes import OUT_OF_RANGE
from pe_cli.ops.define.lod import LodRequest, lengths_of
from pe_cli.ops.define.lowering import STATUS, Buffer, Lowering
from pe_cli.ops.define.registry import Attr, OpDef
from pe_cli.ops.define.traits import ReportsData

INPUTS = "X ROIs BatchRoINums? RoisLod?"
ATTRS = {
    "spatial_scale": Attr(1.0, "pixels of X to one of the regions' units"),
    "pooled_height": Attr(1, "rows of a region's output"),
    "pooled_width": Attr(1, "columns of a region's output"),
}


#: What the op says of numbers of regions that do not fit.
REPORTS = ReportsData("the numbers of regions of all images add up to as many regions as there are, or their offsets end there")


@kernel
def owners(counts: PtrI64, out: PtrI64, images: Int, regions: Int, status: Status):
    """out[r] = image of region r, where counts[i] regions in a row belong to image i."""
    r = 0
    for i in range(images):
        # Only regions that there are: a count is data, and a wrong one of many billions must not keep the step busy.
        for k in range(r, min(r + counts[i], regions)):
            out[k] = i
        r += max(counts[i], 0)
    if r != regions:
        status[0], status[1], status[2], status[3] = OUT_OF_RANGE, regions, r, regions + 1


@kernel
def no_owners(out: PtrI64, regions: Int):
    """out = 0: one image has all regions."""
    for r in range(regions):
        out[r] = 0


@kernel
def owners_by_offsets(offsets: PtrI64, out: PtrI64, images: Int, regions: Int, status: Status):
    """out[r] = image of region r, where image i has regions offsets[i] up to offsets[i + 1]."""
    for i in range(images):
        # Kept inside the regions: offsets are data, and wrong ones are reported below instead of writing elsewhere.
        for r in range(max(offsets[i], 0), min(offsets[i + 1], regions)):
            out[r] = i
        if offsets[i] > offsets[i + 1]:
            status[0], status[1], status[2], status[3] = OUT_OF_RANGE, i, offsets[i + 1], regions + 1
    if offsets[0] != 0 or offsets[images] != regions:
        status[0], status[1], status[2], status[3] = OUT_OF_RANGE, images, offsets[images], regions + 1


@helper
def nearest(v):
    """Return the nearest whole number, halves away from 0."""
    return math.floor(v + 0.5) if v >= 0.0 else math.ceil(v - 0.5)


def of_sequences(*definitions: OpDef, keeps: bool = False) -> None:
    """Let ops take the images of regions from the sequences of ROIs, one for each image; call it before the gradient is declared.

    Args:
        definitions: ops with slots `BatchRoINums` and `RoisLod`.
        keeps: their Out has the sequences of ROIs, too.
    """
    for definition in definitions:

        @definition.sequences("BatchRoINums")
        def counts(s: LodRequest) -> None:
            lod = s.lod("ROIs")
            # Offsets that were given win: they say the same, and may come from a graph that has no sequences.
            if lod and not s.inputs.get("RoisLod"):
                s.give("BatchRoINums", s.derive(lengths_of, lod[-1]))
            if keeps:
                s.out("Out", *lod)


def check_regions(
    name: str, x: TensorType, rois: TensorType, counts: TensorType | None, offsets: TensorType | None, width: int = 4
) -> None:
    """Check images, regions, and what says which image each region is of.

    Args:
        name: of the op.
        x, rois, counts, offsets: types of the slots.
        width: numbers of a region.

    Raises:
        PeError: types that do not fit.
    """
    if len(x.shape) != 4 or len(rois.shape) != 2 or rois.shape[1] != width or rois.dtype != x.dtype:
        raise PeError(f"{name} needs images X of rank 4 and ROIs [regions, {width}] of its element type, got {x} and {rois}")
    for slot, each, sizes in (("BatchRoINums", counts, "images"), ("RoisLod", offsets, "images + 1")):
        if each is not None and (len(each.shape) != 1 or each.dtype != "int64"):
            raise PeError(f"{name} needs {slot} [{sizes}] int64, got {each}", hint="cast it")
    for slot, each, more in (("BatchRoINums", counts, 0), ("RoisLod", offsets, 1)):
        if each is not None and -1 not in (each.shape[0], x.shape[0]) and each.shape[0] != x.shape[0] + more:
            raise PeError(f"{name}: {slot} has {each.shape[0]} numbers for {x.shape[0]} images", hint=f"give {x.shape[0] + more}")


def check(
    name: str, x: TensorType, rois: TensorType, counts: TensorType | None, offsets: TensorType | None, height: int, width: int
) -> TensorType:
    """Return the type of the output, [regions, channels, height, width].

    Raises:
        PeError: types that do not fit.
    """
    check_regions(name, x, rois, counts, offsets)
    if height < 1 or width < 1:
        raise PeError(f"{name} needs an output of at least one by one, got {height} by {width}")
    return x.with_shape(rois.shape[0], x.shape[1], height, width)


def image_of(o: Lowering, name: str, slot: str = "X") -> Buffer:
    """Return scratch with the image of every region.

    Raises:
        PeError: several images, and nothing says whose the regions are.
    """
    x, regions = o.input(slot), o.input("ROIs").shape[0]
    out = o.scratch(regions, "int64")
    given = [s for s in ("BatchRoINums", "RoisLod") if o.inputs(s)]
    for which in given[:1]:
        more = int(which == "RoisLod")
        if o.input(which).size != x.shape[0] + more:
            message = f"{name}: {o.input(which).size - more} numbers or sequences of regions for {x.shape[0]} images"
            raise PeError(message, hint="give one for each image", code=ExitCode.DATA)
        o.call(owners_by_offsets if more else owners, o.input(which), out, x.shape[0], regions, STATUS)
    if not given and (x.shape[0] == 1 or regions == 0):
        # Regions of one image need no counts.
        o.call(no_owners, out, regions)
    elif not given:
        hint = "feed them with lod_level: 1, a sequence for each image, or give the number of regions of every image"
        raise PeError(f"{name}: {x.shape[0]} images, and nothing says whose the regions are", hint=hint, code=ExitCode.DATA)
    return out


def regions(rng):
    """Return three regions, [3, 4], for samples: inside an image, partly outside, and thin."""
    return [[0.3, 0.6, 3.2, 4.1], [-1.4, 1.3, 2.7, 2.8], [1.1, 0.2, 7.3, 9.6]]
