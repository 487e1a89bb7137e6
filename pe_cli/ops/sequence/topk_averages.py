"""sequence_topk_avg_pooling: means of the largest numbers of every row of images that have sizes of their own."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI32, PtrI64, T, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lod import LodRequest, fixed, offsets_of, owners, row_count
from pe_cli.ops.define.lowering import Lowering, Numbers
from pe_cli.ops.define.onnx import VARIED, not_in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.sorting import before
from pe_cli.ops.sequence.pair_products import checked_images, image_offsets


@kernel
def average_largest(
    x: Ptr, rows: PtrI64, columns: PtrI64, offsets: PtrI64, owner: PtrI64, topks: PtrI64, out: Ptr, places: PtrI32, n: Int,
    channels: Int, kinds: Int, most: Int,
):  # fmt: skip
    """out[r, t, j] = the sum of the topks[j] largest of row r of channel t over topks[j]; places: their columns, -1 behind the last."""
    for i in range(n):
        r = i // channels
        t = i - r * channels
        s = owner[r]
        width = columns[s + 1] - columns[s]
        at = offsets[s] + (t * (rows[s + 1] - rows[s]) + r - rows[s]) * width
        total = T(0)
        last = -1
        kind = 0
        # Chosen one after the other instead of sorted: k is small and rows are short, and nothing has to be copied.
        for k in range(most):
            found = -1
            for c in range(width):
                # The next largest is the largest of those behind the last found: by value, and of equal ones by place.
                later = last < 0 or before(x[at + last], x[at + c]) or (not before(x[at + c], x[at + last]) and c > last)
                if later and (found < 0 or before(x[at + c], x[at + found])):
                    found = c
            places[i * most + k] = found
            if found >= 0:
                total += x[at + found]
                last = found
            # A row shorter than k is averaged over k all the same, as in the original.
            if topks[kind] == k + 1:
                out[i * kinds + kind] = total / T(k + 1)
                kind += 1


@kernel
def average_largest_back(
    g: Ptr, places: PtrI32, rows: PtrI64, columns: PtrI64, offsets: PtrI64, owner: PtrI64, topks: PtrI64, dx: Ptr, n: Int,
    channels: Int, kinds: Int, most: Int,
):  # fmt: skip
    """dx = the gradients of the means that each number is in."""
    for i in range(n):
        r = i // channels
        t = i - r * channels
        s = owner[r]
        width = columns[s + 1] - columns[s]
        at = offsets[s] + (t * (rows[s + 1] - rows[s]) + r - rows[s]) * width
        for c in range(width):
            dx[at + c] = T(0)
        # Places behind the end of a short row are -1 and have no gradient.
        for k in range(min(most, width)):
            share = T(0)
            for j in range(kinds):
                # A number among the k largest is in every mean of more than k numbers.
                if topks[j] > k:
                    share += g[i * kinds + j] / T(topks[j])
            dx[at + places[i * most + k]] = share


def _sample(name: str, rows: list[int], columns: list[int], channels: int, topks: list[int]) -> Sample:
    high, wide = offsets_of(rows), offsets_of(columns)
    offsets = image_offsets(high, wide, channels=channels)
    made = {"Rows": high, "Columns": wide, "Offsets": offsets, "Owner": owners(high)}
    given = {"X": (int(offsets[-1]), 1), **{slot: fixed(values) for slot, values in made.items()}}
    return Sample(given, {"topks": topks, "channel_num": channels}, name)


@op(
    "sequence_topk_avg_pooling",
    faces=[Face("", "input row! col:COLUMN! topks! channel_num!", returns="Out")],
    inputs="X ROW? COLUMN? Rows? Columns? Offsets? Owner?",
    outputs="Out Pos",
    differentiable="X",
    attrs={
        "topks": Attr([1], "how many of the largest numbers a mean is over, one after the other and growing"),
        "channel_num": Attr(1, "channels of every image"),
    },
    samples=[
        _sample("two channels", [2, 1], [3, 5], 2, [1, 2, 4]),
        _sample("images without rows, and without columns", [2, 0, 3], [2, 3, 0], 1, [1, 3]),
        _sample("one element", [1], [1], 1, [1]),
        _sample("no images", [], [], 2, [2]),
    ],
)
def sequence_topk_avg_pooling(
    x: TensorType, row: TensorType | None, column: TensorType | None, rows: TensorType | None, columns: TensorType | None,
    offsets: TensorType | None, owner: TensorType | None, *, topks: list[int], channel_num: int,
) -> tuple[TensorType, TensorType]:  # fmt: skip
    """Take from every row of every channel of an image the means of its largest numbers, for some counts of them.

    Out[r, t len(topks) + j] = (the sum of the topks[j] largest of X[t, r]) / topks[j]; a row that is shorter counts as filled up with 0.

    Args:
        X: [numbers of all images, 1] float32 or float64, with a sequence for each image, [channels, rows, columns].
        ROW, COLUMN: with sequences as long as the images have rows and columns; their values do not count.
        Rows, Columns, Offsets: where images' rows, columns and numbers begin, int64 [images + 1].
        Owner: number of the image of every row, int64 [rows].
        topks, channel_num: see the attributes.

    Returns:
        Out: [rows of all images, channels len(topks)] element type of X, with ROW's sequences.
        Pos: int32 [rows of all images, channels topks[-1]]; the columns of the largest numbers, -1 where there are no more.

    Raises:
        PeError: types that do not fit, or topks that do not grow; before a step, sequences that are no such images.

    Source:
        fluid.contrib.layers.sequence_topk_avg_pooling.
    """
    del row, column, rows, columns, offsets
    if len(x.shape) != 2 or x.shape[1] != 1 or x.dtype not in FLOATS:
        raise PeError(f"sequence_topk_avg_pooling needs numbers [rows, 1], float32 or float64, got {x}")
    if channel_num < 1 or not topks or topks[0] < 1 or sorted(set(topks)) != topks:
        raise PeError(f"sequence_topk_avg_pooling needs channels and topks that grow from at least 1, got {channel_num}, {topks}")
    count = row_count(owner)
    return x.with_shape(count, channel_num * len(topks)), TensorType((count, channel_num * topks[-1]), "int32")


@sequence_topk_avg_pooling.sequences("Rows Columns Offsets Owner")
def sequence_topk_avg_pooling_lod(s: LodRequest) -> None:
    """Sequences of images become sequences of their rows."""
    rows, columns = s.offsets("ROW"), s.offsets("COLUMN")
    s.give("Rows", rows)
    s.give("Columns", columns)
    s.give("Offsets", s.derive(checked_images, s.offsets("X"), rows, columns, channels=s.attrs["channel_num"]))
    s.give("Owner", s.derive(owners, rows))
    s.out("Out", *s.need("ROW"))
    s.leave_out("ROW", "COLUMN")


def _numbers(o: Lowering, rows: int) -> tuple[int, int, int, int]:
    """Return how many rows of channels there are, the channels, the means and the largest numbers of each."""
    channels, topks = o.attrs["channel_num"], o.attrs["topks"]
    return rows * channels, channels, len(topks), topks[-1]


@sequence_topk_avg_pooling.lower("cpu")
def sequence_topk_avg_pooling_cpu(o: Lowering) -> None:
    """Row by row."""
    out = o.output("Out")
    if out.size:
        arrays = (o.input("Rows"), o.input("Columns"), o.input("Offsets"), o.input("Owner"))
        numbers = _numbers(o, out.shape[0])
        places = o.output_or_scratch("Pos", numbers[0] * numbers[3], "int32")
        o.call(average_largest, o.input("X"), *arrays, Numbers(tuple(o.attrs["topks"])), out, places, *numbers)


@sequence_topk_avg_pooling.grad(uses="Pos Rows Columns Offsets Owner").lower("cpu")
def sequence_topk_avg_pooling_grad_cpu(o: Lowering) -> None:
    """Row by row, at the columns that were found."""
    g, dx = o.input("Out@GRAD"), o.output("X@GRAD")
    if dx.size:
        arrays = (o.input("Rows"), o.input("Columns"), o.input("Offsets"), o.input("Owner"))
        topks = Numbers(tuple(o.attrs["topks"]))
        o.call(average_largest_back, g, o.input("Pos"), *arrays, topks, dx, *_numbers(o, g.shape[0]))


deal(average_largest, average_largest_back)
also_on_cuda(sequence_topk_avg_pooling)
not_in_onnx(VARIED, "sequence_topk_avg_pooling")
