"""The package as `pip` builds and installs it: everything that it needs is in it, and it says what it depends on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel from a copy, which leaves nothing in the sources."""
    pytest.importorskip("setuptools")
    copy = tmp_path_factory.mktemp("sources")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "pe_cli", copy / "pe_cli", ignore=shutil.ignore_patterns("__pycache__"))
    code = "import setuptools.build_meta as build; print(build.build_wheel('out'))"
    (copy / "out").mkdir()
    done = subprocess.run([sys.executable, "-c", code], cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    (found,) = (copy / "out").glob("*.whl")
    return found


def test_every_file_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    sources = {str(p.relative_to(ROOT)) for p in (ROOT / "pe_cli").rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    with zipfile.ZipFile(wheel) as archive:
        packed = {re.sub(r".*\.data/scripts/", "pe_cli/cli/", name) for name in archive.namelist()}
    assert sources - packed == set()


def test_what_pip_installs_from_the_wheel_trains(wheel: Path, tmp_path: Path) -> None:
    pytest.importorskip("pip")
    options = ("--ignore-installed", "--no-index", "--no-deps", "--no-compile", "--quiet")  # what is installed stays
    command = [sys.executable, "-m", "pip", "install", *options, "--prefix", tmp_path, wheel]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (package,) = tmp_path.rglob("pe_cli/__init__.py")
    environment = os.environ | {"PYTHONPATH": str(package.parents[1])}
    config, into = ROOT / "configs" / "digits.yaml", f"output.dir={tmp_path / 'runs'}"
    (pe,) = tmp_path.rglob("bin/pe")
    done = subprocess.run([pe, "train", config, "--smoke", "-o", into], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    code = "import pe_cli; print(pe_cli.__file__)"
    where = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert where.stdout.strip() == str(package)


def test_the_page_has_every_dependency() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text()
    wanted = [*PROJECT["dependencies"], *(name for names in PROJECT["optional-dependencies"].values() for name in names)]
    names = {re.match(r"[\w.-]+", text)[0] for text in wanted} - {"pe-cli"}  # type: ignore[index]
    missing = sorted(name for name in names if not re.search(rf"\b{re.escape(name)}\b", page))
    assert not missing
