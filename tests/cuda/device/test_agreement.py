"""Ops with a lowering for CUDA give on all samples what the CPU gives, forward and backward: a sixtieth of the ops each day."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pe_cli.core.types import Place
from pe_cli.ops.define.registry import OPS, OpDef, Sample, discover
from tests.ops import support
from tests.rotation import of_today

discover()


def on_cuda(definition: OpDef) -> bool:
    """Return whether all that the op becomes runs on CUDA, its gradient included."""
    return "cuda" in definition.lowerings


def samples_of(definition: OpDef) -> list[Any]:
    """Return the parameters of a test with each sample of an op."""
    return [pytest.param(definition, s, id=f"{definition.name}: {s.name or i}") for i, s in enumerate(definition.samples)]


NAMES = sorted(d.name for d in OPS.values() if d.is_grad_of is None and on_cuda(d))
SAMPLES = [p for name in of_today(NAMES, 60) for p in samples_of(OPS[name])]
GRADIENTS = [
    p
    for p in SAMPLES
    if p.values[1].grad
    and p.values[0].differentiable
    and (p.values[0].grad_maker or (p.values[0].grad_op and on_cuda(p.values[0].grad_op)))
]


def flat(value: Any) -> list[np.ndarray[Any, Any]]:
    """Return the arrays of a result."""
    if isinstance(value, dict):
        return [a for v in value.values() for a in flat(v)]
    return list(value) if isinstance(value, list) else [value]


def agree(monkeypatch: pytest.MonkeyPatch, reference: Any, run: Any, tolerance: float) -> None:
    """Compare what `run` gives on CUDA with what `reference` gives on the CPU, which may be of float64 where CUDA's is of float32."""
    expected = flat(reference())
    monkeypatch.setattr(support, "PLACE", Place("cuda", 0))
    found = flat(run())
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        assert a.dtype.kind == b.dtype.kind
        largest = max(1.0, float(np.nanmax(np.abs(b)))) if b.size and b.dtype.kind == "f" else 1.0  # what rounding of sums goes by
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance / 10 * largest)


@pytest.mark.parametrize(("definition", "sample"), SAMPLES)
def test_forward(monkeypatch, definition: OpDef, sample: Sample):
    arrays = support.sample_arrays(definition, sample, "float32")

    def run() -> Any:
        return support.run_op(definition.name, arrays, sample.attrs, sample.outputs, step=5)

    agree(monkeypatch, run, run, 2e-5)


@pytest.mark.parametrize(("definition", "sample"), samples_of(OPS["elementwise_mul"]))
def test_results_larger_than_the_caches_of_a_processor(monkeypatch, definition: OpDef, sample: Sample):
    monkeypatch.setattr("pe_cli.ops.math.broadcast.FAR", 1)
    test_forward(monkeypatch, definition, sample)


@pytest.mark.parametrize(("definition", "sample"), GRADIENTS)
def test_gradient(monkeypatch, definition: OpDef, sample: Sample):
    """Float32 against float64 on the CPU: people train in float32, and so forward and backward tests share kernels."""
    arrays = support.sample_arrays(definition, sample, "float32")
    if definition.kinks is not None:
        moved = support.as_lists(definition.kinks(arrays))
        arrays = {slot: [a.astype(was.dtype) for a, was in zip(moved[slot], values, strict=True)] for slot, values in arrays.items()}
    exact = {slot: [wider(a) for a in values] for slot, values in arrays.items()}
    first = next(s.name for s in definition.outputs)
    value = support.run_op(definition.name, exact, sample.attrs, sample.outputs)
    outs = flat(value[first] if isinstance(value, dict) else value)
    rng = np.random.default_rng(5)
    upstream = [rng.standard_normal(v.shape).astype("float32") for v in outs]

    def run(given: support.Arrays) -> Any:
        return support.run_gradient(definition.name, given, sample.attrs, first, upstream, sample.outputs)

    agree(monkeypatch, lambda: run(exact), lambda: run(arrays), 1e-4)


def wider(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array in float64 where it is of float32."""
    return array.astype("float64") if array.dtype == np.float32 else array
