"""batch_norm against torch and closed forms: layouts, running statistics, inference, and data far from 0."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS, Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.kernels.calls import Buffer
from pe_cli.kernels.math.moments import NEAR
from pe_cli.ops.define import work_parts
from pe_cli.ops.define.copy_kernels import fill
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import find
from pe_cli.ops.nn import batch_norm
from pe_cli.program.ir import Program
from tests.needs import torch
from tests.ops.support import run_gradient, run_op

SHAPES = [(9, 4), (3, 4, 5), (3, 4, 5, 6), (2, 4, 3, 2, 5), (70, 4, 9, 9), (3, 4, 1, 1), (2, 4, 80, 70)]
LAYOUTS = pytest.mark.parametrize("layout", ["NCHW", "NHWC"])


def arguments(x, layout, rng):
    """Return inputs in a layout, made from x with its channels on axis 1."""
    channels = x.shape[1]
    each = {"Scale": rng.standard_normal(channels), "Bias": rng.standard_normal(channels)}
    each |= {"Mean": rng.standard_normal(channels), "Variance": rng.uniform(0.5, 2, channels)}
    return {"X": there(x, layout), **{k: v.astype(x.dtype) for k, v in each.items()}}


def there(x, layout):
    return np.ascontiguousarray(np.moveaxis(x, 1, -1)) if layout == "NHWC" else x


def back(x, layout):
    return np.moveaxis(x, -1, 1) if layout == "NHWC" else x


@pytest.mark.parametrize(
    ("rows", "width", "parts"),
    [
        pytest.param(16, 64, 1, id="too little for two threads"),
        pytest.param(8192, 64, 2, id="shared, in whole cache lines"),
        pytest.param(8192, 32, 1, id="one cache line"),
        pytest.param(NEAR // (4 * 64), 64, 2, id="just near enough"),
        pytest.param(NEAR // (4 * 64) + 1, 64, 1, id="so far away that memory would give parts of rows slowly"),
    ],
)
def test_columns_are_shared_by_threads_where_that_pays(rows, width, parts):
    found = batch_norm.columns_of(SimpleNamespace(threads=4), Buffer("x", TensorType((rows, width))), width)
    assert [(low, high) for _, low, high in found] == [(width * i // parts, width * (i + 1) // parts) for i in range(parts)]
    assert [number for number, *_ in found] == ([None] if parts == 1 else [0, 1])


@LAYOUTS
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    "phase", [{}, {"is_test": True}, {"use_global_stats": True}], ids=["training", "inference", "running statistics"]
)
def test_values_and_gradients_agree_with_torch(rng, layout, shape, phase):
    x = rng.standard_normal(shape) * 2 + 3
    given = arguments(x, layout, rng)
    attrs = {"data_layout": layout, "momentum": 0.7, "epsilon": 1e-3, **phase}
    tx, scale, bias = (torch.tensor(a, requires_grad=True) for a in (x, given["Scale"], given["Bias"]))
    mean, variance = torch.tensor(given["Mean"]), torch.tensor(given["Variance"])
    y = torch.nn.functional.batch_norm(tx, mean, variance, scale, bias, not phase, 0.3, 1e-3)
    up = rng.standard_normal(shape)
    y.backward(torch.tensor(up))
    found = run_op("batch_norm", given, attrs)
    np.testing.assert_allclose(back(found["Y"], layout), y.detach().numpy(), rtol=1e-10, atol=1e-12)
    gradient = run_gradient("batch_norm", given, attrs, "Y", there(up, layout))
    np.testing.assert_allclose(back(gradient["X"], layout), tx.grad.numpy(), rtol=1e-8, atol=1e-11)
    np.testing.assert_allclose(gradient["Scale"], scale.grad.numpy(), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(gradient["Bias"], bias.grad.numpy(), rtol=1e-9, atol=1e-11)


@LAYOUTS
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_statistics_are_fluids(rng, layout, shape):
    x = rng.standard_normal(shape) + 1
    given = arguments(x, layout, rng)
    found = run_op("batch_norm", given, {"data_layout": layout, "momentum": 0.7})
    axes = tuple(a for a in range(len(shape)) if a != 1)
    mean, variance = x.mean(axes), x.var(axes)
    np.testing.assert_allclose(found["SavedMean"], mean, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(found["SavedVariance"], 1 / np.sqrt(variance + 1e-5), rtol=1e-12)
    np.testing.assert_allclose(found["MeanOut"], 0.7 * given["Mean"] + 0.3 * mean, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(found["VarianceOut"], 0.7 * given["Variance"] + 0.3 * variance, rtol=1e-12)


@LAYOUTS
@pytest.mark.parametrize("shape", [(64, 3, 32, 32), (4096, 3), (2, 3, 300, 300)], ids=str)
def test_float32_data_of_mean_1000_gives_its_variance_to_four_digits(rng, layout, shape):
    x = (rng.standard_normal(shape) + 1000).astype(np.float32)
    found = run_op("batch_norm", arguments(x, layout, rng), {"data_layout": layout, "epsilon": 0.0})
    axes = tuple(a for a in range(len(shape)) if a != 1)
    np.testing.assert_allclose(1 / found["SavedVariance"] ** 2, x.astype(np.float64).var(axes), rtol=1e-5)
    np.testing.assert_allclose(found["SavedMean"], x.astype(np.float64).mean(axes), rtol=2e-7)


@LAYOUTS
def test_data_that_jumps_between_pieces_keeps_its_variance(layout, rng):
    x = rng.standard_normal((5000, 2)).astype(np.float32)
    x[2500:] += 1000
    found = run_op("batch_norm", arguments(x, layout, rng), {"data_layout": layout, "epsilon": 0.0})
    np.testing.assert_allclose(1 / found["SavedVariance"] ** 2, x.astype(np.float64).var(0), rtol=1e-6)


def test_one_row_gives_the_bias_and_an_empty_batch_leaves_the_running_statistics(rng):
    given = arguments(rng.standard_normal((1, 3)), "NCHW", rng)
    np.testing.assert_allclose(run_op("batch_norm", given)["Y"][0], given["Bias"], atol=1e-12)
    given["X"] = np.zeros((0, 3))
    found = run_op("batch_norm", given)
    np.testing.assert_array_equal(found["MeanOut"], given["Mean"])
    np.testing.assert_array_equal(found["VarianceOut"], given["Variance"])


@LAYOUTS
def test_nan_stays_in_its_channel(rng, layout):
    x = rng.standard_normal((3, 4, 5, 5)).astype(np.float32)
    x[1, 2, 3, 3] = np.nan
    found = back(run_op("batch_norm", arguments(x, layout, rng), {"data_layout": layout})["Y"], layout)
    assert np.isnan(found[:, 2]).all()
    assert np.isfinite(found[:, [0, 1, 3]]).all()


def in_place(is_test):
    program = Program()
    block = program.global_block()
    block.create_var("x", TensorType((-1, 3)), is_data=True)
    for name in ("scale", "bias", "mean", "variance"):
        block.create_var(name, TensorType((3,)), persistable=True, stop_gradient=True)
    inputs = {"X": "x", "Scale": "scale", "Bias": "bias", "Mean": "mean", "Variance": "variance"}
    outputs = {"Y": "y", "MeanOut": "mean", "VarianceOut": "variance", "SavedMean": "m", "SavedVariance": "v"}
    block.append_op("batch_norm", inputs, outputs)
    return program.clone(for_test=True) if is_test else program


def test_running_statistics_are_updated_in_place_step_by_step_and_inference_leaves_them(rng):
    program, test_program = in_place(False), in_place(True)
    scope = Scope([Place()])
    train, evaluate = Executor(program, scope), Executor(test_program, scope)
    for name, value in (("scale", 1), ("bias", 0), ("mean", 0), ("variance", 1)):
        scope.set(name, np.full(3, value, np.float32))
    mean, variance = np.zeros(3), np.ones(3)
    for step in range(5):
        x = (rng.standard_normal((20, 3)) * 3 + 1).astype(np.float32)
        train.run({"x": x}, ["y"], step)
        mean, variance = 0.9 * mean + 0.1 * x.mean(0), 0.9 * variance + 0.1 * x.var(0)
        np.testing.assert_allclose(scope.get("mean"), mean, rtol=1e-5)
        np.testing.assert_allclose(scope.get("variance"), variance, rtol=1e-5)
    (values,) = evaluate.run({"x": x}, ["y"]).values
    np.testing.assert_allclose(values["y"], (x - mean) / np.sqrt(variance + 1e-5), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(scope.get("mean"), mean, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("phase", ["training", "inference"])
@pytest.mark.parametrize("name", ["batch_norm", "fused_batch_norm_act", "fused_bn_add_activation"])
@pytest.mark.parametrize("shape", [(4, 6, 5, 96), (2, 8, 8, 16), (3, 7, 5, 71), (310, 260), (16, 30, 20, 130)])
def test_threads_share_rows_and_columns_and_change_no_bit(shape, name, phase, dtype, rng, monkeypatch):
    monkeypatch.setattr(work_parts, "ENOUGH_BYTES", 8)
    attrs = {"data_layout": "NHWC", "is_test": phase == "inference"}
    given = {slot: rng.uniform(0.5, 1.5, shape[-1:]).astype(dtype) for slot in ("Scale", "Bias", "Mean", "Variance")}
    given["X"] = rng.standard_normal(shape).astype(dtype)
    if name == "fused_bn_add_activation":
        given["Z"] = rng.standard_normal(shape).astype(dtype)
    upstream = rng.standard_normal(shape).astype(dtype)
    values, gradients = run_op(name, given, attrs), run_gradient(name, given, attrs, upstream=upstream)
    for threads in (2, 5):
        for found, expected in (
            (run_op(name, given, attrs, threads=threads), values),
            (run_gradient(name, given, attrs, upstream=upstream, threads=threads), gradients),
        ):
            assert found.keys() == expected.keys()
            for slot, value in expected.items():
                np.testing.assert_array_equal(found[slot], value, err_msg=f"{slot} {threads}")


def test_parameters_of_another_size_are_refused_with_their_types(rng):
    given = arguments(rng.standard_normal((2, 3, 4)), "NCHW", rng)
    given["Bias"] = np.zeros(4)
    with pytest.raises(PeError, match=r"Bias of type float64\[3\].*got float64\[4\]"):
        run_op("batch_norm", given)
    with pytest.raises(PeError, match="2 to 5 axes"):
        run_op("batch_norm", {**given, "X": np.zeros(3)})


@pytest.mark.parametrize("shape", [(5, 3), (2, 3, 4, 5)], ids=str)
@pytest.mark.parametrize("name", ["batch_norm", "fused_batch_norm_act", "fused_bn_add_activation"])
def test_fixed_statistics_without_a_gradient_of_the_scale_need_no_sums(rng, monkeypatch, name, shape):
    """Scratch memory holds whatever was there before, which must not reach a gradient, not even times 0."""
    monkeypatch.setattr(Lowering, "scratch", _of_nan(Lowering.scratch))
    x, up = rng.standard_normal(shape), rng.standard_normal(shape)
    given = arguments(x, "NCHW", rng) | ({"Z": np.ones(shape)} if "add" in name else {})
    monkeypatch.setattr(find(name), "differentiable", ("X", "Z") if "add" in name else ("X",))
    found = run_gradient(name, given, {"is_test": True}, "Y", up)
    each = [given[slot].reshape(1, 3, *[1] * (len(shape) - 2)) for slot in ("Scale", "Bias", "Mean", "Variance")]
    factor = each[0] / np.sqrt(each[3] + 1e-5)
    y = (x - each[2]) * factor + each[1] + given.get("Z", 0)
    through = up if name == "batch_norm" else np.where(y > 0, up, 0)
    np.testing.assert_allclose(found["X"], through * factor, rtol=1e-9)


def _of_nan(scratch):
    def filled(self, elements, dtype="float32"):
        made = scratch(self, elements, dtype)
        if dtype in FLOATS:
            self.call(fill, made, elements, np.nan, dtype=dtype)
        return made

    return filled
