"""Emits code that multiplies tiles of bfloat16, 16 rows by 16 columns of up to 32 terms, and what brings numbers into them.

Processors have one of two units for them. With Intel's AMX a tile is a register of 16 rows of 64 bytes; one instruction multiplies two of
them, the terms of each column in pairs, and adds to 16 x 16 sums of float32: sixteen times as many operations a cycle as with vectors. With
AVX512-BF16 one instruction adds the products of a pair of a row and 16 pairs of columns to 16 sums: twice as many as multiply-adds of
float32. Products are rounded to nearest; denormal factors count as zeros, and so do denormal sums. The two round sums in other orders.
"""

from __future__ import annotations

from typing import Any

from pe_cli.kernels.cpu.vector_code import VectorCode, call_routine
from pe_cli.kernels.language import PerType, intrinsic, routine

#: Rows, or columns, of a block of results, and of a tile.
SIDE, TILE = 32, 16
#: Bytes of an element of bfloat16.
HALF = 2
#: Pairs of terms that a loop of products of pairs takes at a time, and rows that share a pointer.
FEW = 4
#: Most terms in a tile, and bytes of a line of pairs, one of each column.
MOST_TERMS, LINE = 32, 64


def terms(_dtype: str = "") -> int:
    """Return the terms in a tile: products of pairs take fewer at a time than registers of tiles hold."""
    from pe_cli.kernels.compiler.target import PAIRS, bfloat16_unit

    return 2 * FEW if bfloat16_unit() == PAIRS else MOST_TERMS


#: Terms in a tile, and bytes of 16 columns of it: compile-time constants.
TERMS: Any = PerType("TERMS", terms)
BYTES: Any = PerType("BYTES", lambda dtype: terms(dtype) * TILE * HALF)
#: A row of a tile configuration: palette 1; eight tiles of 16 rows of 64 bytes.
CONFIGURATION = bytes([1, *[0] * 15, *[64, 0] * 8, *[0] * 16, *[16] * 8, *[0] * 8])


def _bfloat16() -> Any:
    """Return LLVM's type of bfloat16, which llvmlite's types lack."""
    from llvmlite import ir

    class _BFloat16(ir.HalfType):  # type: ignore[misc]
        """The type, by its name."""

        def __str__(self) -> str:
            return "bfloat"

    return _BFloat16()


class _Halves(VectorCode):
    """Writes code that moves elements of 16 bits, as many at once as a line has."""

    def __init__(self, env: Any, names: tuple[str, ...]) -> None:
        from llvmlite import ir

        fn = ir.Function(env.module, ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * len(names)), env.entry)
        fn.attributes.add("nounwind")
        super().__init__(env, fn, 1)
        self.half = ir.IntType(16)
        self.a = dict(zip(names, fn.args, strict=True))

    def first(self, count: Any, lanes: int) -> Any:
        """Return which of so many lanes come before number `count`."""
        b, ir = self.b, self.ir
        numbers = ir.Constant(ir.VectorType(self.i64, lanes), list(range(lanes)))
        every = b.insert_element(ir.Constant(ir.VectorType(self.i64, lanes), ir.Undefined), count, ir.Constant(self.i32, 0))
        every = b.shuffle_vector(every, every, ir.Constant(ir.VectorType(self.i32, lanes), [0] * lanes))
        return b.icmp_signed("<", numbers, every)

    def taken(self, at: Any, left: Any, lanes: int) -> Any:
        """Return the elements at an address, zeros from number `left` on; those are not read."""
        b, ir = self.b, self.ir
        kind, flags = ir.VectorType(self.half, lanes), ir.VectorType(ir.IntType(1), lanes)
        load = self.env.function(f"llvm.masked.load.v{lanes}i16.p0v{lanes}i16", kind, [kind.as_pointer(), self.i32, flags, kind])
        at = b.inttoptr(at, kind.as_pointer())
        return b.call(load, [at, ir.Constant(self.i32, 2), self.first(left, lanes), ir.Constant(kind, [0] * lanes)])

    def put(self, value: Any, at: Any, count: Any = None) -> None:
        """Write a vector to an address, or the first `count` elements of it."""
        b, ir, kind = self.b, self.ir, value.type
        at = b.inttoptr(at, kind.as_pointer())
        if count is None:
            b.store(value, at, align=2)
            return
        flags = ir.VectorType(ir.IntType(1), kind.count)
        name = f"llvm.masked.store.v{kind.count}i16.p0v{kind.count}i16"
        store = self.env.function(name, ir.VoidType(), [kind, at.type, self.i32, flags])
        b.call(store, [value, at, ir.Constant(self.i32, 2), self.first(count, kind.count)])


