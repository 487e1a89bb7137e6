"""Decoding, arrays in loops and DynamicRNN against loops in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid

L = fluid.layers

def run(fetches, **feed):
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    return [np.array(t) for t in executor.run(feed=feed, fetch_list=fetches, return_numpy=False)]


def test_a_loop_writes_and_reads_an_array():
    n, start = fluid.data("n", [1], "int64"), fluid.data("start", [1])
    i = L.fill_constant([1], "int64", 0)
    array = L.array_write(start, i)
    go = L.less_than(i, n)
    loop = L.While(go)
    with loop.block():
        before = L.array_read(array, i)
        L.increment(i, 1)
        L.array_write(L.scale(before, 2.0), i, array)
        L.less_than(i, n, cond=go)
    joined, _ = L.tensor_array_to_tensor(array, axis=0)
    length, found = run([L.array_length(array), joined], n=np.array([4]), start=np.array([3], "float32"))
    assert (length.tolist(), found.tolist()) == ([5], [3, 6, 12, 24, 48])


def test_more_rounds_than_an_array_has_room_for_are_an_error():
    n, i = fluid.data("n", [1], "int64"), L.fill_constant([1], "int64", 0)
    array, go = L.create_array("int64", capacity=3), L.less_than(i, n)
    loop = L.While(go)
    with loop.block():
        L.array_write(i, i, array)
        L.increment(i, 1)
        L.less_than(i, n, cond=go)
    with pytest.raises(RuntimeError, match=r"out of range \[0, 3\)"):
        run([L.array_length(array)], n=np.array([4]))


def test_a_dynamic_rnn_adds_up_every_sequence(rng):
    x = fluid.data("x", [None, 2], lod_level=1)
    rnn = L.DynamicRNN()
    with rnn.block():
        row = rnn.step_input(x)
        total = rnn.memory(shape=[2], value=1.0)
        after = L.elementwise_add(row, total)
        rnn.update_memory(total, after)
        rnn.output(after)
    value = rng.standard_normal((6, 2)).astype("float32")
    (found,) = run([rnn()], x=fluid.create_lod_tensor(value, [[1, 3, 2]], fluid.CPUPlace()))
    expected = np.concatenate([1 + np.cumsum(part, 0) for part in np.split(value, [1, 4])])
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_sequences_in_the_order_of_other_lengths():
    x, y = (fluid.data(n, [None, 1], lod_level=1) for n in "xy")
    found = L.reorder_lod_tensor_by_rank(x, L.lod_rank_table(y))
    row = np.arange(6, dtype="float32")[:, None]
    feed = {n: fluid.create_lod_tensor(row, [lengths], fluid.CPUPlace()) for n, lengths in (("x", [1, 2, 3]), ("y", [2, 3, 1]))}
    (tensor,) = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[found], return_numpy=False)
    assert np.array(tensor).ravel().tolist() == [1, 2, 0, 3, 4, 5]
    assert tensor.recursive_sequence_lengths() == [[2, 1, 3]]


def test_beam_search_finds_the_best_of_all_sequences(rng):
    table = rng.standard_normal((5, 5)).astype("float32")
    cell_of = fluid.data("table", [5, 5])

    class Cell(L.RNNCell):
        def call(self, inputs, states):
            return L.gather(cell_of, L.reshape(inputs, [-1])), states

    decoder = L.BeamSearchDecoder(Cell(), start_token=0, end_token=4, beam_size=5)
    start = fluid.data("start", [None, 1])
    ids, _ = L.dynamic_decode(decoder, inits=start, max_step_num=1)
    (found,) = run([ids], table=table, start=np.zeros((2, 1), "float32"))
    logs = table - np.log(np.exp(table.astype("float64")).sum(1, keepdims=True))
    both = {(a, b): logs[0, a] + logs[a, b] for a in range(4) for b in range(5)} | {(4, 4): logs[0, 4]}
    best = sorted(both, key=both.get, reverse=True)[:5]
    assert [tuple(found[k, :, beam]) for k in range(2) for beam in range(5)] == best * 2


def test_what_a_decoders_own_end_misses_is_told():
    class Ends(fluid.layers.BasicDecoder):
        def finalize(self, outputs, final_states, sequence_lengths):
            raise NotImplementedError("no end of this kind")

    with fluid.program_guard(fluid.Program(), fluid.Program()):
        inputs = fluid.data("inputs", [-1, 3, 4])
        helper = fluid.layers.TrainingHelper(inputs, fluid.data("lengths", [-1], "int64"))
        cell = fluid.layers.GRUCell(4)
        with pytest.raises(NotImplementedError, match="no end of this kind"):
            fluid.layers.dynamic_decode(Ends(cell, helper), inits=cell.get_initial_states(inputs), max_step_num=2)


def test_given_inputs_may_have_any_number_of_steps():
    def decoded(steps):
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()), fluid.unique_name.guard():
            fluid.default_startup_program().random_seed = 5
            inputs, lengths = fluid.data("inputs", [None, steps, 4]), fluid.data("lengths", [None], "int64")
            cell = fluid.layers.GRUCell(3)
            decoder = fluid.layers.BasicDecoder(cell, fluid.layers.TrainingHelper(inputs, lengths))
            made = fluid.layers.dynamic_decode(decoder, inits=cell.get_initial_states(inputs), return_length=True)
            fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(made[0].cell_outputs))
            exe = fluid.Executor(fluid.CPUPlace())
            exe.run(fluid.default_startup_program())
            feed = {"inputs": np.linspace(-1, 1, 24, dtype="float32").reshape(2, 3, 4), "lengths": np.array([3, 2])}
            return [exe.run(feed=feed, fetch_list=[made[0].cell_outputs, made[2]]) for _ in range(2)]

    for known, fed in zip(decoded(3), decoded(None), strict=True):
        np.testing.assert_array_equal(known[0], fed[0])
        np.testing.assert_array_equal(known[1], fed[1])


def test_beams_of_samples_whose_other_sizes_are_open(rng):
    x = fluid.data("x", [None, None, 3])
    value = rng.standard_normal((2, 5, 3)).astype("float32")
    (found,) = run([L.BeamSearchDecoder.tile_beam_merge_with_batch(x, 4)], x=value)
    np.testing.assert_array_equal(found, np.repeat(value, 4, 0))


def test_a_dynamic_rnn_goes_through_sequences_of_sequences(rng):
    x, more = (L.data(name, [2], lod_level=2) for name in ("x", "more"))
    same = L.data("same", [2], lod_level=1)
    rnn = L.DynamicRNN()
    with rnn.block():
        a, b, c = rnn.step_input(L.scale(x, 2.0)), rnn.step_input(more), rnn.static_input(same)
        inner = L.DynamicRNN()
        with inner.block():
            row, total = inner.step_input(a), inner.memory(shape=[2])
            after = L.elementwise_add(row, total)
            inner.update_memory(total, after)
            inner.output(after)
        rnn.output(inner(), L.sequence_pool(b, "max") + L.sequence_pool(c, "sum"))
        with pytest.raises(NotImplementedError, match="a memory while it goes through sequences of sequences"):
            rnn.memory(shape=[2])
    value, beside, whole = (rng.standard_normal((rows, 2)).astype("float32") for rows in (9, 6, 4))
    lengths = [[2, 1], [3, 4, 2]]
    fed = {"x": (value, lengths), "more": (beside, [[2, 1], [1, 2, 3]]), "same": (whole, [[1, 3]])}
    feed = {name: fluid.create_lod_tensor(*given, fluid.CPUPlace()) for name, given in fed.items()}
    executor = fluid.Executor(fluid.CPUPlace())
    sums, pooled = executor.run(feed=feed, fetch_list=list(rnn()), return_numpy=False)
    assert (sums.recursive_sequence_lengths(), pooled.recursive_sequence_lengths()) == (lengths, [[2, 1]])
    np.testing.assert_allclose(sums, np.concatenate([2 * np.cumsum(p, 0) for p in np.split(value, [3, 7])]), rtol=1e-5)
    rows = [p.max(0) + whole[:1].sum(0) for p in np.split(beside, [1, 3])[:2]] + [beside[3:].max(0) + whole[1:].sum(0)]
    np.testing.assert_allclose(pooled, rows, rtol=1e-5)


def test_a_branch_of_a_search_writes_its_arrays():
    count, go = L.fill_constant([1], "int64", 0), L.fill_constant([1], "bool", True)
    ids, scores = L.data("ids", [1], dtype="int64", lod_level=2), L.data("scores", [1], lod_level=2)
    chances = fluid.data("chances", [None, 3])
    arrays = [L.array_write(v, count) for v in (ids, scores, chances)]
    loop = L.While(go)
    with loop.block():
        before, scored, state = (L.array_read(array, count) for array in arrays)
        state = L.sequence_expand(state, scored)
        best, places = L.topk(state, 2)
        sums = L.elementwise_add(L.log(best), L.reshape(scored, [-1]), axis=0)
        chosen = L.beam_search(before, scored, places, sums, 2, end_id=2, level=0)
        with L.Switch() as switch:
            with switch.case(L.is_empty(chosen[0])):
                L.fill_constant([1], "bool", False, out=go)
            with switch.default():
                L.increment(count)
                for value, array in zip((*chosen, state), arrays, strict=True):
                    L.array_write(value, count, array)
                L.less_than(count, L.fill_constant([1], "int64", 3), cond=go)
    found, _ = L.beam_search_decode(*arrays[:2], beam_size=2, end_id=2)
    one = [[1], [1]]
    kinds = {"ids": "int64", "scores": "float32"}
    feed = {name: fluid.create_lod_tensor(np.zeros((1, 1), kind), one, fluid.CPUPlace()) for name, kind in kinds.items()}
    (best,) = fluid.Executor(fluid.CPUPlace()).run(
        feed={**feed, "chances": np.float32([[0.1, 0.6, 0.3]])}, fetch_list=[found], return_numpy=False
    )
    # 0.3 ends at once, and stays before 0.6 * 0.6 * 0.6.
    assert np.array(best).ravel().tolist() == [0, 2, 0, 1, 1, 1]
    assert best.recursive_sequence_lengths() == [[2], [2, 4]]
