"""deformable_psroi_pooling: the mean of points in the parts of regions, where each part is moved by what is learned."""

from __future__ import annotations

import math

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI64, Real, T, helper, kernel
from pe_cli.ops.define.copy_kernels import fill
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Buffer, Lowering
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.detection import roi
from pe_cli.ops.detection.roi import nearest


@helper
def _start(low, scale):
    # Units are pixel numbers; half a pixel less is where the first pixel's area begins.
    return T(nearest(low)) * scale - T(0.5)


@helper
def _length(low, high, scale):
    # The far edge is the end of the last unit, and 0.1 keeps a region of no size from dividing by 0.
    return max(T(nearest(high) + T(1)) * scale - T(0.5) - _start(low, scale), T(0.1))


@helper
def _group(part, parts, groups):
    """Return which of `groups` a part is in."""
    # In the element type, not in integers: the original divides floats, and groups that do not divide evenly fall as there.
    return min(max(math.floor(T(part) * T(groups) / T(parts)), 0), groups - 1)


@helper
def _piece(part, parts, pieces):
    """Return which of `pieces` moves a part."""
    return math.floor(T(part) / T(parts) * T(pieces))


@helper
def _inside(p, size):
    """Return (pixel, next one, distance) of a point, or (-1, -1, 0) where it is more than half a pixel outside."""
    # The last half pixel on each side is still the image: such a point reads the outermost pixel alone.
    if p < T(-0.5) or p > T(size) - T(0.5):
        return -1, -1, T(0)
    q = min(max(p, T(0)), T(size - 1))
    low = math.floor(q)
    return low, math.ceil(q), q - T(low)


