"""Pooling of parts of regions: psroi_pool, deformable_roi_pooling, roi_perspective_transform."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper, pair
from pe_cli.layers.define.registry import layer
from pe_cli.layers.detection.roi import owned
from pe_cli.program.ir import Variable


@layer
def psroi_pool(
    input: Variable,
    rois: Variable,
    output_channels: int,
    spatial_scale: float = 1.0,
    pooled_height: int = 1,
    pooled_width: int = 1,
    name: str | None = None,
    batch_roi_nums: Variable | None = None,
    rois_lod: Variable | None = None,
) -> Variable:
    """Average the parts of regions, each in channels of its own.

    Args:
        input: [images, output_channels pooled_height pooled_width, height, width].
        rois: [regions, 4]: left, top, right, bottom; or [images, rows, 4], as many for each image.
        output_channels: channels of a region's output.
        spatial_scale: pixels of input to one of the regions' units.
        pooled_height: rows of a region's output.
        pooled_width: columns of a region's output.
        name: prefix of the output's name.
        batch_roi_nums: [images] int64: how many regions in a row belong to each image; may be null for one image, and
            where rois has a sequence for each image.
        rois_lod: [images + 1] int64: the same as offsets: where the regions of each image begin.

    Returns:
        [regions, output_channels, pooled_height, pooled_width].

    Raises:
        PeError: shapes that do not fit; several images, and nothing says whose the regions are.

    Source:
        fluid.layers.psroi_pool; Dai et al. 2016, "R-FCN".
    """
    helper = LayerHelper("psroi_pool", name)
    slots = {"X": input, **owned(helper, rois, batch_roi_nums, rois_lod)}
    sizes = {"pooled_height": pooled_height, "pooled_width": pooled_width, "output_channels": output_channels}
    return helper.one("psroi_pool", slots, {"spatial_scale": float(spatial_scale), **sizes})


@layer
def deformable_roi_pooling(
    input: Variable,
    rois: Variable,
    trans: Variable | None,
    no_trans: bool = False,
    spatial_scale: float = 1.0,
    group_size: int | list[int] = [1, 1],  # noqa: B006 (never changed)
    pooled_height: int = 1,
    pooled_width: int = 1,
    part_size: int | list[int] | None = None,
    sample_per_part: int = 1,
    trans_std: float = 0.1,
    position_sensitive: bool = False,
    name: str | None = None,
    batch_roi_nums: Variable | None = None,
    rois_lod: Variable | None = None,
) -> Variable:
    """Average points in the parts of regions, where every part is moved by what is learned.

    Args:
        input: [images, channels, height, width].
        rois: [regions, 4]: left, top, right, bottom; or [images, rows, 4], as many for each image.
        trans: [regions, 2 classes, rows, columns of part_size]: moves to the right, then down, in sides of the region by trans_std; may be
            null with no_trans.
        no_trans: leave the parts where they are.
        spatial_scale: pixels of input to one of the regions' units.
        group_size: rows and columns of groups of parts, each with channels of its own.
        pooled_height: rows of a region's output.
        pooled_width: columns of a region's output.
        part_size: rows and columns of trans; by default those of the output.
        sample_per_part: points along each side of a part.
        trans_std: what trans is multiplied with.
        position_sensitive: the output has channels / (pooled_height pooled_width) channels, not as many as input.
        name: prefix of the output's name.
        batch_roi_nums: [images] int64: how many regions in a row belong to each image; may be null for one image, and
            where rois has a sequence for each image.
        rois_lod: [images + 1] int64: the same as offsets: where the regions of each image begin.

    Returns:
        [regions, channels of the output, pooled_height, pooled_width].

    Raises:
        PeError: shapes that do not fit; several images, and nothing says whose the regions are.

    Source:
        fluid.layers.deformable_roi_pooling; Dai et al. 2017, "Deformable Convolutional Networks".
    """
    helper = LayerHelper("deformable_roi_pooling", name)
    helper.check_rank(input, "input", 4, "[images, channels, height, width]")
    channels, parts = input.shape[1], pooled_height * pooled_width
    if position_sensitive and (parts < 1 or channels % parts):
        raise helper.error(f"deformable_roi_pooling: {channels} channels for {parts} parts", hint="a multiple of the parts")
    attrs = {
        "no_trans": no_trans,
        "spatial_scale": float(spatial_scale),
        "output_dim": channels // parts if position_sensitive else channels,
        "group_size": pair("deformable_roi_pooling", "group_size", group_size, 1),
        "pooled_height": pooled_height,
        "pooled_width": pooled_width,
        # Moves come for every cell of the output unless said otherwise: a coarser part_size lets several cells share one move.
        "part_size": pair("deformable_roi_pooling", "part_size", part_size or [pooled_height, pooled_width], 1),
        "sample_per_part": sample_per_part,
        "trans_std": float(trans_std),
    }
    slots = {"Input": input, "Trans": trans, **owned(helper, rois, batch_roi_nums, rois_lod)}
    # TopCount is how many points each mean is of; only the gradient needs it.
    return helper.op("deformable_psroi_pooling", slots, attrs, ("Output", "TopCount"))[0]


@layer
def roi_perspective_transform(
    input: Variable,
    rois: Variable,
    transformed_height: int,
    transformed_width: int,
    spatial_scale: float = 1.0,
    name: str | None = None,
    batch_roi_nums: Variable | None = None,
    rois_lod: Variable | None = None,
) -> tuple[Variable, Variable, Variable]:
    """Show quadrangles of images as rectangles, as if seen from the front.

    Args:
        input: [images, channels, height, width].
        rois: [regions, 8]: x and y of the corners left top, right top, right bottom, left bottom; or [images, rows, 8].
        transformed_height: rows of a region's output.
        transformed_width: columns of a region's output.
        spatial_scale: pixels of input to one of the regions' units.
        name: prefix of the outputs' names.
        batch_roi_nums: [images] int64: how many regions in a row belong to each image; may be null for one image, and
            where rois has a sequence for each image.
        rois_lod: [images + 1] int64: the same as offsets: where the regions of each image begin.

    Returns:
        [regions, channels, transformed_height, transformed_width], 0 outside the region or the image; a mask of what is within,
        [regions, 1, transformed_height, transformed_width] int32; and the matrices [regions, 9] that were used.

    Raises:
        PeError: shapes that do not fit; several images, and nothing says whose the regions are.

    Source:
        fluid.layers.roi_perspective_transform.
    """
    helper = LayerHelper("roi_perspective_transform", name)
    slots = {"X": input, **owned(helper, rois, batch_roi_nums, rois_lod)}
    attrs = {"spatial_scale": float(spatial_scale), "transformed_height": transformed_height, "transformed_width": transformed_width}
    out, mask, matrix = helper.op("roi_perspective_transform", slots, attrs, ("Out", "Mask", "TransformMatrix"))
    return out, mask, matrix
