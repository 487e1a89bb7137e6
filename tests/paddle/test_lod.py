"""LoDTensor: lengths outside, offsets inside; batches of sequences are split between sequences."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid

CPU = fluid.CPUPlace()


def test_lengths_become_offsets():
    tensor = fluid.create_lod_tensor(np.zeros((7, 2), "float32"), [[2, 1], [2, 2, 3]], CPU)
    assert tensor.lod() == [[0, 2, 3], [0, 2, 4, 7]]
    assert tensor.recursive_sequence_lengths() == [[2, 1], [2, 2, 3]]
    assert tensor.shape() == [7, 2]
    assert np.array(tensor).shape == (7, 2)


def test_offsets_become_lengths():
    tensor = fluid.LoDTensor()
    tensor.set(np.zeros((5, 30)), CPU)
    tensor.set_lod([[0, 2, 5]])
    assert tensor.recursive_sequence_lengths() == [[2, 3]]
    tensor.set_recursive_sequence_lengths([[4, 1]])
    assert tensor.lod() == [[0, 4, 5]]


@pytest.mark.parametrize(
    ("lengths", "valid"),
    [
        pytest.param([[2, 3]], True, id="rows add up"),
        pytest.param([[2, 2]], False, id="a row is left"),
        pytest.param([[1, 1], [2, 3]], True, id="levels fit"),
        pytest.param([[1, 2], [2, 3]], False, id="a level names a sequence too many"),
        pytest.param([], True, id="no sequences"),
    ],
)
def test_validity(lengths, valid):
    tensor = fluid.LoDTensor()
    tensor.set(np.zeros((5, 1)), CPU)
    tensor.set_recursive_sequence_lengths(lengths)
    assert tensor.has_valid_recursive_sequence_lengths() is valid


def test_lists_of_ids_become_one_column():
    tensor = fluid.create_lod_tensor([[1, 2], [3, 4, 5]], [[2, 3]], CPU)
    assert np.array(tensor).tolist() == [[1], [2], [3], [4], [5]]
    assert np.array(tensor).dtype == np.int64
    assert np.array(fluid.create_lod_tensor(tensor, [[5]], CPU)).shape == (5, 1)


@pytest.mark.parametrize(
    ("data", "lengths", "kind"),
    [
        pytest.param(np.zeros((5, 1)), [[2, 2]], ValueError, id="lengths that do not add up"),
        pytest.param([[1], [2]], [[2]], ValueError, id="a list with other lengths"),
        pytest.param("words", [[5]], TypeError, id="a text"),
    ],
)
def test_wrong_data(data, lengths, kind):
    with pytest.raises(kind):
        fluid.create_lod_tensor(data, lengths, CPU)


def test_random_integers():
    tensor = fluid.create_random_int_lodtensor([[2, 3]], [30], CPU, low=0, high=1)
    assert tensor.shape() == [5, 30]
    assert set(np.unique(np.array(tensor))) == {0, 1}
    np.random.seed(7)  # noqa: NPY002 - as scripts do; the numbers are those of 1.8.5
    drawn = fluid.create_random_int_lodtensor([[2, 3]], [2], CPU, low=1, high=9)
    np.testing.assert_array_equal(np.array(drawn), [[5, 7], [4, 4], [8, 8], [8, 9], [9, 8]])


def test_an_array_of_tensors():
    found = fluid.LoDTensorArray()
    found.append(fluid.create_lod_tensor(np.zeros((5, 1)), [[2, 3]], CPU))
    assert len(found) == 1
    with pytest.raises(TypeError):
        found.append("tensor")


def test_a_batch_is_split_between_sequences(monkeypatch):
    monkeypatch.setenv("CPU_NUM", "2")
    x = fluid.layers.data("x", [1], lod_level=1)
    total = fluid.layers.reduce_sum(x)
    feed = {"x": fluid.create_lod_tensor(np.arange(6, dtype="float32").reshape(6, 1), [[3, 1, 2]], CPU)}
    rows, sums = fluid.ParallelExecutor(False).run([x, total], feed=feed, return_numpy=False)
    assert np.array(rows).ravel().tolist() == [0, 1, 2, 3, 4, 5]
    assert rows.recursive_sequence_lengths() == [[3, 1, 2]]
    assert np.array(sums).tolist() == [3, 12]  # one sequence of 0 1 2, then 3 and 4 5
    with pytest.raises(RuntimeError, match="return_numpy=False"):
        fluid.ParallelExecutor(False).run([x], feed=feed)


def test_fewer_sequences_than_devices(monkeypatch):
    monkeypatch.setenv("CPU_NUM", "2")
    x = fluid.layers.data("x", [1], lod_level=1)
    total = fluid.layers.reduce_sum(x)
    feed = {"x": fluid.create_lod_tensor(np.zeros((6, 1), "float32"), [[6]], CPU)}
    with pytest.raises(ValueError, match="1 samples for 2 devices"):
        fluid.ParallelExecutor(False).run([total], feed=feed)


def test_feeds_of_other_lengths_are_split_by_their_own(monkeypatch):
    """As in PaddlePaddle: sentences [4, 5] and the labels of all their words [20, 1] are fed side by side."""
    monkeypatch.setenv("CPU_NUM", "2")
    words, labels = fluid.data("words", [None, 2], "float32"), fluid.data("labels", [None, 1], "float32")
    sums = [fluid.layers.reduce_sum(words), fluid.layers.reduce_sum(labels)]
    feed = {"words": np.arange(8, dtype="float32").reshape(4, 2), "labels": np.ones((6, 1), "float32")}
    found = fluid.ParallelExecutor(False).run(sums, feed=feed)
    assert [v.tolist() for v in found] == [[6, 22], [3, 3]]


def test_a_program_that_is_cut_trains_on_two_devices_as_on_one(monkeypatch):
    """What ModelAverage needs before the cut has an optimizer's role, but no gradient."""
    found = []
    for devices in ("1", "2"):
        monkeypatch.setenv("CPU_NUM", devices)
        programs = fluid.Program(), fluid.Program()
        with fluid.program_guard(*programs), fluid.scope_guard(fluid.Scope()), fluid.unique_name.guard():
            x = fluid.data("x", [None, 2], "float32")
            places = fluid.layers.cast(fluid.layers.where(x > 0)[:, 1], "float32")  # columns, the same on both devices
            one = fluid.initializer.Constant(1.0)
            out = fluid.layers.fc(x, 1, param_attr=fluid.ParamAttr(name="w", initializer=one), bias_attr=False)
            loss = fluid.layers.mean(fluid.layers.elementwise_mul(fluid.layers.square(out), fluid.layers.reduce_max(places)))
            fluid.optimizer.Momentum(0.01, 0.9).minimize(loss)
            fluid.optimizer.ModelAverage(0.15, min_average_window=2, max_average_window=4)
            fluid.Executor(CPU).run(programs[1])
            compiled = fluid.CompiledProgram(programs[0]).with_data_parallel(loss_name=loss.name)
            for _ in range(3):
                fluid.Executor(CPU).run(compiled, {"x": np.array([[1, 2], [3, 4]] * 2, "float32")}, [loss])
            found.append(np.array(fluid.global_scope().find_var("w").get_tensor()))
    assert not np.allclose(found[0], 1)
    np.testing.assert_allclose(*found, rtol=1e-5)


