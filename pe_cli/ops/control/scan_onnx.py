"""scan in ONNX: a Scan, whose body reads what is captured by its name."""

from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.ops.define.onnx import Writer, in_onnx


@in_onnx("scan")
def scan_onnx(o: Writer) -> None:
    """States, then rows; without rows the numbers of the steps are gone through.

    Raises:
        PeError: only a step knows how many rounds there are.
    """
    if o.has("Count"):
        why = "scan has no form in ONNX where only a step knows how many rounds there are: Scan goes through all rows that it is given"
        raise PeError(why, hint="choose outputs that do not need it")
    given, init, inside = o.ins("X"), o.ins("Init"), o.inside()
    states = [(inside.fresh(), o.type_of(n)) for n in init]
    rows = [(inside.fresh(), o.type_of(n).with_shape(*o.type_of(n).shape[1:])) for n in given]
    found = inside.region(o.attrs["body"], [*rows, *states, *((n, o.type_of(n)) for n in o.ins("Captured"))])
    if not given:
        given, rows = [o.const(np.arange(o.attrs["steps"]))], [(inside.fresh(), TensorType((), "int64"))]
    back, outs = int(o.attrs["backwards"]), len(found) - len(states)
    ways = {"scan_input_directions": [back] * len(given)} | ({"scan_output_directions": [back] * outs} if outs else {})
    final, collected = (list(o.op.outputs.get(slot, ())) for slot in ("Final", "Out"))
    body = inside.body([*states, *rows], found)
    o.nodes("Scan", [*init, *given], [*final, *collected], body=body, num_scan_inputs=len(given), **ways)
