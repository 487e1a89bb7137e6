"""conv2d against PyTorch and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.ops.define import work_parts
from pe_cli.ops.define.registry import OPS, Sample
from pe_cli.ops.nn import conv_lowering
from tests.needs import torch
from tests.ops.support import run_gradient, run_op
from tests.ops.test_addto import check_bits_of_the_sum

CASES = [
    pytest.param({"c": 1, "size": (28, 28), "o": 20, "k": 5}, id="LeNet's first layer"),
    pytest.param({"c": 20, "size": (12, 12), "o": 50, "k": 5}, id="LeNet's second layer"),
    pytest.param({"c": 16, "size": (8, 8), "o": 32, "k": 3, "stride": 2, "pad": 1}, id="a strided residual layer"),
    pytest.param({"c": 3, "size": (9, 7), "o": 5, "k": 3, "pad": 2, "dilation": 2}, id="dilated, odd sizes"),
    pytest.param({"c": 8, "size": (6, 6), "o": 8, "k": 3, "pad": 1, "groups": 8}, id="depthwise"),
    pytest.param({"c": 8, "size": (6, 6), "o": 12, "k": 3, "pad": 1, "groups": 4}, id="four groups"),
    pytest.param({"c": 33, "size": (5, 5), "o": 17, "k": 1}, id="one by one, odd channels"),
    pytest.param({"c": 40, "size": (9, 8), "o": 33, "k": 3, "pad": 1}, id="by Winograd's way"),
    pytest.param({"c": 32, "size": (8, 10), "o": 48, "k": 3}, id="by Winograd's way, without padding"),
]


def arrays(rng, c, size, o, k, groups=1, **_):
    x = rng.standard_normal((3, c, *size)).astype("float32")
    w = rng.standard_normal((o, c // groups, k, k)).astype("float32")
    return x, w


def attrs(stride=1, pad=0, dilation=1, groups=1, **_):
    return {"strides": [stride] * 2, "paddings": [pad] * 2, "dilations": [dilation] * 2, "groups": groups}


@pytest.mark.parametrize("data_format", ["NCHW", "NHWC"])
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_agree_with_pytorch(rng, case, data_format):
    x, w = arrays(rng, **case)
    tx, tw = torch.tensor(x, requires_grad=True), torch.tensor(w, requires_grad=True)
    out = torch.nn.functional.conv2d(
        tx, tw, None, case.get("stride", 1), case.get("pad", 0), case.get("dilation", 1), case.get("groups", 1)
    )
    up = rng.standard_normal(tuple(out.shape)).astype("float32")
    (out * torch.tensor(up)).sum().backward()
    last = data_format == "NHWC"
    order = (0, 2, 3, 1) if last else (0, 1, 2, 3)
    back = (0, 3, 1, 2) if last else (0, 1, 2, 3)
    given = {"Input": np.ascontiguousarray(x.transpose(order)), "Filter": w}
    settings = {**attrs(**case), "data_format": data_format}
    got = run_op("conv2d", given, settings)
    np.testing.assert_allclose(got.transpose(back), out.detach().numpy(), rtol=1e-4, atol=1e-4)
    gradient = run_gradient("conv2d", given, settings, upstream=np.ascontiguousarray(up.transpose(order)))
    np.testing.assert_allclose(gradient["Input"].transpose(back), tx.grad.numpy(), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(gradient["Filter"], tw.grad.numpy(), rtol=1e-4, atol=1e-3)


def test_a_filter_of_ones_sums_its_window():
    x = np.arange(16, dtype="float64").reshape(1, 1, 4, 4)
    got = run_op("conv2d", {"Input": x, "Filter": np.ones((1, 1, 2, 2))}, {"strides": [2, 2]})
    assert got.tolist() == [[[[10.0, 18.0], [42.0, 50.0]]]]


@pytest.mark.parametrize(
    ("x", "w", "extra", "part"),
    [
        pytest.param(
            (1, 3, 5, 5), (4, 2, 3, 3), {}, "images have 3 channels, the filters take 2", id="channels that differ"
        ),
        pytest.param((1, 3, 2, 2), (4, 3, 3, 3), {}, "does not fit", id="a window larger than the image"),
        pytest.param((3, 5, 5), (4, 3, 3, 3), {}, "rank 4", id="a missing axis"),
        pytest.param(
            (1, 4, 5, 5), (3, 2, 3, 3), {"groups": 2}, "3 filters cannot be cut into 2 groups", id="odd groups"
        ),
        pytest.param((1, 3, 5, 5), (4, 3, 3, 3), {"strides": [0, 1]}, "at least 1, got [0, 1]", id="a stride of zero"),
    ],
)
def test_mistakes_name_the_sizes(x, w, extra, part):
    with pytest.raises(PeError) as caught:
        run_op("conv2d", {"Input": np.zeros(x, "float32"), "Filter": np.zeros(w, "float32")}, extra)
    assert part in caught.value.message


def test_filters_that_do_not_fit_into_cache_agree_with_pytorch():
    rng = np.random.default_rng(8)
    x, w = rng.standard_normal((1, 128, 4, 4)), rng.standard_normal((112, 128, 3, 3))  # beyond kernels.conv.LARGE
    expected = torch.nn.functional.conv2d(torch.tensor(x), torch.tensor(w), padding=1).numpy()
    np.testing.assert_allclose(run_op("conv2d", {"Input": x, "Filter": w}, {"paddings": [1, 1]}), expected, rtol=1e-9, atol=1e-9)


def geometries():
    """Every kind of convolution of few images, some drawn: sizes that do not divide, windows that see padding alone, steps over them."""
    yield from (
        ((1, 40, 18, 13), (33, 40, 3, 3), {"paddings": [1, 1]}),
        ((1, 32, 15, 16), (48, 32, 3, 3), {"paddings": [2, 0]}),
        ((2, 32, 9, 9), (32, 32, 3, 3), {}),
        ((1, 6, 11, 7), (6, 1, 3, 3), {"groups": 6, "paddings": [1, 1]}),
        ((1, 4, 9, 9), (8, 1, 2, 3), {"groups": 4, "strides": [3, 2], "dilations": [2, 1], "paddings": [5, 1]}),
        ((3, 9, 7, 5), (17, 9, 1, 1), {}),
        ((1, 5, 12, 9), (7, 5, 1, 1), {"strides": [3, 2]}),
        ((1, 3, 2, 40), (4, 3, 1, 5), {"strides": [4, 1]}),
    )
    rng = np.random.default_rng(11)
    for _ in range(24):
        groups = int(rng.choice([1, 1, 2]))
        channels, filters, taps = groups * int(rng.integers(1, 6)), groups * int(rng.integers(1, 20)), rng.integers(1, 5, 2)
        dilations, paddings = rng.integers(1, 4, 2), rng.integers(0, 6, 2)
        size = np.maximum((taps - 1) * dilations + 1 - 2 * paddings, 1) + rng.integers(0, 20, 2)
        attrs = {"groups": groups, "strides": rng.integers(1, 5, 2).tolist()}
        attrs |= {"paddings": paddings.tolist(), "dilations": dilations.tolist()}
        yield (int(rng.integers(1, 3)), channels, *size.tolist()), (filters, channels // groups, *taps.tolist()), attrs


def large_filters():
    """Convolutions whose output channels, or input channels of the gradient, threads share; of every kernel."""
    yield from (
        ((1, 70, 9, 8), (131, 70, 3, 3), {"paddings": [1, 1]}),  # by Winograd's way
        ((3, 96, 7, 6), (64, 96, 3, 3), {"paddings": [2, 1]}),
        ((1, 80, 5, 5), (65, 80, 3, 3), {"paddings": [1, 1]}),
        ((1, 96, 11, 9), (70, 96, 3, 3), {"strides": [2, 2], "paddings": [1, 1]}),
        ((2, 64, 9, 9), (100, 64, 2, 5), {"dilations": [3, 1], "paddings": [2, 2]}),
        ((1, 66, 6, 5), (130, 66, 1, 1), {}),
        ((3, 129, 5, 3), (67, 129, 1, 1), {}),
        ((1, 64, 9, 8), (96, 64, 1, 1), {"strides": [2, 2]}),
        ((1, 64, 8, 8), (95, 64, 1, 1), {"paddings": [1, 1]}),
    )


@pytest.fixture
def made(monkeypatch):
    """Let threads share channels, and the sums over what they make, and list the pieces that convolutions are cut into."""
    monkeypatch.setattr(work_parts, "ENOUGH_BYTES", 8)
    monkeypatch.setattr(conv_lowering, "ENOUGH", 1)
    for work in ("FILTER_WORK", "PACK_WORK"):
        monkeypatch.setattr(conv_lowering, work, 10**9)
    made: list[conv_lowering.Piece] = []
    pieces = conv_lowering.Images.pieces
    monkeypatch.setattr(conv_lowering.Images, "pieces", lambda self, **how: made.extend(found := pieces(self, **how)) or found)
    return made


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("images", "filters", "given"), list(large_filters()))
def test_channels_that_threads_share_have_the_same_bits(images, filters, given, dtype, rng, made):
    last = {**given, "data_format": "NHWC"}
    n, channels, *size = images
    x, w = rng.standard_normal((n, *size, channels)).astype(dtype), rng.standard_normal(filters).astype(dtype)
    each = {s: rng.uniform(0.5, 1.5, filters[0]).astype(dtype) for s in ("Scale", "Bias", "Mean", "Variance")}
    conv = {"Input": x, "Filter": w}
    y = run_op("conv2d", conv, last)
    upstream = rng.standard_normal(y.shape).astype(dtype)
    runs = [
        ("conv2d", conv, last),
        ("conv2d_fusion", {**conv, "Bias": each["Bias"]}, {**last, "activation": "relu"}),
        ("fused_conv2d_moments", conv, last),
        ("fused_conv2d_norm", {**conv, **each}, last),
        ("fused_conv2d_norm", {**conv, **each, "Z": y}, {**last, "activation": "relu"}),
    ]
    if filters[2:] == (1, 1) and not given:
        norm = dict(zip(("SavedMean", "SavedVariance", "Scale", "Bias"), rng.uniform(0.5, 1.5, (4, channels)).astype(dtype), strict=True))
        runs += [("fused_norm_conv2d", {**conv, **norm}, last), ("fused_norm_conv2d_back", {**conv, **norm, "Output@GRAD": upstream}, last)]
    for kind, inputs, attrs in runs:
        expected = run_op(kind, inputs, attrs)
        for threads in (2, 3):
            del made[:]
            found = run_op(kind, inputs, attrs, threads=threads)
            assert made[-1].channel > 0
            for slot, value in expected.items() if isinstance(expected, dict) else [("", expected)]:
                np.testing.assert_array_equal(found[slot] if slot else found, value, err_msg=f"{kind} {slot} {threads}")
    expected = run_gradient("conv2d", conv, last, upstream=upstream)
    for threads in (2, 3):
        del made[:]
        found = run_gradient("conv2d", conv, last, upstream=upstream, threads=threads)
        assert made[-1].channel > 0
        for slot, value in expected.items():
            np.testing.assert_array_equal(found[slot], value, err_msg=f"{slot} {threads}")


@pytest.mark.parametrize(("images", "filters", "given"), list(large_filters()))
def test_gradients_of_some_channels_are_added_to_the_bit(images, filters, given, rng, made):
    n, channels, *size = images
    sample = Sample({"Input": (n, *size, channels), "Filter": filters}, {**given, "data_format": "NHWC"})
    check_bits_of_the_sum(OPS["conv2d"], sample, "float32", rng, threads=2)
    assert made[-1].channel > 0


@pytest.mark.parametrize(("images", "filters", "given"), list(geometries()))
def test_images_that_threads_share_have_the_same_bits(images, filters, given, rng, monkeypatch):
    monkeypatch.setattr(conv_lowering, "ENOUGH", 1)
    for work in ("FILTER_WORK", "PACK_WORK"):
        monkeypatch.setattr(conv_lowering, work, 0)
    x, w = rng.standard_normal(images).astype("float32"), rng.standard_normal(filters).astype("float32")
    bias = rng.standard_normal(filters[0]).astype("float32")
    for data_format in ("NCHW", "NHWC"):
        given = {**given, "data_format": data_format}
        inputs = {"Input": x if data_format == "NCHW" else np.ascontiguousarray(x.transpose(0, 2, 3, 1)), "Filter": w}
        alone = run_op("conv2d", inputs, given)
        upstream = rng.standard_normal(alone.shape).astype("float32")
        gradients = run_gradient("conv2d", inputs, given, upstream=upstream)
        biased = run_op("conv2d_fusion", {**inputs, "Bias": bias}, given)
        for threads in (2, 5):
            np.testing.assert_array_equal(run_op("conv2d", inputs, given, threads=threads), alone)
            np.testing.assert_array_equal(run_op("conv2d_fusion", {**inputs, "Bias": bias}, given, threads=threads), biased)
            found = run_gradient("conv2d", inputs, given, upstream=upstream, threads=threads)
            for slot, value in gradients.items():
                np.testing.assert_array_equal(found[slot], value, err_msg=slot)


@pytest.fixture
def few(monkeypatch):
    """Let all convolutions count as those of few pixels; a list gets those that are asked."""
    asked: list[tuple[int, ...]] = []
    monkeypatch.setattr(conv_lowering.Images, "_few", lambda self, w: asked.append(w.shape) or True)
    return asked


@pytest.mark.parametrize("data_format", ["NCHW", "NHWC"])
@pytest.mark.parametrize("case", [case for case in CASES if case.values[0].get("groups", 1) == 1 and case.values[0]["k"] > 1])
def test_few_pixels_as_one_product_agree_with_pytorch(rng, case, data_format, few):
    test_values_and_gradients_agree_with_pytorch(rng, case, data_format)
    assert few


@pytest.mark.parametrize(("images", "filters", "given"), [each for each in geometries() if each[2].get("groups", 1) == 1])
def test_few_pixels_of_any_geometry_are_what_other_ways_give(images, filters, given, rng, monkeypatch):
    n, channels, *size = images
    given = {**given, "data_format": "NHWC"}
    inputs = {"Input": rng.standard_normal((n, *size, channels)), "Filter": rng.standard_normal(filters)}
    each = {s: rng.uniform(0.5, 1.5, filters[0]) for s in ("Scale", "Bias", "Mean", "Variance")}
    found = {}
    for few in (False, True):
        monkeypatch.setattr(conv_lowering.Images, "_few", lambda self, w, few=few: few)
        out = run_op("conv2d", inputs, given)
        upstream = np.cos(np.arange(out.size)).reshape(out.shape)
        found[few] = {
            "out": out,
            **run_gradient("conv2d", inputs, given, upstream=upstream),
            "biased": run_op("conv2d_fusion", {**inputs, "Bias": each["Bias"]}, given),
            "moments": run_op("fused_conv2d_moments", inputs, given)["Moments"],
            "normed": run_op("fused_conv2d_norm", {**inputs, **each}, given),
        }
    for name, value in found[False].items():
        np.testing.assert_allclose(found[True][name], value, rtol=1e-10, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_convolution_of_few_pixels_and_large_filters_agrees_with_pytorch(rng, threads, monkeypatch):
    called = []
    call = conv_lowering.Lowering.call
    counted = lambda o, which, *args, **more: called.append(which) or call(o, which, *args, **more)  # noqa: E731
    monkeypatch.setattr(conv_lowering.Lowering, "call", counted)
    x, w = rng.standard_normal((2, 64, 3, 4)).astype("float32"), rng.standard_normal((160, 64, 3, 3)).astype("float32")
    tx, tw = torch.tensor(x, requires_grad=True), torch.tensor(w, requires_grad=True)
    out = torch.nn.functional.conv2d(tx, tw, None, (1, 2), 1)
    up = rng.standard_normal(tuple(out.shape)).astype("float32")
    (out * torch.tensor(up)).sum().backward()
    given, attrs = {"Input": x, "Filter": w}, {"strides": [1, 2], "paddings": [1, 1]}
    np.testing.assert_allclose(run_op("conv2d", given, attrs, threads=threads), out.detach().numpy(), rtol=1e-4, atol=1e-4)
    gradient = run_gradient("conv2d", given, attrs, upstream=up, threads=threads)
    np.testing.assert_allclose(gradient["Input"], tx.grad.numpy(), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(gradient["Filter"], tw.grad.numpy(), rtol=1e-4, atol=1e-3)
    assert called.count(conv_lowering.gather_taps) == 2
    assert called.count(conv_lowering.spread_taps) == 1