@routine
def halves_copied(env: Any) -> None:
    """Emit `entry(source, target, count)`: count elements of 16 bits, then zeros until they fill tiles; count is at least 1."""
    code = _Halves(env, ("source", "target", "count"))
    b, a, line, whole = code.b, code.a, code.constant(2 * MOST_TERMS), code.constant(MOST_TERMS)

    def body(values: list[Any]) -> list[Any]:
        source, target = values
        code.put(b.load(b.inttoptr(source, code.ir.VectorType(code.half, MOST_TERMS).as_pointer()), align=2), target)
        return [b.add(source, line), b.add(target, line)]

    source, target = code.some(b.udiv(a["count"], whole), [a["source"], a["target"]], body)
    left, tile = b.urem(a["count"], whole), code.constant(terms())

    def rest() -> None:
        filled = b.mul(b.udiv(b.add(left, b.sub(tile, code.constant(1))), tile), tile)
        code.put(code.taken(source, left, MOST_TERMS), target, filled)

    code.when(b.icmp_signed(">", left, code.constant(0)), rest)
    b.ret_void()


@routine
def halves_paired(env: Any) -> None:
    """Emit `entry(first, second, target, count, step)`: the pairs of two rows of count elements of 16 bits.

    A line is 16 pairs, the last one filled up with zeros; step bytes lie between lines of the target. A second row at 0 is one of zeros.
    """
    code = _Halves(env, ("first", "second", "target", "count", "step"))
    b, a = code.b, code.a
    wide = code.ir.VectorType(code.i32, TILE)
    shift = code.ir.Constant(wide, [16] * TILE)
    none = b.icmp_signed("==", a["second"], code.constant(0))

    def body(values: list[Any]) -> list[Any]:
        first, second, target, left = values
        low = b.zext(code.taken(first, left, TILE), wide)
        high = b.zext(code.taken(second, b.select(none, code.constant(0), left), TILE), wide)
        code.put(b.or_(low, b.shl(high, shift)), target)
        line = code.constant(2 * TILE)
        return [b.add(first, line), b.add(second, line), b.add(target, a["step"]), b.sub(left, code.constant(TILE))]

    lines = b.udiv(b.add(a["count"], code.constant(TILE - 1)), code.constant(TILE))
    code.loop(lines, [a["first"], a["second"], a["target"], a["count"]], body)
    b.ret_void()


