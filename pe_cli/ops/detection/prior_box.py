"""Boxes at every pixel of a feature map that detectors start from: prior_box, density_prior_box, anchor_generator."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, Real, T, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import Attr, Sample, op

#: A box of every pixel: half width, half height, and how far its centre is from the pixel's, in the image's pixels.
Box = tuple[float, float, float, float]


@kernel
def boxes_like(
    out: Ptr, pixels: Int, columns: Int, count: Int, which: Int, half_w: Real, half_h: Real, right: Real, down: Real,
    step_w: Real, step_h: Real, per_w: Real, per_h: Real, clip: Int,
):  # fmt: skip
    """out[pixel, which, :] = left, top, right, bottom of one kind of box, in units of per_w and per_h."""
    for p in range(pixels):
        # Sizes of kinds of boxes are constants of the call, so a pixel costs a few additions; a table of boxes would be read from memory.
        x, y = p % columns * step_w + right, p // columns * step_h + down
        at = (p * count + which) * 4
        a, b = (x - half_w) / per_w, (y - half_h) / per_h
        c, d = (x + half_w) / per_w, (y + half_h) / per_h
        if clip:
            a, b, c, d = min(max(a, 0.0), 1.0), min(max(b, 0.0), 1.0), min(max(c, 0.0), 1.0), min(max(d, 0.0), 1.0)
        out[at], out[at + 1], out[at + 2], out[at + 3] = T(a), T(b), T(c), T(d)


@kernel
def fours(out: Ptr, n: Int, a: Real, b: Real, c: Real, d: Real):
    """out = n rows a, b, c, d."""
    for i in range(n):
        out[4 * i], out[4 * i + 1], out[4 * i + 2], out[4 * i + 3] = a, b, c, d


_VARIANCES = Attr([0.1, 0.1, 0.2, 0.2], "four numbers that come with every box")
_STEPS = {
    "step_w": Attr(0.0, "image columns between pixels; 0: image width by map width"),
    "step_h": Attr(0.0, "image rows between pixels; 0: image height by map height"),
    "offset": Attr(0.5, "centre of the first box, in steps"),
}


def _typed(name: str, x: TensorType, image: TensorType | None, count: int, variances: Sequence[float]) -> TensorType:
    """Return the type of the boxes.

    Raises:
        PeError: sizes that are not known or do not fit.
    """
    for what, given in (("Input", x), ("Image", image)):
        if given is not None and (len(given.shape) != 4 or -1 in given.shape[2:] or 0 in given.shape[2:]):
            raise PeError(f"{name} needs {what} [batch, channels, height, width] with known sizes, got {given}")
    if count < 1 or len(variances) != 4:
        raise PeError(f"{name} needs at least one box and four variances, got {count} and {list(variances)}")
    return x.with_shape(*x.shape[2:], count, 4)


def _lower(o: Lowering, boxes: Sequence[Box], slot: str, *, shift: float, absolute: bool, clip: bool) -> None:
    """Append one call per kind of box; shift: where the first pixel is, added to offset steps."""
    x, out, variances = o.input("Input"), o.output(slot), o.output("Variances")
    rows, columns = x.shape[2:]
    attrs = o.attrs
    if absolute:
        (step_w, step_h), per_w, per_h = attrs["stride"], 1.0, 1.0
    else:
        per_h, per_w = (float(s) for s in o.input("Image").shape[2:])
        # Without a step the map's pixels are spread evenly over the image, which need not be a multiple of the map.
        step_w, step_h = attrs["step_w"] or per_w / columns, attrs["step_h"] or per_h / rows
    for i, (half_w, half_h, right, down) in enumerate(boxes):
        # anchor_generator puts centres in the middle between the first and the last pixel of a step, hence one pixel less (`shift`).
        x0, y0 = (attrs["offset"] * (step - shift) + more for step, more in ((step_w, right), (step_h, down)))
        o.call(
            boxes_like, out, rows * columns, columns, len(boxes), i, half_w, half_h, x0, y0, float(step_w), float(step_h),
            per_w, per_h, int(clip),
        )  # fmt: skip
    o.call(fours, variances, rows * columns * len(boxes), *(float(v) for v in attrs["variances"]))


# --- prior_box --------------------------------------------------------------------------------------------------------


def _ratios(ratios: Sequence[float], *, flip: bool) -> list[float]:
    """Return 1 and the aspect ratios, each once, with their reciprocals."""
    found = [1.0]
    for ratio in ratios:
        # Ratios come from configurations as decimals: 0.3333 and 1 / 3 may both be there, and only differ by rounding.
        if not any(abs(ratio - r) < 1e-6 for r in found):
            found += [ratio, 1.0 / ratio] if flip else [ratio]
    return found


def _priors(attrs: dict[str, list[float]]) -> Iterator[Box]:
    ratios = _ratios(attrs["aspect_ratios"], flip=bool(attrs["flip"]))
    for i, size in enumerate(attrs["min_sizes"]):
        shaped = [(size * math.sqrt(r) / 2, size / math.sqrt(r) / 2, 0.0, 0.0) for r in ratios]
        between = [math.sqrt(size * most) / 2 for most in attrs["max_sizes"][i : i + 1]]
        squares = [(half, half, 0.0, 0.0) for half in between]
        if attrs["min_max_aspect_ratios_order"]:
            yield from (shaped[0], *squares, *shaped[1:])
        else:
            yield from (*shaped, *squares)


@op(
    "prior_box",
    inputs="Input Image",
    outputs="Boxes Variances",
    attrs={
        "min_sizes": Attr([1.0], "sides of boxes, in pixels of the image"),
        "max_sizes": Attr([], "for each of them a larger one: a box of their geometric mean"),
        "aspect_ratios": Attr([1.0], "width by height; 1 is always there"),
        "variances": _VARIANCES,
        "flip": Attr(False, "the reciprocals of aspect_ratios too"),
        "clip": Attr(False, "keep boxes within the image"),
        **_STEPS,
        "min_max_aspect_ratios_order": Attr(False, "the box of max_sizes second instead of last"),
    },
    differentiable="",
    samples=[
        Sample({"Input": (1, 2, 3, 4), "Image": (1, 3, 12, 16)}, {"min_sizes": [4.0, 6.0], "max_sizes": [8.0, 9.0],
               "aspect_ratios": [2.0], "flip": True, "clip": True}, "two sizes"),
        Sample({"Input": (1, 2, 1, 1), "Image": (1, 3, 5, 5)}, name="one box"),
    ],
)  # fmt: skip
def prior_box(
    x: TensorType, image: TensorType, *, min_sizes: list[float], max_sizes: list[float], **attrs: list[float]
) -> tuple[TensorType, TensorType]:
    """Put boxes of several sizes and shapes at every pixel of a feature map.

    A box of size s and aspect ratio r is s sqrt(r) wide and s / sqrt(r) high, around ((column + offset) step_w, (row + offset) step_h).

    Args:
        Input: [batch, channels, height, width]: the feature map, of which only the sizes count.
        Image: [batch, channels, height, width]: only the sizes count.

    Returns:
        Boxes: [height, width, boxes, 4] element type of Input: left, top, right, bottom as parts of the image.
        Variances: the same type.

    Raises:
        PeError: unknown sizes, max_sizes that are not one for each of min_sizes or not larger.

    Source:
        fluid.layers.prior_box; Liu et al. 2016, "SSD", section 2.2.
    """
    if max_sizes and (len(max_sizes) != len(min_sizes) or any(a >= b for a, b in zip(min_sizes, max_sizes, strict=True))):
        raise PeError(f"prior_box needs a larger one in max_sizes for each of min_sizes, got {min_sizes} and {max_sizes}")
    if any(s <= 0 for s in (*min_sizes, *attrs["aspect_ratios"])):
        raise PeError(f"prior_box needs sizes and ratios above 0, got {min_sizes} and {attrs['aspect_ratios']}")
    count = len(list(_priors({"min_sizes": min_sizes, "max_sizes": max_sizes, **attrs})))
    found = _typed("prior_box", x, image, count, attrs["variances"])
    return found, found


@prior_box.lower("cpu")
def prior_box_cpu(o: Lowering) -> None:
    """One pass per kind of box."""
    _lower(o, list(_priors(dict(o.attrs))), "Boxes", shift=0.0, absolute=False, clip=o.attrs["clip"])


# --- density_prior_box ------------------------------------------------------------------------------------------------


def _dense(attrs: dict[str, list[float]], step_w: float, step_h: float) -> Iterator[Box]:
    # Cut to whole pixels, as in the original, whose centres are then a fraction of a pixel off the even grid.
    step = int((step_w + step_h) * 0.5)
    for size, density in zip(attrs["fixed_sizes"], attrs["densities"], strict=True):
        apart = step // int(density)
        first = apart / 2.0 - step / 2.0
        for ratio in attrs["fixed_ratios"]:
            half_w, half_h = size * math.sqrt(ratio) / 2, size / math.sqrt(ratio) / 2
            for i in range(int(density)):
                for j in range(int(density)):
                    yield half_w, half_h, first + j * apart, first + i * apart


@op(
    "density_prior_box",
    inputs="Input Image",
    outputs="Boxes Variances",
    attrs={
        "densities": Attr([1], "boxes along each side of a step, for each of fixed_sizes"),
        "fixed_sizes": Attr([1.0], "sides of boxes, in pixels of the image"),
        "fixed_ratios": Attr([1.0], "width by height"),
        "variances": _VARIANCES,
        **_STEPS,
    },
    differentiable="",
    samples=[
        Sample({"Input": (1, 2, 3, 4), "Image": (1, 3, 12, 16)}, {"densities": [2, 1], "fixed_sizes": [3.0, 6.0],
               "fixed_ratios": [1.0, 2.0]}, "two sizes"),
    ],
)  # fmt: skip
def density_prior_box(
    x: TensorType, image: TensorType, *, densities: list[int], fixed_sizes: list[float], **attrs: list[float]
) -> tuple[TensorType, TensorType]:
    """Put boxes at every pixel of a feature map, small ones more densely.

    A size with density n has n by n boxes of each ratio in a step, step // n pixels apart. All are kept within the image.

    Args:
        Input: [batch, channels, height, width]: the feature map, of which only the sizes count.
        Image: [batch, channels, height, width]: only the sizes count.

    Returns:
        Boxes: [height, width, boxes, 4] element type of Input: left, top, right, bottom as parts of the image.
        Variances: the same type.

    Raises:
        PeError: unknown sizes, or densities that are not one for each of fixed_sizes.

    Source:
        fluid.layers.density_prior_box; Zhang et al. 2017, "FaceBoxes", section 3.3.
    """
    if len(densities) != len(fixed_sizes) or any(v <= 0 for v in (*densities, *fixed_sizes, *attrs["fixed_ratios"])):
        raise PeError(f"density_prior_box needs a density for each size, all above 0, got {densities} and {fixed_sizes}")
    count = sum(d * d for d in densities) * len(attrs["fixed_ratios"])
    found = _typed("density_prior_box", x, image, count, attrs["variances"])
    return found, found


@density_prior_box.lower("cpu")
def density_prior_box_cpu(o: Lowering) -> None:
    """One pass per kind of box."""
    (rows, columns), (height, width) = o.input("Input").shape[2:], o.input("Image").shape[2:]
    steps = o.attrs["step_w"] or width / columns, o.attrs["step_h"] or height / rows
    _lower(o, list(_dense(dict(o.attrs), *steps)), "Boxes", shift=0.0, absolute=False, clip=True)


# --- anchor_generator -------------------------------------------------------------------------------------------------


def _anchors(attrs: dict[str, list[float]]) -> Iterator[Box]:
    width, height = attrs["stride"]
    for ratio in attrs["aspect_ratios"]:
        # Base sizes are rounded to whole pixels before they are scaled, as in Faster R-CNN's first code: its published anchors need it.
        base = math.floor(math.sqrt(width * height / ratio) + 0.5)
        tall = math.floor(base * ratio + 0.5)
        for size in attrs["anchor_sizes"]:
            yield 0.5 * (size / width * base - 1), 0.5 * (size / height * tall - 1), 0.0, 0.0


@op(
    "anchor_generator",
    inputs="Input",
    outputs="Anchors Variances",
    attrs={
        "anchor_sizes": Attr([64.0], "sides of boxes, in pixels of the image"),
        "aspect_ratios": Attr([1.0], "height by width"),
        "variances": _VARIANCES,
        "stride": Attr([16.0, 16.0], "image columns and rows between pixels"),
        "offset": Attr(0.5, "centre of the first box, in steps less one pixel"),
    },
    differentiable="",
    samples=[
        Sample({"Input": (1, 2, 3, 4)}, {"anchor_sizes": [8.0, 32.0], "aspect_ratios": [0.5, 1.0]}, "four kinds"),
        Sample({"Input": (1, 2, 1, 1)}, name="one box"),
    ],
)
def anchor_generator(
    x: TensorType, *, anchor_sizes: list[float], aspect_ratios: list[float], variances: list[float], stride: list[float],
    offset: float,
) -> tuple[TensorType, TensorType]:  # fmt: skip
    """Put boxes of several sizes and shapes at every pixel of a feature map, in pixels of the image.

    The box of ratio r over one stride is b = round(sqrt(width height / r)) wide and round(b r) high; a size s scales it by s / stride.

    Args:
        Input: [batch, channels, height, width]: the feature map, of which only the sizes count.

    Returns:
        Anchors: [height, width, boxes, 4] element type of Input: left, top, right, bottom, the last ones inside.
        Variances: the same type.

    Raises:
        PeError: unknown sizes, or numbers that are not above 0.

    Source:
        fluid.layers.anchor_generator; Ren et al. 2015, "Faster R-CNN", section 3.1.1.
    """
    if len(stride) != 2 or any(v <= 0 for v in (*anchor_sizes, *aspect_ratios, *stride)):
        raise PeError(f"anchor_generator needs sizes, ratios and two strides above 0, got {anchor_sizes} and {stride}")
    found = _typed("anchor_generator", x, None, len(anchor_sizes) * len(aspect_ratios), variances)
    return found, found


@anchor_generator.lower("cpu")
def anchor_generator_cpu(o: Lowering) -> None:
    """One pass per kind of box."""
    _lower(o, list(_anchors(dict(o.attrs))), "Anchors", shift=1.0, absolute=True, clip=False)


deal(boxes_like, fours)
also_on_cuda(prior_box, density_prior_box, anchor_generator)
