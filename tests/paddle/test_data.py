"""DataFeeder on devices, DataFeedDesc, MultiSlot files, AsyncExecutor and readers."""

from __future__ import annotations

import os
import random
import signal

import numpy as np
import pytest

import pe_cli.paddle as paddle
import pe_cli.paddle.fluid as fluid
from pe_cli.execute import seeds
from tests.paddle.support import rows, trained

PROTO = """
name: "MultiSlotDataFeed"
batch_size: 2
multi_slot_desc {
  slots { name: "words" type: "uint64" is_dense: false is_used: true }
  slots { name: "skipped" type: "float" is_dense: false is_used: false }  # read, not fed
  slots { name: "x" type: "float" is_dense: true is_used: true shape: 2 }
}
"""


@pytest.fixture
def proto(tmp_path):
    path = tmp_path / "data.proto"
    path.write_text(PROTO)
    return path


# --- DataFeeder -----------------------------------------------------------------------------------------------------


@pytest.fixture
def feeder(fresh):
    return fluid.DataFeeder([fluid.layers.data("x", [2]), fluid.layers.data("y", [1], dtype="int64")], fluid.CPUPlace())


def batches(n: int):
    return [[([i, i], i), ([i, i], i)] for i in range(n)]


def test_feed_parallel_gives_a_feed_for_each_device(feeder):
    first, second = feeder.feed_parallel(batches(2), num_places=2)
    assert first["x"].shape() == [2, 2]
    assert np.array(second["y"]).tolist() == [[1], [1]]
    with pytest.raises(ValueError, match="3 mini-batches for 2 devices"):
        feeder.feed_parallel(batches(3), num_places=2)


def test_a_decorated_reader_gives_lists_and_drops_the_tail(feeder):
    reader = feeder.decorate_reader(lambda: iter(batches(5)), multi_devices=True, num_places=2)
    assert [len(feeds) for feeds in reader()] == [2, 2]
    keeps = feeder.decorate_reader(lambda: iter(batches(5)), multi_devices=True, num_places=2, drop_last=False)
    with pytest.raises(ValueError, match="1 mini-batches are left for 2 devices"):
        list(keeps())
    single = feeder.decorate_reader(lambda: iter(batches(3)), multi_devices=False)
    assert [sorted(feed) for feed in single()] == [["x", "y"]] * 3


def test_a_feeder_refuses_what_does_not_fit(feeder):
    with pytest.raises(ValueError, match="no variable 'z'"):
        fluid.DataFeeder(["z"], fluid.CPUPlace())
    with pytest.raises(ValueError, match="a sample has 1 entries, the feed list has 2"):
        feeder.feed([([1, 2],)])
    with pytest.raises(ValueError, match="reshape it"):
        feeder.feed([([[1, 2, 3]], 0)])


# --- DataFeedDesc ---------------------------------------------------------------------------------------------------


def test_a_description_is_read_changed_and_printed(proto):
    desc = fluid.DataFeedDesc(proto)
    desc.set_batch_size(128)
    desc.set_dense_slots(["words"])
    desc.set_use_slots(["skipped"])
    assert [(s.name, s.is_dense, s.is_used) for s in desc.slots] == [
        ("words", True, True), ("skipped", False, True), ("x", True, True)
    ]  # fmt: skip
    expected = """name: "MultiSlotDataFeed"
batch_size: 128
multi_slot_desc {
  slots {
    name: "words"
    type: "uint64"
    is_dense: true
    is_used: true
  }
"""
    assert desc.desc().startswith(expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param('nane: "a"', "data.proto:1: there is no field 'nane'", id="an unknown field"),
        pytest.param('name: "a"\nbatch_size: "2"', "data.proto:2: batch_size must be int", id="a wrong type"),
        pytest.param("multi_slot_desc { slots {", "data.proto:1: there is no field 'the end'", id="an open brace"),
        pytest.param("batch_size: 2 ?", "'[?]' is not understood", id="a stray sign"),
    ],
)
def test_a_wrong_description(tmp_path, text, message):
    path = tmp_path / "data.proto"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        fluid.DataFeedDesc(path)


