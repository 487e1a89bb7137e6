"""Rewrites a kernel's text so that its outermost loops are distributed over the threads of a grid."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping, Sequence
from typing import Any

from pe_cli.kernels.compiler.parsing import expression, statements
from pe_cli.kernels.cuda.vectorized_loops import WIDTH, widened


def deal_loops(tree: ast.FunctionDef, arrays: Mapping[str, str]) -> list[ast.expr]:
    """Make the outermost loops take every `_dealt_stride`-th iteration from `_dealt_first`; return how many threads have something to do.

    The only loop of a kernel is done by fours where `vectorized_loops` can; of several, all give an iteration to the same thread.

    Iterations are counted in 32 bits without a sign, which suffices (`MOST_ITERATIONS`). Before a range with a step, and before any loop
    that is counted in 64 bits, LLVM would divide by the step: 230 to 340 instructions for a loop that needs 32.
    """
    bounds: list[ast.expr] = []

    def dealt(node: ast.For) -> list[ast.stmt]:
        call, name = node.iter, node.target
        assert isinstance(call, ast.Call), f"{tree.name}: an outermost loop must be over a range"
        assert len(call.args) < 3, f"{tree.name}: an outermost loop must have steps of 1"
        assert isinstance(name, ast.Name), f"{tree.name}: an outermost loop must have one variable"
        low, high = call.args if len(call.args) == 2 else (ast.Constant(0), call.args[0])
        bounds.append(_expression("high - low", high=high, low=low) if len(call.args) == 2 else high)
        at, begin, end, fours = (f"_{word}_{len(bounds)}" for word in ("at", "begin", "end", "fours"))
        wide = widened(node, fours, arrays) if only and len(call.args) == 1 else None
        # An empty range has a negative length, which would be a huge one without its sign.
        text = f"{begin} = low\n{end} = _u32(max(0, high - {begin}))\n{at} = _dealt_first\n"
        if wide:
            bounds[-1] = _expression(f"high + {WIDTH - 1} >> 2", high=high)
            # At most three iterations behind the last whole four are dealt one by one; all are where the arrays are not aligned.
            text += (
                f"if {wide.aligned}:\n    {fours} = {at}\n    while {fours} < _u32({end} >> _u32(2)):\n        pass\n"
                f"        {fours} = _u32({fours} + _dealt_stride)\n    {at} = _u32(_u32({end} & _u32(0xFFFFFFFC)) + _dealt_first)\n"
            )
        text += f"while {at} < {end}:\n    {name.id} = {begin} + _i64({at})\n    {at} = _u32({at} + _dealt_stride)\n"
        made = [_put(statement, high=high, low=low) for statement in statements(text)]
        if wide:
            by_fours: Any = made[-2]
            by_fours.body[1].body[:1] = wide.body
        for statement in made:
            for part in ast.walk(statement):
                ast.copy_location(part, node)
        loop = made[-1]
        assert isinstance(loop, ast.While)
        loop.body += node.body
        return made

    def walk(body: list[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for node in body:
            if isinstance(node, ast.If):
                node.body, node.orelse = walk(node.body), walk(node.orelse)
            out += dealt(node) if isinstance(node, ast.For) else [node]
        return out

    only = _loops_in_turn(tree.body) == 1
    start = statements("_dealt_first = _u32(_cuda.grid(1))\n_dealt_stride = _u32(_cuda.gridsize(1))")
    for statement in start:
        ast.increment_lineno(statement, tree.lineno - 1)
    skip = 1 if ast.get_docstring(tree) else 0
    tree.body = [*tree.body[:skip], *start, *walk(tree.body[skip:])]
    ast.fix_missing_locations(tree)
    return [ast.fix_missing_locations(b) for b in bounds]


def _loops_in_turn(body: Sequence[ast.stmt]) -> int:
    """Return how many outermost loops a thread meets at most."""
    found = 0
    for node in body:
        if isinstance(node, ast.If):
            found += max(_loops_in_turn(node.body), _loops_in_turn(node.orelse))
        found += isinstance(node, (ast.For, ast.While))
    return found


def _expression(text: str, **parts: ast.expr) -> ast.expr:
    made: ast.expr = _put(expression(text), **parts)
    return made


def _put(tree: Any, **parts: ast.expr) -> Any:
    """Put expressions where names stand."""

    class Put(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return copy.deepcopy(parts[node.id]) if node.id in parts else node

    return Put().visit(tree)
