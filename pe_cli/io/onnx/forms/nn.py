"""Convolution, pooling, normalisation, softmax, embedding, losses and accuracy."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.io.onnx.elements import element_type
from pe_cli.io.onnx.writer import Writer, form


def first_channels(o: Writer, name: str, attribute: str) -> str:
    """Return an image with channels first, as ONNX has it."""
    return name if o.attrs[attribute] == "NCHW" else o.node("Transpose", [name], perm=[0, 3, 1, 2])


def as_written(o: Writer, name: str, attribute: str, to: str) -> None:
    """Write an image with channels first in the op's own order."""
    if o.attrs[attribute] == "NCHW":
        o.node("Identity", [name], to=to)
    else:
        o.node("Transpose", [name], to=to, perm=[0, 2, 3, 1])


@form("conv2d", "depthwise_conv2d")
def conv2d(o: Writer) -> None:
    """ONNX's own, padded alike on both sides."""
    a = o.attrs
    made = o.node(
        "Conv",
        [first_channels(o, o.x("Input"), "data_format"), o.x("Filter")],
        strides=a["strides"],
        pads=[*a["paddings"], *a["paddings"]],
        dilations=a["dilations"],
        group=a["groups"],
    )
    as_written(o, made, "data_format", "Output")


@form("pool2d")
def pool2d(o: Writer) -> None:
    """Windows, or all of the image."""
    a = o.attrs
    x = first_channels(o, o.x(), "data_format")
    kind = "MaxPool" if a["pooling_type"] == "max" else "AveragePool"
    if a["global_pooling"]:
        made = o.node(f"Global{kind}", [x])
    else:
        facts = {"kernel_shape": a["ksize"], "strides": a["strides"], "pads": [*a["paddings"], *a["paddings"]]}
        if kind == "AveragePool":
            facts["count_include_pad"] = int(not a["exclusive"])
        made = o.node(kind, [x], ceil_mode=int(a["ceil_mode"]), **facts)
    as_written(o, made, "data_format", "Out")


@form("batch_norm")
def batch_norm(o: Writer) -> None:
    """With running statistics; those of the batch have no use outside training.

    Raises:
        PeError: the op takes statistics of the batch.
    """
    if not (o.attrs["is_test"] or o.attrs["use_global_stats"]):
        raise PeError("batch_norm in training cannot be exported", hint="export the evaluation program")
    rank = len(o.type().shape)
    last = o.attrs["data_layout"] != "NCHW" and rank > 2
    x = o.node("Transpose", [o.x()], perm=[0, rank - 1, *range(1, rank - 1)]) if last else o.x()
    names = [x, *(o.x(slot) for slot in ("Scale", "Bias", "Mean", "Variance"))]
    made = o.node("BatchNormalization", names, epsilon=o.attrs["epsilon"])
    if last:
        o.node("Transpose", [made], to="Y", perm=[0, *range(2, rank), 1])
    else:
        o.node("Identity", [made], to="Y")


@form("layer_norm")
def layer_norm(o: Writer) -> None:
    """ONNX's own; scale and bias get the shape of the axes."""
    begin, shape = o.attrs["begin_norm_axis"], o.type().shape
    inner = shape[begin:]
    ones = o.const(1.0, "X")
    names = [o.x()]
    for slot, absent in (("Scale", ones), ("Bias", "")):
        if o.has(slot):
            names.append(o.node("Reshape", [o.x(slot), o.const(inner)]))
        else:
            names.append(o.node("Expand", [absent, o.const(inner)]) if absent else "")
    o.node("LayerNormalization", names, to="Y", axis=begin, epsilon=o.attrs["epsilon"])


@form("softmax")
def softmax(o: Writer) -> None:
    """ONNX's own."""
    o.node("Softmax", [o.x()], to="Out", axis=o.attrs["axis"])


@form("log_softmax")
def log_softmax(o: Writer) -> None:
    """ONNX's own."""
    o.node("LogSoftmax", [o.x()], to="Out", axis=o.attrs["axis"])


