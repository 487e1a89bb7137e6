"""Vectorizes distributed loops on CUDA: a thread takes four neighbouring iterations, with 16-byte loads and stores.

A loop qualifies where it walks arrays element by element, `x[i]`, and does nothing that four copies of its body one after the other
would not do: it has no loop in it, and no array that is walked so is used in another way. What else it reads, `rate[0]` or
`y[i // n]`, stays as it is. Arrays of 8-byte elements take two accesses, those of bytes one of 4 bytes.
"""

from __future__ import annotations

import ast
import copy
import functools
from collections.abc import Mapping
from typing import Any

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import BFLOAT16, DTYPES, computed
from pe_cli.kernels.compiler.parsing import statements
from pe_cli.kernels.cpu.bfloat16_conversion import round_bfloat16, widen_bfloat16
from pe_cli.kernels.language import Intrinsic

#: Iterations that a thread does at a time.
WIDTH = 4
#: Bytes of an element.
SIZES = DTYPES
#: Bytes of the largest access.
ACCESS = 16
#: Statements and expressions of a body that is copied for every iteration; longer ones are bound by what they compute.
MOST_PARTS = 160
#: Beginnings of names in rewritten text, of an element type each: an array's place, one of four elements, four elements stored, a number
#: of that type.
PLACE, TAKE, PUT, AS = "_place_", "_take_", "_put_", "_as_"


@dataclass(frozen=True)
class Wide:
    """A loop by fours.

    Args:
        body: what a thread does with iterations 4 g to 4 g + 3, g being the name given.
        aligned: an expression that tells whether the arrays lie so that it may.
        elements: types of the arrays.
    """

    body: list[ast.stmt]
    aligned: str
    elements: frozenset[str]


def widened(loop: ast.For, group: str, arrays: Mapping[str, str]) -> Wide | None:
    """Return a loop over a range from 0 by fours; None where it does not qualify.

    Args:
        loop: its target is a name.
        group: variable that numbers fours.
        arrays: pointer parameter -> element type.
    """
    assert isinstance(loop.target, ast.Name)
    walked = _walked(loop, loop.target.id, arrays)
    if not walked or not _is_plain(loop.body):
        return None
    stored = {name for name in walked if any(_is_store(n, name) for n in ast.walk(loop))}
    # Arrays that are only written are loaded too: the body may store under a condition, and all four elements go back by one store.
    made = [f"{_lane(name, k)} = {TAKE}{walked[name]}({name}, {group}, {k})" for name in walked for k in range(WIDTH)]
    body = statements("\n".join(made))
    for k in range(WIDTH):
        body += statements(f"{loop.target.id} = _i64(_u32({group} * _u32({WIDTH}) + _u32({k})))")
        body += [_Lane(loop.target.id, walked, k).visit(copy.deepcopy(statement)) for statement in loop.body]
    for name in sorted(stored):
        body += statements(f"{PUT}{walked[name]}({name}, {group}, {', '.join(_lane(name, k) for k in range(WIDTH))})")
    aligned = " | ".join(f"({PLACE}{kind}({name}) & {_alignment(kind) - 1})" for name, kind in walked.items())
    return Wide(body, f"({aligned}) == 0", frozenset(walked.values()))


def _lane(name: str, k: int) -> str:
    return f"_{name}_{k}"


def _alignment(element: str) -> int:
    return min(ACCESS, WIDTH * SIZES[element])


def _is_plain(body: list[ast.stmt]) -> bool:
    """Return whether statements run from the first to the last, and are few."""
    parts = [part for statement in body for part in ast.walk(statement)]
    kinds = (ast.For, ast.While, ast.Break, ast.Continue, ast.Return, ast.Lambda, ast.comprehension)
    return len(parts) <= MOST_PARTS and not any(isinstance(part, kinds) for part in parts)


def _is_at(node: ast.AST, index: str) -> bool:
    return (
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and isinstance(node.slice, ast.Name)
        and node.slice.id == index
    )


def _is_store(node: ast.AST, name: str) -> bool:
    return (
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id == name
        and isinstance(node.ctx, ast.Store)
    )


def _walked(loop: ast.For, index: str, arrays: Mapping[str, str]) -> dict[str, str]:
    """Return arrays that are used as `x[index]` only; none where one that is written is used otherwise, or the index is changed."""
    walked: dict[str, str] = {}
    otherwise: set[str] = set()

    def look(node: ast.AST) -> None:
        if _is_at(node, index) and node.value.id in arrays:  # type: ignore[attr-defined]
            walked[node.value.id] = arrays[node.value.id]  # type: ignore[attr-defined]
            return
        if isinstance(node, ast.Name):
            if node.id in arrays:
                otherwise.add(node.id)
            if node.id == index and isinstance(node.ctx, ast.Store):
                # Behind a change of the index, x[index] is no walk along the array.
                otherwise.update(arrays)
        for child in ast.iter_child_nodes(node):
            look(child)

    for statement in loop.body:
        look(statement)
    written = {name for name in arrays if any(_is_store(n, name) for n in ast.walk(loop))}
    return {} if otherwise & written else {name: kind for name, kind in walked.items() if name not in otherwise}


