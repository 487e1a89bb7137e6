"""Emits vector code in LLVM IR: constants, loads and stores of whole and partial vectors, loops."""

from __future__ import annotations

from typing import Any

from pe_cli.kernels.cpu.non_temporal import store_non_temporal


def call_routine(called: Any, env: Any, args: list[Any]) -> None:
    """Emit a call of a routine, by its symbol, with integers."""
    from llvmlite import ir

    from pe_cli.kernels.compiler.instance import Instance, symbol

    fn = env.function(symbol(Instance(called, env.dtype)), ir.VoidType(), [ir.IntType(64)] * len(args))
    fn.attributes.add("nounwind")
    env.builder.call(fn, args)


class VectorCode:
    """Writes LLVM IR of vectors into a function; `b` is its builder.

    Args:
        env: as for `lang.Intrinsic`, without a builder.
        fn: the function; it gets its first block.
        vectors: vectors side by side in memory, of which `load` and `store` take number v; under a `mask` the last one is partial.
        lanes: elements of a vector; 0 for as many as a register has.
    """

    def __init__(self, env: Any, fn: Any, vectors: int, lanes: int = 0) -> None:
        from llvmlite import ir

        from pe_cli.core.types import DTYPES

        self.ir = ir
        self.env = env
        self.fn = fn
        self.vectors = vectors
        self.lanes = lanes or int(env.lanes)
        self.size = DTYPES[env.dtype]
        self.i64 = ir.IntType(64)
        self.i32 = ir.IntType(32)
        self.element = env.element
        self.vector = ir.VectorType(env.element, self.lanes)
        self.predicate = ir.VectorType(ir.IntType(1), self.lanes)
        self.suffix = f"v{self.lanes}f{self.size * 8}"
        self.zero = ir.Constant(self.vector, [0.0] * self.lanes)
        self.byte_pointer = ir.IntType(8).as_pointer()
        self.mask: Any = None
        self.b = ir.IRBuilder(fn.append_basic_block("entry"))

    def constant(self, value: int) -> Any:
        return self.ir.Constant(self.i64, value)

    def splat(self, value: Any, kind: Any) -> Any:
        undefined = self.ir.Constant(kind, self.ir.Undefined)
        # LLVM makes one broadcast instruction of an insertion and a shuffle by zeros.
        lanes = self.ir.Constant(self.ir.VectorType(self.i32, self.lanes), [0] * self.lanes)
        first = self.b.insert_element(undefined, value, self.ir.Constant(self.i32, 0))
        return self.b.shuffle_vector(first, undefined, lanes)

    def tail_mask(self, columns: Any) -> Any:
        """Return which elements of the last vector exist, of so many columns; of more than there is room for, all."""
        wide = self.ir.VectorType(self.i32, self.lanes)
        last = self.b.sub(columns, self.constant(self.lanes * (self.vectors - 1)))
        most = self.b.select(self.b.icmp_signed("<", last, self.constant(self.lanes)), last, self.constant(self.lanes))
        numbers = self.ir.Constant(wide, list(range(self.lanes)))
        return self.b.icmp_signed("<", numbers, self.splat(self.b.trunc(most, self.i32), wide))

    def at(self, base: Any, offset: Any) -> Any:
        """Return a pointer so many bytes further."""
        return self.b.gep(base, [offset])

    def opaque(self, at: Any) -> Any:
        """Return a pointer that LLVM can't relate to others: it would give every row its own register, and spill."""
        fn = self.env.function("llvm.launder.invariant.group.p0", at.type, [at.type])
        return self.b.call(fn, [at])

    def load(self, at: Any, v: int) -> Any:
        """Load vector v of a row at `at`; the last one under the mask, so as to touch nothing outside the matrix."""
        at = self.b.bitcast(self.at(at, self.constant(v * self.lanes * self.size)), self.vector.as_pointer())
        if v < self.vectors - 1 or self.mask is None:
            return self.b.load(at, align=self.size)
        arguments = [at.type, self.i32, self.predicate, self.vector]
        fn = self.env.function(f"llvm.masked.load.{self.suffix}.p0", self.vector, arguments)
        return self.b.call(fn, [at, self.ir.Constant(self.i32, self.size), self.mask, self.zero])

    def store(self, value: Any, at: Any, v: int) -> None:
        """Store vector v of a row at `at`, likewise."""
        at = self.b.bitcast(self.at(at, self.constant(v * self.lanes * self.size)), self.vector.as_pointer())
        if v < self.vectors - 1 or self.mask is None:
            self.b.store(value, at, align=self.size)
            return
        arguments = [self.vector, at.type, self.i32, self.predicate]
        fn = self.env.function(f"llvm.masked.store.{self.suffix}.p0", self.ir.VoidType(), arguments)
        self.b.call(fn, [value, at, self.ir.Constant(self.i32, self.size), self.mask])

    def store_non_temporal(self, value: Any, at: Any, v: int) -> None:
        """Store vector v of a row at `at`, a whole one, past the caches."""
        at = self.at(at, self.constant(v * self.lanes * self.size))
        store_non_temporal(self.env, value, self.b.bitcast(at, self.vector.as_pointer()), self.b)

    def one(self) -> Any:
        """Return the address of a 1 in memory: the factor of sums that are simply added, which changes no bit of them."""
        held = self.ir.GlobalVariable(self.env.module, self.element, f"{self.fn.name}_one")
        held.initializer = self.ir.Constant(self.element, 1.0)
        held.global_constant = True
        held.linkage = "internal"
        return held

    def multiply_add(self, x: Any, y: Any, sums: Any) -> Any:
        """Return x * y + sums of vectors."""
        # fmuladd, not fma: where the processor has no such instruction, fma is a call.
        fma = self.env.function(f"llvm.fmuladd.{self.suffix}", self.vector, [self.vector] * 3)
        return self.b.call(fma, [x, y, sums])

    def loop(self, count: Any, values: list[Any], body: Any) -> list[Any]:
        """Emit `repeat count >= 1 times: values = body(values)`; return the values after it."""
        b = self.b
        before = b.block
        inside, after = self.fn.append_basic_block("loop"), self.fn.append_basic_block("end")
        b.branch(inside)
        b.position_at_end(inside)
        phis = []
        for value in [count, *values]:
            phis.append(b.phi(value.type))
            phis[-1].add_incoming(value, before)
        found: list[Any] = body(phis[1:])
        remaining = b.sub(phis[0], self.constant(1))
        for phi, value in zip(phis, [remaining, *found], strict=True):
            phi.add_incoming(value, b.block)
        b.cbranch(b.icmp_signed("!=", remaining, self.constant(0)), inside, after)
        b.position_at_end(after)
        return found

    def when(self, condition: Any, body: Any) -> None:
        """Emit `if condition: body()`."""
        inside, after = self.fn.append_basic_block("when"), self.fn.append_basic_block("after")
        self.b.cbranch(condition, inside, after)
        self.b.position_at_end(inside)
        body()
        self.b.branch(after)
        self.b.position_at_end(after)

    def some(self, count: Any, values: list[Any], body: Any) -> list[Any]:
        """Emit a `loop` whose count may be 0."""
        b = self.b
        before = b.block
        inside, after = self.fn.append_basic_block("some"), self.fn.append_basic_block("none")
        b.cbranch(b.icmp_signed(">", count, self.constant(0)), inside, after)
        b.position_at_end(inside)
        found = self.loop(count, values, body)
        end = b.block
        b.branch(after)
        b.position_at_end(after)
        phis = []
        for old, new in zip(values, found, strict=True):
            phis.append(b.phi(old.type))
            phis[-1].add_incoming(old, before)
            phis[-1].add_incoming(new, end)
        return phis