class _Tiles(_Halves):
    """Writes products of tiles: by the processor's instructions, or where it has none by multiply-adds, which round as these do."""

    def call(self, name: str, *args: Any) -> None:
        """Emit an instruction of tiles."""
        self.b.call(self.env.function(f"llvm.x86.{name}", self.ir.VoidType(), [x.type for x in args]), list(args))

    def place(self, *terms: Any) -> Any:
        """Return a pointer to bytes at the sum of some integers."""
        total = terms[0]
        for term in terms[1:]:
            total = self.b.add(total, term)
        return self.b.inttoptr(total, self.byte_pointer)

    def instructions(self, high: int, wide: int) -> None:
        """Emit the product of high x wide tiles: eight registers, of which four hold sums."""
        b, a, constant = self.b, self.a, self.constant
        cells = [(r, c) for r in range(high) for c in range(wide)]

        def number(value: int) -> Any:
            return self.ir.Constant(self.ir.IntType(8), value)

        def step(values: list[Any]) -> list[Any]:
            left, right = values
            for r in range(high):
                self.call("tileloadd64", number(4 + r), self.place(left, b.mul(a["stride"], constant(TILE * r))), a["stride"])
            for c in range(wide):
                self.call("tileloadd64", number(6 + c), self.place(right, b.mul(a["step"], constant(c))), a["line"])
            for r, c in cells:
                self.call("tdpbf16ps", number(2 * r + c), number(4 + r), number(6 + c))
            return [b.add(left, constant(2 * MOST_TERMS)), b.add(right, b.mul(a["line"], constant(TILE)))]

        def part(values: list[Any]) -> list[Any]:
            left, right = values
            _, after = self.some(a["count"], [left, right], step)
            return [b.add(left, a["shift"]), after]

        for r, c in cells:
            self.call("tilezero", number(2 * r + c))
        self.loop(a["parts"], [a["a"], a["b"]], part)
        for r, c in cells:
            self.call("tilestored64", number(2 * r + c), self.place(a["out"], constant(4 * TILE * (r * SIDE + c))), constant(4 * SIDE))

    def pairs(self, high: int, wide: int, native: bool) -> None:
        """Emit the product of high x wide tiles by products of pairs, of 16 / wide rows at a time, whose sums are all in registers."""
        b, a, constant, ir = self.b, self.a, self.constant, self.ir
        words, floats = ir.VectorType(self.i32, TILE), ir.VectorType(ir.FloatType(), TILE)
        rows = TILE // wide
        strides = [b.mul(a["stride"], constant(r)) for r in range(FEW)]
        lines = [b.mul(a["line"], constant(k)) for k in range(FEW + 1)]

        def some(values: list[Any]) -> list[Any]:
            left, right, sums = values[: rows // FEW], values[rows // FEW : -rows * wide], values[-rows * wide :]
            for k in range(FEW):
                seconds = [b.load(b.bitcast(self.at(at, lines[k]), words.as_pointer()), align=4) for at in right]
                for r in range(rows):
                    at = self.at(self.at(left[r // FEW], strides[r % FEW]), constant(2 * HALF * k))
                    word = b.load(b.bitcast(at, self.i32.as_pointer()), align=2)
                    pair = b.insert_element(ir.Constant(words, ir.Undefined), word, ir.Constant(self.i32, 0))
                    pair = b.shuffle_vector(pair, pair, ir.Constant(words, [0] * TILE))
                    for v in range(wide):
                        sums[r * wide + v] = self.dot(sums[r * wide + v], pair, seconds[v], native)
            left = [self.at(at, constant(2 * HALF * FEW)) for at in left]
            return [*map(self.opaque, [*left, *(self.at(at, lines[FEW]) for at in right)]), *sums]

        def part(values: list[Any]) -> list[Any]:
            first, right, *sums = values
            left = [self.opaque(self.place(first, b.mul(a["stride"], constant(r)))) for r in range(0, rows, FEW)]
            columns = [self.opaque(self.place(right, b.mul(a["step"], constant(v)))) for v in range(wide)]
            now = self.some(b.mul(a["count"], constant(terms() // 2 // FEW)), [*left, *columns, *sums], some)
            return [b.add(first, a["shift"]), b.ptrtoint(now[len(left)], self.i64), *now[len(left) + wide :]]

        def group(values: list[Any]) -> list[Any]:
            left, out = values
            zeros = [ir.Constant(floats, [0.0] * TILE)] * (rows * wide)
            _, _, *sums = self.loop(a["parts"], [left, a["b"], *zeros], part)
            for r in range(rows):
                for v in range(wide):
                    at = self.place(out, constant(4 * (SIDE * r + TILE * v)))
                    b.store(sums[r * wide + v], b.bitcast(at, floats.as_pointer()), align=4)
            return [b.add(left, b.mul(a["stride"], constant(rows))), b.add(out, constant(4 * SIDE * rows))]

        self.loop(constant(TILE * high // rows), [a["a"], a["out"]], group)

    def dot(self, sums: Any, first: Any, second: Any, native: bool) -> Any:
        """Return sums to which the second terms of pairs are added, and then the first ones."""
        b = self.b
        if native:
            numbers = self.ir.VectorType(_bfloat16(), 2 * TILE)
            fn = self.env.function("llvm.x86.avx512bf16.dpbf16ps.512", sums.type, [sums.type, numbers, numbers])
            return b.call(fn, [sums, b.bitcast(first, numbers), b.bitcast(second, numbers)])
        fma = self.env.function(f"llvm.fma.v{TILE}f32", sums.type, [sums.type] * 3)
        (low, high), (below, above) = self.halves(first), self.halves(second)
        return b.call(fma, [low, below, b.call(fma, [high, above, sums])])

    def halves(self, value: Any) -> list[Any]:
        """Return the first and the second terms of pairs as float32."""
        b, ir = self.b, self.ir
        words, floats = ir.VectorType(self.i32, TILE), ir.VectorType(ir.FloatType(), TILE)
        upper, shift = ir.Constant(words, [0xFFFF0000] * TILE), ir.Constant(words, [16] * TILE)
        return [b.bitcast(b.shl(value, shift), floats), b.bitcast(b.and_(value, upper), floats)]

    def multiply_adds(self, high: int, wide: int) -> None:
        """Emit what `instructions` does by multiply-adds.

        The first terms of a tile's pairs are added up, and the second ones, and then both to the sums before.
        """
        b, a, constant, ir = self.b, self.a, self.constant, self.ir
        words, floats = ir.VectorType(self.i32, TILE), ir.VectorType(ir.FloatType(), TILE)
        fma = self.env.function(f"llvm.fma.v{TILE}f32", floats, [floats] * 3)
        zero, first = ir.Constant(floats, [0.0] * TILE), ir.Constant(words, [0] * TILE)

        def pair(values: list[Any]) -> list[Any]:
            left, right, *sums = values
            word = b.load(b.bitcast(self.place(left), self.i32.as_pointer()), align=2)
            every = b.shuffle_vector(b.insert_element(ir.Constant(words, ir.Undefined), word, ir.Constant(self.i32, 0)), first, first)
            line = b.load(b.bitcast(self.place(right), words.as_pointer()), align=4)
            sums = [b.call(fma, [x, y, s]) for x, y, s in zip(self.halves(every), self.halves(line), sums, strict=True)]
            return [b.add(left, constant(2 * HALF)), b.add(right, a["line"]), *sums]

        def tile(values: list[Any]) -> list[Any]:
            left, right, total = values
            _, _, even, odd = self.loop(constant(MOST_TERMS // 2), [left, right, zero, zero], pair)
            after = b.add(right, b.mul(a["line"], constant(TILE)))
            return [b.add(left, constant(HALF * MOST_TERMS)), after, b.fadd(total, b.fadd(even, odd))]

        def part(values: list[Any]) -> list[Any]:
            left, right, total = values
            _, after, total = self.some(a["count"], [left, right, total], tile)
            return [b.add(left, a["shift"]), after, total]

        for c in range(wide):

            def row(values: list[Any], c: int = c) -> list[Any]:
                left, out = values
                _, _, total = self.loop(a["parts"], [left, b.add(a["b"], b.mul(a["step"], constant(c))), zero], part)
                b.store(total, b.bitcast(self.place(out, constant(4 * TILE * c)), floats.as_pointer()), align=4)
                return [b.add(left, a["stride"]), b.add(out, constant(4 * SIDE))]

            self.loop(constant(TILE * high), [a["a"], a["out"]], row)


@routine
def tiles_multiplied(env: Any) -> None:
    """Emit `entry(high, wide, a, stride, b, line, step, parts, shift, count, out)`: out = A B, of high x wide tiles, one or two each.

    A sum has parts of count tiles; parts of A lie shift bytes apart, and its rows stride bytes, in which they may overlap. B has a line of
    pairs for every two terms, line bytes apart, and step bytes lie between columns of tiles. A row of out has SIDE elements.
    """
    from pe_cli.kernels.compiler.target import PAIRS, bfloat16_unit, has_unit

    code = _Tiles(env, ("high", "wide", "a", "stride", "b", "line", "step", "parts", "shift", "count", "out"))
    b, a = code.b, code.a
    done = code.fn.append_basic_block("done")
    which = b.add(b.shl(b.sub(a["high"], code.constant(1)), code.constant(1)), b.sub(a["wide"], code.constant(1)))
    choice = b.switch(which, done)
    for high in (1, 2):
        for wide in (1, 2):
            block = code.fn.append_basic_block(f"tiles_{high}_{wide}")
            choice.add_case(code.constant(2 * (high - 1) + wide - 1), block)
            b.position_at_end(block)
            if _tiles_in_use():
                code.instructions(high, wide)
            elif bfloat16_unit() == PAIRS:
                code.pairs(high, wide, has_unit(PAIRS))
            else:
                code.multiply_adds(high, wide)
            b.branch(done)
    b.position_at_end(done)
    b.ret_void()


@intrinsic("void", *["int64"] * 3)
def copy_halves(env: Any, args: list[Any]) -> Any:
    call_routine(halves_copied, env, args)


@intrinsic("void", *["int64"] * 5)
def pair_halves(env: Any, args: list[Any]) -> Any:
    call_routine(halves_paired, env, args)


@intrinsic("void", *["int64"] * 11)
def multiply_tiles(env: Any, args: list[Any]) -> Any:
    call_routine(tiles_multiplied, env, args)


def _tiles_in_use() -> bool:
    from pe_cli.kernels.compiler.target import PAIRS, TILES, bfloat16_unit, has_unit

    return bfloat16_unit() != PAIRS and has_unit(TILES)


@intrinsic("void")
def configure_tiles(env: Any, args: list[Any]) -> Any:
    """Make eight tiles of 16 rows of 64 bytes; until `release_tiles` the system keeps them for this thread."""
    from llvmlite import ir

    del args
    if not _tiles_in_use():
        return
    kind = ir.ArrayType(ir.IntType(8), len(CONFIGURATION))
    name = "tile_configuration"
    held = env.module.globals.get(name)
    if held is None:
        held = ir.GlobalVariable(env.module, kind, name)
        held.initializer = ir.Constant(kind, bytearray(CONFIGURATION))
        held.global_constant = True
        held.linkage = "internal"
    at = env.builder.bitcast(held, ir.IntType(8).as_pointer())
    env.builder.call(env.function("llvm.x86.ldtilecfg", ir.VoidType(), [at.type]), [at])


@intrinsic("void")
def release_tiles(env: Any, args: list[Any]) -> Any:
    """Give the tiles back, so that other threads need not save them."""
    from llvmlite import ir

    del args
    if _tiles_in_use():
        env.builder.call(env.function("llvm.x86.tilerelease", ir.VoidType(), []), [])
