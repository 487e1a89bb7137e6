"""Emits code that brings a block of results of tiles into a matrix: added up, with a bias, cut off below zero."""

from __future__ import annotations

import functools
import itertools
from typing import Any

from pe_cli.kernels.cpu.tile_code import SIDE, TILE
from pe_cli.kernels.cpu.vector_code import VectorCode, call_routine
from pe_cli.kernels.language import intrinsic, routine


class _Finish(VectorCode):
    """Writes code that brings a block of results into C, a row of at most two vectors at a time."""

    def __init__(self, env: Any, names: tuple[str, ...]) -> None:
        from llvmlite import ir

        fn = ir.Function(env.module, ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * len(names)), env.entry)
        fn.attributes.add("nounwind")
        super().__init__(env, fn, 2, TILE)
        self.a = dict(zip(names, fn.args, strict=True))
        self.factor = self.cut = None

    def row(self, made: Any, out: Any, added: bool, biased: bool) -> None:
        """Emit one row: added to what is there, with a bias, and what is below zero cut off."""
        b = self.b
        made, out, bias = (b.inttoptr(at, self.byte_pointer) for at in (made, out, self.a["bias"]))
        for v in range(self.vectors):
            mask, self.mask = self.mask, None
            value = self.load(made, v)
            self.mask = mask
            if added:
                value = self.multiply_add(self.factor, value, self.load(out, v))
            if biased:
                value = b.fadd(value, self.load(bias, v))
                value = b.select(b.and_(b.fcmp_ordered("<=", value, self.zero), self.cut), self.zero, value)
            self.store(value, out, v)


@routine
def block_finished(env: Any) -> None:
    """Emit `entry(made, rows, columns, add, c, ldc, bias, cut)`: a block of results written to C, as `finish_block` says."""
    code = _Finish(env, ("made", "rows", "columns", "add", "c", "ldc", "bias", "cut"))
    b, a, constant = code.b, code.a, code.constant
    code.cut = code.splat(b.icmp_signed("!=", a["cut"], constant(0)), code.predicate)
    # 0 and 1 are no addresses: a sum that is simply added has the factor 1.
    at = b.select(b.icmp_unsigned(">", a["add"], constant(1)), a["add"], b.ptrtoint(code.one(), code.i64))
    code.factor = code.splat(b.load(b.inttoptr(at, code.element.as_pointer()), align=code.size), code.vector)
    for vectors, (whole, added, biased) in itertools.product((1, 2), itertools.product((True, False), repeat=3)):

        def rows(vectors: int = vectors, whole: bool = whole, added: bool = added, biased: bool = biased) -> None:
            code.vectors = vectors
            code.mask = None if whole else code.tail_mask(a["columns"])

            def row(values: list[Any]) -> list[Any]:
                made, out = values
                code.row(made, out, added, biased)
                return [b.add(made, constant(4 * SIDE)), b.add(out, b.mul(a["ldc"], constant(4)))]

            code.loop(a["rows"], [a["made"], a["c"]], row)

        # Masks cost more than what they let through: where vectors are whole there are none.
        tests = [
            b.icmp_signed(">" if vectors == 2 else "<=", a["columns"], constant(TILE)),
            b.icmp_signed("==" if whole else "!=", b.and_(a["columns"], constant(TILE - 1)), constant(0)),
            b.icmp_signed("!=" if added else "==", a["add"], constant(0)),
            b.icmp_signed("!=" if biased else "==", a["bias"], constant(0)),
        ]
        code.when(functools.reduce(b.and_, tests), rows)
    b.ret_void()


@intrinsic("void", *["int64"] * 8)
def finish_block(env: Any, args: list[Any]) -> Any:
    """Write a block of results to C.

    Args, all of 64 bits: the block's address; rows, at least 1, and columns; add, 0, 1 or the address of a factor, as for `gemm`; C's
    address and the elements between its rows; bias and cut, those of `gemm_bias`, or 0.
    """
    call_routine(block_finished, env, args)
