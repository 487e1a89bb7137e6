"""beam_search in a While, as in the original's machine translation, against a search in NumPy; other loops that go round on the host."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid

L = fluid.layers
WORDS, WIDE, UNITS, BEAM, MOST, END = 9, 3, 4, 2, 5, 8


def attr(name):
    return fluid.ParamAttr(name=name, initializer=fluid.initializer.Normal(0.0, 1.0))


def translate(ends):
    """Append the search; return sentences, their scores, the rounds and what the decoder begins with."""
    source = fluid.data("source", [None, 1], "int64", lod_level=1)
    seen = L.embedding(source, [WORDS, WIDE], param_attr=attr("words"))
    context = L.sequence_last_step(L.fc(seen, UNITS, param_attr=attr("w"), act="tanh"))
    limit, counter = L.fill_constant([1], "int64", MOST), L.zeros([1], "int64", force_cpu=True)
    states = L.create_array("float32")
    L.array_write(context, array=states, i=counter)
    ids, scores = L.create_array("int64"), L.create_array("float32")
    L.array_write(L.data("first_ids", [1], dtype="int64", lod_level=2), array=ids, i=counter)
    L.array_write(L.data("first_scores", [1], dtype="float32", lod_level=2), array=scores, i=counter)
    go = L.less_than(counter, limit)
    loop = L.While(go)
    with loop.block():
        old_ids, old_state, old_score = (L.array_read(array=a, i=counter) for a in (ids, states, scores))
        state = L.sequence_expand(old_state, old_score)
        word = L.embedding(old_ids, [WORDS, WIDE], param_attr=attr("words"))
        state = L.fc([state, word], UNITS, act="tanh", param_attr=[attr("ws"), attr("we")], bias_attr=False)
        bias = fluid.ParamAttr(name="bo", initializer=fluid.initializer.NumpyArrayInitializer(np.eye(WORDS)[END].astype("float32") * ends))
        chances = L.fc(L.lod_reset(state, old_score), WORDS, act="softmax", param_attr=attr("wo"), bias_attr=bias)
        best, places = L.topk(chances, BEAM)
        total = L.elementwise_add(L.log(best), L.reshape(old_score, [-1]), axis=0)
        chosen, chosen_scores = L.beam_search(old_ids, old_score, places, total, BEAM, END, level=0)
        L.increment(counter, 1, in_place=True)
        L.array_write(state, array=states, i=counter)
        L.array_write(chosen, array=ids, i=counter)
        L.array_write(chosen_scores, array=scores, i=counter)
        L.logical_and(L.less_than(counter, limit), L.logical_not(L.is_empty(chosen)), out=go)
    return (*L.beam_search_decode(ids, scores, BEAM, END), L.array_length(ids), context)


def searched(context, value):
    """Return the best sequences of a sample, the best first, and how many rounds the search takes."""
    beams, rounds = [([0], [0.0], context)], 0
    while rounds < MOST:
        rounds += 1
        found = []
        for row, (ids, scores, state) in enumerate(beams):
            if ids[-1] == END:
                found.append((scores[-1], row, END, state))
                continue
            after = np.tanh(state @ value("ws") + value("words")[ids[-1]] @ value("we"))
            logits = after @ value("wo") + value("bo")
            logs = logits - np.log(np.exp(logits).sum())
            found += [(scores[-1] + logs[i], row, i, after) for i in np.argsort(-logs)[:BEAM]]
        kept = sorted(found, key=lambda f: -f[0])[:BEAM]
        if all(i == END and beams[row][0][-1] == END for _, row, i, _ in kept):
            break
        beams = [([*beams[row][0], i], [*beams[row][1], s], state) for s, row, i, state in kept]
    ends = [ids.index(END) + 1 if END in ids else len(ids) for ids, _, _ in beams]
    return sorted(((ids[:n], scores[:n]) for n, (ids, scores, _) in zip(ends, beams, strict=True)), key=lambda b: -b[1][-1]), rounds


@pytest.mark.parametrize("ends", [-5.0, 1.5, 4.0], ids=["no sequence ends", "some sequences end", "all sequences end early"])
def test_beam_search_in_a_loop_finds_what_a_search_by_hand_finds(ends):
    fluid.default_startup_program().random_seed = 7
    fetches = translate(ends)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    place, ones = fluid.CPUPlace(), [[1, 1, 1]] * 2
    feed = {
        "source": fluid.create_lod_tensor(np.arange(6)[:, None], [[2, 3, 1]], place),
        "first_ids": fluid.create_lod_tensor(np.zeros((3, 1), "int64"), ones, place),
        "first_scores": fluid.create_lod_tensor(np.zeros((3, 1), "float32"), ones, place),
    }

    def value(name):
        return np.array(fluid.global_scope().find_var(name).get_tensor()).astype("float64")

    for _ in range(2):  # the second run finds the plans of the first
        ids, scores, length, context = executor.run(feed=feed, fetch_list=list(fetches), return_numpy=False)
        expected = [searched(row, value) for row in np.array(context).astype("float64")]
        sentences = [s for found, _ in expected for s in found]
        assert ids.recursive_sequence_lengths() == [[BEAM] * 3, [len(i) for i, _ in sentences]]
        assert np.array(ids).ravel().tolist() == [i for found, _ in sentences for i in found]
        np.testing.assert_allclose(np.array(scores).ravel(), [s for _, found in sentences for s in found], rtol=1e-4, atol=1e-5)
        assert int(np.array(length)[0]) == 1 + max(rounds for _, rounds in expected)


def picked(limit, bound=0):
    """Append a loop that halves the numbers above 1, however many there are."""
    x, i = fluid.data("x", [None, 1]), L.fill_constant([1], "int64", 0)
    array = L.array_write(x, i)
    go = L.less_than(i, L.fill_constant([1], "int64", limit))
    loop = L.While(go, bound=bound)
    with loop.block():
        now = L.array_read(array, i)
        places = L.where(L.greater_than(L.reshape(now, [-1]), L.fill_constant([1], "float32", 1.0)))
        L.increment(i, 1)
        L.array_write(L.scale(L.gather(now, L.reshape(places, [-1])), 0.5), i, array)
        L.less_than(i, L.fill_constant([1], "int64", limit), cond=go)
    return array, i


def test_sizes_may_change_from_round_to_round():
    array, i = picked(2)
    x = np.array([[1], [2], [3], [8]], "float32")
    (found,) = fluid.Executor(fluid.CPUPlace()).run(feed={"x": x}, fetch_list=[L.array_read(array, i)])
    assert found.tolist() == [[0.75], [2]]


def test_more_rounds_than_the_bound_are_an_error():
    _, i = picked(4, bound=3)
    with pytest.raises(RuntimeError, match="after 3 rounds"):
        fluid.Executor(fluid.CPUPlace()).run(feed={"x": np.ones((2, 1), "float32")}, fetch_list=[i])


def test_tensors_of_such_arrays_are_joined():
    array, _ = picked(2)
    joined, sizes = L.tensor_array_to_tensor(array, axis=0)
    x = np.array([[1], [2], [3], [8]], "float32")
    found = fluid.Executor(fluid.CPUPlace()).run(feed={"x": x}, fetch_list=[joined, sizes])
    assert found[0].ravel().tolist() == [1, 2, 3, 8, 1, 1.5, 4, 0.75, 2]
    assert found[1].tolist() == [4, 3, 2]


def test_tensors_of_other_sizes_are_not_stacked():
    array, _ = picked(2)
    joined, _ = L.tensor_array_to_tensor(array, axis=0, use_stack=True)
    with pytest.raises(RuntimeError, match=r"tensors of \[\[4, 1\], \[3, 1\], \[2, 1\]\] along axis 0"):
        fluid.Executor(fluid.CPUPlace()).run(feed={"x": np.array([[1], [2], [3], [8]], "float32")}, fetch_list=[joined])


def test_a_place_that_was_not_written_is_an_error():
    array, _ = picked(2)
    found = L.array_read(array, L.fill_constant([1], "int64", 7))
    with pytest.raises(RuntimeError, match="nothing was written at 7"):
        fluid.Executor(fluid.CPUPlace()).run(feed={"x": np.ones((2, 1), "float32")}, fetch_list=[found])
