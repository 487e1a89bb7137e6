"""nest_sequences: one level of sequences more around a tensor's own, or one less."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lod import LodRequest
from pe_cli.ops.define.registry import Sample, op
from pe_cli.ops.define.traits import View
from pe_cli.ops.sequence.sequence_shape import lod_reset_cpu, lod_reset_grad


@op("nest_sequences", inputs="X Y?", traits=[View({"Out": "X"})], differentiable="X", samples=[Sample({"X": (4, 2)}, name="plain rows")])
def nest_sequences(x: TensorType, y: TensorType | None) -> TensorType:
    """Put the outermost level of sequences of another tensor around those of a tensor, or take its own away.

    Args:
        X: [rows, ...] any.
        Y: its outermost level counts X's outermost sequences, or X's rows where these are plain.

    Returns:
        Out: type and values of X, with one level more; without Y with one less.

    Raises:
        PeError: Y has no sequences; before a step, offsets that do not fit.

    Source:
        What fluid's DynamicRNN does to sequences of sequences.
    """
    del y
    if not x.shape:
        raise PeError("nest_sequences needs X [rows, ...], got a scalar")
    return x


@nest_sequences.sequences(begins=True)
def nest_sequences_lod(s: LodRequest) -> None:
    """One level more or less."""
    s.out("Out", *((s.need("Y")[0], *s.lod("X")) if s.inputs.get("Y") else s.lod("X")[1:]))
    s.leave_out("Y")


nest_sequences.lower("cpu")(lod_reset_cpu)
nest_sequences.make_grad(lod_reset_grad)
also_on_cuda(nest_sequences)
