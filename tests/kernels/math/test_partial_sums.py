"""A loop that sums and writes memory is compiled twice, for overlapping and for disjoint buffers, and the two sum in another order."""

import ast
from pathlib import Path

import pytest

import pe_cli

#: Where one buffer may be another: what ops share, and files of ops that work in place.
FILES = sorted(
    p
    for folder in ("kernels", "ops")
    for p in (Path(pe_cli.__file__).parent / folder).rglob("*.py")
    if (folder == "kernels" and p.name != "__init__.py") or "inplace" in p.read_text()
)


def innermost_loops(tree):
    """Yield the loops without loops of all functions of the kernel language."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and any(
            "kernel" in ast.unparse(d) or "helper" in ast.unparse(d) for d in function.decorator_list
        ):
            for loop in ast.walk(function):
                if isinstance(loop, ast.For) and not any(
                    isinstance(n, ast.For | ast.While) for s in loop.body for n in ast.walk(s)
                ):
                    yield function.name, loop


def mixes(loop):
    """Tell whether a loop adds to a variable that lives through it, and writes to a buffer, but not that very sum."""
    nodes = [n for statement in loop.body for n in ast.walk(statement)]
    fresh = {n.targets[0].id for n in nodes if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)}
    sums = {
        n.target.id
        for n in nodes
        if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name) and not isinstance(n.value, ast.Constant)
    } - fresh
    stores = [n for n in nodes if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Subscript)]
    running = {m.id for n in stores for m in ast.walk(n.value) if isinstance(m, ast.Name)}
    writes = [n for n in nodes if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store)]
    return bool(writes and sums - running)


def test_no_loop_sums_and_writes_at_once():
    found = [
        f"{file.name}: {name}: line {loop.lineno}"
        for file in FILES
        for name, loop in innermost_loops(ast.parse(file.read_text()))
        if mixes(loop)
    ]
    assert not found


@pytest.mark.parametrize(
    ("text", "mixed"),
    [
        pytest.param("out[i] = x[i]\n    total += x[i]", True, id="a sum beside a copy"),
        pytest.param("total += x[i]\n    out[i] = total", False, id="a running sum has one order"),
        pytest.param("total += x[i]", False, id="a sum alone"),
        pytest.param("d = x[i]\n    d *= 2\n    out[i] = d", False, id="a value of one round"),
    ],
)
def test_the_search_finds(text, mixed):
    loop = ast.parse(f"for i in range(n):\n    {text}").body[0]
    assert mixes(loop) is mixed
