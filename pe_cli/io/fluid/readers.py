"""Operators of PaddlePaddle 1.x that have another name, other slots or another form here; those of sequences are `sequence_readers`."""

from __future__ import annotations

from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.io.fluid.operator_reader import Reader, reads
from pe_cli.io.fluid.program_desc import ELEMENTS
from pe_cli.layers.nn.padding import edges
from pe_cli.program.ir import Operator

#: Operators of several outputs or forms by a second name: what is new in them is read by gradients alone.
_SECOND = {
    "reshape2": "reshape", "transpose2": "transpose", "squeeze2": "squeeze", "unsqueeze2": "unsqueeze", "cross_entropy2": "cross_entropy",
    "flatten2": "flatten",
}  # fmt: skip


@reads("reshape2", "transpose2", "unsqueeze2", "cross_entropy2", "flatten2")
def _second(o: Reader) -> None:
    if o.op.type == "reshape2" and o.names("ShapeTensor"):
        raise PeError("its sizes are variables")
    leave = ("shape",) if o.names("Shape") else ()
    o.same(_SECOND[o.op.type], leave=leave)


@reads("squeeze", "squeeze2")
def _squeeze(o: Reader) -> None:
    shape = o.one("X").shape
    given = o.attr("axes", []) or [i for i, size in enumerate(shape) if size == 1]
    o.emit("squeeze", {"X": o.one("X")}, {"Out": o.out()}, {"axes": [int(a) for a in given if shape[a] in (1, -1)]})


@reads("fc")
def _fc(o: Reader) -> None:
    kept = int(o.attr("in_num_col_dims", 1))
    o.unless(padding_weights=False)
    out = o.made("mul", {"X": o.one("Input"), "Y": o.one("W")}, {"x_num_col_dims": kept, "y_num_col_dims": 1})
    if o.names("Bias"):
        bias = o.made("reshape", {"X": o.one("Bias")}, {"shape": [out.shape[-1]]})
        out = o.made("elementwise_add", {"X": out, "Y": bias}, {"axis": len(out.shape) - 1})
    act = o.attr("activation_type", "")
    o.give("Out", o.made(act, {"X": out}) if act else out)


# --- windows --------------------------------------------------------------------------------------------------------


def _padding(o: Reader, taps: list[int], count: int) -> list[int]:
    """Return how much is added on every side, two numbers for each axis, or one where both are the same."""
    how, form = o.attr("padding_algorithm", "EXPLICIT"), o.attr("data_format", "NCHW")
    given: Any = [int(p) for p in o.attr("paddings", [0] * count)] if how == "EXPLICIT" else how
    x = o.one("X" if o.names("X") else "Input")
    form = "NCHW" if form == "AnyLayout" else form
    sides = edges(o.op.type, given, x, taps, [int(s) for s in o.attr("strides", [1] * count)], form)
    return sides[::2] if sides[::2] == sides[1::2] else sides


@reads("conv2d", "depthwise_conv2d")
def _conv2d(o: Reader) -> None:
    shape = o.one("Filter").shape
    dilations = [1, 1] if o.attr("padding_algorithm", "EXPLICIT") == "SAME" else [int(d) for d in o.attr("dilations", [1, 1])]
    form = "NHWC" if o.attr("data_format", "NCHW") == "NHWC" else "NCHW"
    o.same("conv2d", paddings=_padding(o, list(shape[2:]), 2), dilations=dilations, data_format=form)


@reads("conv2d_transpose", "depthwise_conv2d_transpose")
def _conv2d_transpose(o: Reader) -> None:
    o.unless(data_format="NCHW", padding_algorithm="EXPLICIT")
    taps, groups = o.one("Filter").shape[2:], int(o.attr("groups", 1))
    around, strides = [int(p) for p in o.attr("paddings", [0, 0])], [int(s) for s in o.attr("strides", [1, 1])]
    sides = around if len(around) == 4 else [p for p in around for _ in range(2)]
    dilations = [int(d) for d in o.attr("dilations", [1, 1])]
    more = [0, 0]
    for i, wanted in enumerate(o.attr("output_size", [])):
        size = o.one("Input").shape[2 + i]
        least = (size - 1) * strides[i] - sides[2 * i] - sides[2 * i + 1] + dilations[i] * (taps[i] - 1) + 1
        if size < 0 or not 0 <= wanted - least < max(strides[i], 1):
            raise PeError(f"output_size is {o.attr('output_size', [])} of images of {list(o.one('Input').shape)}")
        more[i] = int(wanted - least)
    attrs = {"strides": strides, "paddings": sides, "output_padding": more, "dilations": dilations, "groups": groups}
    o.emit("conv2d_transpose", {"Input": o.one("Input"), "Filter": o.one("Filter")}, {"Output": o.out("Output")}, attrs)


