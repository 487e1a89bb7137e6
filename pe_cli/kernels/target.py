"""Facts of this machine's processor that kernels are compiled for."""

from __future__ import annotations

import functools
import os

import llvmlite.binding as llvm

#: Processors, as LLVM names them, with AVX-512 and multiply-adds of 64 bytes a cycle, so that two of 32 bytes take no longer. Others
#: do 128.
HALVING = ("znver4", "cannonlake", "icelake-client", "rocketlake", "tigerlake")


@functools.cache
def cpu_name() -> str:
    """Return LLVM's name of the processor, such as `znver4`."""
    return str(llvm.get_host_cpu_name())


@functools.cache
def features() -> str:
    """Return LLVM's feature string, such as `+avx2,+fma,...`; sorted, so that it can key a cache.

    For Intel's processors LLVM makes vectors of half a register, against lower clocks of some; where kernels' own are whole, it shall not.
    """
    found = llvm.get_host_cpu_features() | ({"prefer-256-bit": False} if vector_bytes() == 64 else {})
    return ",".join(sorted(f"{'+' if on else '-'}{name}" for name, on in found.items()))


@functools.cache
def vector_bytes() -> int:
    """Return the bytes of a vector register that kernels are written for: 64, 32 or 16.

    `PE_VECTOR_BYTES` overrides it (tests run the narrow paths on wide machines with it).
    """
    forced = os.environ.get("PE_VECTOR_BYTES", "")
    if forced in ("16", "32", "64"):
        return int(forced)
    host = llvm.get_host_cpu_features()
    if host.get("avx512f") and host.get("avx512vl"):
        return 64
    return 32 if host.get("avx2") else 16


@functools.cache
def halves_cost_half() -> bool:
    """Return whether half of a vector register is computed in half of the time: 64 bytes in units of 32, two of them a cycle.

    `PE_VECTOR_HALVES`, 0 or 1, overrides it for registers of 64 bytes, for tests as well.
    """
    forced = os.environ.get("PE_VECTOR_HALVES", "")
    return vector_bytes() == 64 and (forced == "1" if forced in ("0", "1") else cpu_name() in HALVING)


@functools.cache
def vector_registers() -> int:
    """Return how many vector registers microkernels may count on: 32 with AVX-512 or ARM, else 16."""
    if vector_bytes() == 64 or "aarch64" in llvm.get_default_triple():
        return 32
    return 16
