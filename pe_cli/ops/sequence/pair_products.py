"""pair_products: every row of a sequence times every row of the sequence at the same place in another tensor."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI64, T, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lod import Indices, LodRequest, fixed, lengths_of, offsets_of, owners, row_count
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.onnx import VARIED, not_in_onnx
from pe_cli.ops.define.registry import Sample, op


def image_offsets(rows: Indices, columns: Indices, *, channels: int) -> Indices:
    """Return where images begin that lie one behind the other, as many rows and columns as two tensors' sequences are long.

    Raises:
        PeError: the tensors have not as many sequences.
    """
    if len(rows) != len(columns):
        what = f"there are {len(rows) - 1} sequences for rows, but {len(columns) - 1} for columns"
        raise PeError(what, hint="one for each image")
    return offsets_of(channels * lengths_of(rows) * lengths_of(columns))


def checked_images(given: Indices, rows: Indices, columns: Indices, *, channels: int) -> Indices:
    """Return where images begin, which is where the sequences begin that they lie in.

    Raises:
        PeError: sequences of other lengths than the images have.
    """
    wanted = image_offsets(rows, columns, channels=channels)
    if wanted.tolist() != given.tolist():
        # The first sequence that differs is named; where all agree as far as they go, the numbers of sequences differ, and the first one
        # that is missing is named.
        s = next((i for i, (a, b) in enumerate(zip(given[1:], wanted[1:], strict=False)) if a != b), min(len(given), len(wanted)) - 1)
        sizes = [f"{int(v[s + 1] - v[s])}" if s + 1 < len(v) else "no" for v in (given, rows, columns)]
        what = f"sequence {s} has {sizes[0]} numbers for an image of {channels} channels, {sizes[1]} rows and {sizes[2]} columns"
        raise PeError(what, hint="row and col are what the image was made of, one sequence each")
    return given


@kernel
def multiply_pairs(
    x: Ptr, y: Ptr, xs: PtrI64, ys: PtrI64, offsets: PtrI64, owner: PtrI64, out: Ptr, n: Int, channels: Int, width: Int
):
    """out[t, r, c] of every sequence = x[r, t] times y[c]."""
    for i in range(n):
        # Out is [channels, rows, columns] for each image, columns fastest. A sequence without columns owns no number, so the divisions are
        # by at least 1.
        s = owner[i]
        begin = ys[s]
        columns = ys[s + 1] - begin
        rows = xs[s + 1] - xs[s]
        j = (i - offsets[s]) // columns
        c = i - offsets[s] - j * columns
        t = j // rows
        a = ((xs[s] + j - t * rows) * channels + t) * width
        b = (begin + c) * width
        total = T(0)
        for k in range(width):
            total += x[a + k] * y[b + k]
        out[i] = total


@kernel
def multiply_pairs_back_x(
    g: Ptr, y: Ptr, xs: PtrI64, ys: PtrI64, offsets: PtrI64, owner: PtrI64, dx: Ptr, n: Int, channels: Int, width: Int
):
    """dx[r, t] = the rows of y by their gradients."""
    for i in range(n):
        # Every row of X collects its own gradient, instead of every number of Out adding to two rows: no two threads write to one number.
        r = i // channels
        t = i - r * channels
        s = owner[r]
        columns = ys[s + 1] - ys[s]
        at = offsets[s] + (t * (xs[s + 1] - xs[s]) + r - xs[s]) * columns
        for k in range(width):
            dx[i * width + k] = T(0)
        for c in range(columns):
            share = g[at + c]
            b = (ys[s] + c) * width
            for k in range(width):
                dx[i * width + k] += share * y[b + k]


@kernel
def multiply_pairs_back_y(
    g: Ptr, x: Ptr, xs: PtrI64, ys: PtrI64, offsets: PtrI64, owner: PtrI64, dy: Ptr, n: Int, channels: Int, width: Int
):
    """dy[c] = the rows of x, of every channel, by their gradients."""
    for i in range(n):
        s = owner[i]
        columns = ys[s + 1] - ys[s]
        rows = xs[s + 1] - xs[s]
        for k in range(width):
            dy[i * width + k] = T(0)
        for t in range(channels):
            for r in range(rows):
                share = g[offsets[s] + (t * rows + r) * columns + i - ys[s]]
                a = ((xs[s] + r) * channels + t) * width
                for k in range(width):
                    dy[i * width + k] += share * x[a + k]


def _sample(name: str, rows: list[int], columns: list[int], channels: int, width: int) -> Sample:
    xs, ys = offsets_of(rows), offsets_of(columns)
    offsets = image_offsets(xs, ys, channels=channels)
    made = {
        "XOffsets": xs, "YOffsets": ys, "Offsets": offsets, "XOwner": owners(xs), "YOwner": owners(ys), "Owner": owners(offsets),
    }  # fmt: skip
    shapes = {"X": (int(xs[-1]), channels, width), "Y": (int(ys[-1]), width)}
    return Sample({**shapes, **{slot: fixed(values) for slot, values in made.items()}}, name=name)


@op(
    "pair_products",
    inputs="X Y XOffsets? YOffsets? Offsets? XOwner? YOwner? Owner?",
    differentiable="X Y",
    samples=[
        _sample("two channels", [2, 3], [3, 1], 2, 4),
        _sample("sequences without rows", [2, 0, 1, 3], [3, 2, 0, 1], 1, 3),
        _sample("one element", [1], [1], 1, 1),
        _sample("no rows", [0], [0], 2, 3),
    ],
)
def pair_products(
    x: TensorType, y: TensorType, xs: TensorType | None, ys: TensorType | None, offsets: TensorType | None,
    x_owner: TensorType | None, y_owner: TensorType | None, owner: TensorType | None,
) -> TensorType:  # fmt: skip
    """Multiply every row of a sequence of X, by channel, with every row of the sequence of Y at the same place.

    Out of sequence s is an image [channels, rows of X's sequence, rows of Y's]: Out[t, r, c] = sum over k of X[r, t, k] Y[c, k].

    Args:
        X: [rows, channels, width] float32 or float64, with sequences; no unit.
        Y: [rows, width] element type of X, with as many sequences.
        XOffsets, YOffsets: of their innermost sequences, int64 [sequences + 1].
        Offsets: of Out's.
        XOwner, YOwner, Owner: number of the sequence of every row, int64 [rows].

    Returns:
        Out: [numbers of all images, 1] element type of X; a sequence for each image.

    Raises:
        PeError: types that do not fit, or rows without sequences; before a step, another number of sequences.

    Source:
        fluid's operator match_matrix_tensor, without its product.
    """
    del xs, ys, offsets, x_owner, y_owner
    if len(x.shape) != 3 or x.dtype not in FLOATS or y.dtype != x.dtype or len(y.shape) != 2 or x.shape[2] != y.shape[1]:
        raise PeError(f"pair_products needs X [rows, channels, width] and Y [rows, width] of one float type, got {x} and {y}")
    return x.with_shape(row_count(owner), 1)


@pair_products.sequences("XOffsets YOffsets Offsets XOwner YOwner Owner")
def pair_products_lod(s: LodRequest) -> None:
    """Images are as large as the products of the sequences' lengths."""
    xs, ys = s.offsets("X"), s.offsets("Y")
    made = s.derive(image_offsets, xs, ys, channels=s.types(s.inputs["X"][0]).shape[1])
    for slot, name in (("XOffsets", xs), ("YOffsets", ys), ("Offsets", made)):
        s.give(slot, name)
        s.give(slot.replace("Offsets", "Owner"), s.derive(owners, name))
    s.out("Out", made)


