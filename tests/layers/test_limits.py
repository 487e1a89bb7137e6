"""The least and the greatest that a layer takes for a number: the limit itself builds a layer, the next number beyond it is refused."""

from __future__ import annotations

import pytest

from pe_cli.core.errors import PeError
from tests.layers.support import layers as L
from tests.layers.support import programs


def image(channels=6):
    return L.data("image", [channels, 4, 4])


CALLS = {
    "lrn: n": (lambda n: L.lrn(image(), n), 1, 0),
    "group_norm: groups": (lambda n: L.group_norm(image(), n), 1, 0),
    "maxout: groups": (lambda n: L.maxout(image(), n), 1, 0),
    "shuffle_channel: group": (lambda n: L.shuffle_channel(image(), n), 1, 0),
    "pixel_shuffle: upscale_factor": (lambda n: L.pixel_shuffle(image(), n), 1, 0),
    "space_to_depth: blocksize": (lambda n: L.space_to_depth(image(), n), 1, 0),
    "temporal_shift: seg_num": (lambda n: L.temporal_shift(image(), n, 0.25), 1, 0),
    "temporal_shift: least shift_ratio": (lambda n: L.temporal_shift(image(), 2, n), 0.0, -1e-6),
    "temporal_shift: greatest shift_ratio": (lambda n: L.temporal_shift(image(), 2, n), 0.5, 0.5 + 1e-6),
    "image_resize_short: out_short_len": (lambda n: L.image_resize_short(image(), n), 1, 0),
    "image_resize: scale": (lambda n: L.image_resize(image(), scale=n), 0.25, 0.0),
    "conv2d: num_filters": (lambda n: L.conv2d(image(), n, 3), 1, 0),
    "conv2d: groups": (lambda n: L.conv2d(image(), 6, 3, groups=n), 1, -1),
    "conv2d_transpose: num_filters": (lambda n: L.conv2d_transpose(image(), n, filter_size=3), 1, 0),
    "fc: size": (lambda n: L.fc(image(), n), 1, 0),
    "bilinear_tensor_product: size": (lambda n: L.bilinear_tensor_product(L.data("x", [2]), L.data("y", [3]), n), 1, 0),
    "label_smooth: least epsilon": (lambda n: L.label_smooth(L.data("x", [3]), epsilon=n), 0.0, -1e-6),
    "label_smooth: greatest epsilon": (lambda n: L.label_smooth(L.data("x", [3]), epsilon=n), 1.0, 1.0 + 1e-6),
    "eye: rows": (lambda n: L.eye(n), 1, 0),
    "linspace: num": (lambda n: L.linspace(0.0, 1.0, n), 1, 0),
    "shard_index: nshards": (lambda n: L.shard_index(L.data("i", [1], dtype="int64"), 4, n, 0), 1, 0),
    "shard_index: index_num": (lambda n: L.shard_index(L.data("i", [1], dtype="int64"), n, 1, 0), 1, 0),
    "shard_index: least shard_id": (lambda n: L.shard_index(L.data("i", [1], dtype="int64"), 4, 2, n), 0, -1),
    "shard_index: greatest shard_id": (lambda n: L.shard_index(L.data("i", [1], dtype="int64"), 4, 2, n), 1, 2),
    "layer_norm: least begin_norm_axis": (lambda n: L.layer_norm(image(), begin_norm_axis=n), 1, 0),
    "layer_norm: greatest begin_norm_axis": (lambda n: L.layer_norm(image(), begin_norm_axis=n), 3, 4),
}


@pytest.mark.parametrize("call", CALLS)
def test_the_limit_is_accepted_and_what_is_beyond_refused(call):
    make, limit, beyond = CALLS[call]
    with programs():
        assert make(limit) is not None
    with programs(), pytest.raises(PeError):
        make(beyond)
