"""A layer of a script's own, written with fluid.layer_helper, computes and trains as fc does."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from pe_cli.paddle.fluid.layer_helper import LayerHelper

L = fluid.layers

def dense(input, size, param_attr=None, bias_attr=None, act=None, name=None):
    helper = LayerHelper("dense", **locals())
    kind = helper.input_dtype()
    weight = helper.create_parameter(attr=helper.param_attr, shape=[input.shape[1], size], dtype=kind)
    out = helper.create_variable_for_type_inference(kind)
    helper.append_op(type="mul", inputs={"X": [helper.input()], "Y": [weight]}, outputs={"Out": [out]}, attrs={"x_num_col_dims": 1})
    return helper.append_activation(helper.append_bias_op(out))


def test_a_layer_of_ones_own_is_fc():
    x = fluid.data("x", [-1, 3])
    attrs = {"param_attr": fluid.initializer.Constant(0.5), "bias_attr": fluid.ParamAttr(initializer=fluid.initializer.Constant(1.0))}
    leaky = dense(x, 4, act={"type": "leaky_relu", "alpha": 0.1}, bias_attr=False)
    found = [dense(x, 4, act="tanh", **attrs), leaky, L.fc(x, 4, act="tanh", **attrs)]
    names = [p.name for p in fluid.default_main_program().all_parameters()]
    assert names[:3] == ["dense_0.w_0", "dense_1.w_0", "dense_1.b_0"]
    slopes = fluid.gradients(L.reduce_sum(L.square(found[0])), [fluid.default_main_program().global_block().var("dense_1.w_0")])
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    a = np.linspace(-1, 1, 6, dtype="float32").reshape(2, 3)
    mine, _, theirs, slope = exe.run(feed={"x": a}, fetch_list=[*found, *slopes])
    np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_allclose(slope, a.T @ (2 * mine * (1 - mine**2)), rtol=1e-5)


def test_what_does_not_fit_is_told():
    x, y = fluid.data("x", [2, 3]), fluid.data("y", [2, 3], "float64")
    with pytest.raises(ValueError, match="2 variables"):
        LayerHelper("mine", input=[x, x]).input()
    with pytest.raises(ValueError, match="float32, float64"):
        LayerHelper("mine", input=[x, y]).input_dtype()
    with pytest.raises(TypeError, match="act is 3"):
        LayerHelper("mine", act=3).append_activation(x)
    with pytest.raises(ValueError, match="no activation"):
        LayerHelper("mine", act="rleu").append_activation(x)
    with pytest.raises(ValueError, match="2 param_attr for 3"):
        LayerHelper("mine", param_attr=[None, None]).multiple_param_attr(3)


def test_drawn_parameters_have_a_diagonal_of_their_own():
    def drawn(**given):
        return L.create_parameter([3, 4], "float32", default_initializer=fluid.initializer.Uniform(0.0, 1e-7, **given))

    found = [drawn(diag_num=3, diag_step=4, diag_val=2.0), drawn(diag_num=2, diag_step=1)]
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    first, second = exe.run(fetch_list=found)
    assert first.round(3).ravel().nonzero()[0].tolist() == [0, 5, 10]
    assert first.max() == 2
    assert second.round(3).ravel().nonzero()[0].tolist() == [0, 2]
    with pytest.raises(ValueError, match="5 elements 5 apart does not fit"):
        drawn(diag_num=5, diag_step=4)


def test_operators_with_the_slots_and_attributes_of_the_original_are_appended(rng):
    helper = LayerHelper("own")
    x, filters = fluid.data("x", [None, 3, 4, 4]), fluid.layers.create_parameter([2, 3, 3, 3], "float32")

    def made(type, inputs, slot="Out", more=(), **attrs):
        out = helper.create_variable_for_type_inference("float32")
        beside = {name: helper.create_variable_for_type_inference("float32") for name in more}
        helper.append_op(type=type, inputs=inputs, outputs={slot: out, **beside}, attrs=attrs)
        return out

    attrs = {"strides": [1, 1], "paddings": (1, 1), "dilations": [1, 1], "groups": None, "use_cudnn": True, "use_mkldnn": False}
    image = made("conv2d", {"Input": x, "Filter": filters}, "Output", **attrs)
    rows = made("reshape2", {"X": image}, more=["XShape"], shape=[0, -1])
    unit = made("norm", {"X": rows}, more=["Norm"], axis=1, epsilon=1e-12)
    twos = made("fill_constant_batch_size_like", {"Input": rows}, shape=[-1, 4], dtype=x.dtype, value=2.0, force_cpu=False)
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(unit))
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    fed = rng.standard_normal((2, 3, 4, 4)).astype("float32")
    before, length, filled = exe.run(feed={"x": fed}, fetch_list=[rows, unit, twos])
    assert (image.shape, rows.shape) == ((-1, 2, 4, 4), (-1, 32))
    np.testing.assert_allclose(length, before / np.linalg.norm(before, axis=1, keepdims=True), rtol=1e-5, atol=1e-7)
    assert filled.tolist() == [[2] * 4] * 2
    assert not np.array_equal(exe.run(feed={"x": fed}, fetch_list=[rows])[0], before)
    with pytest.raises(ValueError, match="there is no op 'own_op'"):
        made("own_op", {"X": x})
    with pytest.raises(ValueError, match="its input Bias is not read"):
        made("conv2d", {"Input": x, "Filter": filters, "Bias": filters}, "Output", use_mkldnn=True)
    # True and 1 say something, though they equal the 1.0 that does not
    plain = {"strides": [1, 1], "paddings": [1, 1], "dilations": [1, 1], "groups": 1}
    made("conv2d", {"Input": x, "Filter": filters}, "Output", **plain, further=1.0, more_of_it=False)
    for value in (True, 1):
        with pytest.raises(ValueError, match=f"its attribute further is {value}, which is not read"):
            made("conv2d", {"Input": x, "Filter": filters}, "Output", **plain, further=value)


def test_a_parameter_that_is_not_trained():
    helper = LayerHelper("anchors")
    kept = helper.create_parameter(
        fluid.ParamAttr(name="kept"), [2], "float32", stop_gradient=True, default_initializer=fluid.initializer.Constant(3.0)
    )
    x = fluid.data("x", [None, 2])
    loss = fluid.layers.mean(fluid.layers.fc(x * kept, 1, param_attr=fluid.ParamAttr(name="w")))
    fluid.optimizer.SGD(0.5).minimize(loss)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    before = np.array(fluid.global_scope().find_var("w").get_tensor())
    executor.run(feed={"x": np.ones((1, 2), "float32")}, fetch_list=[loss])
    assert np.array(fluid.global_scope().find_var("kept").get_tensor()).tolist() == [3, 3]
    np.testing.assert_allclose(np.array(fluid.global_scope().find_var("w").get_tensor()), before - 1.5, rtol=1e-6)
    with pytest.raises(ValueError, match="a parameter is a tensor"):
        helper.create_parameter(None, [2], "float32", type=fluid.core.VarDesc.VarType.SELECTED_ROWS)
