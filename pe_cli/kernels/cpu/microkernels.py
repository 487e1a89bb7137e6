"""Microkernels for GEMM and convolution: small matrix products held in vector registers, written as LLVM IR.

One primitive serves all of them: `panel(units, rows, columns, x, w, y, n1, xs1, ws1, n2, xs2, ws2, depth, xk, wk, xr,
yr, acc, ahead, pace)`. For rows r and columns j, of which there are at most units * UNIT, it computes

    y[r*yr + j] (+)= sum over s1 < n1, s2 < n2, k < depth of
                     x[r*xr + k*xk + s2*xs2 + s1*xs1] * w[k*wk + s2*ws2 + s1*ws1 + j]

x, w and y are addresses, strides are in elements, and j has stride 1. An empty sum is 0. Where it is added to y, that is one
addition at the end, so that the result has the bits of a sum computed apart and added afterwards. More `columns` than units *
UNIT count as that many; fewer than (units - 1) * UNIT + 1 are not allowed. The two outer sums let a convolution
walk the rows and columns of its filter, and a filter gradient the images and rows of a batch, without leaving the
registers.

A unit is a vector register, and a panel has 1 to `WIDEST` of them. Where half of a register takes half of the time, a unit is a half:
even numbers are whole registers, and 1 and 3 are halves side by side, so that 20 columns cost as 24 and not as 32.

acc is 1 to add to y, 0 to overwrite it, and `PAST` to overwrite it past the caches where the block is whole lines: y and yr have
to be, and `far.fence_non_temporal` has to follow. Any other acc is the address of a factor: y += factor * sum, rounded as fma rounds.

ahead is 1 where x may come from memory: while a block is computed, what the next ones take of its rows is asked for, and before it
what it is added to. Any other address is of a matrix that is wanted next, its rows pace elements apart, and part of it is asked for too:
as many rows and columns as the block takes of w; or of its transpose, where pace is below 0, and means the same without the sign.
With an xk that is not 1 it is the former, and wk stands for pace. That costs a hundredth where all is near.
"""

from __future__ import annotations

from typing import Any

from pe_cli.kernels.cpu.non_temporal import LINE, ask
from pe_cli.kernels.cpu.vector_code import VectorCode, call_routine
from pe_cli.kernels.language import LANES, UNIT, helper, intrinsic, routine

#: Rows that a block may have, by (`block_registers`, vectors of columns). A block keeps rows*vectors accumulators, as
#: many vectors of w as columns have, and one broadcast of x in registers. `shares` divides any number of rows among
#: them.
HEIGHTS = {
    (32, 1): (16, 14, 12, 10, 8, 6, 5, 4, 3, 2, 1),
    (32, 2): (12, 8, 7, 6, 5, 4, 3, 2, 1),
    (32, 3): (8, 6, 5, 4, 3, 2, 1),
    (24, 1): (12, 10, 8, 6, 5, 4, 3, 2, 1),
    (24, 2): (8, 7, 6, 5, 4, 3, 2, 1),
    (24, 3): (6, 5, 4, 3, 2, 1),
    (16, 1): (12, 10, 8, 6, 5, 4, 3, 2, 1),
    (16, 2): (6, 5, 4, 3, 2, 1),
    (16, 3): (4, 3, 2, 1),
}
#: Accumulators that keep the arithmetic units busy: two multiply-adds a cycle, each of four cycles.
IN_FLIGHT = 8
#: Most registers side by side.
WIDEST = 3
#: Halves of registers side by side.
HALVES = (1, 3)
#: A panel's acc for results that are written past the caches.
PAST = 2
#: Elements of every row in a round of the unrolled loop: as many pointers as an addressing mode makes of one, `_Emitter.step`.
UNROLLED = 4
NAMES = (
    "rows", "columns", "x", "w", "y", "n1", "xs1", "ws1", "n2", "xs2", "ws2", "depth", "xk", "wk", "xr", "yr", "acc", "ahead", "pace"
)  # fmt: skip


def block_registers() -> int:
    """Return the vector registers that blocks are made for."""
    from pe_cli.kernels.compiler.target import vector_bytes, vector_registers

    # For ARM LLVM moves broadcasts of several rounds ahead of the sums: with a quarter of the registers left to them nothing is spilled.
    return 24 if (vector_registers(), vector_bytes()) == (32, 16) else vector_registers()


