"""What the original's layers and optimizers take beyond the catalogue's, against NumPy, PyTorch and formulas."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from pe_cli.core.errors import PeError
from pe_cli.paddle.errors import FluidTypeError, FluidValueError
from tests.needs import torch

L = fluid.layers

def run(*fetches, start=False, **feed):
    exe = fluid.Executor(fluid.CPUPlace())
    if start:
        exe.run(fluid.default_startup_program())
    return [np.asarray(v) for v in exe.run(feed=feed, fetch_list=list(fetches), return_numpy=False)]


def fed(name, array):
    v = fluid.data(name, list(array.shape), str(array.dtype))
    v.stop_gradient = False
    return v


def test_whole_numbers_are_cut_towards_0():
    a, b = np.array([[7, -7, 5]], "int32"), np.array([[2, 2, -3]], "int32")
    x, y = fed("x", a), fed("y", b)
    z = fed("z", HALVES)
    found = run(L.elementwise_div(x, y), L.elementwise_pow(x, L.abs(y)), L.reduce_mean(x), x**2, L.round(z), x=a, y=b, z=HALVES)
    for got, right in zip(found, ([[3, -3, -1]], [[49, 49, 125]], [1], [[49, 49, 25]], [1, 3, -1, -3, 0, 2]), strict=True):
        np.testing.assert_array_equal(got, right)


HALVES = np.array([0.5, 2.5, -0.5, -2.5, 0.49, 1.6], "float32")


def test_slices_of_variables(rng):
    a = rng.standard_normal((4, 5, 6)).astype("float32")
    x, i = fed("x", a), L.fill_constant([1], "int32", 2)
    wanted = [a[::-1, :, 1:4:2], a[1, ..., -1], a[..., 3], a[2:100, 1], a[2], a[0:2], a[3:0:-1], a[0, 0, :1], a[:, -2:]]
    found = run(x[::-1, :, 1:4:2], x[1, ..., -1], x[..., 3], x[2:100, 1], x[i], x[0:i], x[3:0:-1], x[0, 0, 0], x[:, -2:], x=a)
    for got, right in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(got, right)
    with pytest.raises(FluidValueError, match="3 axes, the index has 4"):
        x[0, 0, 0, 0]
    with pytest.raises(FluidTypeError, match="integers and slices"):
        x["a"]


def test_images_and_sequences(rng):
    a, pads = rng.standard_normal((2, 2, 4, 6)).astype("float32"), np.array([1, 2, 0, 3], "int32")
    x, p = fed("x", a), fluid.data("p", [4], "int32")
    out = L.pad2d(x, p, "edge")
    deep = L.space_to_depth(L.reshape(x, [1, 4, 4, 6]), 2)
    (slope,) = fluid.gradients([L.reduce_sum(L.square(out))], [x])
    rows = L.row_conv(L.reshape(x, [2, 4, 12]), 2, fluid.ParamAttr(initializer=fluid.initializer.Constant(0.5)))
    got, moved, back, conv = run(out, deep, slope, rows, start=True, x=a, p=pads)
    t = torch.tensor(a, requires_grad=True)
    padded = torch.nn.functional.pad(t, (0, 3, 1, 2), "replicate")
    padded.square().sum().backward()
    np.testing.assert_array_equal(got, padded.detach())
    np.testing.assert_allclose(back, t.grad, rtol=1e-6)
    image, wanted = a.reshape(1, 4, 4, 6), np.zeros((1, 1, 8, 12), "float32")
    for p1, p2 in np.ndindex(2, 2):
        wanted[0, 0, p1::2, p2::2] = image[0, p1 * 2 + p2]
    np.testing.assert_array_equal(moved, wanted.reshape(1, 16, 2, 3))
    behind = np.pad(a.reshape(2, 4, 12), ((0, 0), (0, 2), (0, 0)))
    np.testing.assert_allclose(conv, 0.5 * (behind[:, :4] + behind[:, 1:5] + behind[:, 2:]), rtol=1e-5, atol=1e-6)


def test_rows_with_sequences(rng):
    a = rng.standard_normal((5, 4)).astype("float32")
    offsets = np.array([0, 2, 5], "int32")
    x, y, plain = fluid.data("x", [None, 4], "float32", 1), fluid.data("y", [None], "int32"), fluid.data("plain", [None, 4])
    tensor = fluid.create_lod_tensor(a, [[2, 3]], fluid.CPUPlace())
    exe = fluid.Executor(fluid.CPUPlace())
    wanted = [L.add_position_encoding(x, 1.0, 1.0), L.lod_reset(plain, y), L.lod_append(x, L.lod_reset(plain, target_lod=[0, 1, 2, 3, 5]))]
    coded, grouped, nested = exe.run(feed={"x": tensor, "y": offsets, "plain": a}, fetch_list=wanted, return_numpy=False)
    steps = np.array([0, 1, 0, 1, 2])[:, None] / [1.0, 10000.0]
    np.testing.assert_allclose(np.asarray(coded), a + np.concatenate([np.sin(steps), np.cos(steps)], 1), rtol=1e-5, atol=1e-5)
    assert grouped.lod() == [[0, 2, 5]]
    assert nested.lod()[-1] == [0, 1, 2, 3, 5]


@pytest.mark.parametrize(("overwrite", "twice"), [(True, [3.0, 4.0]), (False, [4.0, 6.0])])
def test_rows_that_are_gathered_twice(overwrite, twice):
    x, places = fed("x", np.ones((3, 2), "float32")), L.assign(np.array([1, 1], "int64"))
    weights = fluid.data("w", [2, 2])
    (slope,) = fluid.gradients([L.reduce_sum(L.gather(x, places, overwrite) * weights)], [x])
    (got,) = run(slope, x=np.ones((3, 2), "float32"), w=np.array([[1, 2], [3, 4]], "float32"))
    np.testing.assert_array_equal(got, [[0, 0], twice, [0, 0]])


def test_counts_of_accuracy_are_int32_and_ids_may_be():
    ids = fluid.data("ids", [None], "int32")
    counts = [L.create_tensor("int32"), L.create_tensor("int32")]
    share = L.accuracy(fluid.data("p", [None, 3]), fluid.data("y", [None, 1], "int64"), 1, *counts)
    feed = {"ids": np.array([2, 0], "int32"), "p": np.eye(3, dtype="float32")[:2], "y": np.array([[0], [2]])}
    found = run(share, *counts, fluid.one_hot(ids, 3), **feed)
    assert [v.dtype.name for v in found[1:3]] == ["int32", "int32"]
    assert [v.tolist() for v in found] == [[0.5], [1], [2], [[0, 0, 1], [1, 0, 0]]]


def test_batch_norm_whose_momentum_a_step_gives(rng):
    a = rng.standard_normal((6, 3)).astype("float32")
    momentum = L.create_global_var([1], 0.75, "float32", persistable=True)
    out = L.batch_norm(fluid.data("x", [None, 3]), momentum=momentum, moving_mean_name="m", moving_variance_name="v")
    program = fluid.default_main_program()
    test = program.clone(for_test=True)
    run(out, start=True, x=a)
    first = [np.array(fluid.global_scope().find_var(n).get_tensor()) for n in "mv"]
    np.testing.assert_allclose(first[0], 0.25 * a.mean(0), rtol=1e-5)
    np.testing.assert_allclose(first[1], 0.75 + 0.25 * a.var(0), rtol=1e-5)
    fluid.Executor(fluid.CPUPlace()).run(test, feed={"x": a}, fetch_list=[out])
    for name, value in zip("mv", first, strict=True):
        np.testing.assert_array_equal(np.array(fluid.global_scope().find_var(name).get_tensor()), value)


def test_adam_with_variable_decays_is_adam(rng):
    a, w = rng.standard_normal((4, 3)).astype("float32"), np.array([[0.3], [-0.2], [0.5]], "float32")
    out = L.fc(fluid.data("x", [None, 3]), 1, param_attr=fluid.ParamAttr("w", fluid.initializer.NumpyArrayInitializer(w)), bias_attr=False)
    loss = L.mean(L.square(out))
    betas = [L.create_global_var([1], v, "float32", persistable=True) for v in (0.9, 0.99)]
    fluid.optimizer.Adam(0.1, beta1=betas[0], beta2=betas[1], epsilon=1e-12).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    for _ in range(3):
        exe.run(feed={"x": a}, fetch_list=[])
    # Kingma and Ba 2014, end of section 2; the powers of decays that are variables begin at 0.9 and 0.999, as in the original.
    mean, square, x, powers = 0.0, 0.0, a.astype("float64"), np.array([0.9, 0.999])
    for _ in range(3):
        slope = 2 * x.T @ (x @ w) / len(x)
        mean, square = 0.9 * mean + 0.1 * slope, 0.99 * square + 0.01 * slope**2
        w = w - 0.1 * np.sqrt(1 - powers[1]) / (1 - powers[0]) * mean / np.sqrt(square)
        powers = powers * [0.9, 0.99]
    np.testing.assert_allclose(np.array(fluid.global_scope().find_var("w").get_tensor()), w, rtol=2e-5, atol=2e-6)
    with pytest.raises(FluidTypeError, match="takes its decays as numbers"):
        fluid.optimizer.Adamax(0.1, beta1=betas[0]).minimize(loss)


def test_what_scripts_ask_operators_parameters_and_gradients_for():
    out = L.fc(fluid.data("x", [None, 4]), 3, param_attr="w")
    op = out.block.ops[0]
    kinds = fluid.core.VarDesc.VarType
    assert (op.input_names, op.output_names, op.input_arg_names, out.op.type) == (["X", "Y"], ["Out"], ["x", "w"], "elementwise_add")
    assert (out.type == kinds.LOD_TENSOR, out.type == kinds.SELECTED_ROWS, out.block.var("w").is_distributed) == (True, False, False)
    assert op.to_string() == str(op)
    seen = []
    fluid.backward.append_backward(L.mean(out), callbacks=[lambda block, context: seen.append(context["__current_op_desc__"].type)])
    assert "mul_grad" in seen
    fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
    assert fluid.io.get_parameter_value_by_name("w", None).shape == (4, 3)
    with pytest.raises(FluidTypeError, match="needs a parameter"):
        fluid.io.get_parameter_value(out, None)


def test_what_only_a_step_can_tell_is_told_by_a_step(tmp_path):
    boxes = L.box_coder(fluid.data("p", [2, 4]), [0.1, 0.1, 0.2, 0.2], fluid.data("t", [None, 3, 4]), "decode_center_size")
    with pytest.raises(PeError, match="needs 3 priors for axis 0"):
        run(boxes, p=np.ones((2, 4), "float32"), t=np.ones((1, 3, 4), "float32"))
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        L.fc(fluid.data("x", [5, 1]), 10, param_attr=fluid.initializer.NumpyArrayInitializer(np.array([1, 2])))
        with pytest.raises(PeError, match="got 2 values"):
            run(start=True)
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        w = L.create_parameter([2, 2], "float32", name="w", default_initializer=fluid.initializer.Constant(3.0))
        run(start=True)
        fluid.io.save_vars(None, tmp_path, vars=[w])
        read, later = L.create_tensor("float32"), L.create_tensor("float32")
        L.load(read, tmp_path / "w")
        np.testing.assert_array_equal(run(L.scale(read, 2.0))[0], np.full((2, 2), 6.0))
        L.load(later, tmp_path / "none")
        with pytest.raises(PeError, match="no such file"):
            run(later)


def test_options_without_an_effect_in_the_original_are_warned_of():
    x, rows, state = fluid.data("x", [3]), fluid.data("rows", [2, 9]), fluid.data("state", [2, 3])
    with pytest.warns(UserWarning, match="beta has no effect"):
        out = L.swish(x, 2.0)
    with pytest.warns(UserWarning, match="activation and gate_activation have no effect"):
        candidate = L.gru_unit(rows, state, 9, bias_attr=False, activation="relu")[2]
    numbers = np.linspace(-2, 2, 18, dtype="float32").reshape(2, 9)
    feeds = {"x": np.array([0.0, 1.0, -1.0], "float32"), "rows": numbers, "state": np.zeros((2, 3), "float32")}
    got, gates = run(out, candidate, start=True, **feeds)
    np.testing.assert_allclose(got, [0, 1 / (1 + np.exp(-1)), -1 / (1 + np.exp(1))], rtol=1e-5)
    np.testing.assert_allclose(gates[:, 6:], np.tanh(numbers[:, 6:]), rtol=1e-5)
    with pytest.warns(UserWarning, match="an integer thres_steps has no effect"):
        fluid.optimizer.ExponentialMovingAverage(0.9, L.autoincreased_step_counter())
