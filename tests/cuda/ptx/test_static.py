"""What kernels' code must have, and how long their loops may be."""

from __future__ import annotations

import itertools
import re
import struct
from dataclasses import replace

import pytest

from pe_cli.kernels.cuda.compiler import cubin, ptx
from pe_cli.kernels.cuda.language import Built, CudaKernel, build
from pe_cli.ops.define.registry import discover
from pe_cli.ops.math.product_bfloat16_cuda import TILES as HALVES
from pe_cli.ops.math.product_bfloat16_cuda import kernel_of as halves_of
from pe_cli.ops.math.product_tensor_cores_cuda import TILES as CORES
from pe_cli.ops.math.product_tensor_cores_cuda import kernel_of as cores_of
from pe_cli.ops.math.product_tiles_cuda import TILES, UNROLLED, kernel_of
from pe_cli.ops.nn.conv_cuda import FLAT, FLAT_BACK, TILES_BACK
from pe_cli.ops.nn.conv_cuda import TILES as CONV
from pe_cli.ops.nn.conv_tile_cuda import TOGETHER
from pe_cli.ops.nn.conv_tiles_cuda import convolve, filters_back
from pe_cli.ops.update.optimizer import momentum_step
from pe_cli.ops.update.update_kernels import adam_values
from tests.cuda.ptx import static
from tests.cuda.ptx.device import needs_compiler
from tests.cuda.ptx.loops import BRANCH, EXIT, KIND, MULTIPLY_ADD, loops, whole_loops
from tests.cuda.ptx.static import CAPABILITY, slow
from tests.rotation import of_today, on_its_day

discover()
PRODUCTS = [pytest.param(kernel_of(t), t.high * t.wide * UNROLLED, id=t.name) for t in TILES]
PRODUCTS += [pytest.param(convolve(t, t is FLAT), t.high * t.wide * TOGETHER, id=f"convolve {t.name}") for t in (*CONV, FLAT)]
PRODUCTS += [
    pytest.param(filters_back(t, t is FLAT_BACK), t.high * t.wide * TOGETHER, id=f"back {t.name}") for t in (*TILES_BACK, FLAT_BACK)
]
#: Of the largest tile, for factors as they may be stored.
STORED = tuple(itertools.product((0, 1), repeat=2))
LARGE = [build(cores_of(CORES[0], kind, *how), "float32", "float32") for how in STORED for kind in ("tf32", "bf16")]
LARGE += [build(halves_of(HALVES[0], *how), "float32", "float32", frozenset({5, 7})) for how in STORED]


def said(built: Built, text: str | None = None) -> list[str]:
    return [line.partition(": ")[2] for line in slow(built, text or ptx(built, CAPABILITY), cubin(built, CAPABILITY).image)]


@pytest.mark.parametrize(("kernel", "products"), of_today(PRODUCTS, 4))
def test_a_product_takes_at_most_a_fifth_more_instructions_than_multiply_adds(kernel, products: int):
    needs_compiler()
    built = build(kernel, "float32", "float32")
    counts = {sum(code & KIND == MULTIPLY_ADD for code in loop) for loop in loops(cubin(built, CAPABILITY).image)}
    assert products in counts, "the innermost loop has as many as its text"
    assert said(built) == []


@pytest.mark.parametrize("built", of_today(LARGE, 12), ids=lambda built: built.kernel.name.partition(":")[2])
def test_a_large_tile_of_tensor_cores_keeps_its_sums_in_registers_and_leaves_room_for_another_block(built: Built):
    needs_compiler()
    usage = cubin(built, CAPABILITY).usage
    assert usage.spills == 0
    assert isinstance(built.kernel, CudaKernel)
    assert usage.registers * CORES[0].threads * built.kernel.resident <= 65536


def instruction(which: int, *, at: int = 0, to: int = 0, always: bool = True) -> bytes:
    """Return an instruction of machine code, with a condition where it is not done always."""
    fourths = (to - at - 1) * 4
    low = which | (7 if always else 0) << 12 | (fourths & 0xFF) << 16 | (fourths >> 8 & (1 << 30) - 1) << 34
    return struct.pack("<QQ", low, 7 << 23 | (fourths >> 38 & (1 << 18) - 1))


def test_what_is_seldom_done_is_part_of_a_loop_wherever_it_lies(monkeypatch):
    """A branch leads to what lies behind the loop, and another back into its middle; there a loop of its own begins."""
    code = b"".join([
        instruction(0x001),
        instruction(0x002),
        instruction(BRANCH, at=2, to=6, always=False),
        instruction(0x003),
        instruction(BRANCH, at=4, to=1, always=False),
        instruction(EXIT),
        instruction(0x004),
        instruction(BRANCH, at=7, to=6, always=False),
        instruction(BRANCH, at=8, to=3),
        instruction(BRANCH, at=9, to=9),
    ])  # fmt: skip
    monkeypatch.setattr("tests.cuda.ptx.loops.code_of", lambda image: [code])
    assert whole_loops(b"") == [[0x002, BRANCH, 0x003, BRANCH, 0x004, BRANCH, BRANCH]]
    assert loops(b"") == [[0x004, BRANCH]]


def test_a_loop_that_takes_too_long_is_told(monkeypatch):
    needs_compiler()
    product, update = build(kernel_of(TILES[2]), "float32", "float32"), build(adam_values, "float32", "float32")
    assert static.marks(update, ptx(update, CAPABILITY), cubin(update, CAPABILITY)) == {"double"}
    monkeypatch.setattr(static, "MOST_OF_MULTIPLY_ADD", 1.1)
    monkeypatch.setattr(static, "MOST_OF_ELEMENT", 25)
    assert [line for line in said(product) if line.endswith("instructions for 64 multiply-adds")]
    assert static.marks(update, ptx(update, CAPABILITY), cubin(update, CAPABILITY)) == {"double", "long"}


@on_its_day(0, of=3)
@pytest.mark.parametrize(
    ("kernel", "instruction", "text"),
    [
        pytest.param(momentum_step, r"\.v4", "a loop by fours without an access of several elements", id="an update"),
        pytest.param(cores_of(CORES[1], "tf32", 0, 0), r"mma\.sync", "fragments that no tensor core multiplies", id="tensor cores"),
    ],
)
def test_code_without_what_its_text_asks_for_is_told(kernel, instruction: str, text: str):
    needs_compiler()
    built = build(kernel, "float32", "float32")
    made = ptx(built, CAPABILITY)
    assert re.search(instruction, made)
    assert said(built) == []
    assert said(built, re.sub(instruction, "", made)) == [text]


@on_its_day(1, of=3)
def test_registers_that_do_not_suffice_cost_a_block_of_a_multiprocessor(tmp_path, monkeypatch):
    """A bound of 32 registers makes a product spill, that of fewer blocks does not."""
    needs_compiler()
    monkeypatch.setenv("PE_CACHE_DIR", str(tmp_path))
    kernel = replace(kernel_of(TILES[2]), resident=2048 // TILES[2].threads)
    made = cubin.__wrapped__(build(kernel, "float32", "float32"), CAPABILITY)
    assert made.usage.spills == 0
    assert made.usage.registers > 65536 // 2048
