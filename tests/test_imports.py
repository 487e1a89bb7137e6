"""No two modules know each other, however they import: at the top, for types alone, or when a function is called."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def modules(folder: str) -> dict[str, Path]:
    found = sorted((ROOT / folder).rglob("*.py"))
    return {".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p for p in found}


def imported(path: Path, known: dict[str, Path], beside: str) -> Iterator[str]:
    """Yield the modules that a file imports; those of a folder of scripts go by their names alone."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            # a name may be a module itself; only then does the package that holds it not count
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in known else node.module for name in whole]
        yield from (name for full in names for name in (full, f"{beside}.{full}") if name in known)


def circle(folder: str) -> list[str]:
    """Return modules of which each imports the next, and the last is the first; none where there are no such."""
    known = modules(folder)
    graph = {name: {other for other in imported(path, known, folder) if other != name} for name, path in known.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


@pytest.mark.parametrize("folder", ["pe_cli", "benchmarks"])
def test_there_are_no_circles(folder):
    assert len(modules(folder)) > 10
    assert circle(folder) == []


def test_a_circle_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.test_imports.ROOT", tmp_path)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "one.py").write_text("def f():\n    from code.two import g\n")
    (tmp_path / "code" / "two.py").write_text("from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    import code.one\n")
    assert sorted(set(circle("code"))) == ["code.one", "code.two"]