def test_unknown_slots_and_files(proto, tmp_path):
    with pytest.raises(ValueError, match=r"no slot 'word'.*did you mean 'words'"):
        fluid.DataFeedDesc(proto).set_use_slots(["word"])
    with pytest.raises(ValueError, match="No such file"):
        fluid.DataFeedDesc(tmp_path / "absent")


# --- MultiSlot ------------------------------------------------------------------------------------------------------


def test_slots_are_read_in_order(proto, tmp_path):
    from pe_cli.paddle.fluid.multi_slot import batches as read

    file = tmp_path / "part-0"
    file.write_text("3 1926 8 17 1 0.5 2 1 2\n1 5 2 7 8 2 3 4\n1 6 1 0 2 5 6\n")
    first, second = read([file], fluid.DataFeedDesc(proto).slots, 2)
    assert sorted(first) == ["words", "x"]
    assert np.array(first["words"]).ravel().tolist() == [1926, 8, 17, 5]
    assert first["words"].recursive_sequence_lengths() == [[3, 1]]
    assert first["x"].tolist() == [[1, 2], [3, 4]]
    assert second["x"].tolist() == [[5, 6]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param(
            "0 1 1 2 1 2", "part-0:1:1: slot 'words' begins with the number .* at least 1, and here is '0'", id="none"
        ),
        pytest.param("1 5 1 1 2 1", "slot 'x' should have 2 values, but the line has 1 left", id="too few"),
        pytest.param("1 5 1 1 2 1 2 9", "1 words are left", id="too many"),
        pytest.param("1 a 1 1 2 1 2", "value 1 of slot 'words' is 'a', no uint64", id="no number"),
        pytest.param("1  5 1 1 2 1 2", "slot 'words'", id="two spaces"),
    ],
)
def test_a_wrong_line(proto, tmp_path, line, message):
    from pe_cli.paddle.fluid.multi_slot import batches as read

    file = tmp_path / "part-0"
    file.write_text(line + "\n")
    with pytest.raises(ValueError, match=message):
        list(read([file], fluid.DataFeedDesc(proto).slots, 2))


# --- AsyncExecutor --------------------------------------------------------------------------------------------------


def test_a_slot_without_a_name(tmp_path):
    path = tmp_path / "feed"
    path.write_text('name: "MultiSlotDataFeed"\nmulti_slot_desc { slots { type: "uint64" } }\n')
    with pytest.raises(ValueError, match="slot 0 has no name"):
        fluid.DataFeedDesc(str(path))


def test_threads_train_shared_parameters_and_print_what_is_fetched(proto, tmp_path, capfd):
    x = fluid.layers.data("x", [2])
    fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    loss = fluid.layers.mean(
        fluid.layers.fc(x, 1, bias_attr=False, param_attr=fluid.ParamAttr("w", fluid.initializer.Constant(1.0)))
    )
    fluid.optimizer.SGD(0.1).minimize(loss)
    fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
    files = []
    for i in range(4):
        files.append(tmp_path / f"part-{i}")
        files[-1].write_text("1 5 1 0 2 1 1\n" * 10)
    executor = fluid.AsyncExecutor(fluid.CPUPlace())
    result = executor.run(fluid.default_main_program(), fluid.DataFeedDesc(proto), files, 2, [loss], debug=True)
    assert result is None
    assert capfd.readouterr().out.count(f"{loss.name}: ") == 20
    # every batch lowers both weights by 0.1; two threads may lose an update of the other
    value = np.array(fluid.global_scope().find_var("w").get_tensor())
    assert (value <= 1 - 0.1 * 10 + 1e-5).all()
    assert (value >= 1 - 0.1 * 20 - 1e-5).all()


