"""Machine code for ARM, from whatever machine: loops of products spill nothing, and loops over elements are of vectors."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.rotation import of_today

PROCESSORS = ["neoverse-n1", "neoverse-v1", "neoverse-v2", "apple-m1", "apple-m4"]
PRODUCTS = ("microkernels", "dot_products", "depthwise_microkernels", "winograd_transforms")
ELEMENTS = (
    "pe_cli.kernels.cpu.channel_norm_act", "pe_cli.kernels.cpu.lstm", "pe_cli.ops.math.activation", "pe_cli.ops.nn.attention_kernels",
    "pe_cli.ops.nn.layer_norm", "pe_cli.ops.nn.softmax", "pe_cli.ops.update.update_kernels",
)  # fmt: skip


@functools.cache
def compiled(processor: str, *names: str) -> dict[str, list[dict[str, int]]]:
    run = subprocess.run(
        [sys.executable, "-m", "tests.kernels.arm_code", processor, *names],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-3000:]
    found: Any = json.loads(run.stdout)
    assert found
    return found


@pytest.mark.parametrize("processor", of_today(PROCESSORS, 2))
def test_products_keep_their_sums_in_registers(processor):
    found = compiled(processor, *(f"pe_cli.kernels.cpu.{name}" for name in PRODUCTS))
    for kernel, loops in found.items():
        busy = [loop for loop in loops if loop["vector"] >= 24]
        # A sum that is taken up and put down again once a round does not hold the units up.
        assert all(loop["spilled"] <= 2 for loop in busy), (kernel, busy)
        assert not any(loop["calls"] for loop in busy), (kernel, busy)
    # What computes most is mostly arithmetic: the rest are loads, of which a cycle does as many.
    best = max(found["pe_cli.kernels.cpu.microkernels:microkernels"], key=lambda loop: loop["vector"] / loop["instructions"])
    assert best["vector"] / best["instructions"] >= 0.55, best


@pytest.mark.parametrize("processor", ["neoverse-n1", "neoverse-v1"])
def test_loops_over_elements_are_of_vectors(processor):
    """With registers of 16 bytes (NEON), and of unknown length (SVE)."""
    for kernel, loops in compiled(processor, *ELEMENTS).items():
        scalar = [loop for loop in loops if loop["scalar"] >= 3]
        assert not scalar or any(loop["vector"] for loop in loops), (kernel, scalar)
