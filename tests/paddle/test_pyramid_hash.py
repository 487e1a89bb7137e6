"""fluid.contrib.layers.search_pyramid_hash: hashes as libxxhash 0.8 gave them, draws as the C library makes them."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from pe_cli.core.errors import PeError
from pe_cli.ops.sequence.ngram_hashes import murmur3, rand_r, xxh32
from pe_cli.paddle.errors import FluidValueError

L = fluid.layers
#: ids -> XXH32 of them as float32, by seeds 0 and 4, from libxxhash.
HASHES = {
    (1, 2): (2178581803, 3367120995), (2, 3): (2738544564, 1502326572), (1, 2, 3): (2033647566, 1528806378),
    (5, 6): (2761752962, 431794779), (3, 4): (1881208153, 2866307826), (1, 2, 3, 4): (192906133, 2629888282),
    (1, 2, 3, 4, 5, 6, 7): (3755394357, 55243514),
}  # fmt: skip
PLACES, PART = 50, 4
TABLE = np.arange(PLACES + PART, dtype="float32")[:, None]
SEQUENCES = [[1, 2, 3], [4], [5, 6]]
GRAMS = [[(1, 2), (2, 3), (1, 2, 3)], [], [(5, 6)]]


@pytest.mark.parametrize("ids", HASHES)
def test_hashes_are_those_of_the_library(ids):
    words = np.array([ids], "float32").view("uint32")
    assert xxh32(words, np.array([0, 4], "uint32")).tolist() == [list(HASHES[ids])]


def test_murmur_hash_is_that_which_is_published():
    text = np.frombuffer(b"The quick brown fox jumps over the lazy dog", np.uint8)[None]
    assert [hex(int(half[0])) for half in murmur3(text, 0)] == ["0xe34bbc7bbc071b6c", "0x7a433ca9c49a9347"]


def test_draws_are_those_of_the_c_library():
    state, ours = ctypes.c_uint(7), rand_r(7)
    assert all(ctypes.CDLL(None).rand_r(ctypes.byref(state)) == next(ours) for _ in range(100))


def vector(ids):
    """Return the vector of an n-gram: two parts of four."""
    return [float(h % PLACES + k) for h in HASHES[ids] for k in range(PART)]


def rows(kept):
    """Return what comes out: a row for each n-gram, and one of zeros for a sequence without any."""
    return np.array([row for grams in kept for row in ([vector(ids) for ids in grams] or [[0.0] * 2 * PART])])


def pyramid(lists=(None, None), **given):
    """Return a run of the layer, and what it is run with."""
    ids = fluid.data("ids", [None, 1], "int32", lod_level=1)
    attrs = [None if v is None else fluid.ParamAttr(initializer=fluid.initializer.NumpyArrayInitializer(v)) for v in (TABLE, *lists)]
    lengths = [0 if v is None else len(v) for v in lists]
    kept = {"drop_out_percent": 1.0, "is_training": 0, "use_filter": True, "seed": 5, "lr": 0.5, "pyramid_layer": 3, **given}
    out = fluid.contrib.layers.search_pyramid_hash(
        ids, num_emb=2 * PART, space_len=PLACES, rand_len=PART, white_list_len=lengths[0], black_list_len=lengths[1],
        param_attr=attrs[0], param_attr_wl=attrs[1], param_attr_bl=attrs[2], **kept,
    )  # fmt: skip
    flat = np.concatenate(SEQUENCES).astype("int32")[:, None]
    return out, {"ids": fluid.create_lod_tensor(flat, [[len(s) for s in SEQUENCES]], fluid.CPUPlace())}


def ran(fetches, feed, steps=1):
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    return [exe.run(feed=feed, fetch_list=fetches, return_numpy=False) for _ in range(steps)][-1]


@pytest.mark.parametrize("part", [1.0, 0.25])
def test_a_test_looks_all_ngrams_up_and_multiplies_them(part):
    out, feed = pyramid(drop_out_percent=part)
    (found,) = ran([out], feed)
    assert found.lod() == [[0, 3, 4, 5]]
    np.testing.assert_array_equal(np.array(found), rows(GRAMS) * part)


def test_two_ids_are_the_longest_where_asked_for():
    out, feed = pyramid(pyramid_layer=2)
    (found,) = ran([out], feed)
    np.testing.assert_array_equal(np.array(found), rows([[(1, 2), (2, 3)], [], [(5, 6)]]))


@pytest.mark.parametrize("seed", [1, 2, 5])
def test_training_leaves_out_what_the_c_library_would(seed):
    out, feed = pyramid(is_training=1, drop_out_percent=0.5, seed=seed)
    found = np.array(ran([out], feed, steps=2)[0])
    state = ctypes.c_uint(seed)
    kept = [[g for g in grams if ctypes.CDLL(None).rand_r(ctypes.byref(state)) / (2**31 - 1) >= 0.5] for grams in GRAMS]
    np.testing.assert_array_equal(found, rows(kept))


def bloom(grams, bits=640, hashes=2):
    """Return a Bloom filter of n-grams, as float32."""
    found = np.zeros(bits // 8, np.uint8)
    for ids in grams:
        for seed in range(hashes):
            for half in murmur3(np.array([ids], "float32").view(np.uint8), seed):
                at = int(half[0]) % bits
                found[at >> 3] |= 0x80 >> (at & 7)
    head = np.array([17070416, bits, hashes, len(grams)], "<u8")
    return np.frombuffer(head.tobytes() + found.tobytes(), "float32")[:, None].copy()


def test_lists_say_which_ngrams_count():
    white, black = bloom([(1, 2), (2, 3), (5, 6)]), bloom([(2, 3)])
    out, feed = pyramid(lists=(white, black))
    (found,) = ran([out], feed)
    np.testing.assert_array_equal(np.array(found), rows([[(1, 2)], [], [(5, 6)]]))


def test_lists_are_not_looked_into_without_use_filter():
    out, feed = pyramid(lists=(bloom([(5, 6)]), None), use_filter=False)
    np.testing.assert_array_equal(np.array(ran([out], feed)[0]), rows(GRAMS))


def test_a_list_that_is_no_filter_is_refused():
    out, feed = pyramid(lists=(np.zeros((20, 1), "float32"), None))
    with pytest.raises(PeError, match="WhiteList holds no Bloom filter"):
        ran([out], feed)


@pytest.mark.parametrize(("optimizer", "weight"), [(fluid.optimizer.AdamOptimizer, 1.9), (fluid.optimizer.SGDOptimizer, 2.0)])
def test_the_table_moves_by_its_own_rate_whatever_the_optimizer_is(optimizer, weight):
    out, feed = pyramid(is_training=1, drop_out_percent=0.0)
    weights = L.fc(out, 1, bias_attr=False, param_attr=fluid.ParamAttr("w", initializer=fluid.initializer.Constant(2.0)))
    optimizer(0.1, grad_clip=fluid.clip.GradientClipByGlobalNorm(1e-3)).minimize(L.reduce_sum(weights))
    block = fluid.default_main_program().global_block()
    (table,) = [p for p in block.all_parameters() if tuple(p.shape) == TABLE.shape]
    ran([out], feed)
    moved = TABLE[:, 0].copy()
    for grams in GRAMS:
        for ids in grams:
            for h in HASHES[ids]:
                moved[h % PLACES : h % PLACES + PART] -= 0.5 * 2.0
    got = np.array(fluid.global_scope().find_var(table.name).get_tensor())[:, 0]
    np.testing.assert_allclose(got, moved, rtol=1e-6)
    np.testing.assert_allclose(np.array(fluid.global_scope().find_var("w").get_tensor()), np.full((8, 1), weight), rtol=1e-3)


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(FluidValueError, match="pyramid_layer 1"):
        pyramid(pyramid_layer=1)


def test_sequences_of_sequences_are_refused():
    out, _ = pyramid()
    with pytest.raises(PeError, match="X has 2 levels of sequences"):
        ran([out], {"ids": fluid.create_lod_tensor(np.ones((3, 1), "int32"), [[2, 1], [1, 1, 1]], fluid.CPUPlace())})
