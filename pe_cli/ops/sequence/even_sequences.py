"""even_sequences: rows as sequences of one length. How many there are only a step knows: it runs on the host."""

from __future__ import annotations

from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.ops.define.lod import HostRun, Leveled
from pe_cli.ops.define.onnx import ON_HOST, not_in_onnx
from pe_cli.ops.define.registry import Attr, GradRequest, OpDesc, Sample, op


@op(
    "even_sequences",
    inputs="X",
    differentiable="X",
    attrs={"rows": Attr(1, "rows of every sequence")},
    samples=[
        Sample({"X": (6, 2)}, {"rows": 3}, "two sequences"),
        Sample({"X": (4,)}, {"rows": 1}, "numbers, each alone"),
        Sample({"X": (0, 3)}, {"rows": 2}, "no rows"),
    ],
)
def even_sequences(x: TensorType, *, rows: int) -> TensorType:
    """Say that rows are sequences of one length, one after the other.

    Args:
        X: [sequences * rows, ...] any element type.
        rows: of every sequence.

    Returns:
        Out: type of X, with sequences.

    Raises:
        PeError: no rows, or a number of them that does not divide.

    Source:
        What fluid.layers.im2sequence says of its output.
    """
    if not x.shape or rows < 1 or (x.shape[0] > 0 and x.shape[0] % rows):
        raise PeError(f"even_sequences needs sequences of {rows} rows, got {x}")
    return x


@even_sequences.host_run
def even_sequences_host(run: HostRun) -> dict[str, list[Any]]:
    """The rows as they are."""
    x, rows = run.one("X"), run.attrs["rows"]
    # A range stands for the offsets: it takes no memory however many sequences there are.
    return {"Out": [Leveled(x, (range(0, len(x) + 1, rows),))]}


@even_sequences.make_grad
def even_sequences_grad(request: GradRequest) -> list[OpDesc]:
    """The gradient as it is."""
    (x,), (out,) = request.op.inputs["X"], request.op.outputs["Out"]
    return [OpDesc("assign", {"X": [request.grads[out]]}, {"Out": [request.wanted[x]]})]
not_in_onnx(ON_HOST, "even_sequences")
