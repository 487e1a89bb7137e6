"""paddle.nn.functional: values and gradients of activations, losses and layers of images beside PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle as paddle
import pe_cli.paddle.fluid as fluid
from pe_cli.paddle.nn import functional as F
from tests.needs import torch
from tests.paddle.nn_support import check, computed, values

T = torch.nn.functional
X, Y = values(3, 4), values(3, 4, seed=1)
IMAGES = values(2, 4, 6, 5)
ROWS = values(2, 4, 7)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        pytest.param(F.relu, T.relu, id="relu"),
        pytest.param(lambda x: F.relu6(x * 4.0), lambda x: T.relu6(x * 4.0), id="relu6"),
        pytest.param(F.sigmoid, torch.sigmoid, id="sigmoid"),
        pytest.param(F.tanh, torch.tanh, id="tanh"),
        pytest.param(F.log_sigmoid, T.logsigmoid, id="log_sigmoid"),
        pytest.param(F.softsign, T.softsign, id="softsign"),
        pytest.param(F.swish, T.silu, id="swish"),
        pytest.param(F.tanhshrink, T.tanhshrink, id="tanhshrink"),
        pytest.param(lambda x: F.hardswish(x * 3.0), lambda x: T.hardswish(x * 3.0), id="hardswish"),
        pytest.param(lambda x: F.elu(x, 0.7), lambda x: T.elu(x, 0.7), id="elu"),
        pytest.param(F.gelu, T.gelu, id="gelu"),
        pytest.param(lambda x: F.gelu(x, approximate=True), lambda x: T.gelu(x, approximate="tanh"), id="gelu by tanh"),
        pytest.param(F.selu, T.selu, id="selu"),
        pytest.param(F.hardshrink, T.hardshrink, id="hardshrink"),
        pytest.param(lambda x: F.hardsigmoid(x * 3.0), lambda x: T.hardsigmoid(x * 3.0), id="hardsigmoid"),
        pytest.param(F.hardtanh, T.hardtanh, id="hardtanh"),
        pytest.param(
            lambda x: F.hardtanh(x, -0.3, 0.6), lambda x: T.hardtanh(x, -0.3, 0.6), id="hardtanh within limits"
        ),
        pytest.param(F.leaky_relu, T.leaky_relu, id="leaky_relu"),
        pytest.param(F.softshrink, T.softshrink, id="softshrink"),
        pytest.param(lambda x: F.softplus(x, 2.0), lambda x: T.softplus(x, 2.0), id="softplus with beta"),
        pytest.param(
            lambda x: F.softplus(x, 2.0, 0.5), lambda x: T.softplus(x, 2.0, 0.5), id="softplus with a threshold"
        ),
        pytest.param(lambda x: F.thresholded_relu(x, 0.4), lambda x: T.threshold(x, 0.4, 0.0), id="thresholded_relu"),
        pytest.param(F.softmax, lambda x: T.softmax(x, -1), id="softmax"),
        pytest.param(lambda x: F.softmax(x, 0), lambda x: T.softmax(x, 0), id="softmax over rows"),
        pytest.param(F.log_softmax, lambda x: T.log_softmax(x, -1), id="log_softmax"),
        pytest.param(lambda x: F.maxout(x, 2), lambda x: x.reshape(3, 2, 2).max(2).values, id="maxout"),
        pytest.param(F.normalize, T.normalize, id="normalize"),
        pytest.param(
            lambda x: F.normalize(x, 3.0, 0), lambda x: T.normalize(x, 3.0, 0), id="normalize by another norm"
        ),
    ],
)
def test_functions_of_one_tensor(ours, theirs):
    check(torch, ours, theirs, X)


@pytest.mark.parametrize("count", [1, 4])
def test_prelu(count):
    check(torch, F.prelu, T.prelu, X, np.linspace(0.1, 0.4, count, dtype="float32"))


REDUCTIONS = ("mean", "sum", "none")
SHARES = 1 / (1 + np.exp(-Y))
YES = (Y > 0).astype("float32")
SIGNS = np.where(Y > 0, 1, -1).astype("float32")


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides the total loss")
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    ("ours", "theirs", "arrays"),
    [
        pytest.param(F.l1_loss, T.l1_loss, (X, Y), id="l1_loss"),
        pytest.param(F.mse_loss, T.mse_loss, (X, Y), id="mse_loss"),
        pytest.param(F.smooth_l1_loss, T.huber_loss, (X, Y), id="smooth_l1_loss"),
        pytest.param(
            lambda x, y, reduction: F.smooth_l1_loss(x, y, reduction, 0.5),
            lambda x, y, reduction: T.huber_loss(x, y, reduction=reduction, delta=0.5),
            (X, Y),
            id="smooth_l1_loss with delta",
        ),
        pytest.param(F.binary_cross_entropy, T.binary_cross_entropy, (SHARES, YES), id="binary_cross_entropy"),
        pytest.param(
            lambda x, y, w, reduction: F.binary_cross_entropy(x, y, w, reduction),
            lambda x, y, w, reduction: T.binary_cross_entropy(x, y, w.detach(), reduction=reduction),
            (SHARES, YES, np.linspace(0.2, 2, 4, dtype="float32")),
            id="binary_cross_entropy with weights",
        ),
        pytest.param(
            F.binary_cross_entropy_with_logits,
            T.binary_cross_entropy_with_logits,
            (X, SHARES),
            id="binary_cross_entropy_with_logits",
        ),
        pytest.param(
            lambda x, y, w, reduction: F.binary_cross_entropy_with_logits(x, y, None, reduction, w),
            lambda x, y, w, reduction: T.binary_cross_entropy_with_logits(
                x, y, pos_weight=w.detach(), reduction=reduction
            ),
            (X, SHARES, np.linspace(0.2, 2, 4, dtype="float32")),
            id="binary_cross_entropy_with_logits with pos_weight and labels between 0 and 1",
        ),
        pytest.param(F.kl_div, T.kl_div, (np.log(SHARES), SHARES[::-1].copy()), id="kl_div"),
        pytest.param(
            lambda x, y, label, reduction: F.margin_ranking_loss(x, y, label, 0.3, reduction),
            lambda x, y, label, reduction: T.margin_ranking_loss(x, y, label, 0.3, reduction=reduction),
            (X, Y, SIGNS[::-1].copy()),
            id="margin_ranking_loss",
        ),
    ],
)
def test_losses_of_floats(ours, theirs, arrays, reduction):
    check(
        torch,
        lambda *given: ours(given[0], *map(stopped, given[1:]), reduction=reduction),
        lambda *given: theirs(given[0], *(v.detach() for v in given[1:]), reduction=reduction),
        *arrays,
    )


def stopped(v):
    v.stop_gradient = True
    return v


LABEL = np.array([1, 3, 0], "int64")
IGNORING = np.array([1, -100, 0], "int64")
OF_CLASSES = np.array([0.5, 2.0, 1.0, 0.25], "float32")


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighed", [False, True], ids=["all classes alike", "weights of classes"])
@pytest.mark.parametrize(
    ("label", "ignored"),
    [
        pytest.param(LABEL, -100, id="all labels count"),
        pytest.param(IGNORING, -100, id="a label is no class"),
        pytest.param(LABEL, 3, id="a class is ignored"),
    ],
)
@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_losses_of_classes(name, label, ignored, weighed, reduction):
    weight = torch.tensor(OF_CLASSES) if weighed else None

    def ours(x, y):
        w = fluid.layers.assign(OF_CLASSES) if weighed else None
        return getattr(F, name)(x, y, w, ignored, reduction)

    def theirs(x, y):
        return getattr(T, name)(x, y, weight, ignore_index=ignored, reduction=reduction)

    check(torch, ours, theirs, X, label)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_classes_of_pixels(reduction):
    x, label = values(2, 3, 4, 2), np.random.default_rng(0).integers(0, 3, (2, 4, 2))
    check(
        torch,
        lambda x, y: F.nll_loss(x, y, None, 1, reduction),
        lambda x, y: T.nll_loss(x, y, None, ignore_index=1, reduction=reduction),
        x,
        label,
    )


@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_impossible_classes_beside_the_label(reduction):
    x = values(4, 3)
    x[0, 2] = x[3, 1] = -np.inf
    check(
        torch,
        lambda x, y: F.nll_loss(x, y, None, -100, reduction),
        lambda x, y: T.nll_loss(x, y, None, ignore_index=-100, reduction=reduction),
        x,
        np.array([0, 2, 1, -100]),
    )


def test_classes_in_another_axis():
    x, label = values(2, 3, 4, 2), np.random.default_rng(0).integers(0, 3, (2, 4, 2))
    check(torch, lambda x, y: F.cross_entropy(x, y, axis=1), T.cross_entropy, x, label)


def test_soft_labels():
    target = np.exp(Y) / np.exp(Y).sum(1, keepdims=True)
    check(
        torch,
        lambda x, y: F.cross_entropy(x, stopped(y), soft_label=True),
        lambda x, y: T.cross_entropy(x, y.detach()),
        X,
        target,
    )


def test_probabilities_instead_of_logits():
    check(
        torch,
        lambda x, y: F.cross_entropy(F.softmax(x), y, use_softmax=False, reduction="sum"),
        lambda x, y: T.cross_entropy(x, y, reduction="sum"),
        X,
        LABEL,
    )


def test_where_nothing_counts_a_mean_is_zero():
    out, slope = computed(lambda x, y: F.cross_entropy(x, y), X, np.full(3, -100, "int64"))
    assert out == 0
    assert not slope.any()


def test_an_unknown_reduction_says_what_there_is():
    x, y = fluid.data("x", [3, 4]), fluid.data("y", [3, 4])
    with pytest.raises(ValueError, match=r"l1_loss: reduction is 'avg' .*mean, sum or none"):
        F.l1_loss(x, y, "avg")


def test_focal_loss():
    def theirs(x):
        p, y = torch.sigmoid(x), torch.tensor(YES)
        near = p * y + (1 - p) * (1 - y)
        return -((0.25 * y + 0.75 * (1 - y)) * (1 - near) ** 2 * torch.log(near)).sum() / 3

    def ours(x):
        return F.sigmoid_focal_loss(x, fluid.layers.assign(YES), fluid.layers.assign(np.array([3], "float32")))

    check(torch, ours, theirs, X)


def test_cosine_similarity():
    check(torch, F.cosine_similarity, T.cosine_similarity, X, Y)
    a, b = values(2, 5, 3), values(2, 5, 3, seed=2)
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        check(torch, lambda x, y: F.cosine_similarity(x, y, 2), lambda x, y: T.cosine_similarity(x, y, 2), a, b)


def test_products():
    check(torch, F.linear, lambda x, w, b: T.linear(x, w.T, b), values(2, 3, 4), values(4, 5), values(5))
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        check(
            torch,
            F.bilinear,
            lambda x, y, w, b: T.bilinear(x, y, w, b[0]),
            X,
            values(3, 5),
            values(2, 4, 5),
            values(1, 2),
        )


def test_a_table():
    ids = np.array([[1, 0], [2, 1]], "int64")
    check(
        torch,
        lambda i, w: F.embedding(i, w, padding_idx=1),
        lambda i, w: T.embedding(i, w * torch.tensor([[1.0], [0.0], [1.0]])),
        ids,
        values(3, 4),
    )
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        rows = F.one_hot(fluid.data("ids", [2, 2], "int64"), 3)
        (found,) = fluid.Executor().run(feed={"ids": ids}, fetch_list=[rows])
    np.testing.assert_array_equal(found, np.eye(3)[ids])


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="plain"),
        pytest.param({"stride": 2, "padding": 1}, id="strides and borders"),
        pytest.param({"padding": (2, 1), "dilation": (1, 2)}, id="another number for every side"),
        pytest.param({"groups": 2}, id="groups"),
        pytest.param({"groups": 4, "padding": 1}, id="depthwise"),
    ],
)
def test_convolution(options):
    weight = values(4, 4 // options.get("groups", 1), 3, 2)
    check(
        torch,
        lambda x, w, b: F.conv2d(x, w, b, **options),
        lambda x, w, b: T.conv2d(x, w, b, **options),
        IMAGES,
        weight,
        values(4),
    )


def test_a_border_of_four_numbers_and_channels_last():
    def theirs(x, w, b):
        return T.conv2d(T.pad(x.permute(0, 3, 1, 2), (0, 1, 1, 2)), w, b).permute(0, 2, 3, 1)

    last = np.ascontiguousarray(IMAGES.transpose(0, 2, 3, 1))
    check(
        torch,
        lambda x, w, b: F.conv2d(x, w, b, padding=[1, 2, 0, 1], data_format="NHWC"),
        theirs,
        last,
        values(3, 4, 2, 2),
        values(3),
    )


def test_convolution_of_rows():
    def ours(x, w, b):
        return F.conv1d(x, w, b, 2, 1)

    check(torch, ours, lambda x, w, b: T.conv1d(x, w, b, 2, 1), ROWS, values(3, 4, 3), values(3))


@pytest.mark.parametrize(
    ("padding", "around"),
    [(2, (2, 2)), ([1], (1, 1)), ([2, 0], (2, 0)), ((0, 1), (0, 1)), ("SAME", (1, 1)), ("VALID", (0, 0))],
)
def test_convolution_of_rows_with_paddings(padding, around):
    spread = 1 if padding == "SAME" else 2  # SAME sets it to 1

    def theirs(x, w):
        return T.conv1d(T.pad(x, around), w, dilation=spread)

    check(torch, lambda x, w: F.conv1d(x, w, padding=padding, dilation=2), theirs, ROWS, values(3, 4, 3))


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="plain"),
        pytest.param({"stride": 2}, id="strides"),
        pytest.param({"stride": (2, 3), "padding": (1, 2), "output_padding": (1, 2)}, id="borders on one side"),
        pytest.param({"stride": 2, "groups": 2, "padding": 1}, id="groups"),
        pytest.param({"dilation": 2, "padding": 1}, id="dilation"),
        pytest.param({"padding": 2, "stride": 3}, id="more cut off than a filter reaches"),
    ],
)
def test_transposed_convolution(options):
    weight = values(4, 2, 3, 2)
    bias = values(2 * options.get("groups", 1))
    check(
        torch,
        lambda x, w, b: F.conv2d_transpose(x, w, b, **options),
        lambda x, w, b: T.conv_transpose2d(x, w, b, **options),
        IMAGES,
        weight,
        bias,
    )


def test_transposed_convolution_of_rows():
    def ours(x, w, b):
        return F.conv1d_transpose(x, w, b, 2, 1, 1)

    check(torch, ours, lambda x, w, b: T.conv_transpose1d(x, w, b, 2, 1, 1), ROWS, values(4, 3, 3), values(3))


def test_looking_at_images_elsewhere():
    theta = np.array([[[0.8, 0.3, 0.1], [-0.2, 1.1, 0.05]], [[1, 0, 0.4], [0.1, 0.7, -0.3]]], "float32")

    def theirs(x, t):
        return T.grid_sample(x, T.affine_grid(t.detach(), (2, 4, 5, 7), align_corners=True), align_corners=True)

    check(torch, lambda x, t: F.grid_sample(x, stopped(F.affine_grid(stopped(t), [2, 4, 5, 7]))), theirs, IMAGES, theta)


VOLUMES = values(2, 3, 4, 6, 5)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        pytest.param(lambda x: F.max_pool3d(x, 2), lambda x: T.max_pool3d(x, 2), id="max_pool3d"),
        pytest.param(
            lambda x: F.avg_pool3d(x, 3, 2, 1),
            lambda x: T.avg_pool3d(x, 3, 2, 1, count_include_pad=False),
            id="avg_pool3d",
        ),
        pytest.param(
            lambda x: F.avg_pool3d(x, 2, divisor_override=3),
            lambda x: T.avg_pool3d(x, 2, divisor_override=3),
            id="avg_pool3d by a divisor",
        ),
        pytest.param(
            lambda x: F.adaptive_avg_pool3d(x, (2, None, 3)),
            lambda x: T.adaptive_avg_pool3d(x, (2, None, 3)),
            id="adaptive_avg_pool3d",
        ),
        pytest.param(lambda x: F.adaptive_max_pool3d(x, 2), lambda x: T.adaptive_max_pool3d(x, 2), id="adaptive_max_pool3d"),
    ],
)
def test_volumes(ours, theirs):
    check(torch, ours, theirs, VOLUMES)


def test_unfold():
    check(torch, lambda x: F.unfold(x, [3, 2], 2, 1), lambda x: T.unfold(x, (3, 2), padding=1, stride=2), IMAGES)


def test_the_size_of_a_transposed_convolution():
    x, w = fluid.data("x", [-1, 4, 5, 5]), fluid.data("w", [4, 2, 3, 3])
    assert F.conv2d_transpose(x, w, stride=2, output_size=12).shape == (-1, 2, 12, 12)
    with pytest.raises(ValueError, match="is not one of"):
        F.conv2d_transpose(x, w, stride=2, output_size=13)


@pytest.mark.parametrize(
    ("ours", "theirs", "x"),
    [
        pytest.param(lambda x: F.max_pool2d(x, 2), lambda x: T.max_pool2d(x, 2), IMAGES, id="max_pool2d"),
        pytest.param(
            lambda x: F.max_pool2d(x, 3, 2, 1),
            lambda x: T.max_pool2d(x, 3, 2, 1),
            IMAGES,
            id="max_pool2d with a border",
        ),
        pytest.param(
            lambda x: F.avg_pool2d(x, 3, 2, 1),
            lambda x: T.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
            IMAGES,
            id="avg_pool2d",
        ),
        pytest.param(
            lambda x: F.avg_pool2d(x, 3, 2, 1, exclusive=False),
            lambda x: T.avg_pool2d(x, 3, 2, 1),
            IMAGES,
            id="avg_pool2d, border counted",
        ),
        pytest.param(
            lambda x: F.avg_pool2d(x, 2, divisor_override=3),
            lambda x: T.avg_pool2d(x, 2, divisor_override=3),
            IMAGES,
            id="avg_pool2d by a divisor",
        ),
        pytest.param(lambda x: F.max_pool1d(x, 3, 2, 1), lambda x: T.max_pool1d(x, 3, 2, 1), ROWS, id="max_pool1d"),
        pytest.param(
            lambda x: F.avg_pool1d(x, 3, 2, 1),
            lambda x: T.avg_pool1d(x, 3, 2, 1, count_include_pad=False),
            ROWS,
            id="avg_pool1d",
        ),
        pytest.param(
            lambda x: F.adaptive_avg_pool2d(x, (2, None)),
            lambda x: T.adaptive_avg_pool2d(x, (2, None)),
            IMAGES,
            id="adaptive_avg_pool2d",
        ),
        pytest.param(
            lambda x: F.adaptive_max_pool2d(x, 2),
            lambda x: T.adaptive_max_pool2d(x, 2),
            IMAGES,
            id="adaptive_max_pool2d",
        ),
        pytest.param(
            lambda x: F.adaptive_avg_pool1d(x, 3), lambda x: T.adaptive_avg_pool1d(x, 3), ROWS, id="adaptive_avg_pool1d"
        ),
        pytest.param(
            lambda x: F.adaptive_max_pool1d(x, 3), lambda x: T.adaptive_max_pool1d(x, 3), ROWS, id="adaptive_max_pool1d"
        ),
        pytest.param(lambda x: F.pixel_shuffle(x, 2), lambda x: T.pixel_shuffle(x, 2), IMAGES, id="pixel_shuffle"),
        pytest.param(
            lambda x: F.interpolate(x, scale_factor=2), lambda x: T.interpolate(x, scale_factor=2), IMAGES, id="nearest"
        ),
        pytest.param(
            lambda x: F.interpolate(x, [9, 4], mode="bilinear"),
            lambda x: T.interpolate(x, (9, 4), mode="bilinear"),
            IMAGES,
            id="bilinear",
        ),
        pytest.param(
            lambda x: F.upsample(x, [9, 8], mode="bilinear", align_corners=True),
            lambda x: T.interpolate(x, (9, 8), mode="bilinear", align_corners=True),
            IMAGES,
            id="bilinear between corners",
        ),
        pytest.param(
            lambda x: F.interpolate(x, [3, 2], mode="area"),
            lambda x: T.interpolate(x, (3, 2), mode="area"),
            IMAGES,
            id="area",
        ),
        pytest.param(
            lambda x: F.interpolate(x, 10, mode="linear"),
            lambda x: T.interpolate(x, 10, mode="linear"),
            ROWS,
            id="linear",
        ),
        pytest.param(
            lambda x: F.pad(x, [1, 2, 0, 3], value=0.5), lambda x: T.pad(x, (1, 2, 0, 3), value=0.5), IMAGES, id="pad"
        ),
        pytest.param(
            lambda x: F.pad(x, [1, 2, 0, 3], "reflect"),
            lambda x: T.pad(x, (1, 2, 0, 3), "reflect"),
            IMAGES,
            id="reflect",
        ),
        pytest.param(
            lambda x: F.pad(x, [1, 2, 0, 3], "replicate"),
            lambda x: T.pad(x, (1, 2, 0, 3), "replicate"),
            IMAGES,
            id="replicate",
        ),
        pytest.param(
            lambda x: F.pad(x, [1, 2, 0, 3], "circular"),
            lambda x: T.pad(x, (1, 2, 0, 3), "circular"),
            IMAGES,
            id="circular",
        ),
        pytest.param(
            lambda x: F.pad(x, [2, 1], "reflect", data_format="NCL"),
            lambda x: T.pad(x, (2, 1), "reflect"),
            ROWS,
            id="reflect rows",
        ),
        pytest.param(
            lambda x: F.pad(x, [2, 1], "replicate", data_format="NLC"),
            lambda x: T.pad(x.permute(0, 2, 1), (2, 1), "replicate").permute(0, 2, 1),
            ROWS,
            id="channels last",
        ),
        pytest.param(
            lambda x: F.pad(x, [0, 0, 1, 1, 0, 2]), lambda x: T.pad(x, (0, 2, 1, 1, 0, 0)), ROWS, id="every axis"
        ),
        pytest.param(
            lambda x: F.local_response_norm(x, 3, 0.1),
            lambda x: T.local_response_norm(x, 3, 0.1),
            IMAGES,
            id="local_response_norm",
        ),
        pytest.param(
            lambda x: F.relu(F.instance_norm(x)), lambda x: T.relu(T.instance_norm(x)), IMAGES, id="instance_norm"
        ),
    ],
)
def test_images_and_rows(ours, theirs, x):
    check(torch, ours, theirs, x)


@pytest.mark.parametrize("shape", [[5], [6, 5]])
def test_layer_norm(shape):
    check(
        torch,
        lambda x, w, b: F.layer_norm(x, shape, w, b),
        lambda x, w, b: T.layer_norm(x, shape, w, b),
        IMAGES,
        values(*shape),
        values(*shape, seed=3),
    )


def test_dropout_by_axes():
    x = fluid.data("x", [8, 6, 5, 4])
    made = [
        F.dropout2d(x, 0.5),
        F.dropout(x, 0.25, axis=0),
        F.dropout(x),
        F.dropout(x, training=False),
        F.dropout(x, 0.25, mode="downscale_in_infer"),
    ]
    test = fluid.default_main_program().clone(for_test=True)
    executor = fluid.Executor()
    images = np.ones((8, 6, 5, 4), "float32")
    channels, rows, each, same, _ = executor.run(feed={"x": images}, fetch_list=made)
    assert set(np.unique(channels)) == {0, 2}
    assert (channels == channels[:, :, :1, :1]).all()
    assert (rows == rows[:, :1, :1, :1]).all()
    assert set(np.unique(each)) == {0, 2}
    np.testing.assert_array_equal(same, images)
    *evaluated, smaller = executor.run(test, feed={"x": images}, fetch_list=made)
    for found in evaluated:
        np.testing.assert_array_equal(found, images)
    np.testing.assert_allclose(smaller, 0.75 * images)


def test_alpha_dropout_keeps_mean_and_variance():
    x = fluid.data("x", [-1, 50])
    out = F.alpha_dropout(x, 0.3)
    test = fluid.default_main_program().clone(for_test=True)
    batch, executor = values(2000, 50), fluid.Executor()
    (found,) = executor.run(feed={"x": batch}, fetch_list=[out])
    assert found.mean() == pytest.approx(0, abs=0.02)
    assert found.std() == pytest.approx(1, abs=0.02)
    # Klambauer et al.: a (alpha' (1 - p)) + b of the dropped, with a = ((1 - p) (1 + p alpha'^2))^-1/2.
    low, a = -1.7580993408473766, (0.7 * (1 + 0.3 * 1.7580993408473766**2)) ** -0.5
    dropped = np.isclose(found, a * low * 0.7, atol=1e-5)
    assert dropped.mean() == pytest.approx(0.3, abs=0.01)
    np.testing.assert_allclose(found[~dropped], a * (batch[~dropped] - low * 0.3), rtol=1e-4, atol=1e-5)
    (same,) = executor.run(test, feed={"x": batch}, fetch_list=[out])
    np.testing.assert_allclose(same, batch, rtol=1e-6)


def test_names_that_are_not_there_say_so():
    assert paddle.nn.functional is F
    with pytest.raises(AttributeError, match="AdaptiveAvgPool1D is a name of PaddlePaddle's reference that is not there yet"):
        F.AdaptiveAvgPool1D  # noqa: B018
    with pytest.raises(AttributeError, match=r"has no 'sigmoids' .hint: .*sigmoid"):
        F.sigmoids  # noqa: B018
