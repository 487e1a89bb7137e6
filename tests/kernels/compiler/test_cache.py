"""The cache of compiled kernels where it can't be written, is shared, or was left by processes that were killed."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pe_cli
from pe_cli.kernels.compiler import cache
from pe_cli.kernels.compiler.digest import extent, routines
from pe_cli.kernels.compiler.instance import Instance
from pe_cli.kernels.cpu.dot_products import dot_products
from pe_cli.kernels.cpu.gemm import gemm_bias
from pe_cli.kernels.cpu.microkernels import microkernels
from pe_cli.ops.define.copy_kernels import copy
from pe_cli.ops.math.matrix_product import products
from tests.rotation import on_its_day

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(pe_cli.__file__).parents[1])}
CODE = """
from pe_cli.kernels.compiler.loader import addresses
from pe_cli.kernels.compiler.instance import Instance
from pe_cli.kernels.compiler.worker_processes import load
made = addresses([Instance(load("pe_cli.ops.define.copy_kernels:copy"))], lambda done, total, name: print(name.split(":")[-1]))
assert all(made.values())
"""


def compiled(**environment: str) -> str:
    """Compile a kernel in another process and return what is told."""
    given = {**ENVIRONMENT, **environment}
    return subprocess.run([sys.executable, "-c", CODE], env=given, capture_output=True, text=True, check=True).stdout


def test_a_cache_that_cannot_be_written_is_told_and_leaves_nothing_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "tmp").mkdir()
    said = compiled(PE_CACHE_DIR=str(tmp_path / "file" / "cache"), TMPDIR=str(tmp_path / "tmp"))
    assert said == f"copy, which can't be kept in {tmp_path / 'file' / 'cache'} (not a directory)\n"
    assert not list((tmp_path / "tmp").iterdir())


def test_a_user_without_a_home_can_compile(tmp_path: Path) -> None:
    """An account that the system does not know, as containers have."""
    code = "import pwd\ndef nobody(*_): raise KeyError\npwd.getpwuid = nobody\n" + CODE
    unknown = {k: v for k, v in ENVIRONMENT.items() if k not in ("HOME", "PE_CACHE_DIR", "XDG_CACHE_HOME")}
    done = subprocess.run([sys.executable, "-c", code], env=unknown, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "copy, which can't be kept in /dev/null/.cache/pe/kernels (not a directory)" in done.stdout


def test_the_second_process_reads_what_the_first_one_made(tmp_path: Path) -> None:
    assert compiled(PE_CACHE_DIR=str(tmp_path)) == "copy\n"
    assert compiled(PE_CACHE_DIR=str(tmp_path)) == ""


@on_its_day(2, of=3)
def test_a_folder_or_a_file_that_others_may_write_to_does_not_count(tmp_path: Path) -> None:
    tmp_path.chmod(0o770)
    told = f"copy, which can't be kept in {tmp_path} (others may write to it, so it does not count)\n"
    assert compiled(PE_CACHE_DIR=str(tmp_path)) == told
    assert not list(tmp_path.iterdir())
    tmp_path.chmod(0o700)
    assert compiled(PE_CACHE_DIR=str(tmp_path)) == "copy\n"
    (made,) = tmp_path.glob("*.o")
    made.chmod(0o666)
    assert compiled(PE_CACHE_DIR=str(tmp_path)) == f"copy{cache.DAMAGED}\n"
    assert compiled(PE_CACHE_DIR=str(tmp_path)) == ""


def test_what_another_user_has_made_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "folder", lambda: tmp_path)
    cache.store("k", b"object")
    assert cache.read("k") == b"object"
    real = os.fstat

    def fstat(fd: int) -> os.stat_result:
        return os.stat_result([12345 if i == 4 else v for i, v in enumerate(real(fd))])

    monkeypatch.setattr(os, "fstat", fstat)
    assert cache.read("k") == b""


def test_files_that_changed_places_are_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "folder", lambda: tmp_path)
    cache.store("one", b"first")
    cache.store("two", b"second")
    (tmp_path / "one.o").rename(tmp_path / "three.o")
    assert [cache.read(key) for key in ("one", "two", "three")] == [None, b"second", b""]


@pytest.mark.parametrize("mask", ["0", "0o002"])
def test_the_folder_of_a_user_is_closed_to_others_and_a_relative_one_does_not_count(tmp_path: Path, mask: str) -> None:
    code = f"import os; os.umask({mask}); from pe_cli.kernels.compiler import cache; print(cache.folder())"

    def folder(**given: str) -> str:
        known = {k: v for k, v in ENVIRONMENT.items() if k != "PE_CACHE_DIR"} | {"HOME": str(tmp_path / "home")} | given
        done = subprocess.run([sys.executable, "-c", code], env=known, capture_output=True, text=True, check=True, cwd=tmp_path)
        return done.stdout.strip()

    assert folder(XDG_CACHE_HOME="cache") == folder(XDG_CACHE_HOME="") == str(tmp_path / "home" / ".cache" / "pe" / "kernels")
    assert folder(XDG_CACHE_HOME=str(tmp_path / "c")) == str(tmp_path / "c" / "pe" / "kernels")
    (tmp_path / "c" / "pe" / "kernels").chmod(0o775)
    folder(XDG_CACHE_HOME=str(tmp_path / "c"))
    assert (tmp_path / "c" / "pe" / "kernels").stat().st_mode & 0o777 == 0o755


PRODUCTS = """
import numpy as np
from pe_cli.core.types import Place
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.layers.define.registry import find
from pe_cli.program.defaults import program_guard
from pe_cli.program.ir import Program
program = Program("products")
with program_guard(program, Program("startup")):
    x = find("data").fn("x", [40])
    out = find("matmul").fn(x, x, transpose_y=True)
