"""fluid.contrib.decoder: numbers that PaddlePaddle 1.8.5 gave for a cell that learns and for one that searches."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from pe_cli.paddle.errors import FluidTypeError, FluidValueError
from pe_cli.paddle.fluid.contrib.decoder.beam_search_decoder import (
    BeamSearchDecoder,
    InitState,
    StateCell,
    TrainingDecoder,
)

L = fluid.layers
WORDS, WIDE, UNITS = 7, 3, 4
SIZES = ((WORDS, WIDE), (UNITS, UNITS), (WIDE, UNITS), (UNITS, WORDS))
TABLE, FROM_STATE, FROM_WORD, TO_WORDS = (
    np.sin(np.arange(rows * columns) * (k + 1.3)).reshape(rows, columns).astype("float32") for k, (rows, columns) in enumerate(SIZES)
)
CONTEXT = np.cos(np.arange(12.0)).reshape(3, 4).astype("float32")


def attr(name, values):
    return fluid.ParamAttr(name=name, initializer=fluid.initializer.NumpyArrayInitializer(values))


def cell_of(context, *, reorder):
    cell = StateCell(inputs={"x": None}, states={"h": InitState(init=context, need_reorder=reorder)}, out_state="h")

    @cell.state_updater
    def step(c):
        attrs = [attr("from_state", FROM_STATE), attr("from_word", FROM_WORD)]
        c.set_state("h", L.fc([c.get_state("h"), c.get_input("x")], UNITS, act="tanh", param_attr=attrs, bias_attr=False))

    return cell


def close(found, right):
    np.testing.assert_allclose(np.array(found), right, atol=1e-4)


def test_a_cell_that_learns():
    context = fluid.data("c", [None, UNITS], "float32")
    words = fluid.data("w", [None, 1], "int64", lod_level=1)
    decoder = TrainingDecoder(cell_of(context, reorder=True))
    vectors = L.embedding(words, [WORDS, WIDE], param_attr=attr("table", TABLE))
    with pytest.raises(FluidValueError, match="step_input outside of its block"):
        decoder.step_input(vectors)
    with decoder.block():
        decoder.state_cell.compute_state(inputs={"x": decoder.step_input(vectors)})
        state = decoder.state_cell.get_state("h")
        chances = L.fc(state, WORDS, act="softmax", param_attr=attr("to_words", TO_WORDS), bias_attr=False)
        decoder.state_cell.update_states()
        decoder.output(chances)
    out = decoder()
    block = fluid.default_main_program().global_block()
    slopes = fluid.gradients(L.reduce_sum(out * out), [block.var("from_state"), block.var("table")])
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    feed = {"c": CONTEXT, "w": fluid.create_lod_tensor(np.arange(1, 7)[:, None], [[1, 3, 2]], fluid.CPUPlace())}
    got, by_state, by_table = exe.run(feed=feed, fetch_list=[out, *slopes], return_numpy=False)
    assert got.lod() == [[0, 1, 4, 6]]
    close(got, [
        [0.1669, 0.1429, 0.1143, 0.1596, 0.1526, 0.1133, 0.1505], [0.1081, 0.2611, 0.0935, 0.0882, 0.2581, 0.1157, 0.0752],
        [0.1001, 0.1012, 0.2319, 0.118, 0.0885, 0.219, 0.1413], [0.1663, 0.1963, 0.0782, 0.1386, 0.2199, 0.0857, 0.115],
        [0.1134, 0.1193, 0.1989, 0.1255, 0.1089, 0.1934, 0.1406], [0.1366, 0.108, 0.1743, 0.1502, 0.1048, 0.1623, 0.1638],
    ])  # fmt: skip
    close(by_state, [
        [0.0391, -0.019, -0.0789, 0.0038], [-0.0586, -0.0429, 0.0468, 0.0393], [-0.0602, -0.0237, 0.1267, 0.014],
        [-0.0706, -0.0136, 0.0967, 0.0212],
    ])  # fmt: skip
    close(by_table, [
        [0, 0, 0], [-0.0029, -0.0067, -0.0079], [0.0321, 0.0502, 0.0488], [0.0046, 0.0076, 0.0076], [-0.0011, -0.0042, -0.0057],
        [0.0003, -0.0037, -0.0064], [0.0062, 0.0265, 0.0365],
    ])  # fmt: skip


class Written(BeamSearchDecoder):
    """A decoder whose block is written out, with arrays and a stop of its own, as a class over the original's would."""

    stop = None

    def decode(self):
        with self.block():
            ids, scores = self.read_array(self._init_ids, is_ids=True), self.read_array(self._init_scores, is_scores=True)
            steps = self.read_array(self.stop) if self.stop is not None else None
            word = L.embedding(ids, size=[WORDS, WIDE])
            self.state_cell.set_state("h", L.sequence_expand(self.state_cell.get_state("h"), scores))
            self.state_cell.compute_state(inputs={"x": word})
            chances = L.fc(L.lod_reset(self.state_cell.out_state(), scores), WORDS, act="softmax")
            best, places = L.topk(chances, k=4)
            total = L.elementwise_add(L.log(best), L.reshape(scores, [-1]), axis=0)
            chosen, chosen_scores = L.beam_search(ids, scores, places, total, 2, 1, level=0)
            if steps is not None:
                left = L.scale(steps, 1.0, -1.0)
                self.update_array(steps, left)
                with L.Switch() as out_of_steps, out_of_steps.case(L.less_than(left, L.fill_constant([1], "float32", 0.0))):
                    self.early_stop()
            with L.Switch() as switch:
                with switch.case(L.is_empty(chosen)):
                    self.early_stop()
                with switch.default():
                    self.state_cell.update_states()
                    self.update_array(ids, chosen)
                    self.update_array(scores, chosen_scores)


