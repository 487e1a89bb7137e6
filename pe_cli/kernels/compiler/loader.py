"""Loads kernels and returns their addresses: compiled on first use, and kept on disk."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable

import llvmlite.binding as llvm

from pe_cli.kernels.compiler import bounds_check, cache
from pe_cli.kernels.compiler.digest import routines
from pe_cli.kernels.compiler.instance import Instance
from pe_cli.kernels.language import KERNELS

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
        if bounds_check.CHECKED:
            body = bounds_check.checker()
            held = llvm.ObjectFileRef.from_data(body)
            self.objects.append((body, held))
            self.engine.add_object_file(held)

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
    unkept = cache.unkept()
    return lambda done, total, name: progress(done, total, f"{name}{cache.DAMAGED * (name in damaged)}{unkept}")


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
    from pe_cli.kernels.compiler.worker_processes import compile_all

    wanted = list(dict.fromkeys(instances))
    # Kernels call routines by their symbols, which are resolved when the objects are finalised, so their objects come along.
    wanted += dict.fromkeys(Instance(KERNELS[n], i.dtype) for i in wanted for n in routines(i.kernel, i.dtype))
    engine = _engine()
    # Held during compilation too: another thread that wants the same kernels waits instead of compiling them again.
    with engine.lock:
        missing = {i.key: i for i in wanted if i.key not in engine.addresses}
        read = {key: cache.read(key) for key in missing}
        objects = {key: body for key, body in read.items() if body}
        absent = [i for key, i in missing.items() if key not in objects]
        if absent:
            damaged = {missing[key].kernel.name for key, body in read.items() if body == b""}
            objects |= compile_all(absent, _telling(progress, damaged))
            cache.prune()
        if objects:
            engine.load(objects)
        return {i: engine.addresses[i.key] for i in wanted}