class _Lane(ast.NodeTransformer):
    """Puts one of four elements where a body has an array's element; what is stored is first made of the array's type."""

    def __init__(self, index: str, walked: Mapping[str, str], k: int) -> None:
        self.index, self.walked, self.k = index, walked, k

    def _meant(self, node: ast.AST) -> str | None:
        if _is_at(node, self.index) and node.value.id in self.walked:  # type: ignore[attr-defined]
            return str(node.value.id)  # type: ignore[attr-defined]
        return None

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        name = self._meant(node)
        return ast.Name(_lane(name, self.k), node.ctx) if name else self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        names = [name for name in map(self._meant, node.targets) if name]
        self.generic_visit(node)
        if len(node.targets) == 1 and names:
            node.value = self._of_type(names[0], node.value)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        name = self._meant(node.target)
        self.generic_visit(node)
        if not name:
            return node
        lane = _lane(name, self.k)
        total = ast.BinOp(ast.Name(lane, ast.Load()), node.op, node.value)
        return ast.Assign([ast.Name(lane, ast.Store())], self._of_type(name, total))

    def _of_type(self, name: str, value: ast.expr) -> ast.expr:
        kind = self.walked[name]
        if kind == BFLOAT16:
            # First float32, then bfloat16, as a plain store to such an array does it.
            value = ast.Call(ast.Name(AS + computed(kind), ast.Load()), [value], [])
        return ast.Call(ast.Name(AS + kind, ast.Load()), [value], [])


# --- instructions -----------------------------------------------------------------------------------------------------


def _vector(element: str, count: int) -> Any:
    from llvmlite import ir

    kind = {"float32": ir.FloatType(), "float64": ir.DoubleType()}.get(element, ir.IntType(8 * SIZES[element]))
    return ir.VectorType(kind, count)


def _pieces(env: Any, element: str, array: Any, group: Any) -> list[Any]:
    """Return the pointers to the vectors that four elements are."""
    from llvmlite import ir

    count = min(WIDTH, ACCESS // SIZES[element])
    first = env.builder.shl(env.builder.zext(group, ir.IntType(64)), ir.IntType(64)(2))
    places = [env.builder.add(first, ir.IntType(64)(at)) for at in range(0, WIDTH, count)]
    kind = _vector(element, count).as_pointer()
    return [env.builder.bitcast(env.builder.gep(array, [place]), kind) for place in places]


def _place(env: Any, args: list[Any], element: str) -> Any:
    from llvmlite import ir

    del element
    return env.builder.ptrtoint(args[0], ir.IntType(64))


def _take(env: Any, args: list[Any], element: str) -> Any:
    """Load all four and return that of a constant number: LLVM makes one access of the four."""
    from llvmlite import ir

    count = min(WIDTH, ACCESS // SIZES[element])
    loaded = [env.builder.load(piece, align=_alignment(element)) for piece in _pieces(env, element, args[0], args[1])]
    found = None
    for k in range(WIDTH):
        value = env.builder.extract_element(loaded[k // count], ir.IntType(32)(k % count))
        value = widen_bfloat16(env.builder, value) if element == BFLOAT16 else value
        wanted = env.builder.icmp_signed("==", args[2], ir.IntType(64)(k))
        found = value if found is None else env.builder.select(wanted, value, found)
    return found


def _put(env: Any, args: list[Any], element: str) -> Any:
    from llvmlite import ir

    count = min(WIDTH, ACCESS // SIZES[element])
    for p, piece in enumerate(_pieces(env, element, args[0], args[1])):
        value = ir.Constant(_vector(element, count), ir.Undefined)
        for k in range(count):
            held = args[2 + p * count + k]
            held = _upper(env, held) if element == BFLOAT16 else held
            value = env.builder.insert_element(value, held, ir.IntType(32)(k))
        env.builder.store(value, piece, align=_alignment(element))


def _upper(env: Any, number: Any) -> Any:
    """Return the bfloat16 that a number of float32 is, which has been rounded to one."""
    from llvmlite import ir

    word = env.builder.bitcast(number, ir.IntType(32))
    return env.builder.trunc(env.builder.lshr(word, ir.IntType(32)(16)), ir.IntType(16))


def _rounded(env: Any, args: list[Any], element: str) -> Any:
    del element
    return widen_bfloat16(env.builder, round_bfloat16(env.builder, args[0]))


@functools.cache
def meanings(element: str, intrinsic: type[Intrinsic]) -> dict[str, Any]:
    """Return what the names of rewritten text mean for an element type; intrinsic: what instructions are made of."""
    import numpy as np

    def made(begin: str, emit: Any, returns: str, *args: str) -> Intrinsic:
        def emitted(env: Any, values: list[Any]) -> Any:  # a function, so that its code is part of a kernel's hash
            return emit(env, values, element)

        return intrinsic(begin + element, returns, args, emitted)

    array, number = f"{element}*", computed(element)
    rounded = {} if element == number else {AS + element: made(AS, _rounded, number, number)}
    return {
        PLACE + element: made(PLACE, _place, "int64", array),
        TAKE + element: made(TAKE, _take, number, array, "uint32", "int64"),
        PUT + element: made(PUT, _put, "void", array, "uint32", *[number] * WIDTH),
        AS + number: getattr(np, number),
        **rounded,
    }