told = lambda done, total, name: print(name.split(":")[-1])
feed = np.arange(200, dtype="float32").reshape(5, 40)
(found,) = Executor(program, Scope([Place("cpu", 0)]), progress=told).run({"x": feed}, [out.name]).values
assert np.allclose(found[out.name], feed @ feed.T)
"""


@on_its_day(1, of=3)
def test_a_routine_is_compiled_once_for_all_kernels_and_again_when_its_object_is_gone(tmp_path: Path) -> None:
    def run() -> set[str]:
        given = {**ENVIRONMENT, "PE_CACHE_DIR": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", PRODUCTS], env=given, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return set(done.stdout.split())

    assert {"products", "gemm_bias", "microkernels"} <= run()
    assert run() == set()
    for called in (microkernels, gemm_bias):
        (tmp_path / f"{Instance(called).key}.o").unlink()
        assert run() == {called.name.split(":")[1]}


def test_what_calls_a_routine_counts_its_code() -> None:
    assert routines(products, "float32") == (gemm_bias.name, microkernels.name, dot_products.name)
    assert routines(gemm_bias, "float32") == (microkernels.name, dot_products.name)
    assert routines(copy, "float32") == routines(products, "int64") == ()
    keys = {Instance(microkernels, dtype).key for dtype in ("float32", "float64")}
    assert len(keys) == 2
    assert extent(products, "float32") > extent(copy, "float32")


def test_a_full_disk_leaves_no_half_of_an_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "folder", lambda: tmp_path)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", full)
    cache.store("0" * 8, b"object")
    assert not list(tmp_path.iterdir())


def test_pruning_bears_that_others_prune_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "folder", lambda: tmp_path)
    monkeypatch.setattr(cache, "MAX_FILES", 2)
    for i in range(5):
        cache.store(f"{i}", b"object")
        os.utime(tmp_path / f"{i}.o", (1000 + i, 1000 + i))
    (tmp_path / "gone.o").symlink_to(tmp_path / "nowhere")  # listed, and gone when it is looked at
    (tmp_path / ".9.killed").touch()
    (tmp_path / ".8.living").touch()
    os.utime(tmp_path / ".9.killed", (0, 0))
    cache.prune()
    assert {path.name for path in tmp_path.iterdir()} == {"3.o", "4.o", ".8.living"}
