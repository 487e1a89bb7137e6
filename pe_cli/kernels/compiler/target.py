"""The processor that kernels are compiled for: this machine's, or the portable one.

The portable one is x86-64-v3, with AVX2 and FMA, which Intel's and AMD's processors have had since 2013 and 2015: its code is the same
wherever it is compiled, and so are its bits. A process has one kind; `PE_VECTOR_TARGET=portable` chooses it for all that it does.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform

import llvmlite.binding as llvm

from pe_cli.core.errors import ExitCode, PeError

#: Processors, as LLVM names them, with AVX-512 and multiply-adds of 64 bytes a cycle, so that two of 32 bytes take no longer. Others
#: do 128.
HALVING = ("znver4", "cannonlake", "icelake-client", "rocketlake", "tigerlake")


#: Names of the two kinds, and the variable that compile workers, and tests, are told by.
NATIVE, PORTABLE, VARIABLE = "native", "portable", "PE_VECTOR_TARGET"
#: LLVM's name of the portable processor, and features without which a machine cannot run its code.
LEVEL, NEEDED = "x86-64-v3", ("avx2", "fma", "bmi2", "f16c")


#: What multiplies bfloat16: tiles first, which are more operations a cycle.
TILES, PAIRS = UNITS = ("tiles", "pairs")
#: Processors, as LLVM names them, that multiply pairs as often in a cycle as single numbers. Others do half as often, and gain nothing.
PAIRING = ("znver4", "znver5")

#: System call by which a process asks for the state of matrix tiles (x86-64 Linux: arch_prctl, ARCH_REQ_XCOMP_PERM, their number).
TILES_WANTED = (158, 0x1023, 18)

#: What the environment says, against any config.
FORCED = os.environ.get(VARIABLE) in (NATIVE, PORTABLE)


def use(instructions: str) -> None:
    """Choose the kind for this process, before any kernel is compiled or loaded.

    Raises:
        PeError: USAGE, the process has the other kind already; DEVICE, this machine cannot run portable code.
    """
    if instructions == chosen() or FORCED:
        return
    if cpu_name.cache_info().currsize or features.cache_info().currsize:
        raise PeError(
            f"executor.instructions: {instructions}, but this process has kernels for {chosen()} ones",
            hint="use a process of its own; to compare the two, write a step of one: pe compare FIRST --to FILE.safetensors",
        )
    if instructions == PORTABLE and not runs_portable():
        raise PeError(
            f"executor.instructions: portable is {LEVEL}, and this processor lacks {', '.join(_lacking()) or 'its instructions'}",
            hint="use executor.instructions: native", code=ExitCode.DEVICE,
        )  # fmt: skip
    os.environ[VARIABLE] = instructions
    # `cpu_name` and `features` are empty, as tested above; these may have been asked for before any kernel was compiled.
    for cached in (vector_bytes, halves_cost_half, vector_registers, bfloat16_unit, has_unit):
        cached.cache_clear()


def _lacking() -> list[str]:
    found = llvm.get_host_cpu_features()
    return [name for name in NEEDED if not found.get(name)]


def runs_portable() -> bool:
    """Return whether this machine can run portable code."""
    return llvm.get_default_triple().startswith("x86_64") and not _lacking()


def chosen() -> str:
    """Return the kind of this process."""
    return PORTABLE if os.environ.get(VARIABLE) == PORTABLE else NATIVE


@functools.cache
def cpu_name() -> str:
    """Return LLVM's name of the processor, such as `znver4`."""
    return LEVEL if chosen() == PORTABLE else str(llvm.get_host_cpu_name())


@functools.cache
def features() -> str:
    """Return LLVM's feature string, such as `+avx2,+fma,...`; sorted, so that it can key a cache.

    For Intel's processors LLVM makes vectors of half a register, against lower clocks of some; where kernels' own are whole, it shall not.
    The name of the portable processor says all; nothing stands here then.
    """
    if chosen() == PORTABLE:
        return ""
    found = llvm.get_host_cpu_features() | ({"prefer-256-bit": False} if vector_bytes() == 64 else {})
    return ",".join(sorted(f"{'+' if on else '-'}{name}" for name, on in found.items()))


@functools.cache
def vector_bytes() -> int:
    """Return the bytes of a vector register that kernels are written for: 64, 32 or 16.

    `PE_VECTOR_BYTES` overrides it (tests run the narrow paths on wide machines with it).
    """
    if chosen() == PORTABLE:
        return 32
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


@functools.cache
def bfloat16_unit() -> str:
    """Return what multiplies bfloat16: `tiles` (Intel's AMX), `pairs` (AVX512-BF16), or nothing, and then products are of float32.

    Pairs count where they are twice as many operations a cycle as multiply-adds of float32. `PE_BFLOAT16_UNIT` overrides it by `tiles`,
    `pairs` or `none`, with the bits of that unit: processors without it compute them by multiply-adds of float32, which takes longer.

    Raises:
        PeError: USAGE, the variable has another value.
    """
    forced = os.environ.get("PE_BFLOAT16_UNIT", "")
    if forced in UNITS:
        return forced
    if forced not in ("", "none"):
        raise PeError(f"PE_BFLOAT16_UNIT is '{forced}'", hint=f"{', '.join(UNITS)} or none; without it the processor decides")
    if vector_bytes() != 64 or chosen() == PORTABLE or forced == "none":
        return ""
    return next((unit for unit in UNITS if has_unit(unit) and (unit != PAIRS or cpu_name() in PAIRING)), "")


@functools.cache
def has_unit(unit: str) -> bool:
    """Return whether the processor has what multiplies bfloat16; for tiles, the system has to grant them to the process first."""
    host = llvm.get_host_cpu_features()
    if vector_bytes() != 64 or chosen() == PORTABLE:
        return False
    if unit == PAIRS:
        return bool(host.get("avx512bf16"))
    if platform.system() != "Linux" or not (host.get("amx-tile") and host.get("amx-bf16")):
        return False
    return int(ctypes.CDLL(None).syscall(*map(ctypes.c_long, TILES_WANTED))) == 0
