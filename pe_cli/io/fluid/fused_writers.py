"""Operators in a row here that are one operator in PaddlePaddle 1.8.5."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from pe_cli.io.fluid.operator_writer import Written
from pe_cli.program.ir import Operator


def _sequence_conv(made: Written, ops: Sequence[Operator]) -> None:
    rows, product = ops
    attrs = {"contextStart": rows.attrs["start"], "contextLength": rows.attrs["length"], "contextStride": 1, "paddingTrainable": False}
    made.emit("sequence_conv", {"X": rows.inputs["X"], "Filter": product.inputs["Y"]}, product.outputs, attrs)


def _im2sequence(made: Written, ops: Sequence[Operator]) -> None:
    windows, known = ops[0], ops[0].attrs
    attrs = {"kernels": known["kernel_sizes"], "strides": known["strides"], "paddings": known["paddings"], "out_stride": [1, 1]}
    made.emit("im2sequence", {"X": windows.inputs["X"]}, ops[-1].outputs, attrs)


#: Types of operators of which each reads the one before by its slot X -> what writes them.
_ROWS: Mapping[tuple[str, ...], Callable[[Written, Sequence[Operator]], None]] = {
    ("sequence_context", "mul"): _sequence_conv,
    ("unfold", "transpose", "reshape", "even_sequences"): _im2sequence,
}


class Fused:
    """The rows of operators in a block that are written as one.

    Args:
        ops: of a block.
        fetches: names that are read from outside; what is between two operators of a row must not be among them.
    """

    def __init__(self, ops: Sequence[Operator], fetches: Collection[str]) -> None:
        read = Counter(name for op in ops for name in op.input_names()) + Counter(fetches)
        makers = {names[0]: op for op in ops for names in (op.outputs.get("Out") or op.outputs.get("Y"),) if names}
        #: Number of the last operator -> the row.
        self.rows: dict[int, list[Operator]] = {}
        #: Numbers of the others.
        self.inside: set[int] = set()
        for last in ops:
            for types in _ROWS:
                row = _row(last, types, makers, read)
                if row:
                    self.rows[id(last)] = row
                    self.inside |= {id(op) for op in row[:-1]}

    def write(self, made: Written, op: Operator) -> bool:
        """Append what an operator is written as, and return whether it belongs to a row."""
        row = self.rows.get(id(op))
        if row:
            _ROWS[tuple(each.type for each in row)](made, row)
            for before in row[:-1]:
                for name in before.output_names():
                    made.vars.pop(made.name(name), None)
        return bool(row) or id(op) in self.inside


def _row(last: Operator, types: Sequence[str], makers: Mapping[str, Operator], read: Mapping[str, int]) -> list[Operator]:
    """Return the row that an operator ends; empty where it ends none."""
    row = [last]
    for type_ in reversed(types[:-1]):
        names = row[0].inputs.get("X", [])
        before = makers.get(names[0]) if len(names) == 1 else None
        if row[0].type != types[-len(row)] or before is None or before.type != type_ or read[names[0]] != 1:
            return []
        row.insert(0, before)
    return row
