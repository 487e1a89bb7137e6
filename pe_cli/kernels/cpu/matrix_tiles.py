"""Matrix products of bfloat16 by a processor's matrix tiles (Intel's AMX): C[m, n] (+)= op(A) op(B), sums of float32.

A tile is a register of 16 rows of 64 bytes. One instruction multiplies a tile of 16 rows and 32 terms with one of 32 terms and 16 columns,
the terms of each column in pairs, and adds to 16 x 16 sums of float32: sixteen times as many operations a cycle as with vectors. Products
are rounded to nearest; denormal factors count as zeros, and so do denormal sums.

Factors are copied into blocks of whole tiles, filled up with zeros, that stay in the second cache. A block of results is 2 x 2 tiles, and
leaves them by way of the first cache, where it is added to C, finished, and cut to C's size.
"""

from __future__ import annotations

from typing import Any

from pe_cli.kernels.cpu.transpose import transpose
from pe_cli.kernels.cpu.vector_code import VectorCode, call_routine
from pe_cli.kernels.language import T, helper, intrinsic, pointer, routine, shared
from pe_cli.kernels.math.vector_math import fma

#: Terms of a sum that are taken at once, as `gemm` takes them: `adds_at_once` says what follows from it.
DEPTH = 512
#: Most elements of B in a packed block: 512 KiB.
BLOCK = 256 * 1024
#: Rows, or columns, of a block of results, and of a tile.
SIDE, TILE = 32, 16
#: Bytes of an element of bfloat16.
HALF = 2
#: Terms in a tile, and bytes.
TERMS, BYTES = 32, 1024
#: A row of a tile configuration: palette 1; eight tiles of 16 rows of 64 bytes.
CONFIGURATION = bytes([1, *[0] * 15, *[64, 0] * 8, *[0] * 16, *[16] * 8, *[0] * 8])


