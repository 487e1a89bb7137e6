"""numba-cuda's front end in less time makes the PTX that it makes by itself."""

from __future__ import annotations

import contextlib

import pytest

from pe_cli.kernels.cuda import compiler as cuda_compiler
from pe_cli.kernels.cuda.language import build
from pe_cli.ops.define.sorted_ids_cuda import sort_near
from pe_cli.ops.math.reduction_cuda import sum_rows_cuda
from pe_cli.ops.nn.pool import max_backward
from tests.cuda.ptx.device import needs_compiler


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(sum_rows_cuda, id="blocks with shared memory"),
        pytest.param(sort_near, id="loops that wait for a block"),
        pytest.param(max_backward, id="another text than for the CPU"),
    ],
)
def test_the_ptx_is_that_of_numbas_own_passes(kernel, monkeypatch):
    needs_compiler()
    from pe_cli.kernels.cuda import front_end

    built = build(kernel, "float32", "float32")
    less = cuda_compiler._compiled(built, (8, 0), "pe_kernel")
    monkeypatch.setattr(front_end, "less_work", contextlib.nullcontext)
    cuda_compiler._helpers.cache_clear()  # they would be as they were made before
    assert cuda_compiler._compiled(built, (8, 0), "pe_kernel") == less
