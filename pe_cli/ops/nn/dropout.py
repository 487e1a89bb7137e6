"""dropout: in training every value is dropped with a given chance; the same ones on one device and on many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType, product
from pe_cli.kernels.cpu.non_temporal import DISTANCE, is_large, prefetch_run
from pe_cli.kernels.cuda.language import deal, on_cuda
from pe_cli.kernels.language import Int, Ptr, PtrI32, PtrI64, PtrU8, Real, T, helper, kernel
from pe_cli.kernels.math.random import WORD_BLOCKS, fill_words, philox_7
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import STEP, Lowering
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import InPlace, Narrow, Pointwise, Random, Replayed, RowWise, Scalar

DOWNGRADE, UPSCALE = "downgrade_in_infer", "upscale_in_train"


@kernel
def drop(
    x: Ptr, out: Ptr, mask: PtrU8, words: PtrI32, n: Int, first: Int, seed: Int, step: PtrI64, fixed: Int, limit: Int,
    scale: Real,
):
    """out = x * scale where the element's random word is at least limit, else 0; out may be x.

    first is the number of the first element in the whole batch; words holds 4 * WORD_BLOCKS numbers.
    """
    at = 0 if fixed else step[0]
    ahead = is_large(n)
    begin = 0
    while begin < n:
        # Four words per block of the generator: the first block may begin in the middle of one, as devices share a batch anywhere.
        block = (first + begin) >> 2
        skip = (first + begin) & 3
        size = min(n - begin, 4 * WORD_BLOCKS - skip)
        # Beyond the caches memory is asked for ahead; nearer, that would only cost instructions.
        if ahead:
            prefetch_run(x, begin + DISTANCE, size)
            prefetch_run(out, begin + DISTANCE, size)
        fill_words(words, seed, at, block, (skip + size + 3) >> 2)
        for i in range(size):
            kept = words[skip + i] >= limit
            mask[begin + i] = kept
            out[begin + i] = x[begin + i] * scale if kept else T(0)
        begin += size


@kernel
def keep_all(x: Ptr, out: Ptr, mask: PtrU8, n: Int, scale: Real):
    """out = x * scale, mask = 1; out may be x."""
    for i in range(n):
        out[i] = x[i] * scale
        mask[i] = 1


@helper
def drop_one(g, kept, scale):
    return g * scale if kept else T(0)


@kernel(each=drop_one)
def drop_back(g: Ptr, mask: PtrU8, dx: Ptr, n: Int, scale: Real):
    """dx = g * scale where the mask is set, else 0; dx may be g."""
    for i in range(n):
        dx[i] = drop_one(g[i], mask[i], scale)


@op(
    "dropout",
    inputs="X",
    outputs="Out Mask",
    attrs={
        "dropout_prob": Attr(0.5, "chance of a value to be dropped, no unit"),
        "is_test": Attr(False, "drop nothing"),
        "seed": Attr(0, "of this op alone, dropping the same values at every step; 0 takes the program's"),
        "dropout_implementation": Attr(DOWNGRADE, "which of the two phases is rescaled", (DOWNGRADE, UPSCALE)),
    },
    traits=[InPlace({"Out": "X"}), Random(), Replayed("dropout_again", ("Mask",)), Narrow(), RowWise()],
    samples=[
        Sample({"X": (4, 7)}, name="a half"),
        Sample({"X": (3, 5)}, {"dropout_prob": 0.3, "dropout_implementation": UPSCALE}, "three tenths, rescaled"),
        Sample({"X": (3, 5)}, {"is_test": True}, "inference"),
        Sample({"X": (3, 5)}, {"is_test": True, "dropout_implementation": UPSCALE}, "inference, rescaled in training"),
        Sample({"X": (2, 3)}, {"dropout_prob": 0.0}, "nothing is dropped"),
        Sample({"X": (2, 3)}, {"dropout_prob": 1.0, "dropout_implementation": UPSCALE}, "everything is dropped"),
        Sample({"X": (1,)}, name="one element"),
        Sample({"X": (0, 5)}, name="empty batch"),
    ],
)
def dropout(
    x: TensorType, *, dropout_prob: float, is_test: bool, seed: int, dropout_implementation: str
) -> tuple[TensorType, TensorType]:
    """Drop values at random in training.

    Training: Out = X where Mask, else 0; with upscale_in_train divided by (1 - dropout_prob).
    Inference (is_test): Out = X (1 - dropout_prob); with upscale_in_train Out = X.
    Value i of the whole batch is kept where word i of Philox4x32-7, keyed by the seed and counted by (i, step), is at
    least dropout_prob * 2**32; so neither threads nor devices change a mask.

    Args:
        X: [batch, ...] float32 or float64.
        dropout_prob: from 0 to 1.
        seed: see the attribute; not 0 is for tests, as fluid warns.

    Returns:
        Out: type of X.
        Mask: shape of X, uint8; 1 where a value was kept.

    Raises:
        PeError: dropout_prob is not within [0, 1].

    Source:
        fluid.layers.dropout; Srivastava et al. 2014, "Dropout".
    """
    if not 0 <= dropout_prob <= 1:
        raise PeError(f"dropout needs dropout_prob within [0, 1], got {dropout_prob}")
    return x, TensorType(x.shape, "uint8")


def kept_scale(attrs: Mapping[str, Any]) -> float:
    """Return the factor of the values that stay."""
    p, upscale = attrs["dropout_prob"], attrs["dropout_implementation"] == UPSCALE
    if attrs["is_test"]:
        # Without upscaling in training, values are scaled down at test time, as fluid's default does.
        return 1.0 if upscale else 1.0 - p
    return 1.0 / (1.0 - p) if upscale and p < 1 else 1.0


@dropout.lower("cpu")
def dropout_cpu(o: Lowering) -> None:
    """Random words piece by piece, compared with the chance as a 32-bit number."""
    x, out = o.input("X"), o.output("Out")
    n = product(x.shape)
    mask = o.output_or_scratch("Mask", n, "uint8")
    if o.attrs["is_test"]:
        o.call(keep_all, x, out, mask, n, kept_scale(o.attrs))
        return
    own = int(o.attrs["seed"])
    first = o.sample_offset * product(x.shape[1:])
    # Words are signed: 0 to 2^32 becomes -2^31 to 2^31.
    limit = round(o.attrs["dropout_prob"] * 2**32) - 2**31
    words = o.scratch(4 * WORD_BLOCKS, "int32")
    o.call(drop, x, out, mask, words, n, first, own or o.seed, STEP, int(own != 0), limit, kept_scale(o.attrs))


gradient = dropout.grad(uses="Mask", traits=[InPlace({"X@GRAD": "Out@GRAD"})])
gradient.give(Pointwise(lambda attrs, _: [Scalar("X@GRAD", drop_back, ("Out@GRAD", "Mask"), (kept_scale(attrs),))]))


@gradient.lower("cpu")
def dropout_grad_cpu(o: Lowering) -> None:
    """X' = Out' where the value was kept."""
    g, dx = o.input("Out@GRAD"), o.output("X@GRAD")
    o.call(drop_back, g, o.input("Mask"), dx, product(dx.shape), kept_scale(o.attrs))


# --- CUDA -------------------------------------------------------------------------------------------------------------


@on_cuda(drop)
def drop_cuda(
    x: Ptr, out: Ptr, mask: PtrU8, words: PtrI32, n: Int, first: Int, seed: Int, step: PtrI64, fixed: Int, limit: Int,
    scale: Real,
):
    """The same mask, one thread per element, each with its own block of four words."""
    at = 0 if fixed else step[0]
    for i in range(n):
        # Words of the generator depend on the element alone, so the mask is that of the CPU.
        a, b, c, d = philox_7(seed, at, (first + i) >> 2)
        which = (first + i) & 3
        word = (a if which == 0 else b) if which < 2 else (c if which == 2 else d)
        kept = word - 0x80000000 >= limit
        mask[i] = kept
        out[i] = x[i] * scale if kept else T(0)


deal(keep_all, drop_back)
also_on_cuda(dropout)


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("dropout")
def dropout_onnx(o: Writer) -> None:
    """What inference does: nothing, or the scale of the chance to stay."""
    if o.attrs["dropout_implementation"] == "upscale_in_train":
        o.node("Identity", [o.x()], to="Out")
    else:
        o.node("Mul", [o.x(), o.const(1.0 - o.attrs["dropout_prob"], "X")], to="Out")
