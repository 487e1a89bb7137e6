"""LSTM over padded sequences, attention, and sequences of any length by their offsets."""

from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.io.onnx.elements import element_type
from pe_cli.io.onnx.writer import Writer, form


def _gates(o: Writer, name: str, axis: int) -> str:
    """Return blocks of gates i, f, g, o in ONNX's order: i, o, f, g."""
    parts = [o.fresh() for _ in range(4)]
    o.nodes("Split", [name], parts, axis=axis, num_outputs=4)
    return o.node("Concat", [parts[0], parts[3], parts[1], parts[2]], axis=axis)


@form("padded_lstm")
def padded_lstm(o: Writer) -> None:
    """ONNX's own, with the axis of directions that it wants."""
    first = o.const([0])
    units = o.type("WeightHh").shape[0]
    x = o.x("Input") if o.attrs["time_major"] else o.node("Transpose", [o.x("Input")], perm=[1, 0, 2])
    names = [x]
    for slot in ("WeightIh", "WeightHh"):
        turned = _gates(o, o.node("Transpose", [o.x(slot)], perm=[1, 0]), 0)
        names.append(o.node("Unsqueeze", [turned, first]))
    zero = o.const(np.zeros(4 * units), "Input")
    biases = [_gates(o, o.x(slot), 0) if o.has(slot) else zero for slot in ("BiasIh", "BiasHh")]
    names.append(o.node("Unsqueeze", [o.node("Concat", biases, axis=0), first]))
    lengths = ""
    if o.has("Lengths"):
        flat = o.node("Reshape", [o.x("Lengths"), o.const([-1])])
        lengths = o.node("Cast", [flat], to_=element_type("int32"))
    names.append(lengths)
    names += [o.node("Unsqueeze", [o.x(slot), first]) if o.has(slot) else "" for slot in ("InitH", "InitC")]
    y, h, c = (o.fresh() for _ in range(3))
    direction = "reverse" if o.attrs["is_reverse"] else "forward"
    o.nodes("LSTM", names, [y, h, c], hidden_size=units, direction=direction)
    all_steps = o.node("Squeeze", [y, o.const([1])])
    if o.attrs["time_major"]:
        o.node("Identity", [all_steps], to="Out")
    else:
        o.node("Transpose", [all_steps], to="Out", perm=[1, 0, 2])
    for slot, name in (("LastH", h), ("LastC", c)):
        if o.wanted(slot):
            o.node("Squeeze", [name, first], to=slot)


