"""Kernels that are exact round after every operation, in machine code, too; the others join products and sums."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pe_cli.devices import cuda_driver
from pe_cli.kernels.calls import Call
from pe_cli.kernels.cuda.batched_launches import of_table
from pe_cli.kernels.cuda.compiler import INSTRUCTION, Capability, code_of, cubin
from pe_cli.kernels.cuda.error_guard import guarded
from pe_cli.kernels.cuda.language import CudaKernel, build, calls_on_cuda, cuda_kernel, deal
from pe_cli.kernels.cuda.mixed_launches import mixed
from pe_cli.kernels.language import Int, Kernel, Ptr, helper, kernel
from pe_cli.session.job import Job
from pe_cli.session.training.step import Stepper
from tests.cuda.ptx.device import PtxDriver, needs_compiler
from tests.cuda.ptx.loops import KIND, MULTIPLY_ADD
from tests.rotation import on_its_day

MULTIPLY, ADD = 0x020, 0x021
MODEL = """
name: line
feeds:
  x: {shape: [64], dtype: float32}
  y: {shape: [64], dtype: float32}
layers:
  product: {type: elementwise_mul, x: x, y: y}
  moved:   {type: elementwise_add, x: product, y: x}
  again:   {type: elementwise_mul, x: moved, y: y}
  apart:   {type: elementwise_sub, x: again, y: x}
  scaled:  {type: scale, x: apart, scale: 1.7, bias: 0.3}
  out:     {type: fc, input: scaled, size: 4}
  loss:    {type: mean, x: out}
fetches: [loss, scaled]
"""
RUN = """
model: model.yaml
data: {train: {reader: npz, file: data.npz}}
feeds: {x: x, y: y}
train: {loss: loss, epochs: 1, batch_size: 8, optimizer: {type: SGD, learning_rate: 0.1}}
executor: {place: cuda, seed: 1}
output: {dir: runs, checkpoint: null}
"""


@helper
def multiplied(x, y):
    return x * y


@kernel(exact=True)
def as_written(x: Ptr, y: Ptr, out: Ptr, n: Int):
    for i in range(n):
        out[i] = multiplied(x[i], y[i]) + out[i]


deal(as_written)


@cuda_kernel
def joined(x: Ptr, y: Ptr, out: Ptr, n: Int):
    for i in range(n):
        out[i] = multiplied(x[i], y[i]) + out[i]


def count(image: bytes, kind: int) -> int:
    """Return how many instructions of a kind there are in machine code of capability 7.5 or later."""
    return sum(struct.unpack_from("<Q", code, at)[0] & KIND == kind for code in code_of(image) for at in range(0, len(code), INSTRUCTION))


@on_its_day(0, of=3)
@pytest.mark.parametrize("capability", [(8, 0), (9, 0), (10, 0)])
@pytest.mark.parametrize("own", [pytest.param(as_written, id="exact"), pytest.param(joined, id="not exact")])
def test_a_product_and_a_sum_are_joined_where_a_kernel_is_not_exact(own: Kernel | CudaKernel, capability: Capability):
    needs_compiler()
    built = build(own, "float32", "float32")
    (call,) = calls_on_cuda(Call(own, (0, 0, 0, 1), "float32", "float32"))
    behind = build(guarded(call, 0, 1).kernel, "float32", "float32")
    for each in (built, of_table(built), behind, mixed((built, of_table(built)), 256)):
        image = cubin(each, capability).image
        found = [count(image, kind) > 0 for kind in (MULTIPLY, ADD, MULTIPLY_ADD)]
        assert found == ([True, True, False] if own is as_written else [False, False, True]), each.kernel


def test_a_fused_function_has_the_bits_that_it_has_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    needs_compiler()
    driver = PtxDriver()
    monkeypatch.setattr(cuda_driver, "only_driver", lambda: driver)
    monkeypatch.setattr(cuda_driver, "device_count", lambda: 1)
    monkeypatch.chdir(tmp_path)
    Path("model.yaml").write_text(MODEL)
    Path("run.yaml").write_text(RUN)
    rng = np.random.default_rng(0)
    feed: dict[str, Any] = {name: rng.standard_normal((8, 64)).astype("float32") for name in "xy"}
    np.savez("data.npz", **feed)
    found = []
    for place, fused in (("cpu", True), ("cuda", True), ("cuda", False)):
        more = [f"executor.place={place}", f"build_strategy.enable_auto_fusion={str(fused).lower()}"]
        job = Job.open(Path("run.yaml"), more, smoke=True)
        job.initialise()
        name = job.built.fetches["scaled"]
        values = Stepper(job).run(feed, [name], 0).values
        found.append(next(np.array(v[name]).tobytes() for v in values if name in v))
    names = [built.kernel.name for built in driver._programs]
    assert [any(part in name for name in names) for part in ("fusion_kernel:", "elementwise:mul")] == [True, True]
    assert found[1] == found[2] == found[0]
