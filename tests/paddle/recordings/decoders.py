"""Inference models that decode word by word, for `loops.py`."""

import numpy as np

DRAWS = np.random.RandomState(12)
STEPS = DRAWS.rand(3, 4, 5).astype("float32")
ROWS = DRAWS.rand(7, 5).astype("float32")
STATE = DRAWS.rand(3, 6).astype("float32")
WORDS = DRAWS.randint(0, 20, (7, 1)).astype("int64")
LODS = [[1] * 3, [1] * 3]


def beam(fluid):
    """The decoder of the book's machine_translation."""
    L = fluid.layers
    dict_size, word_dim, width, beam_size, max_length, end = 20, 5, 6, 2, 5, 1
    context = fluid.data("context", [None, width])
    init_ids = fluid.data("init_ids", [None, 1], "int64", lod_level=2)
    init_scores = fluid.data("init_scores", [None, 1], lod_level=2)
    length = L.fill_constant([1], "int64", max_length)
    counter = L.zeros([1], "int64", force_cpu=True)
    states, ids_array, scores_array = L.create_array("float32"), L.create_array("int64"), L.create_array("float32")
    L.array_write(context, array=states, i=counter)
    L.array_write(init_ids, array=ids_array, i=counter)
    L.array_write(init_scores, array=scores_array, i=counter)
    cond = L.less_than(counter, length)
    loop = L.While(cond)
    with loop.block():
        pre_ids, pre_state, pre_score = (
            L.array_read(ids_array, counter),
            L.array_read(states, counter),
            L.array_read(scores_array, counter),
        )
        pre_state_expanded = L.sequence_expand(pre_state, pre_score)
        pre_emb = L.embedding(pre_ids, [dict_size, word_dim], dtype="float32", is_sparse=True)
        current = L.fc([pre_state_expanded, pre_emb], width, act="tanh")
        with_lod = L.lod_reset(current, pre_score)
        score = L.fc(with_lod, dict_size, act="softmax")
        topk_scores, topk_ids = L.topk(score, beam_size)
        accu = L.elementwise_add(L.log(topk_scores), L.reshape(pre_score, [-1]), axis=0)
        ids, scores = L.beam_search(pre_ids, pre_score, topk_ids, accu, beam_size, end_id=end, level=0)
        L.increment(counter, 1, in_place=True)
        L.array_write(current, array=states, i=counter)
        L.array_write(ids, array=ids_array, i=counter)
        L.array_write(scores, array=scores_array, i=counter)
        length_cond = L.less_than(counter, length)
        finish = L.logical_not(L.is_empty(ids))
        L.logical_and(length_cond, finish, out=cond)
    found, scored = L.beam_search_decode(ids_array, scores_array, beam_size, end)
    place = fluid.CPUPlace()
    lods = [[1] * 3, [1] * 3]
    return {
        "context": STATE,
        "init_ids": fluid.create_lod_tensor(np.zeros((3, 1), "int64"), lods, place),
        "init_scores": fluid.create_lod_tensor(np.ones((3, 1), "float32"), lods, place),
    }, [found, scored]


def decode(fluid):
    """dynamic_decode with beams."""
    L = fluid.layers
    state = fluid.data("state", [None, 6])
    cell = L.GRUCell(6)
    decoder = L.BeamSearchDecoder(
        cell,
        0,
        1,
        2,
        embedding_fn=lambda x: fluid.embedding(x, [20, 5], param_attr="emb"),
        output_fn=lambda x: L.fc(x, 20, num_flatten_dims=2, param_attr="ow", bias_attr="ob"),
    )
    outputs, _ = L.dynamic_decode(decoder, inits=state, max_step_num=5)
    return {"state": STATE}, [outputs]


def fast_decode(fluid):
    """A loop whose caches grow, as that of Transformer's fast_decode."""
    L = fluid.layers
    x = fluid.data("x", [None, 1, 6])
    i, n = L.fill_constant([1], "int64", 0), L.fill_constant([1], "int64", 4)
    cache = L.fill_constant_batch_size_like(x, [-1, 0, 6], "float32", 0.0)
    y = L.scale(x, 1.0)
    going = L.less_than(i, n)
    loop = L.While(going)
    with loop.block():
        more = L.concat([cache, y], 1)
        L.assign(more, cache)
        weights = L.softmax(L.matmul(y, more, transpose_y=True))
        L.assign(L.fc(L.matmul(weights, more), 6, num_flatten_dims=2, act="tanh"), y)
        L.increment(i)
        L.less_than(i, n, cond=going)
    return {"x": STATE.reshape(3, 1, 6)}, [cache, y]