@pair_products.lower("cpu")
def pair_products_cpu(o: Lowering) -> None:
    """Number by number."""
    x, y, out = o.input("X"), o.input("Y"), o.output("Out")
    arrays = (o.input("XOffsets"), o.input("YOffsets"), o.input("Offsets"), o.input("Owner"))
    if out.size:
        o.call(multiply_pairs, x, y, *arrays, out, out.size, *x.shape[1:])


@pair_products.grad(uses="X Y XOffsets YOffsets Offsets XOwner YOwner").lower("cpu")
def pair_products_grad_cpu(o: Lowering) -> None:
    """Row by row of each."""
    g, x, y = o.input("Out@GRAD"), o.input("X"), o.input("Y")
    arrays = (o.input("XOffsets"), o.input("YOffsets"), o.input("Offsets"))
    rows, channels, width = x.shape
    if o.has("X@GRAD") and x.size:
        o.only("X@GRAD")
        o.call(multiply_pairs_back_x, g, y, *arrays, o.input("XOwner"), o.output("X@GRAD"), rows * channels, channels, width)
    if o.has("Y@GRAD") and y.size:
        o.only("Y@GRAD")
        o.call(multiply_pairs_back_y, g, x, *arrays, o.input("YOwner"), o.output("Y@GRAD"), y.shape[0], channels, width)


deal(multiply_pairs, multiply_pairs_back_x, multiply_pairs_back_y)
also_on_cuda(pair_products)
not_in_onnx(VARIED, "pair_products")
