"""What is made of offsets before a step, and layers that only put rows elsewhere, in ONNX."""

from __future__ import annotations

import numpy as np

from pe_cli.ops.define.lod import constant
from pe_cli.ops.define.onnx import Writer, in_onnx, made_in_onnx
from pe_cli.ops.sequence.reorder_by_rank import _plain
from pe_cli.ops.sequence.sequence_concat import _joined_offsets, _places
from pe_cli.ops.sequence.sequence_rows import _repeat_offsets, _repeat_sequences, _slice_offsets, _slice_rows
from pe_cli.ops.sequence.sequence_rows_onnx import bounds_of, places_of, sequence_of
from pe_cli.ops.sequence.sequence_shape import _as_offsets, _rescaled


def _lengths(o: Writer, offsets: str) -> str:
    begins, ends = bounds_of(o, offsets)
    return o.node("Sub", [ends, begins])


def _offsets(o: Writer, lengths: str, to: str | None = None) -> str:
    return o.node("Concat", [o.const([0]), o.node("CumSum", [lengths, o.const(0)])], to=to, axis=0)


def _ranges(o: Writer, begins: str, lengths: str) -> None:
    """Write begin, begin + 1, ..., as many as a length says, one after the other."""
    offsets = _offsets(o, lengths)
    # Each row is as far from its sequence's begin as from that of the range.
    first, ends = bounds_of(o, offsets)
    place = places_of(o, offsets)
    away = o.node("Gather", [o.node("Sub", [begins, first]), sequence_of(o, place, ends)])
    o.node("Add", [place, away], to="Out")


def _flat(o: Writer, x: str) -> str:
    return o.node("Reshape", [o.node("Cast", [x], to_=7), o.const([-1])])


@made_in_onnx(constant)
def constant_onnx(o: Writer) -> None:
    """Themselves."""
    o.node("Identity", [o.const(np.array(o.attrs["values"], np.int64))], to="Out")


@made_in_onnx(_as_offsets)
def as_offsets_onnx(o: Writer) -> None:
    """Their numbers."""
    o.node("Identity", [_flat(o, o.x())], to="Out")


@made_in_onnx(_rescaled)
def rescaled_onnx(o: Writer) -> None:
    """Rows of another width."""
    o.node("Div", [o.node("Mul", [o.x(), o.const(o.attrs["width"])]), o.const(o.attrs["new_dim"])], to="Out")


@made_in_onnx(_joined_offsets)
def joined_offsets_onnx(o: Writer) -> None:
    """Sums of offsets."""
    o.node("Identity", [_total(o, o.ins("X"))], to="Out")


def _total(o: Writer, names: list[str]) -> str:
    found = names[0]
    for name in names[1:]:
        found = o.node("Add", [found, name])
    return found


@made_in_onnx(_places)
def joined_places_onnx(o: Writer) -> None:
    """Behind the rows of the inputs before."""
    offsets, which = o.ins("X"), o.attrs["which"]
    begins, _ = bounds_of(o, _total(o, offsets))
    _ranges(o, _total(o, [begins, *(_lengths(o, x) for x in offsets[:which])]), _lengths(o, offsets[which]))


def _repeated(o: Writer, x: str) -> str:
    """Return numbers of sequences, each as often as a sequence of the first source is long."""
    return o.node("Gather", [x, sequence_of(o, places_of(o, o.x()), bounds_of(o, o.x())[1])])


@made_in_onnx(_repeat_sequences)
def repeat_sequences_onnx(o: Writer) -> None:
    """Their rows, again and again."""
    own = o.ins("X")[1]
    _ranges(o, _repeated(o, bounds_of(o, own)[0]), _repeated(o, _lengths(o, own)))


@made_in_onnx(_repeat_offsets)
def repeat_offsets_onnx(o: Writer) -> None:
    """Their lengths, again and again."""
    _offsets(o, _repeated(o, _lengths(o, o.ins("X")[1])), "Out")


@made_in_onnx(_slice_rows)
def slice_rows_onnx(o: Writer) -> None:
    """From where each slice begins."""
    offsets, begins, lengths = o.ins("X")
    _ranges(o, o.node("Add", [bounds_of(o, offsets)[0], _flat(o, begins)]), _flat(o, lengths))


@made_in_onnx(_slice_offsets)
def slice_offsets_onnx(o: Writer) -> None:
    """Sums of lengths."""
    _offsets(o, _flat(o, o.ins("X")[2]), "Out")


@made_in_onnx(_plain)
def rank_onnx(o: Writer) -> None:
    """The order of lengths, or back."""
    lengths = _lengths(o, o.x())

    def order(x: str, largest: int) -> str:
        values, found = o.fresh(), o.fresh()
        o.nodes("TopK", [x, o.node("Shape", [x])], [values, found], largest=largest)
        return found

    found = order(lengths, 1)
    o.node("Identity", [order(found, 0) if o.attrs["inverse"] else found], to="Out")


@in_onnx("reorder_by_rank")
def reorder_by_rank_onnx(o: Writer) -> None:
    """Rows that an index has."""
    o.node("Gather", [o.x(), o.x("Index")], to="Out")


@in_onnx("sequence_concat")
def sequence_concat_onnx(o: Writer) -> None:
    """All rows, each at its place."""
    rows, to = (o.node("Concat", o.ins(slot), axis=0) for slot in ("X", "To"))
    o.node("ScatterND", [rows, o.node("Unsqueeze", [to, o.const([1])]), rows], to="Out")


@in_onnx("sequence_reshape")
def sequence_reshape_onnx(o: Writer) -> None:
    """Other rows."""
    o.node("Reshape", [o.x(), o.const([-1, o.attrs["new_dim"]])], to="Out")


@in_onnx("sequence_enumerate")
def sequence_enumerate_onnx(o: Writer) -> None:
    """Windows of places, of which those behind a sequence's end are replaced."""
    flat, ends = o.node("Reshape", [o.x(), o.const([-1])]), bounds_of(o, o.x("Offsets"))[1]
    place = places_of(o, o.x("Offsets"))
    end = o.node("Gather", [ends, sequence_of(o, place, ends)])
    window = o.node("Add", [o.node("Unsqueeze", [place, o.const([1])]), o.const(np.arange(o.attrs["win_size"]))])
    there = o.node("Less", [window, o.node("Unsqueeze", [end, o.const([1])])])
    taken = o.node("Gather", [flat, o.node("Where", [there, window, o.const(0)])])
    o.node("Where", [there, taken, o.const(o.attrs["pad_value"], "X")], to="Out")


@in_onnx("sequence_scatter")
def sequence_scatter_onnx(o: Writer) -> None:
    """Every number has a row, its sequence, and a column."""
    place, ends = places_of(o, o.x("Offsets")), bounds_of(o, o.x("Offsets"))[1]
    column, updates = _flat(o, o.x("Ids")), o.node("Reshape", [o.x("Updates"), o.const([-1])])
    both = [o.node("Unsqueeze", [v, o.const([1])]) for v in (sequence_of(o, place, ends), column)]
    o.node("ScatterND", [o.x(), o.node("Concat", both, axis=1), updates], to="Out", reduction="add")
