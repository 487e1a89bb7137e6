"""Layers of fluid.contrib on trees, pairs of sequences and images of sizes of their own: numbers that PaddlePaddle 1.8.5 gave."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from pe_cli.paddle.errors import FluidValueError

L, C = fluid.layers, fluid.contrib.layers

def given(name, values):
    return fluid.ParamAttr(name=name, initializer=fluid.initializer.NumpyArrayInitializer(np.array(values, "float32")))


def rows(name, width):
    v = fluid.data(name, [None, width], "float32", lod_level=1)
    v.stop_gradient = False
    return v


def leveled(values, *lengths):
    return fluid.create_lod_tensor(np.array(values, "float32"), [list(lengths)], fluid.CPUPlace())


def run(out, learned, feed, **options):
    """Return out, and the gradients of the sum of its squares."""
    wanted = [v if isinstance(v, fluid.Variable) else out.block.program.global_block().var(v) for v in learned]
    fetches = [out, *fluid.gradients(L.reduce_sum(out * out), wanted)]
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    return exe.run(feed=feed, fetch_list=fetches, **options)


def check(found, *right, tolerance=1e-4):
    for got, numbers in zip(found, right, strict=True):
        np.testing.assert_allclose(np.ravel(got), np.ravel(numbers), rtol=tolerance, atol=1e-3)


def test_trees():
    vectors = [
        [[1, 2], [-3, 0], [0, 0], [-2, 0], [2, -1], [1, 3]],
        [[-3, -3], [1, -1], [-2, 3], [3, -3], [-2, 2], [-2, 2]],
    ]
    edges = np.array([[[1, 2], [1, 3], [1, 4], [3, 5], [5, 6]], [[1, 2], [2, 3], [3, 4], [3, 5], [5, 6]]], "int32")
    w = [
        [[[-2, -1], [2, 1]], [[-2, 1], [-2, 0]], [[1, -2], [-1, 1]]],
        [[[1, 1], [-2, -1]], [[-1, -1], [-2, 0]], [[2, 1], [1, 0]]],
    ]
    x = fluid.data("x", [2, 6, 2], "float32")
    x.stop_gradient = False
    out = C.tree_conv(x, fluid.data("e", [2, 5, 2], "int32"), 2, 2, 3, act=None, param_attr=given("w", w), bias_attr=False)
    a = np.array(vectors, "float32")
    got, dx, dw = run(out, [x, "w"], {"x": a, "e": edges})
    right = [
        [[2.8889, 4.5556, 6, -1.3333], [-3, 6, 3, -3], [-1.2222, -2.8889, -5.7778, 1.5], [-2, 4, 2, -2], [3.4444, -4.5556, -4.5556, 2.3333],
         [7, 1, 2, 1]],
        [[-6.3333, 3, -3.2222, -4.3333], [5.2222, 5.8889, -6.8889, -3.5], [8.3333, 9, -0.3333, -4.6667], [-3, -9, -6, 3],
         [4.8889, 9.5556, 5.3333, -4], [2, 6, 4, -2]],
    ]  # fmt: skip
    slopes = [
        -37.037, -58.3704, 14.2963, 33.8889, 3.4568, -21.8765, -36.2963, 11.6296, -9.2593, -294.8148, -152.4445, 147.2222, 33.5556, 44.5556,
        -46.1481, -29.4444, -9.3333, -3.2963, -16.2716, -3.4074, 207.037, 197.7037, 112.5926, -55,
    ]  # fmt: skip
    check((got, dw), right, slopes)
    # out is linear in x, and so x times the slope of the sum of squares is twice that sum; the original's slope is another
    np.testing.assert_allclose((a * dx).sum(), 2 * (got.astype("float64") ** 2).sum(), rtol=1e-5)


def test_edges_that_make_no_tree():
    x, e = fluid.data("x", [1, 3, 1], "float32"), fluid.data("e", [1, 2, 2], "float32")
    out = C.tree_conv(x, e, 1)  # the original's example declares edges as float32, too
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    for edges, said in (([[1, 2], [3, 2]], "node 2 of sample 0 has two parents"), ([[1, 2], [1, 5]], r"value 5 .* out of range \[0, 4\)")):
        with pytest.raises(Exception, match=said):
            exe.run(feed={"x": np.ones((1, 3, 1), "float32"), "e": np.array([edges], "float32")}, fetch_list=[out])


def test_rows_of_pairs_of_sequences():
    a, b = [[2, -2], [1, 1], [1, -1], [1, 0], [2, -2]], [[-2, 2], [0, -1], [-2, -1], [-1, -2]]
    w = [[[-1, 2], [1, -2], [1, -2]], [[0, 1], [-2, -1], [1, 1]]]
    x, y = rows("x", 2), rows("y", 2)
    out, turned = C.match_matrix_tensor(x, y, 3, param_attr=given("w", w))
    found = run(out, [x, y, "w"], {"x": leveled(a, 2, 3), "y": leveled(b, 3, 1)}, return_numpy=False)
    assert found[0].lod() == [[0, 18, 27]]
    assert list(turned.shape) == [-1, 1]
    check(
        map(np.asarray, found),
        [8, -2, 2, 8, -3, -1, -16, 2, -10, -4, 3, 5, -12, 6, 6, -6, 1, -3, -1, -3, -2, -1, 3, -2, 6, 3, 12],
        [472, -176, 244, 96, 36, -40, 54, 18, 72, -80],
        [-256, 324, 36, -126, -148, -54, -2, -216],
        [-92, 136, 208, -120, 18, -296, 42, -44, -222, 44, 48, 244],
    )  # fmt: skip


def test_means_of_the_largest():
    numbers = [4, 8, 15, 12, 11, 9, -3, -1, -4, -5, 7, 16, 6, 3, 14, -7, 2, -6, 1, 13, 0, -8, -9, -2, 5, 10]
    x = rows("x", 1)
    out = C.sequence_topk_avg_pooling(x, rows("r", 1), rows("c", 1), [1, 3, 4], 2)
    feed = {"x": leveled(np.array(numbers)[:, None], 12, 14), "r": leveled(np.zeros((3, 1)), 2, 1), "c": leveled(np.zeros((10, 1)), 3, 7)}
    found = run(out, [x], feed, return_numpy=False)
    assert found[0].lod() == [[0, 2, 3]]
    check(
        map(np.asarray, found),
        [15, 9, 6.75, -1, -2.66667, -2, 12, 10.66667, 8, 16, 6, 4.5, 14, 7.66667, 6.25, 13, 9.33333, 7],
        [9.375, 9.375, 39.375, 35.11111, 11.11111, 11.11111, -2.77778, -4.77778, -2.77778, 6.25, 6.25, 38.25, 8.23611, 8.23611, 36.23611, 0,
         3.125, 0, 0, 35.72222, 3.5, 0, 0, 0, 9.72222, 9.72222],
    )  # fmt: skip
    with pytest.raises(FluidValueError, match="topks that grow"):
        C.sequence_topk_avg_pooling(x, x, x, [3, 1], 2)
    with pytest.raises(Exception, match="sequence 0 has 12 numbers for an image of 2 channels, 1 rows and 3 columns"):
        run(out, [x], {**feed, "r": leveled(np.zeros((3, 1)), 1, 2)}, return_numpy=False)


IMAGES = [0, 0, -2, -1, -1, -1, -1, 1, 1, 0, 1, -2, 1, 2, -1, 0, 2, 1, 2, 2, 2, 1, 2, 2, 2, -2, 2, 1, 0, -2, -1, -1, 1, -2]
FILTERS = [[-2, -1, 0, 2, 0, -2, 1, 0, 0, -2, -1, -2], [0, 0, 1, 0, 1, 0, -1, 0, 1, 1, 1, 0]]
OF_ONE_STEP = (
    [[0, 24, 34]],
    [-4, -6, -5, -10, -12, -7, -9, 0, -1, 3, 2, -5, 1, 4, 1, -2, 2, 4, 1, 7, 2, 2, 2, 3, 8, -2, 6, 0, 4, -2, -1, -4, 2, 0],
    [44, 28, -6, -40, -26, -14, 10, 50, 56, 46, 64, -20, 4, 14, 4, 36, 98, 74, 72, 54, 82, 44, 52, 26, 30, -16, 28, 0, 16, -38, -2, -28, 4,
     -16],
    [0, 18, 44, 182, 28, -32, -54, -44, -58, -186, -120, -186, -42, -24, 14, -20, 16, -38, 22, 50, 94, 118, 56, 56],
)  # fmt: skip
OF_LARGER_STEPS = (
    [[0, 8, 12]],
    [-4, -10, -1, -5, 1, -2, 2, 3, 8, 0, -2, 2],
    [-16, 0, -4, -40, 18, 0, 16, 50, -4, 0, 6, -20, 18, 0, -4, 36, 16, 0, 0, 40, 8, 0, 6, 26, 32, 0, 4, 0, 0, -36, 0, 4, 4, 0],
    [10, -8, 30, 70, 20, -12, -20, -24, 0, -64, -40, -56, -6, 2, 22, -8, 4, -6, 12, 20, 12, 34, -8, -4],
)  # fmt: skip


@pytest.mark.parametrize(
    ("stride", "right"), [pytest.param(1, OF_ONE_STEP, id="one place"), pytest.param([2, 3], OF_LARGER_STEPS, id="rows and columns")]
)
def test_convolutions_of_images_of_sizes_of_their_own(stride, right):
    x = rows("x", 1)
    out = C.var_conv_2d(x, rows("r", 1), rows("c", 1), 2, 2, [3, 2], stride, given("w", FILTERS))
    feed = {"x": leveled(np.array(IMAGES)[:, None], 24, 10), "r": leveled(np.zeros((4, 1)), 3, 1), "c": leveled(np.zeros((9, 1)), 4, 5)}
    found = run(out, [x, "w"], feed, return_numpy=False)
    assert found[0].lod() == right[0]
    check(map(np.asarray, found), *right[1:])


WAYS, LAYERS = [[1, 3, 7], [1, 3, 8], [1, 4, 9], [1, 4, 10], [2, 5, 11], [2, 6, 0]], [[1, 2], [3, 4, 5, 6], [7, 8, 9, 10, 11]]


def test_nodes_on_the_way_and_others_of_their_layers():
    drawn, leaves = [1, 2, 4], [0, 5, 3] * 40
    start = fluid.initializer.NumpyArrayInitializer
    attrs = [fluid.ParamAttr(initializer=start(np.array(v, "int32"))) for v in (WAYS, [[i + 1] for i in range(11)])]
    made = C.tdm_sampler(fluid.data("x", [None, 1], "int32"), drawn, [2, 4, 5], 6, *attrs, dtype=np.int64)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    x = np.array(leaves, "int32")[:, None]
    found, again = ([np.array(v) for v in exe.run(feed={"x": x}, fetch_list=[v for part in made for v in part])] for _ in range(2))
    counts = np.zeros(5, int)
    for i, (layer, n) in enumerate(zip(LAYERS, drawn, strict=True)):
        nodes, labels, mask = found[i], found[3 + i], found[6 + i]
        assert nodes.dtype == np.int64
        assert nodes.shape == (120, n + 1, 1)
        for leaf, row, label, real in zip(leaves, nodes[..., 0].tolist(), labels[..., 0].tolist(), mask[..., 0].tolist(), strict=True):
            way = WAYS[leaf][i]
            if way == 0:
                assert row == label == real == [0] * (n + 1)
                continue
            assert row[0] == way
            assert set(row) <= set(layer)
            assert len(set(row)) == n + 1
            assert label == [1] + [0] * n
            assert real == [1] * (n + 1)
            if i == 1 and leaf != 5:
                counts[[layer.index(v) for v in row[1:]]] += 1
    assert any((a != b).any() for a, b in zip(found, again, strict=True)), "every step draws anew"
    # 80 rows draw 2 of 3 nodes beside their own, 3 or 4: 2/3 of 40 of each of these, 2/3 of 80 of the others; four standard deviations
    expected = np.array([40, 40, 80, 80]) * 2 / 3
    assert (np.abs(counts[:4] - expected) < 4 * np.sqrt(expected / 3)).all()


def test_more_nodes_than_a_layer_has():
    x = fluid.data("x", [None, 1], "int64")
    with pytest.raises(FluidValueError, match="4 nodes cannot be drawn of layer 1, which has 4"):
        C.tdm_sampler(x, [1, 4], [2, 4], 4)
    with pytest.raises(FluidValueError, match="tree_dtype is float32"):
        C.tdm_sampler(x, [1, 1], [2, 4], 4, tree_dtype="float32")


def test_ranks_on_a_page(rng):
    """Out[r] = sum over k of X[index of k] W[rank of r, rank of k], by NumPy."""
    ranks = np.array([[2, 1, 1, 2, 0], [1, 1, 1, 2, 0], [1, 1, 2, -1, -1], [-1, -1, -1, -1, -1]], "int32")
    a, w = rng.standard_normal((4, 3)).astype("float32"), rng.standard_normal((2, 2, 3, 5)).astype("float32")
    x = fluid.data("x", [None, 3], "float32")
    out = C.rank_attention(x, fluid.data("r", [None, 5], "int32"), [12, 5], given("w", w.reshape(12, 5)), max_rank=2)
    got, dw = run(out, ["w"], {"x": a, "r": ranks})
    right, slopes = np.zeros((4, 5)), np.zeros(w.shape)
    pairs = [(r, ranks[r, 0], ranks[r, k], ranks[r, k + 1]) for r in range(4) for k in (1, 3)]
    seen = [(r, own - 1, other - 1, at) for r, own, other, at in pairs if own > 0 and other > 0]
    for r, own, other, at in seen:
        right[r] += a[at] @ w[own, other]
    for r, own, other, at in seen:
        slopes[own, other] += 2 * np.outer(a[at], right[r])
    check((got, dw), right, slopes)
    with pytest.raises(FluidValueError, match="rank_param_shape"):
        C.rank_attention(x, x, [18, 5], max_rank=2)


def test_a_layer_for_each_slot(rng):
    a, w, b = (rng.standard_normal(shape).astype("float32") for shape in ((2, 3, 4), (2, 4, 5), (2, 5)))
    x = fluid.data("x", [2, None, 4], "float32")
    out = C.batch_fc(x, [2, 4, 5], given("w", w), [2, 5], given("b", b), act="relu")
    got, db = run(out, ["b"], {"x": a})
    right = np.maximum(a @ w + b[:, None], 0)
    check((got, db), right, 2 * right.sum(1))
    with pytest.raises(FluidValueError, match="do not fit"):
        C.batch_fc(x, [3, 4, 5], None, [3, 5], None)
