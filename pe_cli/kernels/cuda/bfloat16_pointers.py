"""Pointers to bfloat16 on CUDA: reads convert to float32 and writes round, in a kernel and in all functions that it calls.

A kernel is written once, with pointers to its element type T; which of them point to bfloat16 is a matter of the call. Instructions that
take a pointer to T ask `is_half` what it points to.
"""

from __future__ import annotations

import functools
from typing import Any

from pe_cli.core.types import BFLOAT16, computed
from pe_cli.kernels.calls import Call, buffers_of
from pe_cli.kernels.cpu.bfloat16_conversion import round_bfloat16, widen_bfloat16
from pe_cli.kernels.language import POINTERS

#: Bytes of a number of bfloat16.
BYTES = 2


def is_half(place: Any) -> bool:
    """Return whether a pointer of LLVM, of an argument that is a pointer to T, points to bfloat16."""
    from llvmlite import ir

    return place.type.pointee == ir.IntType(16)  # type: ignore[no-any-return]


def element_of(place: Any, dtype: str) -> tuple[Any, int]:
    """Return LLVM's type of what a pointer to T points to, and its bytes; dtype: the name of T."""
    from llvmlite import ir

    if is_half(place):
        return ir.IntType(16), BYTES
    return {"float64": (ir.DoubleType(), 8), "float32": (ir.FloatType(), 4)}[dtype]


def number_of(builder: Any, held: Any) -> Any:
    """Return the number that an element stands for."""
    from llvmlite import ir

    return widen_bfloat16(builder, held) if held.type == ir.IntType(16) else held


def held_as(builder: Any, number: Any, kind: Any) -> Any:
    """Return what an element of LLVM's type becomes when a number is written to it."""
    from llvmlite import ir

    return round_bfloat16(builder, number) if kind == ir.IntType(16) else number


def halves_of(call: Call) -> frozenset[int] | None:
    """Return the numbers of a call's arguments that are of bfloat16 where a parameter points to T or U; None where one is elsewhere."""
    found = {i for i, arg in enumerate(call.args) if any(b.dtype == BFLOAT16 for b in buffers_of(arg))}
    params, types = getattr(call.kernel, "params", ()), {"T": call.dtype, "U": call.second}
    if any(i >= len(params) or computed(types.get(POINTERS.get(params[i], "T"), "")) != "float32" for i in found):
        return None
    return frozenset(found)


@functools.cache
def pointer() -> Any:
    """Return numba-cuda's type of a pointer to bfloat16."""
    import operator

    from llvmlite import ir
    from numba.cuda import types
    from numba.cuda.cudaimpl import registry
    from numba.cuda.datamodel import PrimitiveModel
    from numba.cuda.extending import register_model

    class HalfPointer(types.CPointer):  # type: ignore[misc]
        """A pointer whose elements are typed as float32."""

        def __init__(self) -> None:
            super().__init__(types.float32)
            self.name = "bfloat16*"

    @register_model(HalfPointer)
    class _Model(PrimitiveModel):  # type: ignore[misc]
        def __init__(self, manager: Any, kind: Any) -> None:
            super().__init__(manager, kind, ir.IntType(16).as_pointer())

    @registry.lower(operator.getitem, HalfPointer, types.Integer)
    def _load(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        del context, signature
        return widen_bfloat16(builder, builder.load(builder.gep(args[0], [args[1]]), align=BYTES))

    @registry.lower(operator.setitem, HalfPointer, types.Integer, types.Any)
    def _store(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        del signature
        builder.store(round_bfloat16(builder, args[2]), builder.gep(args[0], [args[1]]), align=BYTES)
        return context.get_dummy_value()

    return HalfPointer()
