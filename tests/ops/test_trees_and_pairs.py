"""Ops over trees, pairs of sequences, images of sizes of their own and pairs of images, against NumPy from their definitions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.ops.define.lod import offsets_of, owners
from pe_cli.ops.sequence.pair_products import image_offsets
from pe_cli.ops.sequence.var_conv import window_offsets
from tests.ops.support import run_op

ROWS, COLUMNS = [3, 0, 1, 5], [4, 2, 0, 6]
HIGH, WIDE = offsets_of(ROWS), offsets_of(COLUMNS)


def parts(x, offsets):
    return [x[a:b] for a, b in itertools.pairwise(offsets)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_sums_below_the_nodes_of_a_tree(depth, dtype, rng):
    edges = [[1, 2], [1, 3], [2, 4], [2, 5], [2, 6], [6, 7], [7, 8], [0, 0]]
    x = rng.standard_normal((1, 9, 2)).astype(dtype)
    children = {u: [b for a, b in edges[:-1] if a == u] for u in range(1, 10)}
    right = np.zeros((9, 2, 3))

    def add(to, v, d, along):
        top = (depth - d) / depth
        left = (1 - top) * along
        right[to - 1] += x[0, v - 1, :, None] * [left, (1 - top) * (1 - left), top]
        for i, child in enumerate(children[v] if d + 1 < depth else []):
            add(to, child, d + 1, i / (len(children[v]) - 1) if len(children[v]) > 1 else 0.5)

    for u in range(1, 9):  # seven edges, eight nodes
        add(u, u, 0, 0.5)
    got = run_op("tree_patches", {"NodesVector": x, "EdgeSet": np.array([edges], "int32")}, {"max_depth": depth})
    np.testing.assert_allclose(got[0], right, rtol=1e-5, atol=1e-6)


def test_a_node_below_itself():
    edges = np.array([[[1, 2], [2, 3], [3, 1]]])
    with pytest.raises(PeError, match="is below itself"):
        run_op("tree_patches", {"NodesVector": np.zeros((1, 4, 1)), "EdgeSet": edges}, {"max_depth": 3})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_of_pairs(dtype, rng):
    x, y = rng.standard_normal((sum(ROWS), 2, 5)).astype(dtype), rng.standard_normal((sum(COLUMNS), 5)).astype(dtype)
    offsets = image_offsets(HIGH, WIDE, channels=2)
    places = {"XOffsets": HIGH, "YOffsets": WIDE, "Offsets": offsets, "XOwner": owners(HIGH), "YOwner": owners(WIDE)}
    got = run_op("pair_products", {"X": x, "Y": y, **places, "Owner": owners(offsets)})
    right = [np.einsum("rtk,ck->trc", a, b).ravel() for a, b in zip(parts(x, HIGH), parts(y, WIDE), strict=True)]
    np.testing.assert_allclose(got[:, 0], np.concatenate(right), rtol=1e-5, atol=1e-5)


def test_the_largest_numbers_come_once_and_in_order():
    offsets = image_offsets(HIGH, WIDE, channels=1)
    x = np.tile([2.0, 1.0, 2.0, 1.0], int(offsets[-1]) // 4 + 1)[: offsets[-1], None]
    x[1] = np.nan
    out = run_op(
        "sequence_topk_avg_pooling",
        {"X": x, "Rows": HIGH, "Columns": WIDE, "Offsets": offsets, "Owner": owners(HIGH)}, {"topks": [1, 2, 5]},
    )  # fmt: skip
    assert out["Pos"][:3].tolist() == [[1, 0, 2, 3, -1], [0, 2, 1, 3, -1], [0, 2, 1, 3, -1]]
    assert np.isnan(out["Out"][0]).all()
    assert out["Out"][1].tolist() == [2, 2, 6 / 5]
    assert out["Out"][3].tolist() == [0, 0, 0], "a row without columns"
    assert out["Pos"][3].tolist() == [-1] * 5


@pytest.mark.parametrize(("size", "strides"), [([3, 3], (1, 1)), ([2, 4], (2, 3))])
def test_windows_times_filters_are_a_convolution(size, strides, rng):
    offsets, begins = image_offsets(HIGH, WIDE, channels=2), window_offsets(HIGH, WIDE, strides=strides)
    x, w = rng.standard_normal((int(offsets[-1]), 1)), rng.standard_normal((3, 2, *size))
    places = {
        "Rows": HIGH, "Columns": WIDE, "Offsets": offsets, "Begins": begins, "Owner": owners(begins), "Image": owners(offsets),
    }  # fmt: skip
    windows = run_op("varied_windows", {"X": x, **places}, {"channels": 2, "size": size, "strides": list(strides)})
    out = run_op("varied_channels", {"X": windows @ w.reshape(3, -1).T, "Offsets": begins, "Owner": owners(begins)})
    right = []
    for part, h, c in zip(parts(x, offsets), ROWS, COLUMNS, strict=True):
        if h * c:
            around = [(0, 0), *((n // 2, n) for n in size)]
            places = np.lib.stride_tricks.sliding_window_view(np.pad(part.reshape(2, h, c), around), size, (1, 2))
            used = places[:, : h : strides[0], : c : strides[1]]
            right.append(np.einsum("thwab,otab->ohw", used, w).ravel())
    np.testing.assert_allclose(out[:, 0], np.concatenate(right), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("pad", "size", "most", "stride", "step"), [(2, 1, 2, 1, 1), (3, 3, 3, 2, 2), (0, 3, 1, 1, 2)])
def test_products_of_shifted_windows(pad, size, most, stride, step, rng):
    x, y = rng.standard_normal((2, 2, 3, 7, 6))
    attrs = {"pad_size": pad, "kernel_size": size, "max_displacement": most, "stride1": stride, "stride2": step}
    got = run_op("correlation", {"Input1": x, "Input2": y}, attrs)
    a, b = (np.pad(v, [(0, 0), (0, 0), (pad, pad), (pad, pad)]) for v in (x, y))
    shifts = [k * step for k in range(-(most // step), most // step + 1)]
    tops, lefts = (range(most, a.shape[axis] - most - size + 1, stride) for axis in (2, 3))
    assert got.shape == (2, len(shifts) ** 2, len(tops), len(lefts))
    for (i, down), (j, along) in itertools.product(enumerate(shifts), repeat=2):
        for (h, top), (w, left) in itertools.product(enumerate(tops), enumerate(lefts)):
            there = b[:, :, top + down : top + down + size, left + along : left + along + size]
            right = (a[:, :, top : top + size, left : left + size] * there).mean((1, 2, 3))
            np.testing.assert_allclose(got[:, i * len(shifts) + j, h, w], right, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("has_offset", [False, True])
def test_maps_from_a_grid(has_offset, rng):
    x, guide = rng.standard_normal((2, 2, 4, 5)), rng.uniform(-0.2, 1.2, (2, 4, 5))
    deep, high, wide = 3, 2, 4
    grid = rng.standard_normal((2, 3 * (2 + has_offset), deep, high, wide))
    got = run_op("bilateral_slice", {"X": x, "Guide": guide, "Grid": grid}, {"has_offset": has_offset})

    def shares(place, count):
        """Return how much each cell counts, with cells outside of the grid added to those at its edge."""
        out = np.zeros(count)
        for cell in range(-3, count + 3):
            out[min(max(cell, 0), count - 1)] += max(0, 1 - abs(cell + 0.5 - place))
        return out

    maps = grid.reshape(2, 3, -1, deep, high, wide)
    for s, p, q in np.ndindex(2, 4, 5):
        weights = [shares(guide[s, p, q] * deep, deep), shares((p + 0.5) * high / 4, high), shares((q + 0.5) * wide / 5, wide)]
        own = np.einsum("octyx,t,y,x->oc", maps[s], *weights)
        np.testing.assert_allclose(got[s, :, p, q], own @ [*x[s, :, p, q], *[1.0] * has_offset], rtol=1e-3, atol=1e-3)


def test_sizes_that_do_not_fit():
    image = np.zeros((1, 1, 3, 3))
    with pytest.raises(PeError, match=r"no place of .* has all shifts inside"):
        run_op("correlation", {"Input1": image, "Input2": image}, {"max_displacement": 2})
    with pytest.raises(PeError, match=r"Grid .* do not fit X"):
        run_op("bilateral_slice", {"X": image, "Guide": image[0], "Grid": np.zeros((1, 3, 1, 1, 1))}, {"has_offset": True})
