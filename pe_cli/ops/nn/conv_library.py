"""Convolutions that cuDNN may compute on CUDA: of one type throughout, whose filters are brought into its order and back.

Our filters are [channels out, channels, taps]; beside channels-last images cuDNN wants [channels out, taps, channels]. What comes behind a
sum is a launch of ours: who is faster, all launches counted, is found out on the card. cuDNN has no engine that makes float32 of
bfloat16: the gradient of filters, which stays float32, is not asked for then, nor what is added to before it is rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pe_cli.core.types import BFLOAT16, DTYPES, FLOATS
from pe_cli.kernels.cuda.language import cuda_kernel
from pe_cli.kernels.cuda.library_calls import CUDNN, Convolution, offer
from pe_cli.kernels.cuda.math import quotient
from pe_cli.kernels.language import Int, Ptr
from pe_cli.ops.define.lowering import Buffer, Lowering

#: Most bytes of workspace, and some that a small one is given.
MOST_ROOM, LEAST_ROOM = 64 << 20, 64 << 10


@cuda_kernel
def turn_filters(w: Ptr, made: Ptr, size: Int, rows: Int, columns: Int):
    """made[o, c, r] = w[o, r, c], of so many elements in all."""
    for e in range(size):
        line = quotient(e, rows)
        o = quotient(line, columns)
        r = e - line * rows
        c = line - o * columns
        made[e] = w[(o * rows + r) * columns + c]


def convolution_of(direction: str, s: Any, dtype: str, precision: str, deterministic: bool) -> Convolution:
    """Return what cuDNN is asked for.

    Args:
        direction: see `Convolution`.
        s: sizes, `conv_cuda.Sizes`.
        dtype, precision, deterministic: see `Convolution`.
    """
    inner, outer = (s.inner.rows, s.inner.columns), (s.outer.rows, s.outer.columns)
    after = [
        max(0, (made - 1) * stride + dilation * (taps - 1) + 1 - given - before)
        for given, made, taps, stride, before, dilation in zip(inner, outer, s.taps, s.strides, s.paddings, s.dilations, strict=True)
    ]
    return Convolution(
        direction, s.n, (*inner, s.inner.channels), (*outer, s.outer.channels), tuple(s.taps), tuple(s.strides), tuple(s.paddings),
        (after[0], after[1]), tuple(s.dilations), s.groups, dtype, "float32" if dtype == "float64" else precision, deterministic,
    )  # fmt: skip


def offer_convolution(
    o: Lowering, begin: int, direction: str, x: Buffer, w: Buffer, y: Buffer, s: Any, finish: Callable[[Buffer], None] | None = None,
    apart: bool = False,
) -> None:  # fmt: skip
    """Let cuDNN take the place of the calls from one on, where the run may use it.

    Args:
        o: of the op.
        begin: number of the first call.
        direction: see `Convolution`.
        x, w, y: images, filters and outputs, of which the direction says which is made.
        s: sizes, `conv_cuda.Sizes`.
        finish: appends what comes behind the sum, given where that is; None for nothing.
        apart: whether the sum must lie elsewhere than the result: that is read behind it.
    """
    one = y.dtype in (*FLOATS, BFLOAT16) and {x.dtype, w.dtype} == {y.dtype} and (finish is None or y.dtype != BFLOAT16)
    if CUDNN not in o.libraries or not one or not min(x.size, w.size, y.size):
        return
    made = {"values": y, "images_back": x, "filters_back": w}[direction]
    taps, size = s.taps[0] * s.taps[1], DTYPES[y.dtype]
    place = {"values": 2, "images_back": 0, "filters_back": 1}[direction]
    room = o.scratch(min(MOST_ROOM, (x.size + y.size + 2 * w.size) * size + LEAST_ROOM) // size, y.dtype)
    last = o.scratch(w.size, w.dtype) if taps > 1 and s.inner.per > 1 else w
    args = [x, last, y, room]
    if apart:
        args[place] = o.scratch(made.size, made.dtype)
    before, after = [], []
    if last is not w and direction != "filters_back":
        before = o.apart(lambda: o.call(turn_filters, w, last, w.size, s.inner.per, taps))
    if last is not w and direction == "filters_back":
        after = o.apart(lambda: o.call(turn_filters, last, w, w.size, taps, s.inner.per))
    if finish is not None:
        after = o.apart(lambda: finish(args[place]))
    what = convolution_of(direction, s, y.dtype, o.precision, o.deterministic)
    offer(o.calls, begin, what, args, (place, 3), [made], before=before, after=after)

