"""From a function to the syntax tree of its text, which is looked up and held against its bytecode."""

from __future__ import annotations

import ast
import functools
import linecache
import types
from typing import Any

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.kernels.compiler.parsing import statements
from pe_cli.kernels.language import TEXTS


def tree_of(fn: types.FunctionType) -> ast.FunctionDef | ast.Lambda:
    """Return the syntax tree of a function.

    Raises:
        PeError: its text cannot be read, or says something else than its bytecode: a file that has changed since it was imported.
    """
    code = fn.__code__
    # Several lambdas may begin in the same line; only their bytecode tells which one is meant.
    for tree in _places(code.co_filename, _text(code.co_filename, fn)).get(code.co_firstlineno, ()):
        if _says(tree, fn):
            found: ast.FunctionDef | ast.Lambda = tree
            return found
    raise PeError(
        f"the text of kernel function {fn.__qualname__} (line {code.co_firstlineno} of {code.co_filename}) is not to be found",
        hint="a file that was changed while this process runs: start it again; text of your own: compile it with kernel_code()",
        code=ExitCode.BUG,
    )  # fmt: skip


def _text(name: str, fn: types.FunctionType) -> str:
    return TEXTS.get(name) or "".join(linecache.getlines(name, fn.__globals__))


@functools.lru_cache(maxsize=64)
def _places(name: str, text: str) -> dict[int, list[Any]]:
    """Return the functions of a text by the line that they begin at, that of their first decorator."""
    found: dict[int, list[Any]] = {}
    for node in (n for statement in statements(text) for n in ast.walk(statement)):
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            lines = [node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))]
            found.setdefault(min(lines), []).append(node)
    return found


def _says(tree: ast.FunctionDef | ast.Lambda, fn: types.FunctionType) -> bool:
    """Whether a tree compiles to the function's code, but for places."""
    code = fn.__code__
    outer = _shell()
    free: list[ast.stmt] = [ast.Assign([ast.Name(name, ast.Store())], ast.Constant(None)) for name in code.co_freevars]
    if isinstance(tree, ast.Lambda):
        outer.body = [*free, ast.Return(tree)]
    else:
        inner = _shell()
        # by a name that no text has: the function may call itself
        inner.name, inner.body, inner.args.args = "the function", tree.body, [ast.arg(a.arg) for a in tree.args.args]
        outer.body = [*free, inner]
    # a call of what a module holds is another instruction where the compiler sees the import
    held = [name for name in code.co_names if isinstance(fn.__globals__.get(name), types.ModuleType)]
    imports: list[ast.stmt] = [ast.Import([ast.alias(name)]) for name in held]
    made = compile(ast.fix_missing_locations(ast.Module([*imports, outer], [])), "<kernel>", "exec", dont_inherit=True)
    (whole,) = (c for c in made.co_consts if isinstance(c, types.CodeType))
    return any(_told(c) == _told(code) for c in whole.co_consts if isinstance(c, types.CodeType))


def _shell() -> ast.FunctionDef:
    (made,) = statements("def outer(): pass")
    assert isinstance(made, ast.FunctionDef)
    return made


def _told(code: types.CodeType) -> tuple[Any, ...]:
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, repr(code.co_consts)
