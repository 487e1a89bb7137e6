"""gather_tree: the sequences that a beam search found, from what every step chose and which beam it continued."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.codes import OUT_OF_RANGE
from pe_cli.kernels.cuda import deal
from pe_cli.kernels.lang import Int, Ptr, Status, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lod import fixed
from pe_cli.ops.define.lowering import STATUS, Lowering
from pe_cli.ops.define.registry import Sample, op
from pe_cli.ops.define.traits import ReportsData

_IDS = [[[2, 2], [6, 1]], [[3, 9], [6, 1]], [[0, 1], [9, 0]]]
_PARENTS = [[[0, 0], [1, 1]], [[1, 0], [1, 0]], [[0, 0], [0, 1]]]


@kernel
def follow_beams(ids: Ptr, parents: Ptr, out: Ptr, count: Int, steps: Int, beams: Int, status: Status):
    """Out of every beam of every sample, count in all, from the last step to the first."""
    for i in range(count):
        first = i // beams * beams
        beam = i % beams
        for back in range(steps):
            at = (steps - 1 - back) * count
            out[at + i] = ids[at + first + beam]
            beam = parents[at + first + beam]
            if beam < 0 or beam >= beams:
                status[1] = i
                status[2] = beam
                status[3] = beams
                status[0] = OUT_OF_RANGE
                return


@op(
    "gather_tree",
    traits=[ReportsData()],
    inputs="Ids Parents",
    differentiable="",
    samples=[
        Sample({"Ids": fixed(_IDS), "Parents": fixed(_PARENTS)}, name="three steps of two beams"),
        Sample({"Ids": fixed([[[4, 5, 6]]]), "Parents": fixed([[[2, 0, 0]]])}, name="one step"),
    ],
)
def gather_tree(ids: TensorType, parents: TensorType) -> TensorType:
    """Follow beams back from the last step.

    Out[T - 1, b, k] = Ids[T - 1, b, k]; Out[t, b, k] = Ids[t, b, p], where p is the beam of step t that beam k of the
    last step goes back to.

    Args:
        Ids: [steps, batch, beams] int32 or int64; what every beam chose.
        Parents: type of Ids; the beam of the step before that it continues.

    Returns:
        Out: type of Ids; row k is the whole sequence of beam k.

    Raises:
        PeError: types that do not fit; while running, a parent is no beam.

    Source:
        fluid.layers.gather_tree.
    """
    if len(ids.shape) != 3 or ids.dtype not in ("int32", "int64") or ids != parents:
        raise PeError(f"gather_tree needs Ids and Parents [steps, batch, beams] int32 or int64, got {ids} and {parents}")
    return ids


@gather_tree.lower("cpu")
def gather_tree_cpu(o: Lowering) -> None:
    """Beam by beam."""
    ids, out = o.input("Ids"), o.output("Out")
    steps, batch, beams = ids.shape
    if out.size:
        o.call(follow_beams, ids, o.input("Parents"), out, batch * beams, steps, beams, STATUS, dtype=ids.dtype)


# --- CUDA -------------------------------------------------------------------------------------------------------------


deal(follow_beams)
also_on_cuda(gather_tree)