def shares(heights: tuple[int, ...], vectors: int) -> list[int]:
    """Return how many rows the next block takes of 0, 1, 2, ... rows, so that all blocks together take least time.

    A block of few accumulators takes as long as one of `IN_FLIGHT`. Past the end of the list, a block is as high as it can be.

    Args:
        heights: rows that a block may have; 1 is among them.
        vectors: vectors of columns.
    """
    most = 4 * max(heights)
    time, first = [0.0], [0]
    for rows in range(1, most):
        offers = [(time[rows - h] + max(h * vectors, IN_FLIGHT) + 1, -h) for h in heights if h <= rows]
        least, height = min(offers)
        time.append(least)
        first.append(-height)
    return first


class _Emitter(VectorCode):
    """Writes `panel` for one number of vectors, of so many elements, into a module, as a function that is not inlined."""

    def __init__(self, env: Any, vectors: int, lanes: int, name: str) -> None:
        from llvmlite import ir

        from pe_cli.kernels.compiler.target import vector_bytes

        fn = ir.Function(env.module, ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * len(NAMES)), name)
        fn.linkage = "linkonce_odr"
        fn.attributes.add("noinline")
        fn.attributes.add("nounwind")
        super().__init__(env, fn, vectors, lanes)
        # Narrow machines have no masked loads: they get a second copy of the loops, for whole vectors only. On wide ones a masked
        # load takes a slot of the arithmetic units, one of 25 in the tallest block.
        half = lanes < env.lanes
        self.versions = vector_bytes() == 16 or (vector_bytes() == 64 and vectors < WIDEST and not half)
        self.narrow = vector_bytes() == 16
        self.a = dict(zip(NAMES, self.fn.args, strict=True))

    def emit(self) -> Any:
        b, a = self.b, self.a
        for stride in ("xs1", "ws1", "xs2", "ws2", "xk", "wk", "xr", "yr"):
            a[stride] = b.mul(a[stride], self.constant(self.size))
        for stride in ("xr", "xk", "wk"):
            a[f"{stride}1"] = a[stride]
            a[f"{stride}2"] = b.shl(a[stride], self.constant(1))
            a[f"{stride}3"] = b.mul(a[stride], self.constant(3))
            a[f"{stride}4"] = b.shl(a[stride], self.constant(2))
        # Rounds of `deepest`: where neighbours in memory are of one row, where they are of one depth, and one by one.
        rounds, one, none = b.lshr(a["depth"], self.constant(2)), self.constant(self.size), self.constant(0)
        a["along"] = b.select(b.icmp_signed("==", a["xk"], one), rounds, none)
        a["across"] = b.select(b.icmp_signed("==", a["xr"], one), b.sub(rounds, a["along"]), none)
        a["rest"] = b.sub(a["depth"], b.shl(b.add(a["along"], a["across"]), self.constant(2)))
        a["some"] = b.icmp_signed(">", b.mul(a["depth"], b.mul(a["n1"], a["n2"])), self.constant(0))
        wanted = b.icmp_signed("!=", a["ahead"], self.constant(0))
        adds = b.and_(b.icmp_signed("!=", a["acc"], self.constant(0)), b.icmp_signed("!=", a["acc"], self.constant(PAST)))
        a["ask_y"] = b.and_(wanted, adds)
        a["ask"] = b.icmp_unsigned(">", a["ahead"], self.constant(1))
        a["beyond"] = b.sub(a["ahead"], a["w"])
        a["turned"] = b.icmp_signed("<", a["pace"], self.constant(0))
        a["pace"] = b.select(a["turned"], b.neg(a["pace"]), a["pace"])
        for k in range(1, UNROLLED):
            a[f"pace{k}"] = b.mul(a["pace"], self.constant(k * self.size))
        a["ask_x"] = b.and_(wanted, b.icmp_signed(">", a["xk"], self.constant(LINE)))
        simply = b.icmp_signed("==", a["acc"], self.constant(1))
        a["factor"] = b.select(simply, self.one(), b.inttoptr(a["acc"], self.element.as_pointer()))
        done = self.fn.append_basic_block("done")
        heights = HEIGHTS[block_registers(), self.vectors]
        if self.versions:
            whole, tail = self.fn.append_basic_block("whole"), self.fn.append_basic_block("tail")
            b.cbranch(b.icmp_signed(">=", a["columns"], self.constant(self.lanes * self.vectors)), whole, tail)
            b.position_at_end(whole)
            self.mask = None
            self.walk(heights, done)
            b.position_at_end(tail)
            self.mask = self.tail_mask(a["columns"])
            self.walk(heights[-3:] if self.narrow else heights, done)
        else:
            self.mask = self.tail_mask(a["columns"])
            self.walk(heights, done)
        b.position_at_end(done)
        b.ret_void()
        return self.fn

    def walk(self, heights: tuple[int, ...], done: Any) -> None:
        """Emit a loop over row blocks, each of the height that `shares` says, then branch to done."""
        b, a = self.b, self.a
        chosen = shares(heights, self.vectors)
        before = b.block
        test, pick, after = (self.fn.append_basic_block(f"rows_{part}") for part in ("test", "pick", "after"))
        b.branch(test)
        b.position_at_end(test)
        left, x, y = phis = [b.phi(self.i64) for _ in range(3)]
        for phi, start in zip(phis, (a["rows"], a["x"], a["y"]), strict=True):
            phi.add_incoming(start, before)
        b.cbranch(b.icmp_signed(">", left, self.constant(0)), pick, done)
        b.position_at_end(pick)
        few = b.icmp_signed("<", left, self.constant(len(chosen)))
        at = b.gep(self.table(chosen), [self.constant(0), b.select(few, left, self.constant(0))])
        switch = b.switch(b.zext(b.load(at), self.i64), after)
        b.position_at_end(after)
        taken = b.phi(self.i64)
        for rows in heights:
            block = self.fn.append_basic_block(f"block{rows}")
            switch.add_case(self.constant(rows), block)
            b.position_at_end(block)
            self.block(rows, x, y)
            b.branch(after)
            taken.add_incoming(self.constant(rows), b.block)
        taken.add_incoming(self.constant(0), pick)
        b.position_at_end(after)
        for phi, step in zip(phis, (b.neg(taken), b.mul(a["xr"], taken), b.mul(a["yr"], taken)), strict=True):
            phi.add_incoming(b.add(phi, step), after)
        b.branch(test)

    def table(self, chosen: list[int]) -> Any:
        """Return a constant array in memory: heights of blocks by rows left; number 0 is for many."""
        kind = self.ir.ArrayType(self.ir.IntType(8), len(chosen))
        values = [max(chosen), *chosen[1:]]
        name = f"{self.fn.name}_{'_'.join(map(str, values[1:4]))}_{len(self.env.module.globals)}"
        held = self.ir.GlobalVariable(self.env.module, kind, name)
        held.initializer = self.ir.Constant(kind, values)
        held.global_constant = True
        held.linkage = "internal"
        return held

    def block(self, rows: int, x: Any, y: Any) -> None:
        """Emit the product of one block of rows: three nested sums from zero, added to y as a whole where acc says so, stores."""
        b, a = self.b, self.a
        out = [
            b.inttoptr(y if r == 0 else b.add(y, b.mul(a["yr"], self.constant(r))), self.byte_pointer)
            for r in range(rows)
        ]
        cells = [(r, v) for r in range(rows) for v in range(self.vectors)]
        self.when(a["ask_y"], lambda: self.ask_results(rows, out))
        skip = b.block
        work, summed = self.fn.append_basic_block("work"), self.fn.append_basic_block("summed")
        b.cbranch(a["some"], work, summed)
        b.position_at_end(work)
        # Rows in groups of four share a pointer: base + {0, 1, 2, 3}*xr are addressing modes, twelve pointers would
        # spill.
        bases = [b.inttoptr(b.add(x, b.mul(a["xr"], self.constant(r))), self.byte_pointer) for r in range(0, rows, 4)]
        made = self.sums(rows, x, [*bases, b.inttoptr(a["w"], self.byte_pointer)], [self.zero] * len(cells))
        end = b.block
        b.branch(summed)
        b.position_at_end(summed)
        found = []
        for value in made:
            found.append(b.phi(self.vector))
            found[-1].add_incoming(value, end)
            found[-1].add_incoming(self.zero, skip)
        add, store, stored = (self.fn.append_basic_block(name) for name in ("add", "store", "stored"))
        choice = b.switch(a["acc"], add)
        choice.add_case(self.constant(0), store)
        if not self.passes(rows):
            choice.add_case(self.constant(PAST), store)
        else:
            past = self.fn.append_basic_block("past")
            choice.add_case(self.constant(PAST), past)
            b.position_at_end(past)
            for (r, v), value in zip(cells, found, strict=True):
                self.store_non_temporal(value, out[r], v)
            b.branch(stored)
        b.position_at_end(add)
        factor = self.splat(b.load(a["factor"], align=self.size), self.vector)
        for (r, v), value in zip(cells, found, strict=True):
            self.store(self.multiply_add(factor, value, self.load(out[r], v)), out[r], v)
        b.branch(stored)
        b.position_at_end(store)
        for (r, v), value in zip(cells, found, strict=True):
            self.store(value, out[r], v)
        b.branch(stored)
        b.position_at_end(stored)

    def passes(self, rows: int) -> bool:
        """Return whether a block of rows may be written past the caches: the tallest, in whole lines."""
        return self.mask is None and self.lanes * self.size == LINE and rows * self.vectors >= self.unrolled()

    def sums(self, rows: int, x: Any, pointers: list[Any], sums: list[Any]) -> list[Any]:
        """Emit the three nested sums of a block that begins at address x, with pointers to every fourth row of it and to w."""
        a = self.a
        count = len(pointers)

        def move(held: list[Any], x: str, w: str) -> list[Any]:
            return [self.at(p, a[x]) for p in held[:-1]] + [self.at(held[-1], a[w])]

        def innermost(values: list[Any]) -> list[Any]:
            held = values[:count]
            now = self.multiply([self.step(held[r // 4], "xr", r % 4) for r in range(rows)], held[-1], values[count:])
            moved = move(held, "xk", "wk")
            return [*map(self.opaque, moved), *now]

        def middle(values: list[Any]) -> list[Any]:
            held = values[:count]
            return [*move(held, "xs2", "ws2"), *self.deepest(rows, x, values, innermost)[count:]]

        def outer(values: list[Any]) -> list[Any]:
            held = values[:count]
            return [*move(held, "xs1", "ws1"), *self.loop(a["n2"], values, middle)[count:]]

        return self.loop(a["n1"], [*pointers, *sums], outer)[count:]

    def deepest(self, rows: int, x: Any, values: list[Any], one: Any) -> list[Any]:
        """Emit the sum over depth: by fours where x has stride 1 in either direction, the others one by one.

        Four share their pointers, so that a round is little more than arithmetic and loads.
        """
        a = self.a
        if rows * self.vectors < self.unrolled():
            return self.loop(a["depth"], values, one)
        count = len(values) - rows * self.vectors

        def rounds(cell: Any) -> Any:
            def body(values: list[Any]) -> list[Any]:
                *xs, w = values[:count]
                now = values[count:]
                self.when(a["ask"], lambda: ask_next(cell, xs[0], w))
                if cell is across:
                    self.when(a["ask_x"], lambda: self.ask_for(xs[0], "xk", LINE, 2 * LINE))
                for k in range(UNROLLED):
                    now = self.multiply([cell(xs, r, k) for r in range(rows)], self.step(w, "wk", k), now)
                moved = [*(self.step(x, "xk", UNROLLED) for x in xs), self.step(w, "wk", UNROLLED)]
                return [*map(self.opaque, moved), *now]

            return body

        def ask_next(cell: Any, now: Any, w: Any) -> None:
            # Where a round is follows from pointers that are there: one more would take a register from those that ask for nothing.
            b, size = self.b, self.vectors * self.lanes * self.size
            if cell is along:
                done = b.sub(b.ptrtoint(now, self.i64), x)  # bytes of a row of x: the row of what is wanted, times the size of an element
                across = b.select(a["turned"], b.sub(done, b.urem(done, self.constant(size))), self.constant(0))
                start = b.add(b.mul(b.sub(done, across), a["pace"]), across)
                self.ask_for(b.inttoptr(b.add(a["ahead"], start), self.byte_pointer), "pace", 0, size)
            else:
                self.ask_for(self.at(w, a["beyond"]), "wk", 0, size)

        def along(xs: list[Any], r: int, k: int) -> Any:
            return self.at(self.step(xs[r // 4], "xr", r % 4), self.constant(k * self.size))

        def across(xs: list[Any], r: int, k: int) -> Any:
            return self.at(self.step(xs[0], "xk", k), self.constant(r * self.size))

        values = self.some(a["along"], values, rounds(along))
        values = self.some(a["across"], values, rounds(across))
        return self.some(a["rest"], values, one)

    def ask_results(self, rows: int, out: list[Any]) -> None:
        """Ask for what a block is going to be added to."""
        for r in range(rows):
            for v in range(self.vectors):
                ask(self.env, self.at(out[r], self.constant(v * self.lanes * self.size)), self.b)

    def ask_for(self, at: Any, stride: str, begin: int, end: int) -> None:
        """Ask for bytes begin to end of every row of a round, rows a stride apart."""
        for k in range(UNROLLED):
            for byte in range(begin, end, LINE):
                ask(self.env, self.at(self.step(at, stride, k), self.constant(byte)), self.b, level=2)

    def unrolled(self) -> int:
        """Return from how many accumulators on unrolling is worth its compiling: low blocks and partial vectors are the rest of others."""
        most = max(heights[0] * vectors for (n, vectors), heights in HEIGHTS.items() if n == block_registers())
        return most if self.versions and self.mask is not None else 2 * most // 3

    def step(self, at: Any, stride: str, times: int) -> Any:
        """Return a pointer 0 to 4 strides further."""
        return self.at(at, self.a[f"{stride}{times}"]) if times else at

    def multiply(self, xs: list[Any], w: Any, sums: list[Any]) -> list[Any]:
        """Return the sums with x * w added, x being one element of every row."""
        b = self.b
        columns = [self.load(w, v) for v in range(self.vectors)]
        found = []
        for r, at in enumerate(xs):
            x = self.splat(b.load(b.bitcast(at, self.element.as_pointer()), align=self.size), self.vector)
            found += [self.multiply_add(x, columns[v], sums[r * self.vectors + v]) for v in range(self.vectors)]
        return found


@routine
def microkernels(env: Any) -> None:
    """Emit `entry(units, ...)`: the panels of every width behind one switch."""
    from llvmlite import ir

    i64 = ir.IntType(64)
    found = ir.Function(env.module, ir.FunctionType(ir.VoidType(), [i64] * (1 + len(NAMES))), env.entry)
    found.attributes.add("nounwind")
    inside = ir.IRBuilder(found.append_basic_block("entry"))
    end = found.append_basic_block("end")
    switch = inside.switch(found.args[0], end)
    unit = UNIT.value(env.dtype)
    whole = env.lanes // unit
    panels = {vectors * whole: (vectors, env.lanes) for vectors in range(1, WIDEST + 1)}
    panels |= {halves: (halves, unit) for halves in HALVES if whole > 1}
    for units, (vectors, lanes) in panels.items():
        emitted = _Emitter(env, vectors, lanes, f"panel_{units}").emit()
        block = found.append_basic_block(f"units{units}")
        switch.add_case(ir.Constant(i64, units), block)
        inside.position_at_end(block)
        inside.call(emitted, found.args[1:])
        inside.branch(end)
    inside.position_at_end(end)
    inside.ret_void()


@intrinsic("void", "int64", *["int64"] * len(NAMES))
def _panel(env: Any, args: list[Any]) -> Any:
    call_routine(microkernels, env, args)


@helper
def block_units(left):
    """Return how many units of columns the next panel takes of `left` (0 when none are left).

    Three registers, and two where threes would leave a single. With three a panel has no more rows than a set of the first cache has lines,
    so that rows of A that are a page apart do not drive each other out. Of halves an odd number comes last, three if there are as many.
    """
    whole = LANES // UNIT
    if whole == 2 and left % 2:
        if left <= 3:
            return left
        left -= 3
    if left == 4 * whole:
        return 2 * whole
    return min(left, 3 * whole)


panel = _panel
