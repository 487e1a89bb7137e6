"""An address sanitizer for the native tape and pool: `python -m pytest -p tests.sanitized ...`.

Every load, store and atomic of the loops in `pe_cli.devices.native_loops` is looked up in a shadow of all addresses, a byte for eight, as
AddressSanitizer does with its checks in functions of their own. Set are the bytes of arrays that the tape, the pool and the stamps hold
now. Anything else, an array that is gone too, ends the process and is told: address, size, load or store. LLVM's own pass is in llvmlite's
library, but nothing in there gives it out, so that the checks are written into the text, as `PE_CHECK_BOUNDS` does for kernels.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import sys
import weakref
from types import ModuleType
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from pe_cli.devices import native_loops, tape, thread_pool, timestamps
from pe_cli.kernels.compiler import bounds_check as bounds
from pe_cli.kernels.compiler import compiler
from pe_cli.kernels.compiler.digest import routines
from pe_cli.kernels.compiler.instance import Instance, symbol
from pe_cli.kernels.language import KERNELS

#: Bytes of the shadow: eight addresses of 47 bits have one.
SHADOW = 1 << 44
_PRIVATE, _ANONYMOUS, _NORESERVE, _READ_WRITE = 2, 0x20, 0x4000, 3
_ATOMIC = re.compile(
    r"^(.* (?:load atomic i64|store atomic i64 [^,]+|atomicrmw \w+|cmpxchg)(?:, ptr| ptr) ?)(%[\w.\-]+|%\"[^\"]+\")(, .*| .*)$"
)
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_BEGIN = _LIBC.mmap(None, SHADOW, _READ_WRITE, _PRIVATE | _ANONYMOUS | _NORESERVE, -1, 0)
assert _BEGIN not in (None, ctypes.c_void_p(-1).value), os.strerror(ctypes.get_errno())


@ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
def _told(address: int, size: int, stores: int) -> None:
    os.write(2, f"native loops: {'store to' if stores else 'load of'} {size} bytes at {address:#x}, which no array holds\n".encode())
    os.abort()


def _set(address: int, nbytes: int, value: int) -> None:
    first, last = address >> 3, (address + nbytes + 7) >> 3
    ctypes.memset(_BEGIN + first, value, last - first)


def held(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Let the native loops touch an array for as long as it lives."""
    if array.nbytes:
        _set(array.ctypes.data, array.nbytes, 1)
        weakref.finalize(array, _set, array.ctypes.data, array.nbytes, 0).atexit = False
    return array


class _Held(ModuleType):
    """NumPy whose new arrays may be touched."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        return (lambda *args, **kwargs: held(found(*args, **kwargs))) if name in ("zeros", "array", "full") else found


def _check() -> str:
    """Return the function that the loops call with an address before they use it."""
    return f"""
define internal ptr @{bounds.CHECK}(ptr %p, i64 %size, i64 %stores) noinline {{
entry:
  %a = ptrtoint ptr %p to i64
  %frame = alloca i8
  %s = ptrtoint ptr %frame to i64
  %above = sub i64 %a, %s
  %own = icmp ult i64 %above, {bounds.STACK}
  br i1 %own, label %good, label %look
look:
  %granule = lshr i64 %a, 3
  %at = add i64 %granule, {_BEGIN}
  %q = inttoptr i64 %at to ptr
  %set = load i8, ptr %q
  %live = icmp ne i8 %set, 0
  %low = and i64 %a, 7
  %end = add i64 %low, %size
  %whole = icmp ule i64 %end, 8
  %fine = and i1 %live, %whole
  br i1 %fine, label %good, label %bad
good:
  ret ptr %p
bad:
  %told = inttoptr i64 {ctypes.cast(_told, ctypes.c_void_p).value} to ptr
  call void %told(i64 %a, i64 %size, i64 %stores)
  ret ptr %p
}}
"""


def sanitized(text: str) -> str:
    """Return the LLVM text of a loop in which every access is looked up."""
    lines, number = [], 0
    for line in text.splitlines():
        found = _ATOMIC.match(line)
        if found:
            number += 1
            lines.append(f"  %pe.atomic.{number} = call ptr @{bounds.CHECK}(ptr {found[2]}, i64 8, i64 {int('load atomic' not in line)})")
            line = f"{found[1]}%pe.atomic.{number}{found[3]}"
        lines.append(line)
    assert number or "atomic" not in text, "the text of atomics is another"
    return bounds.checking("\n".join(lines), "").replace(f"declare ptr @{bounds.CHECK}(ptr, i64, i64)", "") + _check()


def _object(instance: Instance) -> bytes:
    """Compile a loop, or what it calls by its symbol, with checks."""
    texts: list[str] = []
    plain = compiler._optimise
    compiler._optimise = lambda module: texts.append(str(module))  # type: ignore[assignment]
    try:
        compiler.compile_kernel(instance.kernel, instance.dtype, instance.second, symbol(instance))
    finally:
        compiler._optimise = plain
    module = llvm.parse_assembly(sanitized(texts[0]))
    plain(module)
    return bytes(compiler._machine().emit_object(module))


@functools.cache
def _loop(kernel: Any) -> Any:
    """Return a loop of `native` with checks, as a ctypes function that keeps it alive."""
    first = Instance(kernel)
    bodies = [_object(i) for i in (first, *(Instance(KERNELS[name]) for name in routines(kernel, first.dtype)))]
    files = [llvm.ObjectFileRef.from_data(body) for body in bodies]
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), llvm.Target.from_default_triple().create_target_machine())
    for file in files:
        engine.add_object_file(file)
    engine.finalize_object()
    function = thread_pool._FUNCTION(engine.get_function_address(symbol(first)))
    function.kept = engine, bodies, files  # type: ignore[attr-defined]
    return function


_plain = thread_pool.native_function


def native_function(kernel: Any) -> Any:
    return _loop(kernel) if kernel.fn.__module__ == native_loops.__name__ else _plain(kernel)


llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
for changed in (tape, thread_pool, timestamps):
    changed.np = _Held("numpy")  # type: ignore[attr-defined]
    changed.native_function = native_function
sys.modules.setdefault("tests.sanitized", sys.modules[__name__])
