"""What layers that are made of several ops refuse, with the real values, and edges that their table does not have."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from tests.layers.support import layers as L
from tests.layers.support import programs, run


def image(*sizes):
    return L.data("image", list(sizes) or [6, 4, 4])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        pytest.param(lambda: L.group_norm(image(), 4), "4 groups of the 6 channels", id="groups that do not divide"),
        pytest.param(lambda: L.group_norm(image(), 2, data_layout="CHW"), "data_layout is 'CHW'", id="a layout that is not there"),
        pytest.param(lambda: L.inplace_abn(image(), "relu", act_alpha=0.5), "act_alpha is 0.5", id="an alpha that cannot act"),
        pytest.param(lambda: L.lrn(image(), 0), "n is 0", id="no channels to sum"),
        pytest.param(lambda: L.prelu(image(), "pixel"), "mode is 'pixel'", id="a mode that is not there"),
        pytest.param(lambda: L.maxout(image(), 4), "4 do not divide the 6 channels", id="maxout of a rest"),
        pytest.param(lambda: L.maxout(image(), 2, axis=4), "no axis 4", id="an axis that is not there"),
        pytest.param(lambda: L.affine_channel(image(), L.ones([4], "float32"), L.ones([6], "float32")), "scale is", id="a scale too short"),
        pytest.param(lambda: L.pixel_shuffle(image(), 2), "square does not divide 6", id="channels that are no square's"),
        pytest.param(lambda: L.space_to_depth(image(), 3), "3 x 3 pixels do not fill", id="blocks that do not fill"),
        pytest.param(lambda: L.shuffle_channel(image(), 4), "4 groups of 6", id="a shuffle of a rest"),
        pytest.param(lambda: L.temporal_shift(image(), 2, 0.6), "shift_ratio 0.6", id="a share above one half"),
        pytest.param(lambda: L.fsp_matrix(image(), L.data("other", [2, 4, 5])), "images of one size", id="images of two sizes"),
        pytest.param(lambda: L.add_position_encoding(L.data("x", [3, 5]), 1.0, 1.0), "even width", id="an odd width"),
        pytest.param(lambda: L.piecewise_linear_encoding(L.data("x", [2]), [[0, 1]]), "1 lists of edges", id="a column without a list"),
        pytest.param(lambda: L.piecewise_linear_encoding(L.data("x", [1]), [[0, 1, 1]]), "column 0 do not increase", id="equal edges"),
        pytest.param(lambda: L.piecewise_linear_encoding(L.data("x", [1]), [[0, np.inf]]), "are not finite", id="an infinite edge"),
        pytest.param(lambda: L.piecewise_linear_encoding(L.data("x", [1]), [[0, 1e-320]]), "are too near", id="a bin of no width"),
        pytest.param(lambda: L.piecewise_linear_encoding(L.data("x", [2]), [[0], []]), "there is no bin", id="no bins"),
        pytest.param(lambda: L.piecewise_linear_encoding(image(), [[0, 1]]), "[batch, columns]", id="more axes"),
        pytest.param(lambda: L.image_resize(image(), resample="CUBIC", scale=2.0), "resample is 'CUBIC'", id="another way to resample"),
        pytest.param(lambda: L.image_resize(image()), "out_shape or scale", id="no size"),
        pytest.param(lambda: L.image_resize_short(image(), 0), "at least 1, got 0", id="no length"),
        pytest.param(lambda: L.bpr_loss(L.data("x", [1]), L.data("label", [1], dtype="int64")), "two classes", id="one class"),
        pytest.param(lambda: L.rank_loss(L.data("label", [2]), L.data("a", [1]), L.data("b", [1])), "one type", id="a label too wide"),
        pytest.param(lambda: L.npair_loss(L.data("x", [4]), L.data("y", [3]), L.data("label", [1])), "one type", id="widths that differ"),
        pytest.param(lambda: L.strided_slice(image(), [1], [0], [6], [0]), "strides not 0", id="a stride of 0"),
        pytest.param(lambda: L.crop_tensor(image(), [-1, 6, 4, 3], [0, 0, 0, 2]), "not inside", id="a box that sticks out"),
        pytest.param(lambda: L.crop(image()), "needs a shape", id="no box"),
        pytest.param(lambda: L.pad_constant_like(L.data("x", [2]), L.data("y", [3])), "does not fit", id="what is padded is larger"),
        pytest.param(lambda: L.expand_as(L.data("x", [2]), L.data("y", [3])), "cannot repeat", id="sizes that are no multiples"),
        pytest.param(lambda: L.eye(0), "at least 1, got", id="no rows"),
        pytest.param(lambda: L.linspace(0.0, 1.0, 0), "at least 1, got 0", id="no numbers"),
        pytest.param(lambda: L.range(0, 3, 0, "int64"), "step must not be 0", id="no step"),
        pytest.param(lambda: L.diag(image()), "one axis of known size", id="a diagonal with axes"),
        pytest.param(lambda: L.multiplex([image()], L.data("i", [1], dtype="int64")), "two inputs or more", id="one input"),
        pytest.param(lambda: L.shard_index(L.data("i", [1], dtype="int64"), 4, 2, 2), "shard_id 2", id="a shard that is not there"),
        pytest.param(lambda: L.clip_by_norm(L.data("x", [2]), 0.0), "must be > 0, got 0", id="no length allowed"),
    ],
)
def test_a_layer_refuses(call, message):
    with programs(), pytest.raises(PeError, match=message):
        call()


@pytest.mark.parametrize("batch", [0, 1, 5])
def test_images_of_any_batch_are_normalised_and_shuffled(batch, rng):
    with programs() as (main, startup):
        x = image(8, 3, 3)
        outs = [L.group_norm(x, 4), L.instance_norm(x), L.pixel_shuffle(x, 2), L.maxout(x, 2), L.temporal_shift(x, 1), L.lrn(x)]
        found = run(main, startup, {"image": rng.standard_normal((batch, 8, 3, 3)).astype("float32")}, outs)
    sizes = [(8, 3, 3), (8, 3, 3), (2, 6, 6), (4, 3, 3), (8, 3, 3), (8, 3, 3)]
    assert [a.shape for a in found] == [(batch, *s) for s in sizes]


@pytest.mark.parametrize("dtype", ["bool", "int32", "int64", "float32", "float64"])
@pytest.mark.parametrize(
    ("start", "end", "stride"),
    [(0, 7, 2), (6, 0, -1), (-1, -8, -3), (5, 100, 3), (1, 2, 4), (6, -100, -6)],
)
def test_strided_slice_takes_what_python_takes(start, end, stride, dtype, rng):
    x = rng.integers(0, 9, (2, 7, 3)).astype(dtype)
    with programs() as (main, startup):
        out = L.strided_slice(L.data("x", [7, 3], dtype=dtype), [1], [start], [end], [stride])
        (found,) = run(main, startup, {"x": x}, [out])
    expected = x[:, start:end:stride]
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_a_row_that_names_no_input_is_an_error():
    with programs() as (main, startup):
        out = L.multiplex([L.data("x", [2]), L.data("y", [2])], L.data("which", [1], dtype="int64"))
        feed = {"x": np.zeros((2, 2), "float32"), "y": np.ones((2, 2), "float32"), "which": np.array([[0], [2]])}
        with pytest.raises(PeError):
            run(main, startup, feed, [out])
