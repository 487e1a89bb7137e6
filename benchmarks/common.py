"""What benchmarks of kernels have in common: arrays, calls with their times, and what the machine reaches at most."""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from pe_cli.kernels.compiler.instance import Instance
from pe_cli.kernels.compiler.loader import addresses
from pe_cli.kernels.compiler.target import vector_bytes
from pe_cli.kernels.language import Int, Kernel, Ptr, T, intrinsic, kernel


@intrinsic("T", "T", "int64")
def fma_loop(env: Any, args: list[Any]) -> Any:
    """Run n rounds of 12 independent vector FMAs: nothing but the arithmetic units limits it."""
    from llvmlite import ir

    b, lanes = env.builder, env.lanes
    vector = ir.VectorType(env.element, lanes)
    bits = "32" if env.dtype == "float32" else "64"
    fma = env.function(f"llvm.fmuladd.v{lanes}f{bits}", vector, [vector] * 3)
    first = b.insert_element(ir.Constant(vector, ir.Undefined), args[0], ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
    x = b.shuffle_vector(first, first, zeros)
    before, loop = b.block, b.append_basic_block("loop")
    b.branch(loop)
    b.position_at_end(loop)
    count = b.phi(ir.IntType(64))
    count.add_incoming(args[1], before)
    sums = [b.phi(vector) for _ in range(12)]
    done = []
    for i, phi in enumerate(sums):
        phi.add_incoming(ir.Constant(vector, [float(i)] * lanes), before)
        done.append(b.call(fma, [phi, x, x]))
        phi.add_incoming(done[-1], loop)
    left = b.sub(count, ir.Constant(ir.IntType(64), 1))
    count.add_incoming(left, loop)
    after = b.append_basic_block("after")
    b.cbranch(b.icmp_signed(">", left, ir.Constant(ir.IntType(64), 0)), loop, after)
    b.position_at_end(after)
    total = done[0]
    for value in done[1:]:
        total = b.fadd(total, value)
    return b.extract_element(total, ir.Constant(ir.IntType(32), 0))


@kernel
def peak(out: Ptr, n: Int):
    out[0] = fma_loop(out[0], n)  # of a factor that is known, the compiler would leave sums out


@kernel
def triad(x: Ptr, y: Ptr, z: Ptr, n: Int):
    for i in range(n):
        x[i] = y[i] + T(3) * z[i]


def aligned(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return a random array on a 64-byte boundary."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    block = np.zeros(size + 64, np.uint8)
    start = -block.ctypes.data % 64
    array = block[start : start + size].view(dtype).reshape(shape)
    array[...] = np.random.default_rng(0).random(shape) - 0.5
    return array


def call_of(target: Kernel, dtype: str, *arguments: Any) -> Callable[[], object]:
    """Return what calls a kernel with arrays, which the caller keeps alive, and whole numbers."""
    assert len(arguments) == len(target.params), f"{target} takes {len(target.params)} arguments, not {len(arguments)}"
    instance = Instance(target, dtype)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(addresses([instance])[instance])
    words = [int(a.ctypes.data) if isinstance(a, np.ndarray) else int(a) for a in arguments]
    return functools.partial(function, (ctypes.c_int64 * len(words))(*words))


def seconds(target: Kernel, dtype: str, *arguments: Any) -> float:
    """Return the least time of a call, from repetitions of about 3 ms."""
    call = call_of(target, dtype, *arguments)
    start = time.perf_counter()
    call()
    repeat = max(1, int(0.003 / (time.perf_counter() - start)))
    best = float("inf")
    for _ in range(9):
        start = time.perf_counter()
        for _ in range(repeat):
            call()
        best = min(best, (time.perf_counter() - start) / repeat)
    return best


def machine(dtype: str) -> float:
    """Print the machine's limits and return the peak in GFLOP/s."""
    lanes = vector_bytes() // np.dtype(dtype).itemsize
    out = aligned((1,), dtype)
    rounds = 1_000_000
    top = 24 * lanes * rounds / min(seconds(peak, dtype, out, rounds) for _ in range(3)) / 1e9
    n = 8_000_000
    streams = [aligned((n,), dtype) for _ in range(3)]
    rate = 3 * streams[0].nbytes / seconds(triad, dtype, *streams, n) / 1e9
    print(f"{dtype}, registers of {vector_bytes()} bytes: peak {top:.1f} GFLOP/s, memory {rate:.1f} GB/s (triad)")
    return top