def attention(fluid):
    """An attention decoder over sequences, as that of the book and of OCR."""
    L = fluid.layers
    x = fluid.data("x", [None, 5], lod_level=1)
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    encoded = L.fc(x, 6)
    projected = L.fc(encoded, 6, bias_attr=False)
    first = L.fc(L.sequence_pool(x, "first"), 6, act="tanh")
    embedded, rnn = L.embedding(words, [20, 4]), L.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(embedded)
        vectors, keys = rnn.static_input(encoded), rnn.static_input(projected)
        state = rnn.memory(init=first, need_reorder=True)
        query = L.sequence_expand(L.fc(state, 6, bias_attr=False), keys)
        weights = L.sequence_softmax(L.fc(L.elementwise_add(keys, query), 1, act="tanh", bias_attr=False))
        context = L.sequence_pool(L.elementwise_mul(vectors, L.reshape(weights, [-1]), axis=0), "sum")
        now, _, _ = L.gru_unit(L.fc([context, word], 18), state, 18)
        rnn.update_memory(state, now)
        rnn.output(L.fc(now, 20, act="softmax"))
    place = fluid.CPUPlace()
    return {
        "x": fluid.create_lod_tensor(ROWS, [[2, 4, 1]], place),
        "words": fluid.create_lod_tensor(WORDS, [[3, 2, 2]], place),
    }, [rnn()]


def transformer_decode(fluid):
    """Beam search whose caches are gathered by parents, as Transformer's fast_decode."""
    L = fluid.layers
    x = fluid.data("x", [None, 1, 6])
    start = fluid.data("start", [None, 1, 1], "int64", lod_level=2)
    scores0 = fluid.data("scores", [None, 1], lod_level=2)
    parent0 = fluid.data("parent", [None], "int32")
    limit, step = L.fill_constant([1], "int64", 5), L.fill_constant([1], "int64", 0)
    cond = L.less_than(step, limit)
    loop = L.While(cond)
    ids_array, scores_array = L.array_write(L.reshape(start, (-1, 1)), step), L.array_write(scores0, step)
    cache = L.fill_constant_batch_size_like(scores0, [-1, 0, 6], "float32", 0.0)
    states = L.scale(x, 1.0)
    with loop.block():
        pre_ids = L.reshape(L.array_read(ids_array, step), (-1, 1, 1), inplace=True)
        pre_scores = L.array_read(scores_array, step)
        parent_idx = L.assign(parent0) if False else parent0
        states_now = L.gather(states, parent_idx)
        cache_now = L.gather(cache, parent_idx)
        word = L.reshape(L.embedding(pre_ids, [20, 6], param_attr="emb"), [-1, 1, 6])
        keys = L.concat([cache_now, word], 1)
        weights = L.softmax(L.matmul(L.elementwise_add(word, states_now), keys, transpose_y=True))
        out = L.fc(L.matmul(weights, keys), 20, num_flatten_dims=2)
        logits = L.reshape(out, (-1, 20))
        topk_scores, topk_ids = L.topk(L.softmax(logits), 2)
        accu = L.lod_reset(L.elementwise_add(L.log(topk_scores), L.reshape(pre_scores, [-1]), axis=0), pre_ids)
        selected_ids, selected_scores, parents = L.beam_search(
            pre_ids=L.reshape(pre_ids, (-1, 1), inplace=True)
            if False
            else L.reshape(L.array_read(ids_array, step), (-1, 1)),
            pre_scores=pre_scores,
            ids=topk_ids,
            scores=accu,
            beam_size=2,
            end_id=1,
            return_parent_idx=True,
        )
        L.increment(step, 1.0, in_place=True)
        L.array_write(selected_ids, step, ids_array)
        L.array_write(selected_scores, step, scores_array)
        L.assign(parents, parent0)
        L.assign(keys, cache)
        L.assign(states_now, states)
        length_cond = L.less_than(step, limit)
        L.logical_and(length_cond, L.logical_not(L.is_empty(selected_ids)), out=cond)
    found, scored = L.beam_search_decode(ids_array, scores_array, beam_size=2, end_id=1)
    place, lods = fluid.CPUPlace(), [[1] * 3, [1] * 3]
    return {
        "x": STATE.reshape(3, 1, 6),
        "start": fluid.create_lod_tensor(np.zeros((3, 1, 1), "int64"), lods, place),
        "scores": fluid.create_lod_tensor(np.zeros((3, 1), "float32"), lods, place),
        "parent": np.arange(3).astype("int32"),
    }, [found, scored]


def greedy(fluid):
    """dynamic_decode with an embedding of the likeliest word."""
    L = fluid.layers
    state = fluid.data("state", [None, 6])
    cell = L.GRUCell(6)

    def embed(ids):
        return fluid.embedding(ids, [20, 5], param_attr="emb")

    helper = L.GreedyEmbeddingHelper(embed, L.fill_constant_batch_size_like(state, [-1], "int64", 0), 1)
    decoder = L.BasicDecoder(cell, helper, output_fn=lambda x: L.fc(x, 20, param_attr="ow", bias_attr="ob"))
    outputs, final, lengths = L.dynamic_decode(decoder, inits=state, max_step_num=5, return_length=True)
    return {"state": STATE}, [outputs.cell_outputs, outputs.sample_ids, final, lengths]


def teacher(fluid):
    """dynamic_decode with given inputs."""
    L = fluid.layers
    x = fluid.data("x", [None, None, 5])
    n = fluid.data("n", [None], "int64")
    cell = L.LSTMCell(6)
    decoder = L.BasicDecoder(cell, L.TrainingHelper(x, n))
    outputs, _ = L.dynamic_decode(decoder, inits=cell.get_initial_states(x), is_test=True)
    return {"x": STEPS, "n": np.array([4, 2, 3], "int64")}, [outputs.cell_outputs]


DECODERS = {f.__name__: f for f in (beam, decode, fast_decode, attention, transformer_decode, greedy, teacher)}