@form("attention")
def attention(o: Writer) -> None:
    """Heads apart, products, softmax, products, heads side by side.

    Raises:
        PeError: causal attention over a number of steps that is not known.
    """
    heads, rank = o.attrs["num_heads"], o.type("Q").shape
    if o.has("K"):
        names = [o.x(slot) for slot in ("Q", "K", "V")]
        widths = [o.type(slot).shape[2] for slot in ("Q", "K", "V")]
        keys = o.type("K").shape[1]
    else:
        names = [o.fresh() for _ in range(3)]
        o.nodes("Split", [o.x("Q")], names, axis=2, num_outputs=3)
        widths, keys = [rank[2] // 3] * 3, rank[1]
    split = [
        o.node("Transpose", [o.node("Reshape", [n, o.const([0, 0, heads, w // heads])])], perm=[0, 2, 1, 3])
        for n, w in zip(names, widths, strict=True)
    ]
    scale = o.attrs["scale"] or (widths[0] // heads) ** -0.5
    turned = o.node("Transpose", [split[1]], perm=[0, 1, 3, 2])
    scores = o.node("Mul", [o.node("MatMul", [split[0], turned]), o.const(scale, "Q")])
    if o.has("Mask"):
        scores = o.node("Add", [scores, o.x("Mask")])
    if o.attrs["causal"]:
        if rank[1] < 0 or keys < 0:
            raise PeError("causal attention over an unknown number of steps cannot be exported")
        ahead = np.triu(np.full((rank[1], keys), -np.inf), 1)
        scores = o.node("Add", [scores, o.const(ahead, "Q")])
    mixed = o.node("MatMul", [o.node("Softmax", [scores], axis=-1), split[2]])
    beside = o.node("Transpose", [mixed], perm=[0, 2, 1, 3])
    o.node("Reshape", [beside, o.const([0, 0, widths[2]])], to="Out")


def _rows(o: Writer) -> str:
    """Return the numbers of X's rows, int64 [rows]."""
    count = o.node("Squeeze", [o.node("Shape", [o.x()], end=1), o.const([0])])
    return o.node("Range", [o.const(0), count, o.const(1)])


def _bounds(o: Writer) -> tuple[str, str]:
    """Return the first row of every sequence and the one behind its last, int64 [sequences] each."""
    limit = o.const([np.iinfo(np.int64).max])
    begins = o.node("Slice", [o.x("Offsets"), o.const([0]), o.const([-1])])
    return begins, o.node("Slice", [o.x("Offsets"), o.const([1]), limit])


@form("sequence_context")
def sequence_context(o: Writer) -> None:
    """Neighbours by number, 0 where they belong to another sequence."""
    rows = _rows(o)
    begins, ends = _bounds(o)
    behind = o.node("GreaterOrEqual", [o.node("Unsqueeze", [rows, o.const([1])]), o.node("Unsqueeze", [ends, o.const([0])])])
    sequence = o.node("ReduceSum", [o.node("Cast", [behind], to_=element_type("int64")), o.const([1])], keepdims=0)
    low, high = (o.node("Gather", [bound, sequence]) for bound in (begins, ends))
    parts = []
    for step in range(o.attrs["start"], o.attrs["start"] + o.attrs["length"]):
        near = o.node("Add", [rows, o.const(step)])
        inside = o.node("And", [o.node("GreaterOrEqual", [near, low]), o.node("Less", [near, high])])
        taken = o.node("Gather", [o.x(), o.node("Where", [inside, near, rows])])
        parts.append(o.node("Where", [o.node("Unsqueeze", [inside, o.const([1])]), taken, o.const(0.0, "X")]))
    o.node("Concat", parts, to="Out", axis=1)


@form("sequence_pool")
def sequence_pool(o: Writer) -> None:
    """Each sequence picks its rows by comparing their numbers with its bounds: [sequences, rows, ...]."""
    begins, ends = (o.node("Unsqueeze", [bound, o.const([1])]) for bound in _bounds(o))
    rows = o.node("Unsqueeze", [_rows(o), o.const([0])])
    mine = o.node("And", [o.node("GreaterOrEqual", [rows, begins]), o.node("Less", [rows, ends])])
    count = o.node("Sub", [ends, begins])
    inner = len(o.type().shape) - 1
    kind, wide = o.attrs["pooltype"], o.const(list(range(2, 2 + inner)))
    if kind in ("FIRST", "LAST"):
        last = o.node("Sub", [o.node("Shape", [o.x()], end=1), o.const([1])])
        at = begins if kind == "FIRST" else o.node("Sub", [ends, o.const(1)])
        found = o.node("Gather", [o.x(), o.node("Squeeze", [o.node("Min", [o.node("Max", [at, o.const([0])]), last]), o.const([1])])])
    else:
        extreme = kind in ("MAX", "MIN")
        outside = {"MAX": -np.inf, "MIN": np.inf}.get(kind, 0.0)
        every = o.node("Where", [o.node("Unsqueeze", [mine, wide]), o.node("Unsqueeze", [o.x(), o.const([0])]), o.const(outside, "X")])
        reducer = {"MAX": "ReduceMax", "MIN": "ReduceMin"}.get(kind, "ReduceSum")
        found = o.node(reducer, [every, o.const([1])], keepdims=0)
        if not extreme and kind != "SUM":
            n = o.node("Cast", [count], to_=element_type(o.type().dtype))
            n = o.node("Sqrt", [n]) if kind == "SQRT" else n
            shaped = n if inner == 1 else o.node("Unsqueeze", [n, o.const(list(range(2, 1 + inner)))])
            found = o.node("Div", [found, shaped])
    empty = o.node("Equal", [count, o.const(0)])
    empty = empty if inner == 1 else o.node("Unsqueeze", [empty, o.const(list(range(2, 1 + inner)))])
    o.node("Where", [empty, o.const(o.attrs["pad_value"], "X"), found], to="Out")
