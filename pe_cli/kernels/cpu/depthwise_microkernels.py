"""Small sums of depthwise convolutions held in vector registers, written as LLVM IR: of pixels for an output, of outputs for a tap.

Channels are the columns. Addresses are in bytes, strides in elements.
"""

from __future__ import annotations

from typing import Any

from pe_cli.kernels.cpu.non_temporal import LINE
from pe_cli.kernels.cpu.vector_code import VectorCode, call_routine
from pe_cli.kernels.language import intrinsic, routine

#: Vectors of channels side by side, most first: memory gives whole pixels of 64 float32, or long parts of them, sooner than shorter parts.
VECTORS = (4, 2, 1)
#: Pixels of a block, by number of vector registers: its sums and a tap's weights fit them.
PIXELS = {32: (6, 2, 1), 16: (3, 1)}
#: Taps of a block of the gradient of the weights.
TAPS = (3, 1)
GATHER = ("columns", "count", "x", "xp", "w", "y", "yp", "n1", "xs1", "ws1", "n2", "xs2", "ws2", "past")
WEIGHTS = ("columns", "count", "x", "xp", "g", "gp", "w", "taps", "xs", "ws")


class _Panel(VectorCode):
    """A routine of one of the two sums, for any number of columns: some vectors at a time, at last one, which may be partial."""

    def __init__(self, env: Any, names: tuple[str, ...], strides: tuple[str, ...]) -> None:
        from llvmlite import ir

        fn = ir.Function(env.module, ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * len(names)), env.entry)
        fn.attributes.add("nounwind")
        super().__init__(env, fn, 2)
        self.a = dict(zip(names, fn.args, strict=True))
        for name in strides:
            self.a[name] = self.b.mul(self.a[name], self.constant(self.size))

    def place(self, name: str) -> Any:
        """Return a parameter that is an address as a pointer."""
        return self.b.inttoptr(self.a[name], self.byte_pointer)

    def times(self, stride: str, count: int) -> Any:
        return self.b.mul(self.a[stride], self.constant(count))

    def accumulate(self, x: Any, offsets: list[Any], factors: Any, sums: list[Any]) -> list[Any]:
        """Return the sums of every offset with x there, times the factors, added; all are so many vectors."""
        held = [self.load(factors, v) for v in range(self.vectors)]
        found = []
        for i, offset in enumerate(offsets):
            place = self.at(x, offset)
            for v in range(self.vectors):
                found.append(self.multiply_add(self.load(place, v), held[v], sums[i * self.vectors + v]))
        return found

    def columns(self, places: list[Any], body: Any) -> None:
        """Emit body(places) for every few vectors of columns, each place moved along."""
        b, lanes = self.b, self.env.lanes

        def part(values: list[Any]) -> list[Any]:
            left, *held = values
            self.mask = None if self.vectors > 1 else self.tail_mask(left)
            body(held)
            done = self.vectors * lanes
            return [b.sub(left, self.constant(done)), *(self.at(at, self.constant(done * self.size)) for at in held)]

        values = [self.a["columns"], *places]
        # As wide as there are columns for, then narrower: one mask, of the last vector, is enough.
        for self.vectors in VECTORS:
            whole = self.constant(lanes * self.vectors)
            count = b.udiv(values[0] if self.vectors > 1 else b.add(values[0], self.constant(lanes - 1)), whole)
            values = self.some(count, values, part)

    def put(self, values: list[tuple[Any, Any, int]]) -> None:
        """Store (value, row, number of the vector), past the caches where that was asked for and they are whole lines."""
        b = self.b
        ways = [self.store]
        if self.vectors > 1 and self.env.lanes * self.size == LINE:
            ways.append(self.store_non_temporal)
        blocks = [self.fn.append_basic_block(store.__name__) for store in ways]
        stored = self.fn.append_basic_block("stored")
        b.cbranch(b.icmp_signed("!=", self.a["past"], self.constant(0)), blocks[-1], blocks[0])
        for block, store in zip(blocks, ways, strict=True):
            b.position_at_end(block)
            for value in values:
                store(*value)
            b.branch(stored)
        b.position_at_end(stored)

    def blocks(self, count: Any, sizes: tuple[int, ...], moves: tuple[tuple[Any, str], ...], body: Any) -> None:
        """Emit body(size, places) for blocks of these sizes, largest first, until all of count are done.

        moves: places at the start, and by which stride each goes on.
        """
        b = self.b
        values = [at for at, _ in moves]
        for size in sizes:
            steps = [self.times(stride, size) for _, stride in moves]

            def block(held: list[Any], size: int = size, steps: list[Any] = steps) -> list[Any]:
                body(size, held)
                return [self.at(at, step) for at, step in zip(held, steps, strict=True)]

            number = b.udiv(count, self.constant(size))
            count = b.sub(count, b.mul(number, self.constant(size)))
            values = self.some(number, values, block)
        self.b.ret_void()


