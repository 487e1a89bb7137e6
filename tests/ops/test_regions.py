"""Ops on parts of regions of images against loops over their definitions, and whose regions are."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from tests.ops.support import run_gradient, run_op

RNG = np.random.default_rng(11)
ROIS = np.array([[0.3, 0.6, 3.2, 4.1], [-1.5, 1.3, 2.7, 2.8], [1.1, 0.2, 7.5, 9.6]])
COUNTS = np.array([2, 1])


def away(v):
    """Round halves away from 0."""
    return math.copysign(math.floor(abs(v) + 0.5), v)


def linear(image, y, x):
    """Return an image at a point within it, linear between pixels."""
    i, j = (min(math.floor(v), n - 1) for v, n in zip((y, x), image.shape, strict=True))
    k, m = min(i + 1, image.shape[0] - 1), min(j + 1, image.shape[1] - 1)
    v, u = y - i, x - j
    return (image[i, j] * (1 - u) + image[i, m] * u) * (1 - v) + (image[k, j] * (1 - u) + image[k, m] * u) * v


# --- psroi_pool -------------------------------------------------------------------------------------------------------


def psroi(x, rois, counts, d, ph, pw, scale):
    out = np.zeros((len(rois), d, ph, pw))
    for r, c, i, j in np.ndindex(out.shape):
        n = np.repeat(np.arange(len(counts)), counts)[r]
        x1, y1 = away(rois[r, 0]) * scale, away(rois[r, 1]) * scale
        w, h = max((away(rois[r, 2]) + 1) * scale - x1, 0.1) / pw, max((away(rois[r, 3]) + 1) * scale - y1, 0.1) / ph
        rows = range(max(math.floor(y1 + i * h), 0), min(math.ceil(y1 + (i + 1) * h), x.shape[2]))
        columns = range(max(math.floor(x1 + j * w), 0), min(math.ceil(x1 + (j + 1) * w), x.shape[3]))
        pixels = [x[n, (c * ph + i) * pw + j, a, b] for a in rows for b in columns]
        out[r, c, i, j] = np.mean(pixels) if pixels else 0
    return out


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [1.0, 0.5, 0.25])
def test_parts_have_channels_of_their_own(scale, dtype):
    x = RNG.standard_normal((2, 12, 6, 5)).astype(dtype)
    attrs = {"output_channels": 2, "pooled_height": 2, "pooled_width": 3, "spatial_scale": scale}
    found = run_op("psroi_pool", {"X": x, "ROIs": ROIS.astype(dtype), "BatchRoINums": COUNTS}, attrs)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, psroi(x, ROIS, COUNTS, 2, 2, 3, scale), rtol=1e-5, atol=1e-6)


def test_a_region_outside_of_the_image_has_no_pixels():
    inputs = {"X": np.ones((1, 1, 3, 3)), "ROIs": np.array([[5.0, 5.0, 7.0, 7.0], [-9.0, -9.0, -5.0, -5.0]])}
    assert not run_op("psroi_pool", inputs).any()
    assert not run_gradient("psroi_pool", inputs)["X"].any()


def test_channels_must_be_those_of_all_parts():
    attrs = {"output_channels": 2, "pooled_height": 2, "pooled_width": 3}
    with pytest.raises(PeError, match="2 by 2 by 3 needs 12 channels, X has 8"):
        run_op("psroi_pool", {"X": np.zeros((1, 8, 4, 4)), "ROIs": ROIS}, attrs)


# --- deformable_psroi_pooling -----------------------------------------------------------------------------------------


def deformed(x, rois, trans, counts, attrs):
    d, ph, pw, points = attrs["output_dim"], attrs["pooled_height"], attrs["pooled_width"], attrs["sample_per_part"]
    (gh, gw), (ah, aw), scale = attrs["group_size"], attrs["part_size"], attrs["spatial_scale"]
    out = np.zeros((len(rois), d, ph, pw))
    classes = trans.shape[1] // 2
    for r, c, i, j in np.ndindex(out.shape):
        n = np.repeat(np.arange(len(counts)), counts)[r]
        x1, y1 = away(rois[r, 0]) * scale - 0.5, away(rois[r, 1]) * scale - 0.5
        w, h = max((away(rois[r, 2]) + 1) * scale - 0.5 - x1, 0.1), max((away(rois[r, 3]) + 1) * scale - 0.5 - y1, 0.1)
        k = c // (d // classes)
        dx, dy = (trans[r, 2 * k + axis, i * ah // ph, j * aw // pw] * attrs["trans_std"] for axis in (0, 1))
        channel = (c * gh + i * gh // ph) * gw + j * gw // pw
        seen = []
        for a, b in itertools.product(range(points), repeat=2):
            px, py = x1 + j * w / pw + dx * w + b * w / pw / points, y1 + i * h / ph + dy * h + a * h / ph / points
            if -0.5 <= px <= x.shape[3] - 0.5 and -0.5 <= py <= x.shape[2] - 0.5:
                seen.append(linear(x[n, channel], np.clip(py, 0, x.shape[2] - 1), np.clip(px, 0, x.shape[3] - 1)))
        out[r, c, i, j] = np.mean(seen) if seen else 0
    return out


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="one class"),
        pytest.param({"group_size": [2, 3], "output_dim": 2}, id="groups of parts with channels of their own"),
        pytest.param({"part_size": [1, 3], "trans_std": 0.5}, id="another number of moves than of parts"),
        pytest.param({"spatial_scale": 0.5, "sample_per_part": 3}, id="regions in other units"),
    ],
)
def test_parts_are_moved(changes):
    attrs = {"output_dim": 2, "pooled_height": 2, "pooled_width": 3, "group_size": [1, 1], "part_size": [2, 2], "sample_per_part": 2,
             "spatial_scale": 1.0, "trans_std": 0.1} | changes  # fmt: skip
    x, trans = RNG.standard_normal((2, 12, 7, 6)), RNG.standard_normal((3, 4, *attrs["part_size"]))
    found = run_op("deformable_psroi_pooling", {"Input": x, "ROIs": ROIS, "Trans": trans, "BatchRoINums": COUNTS}, attrs)["Output"]
    np.testing.assert_allclose(found, deformed(x, ROIS, trans, COUNTS, attrs), atol=1e-12)


def test_without_moves_trans_does_not_count():
    x, trans = RNG.standard_normal((1, 2, 5, 5)), RNG.standard_normal((3, 2, 1, 1))
    attrs = {"no_trans": True, "output_dim": 2}
    inputs = ({"Input": x, "ROIs": ROIS}, {"Input": x, "ROIs": ROIS, "Trans": trans})
    alone, given = (run_op("deformable_psroi_pooling", each, attrs)["Output"] for each in inputs)
    assert np.array_equal(alone, given)
    assert not run_gradient("deformable_psroi_pooling", {"Input": x, "ROIs": ROIS, "Trans": trans}, attrs)["Trans"].any()


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        pytest.param({}, "needs Trans", id="no moves"),
        pytest.param({"no_trans": True, "output_dim": 3}, "3 outputs of 1 by 1 groups need as many channels", id="too few channels"),
        pytest.param({"no_trans": True, "group_size": [1]}, "group_size must be rows and columns", id="half a group"),
    ],
)
def test_moves_that_do_not_fit(attrs, message):
    with pytest.raises(PeError, match=message):
        run_op("deformable_psroi_pooling", {"Input": np.zeros((1, 2, 5, 5)), "ROIs": ROIS}, attrs)


# --- roi_perspective_transform ----------------------------------------------------------------------------------------


def projected(corners, height, width):
    """Return the columns of the output, and the map that takes its corners to those of a quadrangle, by solving for it."""
    a, b, c, d = corners
    ratio = (math.dist(a, b) + math.dist(c, d)) / (math.dist(b, c) + math.dist(d, a))
    columns = max(2, min(int(away(ratio * (height - 1))) + 1, width))
    places = [(0, 0), (columns - 1, 0), (columns - 1, height - 1), (0, height - 1)]
    rows, right = [], []
    for (u, v), (x, y) in zip(places, corners, strict=True):
        rows += [[u, v, 1, 0, 0, 0, -u * x, -v * x], [0, 0, 0, u, v, 1, -u * y, -v * y]]
        right += [x, y]
    return columns, np.append(np.linalg.solve(rows, right), 1).reshape(3, 3)


def test_quadrangles_seen_from_the_front():
    corners = np.array([[[1, 1], [6, 2], [5, 6], [1, 5]], [[2, 0], [7, 1], [6, 7], [0, 6]]], float)
    x = RNG.standard_normal((1, 2, 8, 8))
    attrs = {"transformed_height": 3, "transformed_width": 4}
    found = run_op("roi_perspective_transform", {"X": x, "ROIs": corners.reshape(2, 8)}, attrs)
    for r, quadrangle in enumerate(corners):
        columns, matrix = projected(quadrangle, 3, 4)
        np.testing.assert_allclose(found["TransformMatrix"][r], matrix.ravel(), atol=1e-4)
        for i, j in np.ndindex(3, 4):
            u, v, w = matrix @ [j, i, 1]
            seen = j < columns
            assert found["Mask"][r, 0, i, j] == seen
            expected = [linear(x[0, c], v / w, u / w) if seen else 0 for c in range(2)]
            np.testing.assert_allclose(found["Out"][r, :, i, j], expected, atol=1e-3)


def test_what_lies_outside_of_the_image_is_0():
    inputs = {"X": np.ones((1, 1, 4, 4)), "ROIs": np.array([[-4.0, 0, 3, 0, 3, 3, -4, 3]])}
    found = run_op("roi_perspective_transform", inputs, {"transformed_height": 4, "transformed_width": 8})
    assert found["Out"][0, 0].tolist() == [[0, 0, 0, 0, 1, 1, 1, 1]] * 4
    assert np.array_equal(found["Mask"][0, 0], found["Out"][0, 0])


# --- whose regions they are -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["roi_align", "roi_pool", "prroi_pool", "psroi_pool"])
def test_offsets_say_the_same_as_counts(name):
    x = RNG.standard_normal((2, 1, 6, 5))
    first = [run_op(name, {"X": x, "ROIs": ROIS, **more}) for more in ({"BatchRoINums": COUNTS}, {"RoisLod": np.array([0, 2, 3])})]
    a, b = (f["Out"] if isinstance(f, dict) else f for f in first)
    assert np.array_equal(a, b)
    for i in range(2):
        alone = run_op(name, {"X": x[i : i + 1], "ROIs": ROIS[2 * i : 2 + i]})
        assert np.array_equal(alone["Out"] if isinstance(alone, dict) else alone, a[2 * i : 2 + i])


@pytest.mark.parametrize("offsets", [[0, 1, 2], [0, 4, 3], [1, 2, 3]])
def test_offsets_that_do_not_fit(offsets):
    with pytest.raises(PeError, match="roi_pool") as caught:
        run_op("roi_pool", {"X": np.zeros((2, 1, 3, 3)), "ROIs": ROIS, "RoisLod": np.array(offsets)})
    assert "numbers of regions of all images" in caught.value.hint


@pytest.mark.parametrize("counts", [[1, 1], [2, 2], [-1, 3, 2], [2**62, 1]], ids=["too few", "too many", "one below 0", "beyond any time"])
def test_counts_that_do_not_fit(counts):
    x = np.zeros((len(counts), 1, 3, 3))
    with pytest.raises(PeError, match="roi_pool") as caught:
        run_op("roi_pool", {"X": x, "ROIs": ROIS, "BatchRoINums": np.array(counts)})
    assert "numbers of regions of all images" in caught.value.hint
