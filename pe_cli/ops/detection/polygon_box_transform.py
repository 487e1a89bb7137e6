"""polygon_box_transform: corners of polygons as differences from every pixel become places in the image."""

from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.cuda.math import quotient
from pe_cli.kernels.language import Int, Ptr, T, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.onnx import Writer, element_type, in_onnx
from pe_cli.ops.define.registry import Sample, op
from pe_cli.ops.define.traits import InPlace


@kernel
def to_places(x: Ptr, out: Ptr, n: Int, H: Int, W: Int):
    """out = 4 column - x in even channels, 4 row - x in odd ones."""
    for e in range(n):
        row = quotient(e, W)
        image = quotient(row, H)
        # The parity of the plane's number over the whole batch is that of its channel, since an image has an even number of channels.
        at = row - image * H if image & 1 else e - row * W
        out[e] = T(4 * at) - x[e]


@op(
    "polygon_box_transform",
    faces=[Face("", "input name")],
    inputs="Input",
    outputs="Output",
    differentiable="",
    traits=[InPlace({"Output": "Input"})],
    samples=[Sample({"Input": (2, 8, 3, 5)}, name="four corners"), Sample({"Input": (0, 2, 3, 2)}, name="an empty batch")],
)
def polygon_box_transform(x: TensorType) -> TensorType:
    """Find where the corners of polygons are that every pixel has differences from, on an image four times as large.

    Output = 4 column - Input in channels 0, 2, 4, ...; 4 row - Input in the others.

    Args:
        Input: [images, an even number of channels, height, width] float32 or float64.

    Returns:
        Output: type of Input.

    Raises:
        PeError: Input is no batch of images, or has an odd number of channels.

    Source:
        fluid.layers.polygon_box_transform; Zhou et al. 2017, "EAST", section 3.3.
    """
    if len(x.shape) != 4 or (x.shape[1] % 2 and x.shape[1] != -1):
        raise PeError(f"polygon_box_transform needs Input [images, channels, height, width], channels x and y in turn, got {x}")
    return x


@polygon_box_transform.lower("cpu")
def polygon_box_transform_cpu(o: Lowering) -> None:
    """One pass."""
    x = o.input("Input")
    if x.size:
        o.call(to_places, x, o.output("Output"), x.size, *x.shape[2:])


deal(to_places)
also_on_cuda(polygon_box_transform)


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("polygon_box_transform")
def polygon_box_transform_onnx(o: Writer) -> None:
    """Differences from columns, then from rows."""
    channels, sizes = o.type("Input").shape[1], o.node("Shape", [o.x("Input")])

    def places(axis: int, turned: list[int]) -> str:
        size = o.node("Gather", [sizes, o.const(axis)])
        numbers = o.node("Cast", [o.node("Range", [o.const(0), size, o.const(1)])], to_=element_type(o.type("Input").dtype))
        return o.node("Reshape", [o.node("Mul", [numbers, o.const(4, "Input")]), o.const(turned)])

    even = o.const((np.arange(channels) % 2 == 0).reshape(1, -1, 1, 1), dtype="bool")
    at = o.node("Where", [even, places(3, [1, 1, 1, -1]), places(2, [1, 1, -1, 1])])
    o.node("Sub", [at, o.x("Input")], to="Output")
