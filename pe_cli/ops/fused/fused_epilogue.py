"""fused_gemm_epilogue and conv2d_fusion: a bias and relu are applied to a product or convolution while its result is in cache."""

from __future__ import annotations

import math
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cpu.gemm import gemm_scratch
from pe_cli.ops.define.fusion import Becomes, Fuses, Match, Op, Part, Pattern
from pe_cli.ops.define.lowering import Buffer, Lowering, Offset
from pe_cli.ops.define.registry import Attr, OpDef, Sample, op
from pe_cli.ops.define.traits import Divisible, Narrow, RowWise
from pe_cli.ops.define.work_parts import areas
from pe_cli.ops.fused.epilogue_kernels import convolution_bias, pointwise_bias, product_bias, winograd_bias
from pe_cli.ops.fused.fused_elementwise import GRADIENTS
from pe_cli.ops.fused.fused_elementwise import NAME as FUSED_SUM
from pe_cli.ops.math.activation import relu
from pe_cli.ops.math.broadcast import call_binary
from pe_cli.ops.math.elementwise import ADD
from pe_cli.ops.math.mul import mul, mul_cuda
from pe_cli.ops.math.reduction import WIDE
from pe_cli.ops.nn.conv import ATTRS as CONV_ATTRS
from pe_cli.ops.nn.conv import IMAGES, conv2d
from pe_cli.ops.nn.conv_cuda import Sizes, Then, append_values
from pe_cli.ops.nn.conv_lowering import Images

#: Bytes of images that are convolved before their bias is added: they stay in L2.
BLOCK = 128 * 1024
ACTIVATION = {"activation": Attr("none", "applied to the sum", ("none", "relu"))}


def _biased(kind: OpDef, out: TensorType, bias: TensorType, channels: int) -> TensorType:
    if bias.shape != (channels,) or bias.dtype != out.dtype:
        raise PeError(f"{kind.name} with a bias: Bias is {bias}, it must be {out.with_shape(channels)}")
    return out


# --- mul --------------------------------------------------------------------------------------------------------------


@op(
    "fused_gemm_epilogue",
    traits=[Divisible(), Narrow(("X", "Y"), ("Bias",)), RowWise()],
    inputs="X Y Bias",
    attrs={**mul.attrs, **ACTIVATION},
    differentiable="",
    samples=[
        Sample({"X": (3, 4), "Y": (4, 5), "Bias": (5,)}, name="a sum"),
        Sample(
            {"X": (200, 33), "Y": (33, 70), "Bias": (70,)}, {"activation": "relu"}, "more rows than one block, relu"
        ),
        Sample({"X": (5, 40), "Y": (40, 300), "Bias": (300,)}, {"activation": "relu"}, "several blocks, relu"),
        Sample({"X": (2, 3, 4), "Y": (12, 2), "Bias": (2,)}, {"activation": "relu"}, "an image, few columns, relu"),
        Sample({"X": (1, 1), "Y": (1, 1), "Bias": (1,)}, name="one element"),
        Sample({"X": (0, 4), "Y": (4, 5), "Bias": (5,)}, name="empty batch"),
    ],
)
def fused_gemm_epilogue(
    x: TensorType, y: TensorType, bias: TensorType, *, x_num_col_dims: int, y_num_col_dims: int, activation: str
) -> TensorType:
    """Multiply two tensors as matrices, add a bias to every row, and cut negative numbers off.

    Out = activation(mul(X, Y) + Bias). Values are those of the separate ops.

    Args:
        X, Y, x_num_col_dims, y_num_col_dims: as for mul; Y has one axis of columns.
        Bias: [columns], dtype of X.
        activation: none or relu.

    Returns:
        Out: as for mul.

    Raises:
        PeError: as for mul, or Bias has another type.

    Source:
        fluid's operator fused_gemm_epilogue, made by fuse_gemm_epilogue.
    """
    del activation
    assert mul.infer is not None
    out: TensorType = mul.infer(x, y, x_num_col_dims=x_num_col_dims, y_num_col_dims=y_num_col_dims)
    return _biased(mul, out, bias, y.shape[-1])


@fused_gemm_epilogue.lower("cpu")
def fused_gemm_epilogue_cpu(o: Lowering) -> None:
    """A call per part; blocks of the product are finished while they are in cache."""
    x, y, out = o.input("X"), o.input("Y"), o.output("Out")
    m = math.prod(x.shape[: o.attrs["x_num_col_dims"]])
    n = y.shape[-1]
    k = y.size // n if n else 0
    # Cut as the product alone would be cut, so that an element is the same sum in the same order.
    parts = areas(m, n, k, o.threads) if out.size else []
    for number, area in enumerate(parts):
        (top, bottom), (begin, end) = area.rows, area.columns
        o.call(
            product_bias, bottom - top, end - begin, k, Offset(x, top * k), Offset(y, begin), Offset(o.input("Bias"), begin),
            Offset(out, top * n + begin), n, int(o.attrs["activation"] == "relu"),
            o.scratch(gemm_scratch(end - begin, k, ta=False), out.dtype), part=number if len(parts) > 1 else None,
        )  # fmt: skip


