"""Launches that fit a card: the limits are those of the table of compute capabilities in the CUDA C++ Programming Guide."""

from __future__ import annotations

from typing import Any

import pytest

from pe_cli.kernels.cuda.compiler import Capability, Cubin, Usage, cubin
from pe_cli.kernels.cuda.language import build, cuda, cuda_kernel
from tests.cuda.ptx.device import needs_compiler
from tests.cuda.ptx.rules import INVALID_VALUE, TOO_MUCH, refused

#: Numbers that a thread holds at a time.
MANY = 96


def using(registers: int = 32, shared: int = 0) -> Cubin:
    return Cubin(b"", "", Usage(registers, 0, 0, shared, 0))


@pytest.mark.parametrize(
    ("made", "text", "grid", "block", "result"),
    [
        pytest.param(using(255), "", (1,), (256,), 0, id="256 threads may have all registers"),
        pytest.param(using(128), "", (1,), (512,), 0, id="512 threads have 128 registers"),
        pytest.param(using(129), "", (1,), (512,), TOO_MUCH, id="and no more"),
        pytest.param(using(64), "", (1,), (1024,), 0, id="1024 threads have 64"),
        pytest.param(using(65), "", (1,), (32, 32), TOO_MUCH, id="and no more, however they lie"),
        pytest.param(using(), "", (1,), (1025,), INVALID_VALUE, id="too many threads"),
        pytest.param(using(), "", (1,), (1, 1, 65), INVALID_VALUE, id="too many threads along z"),
        pytest.param(using(), "", (2**31 - 1, 65535, 65535), (1,), 0, id="most blocks"),
        pytest.param(using(), "", (1, 65536), (1,), INVALID_VALUE, id="too many blocks along y"),
        pytest.param(using(), "", (0,), (1,), INVALID_VALUE, id="no blocks"),
        pytest.param(using(shared=49152), "", (1,), (1,), 0, id="most shared memory"),
        pytest.param(using(shared=49153), "", (1,), (1,), INVALID_VALUE, id="too much shared memory"),
        pytest.param(using(), ".maxntid 128, 1, 1\n", (1,), (256,), INVALID_VALUE, id="more threads than the kernel was compiled for"),
    ],
)
def test_a_launch_that_fits_no_card_is_refused(made: Cubin, text: str, grid: tuple[int, ...], block: tuple[int, ...], result: int):
    assert refused(made, text, grid, block, 4)[0] == result


@pytest.mark.parametrize("capability", [(7, 5), (9, 0)])
def test_a_block_of_many_threads_is_compiled_for_the_registers_that_there_are(capability: Capability):
    needs_compiler()
    loads = [f"v{i} = x[me + {1024 * i}]" for i in range(MANY)]
    stores = [f"out[me + {1024 * i}] = v{i} * v{(7 * i + 3) % MANY}" for i in range(MANY)]
    text = "\n    ".join(["def many(x, out):", "me = int(cuda.threadIdx.x)", *loads, "cuda.syncthreads()", *stores]) + "\n"
    space: dict[str, Any] = {"cuda": cuda}
    exec(text, space)  # our own text
    space["many"].__annotations__ = {"x": "Ptr", "out": "Ptr"}
    built = build(cuda_kernel(space["many"], text=text, block=(1024,), name=f"{__name__}:many"), "float32", "float32")
    made = cubin(built, capability)
    assert MANY > 64, "more than the threads of such a block can have"
    assert refused(made, "", (1,), (1024,), 2) == (0, "")
