"""CUDA kernels that do nothing once an error was reported, so that persistent state stays as the last good step left it."""

from __future__ import annotations

import ast
import functools
from dataclasses import replace
from typing import Any

from pe_cli.kernels.calls import Call
from pe_cli.kernels.compiler.parsing import statements
from pe_cli.kernels.cuda import language
from pe_cli.kernels.cuda.language import DEALT, CudaKernel, cuda_intrinsic
from pe_cli.kernels.language import Kernel

#: Words of a report; the first is 0 as long as nothing has been reported.
WORDS = 8


@cuda_intrinsic("bool", "int64*", "int64")
def any_report(env: Any, args: list[Any]) -> Any:
    """Return whether one of so many reports says something. No loop of the text: those are dealt over threads, or done by fours."""
    from llvmlite import ir

    b, word = env.builder, ir.IntType(64)
    before, loop, behind = b.block, b.append_basic_block("report"), b.append_basic_block("reports")
    b.cbranch(b.icmp_signed(">", args[1], word(0)), loop, behind)
    with b.goto_block(loop):
        number, said = b.phi(word), b.phi(word)
        found = b.or_(said, b.load(b.gep(args[0], [b.mul(number, word(WORDS))])))
        following = b.add(number, word(1))
        for phi, later in ((number, following), (said, found)):
            phi.add_incoming(word(0), before)
            phi.add_incoming(later, loop)
        b.cbranch(b.icmp_signed("<", following, args[1]), loop, behind)
    b.position_at_end(behind)
    told = b.phi(word)
    told.add_incoming(word(0), before)
    told.add_incoming(found, loop)
    return b.zext(b.icmp_signed("!=", told, word(0)), ir.IntType(8))


def guarded(call: Call, reports: Any, count: int) -> Call:
    """Return the same call of a kernel that looks at reports first.

    Args:
        call: of a kernel for CUDA.
        reports: the argument for them.
        count: how many there are.
    """
    return replace(call, kernel=_guarded(call.kernel), args=(*call.args, reports, count))


@functools.cache
def _guarded(kernel: Kernel | CudaKernel) -> CudaKernel:
    own = kernel if isinstance(kernel, CudaKernel) else None
    tree = language.definition(kernel.fn, own.text if own else None)
    begin = 1 if ast.get_docstring(tree) else 0
    names = [f"_{word}_{len(kernel.params)}" for word in ("reports", "count")]  # a guarded kernel may be guarded once more
    look = statements(f"if not any_report({', '.join(names)}):\n    pass")[0]
    assert isinstance(look, ast.If)
    look.body, tree.body = tree.body[begin:], [look]
    tree.args.args += map(ast.arg, names)
    text = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
    cells = dict(zip(kernel.fn.__code__.co_freevars, (c.cell_contents for c in kernel.fn.__closure__ or ()), strict=True))
    space = {**kernel.fn.__globals__, **cells, "any_report": any_report}
    exec(compile(text, kernel.name, "exec"), space)  # the text of a kernel of ours
    alone = own is None and kernel not in DEALT  # which one thread does
    return CudaKernel(
        space[kernel.fn.__name__],
        (*kernel.params, "PtrI64", "Int"),
        f"{kernel.name}?",
        text,
        (1,) if alone else own.block if own else (),
        ("1",) if alone else own.threads if own else (),
        own.copies if own else False,
        own.resident if own else 0,
        exact=kernel.exact,
    )
