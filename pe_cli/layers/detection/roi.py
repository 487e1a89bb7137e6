"""Pooling of regions of interest: prroi_pool, roi_align, roi_pool."""

from __future__ import annotations

from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable


def owned(helper: LayerHelper, rois: Variable, counts: Variable | None, offsets: Variable | None = None) -> dict[str, Variable | None]:
    """Return the slots of regions and of whose they are; regions [images, rows, numbers] belong to their images.

    Raises:
        PeError: regions of rank 3 whose number is not known, or together with what says whose they are.
    """
    if len(rois.shape) == 3:
        if rois.shape[1] < 0 or counts is not None or offsets is not None:
            message = f"{helper.layer_type}: rois {rois} belong to their images, and their number must be known"
            raise helper.error(message, hint="leave batch_roi_nums and rois_lod out, or reshape rois to [-1, 4]")
        # Padded regions are dealt evenly: every image has as many rows as any other.
        like = {"shape": [-1], "dtype": "int64", "value": float(rois.shape[1])}
        counts = helper.one("fill_constant_batch_size_like", {"Input": rois}, like)
        rois = helper.one("reshape", {"X": rois}, {"shape": [-1, rois.shape[2]]})
    return {"ROIs": rois, "BatchRoINums": counts, "RoisLod": offsets}


def _pooled(kind: str, name: str | None, input: Variable, owners: tuple[Variable | None, ...], **attrs: Any) -> Variable:
    helper = LayerHelper(kind, name)
    rois, counts, offsets = (*owners, None)[:3]
    assert rois is not None
    slots = {"X": input, **owned(helper, rois, counts, offsets)}
    # prroi_pool has no slot for offsets, which the others have.
    if len(owners) == 2:
        del slots["RoisLod"]
    # The gradient of a maximum goes to one pixel, and Argmax remembers which; an average spreads it evenly and needs no memory.
    return helper.op(kind, slots, attrs, ("Out", "Argmax") if kind == "roi_pool" else ("Out",))[0]


@layer
def prroi_pool(
    input: Variable,
    rois: Variable,
    spatial_scale: float = 1.0,
    pooled_height: int = 1,
    pooled_width: int = 1,
    batch_roi_nums: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Average an image over the parts of regions, exactly: the image is linear between its pixels and 0 outside.

    Args:
        input: [images, channels, height, width].
        rois: [regions, 4]: left, top, right, bottom; gradients flow to them too. Or [images, rows, 4], as many for each image.
        spatial_scale: pixels of input to one of the regions' units.
        pooled_height: rows of a region's output.
        pooled_width: columns of a region's output.
        batch_roi_nums: [images] int64: how many regions in a row belong to each image; may be null for one image, and
            where rois has a sequence for each image.
        name: prefix of the output's name.

    Returns:
        [regions, channels, pooled_height, pooled_width].

    Raises:
        PeError: shapes that do not fit; several images, and nothing says whose the regions are.

    Source:
        fluid.layers.prroi_pool; Jiang et al. 2018, eq. 5.
    """
    sizes = {"pooled_height": pooled_height, "pooled_width": pooled_width}
    return _pooled("prroi_pool", name, input, (rois, batch_roi_nums), spatial_scale=float(spatial_scale), **sizes)


@layer
def roi_align(
    input: Variable,
    rois: Variable,
    pooled_height: int = 1,
    pooled_width: int = 1,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    name: str | None = None,
    batch_roi_nums: Variable | None = None,
    rois_lod: Variable | None = None,
) -> Variable:
    """Average an image over points of the parts of regions; between pixels it is linear.

    Args:
        input: [images, channels, height, width].
        rois: [regions, 4]: left, top, right, bottom; or [images, rows, 4], as many for each image.
        pooled_height: rows of a region's output.
        pooled_width: columns of a region's output.
        spatial_scale: pixels of input to one of the regions' units.
        sampling_ratio: points along each side of a part; -1: one per pixel, rounded up.
        name: prefix of the output's name.
        batch_roi_nums: [images] int64: how many regions in a row belong to each image; may be null for one image, and
            where rois has a sequence for each image.
        rois_lod: [images + 1] int64: the same as offsets: where the regions of each image begin.

    Returns:
        [regions, channels, pooled_height, pooled_width].

    Raises:
        PeError: shapes that do not fit; several images, and nothing says whose the regions are.

    Source:
        fluid.layers.roi_align.
    """
    sizes = {"pooled_height": pooled_height, "pooled_width": pooled_width, "sampling_ratio": sampling_ratio}
    return _pooled("roi_align", name, input, (rois, batch_roi_nums, rois_lod), spatial_scale=float(spatial_scale), **sizes)


@layer
def roi_pool(
    input: Variable,
    rois: Variable,
    pooled_height: int = 1,
    pooled_width: int = 1,
    spatial_scale: float = 1.0,
    batch_roi_nums: Variable | None = None,
    rois_lod: Variable | None = None,
) -> Variable:
    """Take the largest pixel of each part of regions, whose edges are rounded to pixels.

    Args:
        input: [images, channels, height, width].
        rois: [regions, 4]: left, top, right, bottom, the last ones inside; or [images, rows, 4], as many for each image.
        pooled_height: rows of a region's output.
        pooled_width: columns of a region's output.
        spatial_scale: pixels of input to one of the regions' units.
        batch_roi_nums: [images] int64: how many regions in a row belong to each image; may be null for one image, and
            where rois has a sequence for each image.
        rois_lod: [images + 1] int64: the same as offsets: where the regions of each image begin.

    Returns:
        [regions, channels, pooled_height, pooled_width].

    Raises:
        PeError: shapes that do not fit; several images, and nothing says whose the regions are.

    Source:
        fluid.layers.roi_pool.
    """
    sizes = {"pooled_height": pooled_height, "pooled_width": pooled_width}
    return _pooled("roi_pool", None, input, (rois, batch_roi_nums, rois_lod), spatial_scale=float(spatial_scale), **sizes)