@reads("pool2d")
def _pool2d(o: Reader) -> None:
    size, kind = [int(k) for k in o.attr("ksize", [1, 1])], o.attr("pooling_type", "max")
    if o.attr("adaptive", False):
        o.unless(data_format="NCHW")
        o.give("Out", o.layer("adaptive_pool2d", o.one("X"), size, kind))
        return
    form = "NHWC" if o.attr("data_format", "NCHW") == "NHWC" else "NCHW"
    if o.attr("global_pooling", False):
        o.same(ksize=[1, 1], strides=[1, 1], paddings=[0, 0], data_format=form)
        return
    o.same(paddings=_padding(o, size, 2), data_format=form)


@reads("bilinear_interp", "nearest_interp")
def _interp(o: Reader) -> None:
    o.unless(data_layout="NCHW")
    scale, size = float(o.attr("scale", 0.0)), [int(o.attr("out_h", -1)), int(o.attr("out_w", -1))]
    if o.names("SizeTensor") or o.names("Scale"):
        raise PeError("its sizes are variables")
    if scale > 0:
        size = [int(scale * s) if s > 0 else -1 for s in o.one("X").shape[2:]]
    if min(size) < 1 and not o.names("OutSize"):
        raise PeError(f"it enlarges {o.one('X')} to {size}", hint="export the model with images of one size")
    attrs: dict[str, Any] = {"out_h": max(size[0], 1), "out_w": max(size[1], 1), "align_corners": o.attr("align_corners", True)}
    if o.op.type == "bilinear_interp":
        attrs["align_mode"] = int(o.attr("align_mode", 1))
    inputs = {"X": o.one("X")} | ({"OutSize": o.one("OutSize")} if o.names("OutSize") else {})
    o.emit(o.op.type, inputs, {"Out": o.out()}, attrs)


@reads("pad2d")
def _pad2d(o: Reader) -> None:
    o.unless(data_format="NCHW")
    o.same()


# --- norms ----------------------------------------------------------------------------------------------------------


@reads("batch_norm", "sync_batch_norm")
def _batch_norm(o: Reader) -> None:
    o.unless(fuse_with_relu=False)
    form = "NHWC" if o.attr("data_layout", "NCHW") == "NHWC" else "NCHW"
    o.same("batch_norm", data_layout=form, is_test=o.attr("is_test", False))


@reads("instance_norm")
def _instance_norm(o: Reader) -> None:
    given = {"param_attr": o.named("Scale"), "bias_attr": o.named("Bias")}
    o.give("Y", o.layer("instance_norm", o.one("X"), float(o.attr("epsilon", 1e-5)), **given))


@reads("group_norm")
def _group_norm(o: Reader) -> None:
    o.unless(data_layout="NCHW")
    o.same()


@reads("lrn")
def _lrn(o: Reader) -> None:
    form = o.attr("data_format", "NCHW")
    numbers = [float(o.attr(name, value)) for name, value in (("k", 2.0), ("alpha", 1e-4), ("beta", 0.75))]
    o.give("Out", o.layer("lrn", o.one("X"), int(o.attr("n", 5)), *numbers, data_format="NCHW" if form == "AnyLayout" else form))


@reads("norm")
def _norm(o: Reader) -> None:
    o.give("Out", o.layer("l2_normalize", o.one("X"), int(o.attr("axis", -1)), float(o.attr("epsilon", 1e-10))))


@reads("affine_channel")
def _affine_channel(o: Reader) -> None:
    form = o.attr("data_layout", "NCHW")
    o.give("Out", o.layer("affine_channel", o.one("X"), o.one("Scale"), o.one("Bias"), "NCHW" if form == "AnyLayout" else form))


@reads("prelu")
def _prelu(o: Reader) -> None:
    o.give("Out", o.layer("prelu", o.one("X"), o.attr("mode", "all"), o.named("Alpha")))


@reads("dropout")
def _dropout(o: Reader) -> None:
    o.same(is_test=o.attr("is_test", False))


# --- numbers and places ---------------------------------------------------------------------------------------------