@form("lookup_table", "lookup_table_v2")
def lookup_table(o: Writer) -> None:
    """Rows of the table; the row of padding_idx is 0."""
    ids = o.x("Ids")
    if o.op.type == "lookup_table":
        ids = o.node("Squeeze", [ids, o.const([-1])])
    padding = o.attrs["padding_idx"]
    if padding == -1:
        o.node("Gather", [o.x("W"), ids], to="Out")
        return
    rows = o.node("Gather", [o.x("W"), ids])
    empty = o.node("Unsqueeze", [o.node("Equal", [ids, o.const(padding)]), o.const([-1])])
    o.node("Where", [empty, o.const(0.0, "W"), rows], to="Out")


def picked(o: Writer, logs: str, label: str, axis: int) -> str:
    """Return minus what stands at each label, 0 where the label is ignored."""
    ignored = o.node("Equal", [label, o.const(o.attrs["ignore_index"])])
    safe = o.node("Where", [ignored, o.const(0), label])
    found = o.node("Neg", [o.node("GatherElements", [logs, safe], axis=axis)])
    return o.node("Where", [ignored, o.const(0.0, "Logits" if o.has("Logits") else "X"), found])


@form("softmax_with_cross_entropy")
def softmax_with_cross_entropy(o: Writer) -> None:
    """By the logarithm of softmax."""
    axis = o.attrs["axis"]
    logs = o.node("LogSoftmax", [o.x("Logits")], axis=axis)
    if o.wanted("Softmax"):
        o.node("Softmax", [o.x("Logits")], to="Softmax", axis=axis)
    if o.attrs["soft_label"]:
        product = o.node("Mul", [o.x("Label"), logs])
        o.node("Neg", [o.node("ReduceSum", [product, o.const([axis])], keepdims=1)], to="Loss")
    else:
        o.node("Identity", [picked(o, logs, o.x("Label"), axis)], to="Loss")


@form("cross_entropy")
def cross_entropy(o: Writer) -> None:
    """-log of the probability at the label."""
    logs = o.node("Log", [o.x("X")])
    if o.attrs["soft_label"]:
        product = o.node("Mul", [o.x("Label"), logs])
        o.node("Neg", [o.node("ReduceSum", [product, o.const([-1])], keepdims=1)], to="Y")
    else:
        o.node("Identity", [picked(o, logs, o.x("Label"), -1)], to="Y")


@form("sigmoid_cross_entropy_with_logits")
def sigmoid_cross_entropy(o: Writer) -> None:
    """max(X, 0) - X Label + log(1 + exp(-|X|)); 0 where ignored."""
    x, label = o.x("X"), o.x("Label")
    high = o.node("Relu", [x])
    tail = o.node("Softplus", [o.node("Neg", [o.node("Abs", [x])])])
    found = o.node("Add", [o.node("Sub", [high, o.node("Mul", [x, label])]), tail])
    ignored = o.node("Equal", [label, o.const(o.attrs["ignore_index"], "Label")])
    if not o.attrs["normalize"]:
        o.node("Where", [ignored, o.const(0.0, "X"), found], to="Out")
        return
    kept = o.node("Cast", [o.node("Not", [ignored])], to_=element_type(o.type().dtype))
    count = o.node("Max", [o.node("ReduceSum", [kept], keepdims=0), o.const(1.0, "X")])
    o.node("Div", [o.node("Where", [ignored, o.const(0.0, "X"), found]), count], to="Out")


@form("accuracy")
def accuracy(o: Writer) -> None:
    """The share of rows whose label is among the indices."""
    equal = o.node("Equal", [o.x("Indices"), o.x("Label")])
    kind = o.out_type("Accuracy").dtype
    hits = o.node("ReduceMax", [o.node("Cast", [equal], to_=element_type(kind)), o.const([1])], keepdims=0)
    if o.wanted("Accuracy"):
        o.node("Reshape", [o.node("ReduceMean", [hits], keepdims=0), o.const([1])], to="Accuracy")
    if o.wanted("Correct"):
        right = o.node("ReduceSum", [hits], keepdims=0)
        whole = o.node("Cast", [right], to_=element_type(o.out_type("Correct").dtype))
        o.node("Reshape", [whole, o.const([1])], to="Correct")
    if o.wanted("Total"):
        rows = o.node("Slice", [o.node("Shape", [o.x("Indices")]), o.const([0]), o.const([1])])
        o.node("Cast", [rows], to="Total", to_=element_type(o.out_type("Total").dtype))
