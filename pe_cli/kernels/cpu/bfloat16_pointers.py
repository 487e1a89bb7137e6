"""Pointers to bfloat16 for numba: reads convert to float32, writes round."""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba import types as numba_types
from numba.core.datamodel import models, register_default
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global, signature

from pe_cli.kernels.cpu.bfloat16_conversion import round_bfloat16, widen_bfloat16

nb: Any = numba_types


class RoundedPointer(nb.Type):  # type: ignore[misc]
    """The type of a pointer to bfloat16."""

    def __init__(self) -> None:
        super().__init__(name="pointer to bfloat16")


#: The type of a pointer to bfloat16.
ROUNDED = RoundedPointer()


@register_default(RoundedPointer)
class _Model(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, ir.IntType(16).as_pointer())


@infer_global(operator.getitem)
class _Get(AbstractTemplate):  # type: ignore[misc]
    def generic(self, args: Any, keywords: Any) -> Any:
        if len(args) == 2 and args[0] == ROUNDED and isinstance(args[1], nb.Integer):
            return signature(nb.float32, ROUNDED, nb.intp)
        return None


@infer_global(operator.setitem)
class _Set(AbstractTemplate):  # type: ignore[misc]
    def generic(self, args: Any, keywords: Any) -> Any:
        if len(args) == 3 and args[0] == ROUNDED and isinstance(args[1], nb.Integer):
            return signature(nb.none, ROUNDED, nb.intp, nb.float32)
        return None


@lower_builtin(operator.getitem, RoundedPointer, nb.Integer)
def _load(context: Any, builder: Any, kind: Any, args: Any) -> Any:
    return widen_bfloat16(builder, builder.load(builder.gep(args[0], [args[1]]), align=2))


@lower_builtin(operator.setitem, RoundedPointer, nb.Integer, nb.Float)
def _store(context: Any, builder: Any, kind: Any, args: Any) -> Any:
    builder.store(round_bfloat16(builder, args[2]), builder.gep(args[0], [args[1]]), align=2)
    return context.get_dummy_value()
