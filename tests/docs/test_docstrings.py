"""Public functions and classes that raise say what, and why."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Docstrings of commands are their help.
FILES = [p for p in sorted((ROOT / "pe_cli").rglob("*.py")) if "cli" not in p.relative_to(ROOT / "pe_cli").parts]


def functions(body: list[ast.stmt], of: str = "", about: str | None = None) -> Iterator[tuple[str, ast.FunctionDef, str | None]]:
    """Yield the public functions and methods of a module with their names and docstrings; a class's stands for its constructor."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from functions(node.body, f"{of}{node.name}.", ast.get_docstring(node))
        elif isinstance(node, ast.FunctionDef) and node.name == "__init__":
            yield of.removesuffix("."), node, about
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield f"{of}{node.name}", node, ast.get_docstring(node)


def raised(function: ast.FunctionDef) -> list[str]:
    """Return what a function raises itself, but for what only says that a subclass must do the work."""
    found = [node.exc for node in ast.walk(function) if isinstance(node, ast.Raise) and node.exc is not None]
    # an error that was caught and is raised again was raised elsewhere
    made = [ast.unparse(exc) for exc in found if isinstance(exc, ast.Call)]
    return [text for text in made if not text.startswith("NotImplementedError")]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(ROOT / "pe_cli").as_posix())
def test_what_is_raised_is_documented(path):
    silent = []
    for name, function, doc in functions(ast.parse(path.read_text(encoding="utf-8")).body):
        if doc and "Raises:" not in doc and raised(function):
            silent.append(f"{name}: {raised(function)[0][:80]}")
    assert not silent
