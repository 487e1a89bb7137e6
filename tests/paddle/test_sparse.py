"""is_sparse embeddings by the original's names: both layers, executors, lazy_mode, fetched gradients, Hogwild threads."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from pe_cli.program.sparse import notes

L = fluid.layers
HEIGHT, WIDTH = 9, 3

def table():
    value = np.arange(HEIGHT * WIDTH, dtype="float32").reshape(HEIGHT, WIDTH) / 10
    return fluid.ParamAttr("table", fluid.initializer.NumpyArrayInitializer(value))


def network(optimizer, *, sparse: bool, second: bool = False):
    """The mean square of looked-up rows; returns the loss."""
    if second:
        rows = fluid.embedding(fluid.data("ids", [None, 2], "int64"), [HEIGHT, WIDTH], is_sparse=sparse, param_attr=table())
    else:
        rows = L.embedding(L.data("ids", [2, 1], dtype="int64"), [HEIGHT, WIDTH], is_sparse=sparse, param_attr=table())
    loss = L.mean(L.square(rows))
    optimizer.minimize(loss)
    return loss


def ids(second: bool, seed: int = 0):
    drawn = np.random.default_rng(seed).integers(0, HEIGHT, (8, 2))
    return drawn if second else drawn[..., None]


def value():
    return np.array(fluid.global_scope().find_var("table").get_tensor())


@pytest.mark.parametrize("second", [False, True], ids=["layers.embedding", "embedding"])
@pytest.mark.parametrize("parallel", [False, True], ids=["Executor", "ParallelExecutor"])
@pytest.mark.parametrize("optimizer", ["SGD", "Adagrad"])
def test_sparse_tables_train_as_dense_ones(second, parallel, optimizer, monkeypatch):
    monkeypatch.setenv("CPU_NUM", "2")
    found = []
    for sparse in (True, False):
        main, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
            loss = network(getattr(fluid.optimizer, optimizer)(0.1), sparse=sparse, second=second)
            executor = fluid.Executor(fluid.CPUPlace())
            executor.run(startup)
            program = fluid.CompiledProgram(main).with_data_parallel(loss_name=loss.name) if parallel else main
            for step in range(3):
                executor.run(program, feed={"ids": ids(second, step)}, fetch_list=[loss])
            found.append(value())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("lazy", [False, True], ids=["all rows move", "lazy_mode"])
def test_adam_corrects_row_sparse_steps_as_if_one_more_had_been_done(lazy):
    loss = network(fluid.optimizer.Adam(0.1, lazy_mode=lazy), sparse=True)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    p, m, v = value().astype("float64"), np.zeros((HEIGHT, WIDTH)), np.zeros((HEIGHT, WIDTH))
    for step in range(3):
        drawn = ids(second=False, seed=step)
        executor.run(feed={"ids": drawn}, fetch_list=[loss])
        times = np.bincount(drawn.ravel(), minlength=HEIGHT)[:, None]
        g = 2 * p * times / (drawn.size * WIDTH)
        on = (times > 0) | (not lazy)
        m, v = np.where(on, 0.9 * m + 0.1 * g, m), np.where(on, 0.999 * v + 0.001 * g * g, v)
        rate = 0.1 * np.sqrt(1 - 0.999 ** (step + 2)) / (1 - 0.9 ** (step + 2))
        p = np.where(on, p - rate * m / (np.sqrt(v) + 1e-8), p)
    np.testing.assert_allclose(value(), p, rtol=1e-4, atol=1e-5)


def test_the_rows_of_a_sparse_gradient():
    ids_ = fluid.data("ids", [4, 1], "int64")
    rows = L.embedding(ids_, [HEIGHT, WIDTH], is_sparse=True, param_attr=table())
    ((_, gradient),) = fluid.backward.append_backward(L.reduce_sum(rows))
    made = L.get_tensor_from_selected_rows(L.merge_selected_rows(gradient))
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    (found,) = executor.run(feed={"ids": np.array([[3], [1], [3], [8]])}, fetch_list=[made])
    assert found.tolist() == [[1.0] * 3, [2.0] * 3, [1.0] * 3]


def test_a_fetched_gradient_is_dense():
    network(fluid.optimizer.SGD(0.1), sparse=True)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    before, given = value(), ids(False)
    (gradient,) = executor.run(feed={"ids": given}, fetch_list=["table@GRAD"])
    expected = np.zeros_like(before)
    for row in given.ravel():
        expected[row] += 2 * before[row] / (given.size * WIDTH)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5)


@pytest.mark.parametrize("lazy", [False, True])
def test_lazy_mode_leaves_rows_alone_that_a_batch_has_not(lazy):
    network(fluid.optimizer.Adam(0.1, lazy_mode=lazy), sparse=True)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    executor.run(feed={"ids": np.array([[[1], [2]]])}, fetch_list=[])
    before = value()
    executor.run(feed={"ids": np.array([[[2], [3]]])}, fetch_list=[])
    assert np.array_equal(value()[1], before[1]) == lazy
    assert not np.allclose(value()[2:4], before[2:4])
    np.testing.assert_array_equal(value()[4:], before[4:])


def test_a_table_that_is_also_read_whole_gets_a_dense_gradient_and_a_note():
    found = []
    for sparse in (True, False):
        main, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
            rows = L.embedding(L.data("ids", [2, 1], dtype="int64"), [HEIGHT, WIDTH], is_sparse=sparse, param_attr=table())
            whole = main.global_block().var("table")
            loss = L.mean(L.square(L.matmul(rows, whole, transpose_y=True)))
            fluid.optimizer.SGD(0.1).minimize(loss)
            executor = fluid.Executor(fluid.CPUPlace())
            executor.run(startup)
            executor.run(main, feed={"ids": ids(False)})
            found.append(value())
            said = ["is_sparse: the gradient of 'table' is dense: matmul needs a gradient for all rows"] if sparse else []
            assert notes(main) == said
    np.testing.assert_array_equal(found[0], found[1])


def test_lazy_mode_that_cannot_act_is_noted():
    network(fluid.optimizer.Adam(0.1, lazy_mode=True), sparse=False)
    (note,) = notes(fluid.default_main_program())
    assert note.startswith("lazy_mode: no gradient is row-sparse")


def test_threads_share_a_sparse_table(tmp_path):
    proto = tmp_path / "data.proto"
    proto.write_text(
        'name: "MultiSlotDataFeed"\nbatch_size: 2\nmulti_slot_desc {\n'
        '  slots { name: "ids" type: "uint64" is_dense: true is_used: true shape: 2 shape: 1 }\n}\n'
    )
    network(fluid.optimizer.SGD(0.1), sparse=True)
    fluid.Executor(fluid.CPUPlace()).run(fluid.default_startup_program())
    before, files = value(), []
    for i in range(4):
        files.append(tmp_path / f"part-{i}")
        files[-1].write_text(f"2 {2 * i} {2 * i + 1}\n" * 10)
    fluid.AsyncExecutor(fluid.CPUPlace()).run(fluid.default_main_program(), fluid.DataFeedDesc(proto), files, 2, [])
    # every file has rows of its own: five batches, each of which has its two rows twice
    expected = before.copy()
    expected[:8] *= (1 - 0.1 * 2 * 2 / (4 * WIDTH)) ** 5
    np.testing.assert_allclose(value(), expected, rtol=1e-5)
