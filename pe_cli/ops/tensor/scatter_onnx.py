"""Rows and values that masks, places and counts choose, in ONNX: scatter, unique, where, and rows of rounds."""

from __future__ import annotations

import numpy as np

from pe_cli.ops.define.onnx import Writer, element_type, in_onnx


def _whole(o: Writer, slot: str, shape: list[int]) -> str:
    """Return whole numbers as int64, in a shape."""
    return o.node("Reshape", [o.node("Cast", [o.x(slot)], to_=7), o.const(shape)])


@in_onnx("scatter")
def scatter_onnx(o: Writer) -> None:
    """Who writes a row last is found first; sums begin with rows of 0."""
    x, ids = o.x(), _whole(o, "Ids", [-1])
    if not o.attrs["overwrite"]:
        column = o.node("Unsqueeze", [ids, o.const([1])])
        # 0 times the updates clears the rows, whatever shape they have.
        nothing = o.node("Mul", [o.x("Updates"), o.const(0, "X")])
        o.node("ScatterND", [o.node("ScatterND", [x, column, nothing]), column, o.x("Updates")], to="Out", reduction="add")
        return
    # ONNX leaves open which of equal indices wins: the largest number of a writer is the last one, as in the op.
    nobody = o.node("Expand", [o.const(-1), o.node("Shape", [x], start=0, end=1)])
    number = o.node("Range", [o.const(0), o.node("Squeeze", [o.node("Shape", [ids])]), o.const(1)])
    writer = o.node("ScatterElements", [nobody, ids, number], axis=0, reduction="max")
    taken = o.node("Gather", [o.x("Updates"), o.node("Max", [writer, o.const(0)])])
    wrote = o.node("GreaterOrEqual", [writer, o.const(0)])
    inner = len(o.type().shape) - 1
    if inner:
        wrote = o.node("Unsqueeze", [wrote, o.const(list(range(1, 1 + inner)))])
    o.node("Where", [wrote, taken, x], to="Out")


@in_onnx("scatter_nd_add")
def scatter_nd_add_onnx(o: Writer) -> None:
    """ONNX's own, whose places are int64."""
    o.node("ScatterND", [o.x(), o.node("Cast", [o.x("Index")], to_=7), o.x("Updates")], to="Out", reduction="add")


@in_onnx("where_index")
def where_index_onnx(o: Writer) -> None:
    """ONNX's own, turned."""
    o.node("Transpose", [o.node("NonZero", [o.x("Condition")])], to="Out", perm=[1, 0])


def _filled(o: Writer, x: str, rows: str, value: str, to: str) -> None:
    """Write x with rows of a value behind it, so that there are as many as rows [1] says."""
    shape = o.node("Shape", [x])
    missing = o.node("Sub", [rows, o.node("Slice", [shape, o.const([0]), o.const([1])])])
    rest = o.node("Concat", [missing, o.node("Slice", [shape, o.const([1]), o.const([2**31])])], axis=0)
    o.node("Concat", [x, o.node("Expand", [value, rest])], to=to, axis=0)


@in_onnx("padded_where")
def padded_where_onnx(o: Writer) -> None:
    """Places, and -1 behind them."""
    places = o.node("Transpose", [o.node("NonZero", [o.x("Condition")])], perm=[1, 0])
    if o.wanted("Count"):
        o.node("Shape", [places], to="Count", start=0, end=1)
    if o.wanted("Out"):
        rows = o.node("Reshape", [o.node("Size", [o.x("Condition")]), o.const([1])])
        _filled(o, places, rows, o.const(-1), "Out")


def _different(o: Writer, x: str, dtype: str, **attrs: int) -> tuple[str, ...]:
    """Append a Unique and return its outputs; ONNX's runtimes know no Unique of int32."""
    plain = dtype in ("float32", "float64", "int64")
    made = [o.fresh() for _ in range(4)]
    o.nodes("Unique", [x if plain else o.node("Cast", [x], to_=7)], made, **attrs)
    values = made[0] if plain else o.node("Cast", [made[0]], to_=element_type(dtype))
    return values, *made[1:]


def _as_asked(o: Writer, **slots: str) -> None:
    """Write outputs in their own element types."""
    for slot, name in slots.items():
        if o.wanted(slot):
            o.node("Cast", [name], to=slot, to_=element_type(o.out_type(slot).dtype))


