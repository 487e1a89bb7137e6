"""conv2d_transpose beside PyTorch, with every kernel that it may choose, however many threads share it."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.ops.nn import conv_lowering
from tests.needs import torch
from tests.ops.support import run_gradient, run_op


def geometries():
    """Every kind: by Winograd's way, depthwise, one by one with and without holes, large filters, what is cut; some drawn."""
    yield from (
        ((1, 32, 12, 11), (32, 32, 3, 3), {"paddings": [1, 1, 1, 1]}),
        ((1, 32, 9, 12), (32, 32, 3, 3), {"paddings": [2, 1, 0, 2]}),
        ((2, 6, 5, 7), (6, 1, 3, 3), {"groups": 6, "strides": [2, 2], "paddings": [1, 1, 1, 1], "output_padding": [1, 1]}),
        ((1, 6, 5, 4), (6, 1, 2, 3), {"groups": 3}),
        ((3, 9, 7, 5), (9, 17, 1, 1), {}),
        ((1, 5, 4, 3), (5, 7, 1, 1), {"strides": [3, 2], "output_padding": [2, 1]}),
        ((1, 5, 4, 3), (5, 7, 1, 1), {"strides": [3, 1], "paddings": [2, 3, 1, 0]}),
        ((2, 64, 4, 4), (64, 96, 4, 4), {"strides": [2, 2], "paddings": [1, 1, 1, 1]}),
        ((1, 3, 2, 9), (3, 4, 1, 2), {"strides": [1, 5], "output_padding": [0, 2]}),
    )
    rng = np.random.default_rng(5)
    for _ in range(12):
        groups, taps, dilations, strides = int(rng.choice([1, 2, 3])), rng.integers(1, 5, 2), rng.integers(1, 4, 2), rng.integers(1, 5, 2)
        size, more = rng.integers(2, 9, 2), [int(rng.integers(0, s)) for s in strides]
        room = (size - 1) * strides + dilations * (taps - 1)
        cut = [int(rng.integers(0, r // 2 + 1)) for r in room for _ in range(2)]
        facts = {"groups": groups, "strides": strides.tolist(), "dilations": dilations.tolist(), "paddings": cut, "output_padding": more}
        channels = groups * int(rng.integers(1, 9))
        yield (int(rng.integers(1, 3)), channels, *size.tolist()), (channels, int(rng.integers(1, 20)), *taps.tolist()), facts


def by_torch(x, w, upstream, given):
    """Return the output, and the gradients, of PyTorch's, which cuts all sides alike: so it cuts none, and what is wanted is taken."""
    x, w = (torch.tensor(v.astype("float64"), requires_grad=True) for v in (x, w))
    facts = {name: given.get(other, [1, 1]) for name, other in (("stride", "strides"), ("dilation", "dilations"))}
    whole = torch.nn.functional.conv_transpose2d(x, w, groups=given.get("groups", 1), **facts)
    more, cut = given.get("output_padding", [0, 0]), given.get("paddings", [0, 0, 0, 0])
    whole = torch.nn.functional.pad(whole, (0, more[1], 0, more[0]))
    out = whole[:, :, cut[0] : whole.shape[2] - cut[1], cut[2] : whole.shape[3] - cut[3]]
    if upstream is not None:
        out.backward(torch.tensor(upstream.astype("float64")))
    return out.detach().numpy(), x.grad, w.grad


@pytest.mark.parametrize(("images", "filters", "given"), list(geometries()))
def test_values_and_gradients(images, filters, given, rng, monkeypatch):
    x, w = rng.standard_normal(images).astype("float32"), rng.standard_normal(filters).astype("float32")
    expected, *_ = by_torch(x, w, None, given)
    upstream = rng.standard_normal(expected.shape).astype("float32")
    _, dx, dw = by_torch(x, w, upstream, given)
    for name in ("ENOUGH", "FILTER_WORK", "PACK_WORK"):
        monkeypatch.setattr(conv_lowering, name, 1)  # threads share whatever can be shared
    order, back = (0, 2, 3, 1), (0, 3, 1, 2)
    for data_format in ("NCHW", "NHWC"):
        last = data_format == "NHWC"
        fed = np.ascontiguousarray(x.transpose(order)) if last else x
        g = np.ascontiguousarray(upstream.transpose(order)) if last else upstream
        attrs = {**given, "data_format": data_format}
        alone = run_op("conv2d_transpose", {"Input": fed, "Filter": w}, attrs)
        np.testing.assert_allclose(alone.transpose(back) if last else alone, expected, rtol=1e-4, atol=2e-4)
        gradients = run_gradient("conv2d_transpose", {"Input": fed, "Filter": w}, attrs, upstream=g)
        found = gradients["Input"]
        np.testing.assert_allclose(found.transpose(back) if last else found, dx, rtol=1e-4, atol=3e-4)
        np.testing.assert_allclose(gradients["Filter"], dw, rtol=1e-4, atol=3e-4)
        for threads in (2, 5):
            same = run_op("conv2d_transpose", {"Input": fed, "Filter": w}, attrs, threads=threads)
            np.testing.assert_array_equal(same, alone)
            others = run_gradient("conv2d_transpose", {"Input": fed, "Filter": w}, attrs, upstream=g, threads=threads)
            for slot, value in gradients.items():
                np.testing.assert_array_equal(others[slot], value, err_msg=slot)


@pytest.mark.parametrize(
    ("filters", "given", "said"),
    [
        ((4, 2, 3, 3), {}, "3 channels and filters for 4"),
        ((3, 2, 3, 3), {"groups": 2}, "in 2 groups"),
        ((3, 2, 1, 1), {"paddings": [2, 2, 0, 0]}, "no pixel is left"),
        ((3, 2, 1, 1), {"paddings": [1, 1]}, "paddings must be 4 numbers of at least 0"),
        ((3, 2, 1), {}, "filters of rank 4"),
    ],
)
def test_what_does_not_fit(filters, given, said):
    with pytest.raises(PeError, match=said):
        run_op("conv2d_transpose", {"Input": np.zeros((1, 3, 4, 4)), "Filter": np.zeros(filters)}, given)


def test_slices_of_windows_add_up(rng):
    x = rng.standard_normal((2, 3, 2, 4, 2, 1))
    expected = np.zeros((2, 2, 9, 2, 1))
    for place in range(3):
        for tap in range(4):
            at = 3 * place - 2 + 2 * tap
            if 0 <= at < 9:
                expected[:, :, at] += x[:, place, :, tap]
    found = run_op("depth_overlay", {"X": x}, {"stride": 3, "before": 2, "dilation": 2, "depth": 9})
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    with pytest.raises(PeError, match="windows of rank 6"):
        run_op("depth_overlay", {"X": np.zeros((1, 2, 3))}, {})
    with pytest.raises(PeError, match="before -1 at least 0"):
        run_op("depth_overlay", {"X": x}, {"before": -1})