@fused_gemm_epilogue.count
def fused_gemm_flops(x: TensorType, y: TensorType, bias: TensorType, *, activation: str, **attrs: Any) -> int:
    """Those of the product."""
    del bias, activation
    return mul.flops()(x, y, **attrs)


# --- conv2d -----------------------------------------------------------------------------------------------------------


@op(
    "conv2d_fusion",
    traits=[Divisible(), IMAGES, Narrow(("Input", "Filter"), ("Bias",))],
    inputs="Input Filter Bias",
    outputs="Output",
    attrs={**CONV_ATTRS, **ACTIVATION},
    differentiable="",
    samples=[
        Sample({"Input": (2, 3, 6, 5), "Filter": (4, 3, 3, 3), "Bias": (4,)}, name="three by three"),
        Sample(
            {"Input": (5, 30, 30, 3), "Filter": (20, 3, 5, 5), "Bias": (20,)},
            {"data_format": "NHWC", "activation": "relu"},
            "channels last, several blocks, relu",
        ),
        Sample(
            {"Input": (2, 7, 5, 4), "Filter": (6, 2, 3, 3), "Bias": (6,)},
            {"data_format": "NHWC", "activation": "relu", "groups": 2, "strides": [2, 2], "paddings": [1, 1]},
            "two groups with holes, relu",
        ),
        Sample(
            {"Input": (2, 7, 5, 4), "Filter": (8, 1, 3, 3), "Bias": (8,)},
            {"data_format": "NHWC", "activation": "relu", "groups": 4, "paddings": [1, 1]},
            "depthwise, relu",
        ),
        Sample(
            {"Input": (9, 9, 8, 32), "Filter": (33, 32, 3, 3), "Bias": (33,)},
            {"data_format": "NHWC", "activation": "relu", "paddings": [1, 1]},
            "by Winograd's way, relu",
        ),
        Sample({"Input": (0, 3, 5, 5), "Filter": (2, 3, 3, 3), "Bias": (2,)}, name="empty batch"),
    ],
)
def conv2d_fusion(x: TensorType, w: TensorType, bias: TensorType, *, activation: str, **attrs: Any) -> TensorType:
    """Convolve images with filters, add a bias to every channel, and cut negative numbers off.

    Output = activation(conv2d(Input, Filter) + Bias). Values are those of the separate ops.

    Args:
        Input, Filter, strides, paddings, dilations, groups, data_format: as for conv2d.
        Bias: [filters], dtype of Input.
        activation: none or relu.

    Returns:
        Output: as for conv2d.

    Raises:
        PeError: as for conv2d, or Bias has another type.

    Source:
        fluid's operator conv2d_fusion, made by fuse_gemm_epilogue.
    """
    del activation
    assert conv2d.infer is not None
    out: TensorType = conv2d.infer(x, w, **attrs)
    return _biased(conv2d, out, bias, w.shape[0])


