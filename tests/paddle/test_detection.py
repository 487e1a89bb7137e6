"""Layers of detectors by the original's signatures: what is made of the core's ops, and which ops those are."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from pe_cli.core.errors import PeError
from tests.needs import torch

L = fluid.layers

def run(*fetches, **feed):
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    return executor.run(feed=feed, fetch_list=list(fetches))


def array(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


@pytest.mark.parametrize("padding", [0, 1, [1, 0, 2, 1]])
def test_rows_of_windows_are_those_of_torch(padding):
    a = array(2, 3, 6, 7)
    x = fluid.data("x", [-1, 3, 6, 7])
    rows = L.im2sequence(x, [3, 2], [2, 1], padding)
    (found,) = fluid.Executor(fluid.CPUPlace()).run(feed={"x": a}, fetch_list=[rows], return_numpy=False)
    up, left, down, right = [padding] * 4 if isinstance(padding, int) else padding
    padded = torch.nn.functional.pad(torch.tensor(a), (left, right, up, down))
    expected = torch.nn.functional.unfold(padded, (3, 2), stride=(2, 1)).transpose(1, 2).reshape(-1, 18)
    np.testing.assert_array_equal(np.array(found), expected.numpy())


def test_a_head_of_ssd_has_a_row_for_every_box():
    image = fluid.data("image", [-1, 3, 60, 60])
    maps = [fluid.data(f"map{i}", [-1, 4, n, n]) for i, n in enumerate((6, 3, 1))]
    ratios = [[2.0], [2.0, 3.0], [2.0]]
    found = L.multi_box_head(maps, image, 60, 5, ratios, 20, 90, flip=True, clip=True, offset=0.5)
    assert [v.name for v in found] == ["reshape2_0.tmp_0", "reshape2_1.tmp_0", "concat_0.tmp_0", "concat_1.tmp_0"]  # of 1.8.5
    # a box of ratio 1, one between two sizes, and two of each other ratio
    boxes = 36 * 4 + 9 * 6 + 4
    assert [tuple(v.shape) for v in found] == [(-1, boxes, 4), (-1, boxes, 5), (boxes, 4), (boxes, 4)]
    feed = {"image": array(2, 3, 60, 60), **{f"map{i}": array(2, 4, n, n, seed=i) for i, n in enumerate((6, 3, 1))}}
    places, scores, priors, variances = run(*found, **feed)
    assert places.shape == (2, boxes, 4)
    assert scores.shape == (2, boxes, 5)
    np.testing.assert_allclose(priors[-4:, 2:] + priors[-4:, :2], 1, rtol=1e-6)  # the last map has one pixel, in the middle
    # percents 20, 90 of 60 over two maps: sizes 12 and 54; the first map has 6
    assert priors[0].tolist() == pytest.approx([2 / 60, 2 / 60, 8 / 60, 8 / 60])
    assert (variances == np.float32([0.1, 0.1, 0.2, 0.2])).all()
    assert found[2].stop_gradient
    assert sum(op.type == "conv2d" for op in fluid.default_main_program().global_block().ops) == 6


def test_a_head_needs_a_size_for_each_map():
    x = fluid.data("x", [-1, 3, 8, 8])
    with pytest.raises(ValueError, match="or three maps and min_ratio"):
        L.multi_box_head([x], x, 8, 2, [[1.0]], 20, 90)
    with pytest.raises(ValueError, match="min_sizes has 2 entries for 1 maps"):
        L.multi_box_head([x], x, 8, 2, [[1.0]], min_sizes=[1, 2], max_sizes=[3])


def test_variances_of_a_coder_are_a_variable_or_numbers():
    prior, target = fluid.data("prior", [3, 4]), fluid.data("target", [2, 4])
    low = np.abs(array(5, 2))
    boxes = np.concatenate([low, low + 1 + np.abs(array(5, 2, seed=1))], 1)
    numbers = L.box_coder(prior, [0.1, 0.1, 0.2, 0.2], target)
    table = L.assign(np.tile(np.float32([0.1, 0.1, 0.2, 0.2]), (3, 1)))
    a, b, plain = run(numbers, L.box_coder(prior, table, target), L.box_coder(prior, None, target), prior=boxes[:3], target=boxes[3:])
    np.testing.assert_allclose(a, b, rtol=1e-6)
    np.testing.assert_allclose(a, plain / np.float32([0.1, 0.1, 0.2, 0.2]), rtol=1e-5)


def test_an_order_of_ones_own_variable():
    out = L.create_tensor("int64")
    L.randperm(4, dtype="int32", seed=1)
    L.randperm(6, out=out)
    (found,) = run(out)
    assert sorted(found.tolist()) == list(range(6))


def test_arguments_that_only_say_how_are_taken():
    x = fluid.data("x", [-1, 4, 6, 6])
    offset, mask = fluid.data("offset", [-1, 18, 6, 6]), fluid.data("mask", [-1, 9, 6, 6])
    out = L.deformable_conv(x, offset, mask, 2, 3, 1, 1, 1, 1, 1, 64)
    whole = L.conv2d(x, 2, 3, padding=1, param_attr=fluid.ParamAttr(name="deformable_conv_0.w_0"), bias_attr=False)
    feed = {"x": array(2, 4, 6, 6), "offset": np.zeros((2, 18, 6, 6), "float32"), "mask": np.ones((2, 9, 6, 6), "float32")}
    np.testing.assert_allclose(*run(out, whole, **feed), rtol=1e-4, atol=1e-5)
    with pytest.raises(PeError, match="require_index needs pool_type max"):
        L.adaptive_pool2d(x, 2, "avg", True)


def test_sizes_of_images_by_the_original_s_names():
    x = fluid.data("x", [-1, 2, 4, 6])
    a = array(2, 2, 4, 6)
    linear, nearest = L.resize_bilinear(x, [8, 3]), L.resize_nearest(x, scale=0.5, align_corners=False)
    same = L.image_resize(x, out_shape=[8, 3]), L.image_resize(x, scale=0.5, resample="NEAREST", align_corners=False)
    short = L.image_resize_short(x, 8)
    found = run(linear, same[0], nearest, same[1], short, x=a)
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[2], a[:, :, ::2, ::2])
    assert np.array_equal(found[2], found[3])
    assert found[4].shape == (2, 2, 8, 12)
    with pytest.raises(ValueError, match="resample is 'SINC'"):
        L.image_resize(x, [8, 3], resample="SINC")
    with pytest.raises(ValueError, match="NCHW or NHWC"):
        L.image_resize(x, [8, 3], data_format="CHWN")
    last = L.transpose(L.image_resize(L.transpose(x, [0, 2, 3, 1]), [8, 3], data_format="NHWC"), [0, 3, 1, 2])
    (found,) = run(last, x=a)
    assert np.array_equal(found, run(L.image_resize(x, [8, 3]), x=a)[0])


def test_updates_in_zeros():
    index, updates = fluid.data("index", [-1, 1], "int64"), fluid.data("updates", [-1, 3])
    (found,) = run(L.scatter_nd(index, updates, [4, 3]), index=np.array([[1], [1]]), updates=np.ones((2, 3), "float32"))
    assert found[:, 0].tolist() == [0, 2, 0, 0]
