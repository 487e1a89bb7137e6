"""ctc_align: a path of classes becomes the labels that it stands for."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, PtrI64, Status, kernel
from pe_cli.kernels.status_codes import TOO_LONG
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lod import fixed
from pe_cli.ops.define.lowering import STATUS, Lowering
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import ReportsData, Spells


@kernel
def align(
    x: PtrI64, length: PtrI64, out: PtrI64, out_length: PtrI64, rows: Int, n: Int, blank: Int, merges: Int, padding: Int,
    status: Status,
):  # fmt: skip
    """out[r] = the classes of x[r] without blanks, and one of those in a row; behind them padding."""
    for r in range(rows):
        size = length[r]
        if size < 0 or size > n:
            status[1] = r
            status[2] = size
            status[3] = n
            status[0] = TOO_LONG
            # The step fails anyway; taken as empty, the sequence is not read beyond its row.
            size = 0
        kept = 0
        before = -1
        for t in range(size):
            c = x[r * n + t]
            if c != blank and not (merges and c == before):
                out[r * n + kept] = c
                kept += 1
            # A blank, too, becomes the class before: equal labels on both sides of a blank are two labels.
            before = c
        out_length[r] = kept
        for t in range(kept, n):
            out[r * n + t] = padding


@op(
    "ctc_align",
    traits=[ReportsData(), Spells("Output", "warpctc", lengths="OutputLength")],
    inputs="Input InputLength",
    outputs="Output OutputLength",
    attrs={
        "blank": Attr(0, "class that stands for no label"),
        "merge_repeated": Attr(True, "several of one class in a row are one"),
        "padding_value": Attr(0, "what is behind the labels"),
    },
    differentiable="",
    samples=[
        Sample({"Input": fixed([[1, 1, 0, 1, 2], [0, 0, 3, 3, 3]]), "InputLength": fixed([[5], [4]])}, name="two paths"),
        Sample(
            {"Input": fixed([[1, 1, 2, 2, 1]]), "InputLength": fixed([5])},
            {"blank": 2, "merge_repeated": False, "padding_value": -1}, "nothing is merged",
        ),
    ],
)  # fmt: skip
def ctc_align(x: TensorType, length: TensorType, *, blank: int, merge_repeated: bool, padding_value: int) -> tuple[TensorType, TensorType]:
    """Make the labels of paths: several of one class in a row become one, and then blanks are left out.

    Args:
        Input: [sequences, time] int64, classes.
        InputLength: steps of each sequence, int64, one number for each.
        blank, merge_repeated, padding_value: see the attributes.

    Returns:
        Output: type of Input; labels, and padding_value behind them.
        OutputLength: [sequences, 1] int64; how many labels there are.

    Raises:
        PeError: other types; while running, a length above time.

    Source:
        fluid.layers.ctc_greedy_decoder with input_length.
    """
    del blank, merge_repeated, padding_value
    fits = len(x.shape) == 2 and (-1 in (length.size, x.shape[0]) or length.size == x.shape[0])
    if {x.dtype, length.dtype} != {"int64"} or not fits:
        raise PeError(f"ctc_align needs int64 Input [sequences, time] and a length for each, got {x} and {length}", hint="cast them")
    return x, TensorType((x.shape[0], 1), "int64")


@ctc_align.lower("cpu")
def ctc_align_cpu(o: Lowering) -> None:
    """Path by path."""
    x = o.input("Input")
    size = o.output_or_scratch("OutputLength", x.shape[0], "int64")
    attrs = (o.attrs["blank"], int(o.attrs["merge_repeated"]), o.attrs["padding_value"])
    o.call(align, x, o.input("InputLength"), o.output("Output"), size, *x.shape, *attrs, STATUS)


deal(align)
also_on_cuda(ctc_align)
