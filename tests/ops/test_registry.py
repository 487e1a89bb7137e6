"""Generated over the catalogue: every op with a gradient is checked against central differences, float32 against float64."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import WrongType
from pe_cli.ops.define import work_parts
from pe_cli.ops.define.registry import OPS, discover
from pe_cli.ops.define.traits import HasRegions, Lists, OnHost, Random, Remote
from pe_cli.ops.math import matrix_product
from pe_cli.ops.nn import conv_lowering
from tests.ops.support import directional_error, run_gradient, run_op, sample_arrays
from tests.rotation import of_today

discover()
FORWARD = sorted(d.name for d in OPS.values() if d.is_grad_of is None)
SAMPLES = [
    pytest.param(OPS[name], s, id=f"{name}: {s.name or i}") for name in FORWARD for i, s in enumerate(OPS[name].samples)
]
WITH_GRADIENT = [
    p
    for p in SAMPLES
    if (p.values[0].grad_op or p.values[0].grad_maker) and p.values[1].grad and p.values[0].differentiable
]
#: Ops whose other tests run today, with all samples: they share kernels, whose compilation takes most of the time.
TODAY = frozenset(of_today(FORWARD, 3))


@pytest.mark.parametrize("name", FORWARD)
def test_every_op_has_a_doc_and_a_sample(name):
    assert OPS[name].doc, f"{name} has no documentation"
    # execute/regions/test_calls, paddle/test_parameter_server, paddle/test_beam_search
    tested_elsewhere = any(OPS[name].has(trait) for trait in (HasRegions, Remote, Lists))
    assert OPS[name].samples or tested_elsewhere, f"{name} has no sample input"


@pytest.mark.parametrize(("definition", "sample"), WITH_GRADIENT)
def test_gradient_agrees_with_central_differences(definition, sample):
    assert directional_error(definition, sample, sample.outputs) < max(definition.grad_tolerance, 1e-7) * 10


@pytest.mark.parametrize(("definition", "sample"), [p for p in SAMPLES if p.values[0].name in TODAY])
def test_float32_agrees_with_float64(definition, sample):
    if definition.has(Random):
        return
    wide = sample_arrays(definition, sample, "float64")
    small = {s for s in wide if s not in sample.keep}
    narrow = {
        s: [a.astype("float32") if a.dtype == np.float64 and s in small else a for a in v] for s, v in wide.items()
    }
    a = run_op(definition.name, narrow, sample.attrs, sample.outputs)
    b = run_op(definition.name, wide, sample.attrs, sample.outputs)
    for slot in a if isinstance(a, dict) else ["Out"]:
        x, y = (a[slot], b[slot]) if isinstance(a, dict) else (a, b)
        for u, v in zip(x if isinstance(x, list) else [x], y if isinstance(y, list) else [y], strict=True):
            np.testing.assert_allclose(u, v, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("definition", [pytest.param(d, id=d.name) for _, d in sorted(OPS.items()) if d.floats])
def test_whole_numbers_are_refused_where_an_op_needs_floats(definition):
    given = sample_arrays(definition, definition.samples[0], "float64")
    for slot in definition.floats:
        if slot in given:
            whole = {**given, slot: [a.astype("int64") for a in given[slot]]}
            with pytest.raises(WrongType, match=f"{definition.name} takes float32 or float64, got int64"):
                run_op(definition.name, whole, definition.samples[0].attrs, definition.samples[0].outputs)


@pytest.fixture
def smallest_parts(monkeypatch):
    """Let any work be worth a thread."""
    monkeypatch.setattr(work_parts, "ENOUGH_BYTES", 8)
    for module in (work_parts, conv_lowering, matrix_product):
        monkeypatch.setattr(module, "ENOUGH", 1)
    for work in ("FILTER_WORK", "PACK_WORK"):
        monkeypatch.setattr(conv_lowering, work, 0)


@pytest.mark.usefixtures("smallest_parts")
@pytest.mark.parametrize(("definition", "sample"), [p for p in SAMPLES if p.values[0].name in TODAY])
def test_threads_that_share_an_op_change_no_bit(definition, sample):
    arrays = sample_arrays(definition, sample, "float64")
    alone, shared = (run_op(definition.name, arrays, sample.attrs, sample.outputs, threads=n) for n in (1, 3))
    assert_same(alone, shared)


@pytest.mark.usefixtures("smallest_parts")
@pytest.mark.parametrize(("definition", "sample"), [p for p in WITH_GRADIENT if p.values[0].name in TODAY])
def test_threads_that_share_a_gradient_change_no_bit(definition, sample):
    if definition.has(OnHost):
        return
    arrays = sample_arrays(definition, sample, "float32")
    alone, shared = (
        run_gradient(definition.name, arrays, sample.attrs, outputs=sample.outputs, threads=n) for n in (1, 3)
    )
    assert_same(alone, shared)


def assert_same(found, expected):
    for slot in found if isinstance(found, dict) else ["Out"]:
        x, y = (found[slot], expected[slot]) if isinstance(found, dict) else (found, expected)
        for u, v in zip(x if isinstance(x, list) else [x], y if isinstance(y, list) else [y], strict=True):
            np.testing.assert_array_equal(u, v)
