"""box_clip: boxes cut to their images."""

from __future__ import annotations

import math

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType, product
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI64, T, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lod import LodRequest, fixed, owners
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import Sample, op
from pe_cli.ops.define.traits import InPlace


@kernel
def cut_boxes(x: Ptr, info: Ptr, out: Ptr, owner: PtrI64, owned: Int, boxes: Int, each: Int):
    """out = x within [0, size - 1] of the image of `each` boxes: `owner` says which, or they are images in turn."""
    for b in range(boxes):
        i = owner[b // each] * 3 if owned else b // each * 3
        # ImInfo has the size of the network's input, boxes are in pixels of the image before it was scaled: the size is divided by the
        # scale. Half a pixel rounds up, as C's round does for sizes, and the last pixel is inside.
        high = T(math.floor(info[i] / info[i + 2] + T(0.5)) - 1)
        wide = T(math.floor(info[i + 1] / info[i + 2] + T(0.5)) - 1)
        for k in range(4):
            v = x[4 * b + k]
            out[4 * b + k] = max(min(v, high if k & 1 else wide), T(0))


def _infos(rng):
    return [[60.0, 80.0, 2.0], [90.0, 30.0, 1.0]]


@op(
    "box_clip",
    faces=[Face("", "input im_info name")],
    inputs="Input ImInfo Owner?",
    outputs="Output",
    differentiable="",
    traits=[InPlace({"Output": "Input"})],
    samples=[
        Sample({"Input": lambda rng: rng.uniform(-9, 99, (2, 3, 4)), "ImInfo": _infos}, name="three boxes per image"),
        Sample({"Input": lambda rng: rng.uniform(-9, 99, (3, 4)), "ImInfo": _infos, "Owner": fixed([0, 0, 1])}, name="sequences"),
        Sample(
            {"Input": lambda rng: rng.uniform(-9, 99, (3, 2, 4)), "ImInfo": _infos, "Owner": fixed([0, 0, 1])}, name="boxes of two classes"
        ),
        Sample({"Input": lambda rng: rng.uniform(-9, 99, (5, 4)), "ImInfo": lambda rng: [[60.0, 80.0, 1.0]]}, name="one image"),
    ],
)
def box_clip(x: TensorType, info: TensorType, owner: TensorType | None) -> TensorType:
    """Cut boxes to their images.

    Output = min(max(Input, 0), size - 1), size = round(height / scale) or round(width / scale)

    Args:
        Input: [images, boxes, 4], [boxes, 4] of one image, or [boxes, 4] or [boxes, classes, 4] with a sequence for each image: left,
            top, right, bottom, in pixels; float32 or float64.
        ImInfo: [images, 3] element type of Input: height, width and scale of the network's input.
        Owner: [boxes] int64: image of each row of Input.

    Returns:
        Output: type of Input.

    Raises:
        PeError: types that do not fit; several images, and Input has not a row for each.

    Source:
        fluid.layers.box_clip.
    """
    del owner
    if len(x.shape) not in (2, 3) or x.shape[-1] != 4 or info.shape[1:] != (3,) or info.dtype != x.dtype:
        raise PeError(f"box_clip needs boxes [images, boxes, 4] and ImInfo [images, 3], got {x} and {info}")
    return x


@box_clip.sequences("Owner")
def box_clip_lod(s: LodRequest) -> None:
    """Sequences say whose the boxes are."""
    levels = s.lod("Input")
    if levels:
        s.give("Owner", s.derive(owners, levels[-1]))
        s.out("Output", *levels)


@box_clip.lower("cpu")
def box_clip_cpu(o: Lowering) -> None:
    """One pass.

    Raises:
        PeError: nothing says whose boxes they are (exit code 3).
    """
    x, info = o.input("Input"), o.input("ImInfo")
    # Where nothing names owners, boxes are dealt to images in equal runs.
    images, boxes = info.shape[0], product(x.shape[:-1])
    if o.inputs("Owner"):
        if boxes:
            # A row of sequences may have several boxes, such as one for each class.
            o.call(cut_boxes, x, info, o.output("Output"), o.input("Owner"), 1, boxes, product(x.shape[1:-1]))
        return
    if images != 1 and (len(x.shape) != 3 or x.shape[0] != images):
        message = f"box_clip: {images} images, and nothing says whose the boxes {list(x.shape)} are"
        raise PeError(message, hint="give boxes [images, boxes, 4], or a sequence for each image", code=ExitCode.DATA)
    if boxes:
        o.call(cut_boxes, x, info, o.output("Output"), o.scratch(1, "int64"), 0, boxes, boxes // images)


deal(cut_boxes)
also_on_cuda(box_clip)