def test_async_executors_are_for_the_cpu_and_need_files(proto, fresh):
    loss, _ = trained()
    with pytest.raises(ValueError, match="CPU only"):
        fluid.AsyncExecutor(fluid.CUDAPlace(0))
    with pytest.raises(ValueError, match="filelist is empty"):
        fluid.AsyncExecutor().run(fluid.default_main_program(), fluid.DataFeedDesc(proto), [], 1, [loss])
    with pytest.raises(TypeError, match="DataFeedDesc"):
        fluid.AsyncExecutor().run(fluid.default_main_program(), str(proto), ["a"], 1, [loss])


# --- readers --------------------------------------------------------------------------------------------------------


def test_functions_on_readers():
    def count():
        return iter(range(5))

    assert list(paddle.batch(count, 2)()) == [[0, 1], [2, 3], [4]]
    assert list(paddle.batch(count, 2, drop_last=True)()) == [[0, 1], [2, 3]]
    assert list(paddle.batch(count, 5 / 2)()) == [[0, 1], [2, 3], [4]]  # int(batch_size) in 1.8.5
    assert list(paddle.reader.firstn(count, 2)()) == [0, 1]
    assert list(paddle.reader.compose(count, count)())[1] == (1, 1)
    assert sorted(paddle.reader.shuffle(count, 3)()) == [0, 1, 2, 3, 4]
    random.seed(7)
    # What 1.8.5 gives after the same seed.
    assert list(paddle.reader.shuffle(lambda: iter(range(12)), 5)()) == [4, 0, 3, 1, 2, 7, 8, 6, 9, 5, 11, 10]
    assert list(paddle.reader.map_readers(lambda a, b: a + b, count, count)()) == [0, 2, 4, 6, 8]
    assert list(paddle.reader.buffered(count, 2)()) == [0, 1, 2, 3, 4]
    assert list(paddle.reader.xmap_readers(lambda v: v * v, count, 2, 3)()) == [0, 1, 4, 9, 16]
    with pytest.raises(paddle.reader.ComposeNotAligned):
        list(paddle.reader.compose(count, lambda: iter([1]))())


