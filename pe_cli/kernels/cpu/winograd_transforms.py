"""The transforms of Winograd's convolutions, of some channels at a time in vector registers, written as LLVM IR.

Each takes a small square of vectors and multiplies it from both sides with a matrix of 0, 1, -1 and 1/2 (`winograd` says which and why).
Addresses are in bytes, strides in elements; columns are channels, which lie side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.kernels.cpu.vector_code import VectorCode, call_routine
from pe_cli.kernels.language import intrinsic, routine

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
FROM_PIXELS = ("x", "xr", "xp", "v", "plane", "columns", "tiles")
FROM_TAPS = ("w", "wt", "u", "plane", "columns")
FROM_PAIR = ("y00", "y01", "y10", "y11", "yp", "v", "plane", "columns", "tiles")
INTO_PAIR = ("m", "plane", "wide", "y00", "y01", "y10", "y11", "yp", "columns", "acc", "tiles")
INTO_TAPS = ("m", "plane", "w", "wt", "columns")


@dataclass(frozen=True)
class _Places:
    """Where vectors of a square are: pointers, and at which offsets from each of them, in bytes.

    Few pointers with the same offsets are addressing modes, one for every vector would spill.
    """

    pointers: list[Any]
    offsets: list[Any]


class _Transform(VectorCode):
    """A routine that transforms squares of vectors, for any number of columns: vector by vector, the last one may be partial."""

    def __init__(self, env: Any, names: tuple[str, ...]) -> None:
        from llvmlite import ir

        fn = ir.Function(env.module, ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * len(names)), env.entry)
        fn.attributes.add("nounwind")
        super().__init__(env, fn, 1)
        self.a = dict(zip(names, fn.args, strict=True))

    def bytes(self, stride: str, times: int = 1) -> Any:
        """Return so many times a stride in bytes."""
        return self.b.mul(self.a[stride], self.constant(times * self.size))

    def square(self, name: str, side: int, along: str, down: str = "") -> _Places:
        """Return the places of a square, row by row: at strides along and down, or one behind the other."""
        first = self.b.inttoptr(self.a[name], self.byte_pointer)
        rows = [self.bytes(down, r) if down else self.bytes(along, r * side) for r in range(side)]
        return _Places([self.at(first, row) for row in rows], [self.bytes(along, c) for c in range(side)])

    def pair(self) -> _Places:
        """Return the places of 2 x 2 outputs."""
        names = ("y00", "y01", "y10", "y11")
        return _Places([self.b.inttoptr(self.a[name], self.byte_pointer) for name in names], [self.constant(0)])

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
            # Zeros and ones are left out here: a multiplication by 0 would still be one, and make a NaN of an infinity.
            if not factor:
                continue
            if total is None:
                total = value if factor > 0 else b.fsub(self.zero, value)
            else:
                total = (b.fadd if factor > 0 else b.fsub)(total, value)
        if scale != 1:
            total = b.fmul(total, self.ir.Constant(self.vector, [scale] * self.lanes))
        return total

    def run(
        self, matrix: Matrix, source: _Places, target: _Places, acc: Any = None, steps: tuple[Any, Any] | None = None
    ) -> None:
        """Emit the transform, then return.

        Args:
            matrix: see `product`.
            source, target: places of the first tile's first columns.
            acc: not 0 where it is added.
            steps: bytes from tile to tile of the source and of the target, where there may be several.
        """
        count = len(source.pointers)

        def vector(values: list[Any]) -> None:
            found = [self.load(self.at(at, o), 0) for at in values[:count] for o in source.offsets]
            places = [self.at(at, o) for at in values[count:] for o in target.offsets]
            made = self.product(matrix, found)
            if acc is not None:
                made = self.added(made, places, acc)
            for value, place in zip(made, places, strict=True):
                self.store(value, place, 0)

        def tile(values: list[Any]) -> list[Any]:
            self.columns(values, vector)
            assert steps is not None
            moves = [steps[0]] * count + [steps[1]] * len(target.pointers)
            return [self.at(value, move) for value, move in zip(values, moves, strict=True)]

        first = [*source.pointers, *target.pointers]
        if steps is None:
            self.columns(first, vector)
        else:
            self.some(self.a["tiles"], first, tile)
        self.b.ret_void()

    def columns(self, places: list[Any], vector: Callable[[list[Any]], None]) -> None:
        """Emit vector(places) for every vector of columns, moved along."""
        b, wide = self.b, self.constant(self.lanes)
        step = self.constant(self.lanes * self.size)
        self.mask = None

        def part(values: list[Any]) -> list[Any]:
            vector(values)
            # LLVM would find out that all 16 places are some bytes apart, give each a register of its own, and spill.
            return [self.opaque(self.at(value, step)) for value in values]

        end = self.some(b.udiv(self.a["columns"], wide), places, part)
        left = b.urem(self.a["columns"], wide)

        def rest() -> None:
            self.mask = self.tail_mask(left)
            vector(end)

        self.when(b.icmp_signed("!=", left, self.constant(0)), rest)

    def added(self, values: list[Any], places: list[Any], acc: Any) -> list[Any]:
        """Return values, with what is at their places added where acc is not 0."""
        b = self.b
        before = b.block
        adding, after = self.fn.append_basic_block("adding"), self.fn.append_basic_block("after")
        b.cbranch(b.icmp_signed("!=", acc, self.constant(0)), adding, after)
        b.position_at_end(adding)
        sums = [b.fadd(self.load(place, 0), value) for place, value in zip(places, values, strict=True)]
        b.branch(after)
        b.position_at_end(after)
        found = [b.phi(self.vector) for _ in values]
        for phi, value, total in zip(found, values, sums, strict=True):
            phi.add_incoming(value, before)
            phi.add_incoming(total, adding)
        return found


@routine
def from_pixels(env: Any) -> None:
    """Transform 4 x 4 pixels at x, rows xr and pixels xp apart, into 16 planes at v; and the next tiles, two pixels further each."""
    code = _Transform(env, FROM_PIXELS)
    steps = code.bytes("xp", 2), code.bytes("columns")
    code.run(PIXELS, code.square("x", 4, "xp", "xr"), code.square("v", 4, "plane"), steps=steps)


@routine
def from_taps(env: Any) -> None:
    """Transform 9 planes of taps at w into 16 planes at u."""
    code = _Transform(env, FROM_TAPS)
    code.run(TAPS, code.square("w", 3, "wt"), code.square("u", 4, "plane"))


@routine
def from_pair(env: Any) -> None:
    """Transform 2 x 2 gradients of outputs into 16 planes at v; and the next tiles, two outputs, yp apart, further each."""
    code = _Transform(env, FROM_PAIR)
    steps = code.bytes("yp", 2), code.bytes("columns")
    code.run(PAIR, code.pair(), code.square("v", 4, "plane"), steps=steps)


@routine
def into_pair(env: Any) -> None:
    """Transform 16 planes at m, tiles wide apart, into 2 x 2 outputs, or add what comes out to them; and the next tiles likewise."""
    code = _Transform(env, INTO_PAIR)
    steps = code.bytes("wide"), code.bytes("yp", 2)
    code.run(TO_PAIR, code.square("m", 4, "plane"), code.pair(), code.a["acc"], steps)


@routine
def into_taps(env: Any) -> None:
    """Transform 16 planes at m into 9 planes of taps at w."""
    code = _Transform(env, INTO_TAPS)
    code.run(TO_TAPS, code.square("m", 4, "plane"), code.square("w", 3, "wt"))


def _calls(called: Any, names: tuple[str, ...]) -> Any:
    def emit(env: Any, args: list[Any]) -> None:
        call_routine(called, env, args)

    return intrinsic("void", *["int64"] * len(names), name=f"call_{called.name.rsplit(':')[-1]}")(emit)


pixels_in, taps_in, pair_in, pair_out, taps_out = (
    _calls(called, names)
    for called, names in (
        (from_pixels, FROM_PIXELS), (from_taps, FROM_TAPS), (from_pair, FROM_PAIR), (into_pair, INTO_PAIR), (into_taps, INTO_TAPS)
    )
)  # fmt: skip