def tiles_scratch(n: int, k: int) -> int:
    """Return the elements of float32 of scratch that `gemm_tiles` uses for a shape or a smaller one, with any m.

    Args:
        n: columns of C.
        k: length of the sums.
    """
    filled = -(-min(k, DEPTH) // TERMS) * TERMS
    # B's block, A's twice, a block of results, and what aligns them to lines
    return min(-(-n // SIDE) * SIDE * filled, BLOCK) // 2 + SIDE * filled + SIDE * SIDE + 16


class _Halves(VectorCode):
    """Writes code that moves elements of 16 bits, as many at once as a line has."""

    def __init__(self, env: Any, names: tuple[str, ...]) -> None:
        from llvmlite import ir

        fn = ir.Function(env.module, ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * len(names)), env.entry)
        fn.attributes.add("nounwind")
        super().__init__(env, fn, 1)
        self.half = ir.IntType(16)
        self.a = dict(zip(names, fn.args, strict=True))

    def taken(self, at: Any, left: Any, lanes: int) -> Any:
        """Return the elements at an address, zeros from number `left` on; those are not read."""
        b, ir = self.b, self.ir
        kind, flags = ir.VectorType(self.half, lanes), ir.VectorType(ir.IntType(1), lanes)
        numbers = ir.Constant(ir.VectorType(self.i64, lanes), list(range(lanes)))
        every = b.insert_element(ir.Constant(ir.VectorType(self.i64, lanes), ir.Undefined), left, ir.Constant(self.i32, 0))
        every = b.shuffle_vector(every, every, ir.Constant(ir.VectorType(self.i32, lanes), [0] * lanes))
        mask = b.icmp_signed("<", numbers, every)
        load = self.env.function(f"llvm.masked.load.v{lanes}i16.p0v{lanes}i16", kind, [kind.as_pointer(), self.i32, flags, kind])
        return b.call(load, [b.inttoptr(at, kind.as_pointer()), ir.Constant(self.i32, 2), mask, ir.Constant(kind, [0] * lanes)])

    def put(self, value: Any, at: Any) -> None:
        self.b.store(value, self.b.inttoptr(at, value.type.as_pointer()), align=4)


@routine
def halves_copied(env: Any) -> None:
    """Emit `entry(source, target, count)`: count elements of 16 bits, then zeros until they fill lines; count is at least 1."""
    code = _Halves(env, ("source", "target", "count"))
    b, a, line = code.b, code.a, code.constant(2 * TERMS)

    def body(values: list[Any]) -> list[Any]:
        source, target, left = values
        code.put(code.taken(source, left, TERMS), target)
        return [b.add(source, line), b.add(target, line), b.sub(left, code.constant(TERMS))]

    lines = b.udiv(b.add(a["count"], code.constant(TERMS - 1)), code.constant(TERMS))
    code.loop(lines, [a["source"], a["target"], a["count"]], body)
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
    """Writes products of tiles: by the processor's instructions, or where it has none by vectors, which round as these do."""

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
            return [b.add(left, constant(2 * TERMS)), b.add(right, b.mul(a["line"], constant(TILE)))]

        def part(values: list[Any]) -> list[Any]:
            left, right = values
            _, after = self.some(a["count"], [left, right], step)
            return [b.add(left, a["shift"]), after]

        for r, c in cells:
            self.call("tilezero", number(2 * r + c))
        self.loop(a["parts"], [a["a"], a["b"]], part)
        for r, c in cells:
            self.call("tilestored64", number(2 * r + c), self.place(a["out"], constant(4 * TILE * (r * SIDE + c))), constant(4 * SIDE))

    def multiply_adds(self, high: int, wide: int) -> None:
        """Emit the same by multiply-adds: the first terms of a tile's pairs are added up, and the second, then both to the sums before."""
        b, a, constant, ir = self.b, self.a, self.constant, self.ir
        words, floats = ir.VectorType(self.i32, TILE), ir.VectorType(ir.FloatType(), TILE)
        upper, shift = ir.Constant(words, [0xFFFF0000] * TILE), ir.Constant(words, [16] * TILE)
        fma = self.env.function(f"llvm.fma.v{TILE}f32", floats, [floats] * 3)
        zero, first = ir.Constant(floats, [0.0] * TILE), ir.Constant(words, [0] * TILE)

        def halves(value: Any) -> list[Any]:
            return [b.bitcast(b.shl(value, shift), floats), b.bitcast(b.and_(value, upper), floats)]

        def pair(values: list[Any]) -> list[Any]:
            left, right, *sums = values
            word = b.load(b.bitcast(self.place(left), self.i32.as_pointer()), align=2)
            every = b.shuffle_vector(b.insert_element(ir.Constant(words, ir.Undefined), word, ir.Constant(self.i32, 0)), first, first)
            line = b.load(b.bitcast(self.place(right), words.as_pointer()), align=4)
            sums = [b.call(fma, [x, y, s]) for x, y, s in zip(halves(every), halves(line), sums, strict=True)]
            return [b.add(left, constant(2 * HALF)), b.add(right, a["line"]), *sums]

        def tile(values: list[Any]) -> list[Any]:
            left, right, total = values
            _, _, even, odd = self.loop(constant(TERMS // 2), [left, right, zero, zero], pair)
            after = b.add(right, b.mul(a["line"], constant(TILE)))
            return [b.add(left, constant(HALF * TERMS)), after, b.fadd(total, b.fadd(even, odd))]

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
    from pe_cli.kernels.compiler.target import matrix_tiles

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
            if matrix_tiles():
                code.instructions(high, wide)
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


@intrinsic("void")
def configure_tiles(env: Any, args: list[Any]) -> Any:
    """Make eight tiles of 16 rows of 64 bytes; until `release_tiles` the system keeps them for this thread."""
    from llvmlite import ir

    from pe_cli.kernels.compiler.target import matrix_tiles

    del args
    if not matrix_tiles():
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

    from pe_cli.kernels.compiler.target import matrix_tiles

    del args
    if matrix_tiles():
        env.builder.call(env.function("llvm.x86.tilerelease", ir.VoidType(), []), [])


@helper
def _pack_columns(tb, b, ldb, depth, columns, strips, work):
    """Copy op(B)[depth, columns] to columns of tiles: each has the pairs of 16 columns of B, one pair of rows behind the other."""
    filled = (depth + TERMS - 1) // TERMS * TERMS
    step = filled * TILE * 2
    if tb:
        for j in range(0, columns, TILE):
            wide = min(TILE, columns - j)
            for c in range(wide):
                copy_halves(b + 2 * (j + c) * ldb, work + 2 * c * filled, depth)
            if wide < TILE:
                blank = pointer(work + 2 * wide * filled)
                for i in range((TILE - wide) * filled // 2):
                    blank[i] = T(0)
            transpose(work, filled // 2, strips + j // TILE * step, TILE, TILE, filled // 2)
    else:
        for p in range(depth // 2):
            pair_halves(b + 4 * p * ldb, b + (4 * p + 2) * ldb, strips + 4 * TILE * p, columns, step)
        if depth % 2:
            pair_halves(b + 2 * (depth - 1) * ldb, 0, strips + 4 * TILE * (depth // 2), columns, step)
        for j in range(0, columns, TILE):
            blank = pointer(strips + j // TILE * step + 4 * TILE * ((depth + 1) // 2))
            for i in range((filled // 2 - (depth + 1) // 2) * TILE):
                blank[i] = T(0)


@helper
def pack_rows(ta, a, lda, depth, rows, block, work):
    """Copy op(A)[rows, depth] to rows side by side, filled up with zeros to whole tiles; rows is at most SIDE."""
    filled = (depth + TERMS - 1) // TERMS * TERMS
    if ta:
        for p in range(depth // 2):
            pair_halves(a + 4 * p * lda, a + (4 * p + 2) * lda, work + 4 * SIDE * p, rows, 4 * TILE)
        if depth % 2:
            pair_halves(a + 2 * (depth - 1) * lda, 0, work + 4 * SIDE * (depth // 2), rows, 4 * TILE)
        blank = pointer(work + 4 * SIDE * ((depth + 1) // 2))
        for i in range((filled // 2 - (depth + 1) // 2) * SIDE):
            blank[i] = T(0)
        transpose(work, SIDE, block, filled // 2, filled // 2, (rows + TILE - 1) // TILE * TILE)
    else:
        for r in range(rows):
            copy_halves(a + 2 * r * lda, block + 2 * r * filled, depth)
        if rows % TILE:
            blank = pointer(block + 2 * rows * filled)
            for i in range((TILE - rows % TILE) * filled // 2):
                blank[i] = T(0)


@helper
def finish_block(made, rows, columns, add, c, ldc, bias, cut):
    """Write a block of results to C: add is 0, 1 or the address of a factor, as for `gemm`; bias and cut are those of `gemm_bias`, or 0."""
    factor = T(1) if add <= 1 else pointer(add)[0]
    row = pointer(bias)
    for i in range(rows):
        total = pointer(made + 4 * SIDE * i)
        out = pointer(c + 4 * i * ldc)
        if add:
            for j in range(columns):
                total[j] = fma(factor, total[j], out[j])
        if bias == 0:
            for j in range(columns):
                out[j] = total[j]
        elif cut:
            for j in range(columns):
                value = total[j] + row[j]
                out[j] = T(0) if value <= T(0) else value
        else:
            for j in range(columns):
                out[j] = total[j] + row[j]


@shared
def gemm_tiles(ta, tb, m, n, k, a, lda, b, ldb, acc, c, ldc, scratch, bias, cut):
    """Write C[m, n] (+)= op(A)[m, k] op(B)[k, n], A and B of bfloat16, C of float32; for float32 as the kernel's element type.

    Args:
        ta, tb, m, n, k, lda, ldb, c, ldc, bias, cut: as for `gemm_bias`.
        a, b: addresses of bfloat16.
        acc: as for `gemm_bias`.
        scratch: address of `tiles_scratch(n, k)` elements.
    """
    if m <= 0 or n <= 0:
        return
    block = (scratch + 63) // 64 * 64
    work = block + HALF * SIDE * ((min(k, DEPTH) + TERMS - 1) // TERMS * TERMS)
    made = work + (work - block)
    strips = made + 4 * SIDE * SIDE
    configure_tiles()
    done = 0
    while True:
        depth = min(DEPTH, k - done)
        filled = (depth + TERMS - 1) // TERMS * TERMS
        add = 1 if done > 0 else acc
        last = done + depth >= k
        width = BLOCK // max(filled, TERMS) // SIDE * SIDE
        for j0 in range(0, n, width):
            wide = min(width, n - j0)
            if depth > 0:
                _pack_columns(tb, b + 2 * (j0 * ldb + done if tb else done * ldb + j0), ldb, depth, wide, strips, work)
            for i0 in range(0, m, SIDE):
                rows = min(SIDE, m - i0)
                if depth > 0:
                    pack_rows(ta, a + 2 * (done * lda + i0 if ta else i0 * lda + done), lda, depth, rows, block, work)
                for j in range(0, wide, SIDE):
                    columns = min(SIDE, wide - j)
                    multiply_tiles(
                        (rows + TILE - 1) // TILE, (columns + TILE - 1) // TILE, block, 2 * filled, strips + j // TILE * filled * TILE * 2,
                        BYTES // TILE, filled * TILE * 2, 1, 0, filled // TERMS, made,
                    )  # fmt: skip
                    at = bias + 4 * (j0 + j) if bias != 0 and last else 0
                    finish_block(made, rows, columns, add, c + 4 * (i0 * ldc + j0 + j), ldc, at, cut)
        done += depth
        if last:
            break
    release_tiles()
