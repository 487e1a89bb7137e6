"""The transforms of Winograd's convolutions, of some channels at a time in vector registers, written as LLVM IR.

Each takes a small square of vectors and multiplies it from both sides with a matrix of 0, 1, -1 and 1/2 (`winograd` says which and why).
Addresses are in bytes, strides in elements; columns are channels, which lie side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pe_cli.kernels.lang import intrinsic, routine
from pe_cli.kernels.vectors import VectorCode

Matrix = tuple[tuple[float, ...], ...]

#: Of 4 pixels, in a row or a column.
PIXELS: Matrix = ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1))
#: Of 3 taps, and of 2 outputs whose gradient is given.
TAPS: Matrix = ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1))
PAIR: Matrix = ((1, 0), (0.5, 0.5), (0.5, -0.5), (0, 1))
#: To 2 outputs, and to 3 taps.
TO_PAIR: Matrix = ((1, 1, 1, 0), (0, 1, -1, -1))
TO_TAPS: Matrix = ((1, 1, 1, 0), (0, 1, -1, 0), (0, 1, 1, -1))
#: Parameters of the transforms.
FROM_PIXELS = ("x", "xr", "xp", "v", "plane", "columns")
FROM_TAPS = ("w", "wt", "u", "plane", "columns")
FROM_PAIR = ("y00", "y01", "y10", "y11", "v", "plane", "columns")
INTO_PAIR = ("m", "plane", "y00", "y01", "y10", "y11", "columns", "acc")
INTO_TAPS = ("m", "plane", "w", "wt", "columns")


class _Transform(VectorCode):
    """A routine that transforms squares of vectors, for any number of columns: vector by vector, the last one may be partial."""

    def __init__(self, env: Any, names: tuple[str, ...]) -> None:
        from llvmlite import ir

        fn = ir.Function(env.module, ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * len(names)), env.entry)
        fn.attributes.add("nounwind")
        super().__init__(env, fn, 1)
        self.a = dict(zip(names, fn.args, strict=True))

    def square(self, name: str, side: int, along: str, down: str = "") -> list[Any]:
        """Return the places of a square, row by row: at strides along and down, or one behind the other."""
        b = self.b
        step = self.bytes(along)
        next_row = self.bytes(down) if down else b.mul(step, self.constant(side))
        first = b.inttoptr(self.a[name], self.byte_pointer)
        return [
            self.at(first, b.add(b.mul(next_row, self.constant(r)), b.mul(step, self.constant(c))))
            for r in range(side)
            for c in range(side)
        ]

    def bytes(self, stride: str) -> Any:
        return self.b.mul(self.a[stride], self.constant(self.size))

    def pair(self) -> list[Any]:
        """Return the places of 2 x 2 outputs."""
        return [self.b.inttoptr(self.a[name], self.byte_pointer) for name in ("y00", "y01", "y10", "y11")]

    def product(self, matrix: Matrix, values: list[Any]) -> list[Any]:
        """Return matrix X matrix^T of a square X of vectors, row by row."""
        side = len(matrix[0])
        rows = [[self.combined(factors, values[c::side]) for c in range(side)] for factors in matrix]
        return [self.combined(factors, row) for row in rows for factors in matrix]

    def combined(self, factors: tuple[float, ...], values: list[Any]) -> Any:
        """Return the sum of factors times values, from the left; a half is taken of the whole sum."""
        b, total = self.b, None
        scale = next(abs(f) for f in factors if f)
        for factor, value in zip(factors, values, strict=True):
            if not factor:
                continue
            if total is None:
                total = value if factor > 0 else b.fsub(self.zero, value)
            else:
                total = (b.fadd if factor > 0 else b.fsub)(total, value)
        if scale != 1:
            total = b.fmul(total, self.ir.Constant(self.vector, [scale] * self.lanes))
        return total

    def columns(self, body: Callable[[Any], None]) -> None:
        """Emit body(bytes behind the first column) for every vector of columns, then return."""
        b, wide = self.b, self.constant(self.lanes)

        def part(values: list[Any]) -> list[Any]:
            (at,) = values
            body(at)
            return [b.add(at, self.constant(self.lanes * self.size))]

        (end,) = self.some(b.udiv(self.a["columns"], wide), [self.constant(0)], part)
        left = b.urem(self.a["columns"], wide)

        def rest() -> None:
            self.mask = self.tail_mask(left)
            body(end)

        self.when(b.icmp_signed("!=", left, self.constant(0)), rest)
        self.b.ret_void()

    def run(self, matrix: Matrix, sources: list[Any], targets: list[Any], acc: Any = None) -> None:
        """Emit the transform from places to places; acc: not 0 where it is added."""

        def body(at: Any) -> None:
            values = self.product(matrix, [self.load(self.at(source, at), 0) for source in sources])
            if acc is not None:
                before = self.b.block
                adding, after = self.fn.append_basic_block("adding"), self.fn.append_basic_block("after")
                self.b.cbranch(self.b.icmp_signed("!=", acc, self.constant(0)), adding, after)
                self.b.position_at_end(adding)
                sums = [self.b.fadd(self.load(self.at(t, at), 0), v) for t, v in zip(targets, values, strict=True)]
                self.b.branch(after)
                self.b.position_at_end(after)
                chosen = [self.b.phi(self.vector) for _ in values]
                for phi, value, total in zip(chosen, values, sums, strict=True):
                    phi.add_incoming(value, before)
                    phi.add_incoming(total, adding)
                values = chosen
            for target, value in zip(targets, values, strict=True):
                self.store(value, self.at(target, at), 0)

        self.columns(body)


@routine
def from_pixels(env: Any) -> None:
    """Transform 4 x 4 pixels at x, rows xr and pixels xp apart, into 16 planes at v."""
    code = _Transform(env, FROM_PIXELS)
    code.run(PIXELS, code.square("x", 4, "xp", "xr"), code.square("v", 4, "plane"))


@routine
def from_taps(env: Any) -> None:
    """Transform 9 planes of taps at w into 16 planes at u."""
    code = _Transform(env, FROM_TAPS)
    code.run(TAPS, code.square("w", 3, "wt"), code.square("u", 4, "plane"))


@routine
def from_pair(env: Any) -> None:
    """Transform 2 x 2 gradients of outputs into 16 planes at v."""
    code = _Transform(env, FROM_PAIR)
    code.run(PAIR, code.pair(), code.square("v", 4, "plane"))


@routine
def into_pair(env: Any) -> None:
    """Transform 16 planes at m into 2 x 2 outputs, or add what comes out to them."""
    code = _Transform(env, INTO_PAIR)
    code.run(TO_PAIR, code.square("m", 4, "plane"), code.pair(), code.a["acc"])


@routine
def into_taps(env: Any) -> None:
    """Transform 16 planes at m into 9 planes of taps at w."""
    code = _Transform(env, INTO_TAPS)
    code.run(TO_TAPS, code.square("m", 4, "plane"), code.square("w", 3, "wt"))


def _calls(called: Any, names: tuple[str, ...]) -> Any:
    def emit(env: Any, args: list[Any]) -> None:
        from llvmlite import ir

        from pe_cli.kernels.cache import Instance, symbol

        fn = env.function(symbol(Instance(called, env.dtype)), ir.VoidType(), [ir.IntType(64)] * len(args))
        fn.attributes.add("nounwind")
        env.builder.call(fn, args)

    return intrinsic("void", *["int64"] * len(names), name=f"call_{called.name.rsplit(':')[-1]}")(emit)


pixels_in, taps_in, pair_in, pair_out, taps_out = (
    _calls(called, names)
    for called, names in (
        (from_pixels, FROM_PIXELS), (from_taps, FROM_TAPS), (from_pair, FROM_PAIR), (into_pair, INTO_PAIR), (into_taps, INTO_TAPS)
    )
)  # fmt: skip
