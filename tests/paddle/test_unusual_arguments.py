"""Calls that neither the reference nor its examples show: values and types of errors as PaddlePaddle 1.8.5 had them on a CPU."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid

L = fluid.layers

def run(*fetches, **feed):
    return fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=list(fetches))


def test_whole_numbers_are_computed_with_whole_factors():
    n = fluid.data("n", [4], "int64")
    found = run(
        L.exp(n), L.scale(n, 2.5, 1.5), L.scale(n, -2.5, 1.5, bias_after_scale=False), L.pow(n, 2.5), n=np.array([0, 1, 3, 7])
    )
    for got, recorded in zip(found, [[1, 2, 20, 1096], [1, 3, 7, 15], [-2, -4, -8, -16], [0, 1, 9, 49]], strict=True):
        assert got.dtype == np.int64
        assert got.tolist() == recorded


def test_costs_of_labels_with_fewer_axes():
    p, q, c = fluid.data("p", [2, 3]), fluid.data("q", [3]), fluid.data("c", [2], "int64")
    squares, cost, unit = run(
        L.square_error_cost(p, q), L.cross_entropy(p, c), L.l2_normalize(p, axis=None),
        p=np.array([[0.5, 0.25, 0.25], [0.125, 0.125, 0.75]], "float32"), q=np.array([1, 0.5, -1], "float32"), c=np.array([0, 1]),
    )  # fmt: skip
    np.testing.assert_allclose(squares, [[0.25, 0.0625, 1.5625], [0.765625, 0.140625, 3.0625]])
    np.testing.assert_allclose(cost, [0.6931471824645996, 2.079441547393799], rtol=1e-6)
    np.testing.assert_allclose(unit[:, 0], [0.8164965510368347, 0.16222141683101654], rtol=1e-6)


def test_element_types_of_results_follow_the_original():
    d, c = fluid.data("d", [2, 3], "float64"), fluid.data("c", [2, 1], "int64")
    smooth, share = run(L.label_smooth(d, epsilon=0.3), L.accuracy(d, c), d=np.array([[1, 0, 0], [0, 0, 1.0]]), c=np.array([[0], [1]]))
    assert smooth.dtype == np.float64
    np.testing.assert_allclose(smooth, [[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]], rtol=1e-6)
    assert share.dtype == np.float32
    assert share.tolist() == [0.5]


def test_a_decay_may_stand_for_an_attribute_of_a_parameter():
    L.fc(fluid.data("x", [3, 4]), 5, param_attr=fluid.regularizer.L2Decay(0.1), bias_attr=fluid.initializer.Constant(2.0))
    weight, bias = fluid.default_main_program().all_parameters()
    assert weight.regularizer.regularization_coeff == 0.1
    assert bias.regularizer is None
    fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
    assert np.array(fluid.global_scope().find_var(bias.name).get_tensor()).tolist() == [2.0] * 5


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda x, n: L.abs(None), id="nothing"),
        pytest.param(lambda x, n: L.reduce_mean(None), id="nothing, of a layer that scripts call with more"),
        pytest.param(lambda x, n: L.elementwise_add(x, 2.0), id="a number for a variable"),
        pytest.param(lambda x, n: L.tanh(n), id="whole numbers for floats"),
        pytest.param(lambda x, n: L.softmax(n), id="logits that are whole numbers"),
        pytest.param(lambda x, n: L.matmul(n, n), id="a product of whole numbers"),
        pytest.param(lambda x, n: L.huber_loss(n, n, 1.0), id="a loss of whole numbers"),
        pytest.param(lambda x, n: L.layer_norm(n), id="a norm of whole numbers"),
        pytest.param(lambda x, n: L.fc(n, 5), id="weights of whole numbers"),
        pytest.param(lambda x, n: L.conv2d(L.reshape(n, [1, 1, 3, 3]), 1, 3), id="filters of whole numbers"),
        pytest.param(lambda x, n: L.fc(x, 5, param_attr=3), id="a number for an attribute"),
        pytest.param(lambda x, n: L.logical_and(n, n), id="whole numbers for conditions"),
        pytest.param(lambda x, n: L.reshape(x, 9), id="a number for a list"),
    ],
)
def test_a_type_that_is_not_taken_is_a_type_error(call):
    with pytest.raises(TypeError):
        call(fluid.data("x", [3, 3]), fluid.data("n", [3, 3], "int64"))


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda x: L.increment(x), id="several numbers to count up"),
        pytest.param(lambda x: L.topk(x, 4), id="more than there are"),
        pytest.param(lambda x: L.fill_constant([2], "nope", 1), id="an unknown element type"),
        pytest.param(lambda x: L.pool2d(x, 2), id="no image"),
    ],
)
def test_a_value_that_is_not_taken_is_a_value_error(call):
    with pytest.raises(ValueError, match=r"\w"):
        call(fluid.data("x", [3, 3]))


def test_parameters_of_cells_have_the_original_s_names(tmp_path):
    x = fluid.data("x", [2, 4, 5])
    L.rnn(L.GRUCell(3), x), L.rnn(L.LSTMCell(3, name="last"), x)
    recorded = [f"GRUCell/BasicGRUUnit_0.{n}" for n in ("w_0", "w_1", "b_0", "b_1")]
    recorded += ["last/BasicLSTMUnit_0.w_0", "last/BasicLSTMUnit_0.b_0"]
    assert [p.name for p in fluid.default_main_program().all_parameters()] == recorded
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    before = np.array(fluid.global_scope().find_var(recorded[0]).get_tensor())
    fluid.io.save_params(executor, str(tmp_path))
    executor.run(fluid.default_startup_program())
    fluid.io.load_params(executor, str(tmp_path))
    np.testing.assert_array_equal(np.array(fluid.global_scope().find_var(recorded[0]).get_tensor()), before)


@pytest.mark.parametrize(("taps", "stride", "size"), [(7, 7, 6), ([8, 2], [3, 2], 6), (9, 4, 6)])
def test_one_window_of_a_pool_is_there_where_less_than_a_stride_is_missing(taps, stride, size):
    image = np.arange(2.0 * size * size, dtype="float32").reshape(1, 2, size, size)
    x = fluid.data("image", [None, 2, size, size])
    mean, most = (fluid.layers.pool2d(x, taps, kind, stride) for kind in ("avg", "max"))
    found = fluid.Executor(fluid.CPUPlace()).run(feed={"image": image}, fetch_list=[mean, most])
    columns = np.split(image, 3, 3) if isinstance(taps, list) else [image]
    for value, how in zip(found, (np.mean, np.max), strict=True):
        np.testing.assert_allclose(value, np.concatenate([how(part, (2, 3), keepdims=True) for part in columns], 3))
    with pytest.raises(ValueError, match="does not fit"):
        fluid.layers.pool2d(x, size + 3, "avg", 3)


@pytest.mark.parametrize(("layer", "shape"), [
    pytest.param(lambda x, v, n, f: L.pool2d(x, [n(4), n(4)], "avg", [n(2), n(2)]), (-1, 4, 3, 3), id="pool"),
    pytest.param(lambda x, v, n, f: L.im2sequence(x, [n(2), n(2)], [n(1), n(1)]), (-1, 16), id="windows"),
    pytest.param(lambda x, v, n, f: L.stack([v, v], n(1)), (-1, 2, 4), id="stack"),
    pytest.param(lambda x, v, n, f: L.group_norm(x, n(2)), (-1, 4, 8, 8), id="groups"),
    pytest.param(lambda x, v, n, f: L.label_smooth(v, epsilon=f(0.1)), (-1, 4), id="smooth"),
    pytest.param(lambda x, v, n, f: L.exponential_decay(f(0.1), n(3), f(0.9)), (1,), id="schedule"),
    pytest.param(lambda x, v, n, f: L.reshape(x, [n(-1), n(16), n(16)]), (-1, 16, 16), id="reshape"),
    pytest.param(lambda x, v, n, f: L.resize_bilinear(x, [n(4), n(4)]), (-1, 4, 4, 4), id="resize"),
])  # fmt: skip
@pytest.mark.parametrize(("whole", "real"), [(np.int32, np.float32), (np.int64, np.float64)])
def test_numbers_of_numpy_count_as_pythons(layer, shape, whole, real):
    x, v = fluid.data("x", [None, 4, 8, 8]), fluid.data("v", [None, 4])
    assert layer(x, v, whole, real).shape == shape


def test_numbers_stand_for_yes_and_no_as_scripts_work_them_out():
    x = fluid.data("gates", [None, 12], lod_level=1)
    L.dynamic_lstm(x, 12, is_reverse=3 % 2)
    assert fluid.default_main_program().global_block().ops[-1].attrs["is_reverse"] is True