def test_a_feeder_makes_sequences():
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    nested = fluid.layers.data("nested", [1], dtype="int64", lod_level=2)
    feed = fluid.DataFeeder([words, nested], CPU).feed([([1, 2], [[1], [2, 3]]), ([3], [[4, 5]])])
    assert feed["words"].recursive_sequence_lengths() == [[2, 1]]
    assert np.array(feed["words"]).tolist() == [[1], [2], [3]]
    assert feed["nested"].recursive_sequence_lengths() == [[2, 1], [1, 2, 2]]


def text_network():
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    label = fluid.layers.data("label", [1], dtype="int64")
    rows = fluid.nets.sequence_conv_pool(fluid.layers.embedding(words, [50, 8]), 6, 3)
    loss = fluid.layers.mean(fluid.layers.cross_entropy(fluid.layers.fc(rows, 2, act="softmax"), label))
    fluid.optimizer.SGD(0.5).minimize(loss)
    return words, label, loss


def test_a_text_network_learns_from_a_feeder_on_two_devices_as_on_one(monkeypatch):
    monkeypatch.setenv("CPU_NUM", "2")
    found = []
    for parallel in (False, True):
        main, startup = fluid.Program(), fluid.Program()
        main.random_seed = startup.random_seed = 7
        with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()), fluid.unique_name.guard():
            words, label, loss = text_network()
            executor = fluid.Executor(CPU)
            executor.run(startup)
            feed = fluid.DataFeeder([words, label], CPU).feed(
                [([1, 2, 3], [0]), ([4], [1]), ([5, 6, 7, 8, 9], [1]), ([2], [0]), ([3, 3], [1])]
            )
            program = fluid.CompiledProgram(main).with_data_parallel(loss_name=loss.name) if parallel else main
            losses = [executor.run(program, feed, [loss])[0] for _ in range(5)]
            # 5 texts go 2 and 3; the devices' losses are means over theirs
            found.append([v[0] if len(v) == 1 else (2 * v[0] + 3 * v[1]) / 5 for v in losses])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)
    assert found[0][-1] < found[0][0]


