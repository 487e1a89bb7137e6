"""Shapes, slices, constants, reductions and sorting."""

from __future__ import annotations

import numpy as np

from pe_cli.io.onnx.elements import element_type
from pe_cli.io.onnx.writer import Writer, form

REDUCE = {f"reduce_{name}": f"Reduce{name.title()}" for name in ("max", "mean", "min", "prod", "sum")}


@form("reshape", "squeeze", "unsqueeze")
def reshape(o: Writer) -> None:
    """The inferred shape, with what is left for the batch."""
    given = o.attrs["shape"] if o.op.type == "reshape" else [0]
    shape = list(o.out_type().shape) if 0 in given else given
    o.node("Reshape", [o.x(), o.const(shape)], to="Out", allowzero=int(0 in shape))


@form("flatten")
def flatten(o: Writer) -> None:
    """ONNX's own."""
    o.node("Flatten", [o.x()], to="Out", axis=o.attrs["axis"])


@form("transpose")
def transpose(o: Writer) -> None:
    """ONNX's own."""
    o.node("Transpose", [o.x()], to="Out", perm=o.attrs["axis"])


@form("cast")
def cast(o: Writer) -> None:
    """ONNX's own."""
    o.node("Cast", [o.x()], to="Out", to_=element_type(o.attrs["out_dtype"]))


@form("fill_constant")
def fill_constant(o: Writer) -> None:
    """A constant."""
    kind = o.attrs["dtype"]
    o.node("Identity", [o.const(np.full(o.attrs["shape"], o.attrs["value"]), dtype=kind)], to="Out")


@form("assign_value")
def assign_value(o: Writer) -> None:
    """A constant."""
    kind = o.attrs["dtype"]
    o.node("Identity", [o.const(np.asarray(o.attrs["values"]).reshape(o.attrs["shape"]), dtype=kind)], to="Out")


@form("fill_like")
def fill_like(o: Writer) -> None:
    """A constant of X's shape."""
    o.node("Expand", [o.const(o.attrs["value"], "X"), o.node("Shape", [o.x()])], to="Out")


@form("shape")
def shape(o: Writer) -> None:
    """The sizes as numbers."""
    o.node("Cast", [o.node("Shape", [o.x("Input")])], to="Out", to_=element_type(o.out_type().dtype))


@form("concat")
def concat(o: Writer) -> None:
    """ONNX's own."""
    o.node("Concat", o.ins("X"), to="Out", axis=o.attrs["axis"])


@form("split")
def split(o: Writer) -> None:
    """ONNX's own, with the size of every part."""
    outs = o.op.outputs["Out"]
    axis = o.attrs["axis"]
    if o.attrs["sections"]:
        sizes = [o.type_of(name).shape[axis] for name in outs]
        o.nodes("Split", [o.x(), o.const(sizes)], outs, axis=axis)
    else:
        o.nodes("Split", [o.x()], outs, axis=axis, num_outputs=len(outs))


@form("stack")
def stack(o: Writer) -> None:
    """A new axis for each, then joined."""
    axis = o.const([o.attrs["axis"]])
    o.node("Concat", [o.node("Unsqueeze", [name, axis]) for name in o.ins("X")], to="Y", axis=o.attrs["axis"])


@form("unstack")
def unstack(o: Writer) -> None:
    """Cut into single slices, whose axis goes."""
    outs = o.op.outputs["Y"]
    parts = [o.fresh() for _ in outs]
    o.nodes("Split", [o.x()], parts, axis=o.attrs["axis"], num_outputs=len(outs))
    for part, out in zip(parts, outs, strict=True):
        o.nodes("Squeeze", [part, o.const([o.attrs["axis"]])], [out])


@form("slice")
def box(o: Writer) -> None:
    """ONNX's own."""
    o.node("Slice", [o.x("Input"), *(o.const(o.attrs[k]) for k in ("starts", "ends", "axes"))], to="Out")


@form("reverse")
def reverse(o: Writer) -> None:
    """A slice with steps of -1."""
    axes = o.attrs["axis"]
    ones = [-1] * len(axes)
    lowest = [np.iinfo(np.int64).min] * len(axes)
    o.node("Slice", [o.x(), o.const(ones), o.const(lowest), o.const(axes), o.const(ones)], to="Out")


@form("pad")
def pad(o: Writer) -> None:
    """ONNX lists what goes before every axis, then what goes after."""
    pairs = o.attrs["paddings"]
    o.node("Pad", [o.x(), o.const([*pairs[::2], *pairs[1::2]]), o.const(o.attrs["pad_value"], "X")], to="Out")


@form("expand")
def expand(o: Writer) -> None:
    """Repeats along every axis."""
    o.node("Tile", [o.x(), o.const(o.attrs["expand_times"])], to="Out")


@form("gather")
def gather(o: Writer) -> None:
    """Rows by number."""
    index = o.x("Index") if len(o.type("Index").shape) == 1 else o.node("Squeeze", [o.x("Index"), o.const([1])])
    o.node("Gather", [o.x(), index], to="Out")


@form("tril_triu")
def triangle(o: Writer) -> None:
    """ONNX's own."""
    o.node("Trilu", [o.x(), o.const(o.attrs["diagonal"])], to="Out", upper=int(not o.attrs["lower"]))


@form(*REDUCE)
def reduce(o: Writer) -> None:
    """Over some axes, or all."""
    inputs = [o.x()] if o.attrs["reduce_all"] else [o.x(), o.const(o.attrs["dim"])]
    made = o.node(REDUCE[o.op.type], inputs, keepdims=int(o.attrs["keep_dim"]))
    out = o.out_type()
    if out.shape == (1,) and not o.attrs["keep_dim"]:
        o.node("Reshape", [made, o.const([1])], to="Out")
    else:
        o.node("Identity", [made], to="Out")


@form("mean")
def mean(o: Writer) -> None:
    """Over all elements, as fluid's vector of one."""
    o.node("Reshape", [o.node("ReduceMean", [o.x()], keepdims=0), o.const(o.out_type().shape)], to="Out")


@form("squared_l2_norm")
def squared_l2_norm(o: Writer) -> None:
    """The sum of squares."""
    o.node("Reshape", [o.node("ReduceSumSquare", [o.x()], keepdims=0), o.const(o.out_type().shape)], to="Out")


@form("arg_max", "arg_min")
def arg(o: Writer) -> None:
    """The place of the first extreme."""
    kind = {"arg_max": "ArgMax", "arg_min": "ArgMin"}[o.op.type]
    made = o.node(kind, [o.x()], axis=o.attrs["axis"], keepdims=int(o.attrs["keepdims"]))
    if len(o.type().shape) == 1:  # fluid has no scalars: a vector of one
        made = o.node("Reshape", [made, o.const([1])])
    o.node("Cast", [made], to="Out", to_=element_type(o.out_type().dtype))


@form("top_k")
def top_k(o: Writer) -> None:
    """The largest of the last axis, with their places."""
    o.nodes("TopK", [o.x(), o.const([o.attrs["k"]])], [o.op.outputs[s][0] for s in ("Out", "Indices")], axis=-1)


@form("one_hot")
def one_hot(o: Writer) -> None:
    """Rows with a single one."""
    x, name = o.type(), o.x()
    if len(x.shape) == 1 or x.shape[-1] != 1:
        name = o.node("Unsqueeze", [name, o.const([-1])])
    found = o.node("Equal", [name, o.const(np.arange(o.attrs["depth"]))])
    o.node("Cast", [found], to="Out", to_=element_type(o.attrs["dtype"]))
