"""How kernels become functions for CUDA, seen without a GPU: a stand-in for numba.cuda says which thread it is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pe_cli.kernels.cuda.language import build, cuda, cuda_kernel, on_cuda
from pe_cli.kernels.cuda.math import replaces
from pe_cli.kernels.language import Int, Ptr, PtrI64, Real, T, helper, kernel


def threads(count: int) -> list[Any]:
    """Return one stand-in for numba.cuda a thread."""
    return [
        SimpleNamespace(grid=lambda _, t=t: t, gridsize=lambda _: count, jit=lambda device: lambda fn: fn) for t in range(count)
    ]


@cuda_kernel
def from_two_to_n(out: Ptr, n: Int, twice: Int):
    """Add 1 at every index from 2 on, and once more."""
    for i in range(2, n):
        out[i] += T(1)
    if twice:
        for i in range(n):
            out[i] += T(10)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_every_iteration_belongs_to_one_thread(count: int):
    out = np.zeros(5, np.float32)
    for module in threads(count):
        build(from_two_to_n, "float32", "float32").bound(module)(out, 5, 0)
    np.testing.assert_array_equal(out, [0, 0, 1, 1, 1])


def test_loops_inside_a_condition_are_dealt_too():
    out = np.zeros(4, np.float32)
    for module in threads(3):
        build(from_two_to_n, "float32", "float32").bound(module)(out, 4, 1)
    np.testing.assert_array_equal(out, [10, 10, 11, 11])


def test_the_longest_loop_says_how_many_threads_have_something_to_do():
    built = build(from_two_to_n, "float32", "float32")
    assert built.wanted((None, 5, 0)) == (5,)


@cuda_kernel
def as_many_as_memory_says(out: Ptr, sizes: PtrI64):
    n = sizes[0]
    for i in range(n):
        out[i] = T(1)


def test_a_size_that_lies_in_memory_takes_the_whole_grid():
    assert build(as_many_as_memory_says, "float32", "float32").wanted((None, None)) is None


@kernel
def one_number(out: Ptr, value: Real):
    out[0] = T(value)


def test_a_kernel_of_the_cpu_that_is_not_dealt_runs_on_one_thread():
    assert build(one_number, "float32", "float32").wanted((None, 1.0)) == (1,)


@lambda fn: cuda_kernel(fn, block=(16, 1), threads=("2 * n", "1"))
def in_blocks(out: Ptr, n: Int):
    out[cuda.threadIdx.x] = T(1)


def test_a_kernel_that_works_by_blocks_is_taken_as_it_is():
    built = build(in_blocks, "float32", "float32")
    out = np.zeros(1, np.float32)
    built.bound(SimpleNamespace(threadIdx=SimpleNamespace(x=0)))(out, 3)
    assert (built.block, built.wanted((None, 3)), out[0]) == ((16, 1), (6, 1), 1)


@helper
def three() -> float:
    return 3.0


@helper
def calls_three():
    return three() + T(1)


# Before anything is built: what uses it is built once.
@replaces(three)
def five():
    return 5.0


@cuda_kernel
def uses_a_helper(out: Ptr):
    out[0] = calls_three()


def test_a_helper_of_a_helper_may_have_another_text():
    out = np.zeros(1, np.float32)
    build(uses_a_helper, "float32", "float32").bound(threads(1)[0])(out)
    assert out[0] == 6


def test_a_helper_is_one_function_for_all_kernels():
    @cuda_kernel
    def uses_it_too(out: Ptr):
        out[0] = calls_three() + calls_three()

    first, second = build(uses_a_helper, "float32", "float32"), build(uses_it_too, "float32", "float32")
    assert first.helpers == second.helpers
    compiled: dict[object, object] = {}
    one, two = first.bound(threads(1)[0], made=compiled), second.bound(threads(1)[0], made=compiled)
    assert one.__globals__["calls_three"] is two.__globals__["calls_three"]


def test_another_text_must_have_the_same_parameters():
    with pytest.raises(AssertionError, match="other parameters"):

        @on_cuda(one_number)
        def with_another(out: Ptr, value: Int):
            out[0] = T(value)


def test_an_outermost_loop_over_steps_is_refused():
    @cuda_kernel
    def stepping(out: Ptr, n: Int):
        for i in range(0, n, 2):
            out[i] = T(0)

    with pytest.raises(AssertionError, match="steps of 1"):
        build(stepping, "float32", "float32")
