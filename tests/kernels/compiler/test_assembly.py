"""Kernels that have a word of assembly language, as the one that reads ARM's timer."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.kernels.language import PtrI64, intrinsic, kernel


@intrinsic("int64", "int64")
def through(env: Any, args: list[Any]) -> Any:
    """Return a word as it comes out of no instruction."""
    from llvmlite import ir

    kind = ir.FunctionType(ir.IntType(64), [ir.IntType(64)])
    return env.builder.call(ir.InlineAsm(kind, "nop", "=r,0", side_effect=True), args)


@kernel
def copied(x: PtrI64):
    x[1] = through(x[0])


def test_a_word_goes_through_assembly_language(call):
    x = np.array([7, 0])
    call(copied, "float32", x)
    assert x.tolist() == [7, 7]