def test_readers_in_processes_of_their_own():
    read = paddle.reader.multiprocess_reader([lambda: iter([1, 2]), lambda: iter([3])])
    assert sorted(read()) == [1, 2, 3]
    with pytest.raises(ValueError, match="a reader failed: ZeroDivisionError"):
        list(paddle.reader.multiprocess_reader([lambda: iter([1 // 0])])())
    with pytest.raises(ValueError, match="a reader failed: ValueError: it has a sample None"):
        list(paddle.reader.multiprocess_reader([lambda: iter([None])])())
    with pytest.raises(ValueError, match="a reader's process ended before its reader") as caught:
        list(paddle.reader.multiprocess_reader([lambda: iter([1, 2]), lambda: os.kill(os.getpid(), signal.SIGKILL)])())
    assert "-9" in str(caught.value)


def test_samples_become_arrays():
    pictures, labels = fluid.io.default_collate_fn([(np.zeros(3), 1), (np.ones(3), 2)])
    assert (pictures.shape, labels.tolist()) == ((2, 3), [1, 2])
    with pytest.raises(TypeError, match="a sample has a str"):
        fluid.io.default_collate_fn([("a", 1)])


def test_a_reader_feeds_a_program_until_it_ends():
    loss, executor = trained()
    x = fluid.default_main_program().global_block().var("X")
    reader = fluid.io.PyReader(feed_list=[x], capacity=4, iterable=False)
    reader.decorate_sample_list_generator(paddle.batch(lambda: ((v,) for v in rows(6)), 2))
    for _ in range(2):
        reader.start()
        for _ in range(3):
            executor.run(fetch_list=[loss])
        with pytest.raises(fluid.core.EOFException):
            executor.run(fetch_list=[loss])
        reader.reset()


def test_a_loader_is_looped_over():
    _, executor = trained()
    x = fluid.default_main_program().global_block().var("X")
    loader = fluid.io.DataLoader.from_generator(feed_list=[x], capacity=4)
    loader.set_batch_generator(lambda: iter([rows(2), rows(3)]))
    assert [executor.run(feed=feed, fetch_list=[x])[0].shape for feed in loader()] == [(2, 1), (3, 1)]


@pytest.mark.parametrize(("kind", "last"), [(kind, last) for kind in ("QueueDataset", "InMemoryDataset") for last in (True, False)])
def test_a_loader_of_a_dataset_drops_a_last_batch_that_is_not_full(kind, last, tmp_path):
    path = tmp_path / "lines"
    path.write_text("1 0 1 0\n2 1 2 1 1\n3 2 3 4 1 2\n1 3 1 3\n2 4 5 1 4\n")  # read so by 1.8.5
    dataset = fluid.DatasetFactory().create_dataset(kind)
    dataset.set_batch_size(2)
    dataset.set_use_var([fluid.data("a", [None, 1], "int64", lod_level=1), fluid.data("b", [None, 1], "int64")])
    dataset.set_filelist([str(path)])
    if kind == "InMemoryDataset":
        dataset.load_into_memory()
    loader = fluid.io.DataLoader.from_dataset(dataset, fluid.cpu_places(1), drop_last=last)
    found = [np.array(batch[0]["b"] if isinstance(batch, list) else batch["b"]).ravel().tolist() for batch in loader]
    assert found == [[0, 1], [2, 3], *([] if last else [[4]])]


@pytest.fixture
def clicks(tmp_path):
    """A dataset of lines with an id and a log key: sparse words, and one dense number."""
    rows = [("b", "s2", "2 3 0", 1), ("a", "s1", "1 5", 4), ("a", "s2", "2 6 7", 4), ("c", "s1", "2 0 0", 9)]
    lines = [f"1 {name} 1 {'0' * 16}{search:>16} {words} 1 {number}\n".replace("  ", "__") for name, search, words, number in rows]
    (tmp_path / "part").write_text("".join(lines).replace("__", "00"))
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
        number = fluid.layers.data("number", [1], dtype="int64")
    found = fluid.DatasetFactory().create_dataset("InMemoryDataset")
    found.set_filelist([str(tmp_path / "part")])
    found.set_use_var([words, number])
    found.set_parse_ins_id(True)
    found.set_parse_logkey(True)
    found.set_batch_size(2)
    return found


def values(dataset):
    return [(np.ravel(b["words"]).tolist(), np.ravel(b["number"]).tolist()) for b in dataset.batches()]


def test_zeros_of_sparse_slots_fill_places(clicks):
    clicks.preload_into_memory(2)
    clicks.wait_preload_done()
    assert values(clicks) == [([3, 5], [1, 4]), ([6, 7, 0], [4, 9])]


def test_instances_of_one_id_are_merged(clicks):
    clicks.set_merge_by_lineid(2)
    clicks.load_into_memory()
    clicks.global_shuffle()
    [(words, number)] = values(clicks)
    assert (sorted(words), number) == ([5, 6, 7], [4]), "the ids b and c have one instance each"


def test_batches_of_page_views(clicks):
    clicks.set_enable_pv_merge(True)
    clicks.set_pv_batch_size(1)
    clicks.load_into_memory()
    clicks.preprocess_instance()
    assert clicks.get_pv_data_size() == 2
    assert [sorted(number) for _, number in values(clicks)] == [[4, 9], [1, 4]]
    clicks.set_enable_pv_merge(True)
    clicks.load_into_memory()
    assert [sorted(number) for _, number in values(clicks)] == [[4, 9], [1, 4]], "nobody asked for views; batches do"
    clicks.set_current_phase(0)
    assert values(clicks)[0] == ([3, 5], [1, 4]), "the second phase goes by instances"


def test_values_of_slots_are_drawn_from_other_instances(clicks):
    clicks.load_into_memory()
    before = values(clicks)
    with pytest.raises(ValueError, match="fea_eval is off"):
        clicks.slots_shuffle(["words"])
    clicks.set_fea_eval(1)
    clicks.slots_shuffle(["words"])
    clicks.slots_shuffle(["number"])
    assert [words for words, _ in values(clicks)] == [words for words, _ in before], "what was shuffled first is back"
    assert len({n for _, numbers in values(clicks) for n in numbers}) == 1, "one candidate"


def test_a_loader_that_is_called_is_the_loader():
    # DataLoaderBase.__call__ of 1.8.5 returns self: scripts give it their generator by what a call returned.
    x = fluid.data("called", [None, 1], "float32")
    loader = fluid.io.DataLoader.from_generator(feed_list=[x], capacity=2)
    loader().set_sample_list_generator(lambda: iter([[(1.0,)], [(2.0,)]]), places=fluid.CPUPlace())
    assert [batch[0]["called"].item() for batch in loader()] == [1.0, 2.0]
    assert [next(loader)[0]["called"].item() for _ in range(2)] == [1.0, 2.0]
    with pytest.raises(StopIteration):
        next(loader)
    assert next(loader)[0]["called"].item() == 1.0


def test_instances_are_shuffled_alike_where_a_run_has_a_seed(clicks, monkeypatch):
    found = []
    for seed in (5, 5):
        monkeypatch.setattr(seeds, "unforeseen", np.random.default_rng(seed).bytes)
        clicks.load_into_memory()
        for _ in range(4):
            clicks.local_shuffle()
        found.append(values(clicks))
    assert found[0] == found[1]


def test_files_go_through_commands(clicks, tmp_path):
    clicks.set_pipe_command("grep s1")
    clicks.set_download_cmd("cat")
    clicks.load_into_memory()
    assert values(clicks) == [([5, 0], [4, 9])]
    assert 'name: "MultiSlotInMemoryDataFeed"' in clicks.desc()
    assert 'pipe_command: "grep s1"' in clicks.desc()
    clicks.set_pipe_command("exit 3 <")
    with pytest.raises(ValueError, match="ended with exit code 2"):
        clicks.load_into_memory()
    clicks.set_filelist([str(tmp_path / "absent")])
    clicks.set_download_cmd("")
    with pytest.raises(ValueError, match="No such file"):
        clicks.load_into_memory()


def test_a_line_without_the_mark_that_it_should_have(clicks):
    clicks.set_parse_content(True)
    with pytest.raises(ValueError, match=r"this line has no logkey.*each line begins with 1 <ins_id> 1 <content> 1 <logkey>"):
        clicks.load_into_memory()


def test_what_cannot_act_is_said_when_files_are_read(clicks):
    clicks.set_hdfs_config("hdfs://host:9000", "name,password")
    with pytest.raises(NotImplementedError, match=r"set_hdfs_config cannot act here.*mount the file system"):
        clicks.load_into_memory()


def test_what_scripts_print_and_set_around_a_loader():
    """As the zoo's word2vec does: the size of the loader's queue, and an option of 1.8 that chose between two executors."""
    x = fluid.data("x", [None, 2])
    loader = fluid.io.DataLoader.from_generator([x], capacity=4, iterable=False)
    assert (loader.queue.size(), loader.queue.capacity(), loader.queue.is_closed()) == (0, 4, True)
    loader.set_batch_generator(lambda: iter([[np.ones((3, 2), "float32")]]))
    loader.start()
    assert not loader.queue.is_closed()
    loader.queue.close()
    assert loader.queue.is_closed()
    strategy = fluid.ExecutionStrategy()
    assert strategy.use_experimental_executor is True
    strategy.use_experimental_executor = False
    strategy._dry_run = True
    assert strategy.dry_run is strategy._dry_run is True
