"""Attention that cuDNN may compute on CUDA: of bfloat16, with heads whose widths it has kernels for.

Its gradients are asked for only where bits may change from run to run: cuDNN adds them up in the order in which blocks are done, and its
engines have no note that says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pe_cli.core.types import BFLOAT16
from pe_cli.kernels.calls import buffers_of
from pe_cli.kernels.cuda.library_calls import CUDNN, Attention, offer
from pe_cli.ops.define.lowering import Lowering

#: What the widths of heads are multiples of.
WIDTHS = 8
#: Bytes of workspace at least and at most; numbers for each head beside those for its queries.
LEAST_ROOM, MOST_ROOM, FOR_HEAD = 64 << 10, 64 << 20, 512


def offer_attention(
    o: Lowering, begin: int, direction: str, c: Any, read: tuple[Any, ...], made: tuple[Any, ...], given: Callable[[], None] | None = None
) -> None:
    """Let cuDNN take the place of the calls from one on, where the run may use it.

    Args:
        o: of the op.
        begin: number of the first call.
        direction: see `Attention`.
        c: operands, `attention._Call`.
        read: what it reads beside Q, K, V and the mask.
        made: what it writes, in the order of `Attention`.
        given: appends calls that make what is read of Q, K and V.
    """
    s = c.shapes
    mask = (c.mask,) if o.has("Mask") else ()
    held = [b for arg in (*c.operands, *mask, *read, *made) for b in buffers_of(arg)]
    wide = [*mask, o.output("Level") if direction == "values" else o.input("Level")]
    if CUDNN not in o.libraries or not all(b.size for b in held) or s.width % WIDTHS or s.wide % WIDTHS:
        return
    if any(b.dtype != ("float32" if b in wide else BFLOAT16) for b in held) or (direction == "back" and o.deterministic):
        return
    what = Attention(
        direction, s.batch, c.heads, s.queries, s.keys, s.width, s.wide, c.lines, mask[0].shape if mask else (), bool(o.attrs["causal"]),
        c.scale, o.deterministic,
    )  # fmt: skip
    args = (*c.operands, *mask, *read, *made, o.scratch(_room(what) // 4, "float32"))
    written = range(len(args) - 1 - len(made), len(args))
    results = list(dict.fromkeys(b for arg in made for b in buffers_of(arg)))
    offer(o.calls, begin, what, args, written, results, given=o.apart(given) if given else ())


def _room(what: Attention) -> int:
    """Return the bytes of workspace that it is given: gradients of queries are added up there, in float32."""
    if what.direction == "values":
        return LEAST_ROOM
    numbers = what.batch * what.heads * (what.queries * (what.width + 1) + FOR_HEAD)
    return min(4 * numbers + LEAST_ROOM, MOST_ROOM)
