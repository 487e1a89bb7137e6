"""Layers on volumes, other sizes, windows and norms by given statistics, beside PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle as paddle
import pe_cli.paddle.fluid as fluid
from pe_cli.core.errors import PeError
from pe_cli.paddle.nn import functional as F
from tests.needs import torch
from tests.paddle.nn_support import check, computed, values

T = torch.nn.functional
L = fluid.layers
VOLUMES = values(2, 4, 4, 5, 6)
LAST = np.ascontiguousarray(VOLUMES.transpose(0, 2, 3, 4, 1))
IMAGES = values(2, 4, 6, 5)


def check_exactly(ours, theirs, *arrays):
    """Compare in float64: sums of many products of float32 differ by their order."""
    check(torch, ours, theirs, *(a.astype("float64") for a in arrays))


def by_feeds(outs, **feeds):
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    return executor.run(feed=feeds, fetch_list=list(outs))


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="plain"),
        pytest.param({"stride": 2, "padding": 1}, id="strides and borders"),
        pytest.param({"padding": (1, 2, 0), "dilation": (2, 1, 2), "stride": (1, 2, 1)}, id="another number for every axis"),
        pytest.param({"groups": 2, "padding": 1}, id="groups"),
        pytest.param({"groups": 4}, id="depthwise"),
        pytest.param({"groups": 4, "flat": True}, id="depthwise, flat filters"),
    ],
)
def test_conv3d(options):
    options = dict(options)
    taps = (1, 3, 2) if options.pop("flat", False) else (2, 3, 2)
    weight, bias = values(4, 4 // options.get("groups", 1), *taps, seed=1), values(4, seed=2)
    check_exactly(lambda x, w, b: F.conv3d(x, w, b, **options), lambda x, w, b: T.conv3d(x, w, b, **options), VOLUMES, weight, bias)


def test_conv3d_with_channels_last_and_a_border_on_one_side():
    def theirs(x, w, b):
        return T.conv3d(T.pad(x.permute(0, 4, 1, 2, 3), (0, 1, 1, 2, 2, 0)), w, b).permute(0, 2, 3, 4, 1)

    ours = lambda x, w, b: F.conv3d(x, w, b, padding=[2, 0, 1, 2, 0, 1], data_format="NDHWC")  # noqa: E731
    check_exactly(ours, theirs, LAST, values(3, 4, 2, 3, 2, seed=1), values(3, seed=2))


def test_conv3d_needs_all_sizes_but_the_batch():
    for name, sizes in (("x", [None, -1, 4, 4, 4]), ("y", [None, 2, 4, 4, -1])):
        with pytest.raises(PeError, match="are not known"):
            fluid.layers.conv3d(fluid.data(name, sizes), 2, 3)


@pytest.mark.parametrize(("padding", "stride"), [("SAME", 1), ("SAME", 2), ("VALID", 2)])
def test_conv3d_with_padding_by_name(padding, stride):
    def theirs(x, w):
        if padding == "SAME":
            borders = []
            for size, tap in zip(x.shape[2:], w.shape[2:], strict=True):
                whole = max((-(-size // stride) - 1) * stride + tap - size, 0)
                borders = [whole // 2, whole - whole // 2, *borders]
            x = T.pad(x, borders)
        return T.conv3d(x, w, stride=stride)

    weight = values(3, 4, 2, 3, 3, seed=1)
    check_exactly(lambda x, w: F.conv3d(x, w, stride=stride, padding=padding), theirs, VOLUMES, weight)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="plain"),
        pytest.param({"stride": 2, "padding": 1}, id="strides and borders"),
        pytest.param({"stride": (1, 2, 3), "dilation": (2, 1, 2), "padding": (0, 1, 2)}, id="another number for every axis"),
        pytest.param({"groups": 2, "stride": 2}, id="groups"),
        pytest.param({"groups": 4}, id="depthwise"),
        pytest.param({"stride": 3, "output_padding": (1, 2, 0)}, id="more on one side"),
    ],
)
def test_conv3d_transpose(options):
    x, weight = values(2, 4, 2, 3, 4), values(4, 2, 2, 3, 2, seed=1)
    check_exactly(lambda x, w: F.conv3d_transpose(x, w, **options), lambda x, w: T.conv_transpose3d(x, w, **options), x, weight)


def test_conv3d_transpose_to_a_size_with_channels_last():
    x, weight = values(2, 2, 3, 4, 4), values(4, 3, 2, 3, 2, seed=1)

    def theirs(x, w):
        return T.conv_transpose3d(x.permute(0, 4, 1, 2, 3), w, stride=3, output_padding=(1, 0, 2)).permute(0, 2, 3, 4, 1)

    ours = lambda x, w: F.conv3d_transpose(x, w, stride=3, output_size=[6, 9, 13], data_format="NDHWC")  # noqa: E731
    check_exactly(ours, theirs, x, weight)


@pytest.mark.parametrize("data_format", ["NCHW", "NHWC"])
def test_conv2d_transpose_by_name_of_its_padding(data_format):
    x, weight = values(2, 4, 4, 5), values(4, 3, 3, 3, seed=1)
    given = x if data_format == "NCHW" else np.ascontiguousarray(x.transpose(0, 2, 3, 1))

    def theirs(x, w):
        x = x if data_format == "NCHW" else x.permute(0, 3, 1, 2)
        first = [(max((-(-s // 2) - 1) * 2 + 3 - s, 0)) for s in (4, 5)]
        out = T.conv_transpose2d(x, w, stride=2)
        high, wide = (slice(f // 2, out.shape[2 + i] - (f - f // 2)) for i, f in enumerate(first))
        out = out[:, :, high, wide]
        return out if data_format == "NCHW" else out.permute(0, 2, 3, 1)

    check_exactly(lambda x, w: F.conv2d_transpose(x, w, stride=2, padding="SAME", data_format=data_format), theirs, given, weight)


def test_same_padding_forgets_the_dilation_as_in_the_original():
    x, attr = fluid.data("x", [2, 4, 6, 5]), fluid.ParamAttr(name="w")
    two = [L.conv2d(x, 3, 3, padding="SAME", dilation=d, param_attr=attr, bias_attr=False) for d in (1, 2)]
    three = fluid.layers.unsqueeze(x, [2])
    attr = fluid.ParamAttr(name="v")
    two += [L.conv3d(three, 3, [1, 3, 3], padding="SAME", dilation=d, param_attr=attr, bias_attr=False) for d in (1, 2)]
    found = by_feeds(two, x=IMAGES)
    assert found[0].shape == (2, 3, 6, 5)
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[2], found[3])


def test_classes_of_convolutions_of_volumes():
    layer, back = paddle.nn.Conv3D(4, 6, [2, 3, 3], stride=2, padding=1), paddle.nn.Conv3DTranspose(6, 4, 2, stride=2)
    x = fluid.data("x", [None, 4, 4, 5, 6])
    middle = layer(x)
    out, a, w, b, v, c = by_feeds([back(middle), middle, layer.weight, layer.bias, back.weight, back.bias], x=VOLUMES)
    expected = T.conv3d(*map(torch.tensor, (VOLUMES, w, b)), stride=2, padding=1)
    np.testing.assert_allclose(a, expected.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(out, T.conv_transpose3d(expected, torch.tensor(v), torch.tensor(c), stride=2).numpy(), rtol=1e-4, atol=1e-5)


def test_layers_of_volumes_and_their_parameters():
    x = fluid.data("x", [None, 4, 5, 6, 4])
    made = L.conv3d(x, 6, 3, padding="SAME", act="relu", data_format="NDHWC")
    up = L.conv3d_transpose(made, 2, output_size=[8, 10, 12], stride=2, data_format="NDHWC")
    assert made.shape == (-1, 4, 5, 6, 6)
    assert up.shape == (-1, 8, 10, 12, 2)
    shapes = [p.shape for p in fluid.default_main_program().all_parameters()]
    assert shapes == [(6, 4, 3, 3, 3), (6,), (6, 2, 2, 2, 2), (2,)]
    (found,) = by_feeds([up], x=np.zeros((0, 4, 5, 6, 4), "float32"))
    assert found.shape == (0, 8, 10, 12, 2)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda x: L.conv3d(x, 5, 3, groups=2), "which 2 groups do not divide"),
        (lambda x: L.conv3d(x, 4, 9), "do not fit"),
        (lambda x: L.conv3d(x, 4, [3, 3]), "three of them"),
        (lambda x: L.conv3d(x, 4, 3, padding=[1, 2]), "3 or 6 of them"),
        (lambda x: L.conv3d(x, 4, 3, data_format="NCHW"), "NCDHW or NDHWC"),
        (lambda x: L.conv3d_transpose(x, 4), "filter_size is missing"),
        (lambda x: L.conv3d_transpose(x, 4, 9, 2), "output_size 9 is not one of 5 to 5"),
        (lambda x: L.pool3d(x, 2, data_format="NHWC"), "NCDHW or NDHWC"),
        (lambda x: L.adaptive_pool3d(x, 2, "avg", True), "needs pool_type max"),
    ],
)
def test_what_does_not_fit(wrong, text):
    with pytest.raises(PeError, match=text):
        wrong(fluid.data("x", [None, 4, 4, 4, 4]))


@pytest.mark.parametrize("kind", ["max", "avg"])
def test_pools_of_volumes_with_channels_last(kind):
    ours = F.max_pool3d if kind == "max" else F.avg_pool3d
    theirs = T.max_pool3d if kind == "max" else T.avg_pool3d
    check(
        torch,
        lambda x: ours(x, 2, 2, data_format="NDHWC"),
        lambda x: theirs(x.permute(0, 4, 1, 2, 3), 2, 2).permute(0, 2, 3, 4, 1),
        LAST,
    )
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [2, 4, 5, 6, 4])
        assert L.pool3d(x, 3, kind, 2, "SAME", data_format="NDHWC").shape == (2, 2, 3, 3, 4)
        assert L.pool3d(x, 3, kind, 2, [[0, 0], [1, 1], [0, 0], [0, 1], [0, 0]], data_format="NDHWC").shape == (2, 2, 2, 3, 4)


@pytest.mark.parametrize(
    ("ours", "theirs", "shape"),
    [
        (lambda x: F.max_pool1d(x, 3, 2, 1, return_mask=True), lambda x: T.max_pool1d(x, 3, 2, 1, return_indices=True), (2, 3, 7)),
        (lambda x: F.max_pool2d(x, 3, 2, 1, True), lambda x: T.max_pool2d(x, 3, 2, 1, return_indices=True), (2, 3, 5, 7)),
        (lambda x: F.max_pool3d(x, 2, return_mask=True), lambda x: T.max_pool3d(x, 2, return_indices=True), (2, 3, 4, 5, 7)),
        (lambda x: F.adaptive_max_pool1d(x, 3, True), lambda x: T.adaptive_max_pool1d(x, 3, True), (2, 3, 7)),
        (lambda x: F.adaptive_max_pool2d(x, [3, None], True), lambda x: T.adaptive_max_pool2d(x, (3, 7), True), (2, 3, 5, 7)),
        (lambda x: F.adaptive_max_pool3d(x, 2, True), lambda x: T.adaptive_max_pool3d(x, 2, True), (2, 3, 4, 5, 7)),
    ],
)
def test_places_of_maxima(ours, theirs, shape):
    a = values(*shape)
    x = fluid.data("x", list(shape))
    x.stop_gradient = False
    out, places = ours(x)
    (slope,) = fluid.gradients(L.reduce_sum(L.square(out)), x)
    given = torch.tensor(a, requires_grad=True)
    expected, indices = theirs(given)
    (expected**2).sum().backward()
    found = by_feeds([out, places, slope], x=a)
    np.testing.assert_allclose(found[0], expected.detach().numpy())
    assert np.array_equal(found[1], indices.numpy())
    np.testing.assert_allclose(found[2], given.grad.numpy(), rtol=1e-6)


@pytest.mark.parametrize("corners", [True, False])
@pytest.mark.parametrize(
    ("mode", "shape", "size"),
    [
        ("bicubic", (2, 3, 5, 7), [8, 4]),
        ("bicubic", (2, 3, 2, 3), [7, 9]),
        ("trilinear", (2, 3, 3, 5, 4), [4, 3, 9]),
        ("linear", (2, 3, 7), [5]),
        ("bilinear", (2, 3, 5, 7), [8, 4]),
    ],
)
def test_interpolate(mode, shape, size, corners):
    check(
        torch,
        lambda x: F.interpolate(x, size, mode=mode, align_corners=corners),
        lambda x: T.interpolate(x, size, mode=mode, align_corners=corners),
        values(*shape),
    )


@pytest.mark.parametrize(
    ("mode", "layout", "shape"),
    [
        ("BICUBIC", "NHWC", (2, 5, 7, 3)),
        ("TRILINEAR", "NDHWC", (2, 3, 5, 4, 3)),
        ("NEAREST", "NHWC", (2, 5, 7, 3)),
        ("LINEAR", "NWC", (2, 5, 3)),
    ],
)
def test_channels_last_are_channels_first_turned(mode, layout, shape):
    x, axes = fluid.data("x", list(shape)), list(range(len(shape)))
    size = [s + 2 for s in shape[1:-1]]
    first = L.transpose(x, [0, axes[-1], *axes[1:-1]])
    one = L.image_resize(x, size, resample=mode, data_format=layout)
    two = L.transpose(L.image_resize(first, size, resample=mode), [0, *axes[2:], 1])
    found = by_feeds([one, two], x=values(*shape))
    assert found[0].shape == (2, *size, 3)
    assert np.array_equal(*found)


def test_sizes_from_variables_that_a_step_feeds():
    x, volume, row = fluid.data("x", [2, 4, 6, 5]), fluid.data("v", [2, 4, 4, 5, 6]), fluid.data("r", [2, 4, 5])
    sizes, one, three = fluid.data("s", [2], "int32"), fluid.data("n", [1], "int32"), fluid.data("t", [3], "int64")
    factor = fluid.data("f", [1])
    outs = [
        L.image_resize(x, [4, 4], actual_shape=sizes),
        L.resize_nearest(x, out_shape=[one, 9]),
        L.resize_bilinear(x, scale=factor, data_format="NHWC"),
        L.resize_trilinear(volume, out_shape=three),
        L.image_resize(row, out_shape=one, resample="LINEAR"),
        F.interpolate(x, [7, one], mode="bilinear"),
    ]
    feeds = {"s": np.array([5, 6], "int32"), "n": np.array([7], "int32"), "t": np.array([2, 9, 7]), "f": np.array([1.5], "float32")}
    fed = by_feeds(outs, x=IMAGES, v=VOLUMES, r=IMAGES[:, :, 0], **feeds)
    known = [
        L.image_resize(x, [5, 6]),
        L.resize_nearest(x, [7, 9]),
        L.resize_bilinear(x, [6, 9], data_format="NHWC"),
        L.resize_trilinear(volume, [2, 9, 7]),
        L.image_resize(row, [7], resample="LINEAR"),
        F.interpolate(x, [7, 7], mode="bilinear"),
    ]
    for one_found, expected in zip(fed, by_feeds(known, x=IMAGES, v=VOLUMES, r=IMAGES[:, :, 0], **feeds), strict=True):
        assert np.array_equal(one_found, expected)
    with pytest.raises(NotImplementedError, match="BICUBIC"):
        L.image_resize(x, sizes, resample="BICUBIC")


@pytest.mark.parametrize("power_iters", [0, 1, 4])
@pytest.mark.parametrize("dim", [0, 1])
def test_spectral_norm(dim, power_iters):
    weight = values(4, 3, 2, 2)
    rows = weight.shape[dim]
    u, v = values(rows, seed=1), values(weight.size // rows, seed=2)

    def theirs(w):
        matrix = torch.movedim(w, dim, 0).reshape(rows, -1)
        with torch.no_grad():
            left, right = torch.tensor(u), torch.tensor(v)
            for _ in range(power_iters):
                right = T.normalize(matrix.T @ left, dim=0, eps=1e-12)
                left = T.normalize(matrix @ right, dim=0, eps=1e-12)
        return w / (left @ matrix @ right)

    layer = paddle.nn.SpectralNorm([4, 3, 2, 2], dim, power_iters)
    x = fluid.data("x", [4, 3, 2, 2])
    x.stop_gradient = False
    out = layer(x)
    (slope,) = fluid.gradients(L.reduce_sum(L.square(out)), x)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    for parameter, value in ((layer.weight_u, u), (layer.weight_v, v)):
        fluid.global_scope().find_var(parameter.name).get_tensor().set(value, fluid.CPUPlace())
    found = executor.run(feed={"x": weight}, fetch_list=[out, slope])
    given = torch.tensor(weight, requires_grad=True)
    expected = theirs(given)
    (expected**2).sum().backward()
    np.testing.assert_allclose(found[0], expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[1], given.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_many_rounds_leave_the_largest_stretch_at_one():
    out = L.spectral_norm(L.assign(values(5, 7)), power_iters=60)
    (found,) = by_feeds([out])
    assert np.linalg.svd(found, compute_uv=False)[0] == pytest.approx(1.0, rel=1e-4)
    with pytest.raises(PeError, match="two to five known sizes"):
        L.spectral_norm(fluid.data("w", [None, 3]))


def test_data_norm():
    x, a = fluid.data("x", [None, 4]), values(5, 4)
    first = {"batch_size": 100.0, "batch_sum": 20.0, "batch_square": 400.0, "scale_w": 3.0, "bias": 0.5}
    plain = L.data_norm(x, param_attr=first, name="p")
    scaled = L.data_norm(x, param_attr=first, name="s", enable_scale_and_shift=True, act="relu")
    found = by_feeds([plain, scaled], x=a)
    np.testing.assert_allclose(found[0], (a - 0.2) * 0.5, rtol=1e-6)
    np.testing.assert_allclose(found[1], np.maximum((a - 0.2) * 1.5 + 0.5, 0), rtol=1e-5, atol=1e-6)
    names = [p.name for p in fluid.default_main_program().all_parameters()]
    assert names[:3] == ["p.batch_size", "p.batch_sum", "p.batch_square_sum"]
    assert names[3:5] == ["s.scale_w", "s.bias"]


def test_data_norm_of_slots_that_are_not_shown():
    x, a = fluid.data("x", [None, 6]), values(4, 6)
    a[1, 0], a[2, 3], a[3, 1] = 0, 1e-8, 0
    (found,) = by_feeds([L.data_norm(x, slot_dim=3, param_attr={"batch_sum": 1e4})], x=a)
    expected = a - 1
    expected[1, :3] = expected[2, 3:] = 0
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    with pytest.raises(PeError, match="slots of 4 channels"):
        L.data_norm(x, slot_dim=4)
    with pytest.raises(PeError, match="do not go together"):
        L.data_norm(x, slot_dim=3, name="other", enable_scale_and_shift=True)
    with pytest.raises(NotImplementedError, match="leaves the statistics"):
        L.data_norm(x, sync_stats=True)


def test_group_norm_of_channels_last():
    a = values(2, 3, 5, 6)
    layer = paddle.nn.GroupNorm(2, 6, data_format="NHWC")
    x = fluid.data("x", [None, 3, 5, 6])
    attr = fluid.ParamAttr(initializer=fluid.initializer.Uniform(0.5, 1.5))
    outs = [layer(x), L.group_norm(x, 3, param_attr=attr, bias_attr=attr, data_layout="NHWC", name="g")]
    gain, bias = (p for p in fluid.default_main_program().all_parameters() if p.name.startswith("g."))
    found = by_feeds([*outs, gain, bias], x=a)
    first = torch.tensor(a).permute(0, 3, 1, 2)
    np.testing.assert_allclose(found[0], T.group_norm(first, 2).permute(0, 2, 3, 1).numpy(), rtol=1e-4, atol=1e-5)
    expected = T.group_norm(first, 3, torch.tensor(found[2]), torch.tensor(found[3])).permute(0, 2, 3, 1)
    np.testing.assert_allclose(found[1], expected.numpy(), rtol=1e-4, atol=1e-5)


def test_windows_and_borders_with_channels_last():
    check(torch, lambda x: F.unfold(x, [2, 3], 2, [1, 2], [2, 1]), lambda x: T.unfold(x, (2, 3), (2, 1), (1, 2), (2, 2)), IMAGES)
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        last = np.ascontiguousarray(IMAGES.transpose(0, 2, 3, 1))
        found, _ = computed(lambda x: L.pad2d(x, [1, 2, 0, 3], "reflect", data_format="NHWC"), last)
    assert np.array_equal(found, np.pad(last, [(0, 0), (1, 2), (0, 3), (0, 0)], "reflect"))
