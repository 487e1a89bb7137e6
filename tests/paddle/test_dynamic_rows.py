"""Layers that keep as many rows as a step's values say, through fluid, against loops."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from pe_cli.core.errors import PeError
from pe_cli.paddle.errors import FluidTypeError

L = fluid.layers

def tensor(value, *lengths):
    made = fluid.LoDTensor()
    made.set(np.asarray(value), fluid.CPUPlace())
    made.set_recursive_sequence_lengths([list(level) for level in lengths])
    return made


def run(fetches, feed):
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    return executor.run(feed=feed, fetch_list=list(fetches), return_numpy=False)


# --- ctc_greedy_decoder -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("blank", "lengths"), [(0, [7, 1, 0, 12]), (3, [20]), (2, [1, 1, 3, 15])])
def test_labels_of_paths(rng, blank, lengths):
    scores = rng.random((20, 4)).astype("float32")
    x = fluid.data("x", [None, 4], "float32", lod_level=1)
    (found,) = run([L.ctc_greedy_decoder(x, blank)], {"x": tensor(scores, lengths)})
    paths = np.split(scores.argmax(1), np.cumsum(lengths)[:-1])
    labels = [[c for c, _ in itertools.groupby(path) if c != blank] for path in paths]
    assert np.array(found).ravel().tolist() == [c for path in labels for c in path]
    assert np.array(found).dtype == "int64"
    assert found.recursive_sequence_lengths() == [[len(path) for path in labels]]


def test_one_row_of_minus_one_where_no_path_has_a_label():
    x = fluid.data("x", [None, 2], "float32", lod_level=1)
    (found,) = run([L.ctc_greedy_decoder(x, 0)], {"x": tensor(np.eye(2, dtype="float32")[[0, 0, 0]], [1, 2])})
    assert np.array(found).tolist() == [[-1]]
    assert found.lod() == [[0, 0, 0]]


def test_labels_go_on_to_the_edit_distance(rng):
    x = fluid.data("x", [None, 3], "float32", lod_level=1)
    y = fluid.data("y", [None, 1], "int64", lod_level=1)
    distance, count = L.edit_distance(L.ctc_greedy_decoder(x, 0), y, normalized=False)
    scores = np.eye(3, dtype="float32")[[1, 1, 0, 1, 2, 2, 0]]
    found, n = run([distance, count], {"x": tensor(scores, [4, 3]), "y": tensor([[1], [1], [1], [2]], [2, 2])})
    assert np.array(found).ravel().tolist() == [0, 1]
    assert np.array(n).tolist() == [2]


def test_no_label_at_all_is_as_far_as_the_other_sequence_is_long():
    x = fluid.data("x", [None, 2], "float32", lod_level=1)
    y = fluid.data("y", [None, 1], "int64", lod_level=1)
    distance, _ = L.edit_distance(L.ctc_greedy_decoder(x, 0), y, normalized=False)
    scores = np.eye(2, dtype="float32")[[0, 0, 0]]
    (found,) = run([distance], {"x": tensor(scores, [1, 2]), "y": tensor([[0], [1], [1]], [2, 1])})
    assert np.array(found).tolist() == [[2], [1]]


# --- filter_by_instag -------------------------------------------------------------------------------------------------


def built(width, *, is_lod, value=0, wish=2):
    ins = fluid.data("ins", [None, width], "float32", lod_level=int(is_lod))
    ins.stop_gradient = False
    tags = fluid.data("tags", [None, 1], "int64", lod_level=1)
    wanted = fluid.data("wanted", [wish], "int64")
    return ins, L.filter_by_instag(ins, tags, wanted, is_lod, value)


@pytest.mark.parametrize("is_lod", [True, False])
def test_samples_with_one_of_the_tags(rng, is_lod):
    lengths = [2, 1, 3, 0] if is_lod else [1] * 4
    x, owned = rng.standard_normal((sum(lengths), 3)).astype("float32"), [[0, 5], [1], [9, 0, 5], [2, 2]]
    ins, (out, weight) = built(3, is_lod=is_lod)
    (gradient,) = fluid.gradients(L.reduce_sum(L.square(out)), ins)
    given = tensor(x, lengths) if is_lod else x
    flat = np.array([t for own in owned for t in own]).reshape(-1, 1)
    found, counted, slope = run(
        [out, weight, gradient], {"ins": given, "tags": tensor(flat, [len(own) for own in owned]), "wanted": np.array([2, 5])}
    )
    kept = [bool({2, 5} & set(own)) for own in owned]
    rows = np.repeat(kept, lengths)
    np.testing.assert_array_equal(np.array(found), x[rows])
    assert found.recursive_sequence_lengths() == [[n for n, k in zip(lengths, kept, strict=True) if k]]
    assert np.array(counted).tolist() == [[1.0]] * sum(kept)
    np.testing.assert_allclose(np.array(slope), 2 * x * rows[:, None], rtol=1e-6)


def test_no_sample_is_kept(rng):
    ins, (out, weight) = built(2, is_lod=True, value=7)
    (gradient,) = fluid.gradients(L.reduce_sum(out), ins)
    given = {"ins": tensor(rng.random((3, 2)).astype("float32"), [1, 2]), "tags": tensor([[1], [2]], [1, 1]), "wanted": np.array([3, 4])}
    found, counted, slope = run([out, weight, gradient], given)
    assert np.array(found).tolist() == [[7, 7]]
    assert np.array(counted).tolist() == [[0]]
    assert found.lod() == counted.lod() == [[0, 1]]
    assert not np.array(slope).any()


def test_what_was_kept_trains_a_layer(rng):
    ins = fluid.data("ins", [None, 2], "float32", lod_level=1)
    tags = fluid.data("tags", [None, 1], "int64", lod_level=1)
    hidden = L.fc(ins, 1, bias_attr=False, param_attr=fluid.ParamAttr(name="w"))
    out, weight = L.filter_by_instag(hidden, tags, L.fill_constant([1], "int64", 1), True)
    loss = L.mean(L.elementwise_mul(L.square(out), weight))
    fluid.optimizer.SGD(0.5).minimize(loss)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    before = np.array(fluid.global_scope().find_var("w").get_tensor())
    x = rng.standard_normal((3, 2)).astype("float32")
    executor.run(feed={"ins": tensor(x, [1, 1, 1]), "tags": tensor([[1], [0], [1]], [1, 1, 1])}, fetch_list=[loss])
    kept = x[[0, 2]]
    slope = 2 * kept.T @ (kept @ before) / 2
    np.testing.assert_allclose(np.array(fluid.global_scope().find_var("w").get_tensor()), before - 0.5 * slope, rtol=1e-5)


def test_a_sequence_of_tags_for_each_sample(rng):
    _, (out, _) = built(2, is_lod=True)
    given = {"ins": tensor(rng.random((3, 2)).astype("float32"), [1, 2]), "tags": tensor([[1]], [1]), "wanted": np.array([3, 4])}
    with pytest.raises(PeError, match="2 samples, but tags of 1"):
        run([out], given)


def test_tags_are_int64():
    x = fluid.data("x", [None, 2], "float32", lod_level=1)
    with pytest.raises(FluidTypeError, match="int64 tags"):
        L.filter_by_instag(x, x, x, True)


# --- sequences that follow from values of the step ---------------------------------------------------------------------


def counted(name="n"):
    """Lengths that a step computes: half of what is fed."""
    n = fluid.data(name, [None], "int64")
    return L.cast(L.scale(L.cast(n, "float32"), 0.5), "int64")


def test_rows_of_computed_lengths_train_a_layer(rng):
    padded = fluid.data("padded", [None, 4, 2], "float32")
    rows = L.sequence_unpad(padded, counted())
    hidden = L.fc(rows, 1, bias_attr=False, param_attr=fluid.ParamAttr(name="w"))
    summed = L.sequence_pool(hidden, "sum")
    loss = L.mean(L.square(summed))
    fluid.optimizer.SGD(0.5).minimize(loss)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    for lengths in ([2, 1, 4], [3, 3, 1], [2, 1, 4]):
        before = np.array(fluid.global_scope().find_var("w").get_tensor())
        x = rng.standard_normal((3, 4, 2)).astype("float32")
        (out,) = executor.run(feed={"padded": x, "n": 2 * np.array(lengths)}, fetch_list=[summed])
        sums = np.stack([x[i, :n].sum(0) for i, n in enumerate(lengths)])
        np.testing.assert_allclose(np.array(out), sums @ before, rtol=1e-5, atol=1e-6)
        slope = 2 * sums.T @ (sums @ before) / 3
        np.testing.assert_allclose(np.array(fluid.global_scope().find_var("w").get_tensor()), before - 0.5 * slope, rtol=1e-4, atol=1e-6)


def test_masks_as_long_as_the_longest_computed_length():
    mask = L.sequence_mask(counted(), dtype="int64")
    (found,) = run([mask], {"n": np.array([2, 6, 0])})
    assert np.array(found).tolist() == [[1, 0, 0], [1, 1, 1], [0, 0, 0]]


def test_levels_and_slices_by_computed_numbers():
    x = fluid.data("x", [None, 1], "float32", lod_level=1)
    other = L.lod_reset(x, counted("ends"))
    part = L.sequence_slice(x, counted("first"), counted("long"))
    values = np.arange(5, dtype="float32").reshape(-1, 1)
    feed = {"x": tensor(values, [3, 2]), "ends": np.array([0, 2, 10]), "first": np.array([2, 0]), "long": np.array([4, 2])}
    kept, cut = run([other, part], feed)
    assert kept.recursive_sequence_lengths() == [[1, 4]]
    assert np.array(cut).ravel().tolist() == [1, 2, 3]
    assert cut.recursive_sequence_lengths() == [[2, 1]]


def test_positions_of_rows_as_the_listwise_reranker_has_them(rng):
    x = fluid.data("x", [None, 2], "float32", lod_level=1)
    ones = L.cast(L.reduce_sum(x, dim=1, keep_dim=True) * 0 + 1, "float32")
    padded, _ = L.sequence_pad(ones, L.assign(np.zeros(1, "float32")))
    padded = L.squeeze(padded, [2])
    lengths = L.squeeze(L.cast(L.reduce_sum(padded, 1, keep_dim=True), "int64"), [1])
    place = L.sequence_unpad(L.cast(L.cumsum(padded, 1, exclusive=True), "int64"), lengths)
    (found,) = run([place], {"x": tensor(rng.random((5, 2)).astype("float32"), [3, 2])})
    assert np.array(found).ravel().tolist() == [0, 1, 2, 0, 1]
    assert found.recursive_sequence_lengths() == [[3, 2]]


def test_a_computed_length_above_the_steps_is_refused():
    padded = fluid.data("padded", [None, 2, 1], "float32")
    rows = L.sequence_unpad(padded, counted())
    with pytest.raises(RuntimeError, match="sequence_unpad"):
        run([rows], {"padded": np.zeros((1, 2, 1), "float32"), "n": np.array([8])})