def test_sparse_slots_feed_a_program_in_an_async_executor(tmp_path):
    (tmp_path / "data.proto").write_text(
        'name: "MultiSlotDataFeed" batch_size: 4 multi_slot_desc {'
        ' slots { name: "words" type: "uint64" is_dense: false is_used: true }'
        ' slots { name: "label" type: "uint64" is_dense: true is_used: true } }'
    )
    files = []
    for i in range(3):  # a text of even words is of class 0
        lines = [f"{n} {' '.join(str(2 * k + n % 2) for k in range(n))} 1 {n % 2}\n" for n in (1, 2, 3, 4, 5, 6) * 4]
        files.append(tmp_path / f"part-{i}")
        files[-1].write_text("".join(lines))
    words, label, loss = text_network()
    executor = fluid.Executor(CPU)
    executor.run(fluid.default_startup_program())
    feed = fluid.DataFeeder([words, label], CPU).feed([([2, 4], [0]), ([1, 3, 5], [1])])
    test = fluid.default_main_program().clone(for_test=True)
    before = executor.run(test, feed, [loss])[0][0]
    desc = fluid.DataFeedDesc(tmp_path / "data.proto")
    for _ in range(5):
        fluid.AsyncExecutor(CPU).run(fluid.default_main_program(), desc, files, 2, [loss])
    assert executor.run(test, feed, [loss])[0][0] < before / 2


def test_an_op_that_needs_sequences_says_so_when_rows_are_fed():
    x = fluid.layers.data("x", [2], lod_level=1)
    out = fluid.layers.sequence_pool(x, "sum")
    with pytest.raises(RuntimeError, match="sequence_pool needs sequences, but its X 'x' has plain rows"):
        fluid.Executor(CPU).run(feed={"x": np.zeros((3, 2), "float32")}, fetch_list=[out])


def test_lengths_that_do_not_add_up_are_no_feed():
    x = fluid.layers.data("x", [2], lod_level=1)
    tensor = fluid.LoDTensor(np.zeros((3, 2), "float32"), [[1, 1]])
    with pytest.raises(ValueError, match=r"has 3 rows, but lengths \[\[1, 1\]\]"):
        fluid.Executor(CPU).run(feed={"x": tensor}, fetch_list=[fluid.layers.sequence_pool(x, "sum")])


@pytest.mark.parametrize("of", ["alone", "of a scope"])
def test_elements_and_sizes_by_the_names_below_those_of_the_pages(of):
    """As 1.8.5 answers; the zoo's evaluation of SSR reads its accuracy by `_get_float_element`."""
    tensor = fluid.LoDTensor() if of == "alone" else fluid.Scope().var("v").get_tensor()
    assert tensor
    assert tensor.shape() == [0]
    assert tensor._get_dims() == [0]
    tensor._set_dims([2, 2])
    tensor._alloc_float(fluid.CPUPlace())
    np.testing.assert_array_equal(np.array(tensor), np.zeros((2, 2), "float32"))
    tensor.set(np.arange(6, dtype="float32").reshape(2, 3), fluid.CPUPlace())
    assert tensor._get_float_element(4) == 4.0
    tensor._set_float_element(1, 7.5)
    tensor._set_dims([3, 2])
    np.testing.assert_array_equal(np.array(tensor), [[0, 7.5], [2, 3], [4, 5]])
    assert tensor._get_dims() == tensor.shape() == [3, 2]
    copied = tensor._copy(fluid.CPUPlace())
    tensor._set_float_element(0, 9.0)
    assert (copied._get_float_element(0), tensor._get_float_element(0)) == (0.0, 9.0)
    with pytest.raises(RuntimeError, match="no element 9 of 6"):
        tensor._get_float_element(9)
    with pytest.raises(RuntimeError, match="are float32, and not float64"):
        tensor._get_double_element(1)
    with pytest.raises(RuntimeError, match="6 elements cannot have the sizes"):
        tensor._set_dims([4, 2])
    tensor._clear()
    assert not tensor._is_initialized()
