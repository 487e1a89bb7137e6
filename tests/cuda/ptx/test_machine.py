"""The test device reports what a kernel must not do, and does what threads of a warp do together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.devices.cuda_driver_protocol import Extent
from pe_cli.kernels.cuda.bfloat16_tensor_cores import fragments, half_room, put_shared_half, turned_fragments
from pe_cli.kernels.cuda.compiler import cubin
from pe_cli.kernels.cuda.language import build, cuda, cuda_intrinsic, cuda_kernel
from pe_cli.kernels.language import Int, Ptr, PtrF32, PtrI32, T
from tests.cuda.ptx import static
from tests.cuda.ptx.device import PtxDriver, needs_compiler
from tests.cuda.ptx.machine import Failed, Order

ORDERS = [Order(), Order("reversed"), Order("random", 7)]


@pytest.fixture(autouse=True)
def compiler() -> None:
    needs_compiler()


def run(kernel: Any, *args: Any, grid: int = 1, block: int = 32, order: Order = ORDERS[0]) -> None:
    """Run a kernel on arrays and numbers, which it changes in place."""
    driver = PtxDriver(orders=[order])
    given = [Extent(a.ctypes.data, a.nbytes) if isinstance(a, np.ndarray) else a for a in args]
    driver.launcher(build(kernel, "float32", "float32"), (grid,), (block,), given)()


@lambda fn: cuda_kernel(fn, block=(32,))
def one_too_far(out: Ptr, n: Int):
    out[cuda.threadIdx.x + n] = T(1)


@lambda fn: cuda_kernel(fn, block=(32,))
def all_at_one_place(out: Ptr, n: Int):
    out[cuda.threadIdx.x * n] = T(1)


@lambda fn: cuda_kernel(fn, block=(32,))
def blocks_at_one_place(out: Ptr, n: Int):
    out[cuda.threadIdx.x + n * cuda.blockIdx.x] = T(1)


@lambda fn: cuda_kernel(fn, block=(32,))
def neighbours_number(out: Ptr, wait: Int):
    parts = cuda.shared.array(33, T)
    me = cuda.threadIdx.x
    parts[me] = T(me)
    if wait:
        cuda.syncthreads()
    out[me] = parts[me + 1]


@lambda fn: cuda_kernel(fn, block=(32,))
def some_wait(out: Ptr, n: Int):
    me = cuda.threadIdx.x
    if me < n:
        cuda.syncthreads()
        out[me] = T(0)
    else:
        out[32 + me] = T(1)
        cuda.syncthreads()
        out[64 + me] = T(2)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("kernel", "given", "fine", "bad", "said"),
    [
        pytest.param(one_too_far, {}, 0, 1, "touches 4 bytes at 128 of the 128", id="an index past the end"),
        pytest.param(one_too_far, {}, 0, -1, "touches 4 bytes at -4 of the 128", id="an index before the beginning"),
        pytest.param(all_at_one_place, {}, 1, 0, "at one place with no barrier between", id="threads that write one place"),
        pytest.param(blocks_at_one_place, {"grid": 2, "block": 16}, 16, 8, "at one place", id="blocks that write one place"),
        pytest.param(neighbours_number, {"block": 32}, 1, 0, "no barrier between|has not written", id="shared memory without a barrier"),
    ],
)
def test_a_failure_is_reported_in_any_order(kernel: Any, given: Any, fine: int, bad: int, said: str, order: Order):
    out = np.zeros(32, np.float32)
    if kernel is not neighbours_number:
        run(kernel, out, fine, **given, order=order)
    with pytest.raises(Failed, match=said):
        run(kernel, out, bad, **given, order=order)


def test_shared_memory_that_nobody_wrote_is_no_number_to_go_by():
    with pytest.raises(Failed, match="reads shared memory that its block has not written"):
        run(neighbours_number, np.zeros(32, np.float32), 1)


def test_threads_that_wait_at_different_barriers_are_reported():
    with pytest.raises(Failed, match="waits at another barrier"):
        run(some_wait, np.zeros(96, np.float32), 7)


@lambda fn: cuda_kernel(fn, block=(32,))
def warp_sums(x: Ptr, out: Ptr, bits: PtrI32):
    me = cuda.threadIdx.x
    total = x[me]
    width = 16
    while width > 0:
        total += cuda.shfl_down_sync(-1, total, width)
        width //= 2
    out[me] = cuda.shfl_sync(-1, total, 0)
    bits[me] = cuda.ballot_sync(-1, x[me] > T(0))
    bits[32 + me] = cuda.shfl_xor_sync(-1, me, 5)
    bits[64 + me] = cuda.all_sync(-1, x[me] > T(-9)) + 2 * cuda.any_sync(-1, x[me] > T(9))


@pytest.mark.parametrize("order", ORDERS)
def test_lanes_of_a_warp_exchange_what_they_have(rng, order: Order):
    x, out, bits = rng.standard_normal(32).astype(np.float32), np.zeros(32, np.float32), np.zeros(96, np.int32)
    run(warp_sums, x, out, bits, order=order)
    np.testing.assert_allclose(out, np.full(32, x.sum()), rtol=1e-5)
    ballot = sum(1 << i for i in range(32) if x[i] > 0)
    np.testing.assert_array_equal(bits[:32].view(np.uint32), np.full(32, ballot, np.uint32))
    np.testing.assert_array_equal(bits[32:64], np.arange(32) ^ 5)
    np.testing.assert_array_equal(bits[64:], 1)


def _product(shape: str, kind: str, a: int, b: int) -> Any:
    """Return an intrinsic whose arguments are the words of A and B of a lane, and where its four sums go."""

    def emit(env: Any, args: list[Any]) -> Any:
        from llvmlite import ir

        word, real = ir.IntType(32), ir.FloatType()
        sums = ", ".join(f"${i}" for i in range(4))
        given = ", ".join(f"${4 + i}" for i in range(a)), ", ".join(f"${4 + a + i}" for i in range(b))
        text = f"mma.sync.aligned.{shape}.row.col.f32.{kind}.{kind}.f32 {{{sums}}}, {{{given[0]}}}, {{{given[1]}}}, {{{sums}}};"
        constraints = ",".join(["=f"] * 4 + ["r"] * (a + b) + [str(i) for i in range(4)])
        made = ir.LiteralStructType([real] * 4)
        asm = ir.InlineAsm(ir.FunctionType(made, [word] * (a + b) + [real] * 4), text, constraints, side_effect=True)
        out = env.builder.call(asm, [*args[1:], *[real(0.0)] * 4])
        for i in range(4):
            place = env.builder.gep(args[0], [ir.IntType(64)(i)])
            env.builder.store(env.builder.extract_value(out, i), place)

    emit.__qualname__ = f"mma_{shape}_{kind}"
    return cuda_intrinsic("void", "float32*", *["int32"] * (a + b))(emit)


mma_tf32 = _product("m16n8k8", "tf32", 4, 2)
mma_bf16 = _product("m16n8k16", "bf16", 4, 2)


@cuda_intrinsic("float32*", "float32*", "int64")
def place_of(env: Any, args: list[Any]) -> Any:
    return env.builder.gep(args[0], [args[1]])


@lambda fn: cuda_kernel(fn, block=(32,))
def product_tf32(f: PtrI32, out: PtrF32):
    me = cuda.threadIdx.x
    k = 6 * me
    mma_tf32(place_of(out, 4 * me), f[k], f[k + 1], f[k + 2], f[k + 3], f[k + 4], f[k + 5])


@lambda fn: cuda_kernel(fn, block=(32,))
def product_bf16(f: PtrI32, out: PtrF32):
    me = cuda.threadIdx.x
    k = 6 * me
    mma_bf16(place_of(out, 4 * me), f[k], f[k + 1], f[k + 2], f[k + 3], f[k + 4], f[k + 5])


@pytest.mark.parametrize(("kernel", "depth", "pack"), [(product_tf32, 8, 1), (product_bf16, 16, 2)], ids=["tf32", "bf16"])
def test_a_warp_multiplies_matrices_that_lie_as_the_manual_says(kernel: Any, depth: int, pack: int):
    """Section "Matrix fragments" of the PTX ISA; small whole numbers, so that every format holds them and every sum."""
    rng = np.random.default_rng(1)
    a, b = rng.integers(-8, 9, (16, depth)).astype(np.float32), rng.integers(-8, 9, (depth, 8)).astype(np.float32)

    def word(values: list[float]) -> int:
        bits = np.array(values, np.float32).view(np.uint32)
        return int(bits[0]) if pack == 1 else int(bits[0] >> 16 | bits[1] & 0xFFFF0000)

    words, out = np.zeros((32, 6), np.uint32), np.zeros((32, 4), np.float32)
    for lane in range(32):
        group, member = lane // 4, lane % 4
        for r in range(4):
            row, first = group + 8 * (r % 2), pack * member + 4 * pack * (r // 2)
            words[lane, r] = word([a[row, first + p] for p in range(pack)])
        for r in range(2):
            first = pack * member + 4 * pack * r
            words[lane, 4 + r] = word([b[first + p, group] for p in range(pack)])
    run(kernel, words.view(np.int32), out)
    found = np.zeros((16, 8), np.float32)
    for lane in range(32):
        for i in range(4):
            found[lane // 4 + 8 * (i // 2), 2 * (lane % 4) + i % 2] = out[lane, i]
    np.testing.assert_array_equal(found, a @ b)


@lambda fn: cuda_kernel(fn, block=(32,))
def matrices_of_rows(out: PtrI32):
    """Each row of 16 bytes has its own number, and each element its place in it."""
    me, room = cuda.threadIdx.x, half_rows()
    for e in range(8):
        put_shared_half(room + 16 * me + 2 * e, np.float32(8 * me + e))
    cuda.syncthreads()
    out[4 * me], out[4 * me + 1], out[4 * me + 2], out[4 * me + 3] = fragments(room + 16 * me)
    k = 128 + 4 * me
    out[k], out[k + 1], out[k + 2], out[k + 3] = turned_fragments(room + 16 * me)


half_rows = half_room(512)


def test_a_warp_takes_fragments_as_the_manual_says():
    """`ldmatrix` of the PTX ISA: lane 4 r + c has the elements 2 c and 2 c + 1 of row r, or turned over, of column r."""
    out = np.zeros((2, 32, 4), np.int32)
    run(matrices_of_rows, out)
    numbers = (out.view(np.uint16).reshape(2, 32, 4, 2).astype(np.uint32) << 16).view(np.float32)
    there = np.arange(256.0).reshape(4, 8, 8)
    for lane in range(32):
        r, c = lane // 4, 2 * (lane % 4)
        np.testing.assert_array_equal(numbers[0, lane], there[:, r, c : c + 2])
        np.testing.assert_array_equal(numbers[1, lane], there[:, c : c + 2, r])


@cuda_intrinsic("int32", "int32", "int32", "int32")
def permuted(env: Any, args: list[Any]) -> Any:
    from llvmlite import ir

    word = ir.IntType(32)
    return env.builder.call(ir.InlineAsm(ir.FunctionType(word, [word] * 3), "prmt.b32 $0, $1, $2, $3;", "=r,r,r,r"), args)


@lambda fn: cuda_kernel(fn, block=(32,))
def bytes_of_two(x: PtrI32, out: PtrI32):
    me = cuda.threadIdx.x
    out[me] = permuted(x[3 * me], x[3 * me + 1], x[3 * me + 2])


def test_bytes_are_permuted_as_the_manual_says():
    """`prmt` of the PTX ISA without a mode."""
    x, out = np.random.default_rng(3).integers(-(2**31), 2**31, (32, 3)).astype(np.int32), np.zeros(32, np.int32)
    run(bytes_of_two, x, out)
    for lane in range(32):
        eight, numbers = x[lane, :2].view(np.uint8), int(x[lane, 2]) & 0xFFFF
        asked = [numbers >> 4 * i & 15 for i in range(4)]
        expected = [(255 if eight[n & 7] & 128 else 0) if n & 8 else int(eight[n]) for n in asked]
        assert out[lane : lane + 1].view(np.uint8).tolist() == expected


def test_a_card_without_these_tensor_cores_is_refused():
    with pytest.raises(PeError, match="need a card of sm_80 or later, and this is for sm_75"):
        cubin(build(product_bf16, "float32", "float32"), (7, 5))


@cuda_kernel
def with_double(x: Ptr, n: Int):
    for i in range(n):
        x[i] = x[i] ** 0.5


@cuda_kernel
def with_division(x: Ptr, n: Int, m: Int):
    for i in range(n):
        x[i] = x[i // m]


@pytest.mark.parametrize(("kernel", "said"), [(with_double, "double, which"), (with_division, "divides, which")])
def test_a_new_kernel_has_no_slow_arithmetic_without_a_word(kernel: Any, said: str):
    with pytest.raises(AssertionError, match=said):
        PtxDriver(strict=True).program(build(kernel, "float32", "float32"))


def test_spills_are_allowed_to_none():
    built = build(one_too_far, "float32", "float32")
    made = cubin(built, static.CAPABILITY)
    assert "spills 8 bytes" in static.complaints(built, "", replace(made, usage=replace(made.usage, spills=8)))[0]
