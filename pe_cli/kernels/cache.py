"""Kernels by address: compiled on first need, kept on disk, loaded without numba the next time."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import llvmlite.binding as llvm

from pe_cli.kernels.digest import digest, routines
from pe_cli.kernels.lang import KERNELS, Kernel
from pe_cli.kernels.target import cpu_name, features, vector_bytes

MAGIC = b"pe-kernel-1\n"
#: Follows the name of a kernel that is compiled though the cache has it.
DAMAGED = ", whose file in the cache was damaged"
#: Objects kept on disk; the least recently used go first.
MAX_FILES = 4000
#: Seconds after which an unfinished object is that of a process that was killed.
ABANDONED = 3600.0


@dataclass(frozen=True)
class Instance:
    """A kernel for element types: what is compiled once and has one address."""

    kernel: Kernel
    dtype: str = "float32"
    second: str = "float32"

    @property
    def key(self) -> str:
        """Content hash: names the object file and its symbol."""
        return _key(self)

    @property
    def line(self) -> str:
        """Name for compile workers and progress lines."""
        return f"{self.kernel.name} {self.dtype} {self.second}"


@functools.cache
def _key(instance: Instance) -> str:
    return digest(instance.kernel, instance.dtype, instance.second, _environment())


def symbol(instance: Instance) -> str:
    """Return the name of an instance's function."""
    return f"pe_{instance.key}"


@functools.cache
def _environment() -> str:
    versions = [importlib.metadata.version(name) for name in ("numba", "llvmlite")]
    return "|".join([*versions, cpu_name(), features(), str(vector_bytes()), llvm.get_default_triple()])


@functools.cache
def folder() -> Path:
    """Return the cache folder: `$PE_CACHE_DIR`, else `$XDG_CACHE_HOME/pe/kernels`; made on first use where that can be."""
    base = os.environ.get("PE_CACHE_DIR")
    path = Path(base) if base else Path(os.environ.get("XDG_CACHE_HOME") or _home() / ".cache") / "pe" / "kernels"
    with contextlib.suppress(OSError):
        path.mkdir(parents=True, exist_ok=True)
    return path


def _home() -> Path:
    """Return the user's folder; one that cannot exist for a user who has none, so that nothing is kept."""
    try:
        return Path.home()
    except RuntimeError:
        return Path(os.devnull)


def _unkept() -> str:
    """Return why nothing can be written to the cache, as the end of a kernel's name; empty where it can."""
    try:
        with tempfile.TemporaryFile(dir=folder()) as file:
            file.write(bytes(4096))
    except OSError as error:
        return f", which can't be kept in {folder()} ({(error.strerror or str(error)).lower()})"
    return ""


def _read(key: str) -> bytes | None:
    """Return an object; None where there is none, nothing where there is a damaged one, which is removed."""
    path = folder() / f"{key}.o"
    try:
        blob = path.read_bytes()
    except OSError:
        return None
    body = blob[len(MAGIC) + 32 :]
    good = blob.startswith(MAGIC) and hashlib.sha256(body).digest() == blob[len(MAGIC) : len(MAGIC) + 32]
    if not good:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        return b""
    with contextlib.suppress(OSError):
        os.utime(path)
    return body


def store(key: str, body: bytes) -> None:
    """Write an object atomically; a cache that cannot be written is no error."""
    with contextlib.suppress(OSError):
        fd, name = tempfile.mkstemp(dir=folder(), prefix=f".{key}.")
        try:
            with os.fdopen(fd, "wb") as f:
                f.write(MAGIC + hashlib.sha256(body).digest() + body)
            Path(name).replace(folder() / f"{key}.o")
        except OSError:
            Path(name).unlink()
            raise


def _prune() -> None:
    """Remove the oldest objects, and what killed processes left; others may do the same now."""
    for path in sorted(folder().glob("*.o"), key=_used, reverse=True)[MAX_FILES:]:
        with contextlib.suppress(OSError):
            path.unlink()
    for path in folder().glob(".*.*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > ABANDONED:
                path.unlink()


def _used(path: Path) -> float:
    """Return when a file was used last; 0 where it is gone."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


_MAKING = threading.Lock()


class _Engine:
    """LLVM's loader; lives as long as the process."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine()
        self.engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        self.addresses: dict[str, int] = {}
        self.objects: list[tuple[bytes, object]] = []  # LLVM reads them when it likes, until the process ends
        self.lock = threading.Lock()

    def load(self, objects: dict[str, bytes]) -> None:
        for body in objects.values():
            held = llvm.ObjectFileRef.from_data(body)
            self.objects.append((body, held))
            self.engine.add_object_file(held)
        self.engine.finalize_object()
        for key in objects:
            self.addresses[key] = self.engine.get_function_address(f"pe_{key}")


@functools.cache
def _only_engine() -> _Engine:
    return _Engine()


def _engine() -> _Engine:
    # two threads that ask at the same time would each be given one, and each would know half of the addresses
    with _MAKING:
        return _only_engine()


def _telling(progress: Callable[[int, int, str], None] | None, damaged: set[str]) -> Callable[[int, int, str], None] | None:
    """Return what is told about compilation, with a word on kernels that are compiled again, or will be."""
    if progress is None:
        return None
    unkept = _unkept()
    return lambda done, total, name: progress(done, total, f"{name}{DAMAGED * (name in damaged)}{unkept}")


def compile_instance(instance: Instance) -> bytes:
    """Compile in this process, store, and return the object."""
    from pe_cli.kernels.compiler import compile_kernel

    body = compile_kernel(instance.kernel, instance.dtype, instance.second, symbol(instance))
    store(instance.key, body)
    return body


def addresses(
    instances: Iterable[Instance], progress: Callable[[int, int, str], None] | None = None
) -> dict[Instance, int]:
    """Return the address of every instance, compiling what no cache holds.

    Args:
        instances: what a plan needs.
        progress: called with (done, total, name) for each kernel that has to be compiled.

    Returns:
        Addresses of C functions `void f(int64 *record)`; valid until the process ends.
    """
    from pe_cli.kernels.workers import compile_all

    wanted = list(dict.fromkeys(instances))
    wanted += dict.fromkeys(Instance(KERNELS[n], i.dtype) for i in wanted for n in routines(i.kernel, i.dtype))
    engine = _engine()
    with engine.lock:
        missing = {i.key: i for i in wanted if i.key not in engine.addresses}
        read = {key: _read(key) for key in missing}
        objects = {key: body for key, body in read.items() if body}
        absent = [i for key, i in missing.items() if key not in objects]
        if absent:
            damaged = {missing[key].kernel.name for key, body in read.items() if body == b""}
            objects |= compile_all(absent, _telling(progress, damaged))
            _prune()
        if objects:
            engine.load(objects)
        return {i: engine.addresses[i.key] for i in wanted}