@conv2d_fusion.lower("cpu")
def conv2d_fusion_cpu(o: Lowering) -> None:
    """A call per part; images are finished some at a time, while they are in cache. Depthwise: the separate calls."""
    x, w, y = o.input("Input"), o.input("Filter"), o.output("Output")
    images = Images(o, x, w, y)
    if images.depthwise:
        _separately(o, "cpu")
        return
    source, target = images.source(x), images.target(y)
    cut = int(o.attrs["activation"] == "relu")
    each = max(1, y.type.nbytes // max(images.n, 1))
    # The bias is repeated until it fills vectors, however few channels there are.
    width = max(1, WIDE // w.shape[0]) * w.shape[0]
    # The second is for depthwise convolutions, which do not come here.
    chosen = images.kernel(convolution_bias, convolution_bias, pointwise_bias, winograd_bias)
    for piece in images.pieces():
        filters, row = images.filter_scratch(w), o.scratch(width, w.dtype)
        # packed filters and 1x1 convolutions pass over all images at once
        whole = not images.winograd and (filters.size > w.size or images.pointwise)
        block = max(1, piece.images if whole else BLOCK // each)
        at_x, at_w, at_y = Offset(source, piece.x), Offset(w, piece.w), Offset(target, piece.y)
        o.call(
            chosen, at_x, at_w, Offset(o.input("Bias"), piece.channel), at_y, filters, row, width, piece.geometry, piece.images, block, cut,
            part=piece.number,
        )  # fmt: skip
    images.outward(target, y)


@conv2d_fusion.count
def conv2d_fusion_flops(x: TensorType, w: TensorType, bias: TensorType, *, activation: str, **attrs: Any) -> int:
    """Those of the convolution."""
    del bias, activation
    return conv2d.flops()(x, w, **attrs)


# --- separate calls ---------------------------------------------------------------------------------------------------


def _then(o: Lowering, out: Buffer, axis: int) -> None:
    """Append the separate calls of the bias and relu."""
    call_binary(o, ADD, out, o.input("Bias"), out, axis)
    if out.size and o.attrs["activation"] == "relu":
        o.call(relu.kernel, out, out, out.size)


def _separately(o: Lowering, kind: str) -> None:
    conv2d.lowerings[kind](o)
    _then(o, o.output("Output"), -1 if o.attrs["data_format"] == "NHWC" else 1)


@fused_gemm_epilogue.lower("cuda")
def fused_gemm_epilogue_cuda(o: Lowering) -> None:
    """A product that ends with the bias and relu."""
    mul_cuda(o, o.input("Bias"), o.attrs["activation"] == "relu")


@conv2d_fusion.lower("cuda")
def conv2d_fusion_cuda(o: Lowering) -> None:
    """Bias and relu before a sum is written. Depthwise: the separate calls."""
    x, w, y = o.input("Input"), o.input("Filter"), o.output("Output")
    images = Images(o, x, w, y)
    if images.depthwise:
        _separately(o, "cuda")
        return
    target, then = images.target(y), Then(bias=o.input("Bias"), relu=o.attrs["activation"] == "relu")
    append_values(o, images.inward(x), w, target, Sizes.of(o, images), then)
    images.outward(target, y)


# --- what they take the place of --------------------------------------------------------------------------------------

#: What a bias is added to -> its output slot, and the op that does both.
_PRODUCTS = {"mul": ("Out", "fused_gemm_epilogue"), "conv2d": ("Output", "conv2d_fusion")}


def _product(m: Match) -> str:
    op = m["product"]
    return op.outputs[_PRODUCTS[op.type][0]][0]


def _adds(m: Match, op: Op) -> bool:
    """Whether an op adds, or does so and cuts the sum off below 0 without keeping it."""
    return op.type != FUSED_SUM or ("IntermediateOut" not in op.outputs and op.attrs["functor_list"][0] == "relu")


def _no_bias(m: Match) -> str:
    """Return why what is added is not a number per channel, of the last axis or where the images have them; or why the product stays."""
    op, add, name = m["product"], m["add"], _product(m)
    out, bias = m.type(name), m.type(add.inputs["Y"][0])
    channel = 1 if op.attrs.get("data_format") == "NCHW" else len(out.shape) - 1
    axis = add.attrs["axis"] % len(out.shape) if add.attrs["axis"] != -1 else len(out.shape) - 1
    fits = "Filter" in op.inputs or len(m.type(op.inputs["Y"][0]).shape) == op.attrs["y_num_col_dims"] + 1
    same = bias.shape == (out.shape[channel],) and bias.dtype == out.dtype
    if not (add.inputs["X"] == [name] and fits and same and axis == channel):
        return f"what is added to the output of {op.type} is no bias"
    why = m.needed(name, [add])
    return f"the output of {op.type} {why}" if why else ""


def _may_cut(m: Match, op: Op) -> bool:
    """Whether the relu of a sum can join it, which then vanishes."""
    add = m["add"]
    free = add.type != FUSED_SUM and not m.needed(add.outputs["Out"][0], [op])
    return free and m.same_role(op, add) and m.can_meet(m["product"], add, op)


def _becomes(m: Match) -> list[Becomes]:
    op, add = m["product"], m["add"]
    slot, fused = _PRODUCTS[op.type]
    ops = [op, add, *([m["act"]] if "act" in m else [])]
    cut = "act" in m or add.type == FUSED_SUM
    (out,) = ops[-1].outputs["Out"]
    gone = [_product(m), *(add.outputs["Out"] if "act" in m else ())]
    attrs = {**op.attrs, "activation": "relu" if cut else "none"}
    return [Becomes(ops, fused, {**op.inputs, "Bias": add.inputs["Y"]}, {slot: [out]}, attrs, dict.fromkeys(gone, out))]


fused_gemm_epilogue.give(
    Fuses(
        "fuse_gemm_epilogue",
        Pattern(
            (
                Part("product", tuple(_PRODUCTS)),
                Part("add", ("elementwise_add", FUSED_SUM), reads=_product, fits=_adds),
                Part("act", ("relu",), reads=("add", "Out"), fits=_may_cut, optional=True),
            ),
            _becomes,
            unless=_no_bias,
        ),
        GRADIENTS,
        nothing="the program has no mul or conv2d",
    )
)
