"""The tests can be collected with the extra `test` alone, what they need beside it is told, and CI runs what the README says."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from tests import needs
from tests.rotation import on_its_day

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


# --- what test modules import -----------------------------------------------------------------------------------------


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def brought(extra: str) -> set[str]:
    """Return the packages that an extra names, with those of the extras in it, and what pe itself needs."""
    found = {plain(re.match(r"[\w.-]+", text)[0]) for text in PROJECT["dependencies"]}  # type: ignore[index]
    for text in PROJECT["optional-dependencies"][extra]:
        name, parts = re.match(r"([\w.-]+)(?:\[([\w,-]+)\])?", text).groups()  # type: ignore[union-attr]
        if name == "pe-cli":
            found |= set().union(*(brought(part) for part in parts.split(",")))
        else:
            found.add(plain(name))
    return found


def imported_at_once(tree: ast.Module) -> Iterator[str]:
    """Yield what a module imports when it is imported itself: in no function, and not for types alone."""
    left: list[ast.AST] = list(tree.body)
    while left:
        node = left.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
        left += ast.iter_child_nodes(node)


#: By the name of a module, the packages that bring it.
PACKAGES = metadata.packages_distributions()


def others(source: str, allowed: set[str]) -> set[str]:
    """Return the modules outside of the standard library, this project and some packages that a file imports at once."""
    known = {*sys.stdlib_module_names, "pe_cli", "tests", "benchmarks", "docs"}
    return {
        name
        for name in imported_at_once(ast.parse(source))
        if name not in known and not {plain(each) for each in PACKAGES.get(name, [name])} & allowed
    }


def test_every_test_module_can_be_imported_with_the_extra_test_alone() -> None:
    allowed = brought("test")
    assert {"pytest", "pyarrow", "llvmlite", "pillow"} <= allowed
    assert "torch" not in allowed
    files = sorted((ROOT / "tests").rglob("*.py"))
    assert len(files) > 500
    wrong = {str(file.relative_to(ROOT)): found for file in files if (found := others(file.read_text(), allowed))}
    assert not wrong, "what the extra does not bring: take it from tests.needs, or import it in the test"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        pytest.param("import torch.nn\n", {"torch"}, id="a package that is absent"),
        pytest.param("try:\n    from optuna import x\nexcept ImportError:\n    pass\n", {"optuna"}, id="one that may be absent"),
        pytest.param("class A:\n    import jax\n", {"jax"}, id="in a class"),
        pytest.param("def f():\n    import torch\n", set(), id="not in a function"),
        pytest.param("import json, numpy\nfrom tests import needs\n", set(), id="not what is here"),
    ],
)
def test_what_is_imported_at_once_is_found(source: str, found: set[str]) -> None:
    assert others(source, brought("test")) == found


# --- what CI runs -----------------------------------------------------------------------------------------------------


def commands(text: str) -> list[str]:
    """Return the lines of a shell block without comments and without what stands at the end of a line for a reader."""
    return [line for each in text.splitlines() if (line := re.sub(r"(^|\s+)#.*", "", each).strip())]


def readme() -> list[str]:
    """Return the commands of the README's section on two commands."""
    section = (ROOT / "README.md").read_text().partition("## Two commands")[2].partition("\n## ")[0]
    return [line for block in re.findall(r"```sh\n(.*?)```", section, re.S) for line in commands(block)]


def test_ci_runs_the_commands_of_the_readme_letter_by_letter() -> None:
    ci = (ROOT / ".ci" / "run").read_text()
    block = re.search(r"^# The README's commands, letter by letter\n(.*?)^# ---", ci, re.S | re.M)
    assert block is not None
    assert [line for line in commands(block[1]) if not line.startswith("cd ")] == readme()
    assert readme()[:2] == ["make train", "make test"]


def test_the_readme_and_the_package_name_the_same_versions_of_python() -> None:
    tried = re.search(r"\(([\d., and]+) are tried\)", (ROOT / "README.md").read_text())
    assert tried is not None
    classifiers = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if "Python :: 3" in each]
    assert re.findall(r"3\.\d+", tried[1]) == classifiers


# --- tests that are skipped -------------------------------------------------------------------------------------------


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "--rootdir", folder, *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@on_its_day(2, of=3)
def test_what_is_skipped_for_want_of_something_is_told_and_can_be_run_later(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(
        "import os\nimport pytest\nfrom tests import needs\n"
        "made = abs if 'HERE' in os.environ else needs.Absent('torch', 'torch').nn.Linear\n"
        "def test_a():\n    made(2)\n"
        "@pytest.mark.parametrize('given', [made])\ndef test_given(given): given(2)\n"
        "@needs.needs('HERE' in os.environ, 'a card', 'buy one: here')\ndef test_b(): pass\n"
        "def test_c(): pass\n"
    )
    (tmp_path / "test_two.py").write_text("import pytest\ndef test_d(): pytest.skip('of no use here')\n")
    refused = run(tmp_path, needs.OPTION)
    assert refused.returncode == 4
    assert "run make test first" in refused.stderr
    first = run(tmp_path)
    assert "2 skipped for want of PyTorch: pip install '.[dev]'\n     1 skipped for want of a card: buy one: here" in first.stdout
    assert "1 passed, 4 skipped" in first.stdout
    again = run(tmp_path, needs.OPTION)
    assert "2 skipped for want of PyTorch: pip install '.[dev]'\n     1 skipped for want of a card: buy one: here" in again.stdout
    assert "3 skipped, 1 deselected" in again.stdout
    environment = pytest.MonkeyPatch()
    with environment.context() as here:
        here.setenv("HERE", "1")
        later = run(tmp_path, needs.OPTION)
    assert "3 passed, 1 deselected" in later.stdout
    assert "no test was skipped for want of something" in later.stdout
