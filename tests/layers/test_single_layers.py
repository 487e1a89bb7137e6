"""What single layers do beyond one op: parameters, shapes, values by hand, errors."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.program.backward import append_backward
from pe_cli.program.param_attr import ParamAttr
from tests.layers.support import layers as L
from tests.layers.support import programs, run


@pytest.fixture
def net():
    with programs() as both:
        yield both


def shapes(main):
    return {p.name: p.shape for p in main.global_block().parameters()}


# --- fc -------------------------------------------------------------------------------------------------------------


def test_fc_by_hand(net):
    out = L.fc(L.data("x", [2]), 2, name="h", act="relu")
    values = {"h.w_0": [[1, 2], [3, 4]], "h.b_0": [-10, 1]}
    (got,) = run(*net, {"x": np.array([[1, 1], [2, 2]], "float32")}, [out], values)
    np.testing.assert_array_equal(got, [[0, 7], [0, 13]])


def test_fc_of_several_inputs_adds_their_products(net):
    out = L.fc([L.data("a", [2]), L.data("b", [3])], 1, name="h", bias_attr=False)
    assert shapes(net[0]) == {"h.w_0": (2, 1), "h.w_1": (3, 1)}
    values = {"h.w_0": [[1], [2]], "h.w_1": [[3], [4], [5]]}
    feed = {"a": np.ones((1, 2), "float32"), "b": np.ones((1, 3), "float32")}
    (got,) = run(*net, feed, [out], values)
    np.testing.assert_array_equal(got, [[15]])


@pytest.mark.parametrize(
    ("dims", "weight", "out"),
    [
        pytest.param(1, (6, 5), (-1, 5), id="all but the batch"),
        pytest.param(2, (3, 5), (-1, 2, 5), id="the last axis"),
        pytest.param(-1, (3, 5), (-1, 2, 5), id="minus one is the last axis"),
    ],
)
def test_fc_flattens_from_num_flatten_dims(net, dims, weight, out):
    made = L.fc(L.data("x", [2, 3]), 5, num_flatten_dims=dims)
    assert shapes(net[0]) == {"fc_0.w_0": weight, "fc_0.b_0": (5,)}
    assert made.shape == out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"size": 0}, "size must be at least 1, got 0", id="size zero"),
        pytest.param({"size": 2, "num_flatten_dims": 2}, "num_flatten_dims is 2", id="nothing left to flatten"),
    ],
)
def test_fc_refuses(net, options, message):
    with pytest.raises(PeError, match=message):
        L.fc(L.data("x", [4]), **options)


# --- images ---------------------------------------------------------------------------------------------------------


def test_conv2d_has_a_filter_and_a_bias_per_output_channel(net):
    L.conv2d(L.data("x", [6, 8, 8]), 4, [3, 5], groups=2)
    assert shapes(net[0]) == {"conv2d_0.w_0": (4, 3, 3, 5), "conv2d_0.b_0": (4,)}


def test_conv2d_starts_normal_with_variance_two_over_the_inputs_of_a_filter(net):
    L.conv2d(L.data("x", [6, 8, 8]), 4, 3)
    op = net[1].global_block().ops[0]
    assert op.type == "gaussian_random"
    assert op.attrs["std"] == pytest.approx((2 / (3 * 3 * 6)) ** 0.5)


@pytest.mark.parametrize(("data_format", "axis"), [("NCHW", 1), ("NHWC", 3)])
def test_the_bias_of_conv2d_is_added_to_channels(net, data_format, axis):
    shape = [6, 8, 8] if axis == 1 else [8, 8, 6]
    out = L.conv2d(L.data("x", shape), 2, 3, name="c", data_format=data_format)
    feed = {"x": np.zeros((2, *shape), "float32")}
    (got,) = run(*net, feed, [out], {"c.b_0": [1, 2]})
    want = np.broadcast_to(np.array([1, 2]).reshape([-1 if a == axis else 1 for a in range(4)]), got.shape)
    np.testing.assert_array_equal(got, want)


def test_as_many_groups_as_channels_is_a_depthwise_convolution(net):
    L.conv2d(L.data("x", [6, 8, 8]), 12, 3, groups=6)
    assert net[0].global_block().ops[0].type == "depthwise_conv2d"
    assert shapes(net[0])["conv2d_0.w_0"] == (12, 1, 3, 3)


def test_one_channel_is_an_ordinary_convolution(net):
    L.conv2d(L.data("x", [1, 8, 8]), 4, 3)
    assert net[0].global_block().ops[0].type == "conv2d"


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        pytest.param([6], {}, r"should be \[batch, channels, height, width\]", id="an input that is no image"),
        pytest.param([6, 8, 8], {"groups": 4}, "channels is 6, which 4 groups do not divide", id="groups and channels"),
        pytest.param(
            [6, 8, 8], {"groups": 2, "num_filters": 5}, "num_filters is 5, which 2 groups", id="groups and filters"
        ),
        pytest.param([6, 8, 8], {"stride": 0}, "stride must be a number of at least 1", id="stride zero"),
        pytest.param([6, 8, 8], {"data_format": "CHWN"}, "data_format is 'CHWN'", id="an unknown format"),
    ],
)
def test_conv2d_refuses(net, shape, options, message):
    with pytest.raises(PeError, match=message):
        L.conv2d(L.data("x", shape), **{"num_filters": 4, "filter_size": 3, **options})


def test_a_global_pool_needs_no_size(net):
    out = L.pool2d(L.data("x", [2, 4, 4]), pool_type="avg", global_pooling=True)
    assert out.shape == (-1, 2, 1, 1)
    (got,) = run(*net, {"x": np.arange(32, dtype="float32").reshape(1, 2, 4, 4)}, [out])
    np.testing.assert_allclose(got.ravel(), [7.5, 23.5])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({}, "pool_size is missing", id="no size"),
        pytest.param({"pool_size": 2, "pool_type": "sum"}, "pool_type is 'sum'", id="an unknown type"),
    ],
)
def test_pool2d_refuses(net, options, message):
    with pytest.raises(PeError, match=message):
        L.pool2d(L.data("x", [2, 4, 4]), **options)


# --- normalisation --------------------------------------------------------------------------------------------------


def test_batch_norm_has_two_trained_and_two_moving_parameters(net):
    L.batch_norm(L.data("x", [3, 4, 4]))
    block = net[0].global_block()
    assert [(p.name, p.shape, p.trainable) for p in block.parameters()] == [
        ("batch_norm_0.w_0", (3,), True), ("batch_norm_0.b_0", (3,), True),
        ("batch_norm_0.w_1", (3,), False), ("batch_norm_0.w_2", (3,), False),
    ]  # fmt: skip
    starts = {op.outputs["Out"][0]: op.attrs["value"] for op in net[1].global_block().ops}
    assert list(starts.values()) == [1.0, 0.0, 0.0, 1.0]


def test_batch_norm_moves_its_statistics(net):
    L.batch_norm(L.data("x", [2]), momentum=0.75, moving_mean_name="m", moving_variance_name="v")
    x = np.array([[0, 2], [4, 2]], "float32")  # means 2 and 2, variances 4 and 0
    mean, variance = run(*net, {"x": x}, ["m", "v"])
    np.testing.assert_allclose(mean, [0.5, 0.5])
    np.testing.assert_allclose(variance, [0.75 + 1, 0.75], rtol=1e-6)


def test_layer_norm_without_scale_and_shift_has_no_parameters(net):
    out = L.layer_norm(L.data("x", [4]), scale=False, shift=False, epsilon=0.0)
    (got,) = run(*net, {"x": np.array([[1, 1, 3, 3]], "float32")}, [out])
    np.testing.assert_allclose(got, [[-1, -1, 1, 1]], rtol=1e-6)


def test_l2_normalize_by_hand(net):
    out = L.l2_normalize(L.data("x", [2]), axis=1)
    (got,) = run(*net, {"x": np.array([[3, 4], [0, 2]], "float32")}, [out])
    np.testing.assert_allclose(got, [[0.6, 0.8], [0, 1]], rtol=1e-6)


def test_dropout_of_a_clone_for_test_scales_down(net):
    out = L.dropout(L.data("x", [4]), 0.25)
    (got,) = run(net[0].clone(for_test=True), net[1], {"x": np.ones((1, 4), "float32")}, [out])
    np.testing.assert_allclose(got, np.full((1, 4), 0.75))


# --- the rest -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        pytest.param({}, (-1, 4), id="a batch axis is added"),
        pytest.param({"append_batch_size": False}, (4,), id="or not"),
        pytest.param({"shape": [-1, 4]}, (-1, 4), id="an unknown size is the batch axis"),
        pytest.param({"shape": [None, 4]}, (-1, 4), id="so is None"),
    ],
)
def test_data_shapes(net, options, shape):
    made = L.data("x", **{"shape": [4], **options})
    assert (made.shape, made.is_data, made.stop_gradient, made.persistable) == (shape, True, True, False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"shape": [0]}, r"feed 'x' has shape \[0\]", id="a size of zero"),
        pytest.param({"dtype": "float16"}, "unknown dtype 'float16'", id="an unknown dtype"),
    ],
)
def test_data_refuses(net, options, message):
    with pytest.raises(PeError, match=message):
        L.data("x", **{"shape": [4], **options})


def test_two_feeds_of_one_name_are_an_error(net):
    L.data("x", [4])
    with pytest.raises(PeError, match="'x' is declared twice"):
        L.data("x", [4])


@pytest.mark.parametrize(
    ("padding_idx", "attr"),
    [
        pytest.param(None, -1, id="none"),
        pytest.param(0, 0, id="the first id"),
        pytest.param(-1, 9, id="the last id"),
    ],
)
def test_embedding_counts_padding_from_either_end(net, padding_idx, attr):
    L.embedding(L.data("ids", [1], dtype="int64"), [10, 4], padding_idx=padding_idx)
    assert net[0].global_block().ops[0].attrs["padding_idx"] == attr
    assert shapes(net[0]) == {"embedding_0.w_0": (10, 4)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"size": [10]}, r"size is \[10\]", id="a size of one number"),
        pytest.param({"size": [10, 4], "padding_idx": 10}, "padding_idx is 10, but there are 10 ids", id="no such id"),
    ],
)
def test_embedding_refuses(net, options, message):
    with pytest.raises(PeError, match=message):
        L.embedding(L.data("ids", [1], dtype="int64"), **options)


def test_reduce_of_all_axes_by_default(net):
    out = L.reduce_sum(L.data("x", [2, 2]))
    assert out.shape == (1,)
    (got,) = run(*net, {"x": np.ones((3, 2, 2), "float32")}, [out])
    np.testing.assert_array_equal(got, [12])


def test_a_softmax_may_be_asked_to_be_unstable(net):
    for stable in (True, False):
        L.softmax_with_cross_entropy(L.data(f"x{stable}", [4]), L.data(f"l{stable}", [1], dtype="int64"), numeric_stable_mode=stable)
    assert [op.type for op in net[0].global_block().ops] == ["softmax_with_cross_entropy"] * 2


def test_assign_and_sums_write_to_a_given_variable(net):
    block = net[0].global_block()
    x = L.data("x", [2])
    y = L.assign(x)
    assert L.assign(x, y) is y
    assert L.sums([x, x], out=y) is y
    assert [op.outputs for op in block.ops] == [{"Out": [y.name]}] * 3


def test_accuracy_counts_into_given_variables(net):
    correct, total = L.fill_constant([1], "int64", 0), L.fill_constant([1], "int64", 0)
    acc = L.accuracy(L.data("p", [3]), L.data("l", [1], dtype="int64"), correct=correct, total=total)
    feed = {"p": np.eye(3, dtype="float32"), "l": np.array([[0], [1], [0]])}
    got = run(*net, feed, [acc, correct, total])
    np.testing.assert_allclose(got[0], [2 / 3], rtol=1e-6)
    assert [int(g[0]) for g in got[1:]] == [2, 3]


def test_a_small_net_trains_its_shared_weight_through_both_uses(net):
    x = L.data("x", [2])
    a = L.fc(x, 2, param_attr=ParamAttr(name="w"), bias_attr=False)
    b = L.fc(a, 2, param_attr=ParamAttr(name="w"), bias_attr=False)
    ((_, gradient),) = append_backward(L.mean(b))
    w = np.array([[1.0, 2.0], [3.0, 4.0]])
    feed = np.array([[1.0, -1.0], [0.5, 2.0]])
    (got,) = run(*net, {"x": feed.astype("float32")}, [gradient], {"w": w})
    g = np.full((2, 2), 0.25)
    np.testing.assert_allclose(got, (feed @ w).T @ g + feed.T @ (g @ w.T), rtol=1e-5)