@routine
def gathers(env: Any) -> None:
    """Emit y[p*yp + j] = sum over s1 < n1, s2 < n2 of x[p*xp + s1*xs1 + s2*xs2 + j] w[s1*ws1 + s2*ws2 + j] for p < count, j < columns.

    past: not 0 to write whole lines past the caches; y and yp are lines then, and `far.fence_non_temporal` has to follow.
    """
    from pe_cli.kernels.compiler.target import vector_registers

    code = _Panel(env, GATHER, ("xp", "yp", "xs1", "ws1", "xs2", "ws2"))
    a = code.a
    first = code.place("w")

    def block(pixels: int, places: list[Any]) -> None:
        from_x, from_y = ([code.times(stride, p) for p in range(pixels)] for stride in ("xp", "yp"))

        def part(held: list[Any]) -> None:
            x, y, w = held
            sums = [code.zero] * (pixels * code.vectors)
            found = code.some(a["n1"], [x, w, *sums], row)[2:]
            code.put([(value, code.at(y, from_y[i // code.vectors]), i % code.vectors) for i, value in enumerate(found)])

        def row(values: list[Any]) -> list[Any]:
            at, w = values[:2]
            return [code.at(at, a["xs1"]), code.at(w, a["ws1"]), *code.some(a["n2"], values, tap)[2:]]

        def tap(values: list[Any]) -> list[Any]:
            at, w, *sums = values
            found = code.accumulate(at, from_x, w, sums)
            return [code.at(at, a["xs2"]), code.at(w, a["ws2"]), *found]

        code.columns([*places, first], part)

    code.blocks(a["count"], PIXELS[vector_registers()], ((code.place("x"), "xp"), (code.place("y"), "yp")), block)


@routine
def weights(env: Any) -> None:
    """Emit w[t*ws + j] += sum over p < count of x[p*xp + t*xs + j] g[p*gp + j] for t < taps, j < columns."""
    code = _Panel(env, WEIGHTS, ("xp", "gp", "xs", "ws"))
    a, b = code.a, code.b
    first = code.place("g")

    def block(taps: int, places: list[Any]) -> None:
        from_x, from_w = ([code.times(stride, t) for t in range(taps)] for stride in ("xs", "ws"))

        def part(held: list[Any]) -> None:
            x, w, g = held
            found = code.some(a["count"], [x, g, *[code.zero] * (taps * code.vectors)], pixel)[2:]
            for i, value in enumerate(found):
                at, v = code.at(w, from_w[i // code.vectors]), i % code.vectors
                # Added once per run of outputs: sums stay in registers in between.
                code.store(b.fadd(code.load(at, v), value), at, v)

        def pixel(values: list[Any]) -> list[Any]:
            at, g, *sums = values
            found = code.accumulate(at, from_x, g, sums)
            return [code.at(at, a["xp"]), code.at(g, a["gp"]), *found]

        code.columns([*places, first], part)

    code.blocks(a["taps"], TAPS, ((code.place("x"), "xs"), (code.place("w"), "ws")), block)


@intrinsic("void", *["int64"] * len(GATHER))
def gather(env: Any, args: list[Any]) -> Any:
    """Call `gathers`, with the parameters `GATHER`."""
    call_routine(gathers, env, args)


@intrinsic("void", *["int64"] * len(WEIGHTS))
def add_weights(env: Any, args: list[Any]) -> Any:
    """Call `weights`, with the parameters `WEIGHTS`."""
    call_routine(weights, env, args)