@reads("assign_value")
def _assign_value(o: Reader) -> None:
    kind = o.element("dtype")
    slot = {"float32": "fp32_values", "int32": "int32_values", "int64": "int64_values", "bool": "bool_values"}.get(kind)
    if slot is None:
        raise PeError(f"it assigns numbers of {kind}")
    values = [bool(v) if kind == "bool" else v if kind == "float32" else int(v) for v in o.attr(slot, [])]
    o.emit("assign_value", {}, {"Out": o.out()}, {"shape": [int(s) for s in o.attr("shape", [1])], "dtype": kind, "values": values})


@reads("fill_constant", "fill_constant_batch_size_like")
def _fill_constant(o: Reader) -> None:
    if o.names("ShapeTensor") or o.names("ValueTensor"):
        raise PeError("its sizes or its value are variables")
    given = o.attr("str_value", "")
    try:
        value = float(given) if given else float(o.attr("value", 0.0))
    except ValueError:
        raise PeError(f"its value is {given!r:.40}") from None
    if o.names("ShapeTensorList"):
        _fill_rows(o, value)
        return
    o.same(value=value)


def _fill_rows(o: Reader, value: float) -> None:
    """Fill as many rows as another variable has, each of sizes that are known."""
    first, *others = o.names("ShapeTensorList")
    sizes = [int(_number(o, name, "size")) for name in others]
    part = _maker(o, first)
    is_first = part is not None and part.type == "slice" and part.attrs["starts"] == [0] and part.attrs["ends"] == [1]
    whole = _maker(o, part.inputs["Input"][0]) if part is not None and is_first else None
    if whole is None or whole.type != "shape" or any(size < 1 for size in sizes):
        raise PeError("its sizes are variables")
    x = o.made("cast", {"X": o.block.var(whole.inputs["Input"][0])}, {"out_dtype": o.element("dtype")})
    if len(x.shape) > 1:
        x = o.made("reduce_sum", {"X": x}, {"dim": list(range(1, len(x.shape))), "keep_dim": False})
    if sizes:
        column = o.made("reshape", {"X": x}, {"shape": [-1, *(1 for _ in sizes)]})
        x = o.made("expand", {"X": column}, {"expand_times": [1, *sizes]})
    o.emit("fill_like", {"X": x}, {"Out": o.out()}, {"value": value})


@reads("fill_zeros_like", "fill_any_like")
def _fill_like(o: Reader) -> None:
    number = int(o.attr("dtype", -1))
    if number != -1 and ELEMENTS.get(number) != o.one("X").dtype:
        raise PeError(f"it makes numbers of the element type {number} of {o.one('X')}")
    o.emit("fill_like", {"X": o.one("X")}, {"Out": o.out()}, {"value": float(o.attr("value", 0.0))})


@reads("one_hot_v2")
def _one_hot(o: Reader) -> None:
    if o.names("depth_tensor"):
        raise PeError("its depth is a variable")
    ids = o.made("unsqueeze", {"X": o.one("X")}, {"axes": [len(o.one("X").shape)]})
    attrs = {"depth": int(o.attr("depth", 1)), "dtype": o.element("dtype"), "allow_out_of_range": o.attr("allow_out_of_range", False)}
    o.emit("one_hot", {"X": ids}, {"Out": o.out()}, attrs)


@reads("slice", "strided_slice")
def _slice(o: Reader) -> None:
    if any(o.names(f"{end}Tensor{kind}") for end in ("Starts", "Ends", "Strides") for kind in ("", "List")):
        raise PeError("its ends are variables")
    gone = [int(a) for a in o.attr("decrease_axis", [])]
    names = ("axes", "starts", "ends") + (("strides",) if o.op.type == "strided_slice" else ())
    attrs = {name: [int(n) for n in o.attr(name, [])] for name in names}
    if len(gone) == len(o.one("Input").shape):  # one number is kept as a list of one
        gone = gone[1:]
    if not gone:
        o.emit(o.op.type, {"Input": o.one("Input")}, {"Out": o.out()}, attrs)
        return
    part = o.made(o.op.type, {"Input": o.one("Input")}, attrs)
    o.emit("squeeze", {"X": part}, {"Out": o.out()}, {"axes": gone})


@reads("range")
def _range(o: Reader) -> None:
    ends = [_known(o, slot) for slot in ("Start", "End", "Step")]
    o.give("Out", o.layer("range", *ends, o.one("Start").dtype))


def _known(o: Reader, slot: str) -> Any:
    """Return the number that an input is filled with."""
    return _number(o, o.one(slot).name, slot)


def _maker(o: Reader, name: str) -> Operator | None:
    """Return the operator that makes a variable."""
    return next((op for op in reversed(o.block.ops) if name in op.output_names()), None)


