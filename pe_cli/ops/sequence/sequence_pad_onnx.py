"""sequence_pad, sequence_unpad and sequence_mask in ONNX: the longest sequence is found by nodes."""

from __future__ import annotations

import numpy as np

from pe_cli.ops.define.onnx import Writer, element_type, in_onnx, made_in_onnx
from pe_cli.ops.sequence.sequence_pad import checked_offsets
from pe_cli.ops.sequence.sequence_rows_onnx import bounds_of, places_of, sequence_of


@made_in_onnx(checked_offsets)
def checked_offsets_onnx(o: Writer) -> None:
    """Sums of lengths."""
    lengths = o.node("Reshape", [o.x(), o.const([-1])])
    o.node("Concat", [o.const([0]), o.node("CumSum", [lengths, o.const(0)])], to="Out", axis=0)


def _steps(o: Writer, lengths: str, most: int) -> str:
    """Return the numbers of steps, of as many as are asked for or as the longest sequence has."""
    if most > 0:
        return o.const(np.arange(most))
    return o.node("Range", [o.const(0), o.node("ReduceMax", [lengths], keepdims=0), o.const(1)])


@in_onnx("sequence_pad")
def sequence_pad_onnx(o: Writer) -> None:
    """Every step of every sequence takes a row; a sequence that is too long ends the run, by a place that there is not."""
    most, inner = o.attrs["padded_length"], o.type().shape[1:]
    begins, ends = bounds_of(o, o.x("Offsets"))
    lengths = o.node("Sub", [ends, begins])
    if most > 0:
        over = o.node("Cast", [o.node("Greater", [lengths, o.const(most)])], to_=7)
        lengths = o.node("Add", [lengths, o.node("Gather", [o.const([0]), over], name=f"a sequence is longer than padded_length {most}")])
    if o.wanted("Length"):
        o.node("Identity", [lengths], to="Length")
    step, column = _steps(o, lengths, most), o.const([1])
    there = o.node("Less", [step, o.node("Unsqueeze", [lengths, column])])
    row = o.node("Where", [there, o.node("Add", [o.node("Unsqueeze", [begins, column]), step]), o.const(0)])
    wide = o.node("Unsqueeze", [there, o.const(list(range(2, 2 + len(inner))))]) if inner else there
    value = o.node("Reshape", [o.x("PadValue"), o.const([1] if o.type("PadValue").size == 1 else list(inner))])
    o.node("Where", [wide, o.node("Gather", [o.x(), row]), value], to="Out")


@in_onnx("sequence_unpad")
def sequence_unpad_onnx(o: Writer) -> None:
    """Every row has a sequence and a step."""
    begins, ends = bounds_of(o, o.x("Offsets"))
    place = places_of(o, o.x("Offsets"))
    owner = sequence_of(o, place, ends)
    step = o.node("Sub", [place, o.node("Gather", [begins, owner])])
    both = [o.node("Unsqueeze", [v, o.const([1])]) for v in (owner, step)]
    o.node("GatherND", [o.x(), o.node("Concat", both, axis=1)], to="Out")


@in_onnx("sequence_mask")
def sequence_mask_onnx(o: Writer) -> None:
    """Numbers of steps are compared with lengths."""
    if o.has("Maxlen"):
        most = o.node("Squeeze", [o.node("Cast", [o.x("Maxlen")], to_=7)])
        step = o.node("Range", [o.const(0), most, o.const(1)])
    else:
        step = _steps(o, o.x(), o.attrs["maxlen"])
    found = o.node("Less", [step, o.node("Unsqueeze", [o.x(), o.const([-1])])])
    o.node("Cast", [found], to="Y", to_=element_type(o.out_type("Y").computed.dtype))
