"""attention: scaled dot products of queries and keys, their softmax, and the values that it weights, a head at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType
from pe_cli.kernels.cpu.gemm import gemm_scratch
from pe_cli.ops.define.lowering import Buffer, Lowering, Numbers, Offset
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import Divisible, Narrow
from pe_cli.ops.nn.attention_kernels import attend, attend_back

#: Elements of a tile of scores: half of a common L1 with 64 keys, a part of L2 with thousands.
TILE = 32768
MOST_ROWS = 64
#: Parts of a call, and multiplications of each at least: some 20 us.
MOST_PARTS = 4
PART = 1_000_000


_HEADS = {"num_heads": 2}


@op(
    "attention",
    traits=[Divisible(), Narrow(("Q", "K", "V"), ("Mask", "Level"))],
    inputs="Q K? V? Mask?",
    floats="Q",
    outputs="Out Level",
    attrs={
        "num_heads": Attr(1, "heads, which lie side by side in the last axis"),
        "causal": Attr(False, "a query sees the keys up to its own position only"),
        "scale": Attr(0.0, "factor on the products, no unit; 0 stands for 1 / sqrt(width of a head)"),
    },
    differentiable="Q K V",
    samples=[
        Sample({"Q": (2, 5, 6), "K": (2, 7, 6), "V": (2, 7, 4)}, _HEADS, "more keys than queries, narrower values"),
        Sample({"Q": (2, 5, 18)}, _HEADS, "queries, keys and values side by side"),
        Sample({"Q": (1, 70, 6)}, {"causal": True}, "causal, more than one tile"),
        Sample({"Q": (1, 3, 4), "K": (1, 5, 4), "V": (1, 5, 4)}, {"causal": True, "scale": 0.7}, "causal, more keys, scaled"),
        Sample({"Q": (2, 3, 12), "Mask": (2, 2, 3, 3)}, _HEADS, "a mask for each head"),
        Sample({"Q": (2, 3, 4), "K": (2, 5, 4), "V": (2, 5, 2), "Mask": (2, 1, 1, 5)}, _HEADS, "a mask for keys alone"),
        Sample({"Q": (1, 18, 67), "K": (1, 33, 67), "V": (1, 33, 70)}, name="wide heads"),
        Sample({"Q": (1, 1, 3)}, name="one element"),
        Sample({"Q": (0, 5, 18)}, _HEADS, "empty batch"),
    ],
)  # fmt: skip
def attention(
    q: TensorType, k: TensorType | None, v: TensorType | None, mask: TensorType | None, *, num_heads: int, causal: bool,
    scale: float,
) -> tuple[TensorType, TensorType]:  # fmt: skip
    """Average values with weights from the likeness of queries and keys, each head on its own part of the last axis.

    Out = softmax(scale Q K^T + Mask) V

    Args:
        Q: [batch, queries, width] float32 or float64; without K and V [batch, time, 3 width]: q, k and v side by side.
        K: [batch, keys, width].
        V: [batch, keys, width of values].
        Mask: [batch or 1, num_heads or 1, queries or 1, keys], added to the scores, in nats; gets no gradient.

    Returns:
        Out: [batch, queries, width of values].
        Level: [batch, num_heads, queries], logarithms of the softmax's denominators, for the gradient.

    Raises:
        PeError: shapes that do not fit, a last axis that num_heads does not divide, or a negative scale.

    Source:
        Vaswani et al. 2017, "Attention is all you need", section 3.2; fluid.nets.scaled_dot_product_attention.
    """
    if (k is None) != (v is None):
        raise PeError("attention needs both K and V, or neither", hint="without them, Q is q, k and v side by side")
    if scale < 0:
        raise PeError(f"attention needs a scale of at least 0, got {scale}", hint="0 stands for 1 / sqrt(width)")
    shapes = _Shapes.of(q, k, v, num_heads)
    for other in (t for t in (k, v, mask) if t is not None):
        if other.dtype != q.dtype:
            raise PeError(f"attention needs one element type, got Q {q} and {other}", hint="cast one of them")
    wanted = (shapes.batch, num_heads, shapes.queries, shapes.keys)
    if mask is not None and not (_fits(mask.shape, wanted, ones=True) and mask.shape[-1] in (-1, shapes.keys)):
        raise PeError(f"attention needs Mask {list(wanted)}, or 1 in place of the first three, got {mask}")
    return (
        q.with_shape(shapes.batch, shapes.queries, shapes.wide * num_heads),
        q.with_shape(shapes.batch, num_heads, shapes.queries),
    )


def _fits(got: Sequence[int], wanted: Sequence[int], *, ones: bool = False) -> bool:
    """Whether sizes agree where both are known; ones: a size of 1 fits any."""
    same = ((-1 in (a, b) or a == b or (ones and a == 1)) for a, b in zip(got, wanted, strict=False))
    return len(got) == len(wanted) and all(same)


@dataclass(frozen=True)
class _Shapes:
    """Sizes of one call: width is of a head of queries and keys, wide of a head of values."""

    batch: int
    queries: int
    keys: int
    width: int
    wide: int

    @classmethod
    def of(cls, q: TensorType, k: TensorType | None, v: TensorType | None, heads: int) -> _Shapes:
        """Return the sizes.

        Raises:
            PeError: they do not fit.
        """
        apart = k is not None and v is not None
        parts = heads if apart else 3 * heads
        for name, t in {"Q": q, "K": k, "V": v}.items():
            if t is not None and (
                heads < 1 or len(t.shape) != 3 or t.shape[2] % parts or t.shape[2] < parts or not t.shape[1]
            ):
                raise PeError(f"attention needs {name} [batch, time, a multiple of {parts}] for {heads} heads, got {t}")
        if k is None or v is None:
            return cls(q.shape[0], q.shape[1], q.shape[1], q.shape[2] // parts, q.shape[2] // parts)
        if not _fits(k.shape, (q.shape[0], k.shape[1], q.shape[2])) or not _fits(v.shape[:2], k.shape[:2]):
            raise PeError(
                f"attention needs Q [batch, queries, width], K [batch, keys, width], V [batch, keys, ...], got {q}, {k} and {v}"
            )
        return cls(q.shape[0], q.shape[1], k.shape[1], q.shape[2] // heads, v.shape[2] // heads)


class _Call:
    """One call's operands as the kernels take them."""

    def __init__(self, o: Lowering) -> None:
        q = o.input("Q")
        k, v = (o.input(s) if o.has(s) else None for s in ("K", "V"))
        self.o, self.heads = o, o.attrs["num_heads"]
        self.shapes = s = _Shapes.of(q.type, k.type if k else None, v.type if v else None, self.heads)
        self.apart = (q, k, v) if k and v else None
        self.operands = self.apart or self.split(q)
        self.scale = o.attrs["scale"] or s.width**-0.5
        self.tile = max(1, min(MOST_ROWS, s.queries, TILE // s.keys))
        self.lines = tuple(b.shape[2] for b in self.apart or (q, q, q))
        self.mask = o.input("Mask") if o.has("Mask") else q
        causal = int(o.attrs["causal"])
        self.record = Numbers(
            (self.heads, s.queries, s.keys, s.width, s.wide, *self.lines, causal, *self._mask_steps(), self.tile)
        )

    def split(self, b: Buffer) -> tuple[Buffer | Offset, ...]:
        """Return the places of q, k and v that lie side by side."""
        width = b.shape[2] // 3
        return b, Offset(b, width), Offset(b, 2 * width)

    def _mask_steps(self) -> tuple[int, int, int]:
        if not self.o.has("Mask"):
            return -1, 0, 0
        batch, heads, rows, keys = self.mask.shape
        return (heads * rows * keys * (batch > 1), rows * keys * (heads > 1), keys * (rows > 1))

    def scores(self) -> Buffer:
        """Return scratch for a tile, and two numbers for each of its rows."""
        return self.o.scratch(self.tile * (self.shapes.keys + 2), self.mask.dtype)

    def scratch(self) -> Buffer:
        """Return the scratch memory that the matrix products need."""
        s = self.shapes
        long = max(s.keys, self.tile)
        return self.o.scratch(
            max(gemm_scratch(n, k) for n in (long, s.width, s.wide) for k in (long, s.width, s.wide)), self.mask.dtype
        )

    def parts(self) -> list[tuple[int, int]]:
        """Return ranges of items, batch times heads, that may run at the same time."""
        s = self.shapes
        items = s.batch * self.heads
        count = min(MOST_PARTS, items, items * s.queries * s.keys * (s.width + s.wide) // PART + 1)
        return [(items * i // count, items * (i + 1) // count) for i in range(count)]


@attention.lower("cpu")
def attention_cpu(o: Lowering) -> None:
    """A tile of scores at a time, which never leaves the cache."""
    c = _Call(o)
    for part, (first, last) in enumerate(c.parts()):
        o.call(
            attend, *c.operands, c.mask, o.output("Out"), o.output("Level"), c.scores(), c.scratch(), c.record, first,
            last, c.scale, part=part,
        )  # fmt: skip


@attention.grad(uses="Q K V Mask Out Level").lower("cpu")
def attention_grad_cpu(o: Lowering) -> None:
    """Like the forward pass, with a second tile for the gradient of the scores."""
    c = _Call(o)
    if c.apart:
        slots = ("Q@GRAD", "K@GRAD", "V@GRAD")
        gradients: tuple[Buffer | Offset, ...] = tuple(
            o.output_or_scratch(n, b.size, b.dtype) for n, b in zip(slots, c.apart, strict=True)
        )
    else:
        gradients = c.split(o.output("Q@GRAD"))
    for part, (first, last) in enumerate(c.parts()):
        o.call(
            attend_back, *c.operands, c.mask, o.input("Out"), o.input("Level"), o.input("Out@GRAD"), *gradients,
            c.scores(), c.scores(), c.scratch(), c.record, first, last, c.scale, part=part,
        )  # fmt: skip


@attention.count
def attention_flops(
    q: TensorType, k: TensorType | None, v: TensorType | None, mask: TensorType | None, *, num_heads: int, **attrs: object
) -> int:  # fmt: skip
    """Return those of both products."""
    del mask, attrs
    s = _Shapes.of(q, k, v, num_heads)
    return 2 * s.batch * num_heads * s.queries * s.keys * (s.width + s.wide)


# --- ONNX -------------------------------------------------------------------------------------------------------------


@in_onnx("attention")
def attention_onnx(o: Writer) -> None:
    """Heads apart, products, softmax, products, heads side by side.

    Raises:
        PeError: causal attention over a number of steps that is not known.
    """
    heads, rank = o.attrs["num_heads"], o.type("Q").shape
    if o.has("K"):
        names = [o.x(slot) for slot in ("Q", "K", "V")]
        widths = [o.type(slot).shape[2] for slot in ("Q", "K", "V")]
        keys = o.type("K").shape[1]
    else:
        names = [o.fresh() for _ in range(3)]
        o.nodes("Split", [o.x("Q")], names, axis=2, num_outputs=3)
        widths, keys = [rank[2] // 3] * 3, rank[1]
    split = [
        o.node("Transpose", [o.node("Reshape", [n, o.const([0, 0, heads, w // heads])])], perm=[0, 2, 1, 3])
        for n, w in zip(names, widths, strict=True)
    ]
    scale = o.attrs["scale"] or (widths[0] // heads) ** -0.5
    turned = o.node("Transpose", [split[1]], perm=[0, 1, 3, 2])
    scores = o.node("Mul", [o.node("MatMul", [split[0], turned]), o.const(scale, "Q")])
    if o.has("Mask"):
        scores = o.node("Add", [scores, o.x("Mask")])
    if o.attrs["causal"]:
        if rank[1] < 0 or keys < 0:
            raise PeError("causal attention over an unknown number of steps cannot be exported")
        ahead = np.triu(np.full((rank[1], keys), -np.inf), 1)
        scores = o.node("Add", [scores, o.const(ahead, "Q")])
    mixed = o.node("MatMul", [o.node("Softmax", [scores], axis=-1), split[2]])
    beside = o.node("Transpose", [mixed], perm=[0, 2, 1, 3])
    o.node("Reshape", [beside, o.const([0, 0, widths[2]])], to="Out")
