"""Ops of detectors and of moved pixels against NumPy from their definitions, PyTorch and closed forms."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from tests.needs import torch
from tests.ops.support import run_gradient, run_op

RNG = np.random.default_rng(5)


def boxes(n, size=20.0):
    low = RNG.uniform(0, size / 2, (n, 2))
    return np.concatenate([low, low + RNG.uniform(1, size / 2, (n, 2))], 1)


def overlap(a, b, one=0.0):
    w = min(a[2], b[2]) - max(a[0], b[0]) + one
    h = min(a[3], b[3]) - max(a[1], b[1]) + one
    both = max(w, 0) * max(h, 0)
    area = [(c[2] - c[0] + one) * (c[3] - c[1] + one) for c in (a, b)]
    return both / (area[0] + area[1] - both)


# --- boxes ------------------------------------------------------------------------------------------------------------


def test_priors_are_where_the_paper_puts_them():
    attrs = {"min_sizes": [4.0, 6.0], "max_sizes": [9.0, 8.0], "aspect_ratios": [2.0], "flip": True, "offset": 0.25}
    found = run_op("prior_box", {"Input": np.zeros((1, 2, 3, 4)), "Image": np.zeros((1, 3, 12, 20))}, attrs)
    assert found["Boxes"].shape == (3, 4, 8, 4)
    sides = [(4, 4), (4 * 2**0.5, 4 / 2**0.5), (4 / 2**0.5, 4 * 2**0.5), (6, 6)]
    sides += [(6, 6), (6 * 2**0.5, 6 / 2**0.5), (6 / 2**0.5, 6 * 2**0.5), (48**0.5, 48**0.5)]
    for row, column, k in itertools.product(range(3), range(4), range(8)):
        x, y, (w, h) = (column + 0.25) * 5, (row + 0.25) * 4, sides[k]
        expected = [(x - w / 2) / 20, (y - h / 2) / 12, (x + w / 2) / 20, (y + h / 2) / 12]
        np.testing.assert_allclose(found["Boxes"][row, column, k], expected, atol=1e-12)
    assert (found["Variances"] == [0.1, 0.1, 0.2, 0.2]).all()


def test_priors_in_the_other_order_and_within_the_image():
    attrs = {"min_sizes": [4.0], "max_sizes": [9.0], "aspect_ratios": [2.0], "clip": True}
    inputs = {"Input": np.zeros((1, 2, 1, 1)), "Image": np.zeros((1, 3, 5, 5))}
    plain = run_op("prior_box", inputs, attrs)["Boxes"]
    other = run_op("prior_box", inputs, {**attrs, "min_max_aspect_ratios_order": True})["Boxes"]
    assert np.array_equal(plain[0, 0, [0, 2, 1]], other[0, 0])
    assert plain[0, 0, 2].tolist() == [0, 0, 1, 1]


def test_dense_priors_are_n_by_n_in_a_step():
    attrs = {"densities": [2], "fixed_sizes": [3.0], "fixed_ratios": [1.0]}
    found = run_op("density_prior_box", {"Input": np.zeros((1, 2, 1, 2)), "Image": np.zeros((1, 3, 8, 16))}, attrs)["Boxes"]
    centres = (found[..., :2] + found[..., 2:]) / 2 * [16, 8]
    np.testing.assert_allclose(centres[0, 0], [[2, 2], [6, 2], [2, 6], [6, 6]])
    np.testing.assert_allclose(centres[0, 1], [[10, 2], [14, 2], [10, 6], [14, 6]])
    np.testing.assert_allclose((found[0, 0, 0, 2] - found[0, 0, 0, 0]) * 16, 3)


def test_anchors_of_faster_r_cnn():
    # the values of the paper's published code for base size 16, ratios 1/2, 1, 2 and scales 8, 16, 32
    attrs = {"anchor_sizes": [128.0, 256.0, 512.0], "aspect_ratios": [0.5, 1.0, 2.0], "stride": [16.0, 16.0]}
    found = run_op("anchor_generator", {"Input": np.zeros((1, 1, 1, 1))}, attrs)["Anchors"][0, 0]
    published = [[-83, -39, 100, 56], [-175, -87, 192, 104], [-359, -183, 376, 200], [-55, -55, 72, 72],
                 [-119, -119, 136, 136], [-247, -247, 264, 264], [-35, -79, 52, 96], [-79, -167, 96, 184],
                 [-167, -343, 184, 360]]  # fmt: skip
    assert np.array_equal(found, np.array(published) - 1)  # published from 1 on


@pytest.mark.parametrize("normalized", [True, False])
def test_decoding_is_the_inverse_of_encoding(normalized):
    prior, target, variance = boxes(3), boxes(4), RNG.uniform(0.1, 0.3, (3, 4))
    attrs = {"box_normalized": normalized}
    codes = run_op("box_coder", {"PriorBox": prior, "PriorBoxVar": variance, "TargetBox": target}, attrs)
    one = 0 if normalized else 1
    w, wp = target[1, 2] - target[1, 0] + one, prior[2, 2] - prior[2, 0] + one
    centre = (target[1, 0] + target[1, 2]) / 2 - (prior[2, 0] + wp / 2)
    np.testing.assert_allclose(codes[1, 2, [0, 2]], [centre / wp / variance[2, 0], math.log(w / wp) / variance[2, 2]])
    attrs["code_type"] = "decode_center_size"
    back = run_op("box_coder", {"PriorBox": prior, "PriorBoxVar": variance, "TargetBox": codes}, attrs)
    # a centre is encoded without the last pixel and decoded with it, in the original too
    np.testing.assert_allclose(back, np.repeat(target[:, None], 3, 1) - one / 2)
    rows = {"PriorBox": prior, "PriorBoxVar": variance, "TargetBox": codes.transpose(1, 0, 2)}
    by_row = run_op("box_coder", rows, {**attrs, "axis": 1})
    assert np.array_equal(by_row, back.transpose(1, 0, 2))


def test_boxes_of_the_best_class():
    prior, scores = boxes(3), np.array([[0.9, 0.05, 0.6], [0.2, 0.7, 0.1], [0.1, 0.2, 0.2]])
    codes, variance = RNG.standard_normal((3, 12)) * 0.3, np.array([0.1, 0.1, 0.2, 0.2])
    inputs = {"PriorBox": prior, "PriorBoxVar": variance, "TargetBox": codes, "BoxScore": scores}
    found = run_op("box_decoder_and_assign", inputs, {"box_clip": 0.01})
    for i, best in enumerate((2, 1, 1)):
        w, h = prior[i, 2] - prior[i, 0] + 1, prior[i, 3] - prior[i, 1] + 1
        code = codes[i, 4 * best : 4 * best + 4] * variance
        x, y = prior[i, 0] + w / 2 + code[0] * w, prior[i, 1] + h / 2 + code[1] * h
        w, h = math.exp(min(code[2], 0.01)) * w, math.exp(min(code[3], 0.01)) * h
        expected = [x - w / 2, y - h / 2, x + w / 2 - 1, y + h / 2 - 1]
        np.testing.assert_allclose(found["OutputAssignBox"][i], expected)
        np.testing.assert_allclose(found["DecodeBox"][i, 4 * best : 4 * best + 4], expected)


@pytest.mark.parametrize("normalized", [True, False])
def test_overlaps(normalized):
    x, y = boxes(4), boxes(5)
    found = run_op("iou_similarity", {"X": x, "Y": y}, {"box_normalized": normalized})
    expected = [[overlap(a, b, 0.0 if normalized else 1.0) for b in y] for a in x]
    np.testing.assert_allclose(found, expected)
    assert run_op("iou_similarity", {"X": x, "Y": x + 100}).sum() == 0


def test_detections_of_one_level_are_its_anchors_where_nothing_moves_them():
    anchors = np.array([[0.0, 0, 9, 9], [20, 20, 29, 29], [21, 20, 30, 29]])
    inputs = {"BBoxes": np.zeros((1, 3, 4)), "Anchors": anchors, "ImInfo": np.array([[32.0, 40.0, 1.0]])}
    found = run_op("retinanet_detection_output", inputs | {"Scores": np.array([[[0.9, 0.1], [0.2, 0.8], [0.7, 0.6]]])})
    right = [(1, 0.9, 0), (2, 0.8, 1), (1, 0.7, 2), (2, 0.1, 0)]  # of boxes that overlap, the better one of each class
    np.testing.assert_allclose(found, [[c, score, *anchors[k]] for c, score, k in right])


def test_boxes_of_a_yolo_head():
    x, size = RNG.standard_normal((2, 14, 3, 4)), np.array([[60, 80], [90, 40]])
    attrs = {"anchors": [10, 13, 16, 30], "class_num": 2, "conf_thresh": 0.5, "downsample_ratio": 8, "scale_x_y": 1.2}
    found = run_op("yolo_box", {"X": x, "ImgSize": size}, attrs)
    sigmoid = 1 / (1 + np.exp(-x.reshape(2, 2, 7, 3, 4)))
    raw = x.reshape(2, 2, 7, 3, 4)
    for n, a, row, column in itertools.product(range(2), range(2), range(3), range(4)):
        (h, w), at = size[n], a * 12 + row * 4 + column
        s, t = sigmoid[n, a, :, row, column], raw[n, a, :, row, column]
        if s[4] < 0.5:
            assert not found["Boxes"][n, at].any()
            assert not found["Scores"][n, at].any()
            continue
        cx, cy = (column + 1.2 * s[0] - 0.1) * w / 4, (row + 1.2 * s[1] - 0.1) * h / 3
        bw = math.exp(t[2]) * attrs["anchors"][2 * a] * w / 32
        bh = math.exp(t[3]) * attrs["anchors"][2 * a + 1] * h / 24
        expected = [max(cx - bw / 2, 0), max(cy - bh / 2, 0), min(cx + bw / 2, w - 1), min(cy + bh / 2, h - 1)]
        np.testing.assert_allclose(found["Boxes"][n, at], expected)
        np.testing.assert_allclose(found["Scores"][n, at], s[4] * s[5:])


# --- regions ----------------------------------------------------------------------------------------------------------


def ramp(height, width):
    """An image that is linear: its mean over a box inside is its value at the centre."""
    return np.arange(height)[:, None] * 3.0 + np.arange(width) * 0.5 + 1


def test_exact_means_of_a_linear_image_are_values_at_the_centres():
    regions = np.array([[1.2, 1.5, 5.0, 6.5], [2.0, 2.0, 3.0, 2.5]])
    found = run_op(
        "prroi_pool", {"X": ramp(9, 8)[None, None], "ROIs": regions}, {"pooled_height": 2, "pooled_width": 3}
    )
    for r, i, j in itertools.product(range(2), range(2), range(3)):
        x = regions[r, 0] + (j + 0.5) * (regions[r, 2] - regions[r, 0]) / 3
        y = regions[r, 1] + (i + 0.5) * (regions[r, 3] - regions[r, 1]) / 2
        # inside a pixel's square the image is linear; over several it is so too, as a ramp is one plane
        np.testing.assert_allclose(found[r, 0, i, j], 3 * y + 0.5 * x + 1)


def test_exact_means_agree_with_many_points():
    image, region = RNG.standard_normal((1, 1, 6, 7)), np.array([[-1.5, 0.4, 4.3, 7.9]])
    found = run_op("prroi_pool", {"X": image, "ROIs": region}, {"pooled_height": 1, "pooled_width": 2})
    n = 400
    for j in range(2):
        xs = region[0, 0] + (j + (np.arange(n) + 0.5) / n) * 2.9
        ys = region[0, 1] + (np.arange(n) + 0.5) / n * 7.5
        down = np.maximum(1 - abs(ys[:, None] - np.arange(6)), 0)
        along = np.maximum(1 - abs(xs[:, None] - np.arange(7)), 0)
        np.testing.assert_allclose(found[0, 0, 0, j], (down @ image[0, 0] @ along.T).mean(), atol=1e-4)


def test_points_of_a_linear_image():
    region = np.array([[2.0, 4.0, 10.0, 12.0]])
    attrs = {"pooled_height": 2, "pooled_width": 2, "spatial_scale": 0.5, "sampling_ratio": 3}
    found = run_op("roi_align", {"X": ramp(9, 8)[None, None], "ROIs": region}, attrs)
    expected = [[3 * y + 0.5 * x + 1 for x in (2, 4)] for y in (3, 5)]
    np.testing.assert_allclose(found[0, 0], expected)


def test_the_largest_pixel_of_each_part():
    image = RNG.standard_normal((2, 3, 8, 9))
    regions, counts = np.array([[0.6, 1.4, 4.4, 6.6], [7.2, 7.0, 20.0, 30.0], [2.0, 2.0, 5.0, 5.0]]), np.array([1, 2])
    attrs = {"pooled_height": 2, "pooled_width": 2}
    found = run_op("roi_pool", {"X": image, "ROIs": regions, "BatchRoINums": counts}, attrs)
    edges = [(1, 1, 4, 7), (7, 7, 20, 30), (2, 2, 5, 5)]
    for r, (x1, y1, x2, y2) in enumerate(edges):
        h, w = y2 - y1 + 1, x2 - x1 + 1
        for i, j in itertools.product(range(2), range(2)):
            rows = slice(y1 + i * h // 2, min(y1 + -(-(i + 1) * h // 2), 8))
            columns = slice(x1 + j * w // 2, min(x1 + -(-(j + 1) * w // 2), 9))
            part = image[int(r > 0), :, rows, columns].reshape(3, -1)
            expected = part.max(1) if part.size else np.zeros(3)
            assert np.array_equal(found["Out"][r, :, i, j], expected)
            assert (found["Argmax"][r, :, i, j] == -1).all() == (not part.size)


@pytest.mark.parametrize("name", ["prroi_pool", "roi_align", "roi_pool"])
def test_regions_need_an_image(name):
    image, regions = np.zeros((2, 1, 4, 4)), np.array([[0.0, 0, 2, 2]])
    with pytest.raises(PeError, match="2 images, and nothing says whose the regions are"):
        run_op(name, {"X": image, "ROIs": regions})
    with pytest.raises(PeError, match=name):
        run_op(name, {"X": image, "ROIs": regions, "BatchRoINums": np.array([1, 1])})


# --- moved pixels -----------------------------------------------------------------------------------------------------


def test_places_of_an_affine_map_are_those_of_torch():
    theta = RNG.standard_normal((3, 2, 3))
    found = run_op("affine_grid", {"Theta": theta}, {"output_shape": [3, 1, 4, 5]})
    expected = torch.nn.functional.affine_grid(torch.tensor(theta), [3, 1, 4, 5], align_corners=True)
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-12)
    one = run_op("affine_grid", {"Theta": theta}, {"output_shape": [3, 1, 1, 1]})
    np.testing.assert_allclose(one[:, 0, 0], theta[:, :, 2])


def test_columns_without_offsets_are_those_of_a_convolution():
    x = RNG.standard_normal((2, 4, 7, 6))
    attrs = {"ksize": [3, 2], "strides": [2, 1], "paddings": [1, 0], "dilations": [1, 2], "deformable_groups": 2}
    mask = np.ones((2, 12, 4, 4))
    found = run_op("deformable_im2col", {"X": x, "Offset": np.zeros((2, 24, 4, 4)), "Mask": mask}, attrs)
    expected = torch.nn.functional.unfold(torch.tensor(x), (3, 2), (1, 2), (1, 0), (2, 1))
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-12)


def test_whole_offsets_move_the_image_and_halves_average():
    x = RNG.standard_normal((1, 1, 5, 5))
    offset = np.zeros((1, 2, 5, 5))
    offset[:, 0], offset[:, 1] = 1, -0.5
    found = run_op("deformable_im2col", {"X": x, "Offset": offset}, {"ksize": [1, 1]}).reshape(5, 5)
    padded = np.pad(x[0, 0], ((0, 1), (1, 0)))[1:]
    np.testing.assert_allclose(found, (padded[:, :-1] + padded[:, 1:]) / 2)


@pytest.mark.parametrize(("size", "wanted"), [((8, 6, 7), (3, 4, 7)), ((4, 4, 4), (2, 2, 2)), ((3, 2, 5), (5, 4, 3))])
@pytest.mark.parametrize("kind", ["avg", "max"])
def test_adaptive_pooling_is_that_of_torch(kind, size, wanted):
    x = RNG.standard_normal((2, 3, *size))
    found = run_op("pool3d", {"X": x}, {"pooling_type": kind, "ksize": list(wanted), "adaptive": True})
    pool = torch.nn.functional.adaptive_avg_pool3d if kind == "avg" else torch.nn.functional.adaptive_max_pool3d
    np.testing.assert_allclose(found, pool(torch.tensor(x), wanted).numpy(), atol=1e-12)


@pytest.mark.parametrize("exclusive", [True, False])
@pytest.mark.parametrize("kind", ["avg", "max"])
def test_pooling_of_volumes_is_that_of_torch(kind, exclusive):
    x = RNG.standard_normal((2, 3, 5, 7, 6))
    attrs = {"pooling_type": kind, "ksize": [3, 2, 3], "strides": [2, 2, 1], "paddings": [1, 0, 1], "exclusive": exclusive}
    found = run_op("pool3d", {"X": x}, {**attrs, "ceil_mode": True})
    args = torch.tensor(x), (3, 2, 3), (2, 2, 1), (1, 0, 1)
    if kind == "max":
        expected = torch.nn.functional.max_pool3d(*args, ceil_mode=True)
    else:
        expected = torch.nn.functional.avg_pool3d(*args, ceil_mode=True, count_include_pad=not exclusive)
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-12)


# --- a tree of classes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 5, 8, 13])
def test_the_probabilities_of_all_classes_sum_to_one(classes):
    x, w, b = RNG.standard_normal((1, 3)), RNG.standard_normal((classes - 1, 3)), RNG.standard_normal((classes - 1, 1))
    inputs = {"X": np.repeat(x, classes, 0), "W": w, "Bias": b, "Label": np.arange(classes)[:, None]}
    costs = run_op("hierarchical_sigmoid", inputs, {"num_classes": classes})["Out"]
    assert np.exp(-costs).sum() == pytest.approx(1)


def test_a_path_of_ones_own():
    x, w = RNG.standard_normal((2, 3)), RNG.standard_normal((4, 3))
    table, code = np.array([[0, 2, -1], [3, 1, 0]]), np.array([[1, 0, 0], [0, 1, 1]])
    inputs = {"X": x, "W": w, "Label": np.zeros((2, 1), "int64"), "PathTable": table, "PathCode": code}
    found = run_op("hierarchical_sigmoid", inputs)["Out"]
    for r, path in enumerate([[(0, 1), (2, 0)], [(3, 0), (1, 1), (0, 1)]]):
        cost = sum(math.log1p(math.exp(w[n] @ x[r])) - bit * (w[n] @ x[r]) for n, bit in path)
        assert found[r, 0] == pytest.approx(cost)


def test_a_class_out_of_range_is_named():
    inputs = {"X": np.zeros((2, 3)), "W": np.zeros((4, 3)), "Label": np.array([[0], [5]])}
    with pytest.raises(PeError, match=r"value 5 at row 1 is out of range \[0, 5\)"):
        run_op("hierarchical_sigmoid", inputs, {"num_classes": 5})


# --- random choices ---------------------------------------------------------------------------------------------------


def test_every_order_is_equally_likely():
    orders = [tuple(run_op("randperm", {}, {"n": 3}, step=s).tolist()) for s in range(600)]
    counts = [orders.count(p) for p in itertools.permutations(range(3))]
    assert sum(counts) == 600
    assert sum((c - 100) ** 2 / 100 for c in counts) < 20.5  # chi-squared with 5 degrees of freedom, 0.1%
    fixed = [run_op("randperm", {}, {"n": 50, "seed": 4, "dtype": "int32"}, step=s) for s in (0, 1)]
    assert np.array_equal(*fixed)
    assert sorted(fixed[0].tolist()) == list(range(50))


def test_crops_are_boxes_at_places_of_their_own():
    x = np.arange(40 * 2 * 5 * 6, dtype="float64").reshape(40, 2, 5, 6)
    found = run_op("random_crop", {"X": x}, {"shape": [2, 3, 4]})
    places = set()
    for sample, part in zip(x, found, strict=True):
        ((_, row, column),) = np.argwhere(sample == part[0, 0, 0])
        assert np.array_equal(part, sample[:, row : row + 3, column : column + 4])
        places.add((int(row), int(column)))
    assert len(places) == 9
    flat = run_op("random_crop", {"X": x}, {"shape": [4], "seed": 3})
    assert np.array_equal(flat, run_op("random_crop", {"X": x}, {"shape": [4], "seed": 3}, step=7))


def test_in_evaluation_the_middle_is_cut_out():
    x = np.arange(3 * 2 * 5 * 7, dtype="float64").reshape(3, 2, 5, 7)
    found = [run_op("random_crop", {"X": x}, {"shape": [2, 3, 4], "is_test": True, "seed": s}, step=s) for s in (0, 1)]
    assert np.array_equal(found[0], x[:, :, 1:4, 1:5])  # two rows are left over, and three columns
    assert np.array_equal(*found)


def test_exact_means_pull_the_edges():
    region = np.array([[1.2, 1.5, 5.0, 6.5]])
    found = run_gradient("prroi_pool", {"X": ramp(9, 8)[None, None], "ROIs": region})
    # the mean is 3 (y1 + y2) / 2 + 0.5 (x1 + x2) / 2 + 1
    np.testing.assert_allclose(found["ROIs"][0], [0.25, 1.5, 0.25, 1.5])


def test_boxes_are_cut_to_their_images():
    x = np.array([[[-3.0, 5, 50, 40]], [[7, -1, 28, 95]]])
    found = run_op("box_clip", {"Input": x, "ImInfo": np.array([[60.0, 80, 2], [90, 29.4, 1]])})
    assert found.tolist() == [[[0, 5, 39, 29]], [[7, 0, 28, 89]]]
    one = run_op("box_clip", {"Input": x[:, 0], "ImInfo": np.array([[60.0, 80, 2]])})
    assert one.tolist() == [[0, 5, 39, 29], [7, 0, 28, 29]]
    with pytest.raises(PeError, match=r"2 images, and nothing says whose the boxes \[3, 4\] are"):
        run_op("box_clip", {"Input": np.zeros((3, 4)), "ImInfo": np.ones((2, 3))})