@in_onnx("unique_with_counts")
def unique_with_counts_onnx(o: Writer) -> None:
    """In the order in which they come."""
    values, _, index, counts = _different(o, o.x(), o.type().dtype, sorted=0)
    _as_asked(o, Out=values, Index=index, Count=counts)


@in_onnx("unique_sorted")
def unique_sorted_onnx(o: Writer) -> None:
    """Of elements or along an axis."""
    along = {"axis": o.attrs["axis"][0]} if o.attrs["axis"] else {}
    values, first, inverse, counts = _different(o, o.x(), o.type().dtype, sorted=1, **along)
    _as_asked(o, Out=values, Index=first, Inverse=inverse, Count=counts)


@in_onnx("padded_unique")
def padded_unique_onnx(o: Writer) -> None:
    """In the order in which they come, and 0 behind them."""
    values, _, index, counts = _different(o, o.x(), o.type().dtype, sorted=0)
    rows = o.node("Shape", [o.x()])
    if o.wanted("Out"):
        _filled(o, values, rows, o.const(0, "X"), "Out")
    if o.wanted("Times"):
        times = o.node("Cast", [counts], to_=element_type(o.out_type("Times").dtype))
        _filled(o, times, rows, o.const(0, dtype=o.out_type("Times").dtype), "Times")
    _as_asked(o, Index=index)
    if o.wanted("Count"):
        o.node("Shape", [values], to="Count")


@in_onnx("split_rows")
def split_rows_onnx(o: Writer) -> None:
    """Two choices."""
    mask = o.node("Reshape", [o.x("Mask"), o.const([-1])])
    for slot, chosen in (("OutTrue", mask), ("OutFalse", o.node("Not", [mask]))):
        if o.wanted(slot):
            o.node("Compress", [o.x(), chosen], to=slot, axis=0)


@in_onnx("merge_rows")
def merge_rows_onnx(o: Writer) -> None:
    """Each row's place is how many of its kind came before; those of the second kind stand behind the first ones."""
    mask = o.node("Reshape", [o.x("Mask"), o.const([-1])])
    yes = o.node("CumSum", [o.node("Cast", [mask], to_=7), o.const(0)], exclusive=1)
    no = o.node("CumSum", [o.node("Cast", [o.node("Not", [mask])], to_=7), o.const(0)], exclusive=1)
    no = o.node("Add", [no, o.node("Shape", [o.x("InTrue")], start=0, end=1)])
    both = o.node("Concat", [o.x("InTrue"), o.x("InFalse")], axis=0)
    o.node("Gather", [both, o.node("Where", [mask, yes, no])], to="Out")


@in_onnx("first_rows")
def first_rows_onnx(o: Writer) -> None:
    """From 0 on."""
    o.node("Slice", [o.x(), o.const([0]), _whole(o, "Count", [1])], to="Out")


@in_onnx("after", "lod_reset", "nest_sequences")
def handed_on_onnx(o: Writer) -> None:
    """The same values."""
    o.node("Identity", [o.x()], to="Out")


@in_onnx("reshape_like")
def reshape_like_onnx(o: Writer) -> None:
    """The shape of another."""
    o.node("Reshape", [o.x(), o.node("Shape", [o.x("Y")])], to="Out", allowzero=1)


# Sizes with a place for the count, which only a run knows.
@in_onnx("fill_constant_for_sequences")
def fill_constant_for_sequences_onnx(o: Writer) -> None:
    """One less than offsets, or as many as rows."""
    shape, at = o.attrs["shape"], o.attrs["output_dim_idx"]
    if o.has("Offsets"):
        count = o.node("Sub", [o.node("Shape", [o.x("Offsets")]), o.const([1])])
    else:
        count = o.node("Shape", [o.x("Input")], start=0, end=1)
    parts = [o.const(np.array(part)) for part in (shape[:at], shape[at + 1 :]) if part]
    sizes = o.node("Concat", [*parts[: int(at > 0)], count, *parts[int(at > 0) :]], axis=0)
    o.node("Expand", [o.const(o.attrs["value"], dtype=o.attrs["dtype"]), sizes], to="Out")
