"""gather_tree: the sequences that a beam search found, from what every step chose and which beam it continued."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, Status, kernel
from pe_cli.kernels.status_codes import OUT_OF_RANGE
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lod import fixed
from pe_cli.ops.define.lowering import STATUS, Lowering
from pe_cli.ops.define.onnx import Writer, element_type, in_onnx
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
            # Checked after the id was written and before `beam` is used as an index: a wrong parent must not read another sample's memory.
            if beam < 0 or beam >= beams:
                status[1] = i
                status[2] = beam
                status[3] = beams
                status[0] = OUT_OF_RANGE
                return


@op(
    "gather_tree",
    faces=[Face("", "ids parents", "Follow beams back from the last step, to whole sequences.")],
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


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("gather_tree")
def gather_tree_onnx(o: Writer) -> None:
    """Steps from the last to the first; the state is the beam that each goes back to."""
    # The scan over steps goes backward (direction 1), and so does its output: row t of the result is step t again.
    ids, inside = o.type("Ids").computed, o.inside()
    row, state = ids.with_shape(*ids.shape[1:]), TensorType(ids.shape[1:], "int64")
    (came, chosen, parents) = (inside.fresh() for _ in range(3))
    found = inside.node("GatherElements", [chosen, came], axis=1)
    before = inside.node("Cast", [inside.node("GatherElements", [parents, came], axis=1)], to_=element_type("int64"))
    # What a scan hands on is the state first and then what is collected: `before` becomes `came` of the next step, `found` is a row of Out.
    body = inside.body([(came, state), (chosen, row), (parents, row)], [(before, state), (found, row)])
    sizes = o.node("Shape", [o.x("Ids")])
    beams = o.node("Slice", [sizes, o.const([2]), o.const([3])])
    each = o.node("Range", [o.const(0), o.node("Squeeze", [beams]), o.const(1)])
    first = o.node("Expand", [each, o.node("Slice", [sizes, o.const([1]), o.const([3])])])
    ways = {"scan_input_directions": [1, 1], "scan_output_directions": [1]}
    o.nodes("Scan", [first, o.x("Ids"), o.x("Parents")], [o.fresh(), o.op.outputs["Out"][0]], body=body, num_scan_inputs=2, **ways)
