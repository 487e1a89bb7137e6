"""Random permutations and random crops."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType, product
from pe_cli.kernels.cuda.language import on_cuda
from pe_cli.kernels.language import Int, Ptr, PtrI64, T, helper, kernel
from pe_cli.kernels.math.random import philox
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.lowering import STEP, Lowering, Numbers
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import Random

_SEED = Attr(0, "own seed, the same choice at every step; 0 takes the program's, with a new one at every step")


@helper
def _below(seed, step, index, n):
    """Return an integer of [0, n): 31 random bits times n, over 2**31; n is below 2**31."""
    a, b, _, _ = philox(seed, step, index)
    # Multiplied and shifted (Lemire 2019), not taken modulo n: no division; the bias is n / 2**31 at most.
    return (((a << 20) | (b >> 12)) >> 21) * n >> 31


@kernel
def shuffled(out: Ptr, n: Int, seed: Int, step: PtrI64, fixed: Int):
    """out = 0 .. n - 1 in a random order."""
    at = 0 if fixed else step[0]
    for i in range(n):
        # Fisher and Yates from the inside out: i goes to a random place of the first i + 1, and what was there goes to the end.
        j = _below(seed, at, i, i + 1)
        out[i] = out[j] if j < i else T(i)
        out[j] = T(i)


@kernel
def crop_rows(
    x: Ptr, out: Ptr, sizes: PtrI64, rank: Int, rows: Int, first: Int, count: Int, seed: Int, step: PtrI64, fixed: Int, middle: Int
):
    """Copy a box of `count` elements of every row, at a random place or in the middle; sizes: rank sizes of a row, then of the box."""
    at = 0 if fixed else step[0]
    whole = 1
    for d in range(rank):
        whole *= sizes[d]
    for r in range(rows):
        start = 0
        for d in range(rank):
            free = sizes[d] - sizes[rank + d] + 1
            begin = (free - 1) // 2 if middle else _below(seed, at, (first + r) * rank + d, free)
            start = start * sizes[d] + begin
        n = sizes[2 * rank - 1]
        for line in range(count // n):
            left = line
            place = 0
            step_ = sizes[rank - 1]
            for d in range(rank - 2, -1, -1):
                place += left % sizes[rank + d] * step_
                left //= sizes[rank + d]
                step_ *= sizes[d]
            a = r * whole + start + place
            b = r * count + line * n
            for i in range(n):
                out[b + i] = x[a + i]


@op(
    "randperm",
    faces=[Face("", "n! dtype seed name", "Put the integers from 0 to n - 1 in a random order.")],
    attrs={"n": Attr(1, "how many integers"), "dtype": Attr("int64", "element type", ("int64", "int32")), "seed": _SEED},
    samples=[Sample({}, {"n": 7}, "seven"), Sample({}, {"n": 1}, "one")],
    traits=[Random()],
)
def randperm(*, n: int, dtype: str, seed: int) -> TensorType:
    """Put the integers from 0 to n - 1 in a random order, every one of which is equally likely.

    Returns:
        Out: [n] of that element type.

    Raises:
        PeError: n is below 1, or 2**31 or more.

    Source:
        fluid.layers.randperm; Fisher and Yates 1938, the inside-out form.
    """
    if not 1 <= n < 1 << 31:
        raise PeError(f"randperm needs n from 1 to 2**31 - 1, got {n}")
    return TensorType((n,), dtype)


@randperm.lower("cpu")
def randperm_cpu(o: Lowering) -> None:
    """One pass."""
    own = int(o.attrs["seed"])
    o.call(shuffled, o.output("Out"), o.attrs["n"], own or o.seed, STEP, int(own != 0))


@op(
    "random_crop",
    faces=[Face("", "x shape! seed=None", kinds={"seed": "int | None"})],
    inputs="X",
    attrs={
        "shape": Attr([1], "sizes of the box along the last axes"),
        "is_test": Attr(False, "cut the middle out"),
        "seed": _SEED,
    },
    differentiable="",
    samples=[
        Sample({"X": (3, 2, 5, 6)}, {"shape": [2, 3, 4]}, "images"),
        Sample({"X": (2, 3, 4)}, {"shape": [2]}, "along the last axis"),
        Sample({"X": (2, 3)}, {"shape": [3]}, "the whole row"),
        Sample({"X": (3, 2, 5, 6)}, {"shape": [2, 3, 4], "is_test": True}, "the middle of images"),
        Sample({"X": (0, 4, 4)}, {"shape": [2, 2]}, "an empty batch"),
    ],
    traits=[Random()],
)
def random_crop(x: TensorType, *, shape: list[int], is_test: bool, seed: int) -> TensorType:
    """Cut a box out of every sample: in training each at a random place, in evaluation the middle.

    Training: the place depends on the seed, the step and the number of the sample in the whole batch.
    Evaluation (is_test): the box begins at (size - box) // 2 of every axis.

    Args:
        X: [batch, ..., sizes].

    Returns:
        Out: [batch, ..., shape] element type of X.

    Raises:
        PeError: shape has as many axes as X, or a size below 1 or above X's.

    Source:
        fluid.layers.random_crop.
    """
    k = len(shape)
    inner = x.shape[len(x.shape) - k :]
    if not 0 < k < len(x.shape) or any(s < 1 or (w != -1 and s > w) for s, w in zip(shape, inner, strict=True)):
        raise PeError(f"random_crop cannot cut {shape} out of the last axes of {x}", hint="sizes from 1 to those of X")
    return x.with_shape(*x.shape[: len(x.shape) - k], *shape)


@random_crop.lower("cpu")
def random_crop_cpu(o: Lowering) -> None:
    """Row by row, line by line."""
    x, shape, own = o.input("X"), tuple(o.attrs["shape"]), int(o.attrs["seed"])
    k = len(shape)
    outer, inner = x.shape[: len(x.shape) - k], x.shape[len(x.shape) - k :]
    rows = product(outer)
    if rows:
        first = o.sample_offset * (rows // outer[0])
        sizes = Numbers((*inner, *shape))
        middle = int(o.attrs["is_test"])
        o.call(crop_rows, x, o.output("Out"), sizes, k, rows, first, product(shape), own or o.seed, STEP, int(own != 0), middle)


@on_cuda(crop_rows)
def crop_rows_cuda(
    x: Ptr, out: Ptr, sizes: PtrI64, rank: Int, rows: Int, first: Int, count: Int, seed: Int, step: PtrI64, fixed: Int, middle: Int
):
    """One thread per row."""
    for r in range(rows):
        at = 0 if fixed else step[0]
        whole, start = 1, 0
        for d in range(rank):
            whole *= sizes[d]
            free = sizes[d] - sizes[rank + d] + 1
            begin = (free - 1) // 2 if middle else _below(seed, at, (first + r) * rank + d, free)
            start = start * sizes[d] + begin
        for i in range(count):
            left, place, step_ = i, 0, 1
            for back in range(rank):
                d = rank - 1 - back
                place += left % sizes[rank + d] * step_
                left //= sizes[rank + d]
                step_ *= sizes[d]
            out[r * count + i] = x[r * whole + start + place]


# randperm is not dealt: where each number goes depends on those before it.
also_on_cuda(randperm, random_crop)