# Exact: contracting a product and a sum into one rounding would move a point across a pixel's edge, and CPU and CUDA would read different
# pixels.
@kernel(exact=True)
def mean_of_moved(
    x: Ptr, rois: Ptr, trans: Ptr, owner: PtrI64, out: Ptr, count: Ptr, regions: Int, channels: Int, H: Int, W: Int, D: Int, PH: Int,
    PW: Int, GH: Int, GW: Int, AH: Int, AW: Int, classes: Int, points: Int, scale: Real, std: Real, moved: Int,
):  # fmt: skip
    """out = mean of the points of each part that are inside, count = how many those are."""
    for r in range(regions):
        left, top = _start(rois[4 * r], T(scale)), _start(rois[4 * r + 1], T(scale))
        wide = _length(rois[4 * r], rois[4 * r + 2], T(scale))
        high = _length(rois[4 * r + 1], rois[4 * r + 3], T(scale))
        w, h = wide / T(PW), high / T(PH)
        for k in range(D * PH * PW):
            d, i, j = k // (PH * PW), k // PW % PH, k % PW
            # Outputs are dealt to classes in runs of D / classes; for each class Trans has a plane for x, then one for y.
            at = ((r * classes + d // (D // classes)) * 2 * AH + _piece(i, PH, AH)) * AW + _piece(j, PW, AW)
            dx = trans[at] * T(std) if moved else T(0)
            dy = trans[at + AH * AW] * T(std) if moved else T(0)
            x0, y0 = T(j) * w + left + dx * wide, T(i) * h + top + dy * high
            base = (owner[r] * channels + (d * GH + _group(i, PH, GH)) * GW + _group(j, PW, GW)) * H * W
            total, n = T(0), 0
            for a in range(points):
                row, below, down = _inside(y0 + T(a) * (h / T(points)), H)
                for b in range(points):
                    column, beside, right = _inside(x0 + T(b) * (w / T(points)), W)
                    # Only points inside count, and the gradient divides by the same number: it is kept as TopCount.
                    if row < 0 or column < 0:
                        continue
                    upper = x[base + row * W + column] * (T(1) - right) + x[base + row * W + beside] * right
                    lower = x[base + below * W + column] * (T(1) - right) + x[base + below * W + beside] * right
                    total += upper * (T(1) - down) + lower * down
                    n += 1
            out[r * D * PH * PW + k] = total / T(n) if n > 0 else T(0)
            count[r * D * PH * PW + k] = T(n)


@kernel(exact=True)
def mean_of_moved_back(  # noqa: C901 (loops over channels, regions, parts and points)
    g: Ptr, count: Ptr, rois: Ptr, trans: Ptr, owner: PtrI64, dx: Ptr, D: Int, images: Int, regions: Int, channels: Int, H: Int,
    W: Int, PH: Int, PW: Int, GH: Int, GW: Int, AH: Int, AW: Int, classes: Int, points: Int, scale: Real, std: Real, moved: Int,
):  # fmt: skip
    """Give pixels their share of the parts' gradients; channels of which no output has a part get 0."""
    # By channels and not by regions: regions overlap, and only one thread may add to a pixel. The same geometry is computed again for every
    # channel.
    for c in range(channels):
        d, gi, gj = c // (GH * GW), c // GW % GH, c % GW
        for m in range(images):
            for p in range(H * W):
                dx[(m * channels + c) * H * W + p] = T(0)
        # Channels that no output reads come last, as D times the groups may be fewer than there are.
        if d >= D:
            continue
        for r in range(regions):
            left, top = _start(rois[4 * r], T(scale)), _start(rois[4 * r + 1], T(scale))
            wide = _length(rois[4 * r], rois[4 * r + 2], T(scale))
            high = _length(rois[4 * r + 1], rois[4 * r + 3], T(scale))
            w, h = wide / T(PW), high / T(PH)
            base = (owner[r] * channels + c) * H * W
            for k in range(PH * PW):
                i, j = k // PW, k % PW
                o = (r * D + d) * PH * PW + k
                if _group(i, PH, GH) != gi or _group(j, PW, GW) != gj or count[o] <= T(0):
                    continue
                at = ((r * classes + d // (D // classes)) * 2 * AH + _piece(i, PH, AH)) * AW + _piece(j, PW, AW)
                mx = trans[at] * T(std) if moved else T(0)
                my = trans[at + AH * AW] * T(std) if moved else T(0)
                x0, y0 = T(j) * w + left + mx * wide, T(i) * h + top + my * high
                share = g[o] / count[o]
                for a in range(points):
                    row, below, down = _inside(y0 + T(a) * (h / T(points)), H)
                    for b in range(points):
                        column, beside, right = _inside(x0 + T(b) * (w / T(points)), W)
                        if row < 0 or column < 0:
                            continue
                        dx[base + row * W + column] += share * (T(1) - down) * (T(1) - right)
                        dx[base + row * W + beside] += share * (T(1) - down) * right
                        dx[base + below * W + column] += share * down * (T(1) - right)
                        dx[base + below * W + beside] += share * down * right


@kernel(exact=True)
def moves_back(
    x: Ptr, g: Ptr, count: Ptr, rois: Ptr, trans: Ptr, owner: PtrI64, dt: Ptr, regions: Int, channels: Int, H: Int, W: Int, D: Int,
    PH: Int, PW: Int, GH: Int, GW: Int, AH: Int, AW: Int, classes: Int, points: Int, scale: Real, std: Real,
):  # fmt: skip
    """Give each move what the parts change by where they go."""
    # Every region has moves of its own, so regions do not meet here; its parts add to one piece one after the other.
    for r in range(regions):
        for k in range(classes * 2 * AH * AW):
            dt[r * classes * 2 * AH * AW + k] = T(0)
        left, top = _start(rois[4 * r], T(scale)), _start(rois[4 * r + 1], T(scale))
        wide = _length(rois[4 * r], rois[4 * r + 2], T(scale))
        high = _length(rois[4 * r + 1], rois[4 * r + 3], T(scale))
        w, h = wide / T(PW), high / T(PH)
        for k in range(D * PH * PW):
            d, i, j = k // (PH * PW), k // PW % PH, k % PW
            o = r * D * PH * PW + k
            if count[o] <= T(0):
                continue
            at = ((r * classes + d // (D // classes)) * 2 * AH + _piece(i, PH, AH)) * AW + _piece(j, PW, AW)
            x0 = T(j) * w + left + trans[at] * T(std) * wide
            y0 = T(i) * h + top + trans[at + AH * AW] * T(std) * high
            base = (owner[r] * channels + (d * GH + _group(i, PH, GH)) * GW + _group(j, PW, GW)) * H * W
            share = g[o] / count[o] * T(std)
            for a in range(points):
                row, below, down = _inside(y0 + T(a) * (h / T(points)), H)
                for b in range(points):
                    column, beside, right = _inside(x0 + T(b) * (w / T(points)), W)
                    if row < 0 or column < 0:
                        continue
                    p, q = x[base + row * W + column], x[base + row * W + beside]
                    u, v = x[base + below * W + column], x[base + below * W + beside]
                    # The derivative of the bilinear value along x: differences of the upper and of the lower two pixels, weighed by the
                    # distance along y; then by wide, since moves are in sides of the region.
                    dt[at] += ((q - p) * (T(1) - down) + (v - u) * down) * share * wide
                    dt[at + AH * AW] += ((u - p) * (T(1) - right) + (v - q) * right) * share * high


def _moves(*shape):
    return lambda rng: rng.uniform(-0.2, 0.2, shape)


@op(
    "deformable_psroi_pooling",
    traits=[roi.REPORTS],
    inputs="Input ROIs Trans? BatchRoINums? RoisLod?",
    outputs="Output TopCount",
    attrs={
        **roi.ATTRS,
        "no_trans": Attr(False, "leave the parts where they are"),
        "output_dim": Attr(1, "channels of a region's output"),
        "group_size": Attr([1, 1], "rows and columns of groups of parts, each with channels of its own"),
        "part_size": Attr([1, 1], "rows and columns of Trans: of pieces that move together"),
        "sample_per_part": Attr(1, "points along each side of a part"),
        "trans_std": Attr(0.1, "what Trans is multiplied with, in sides of the region"),
    },
    differentiable="Input Trans",
    samples=[
        Sample(
            {"Input": (2, 2, 9, 8), "ROIs": roi.regions, "Trans": _moves(3, 2, 2, 2), "BatchRoINums": lambda rng: [2, 1]},
            {"output_dim": 2, "pooled_height": 2, "pooled_width": 3, "part_size": [2, 2], "sample_per_part": 2},
            "three regions of two images",
        ),
        Sample(
            {"Input": (1, 8, 9, 9), "ROIs": lambda rng: [[1.3, 2.1, 12.4, 11.2]], "Trans": _moves(1, 4, 1, 2)},
            {"spatial_scale": 0.5, "output_dim": 2, "pooled_height": 2, "pooled_width": 2, "group_size": [2, 2], "part_size": [1, 2],
             "sample_per_part": 3, "trans_std": 0.3},
            "a region in other units, groups and classes",
        ),
        Sample({"Input": (1, 2, 5, 6), "ROIs": lambda rng: [[1.0, 0.0, 4.0, 3.0]]}, {"no_trans": True, "output_dim": 2}, "no moves"),
        Sample({"Input": (1, 1, 5, 5), "ROIs": (0, 4), "Trans": (0, 2, 1, 1)}, name="no regions"),
    ],
)  # fmt: skip
def deformable_psroi_pooling(
    x: TensorType,
    rois: TensorType,
    trans: TensorType | None,
    counts: TensorType | None,
    offsets: TensorType | None,
    *,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    no_trans: bool,
    output_dim: int,
    group_size: list[int],
    part_size: list[int],
    sample_per_part: int,
    trans_std: float,
) -> tuple[TensorType, TensorType]:
    """Average points in the parts of regions, where every part is moved by Trans.

    A part of w by h pixels begins at its place in the region plus trans_std Trans times the region's sides, and has sample_per_part by
    sample_per_part points, w / sample_per_part and h / sample_per_part apart. Between pixels the image is linear. Points more than half a
    pixel outside the image do not count. The edges of a region are rounded to whole units; it is at least 0.1 pixels wide and high.

    Args:
        Input: [images, channels, height, width] float32 or float64; channel (d rows + i) columns + j is what group (i, j) of output d has.
        ROIs: [regions, 4] element type of Input: left, top, right, bottom.
        Trans: [regions, 2 classes, rows, columns of part_size] element type of Input: moves to the right, then down, for each class;
            neighbouring outputs share a class. Left out with no_trans.
        BatchRoINums: [images] int64: how many regions in a row belong to each image; may be left out for one image, and where
            ROIs has a sequence for each image.
        RoisLod: [images + 1] int64: the same as offsets: where the regions of each image begin.

    Returns:
        Output: [regions, output_dim, pooled_height, pooled_width] element type of Input; 0 for a part without points.
        TopCount: type of Output: how many points each part has.

    Raises:
        PeError: types that do not fit; several images, and nothing says whose the regions are; while running, counts that do not sum
            to the regions.

    Source:
        fluid.layers.deformable_roi_pooling; Dai et al. 2017, "Deformable Convolutional Networks", section 2.2.
    """
    name = "deformable_psroi_pooling"
    out = roi.check(name, x, rois, counts, offsets, pooled_height, pooled_width)
    pairs = {"group_size": group_size, "part_size": part_size}
    for key, pair in pairs.items():
        if len(pair) != 2 or min(pair) < 1:
            raise PeError(f"{name}: {key} must be rows and columns, each at least 1, got {pair}")
    if output_dim < 1 or sample_per_part < 1 or output_dim * group_size[0] * group_size[1] > x.shape[1]:
        needs = f"{output_dim} outputs of {group_size[0]} by {group_size[1]} groups need as many channels"
        raise PeError(f"{name}: {needs}, Input has {x.shape[1]}; at least one output and one point")
    if no_trans:
        trans = None
    elif trans is None:
        raise PeError(f"{name} needs Trans", hint="no_trans: true leaves the parts where they are")
    elif trans.dtype != x.dtype or len(trans.shape) != 4 or trans.shape[1] % 2:
        raise PeError(f"{name} needs Trans [regions, 2 classes, {part_size[0]}, {part_size[1]}] {x.dtype}, got {trans}")
    classes = trans.shape[1] // 2 if trans else 1
    if classes < 1 or output_dim % classes:
        raise PeError(f"{name}: {output_dim} outputs cannot share {classes} classes of moves evenly", hint="a divisor of the outputs")
    out = out.with_shape(out.shape[0], output_dim, pooled_height, pooled_width)
    return out, out


roi.of_sequences(deformable_psroi_pooling)


def _moved(o: Lowering) -> tuple[Buffer, int, int]:
    """Return the moves, their classes, and whether there are any; something else stands for none.

    Raises:
        PeError: moves of other sizes than the regions and their parts have.
    """
    if o.attrs["no_trans"]:
        # Any pointer will do: with `moved` 0 the kernel reads nothing from it.
        return o.input("Input"), 1, 0
    trans, part_size, regions = o.input("Trans"), o.attrs["part_size"], o.input("ROIs").shape[0]
    if trans.shape[0] != regions or list(trans.shape[2:]) != part_size:
        needs = f"[{regions}, 2 classes, {part_size[0]}, {part_size[1]}], for so many regions"
        raise PeError(f"deformable_psroi_pooling needs Trans {needs}, got {trans.type}")
    return trans, trans.shape[1] // 2, 1


@deformable_psroi_pooling.lower("cpu")
def deformable_psroi_pooling_cpu(o: Lowering) -> None:
    """Region by region."""
    x, rois, out, count = o.input("Input"), o.input("ROIs"), o.output("Output"), o.output("TopCount")
    trans, classes, moved = _moved(o)
    a, (_, d, ph, pw) = o.attrs, out.shape
    owner = roi.image_of(o, "deformable_psroi_pooling", "Input")
    o.call(
        mean_of_moved, x, rois, trans, owner, out, count, rois.shape[0], *x.shape[1:], d, ph, pw, *a["group_size"], *a["part_size"],
        classes, a["sample_per_part"], a["spatial_scale"], a["trans_std"], moved,
    )  # fmt: skip


@deformable_psroi_pooling.grad(uses="Input ROIs Trans BatchRoINums RoisLod TopCount").lower("cpu")
def deformable_psroi_pooling_grad_cpu(o: Lowering) -> None:
    """Channel by channel for the image, region by region for the moves: regions overlap."""
    x, rois, g, count = o.input("Input"), o.input("ROIs"), o.input("Output@GRAD"), o.input("TopCount")
    trans, classes, moved = _moved(o)
    a, (_, d, ph, pw) = o.attrs, g.shape
    owner = roi.image_of(o, "deformable_psroi_pooling", "Input")
    parts = (ph, pw, *a["group_size"], *a["part_size"], classes, a["sample_per_part"], a["spatial_scale"], a["trans_std"])
    if o.has("Input@GRAD"):
        sizes = (d, x.shape[0], rois.shape[0], *x.shape[1:])
        o.call(mean_of_moved_back, g, count, rois, trans, owner, o.output("Input@GRAD"), *sizes, *parts, moved)
    # Asked for and without moves the gradient is 0: the output does not depend on Trans then.
    if o.has("Trans@GRAD") and moved:
        o.call(moves_back, x, g, count, rois, trans, owner, o.output("Trans@GRAD"), rois.shape[0], *x.shape[1:], d, *parts)
    elif o.has("Trans@GRAD"):
        o.call(fill, o.output("Trans@GRAD"), o.output("Trans@GRAD").size, 0.0)


deal(mean_of_moved, mean_of_moved_back, moves_back)
also_on_cuda(deformable_psroi_pooling)
