"""Matrix products with one to four columns, as dot products: vectors run along the sums, as columns would leave them mostly empty.

`dots(rows, columns, x, xr, w, wr, parts, xs, ws, depth, y, yr, yc, acc)` computes for rows r and at most `MOST` columns j

    y[r*yr + j*yc] (+)= sum over p < parts and k < depth of x[r*xr + p*xs + k] * w[j*wr + p*ws + k]

x, w and y are addresses, strides are in elements. acc is as for `micro.panel`, but nothing is written past the caches. Every sum has the
same bits wherever its row stands.
"""

from __future__ import annotations

from typing import Any

from pe_cli.kernels.cpu.microkernels import PAST
from pe_cli.kernels.cpu.vector_code import VectorCode, call_routine
from pe_cli.kernels.language import intrinsic, routine

#: Most columns of a call.
MOST = 4
#: Rows of a block, by (vector registers, columns): every row and column has a sum of vectors in a register.
ROWS = {(32, 1): 8, (32, 2): 8, (32, 4): 4, (16, 1): 8, (16, 2): 4, (16, 4): 2}
NAMES = ("rows", "columns", "x", "xr", "w", "wr", "parts", "xs", "ws", "depth", "y", "yr", "yc", "acc")


class _Emitter(VectorCode):
    """Writes `dots` for up to 1, 2 or 4 columns into a module, as a function that is not inlined."""

    def __init__(self, env: Any, width: int) -> None:
        from llvmlite import ir

        fn = ir.Function(env.module, ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * len(NAMES)), f"dots_{width}")
        fn.linkage = "internal"
        fn.attributes.add("noinline")
        fn.attributes.add("nounwind")
        super().__init__(env, fn, 1)
        self.width = width
        self.a = dict(zip(NAMES, fn.args, strict=True))

    def emit(self) -> Any:
        from pe_cli.kernels.compiler.target import vector_registers

        b, a = self.b, self.a
        for stride in ("xr", "wr", "xs", "ws", "yr", "yc"):
            a[stride] = b.mul(a[stride], self.constant(self.size))
        lanes = self.constant(self.lanes)
        a["whole"], a["rest"] = b.udiv(a["depth"], lanes), b.urem(a["depth"], lanes)
        a["fourth"] = b.icmp_signed("==", a["columns"], self.constant(MOST))
        self.last = self.tail_mask(a["rest"])
        simply = b.icmp_signed("==", a["acc"], self.constant(1))
        store = b.or_(b.icmp_signed("==", a["acc"], self.constant(0)), b.icmp_signed("==", a["acc"], self.constant(PAST)))
        a["store"] = store
        a["factor"] = b.select(b.or_(simply, store), self.one(), b.inttoptr(a["acc"], self.element.as_pointer()))
        # One by one at the end: the sums of a row do not depend on how many rows there are.
        high = ROWS[vector_registers(), self.width]
        left, x, y = a["rows"], a["x"], a["y"]
        for rows in (high, 1):
            count = b.udiv(left, self.constant(rows))

            def body(values: list[Any], rows: int = rows) -> list[Any]:
                self.block(rows, *values)
                return [b.add(at, b.mul(a[step], self.constant(rows))) for at, step in zip(values, ("xr", "yr"), strict=True)]

            x, y = self.some(count, [x, y], body)
            left = b.urem(left, self.constant(rows))
        b.ret_void()
        return self.fn

    def block(self, rows: int, x: Any, y: Any) -> None:
        """Emit the sums of a block of rows, and add or store them."""
        b, a = self.b, self.a
        xs = [b.inttoptr(b.add(x, b.mul(a["xr"], self.constant(r))), self.byte_pointer) for r in range(rows)]
        ws = [b.inttoptr(b.add(a["w"], b.mul(a["wr"], self.column(j))), self.byte_pointer) for j in range(self.width)]

        def vectors(values: list[Any]) -> list[Any]:
            x_at, w_at, *sums = values
            columns = [self.load(self.at(w, w_at), 0) for w in ws]
            found = []
            for r, row in enumerate(xs):
                value = self.load(self.at(row, x_at), 0)
                found += [self.multiply_add(value, w, sums[r * self.width + j]) for j, w in enumerate(columns)]
            step = self.constant(self.lanes * self.size)
            return [b.add(x_at, step), b.add(w_at, step), *found]

        def part(values: list[Any]) -> list[Any]:
            x_at, w_at, *_ = values
            self.mask = None
            values = self.some(a["whole"], values, vectors)
            self.mask = self.last
            few = b.zext(b.icmp_signed(">", a["rest"], self.constant(0)), self.i64)
            _, _, *sums = self.some(few, values, vectors)
            return [b.add(x_at, a["xs"]), b.add(w_at, a["ws"]), *sums]

        start = [self.constant(0), self.constant(0), *[self.zero] * (rows * self.width)]
        _, _, *sums = self.some(a["parts"], start, part)
        totals = self.totals(sums)
        for j in range(self.width):
            if j < MOST - 1:
                self.column_out(j, rows, totals, y)
            else:
                self.when(a["fourth"], lambda: self.column_out(MOST - 1, rows, totals, y))

    def column(self, j: int) -> Any:
        """Return the number of the column to read for column j: of three, the third is also read for the fourth."""
        if j < MOST - 1:
            return self.constant(j)
        return self.b.select(self.a["fourth"], self.constant(j), self.constant(j - 1))

    def column_out(self, j: int, rows: int, totals: list[Any], y: Any) -> None:
        """Emit what happens to the results of a column."""
        b, a = self.b, self.a
        ats = [
            b.inttoptr(
                b.add(y, b.add(b.mul(a["yr"], self.constant(r)), b.mul(a["yc"], self.constant(j)))), self.element.as_pointer()
            )
            for r in range(rows)
        ]
        own = [totals[r * self.width + j] for r in range(rows)]
        store, add, done = (self.fn.append_basic_block(name) for name in ("store", "add", "stored"))
        b.cbranch(a["store"], store, add)
        b.position_at_end(store)
        for at, value in zip(ats, own, strict=True):
            b.store(value, at, align=self.size)
        b.branch(done)
        b.position_at_end(add)
        factor = b.load(a["factor"], align=self.size)
        fma = self.env.function(f"llvm.fmuladd.f{self.size * 8}", self.element, [self.element] * 3)
        for at, value in zip(ats, own, strict=True):
            b.store(b.call(fma, [factor, value, b.load(at, align=self.size)]), at, align=self.size)
        b.branch(done)
        b.position_at_end(done)

    def totals(self, sums: list[Any]) -> list[Any]:
        """Return the sums of the elements of vectors, in groups of as many as share a vector while they are folded."""
        b = self.b
        group = min(MOST, self.lanes)
        found: list[Any] = []
        for first in range(0, len(sums), group):
            own = sums[first : first + group]
            level = own + [self.zero] * (group - len(own))
            parts, size = 1, self.lanes  # every vector holds so many sums, of so many elements each
            while len(level) > 1:
                level = [self.folded(p, q, parts, size) for p, q in zip(level[::2], level[1::2], strict=True)]
                parts, size = parts * 2, size // 2
            (value,) = level
            while size > 1:
                value, size = self.folded(value, None, parts, size), size // 2
            found += [b.extract_element(value, self.ir.Constant(self.i32, i)) for i in range(len(own))]
        return found

    def folded(self, first: Any, second: Any, parts: int, size: int) -> Any:
        """Return the upper halves of parts of vectors added to the lower ones: of two side by side, or of one."""
        b, half = self.b, size // 2
        places = [p * size + i for p in range(parts * (1 if second is None else 2)) for i in range(half)]
        other = first if second is None else second
        masks = [[at + up for at in places] for up in (0, half)]
        low, high = (
            b.shuffle_vector(first, other, self.ir.Constant(self.ir.VectorType(self.i32, len(m)), m)) for m in masks
        )
        return b.fadd(low, high)


@routine
def dot_products(env: Any) -> None:
    """Emit `entry(...)`: the three numbers of columns behind one switch."""
    from llvmlite import ir

    i64 = ir.IntType(64)
    found = ir.Function(env.module, ir.FunctionType(ir.VoidType(), [i64] * len(NAMES)), env.entry)
    found.attributes.add("nounwind")
    inside = ir.IRBuilder(found.append_basic_block("entry"))
    end = found.append_basic_block("end")
    emitted = {width: _Emitter(env, width).emit() for width in (1, 2, MOST)}
    switch = inside.switch(found.args[1], end)
    for columns in range(1, MOST + 1):
        block = found.append_basic_block(f"columns{columns}")
        switch.add_case(ir.Constant(i64, columns), block)
        inside.position_at_end(block)
        inside.call(emitted[min(w for w in emitted if w >= columns)], found.args)
        inside.branch(end)
    inside.position_at_end(end)
    inside.ret_void()


@intrinsic("void", *["int64"] * len(NAMES))
def dots(env: Any, args: list[Any]) -> Any:
    """Call the routine."""
    call_routine(dot_products, env, args)