def searched(kind=BeamSearchDecoder, stop=None, max_len=4):
    """Return ids and scores that a decoder of a kind finds."""
    context = fluid.data("c", [None, UNITS], "float32")
    first = [L.data(name, [1], dtype=dtype, lod_level=2) for name, dtype in (("i", "int64"), ("s", "float32"))]
    decoder = kind(cell_of(context, reorder=False), *first, WORDS, WIDE, topk_size=4, max_len=max_len, beam_size=2, end_id=1)
    if stop is not None:
        decoder.stop = L.fill_constant([1], "float32", stop)
    decoder.decode()
    exe, place = fluid.Executor(fluid.CPUPlace()), fluid.CPUPlace()
    exe.run(fluid.default_startup_program())
    own = {(WORDS, WIDE): TABLE, (UNITS, WORDS): TO_WORDS * 2, (WORDS,): np.eye(WORDS, dtype="float32")[1]}
    for p in fluid.default_main_program().all_parameters():
        if tuple(p.shape) in own:
            fluid.global_scope().find_var(p.name).get_tensor().set(own[tuple(p.shape)], place)
    feed = {"c": CONTEXT} | {
        name: fluid.create_lod_tensor(np.zeros((3, 1), dtype), [[1] * 3] * 2, place) for name, dtype in (("i", "int64"), ("s", "float32"))
    }
    return exe.run(feed=feed, fetch_list=list(decoder()), return_numpy=False)


@pytest.mark.parametrize("kind", [BeamSearchDecoder, Written])
def test_a_cell_that_searches(kind):
    ids, scores = searched(kind)
    assert ids.lod() == [[0, 2, 4, 6], [0, 3, 7, 10, 14, 17, 21]]
    assert np.ravel(ids).tolist() == [0, 2, 1, 0, 5, 2, 1, 0, 2, 1, 0, 5, 2, 1, 0, 2, 1, 0, 5, 2, 1]
    close(np.ravel(scores), [
        0, -0.8948, -1.7939, 0, -1.0813, -1.8244, -2.264, 0, -1.3383, -2.1327, 0, -1.4542, -2.4935, -3.0509, 0, -1.3072, -2.1138,
        0, -1.4694, -2.4354, -2.9815,
    ])  # fmt: skip


def test_a_step_that_stops_the_search_does_not_count():
    # two steps count, and the third one stops: as if two were the most
    ids, scores = searched(Written, stop=2)
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        shorter, shorter_scores = searched(Written, max_len=2)
    assert ids.lod() == shorter.lod()
    # the first words of the whole sentences
    assert np.ravel(ids).tolist() == np.ravel(shorter).tolist() == [0, 2, 1, 0, 5, 2] * 3
    np.testing.assert_array_equal(np.ravel(scores), np.ravel(shorter_scores))


def test_what_a_block_of_a_search_refuses():
    context = fluid.data("c", [None, UNITS], "float32")
    first = [L.data(name, [1], dtype=dtype, lod_level=2) for name, dtype in (("i", "int64"), ("s", "float32"))]
    decoder = BeamSearchDecoder(cell_of(context, reorder=False), *first, WORDS, WIDE)
    for outside in (lambda: decoder.read_array(first[0]), decoder.early_stop, lambda: decoder.state_cell):
        with pytest.raises(FluidValueError, match="outside of its block"):
            outside()
    with pytest.raises(FluidValueError, match="behind decode"):
        decoder()
    with decoder.block():
        ids = decoder.read_array(first[0], is_ids=True)
        with pytest.raises(FluidTypeError, match="takes a variable, got int"):
            decoder.read_array(3)
        with pytest.raises(FluidValueError, match="ids and of scores"):
            decoder.read_array(first[0], is_ids=True, is_scores=True)
        with pytest.raises(FluidTypeError, match="update_array"):
            decoder.update_array(ids, 3)
        with pytest.raises(FluidValueError, match="read_array before update_array"):
            decoder.update_array(first[0], ids)
        decoder.update_array(ids, ids)
    with pytest.raises(FluidValueError, match="a second block"), decoder.block():
        pass
    with pytest.raises(FluidValueError, match="no ids or no scores"):
        decoder()


def test_what_a_cell_does_not_have():
    context = fluid.data("c", [None, UNITS], "float32")
    with pytest.raises(FluidValueError, match="init or init_boot"):
        InitState()
    with pytest.raises(FluidValueError, match="out_state is 'g'"):
        StateCell({"x": None}, {"h": InitState(init=context)}, "g")
    cell = cell_of(InitState(init_boot=context, shape=[-1, UNITS]).value, reorder=False)
    with pytest.raises(FluidValueError, match="no state 'h' now"):
        cell.get_state("h")
    with pytest.raises(FluidValueError, match="no input 'y'"):
        cell.compute_state({"y": context})