def _number(o: Reader, name: str, what: str) -> Any:
    """Return the number that a variable is filled with."""
    op = _maker(o, name)
    if op is None or op.type not in ("fill_constant", "assign_value") or op.attrs.get("values") == []:
        raise PeError(f"its {what} is known in the step alone")
    return op.attrs["value"] if op.type == "fill_constant" else op.attrs["values"][0]


@reads("expand_as")
def _expand_as(o: Reader) -> None:
    o.give("Out", o.layer("expand_as", o.one("X"), o.one("target_tensor")))


@reads("crop")
def _crop(o: Reader) -> None:
    if o.names("Offsets") or o.names("Y"):
        raise PeError("its sizes or offsets are variables")
    shape, offsets = [int(s) for s in o.attr("shape", [])], [int(s) for s in o.attr("offsets", [])]
    o.give("Out", o.layer("crop", o.one("X"), [size if size > 0 else -1 for size in shape], offsets or None))


@reads("round")
def _round(o: Reader) -> None:
    x = o.one("X")  # halves go away from 0
    moved = o.made("scale", {"X": o.made("abs", {"X": x})}, {"scale": 1.0, "bias": 0.5, "bias_after_scale": True})
    o.emit("elementwise_mul", {"X": o.made("floor", {"X": moved}), "Y": o.made("sign", {"X": x})}, {"Out": o.out()})


@reads("swish")
def _swish(o: Reader) -> None:
    o.emit("swish", {"X": o.one("X")}, {"Out": o.out()}, {"beta": float(o.attr("beta", 1.0))})


# --- layers with arguments alone ------------------------------------------------------------------------------------

#: Operator -> layer, slots in the order of the layer's arguments, attributes in theirs with their defaults, and the output's slot.
_LAYERS: dict[str, tuple[str, tuple[str, ...], dict[str, Any], str]] = {
    "is_empty": ("is_empty", ("X",), {}, "Out"),
    "maxout": ("maxout", ("X",), {"groups": 1}, "Out"),
    "pixel_shuffle": ("pixel_shuffle", ("X",), {"upscale_factor": 1}, "Out"),
    "shuffle_channel": ("shuffle_channel", ("X",), {"group": 1}, "Out"),
    "temporal_shift": ("temporal_shift", ("X",), {"seg_num": 1, "shift_ratio": 0.25}, "Out"),
    "size": ("size", ("Input",), {}, "Out"),
    "isfinite": ("isfinite", ("X",), {}, "Out"),
    "label_smooth": ("label_smooth", ("X",), {"epsilon": 0.1}, "Out"),
    "cos_sim": ("cos_sim", ("X", "Y"), {}, "Out"),
    "bpr_loss": ("bpr_loss", ("X", "Label"), {}, "Y"),
    "pad_constant_like": ("pad_constant_like", ("X", "Y"), {"pad_value": 0.0}, "Out"),
    "diag": ("diag", ("Diagonal",), {}, "Out"),
    "selu": ("selu", ("X",), {"scale": 1.0507009873554805, "alpha": 1.6732632423543772}, "Out"),
    "index_select": ("index_select", ("X", "Index"), {"dim": 0}, "Out"),
    "bmm": ("bmm", ("X", "Y"), {}, "Out"),
    "dot": ("dot", ("X", "Y"), {}, "Out"),
    "margin_rank_loss": ("margin_rank_loss", ("Label", "X1", "X2"), {"margin": 0.1}, "Out"),
    "rank_loss": ("rank_loss", ("Label", "Left", "Right"), {}, "Out"),
    "hinge_loss": ("hinge_loss", ("Logits", "Labels"), {}, "Loss"),
    "fsp": ("fsp_matrix", ("X", "Y"), {}, "Out"),
}


def _layer(o: Reader) -> None:
    name, slots, attrs, out = _LAYERS[o.op.type]
    inputs = [o.one(slot) for slot in slots]
    further = [slot for slot in o.op.inputs if slot not in slots and o.names(slot)]
    if further:
        raise PeError(f"its input {further[0]} is not read")
    if o.op.type == "maxout":
        o.unless(axis=1)
    values = [type(default)(o.attr(attr, default)) for attr, default in attrs.items()]
    o.give(out, o.layer(name, *inputs, *values))


reads(*_LAYERS)(_layer)


@reads("reduce_all", "reduce_any")
def _reduced(o: Reader) -> None:
    axes = None if o.attr("reduce_all", False) else [int(a) for a in o.attr("dim", [0])]
    o.give("Out", o.layer(o.op.type, o.one("X"), axes, o.attr("keep_dim", False)))
