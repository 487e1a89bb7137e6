"""How many names of each key programs use up: run by PaddlePaddle 1.8.5 (`python -m tests.paddle.recordings.names_used FILE`) and by tests.

Names of what a program appends later follow from these numbers.
"""

import sys

from tests.paddle.recordings.programs import FEEDS, LAYERS, inputs

FEEDS.update({
    "long": ([None, 5, 6], "float32", 0),
    "lengths": ([None], "int64", 0),
    "short_lengths": ([None], "int32", 0),
    "start": ([None], "int64", 0),
    "state": ([None, 4], "float32", 0),
    "flag": ([1], "bool", 0),
    "number": ([1], "int64", 0),
    "nested": ([None, 6], "float32", 2),
    "fixed": ([3], "float32", 0),
    "channels": ([4], "float32", 0),
    "size": ([1], "int32", 0),
    "two_sizes": ([2], "int32", 0),
    "known_index": ([4], "int64", 0),
    "chosen": ([None, 1], "bool", 0),
    "steps": ([5, None, 6], "float32", 0),
    "boxes": ([None, 4], "float32", 1),
    "box_labels": ([None, 1], "int64", 1),
    "locations": ([None, 3, 4], "float32", 0),
    "confidences": ([None, 3, 2], "float32", 0),
    "priors": ([3, 4], "float32", 0),
    "feature": ([None, 4, 4, 4], "float32", 0),
})


def _static_rnn(L, v):
    rnn = L.StaticRNN()
    with rnn.step():
        each = rnn.step_input(v.steps)
        memory = rnn.memory(shape=[-1, 6], batch_ref=each)
        after = L.elementwise_add(each, memory)
        rnn.update_memory(memory, after)
        rnn.step_output(after)
    return rnn()


def _dynamic_rnn(L, v):
    rnn = L.DynamicRNN()
    with rnn.block():
        each = rnn.step_input(v.rows)
        held = rnn.static_input(v.rows)
        memory = rnn.memory(shape=[6], value=0.0)
        after = L.fc([each, memory], 6)
        rnn.update_memory(memory, after)
        rnn.output(after, L.sequence_pool(held, "sum"))
    return rnn()


def _dynamic_rnn_of_sequences(L, v):
    rnn = L.DynamicRNN()
    with rnn.block():
        each = rnn.step_input(v.nested)
        other = rnn.step_input(v.nested)
        rnn.output(L.fc([each, other], 4), L.sequence_pool(each, "sum"))
    return rnn()


def _two_memories(L, v):
    rnn = L.DynamicRNN()
    with rnn.block():
        each = rnn.step_input(v.rows)
        memories = [rnn.memory(shape=[6], value=0.0) for _ in range(2)]
        for memory in memories:
            rnn.update_memory(memory, L.elementwise_add(each, memory))
        rnn.output(memories[0])
    return rnn()


def _dynamic_rnn_with_init(L, v):
    rnn = L.DynamicRNN()
    with rnn.block():
        each = rnn.step_input(v.rows)
        memory = rnn.memory(init=v.x, need_reorder=True)
        after = L.fc([each, memory], 6)
        rnn.update_memory(memory, after)
        rnn.output(after)
    return rnn()


def _if_else(L, v):
    branches = L.IfElse(v.chosen)
    with branches.true_block():
        branches.output(L.scale(branches.input(v.x), 2.0))
    with branches.false_block():
        branches.output(L.scale(branches.input(v.x), 3.0))
    return branches()


def _switch(L, v):
    rate = L.create_global_var([1], 0.0, "float32", persistable=True)
    with L.Switch() as switch:
        for limit in (3, 5):
            with switch.case(L.less_than(v.number, L.fill_constant([1], "int64", limit))):
                L.assign(L.fill_constant([1], "float32", 1.0), rate)
        with switch.default():
            L.assign(L.fill_constant([1], "float32", 2.0), rate)
    return rate


def _while(L, v):
    count, most = L.fill_constant([1], "int64", 0), L.fill_constant([1], "int64", 3)
    goes_on = L.less_than(count, most)
    with L.While(goes_on).block():
        L.increment(count)
        L.less_than(count, most, cond=goes_on)
    return count


def _arrays(L, v):
    array = L.create_array("float32")
    for place, value in enumerate((v.x, v.y)):
        L.array_write(value, L.fill_constant([1], "int64", place), array)
    other = L.array_write(v.x, L.fill_constant([1], "int64", 0))
    return [
        L.array_read(other, L.fill_constant([1], "int64", 0)), L.array_length(array), *L.tensor_array_to_tensor(array, 1),
    ]  # fmt: skip


def _decoder(L, v, cell, helper):
    return L.BasicDecoder(cell, helper, lambda out: L.fc(out, 7, num_flatten_dims=len(out.shape) - 1))


def _embedded(L):
    return lambda ids: L.embedding(L.reshape(ids, [-1, 1]), [7, 4], param_attr="e")


def _greedy(L, v):
    helper = L.GreedyEmbeddingHelper(_embedded(L), v.start, 1)
    return L.dynamic_decode(_decoder(L, v, L.GRUCell(4), helper), v.state, max_step_num=3)


def _sampling(L, v):
    helper = L.SampleEmbeddingHelper(_embedded(L), v.start, 1, softmax_temperature=2.0)
    return L.dynamic_decode(_decoder(L, v, L.GRUCell(4), helper), v.state, max_step_num=3, is_test=True)


def _teacher(L, v):
    helper = L.TrainingHelper(v.long, v.lengths)
    cell = L.LSTMCell(4)
    return L.dynamic_decode(_decoder(L, v, cell, helper), [v.state, v.state], max_step_num=3, impute_finished=True)


def _beams(L, v):
    fluid = sys.modules[L.__name__.rsplit(".", 1)[0]]

    def embedded(ids):
        return fluid.embedding(ids, [7, 4], param_attr="e")

    search = L.BeamSearchDecoder(L.GRUCell(4), 0, 1, 2, embedded, lambda out: L.fc(out, 7, num_flatten_dims=2))
    return L.dynamic_decode(search, v.state, max_step_num=3)


def _minimized(make):
    def build(L, v):
        fluid = sys.modules[L.__name__.rsplit(".", 1)[0]]
        loss = L.mean(L.fc(v.x, 2, param_attr=fluid.ParamAttr(learning_rate=2.0)))
        make(fluid).minimize(loss)
        return loss

    return build


def _clip(fluid, kind, *args):
    return fluid.optimizer.SGD(0.1, grad_clip=getattr(fluid.clip, kind)(*args))


def _heads(L, v):
    sizes = {"min_sizes": [2.0, 4.0], "max_sizes": [4.0, 8.0], "aspect_ratios": [[1.0], [1.0]], "base_size": 8, "num_classes": 2}
    return list(L.multi_box_head([v.image, v.feature], v.image, **sizes))


def _contrib(L):
    import importlib

    return importlib.import_module(f"{_fluid(L).__name__}.contrib.layers")


def _fluid(L):
    return sys.modules[L.__name__.rsplit(".", 1)[0]]


#: Layers whose sizes are variables, or some of them: of the layers, a cube, two numbers and two sizes in a variable.
SIZED = {
    "fill_constant": lambda L, x, k, long, two: L.fill_constant([L.shape(x)[0], 3], "float32", 1.0),
    "fill_constant of int64": lambda L, x, k, long, two: L.fill_constant([long, 3], "float32", 1.0),
    "fill_constant of a vector": lambda L, x, k, long, two: L.fill_constant(two, "float32", 1.0),
    "zeros": lambda L, x, k, long, two: L.zeros([k, 2], "float32"),
    "full": lambda L, x, k, long, two: L.full([k, 2], 1.0),
    "expand": lambda L, x, k, long, two: L.expand(x, [1, k, 2]),
    "reshape": lambda L, x, k, long, two: L.reshape(x, [-1, k, 6]),
    "reshape of a vector": lambda L, x, k, long, two: L.reshape(x, two),
    "slice": lambda L, x, k, long, two: L.slice(x, [1, 2], [k, 0], [3, long]),
    "strided_slice": lambda L, x, k, long, two: L.strided_slice(x, [1, 2], [k, 0], [3, 5], [1, k]),
    "uniform_random": lambda L, x, k, long, two: L.uniform_random([k, 3]),
    "gaussian_random": lambda L, x, k, long, two: L.gaussian_random([k, 3]),
    "randint": lambda L, x, k, long, two: L.randint(0, 5, [k, 3]),
    "crop_tensor": lambda L, x, k, long, two: L.crop_tensor(x, [-1, 2, 3], [0, k, 1]),
    "split": lambda L, x, k, long, two: L.split(x, [k, 2], 1),
    "topk": lambda L, x, k, long, two: list(L.topk(x, k)),
    "range": lambda L, x, k, long, two: L.range(0, k, 1, "int32"),
    "range of float32": lambda L, x, k, long, two: L.range(0, k, 1, "float32"),
    "linspace": lambda L, x, k, long, two: L.linspace(0, 1, k, "float32"),
    "concat": lambda L, x, k, long, two: L.concat([x, x], k),
    "image_resize": lambda L, x, k, long, two: L.image_resize(L.unsqueeze(x, [1]), out_shape=[k, 4]),
    "unsqueeze": lambda L, x, k, long, two: L.unsqueeze(x, [k]),
    "scale": lambda L, x, k, long, two: L.scale(x, L.cast(k, "float32")),
    "pow": lambda L, x, k, long, two: L.pow(x, L.cast(k, "float32")),
}

#: Name -> what it appends.
PROGRAMS = {
    **{
        f"{name}, sizes of variables": lambda L, v, make=make: make(L, v.cube, v.size, v.number, v.two_sizes)
        for name, make in SIZED.items()
    },
    **LAYERS,
    "GRUCell, a step": lambda L, v: L.GRUCell(4)(v.x, v.state)[0],
    "LSTMCell, a step": lambda L, v: L.LSTMCell(4)(v.x, [v.state, v.state])[0],
    "LSTMCell with functions": lambda L, v: L.LSTMCell(4, gate_activation=L.sigmoid, activation=L.relu)(v.x, [v.state, v.state])[0],
    "two cells, the second one first": lambda L, v: [c(v.x, v.state)[0] for c in [L.GRUCell(4), L.GRUCell(4)][::-1]],
    "rnn of LSTMCell": lambda L, v: list(L.rnn(L.LSTMCell(4), v.long)[:1]),
    "rnn of LSTMCell with lengths": lambda L, v: list(L.rnn(L.LSTMCell(4), v.long, sequence_length=v.lengths)[:1]),
    "rnn of GRUCell, backwards": lambda L, v: list(L.rnn(L.GRUCell(4), v.long, sequence_length=v.lengths, is_reverse=True)),
    "rnn of GRUCell, time first": lambda L, v: list(L.rnn(L.GRUCell(4), v.steps, time_major=True)),
    "StaticRNN": _static_rnn,
    "DynamicRNN": _dynamic_rnn,
    "DynamicRNN with init": _dynamic_rnn_with_init,
    "DynamicRNN of sequences of sequences": _dynamic_rnn_of_sequences,
    "DynamicRNN with two memories": _two_memories,
    "IfElse": _if_else,
    "Switch": _switch,
    "While": _while,
    "while_loop": lambda L, v: L.while_loop(lambda i: L.less_than(i, v.number), lambda i: [i + 1], [L.fill_constant([1], "int64", 0)]),
    "cond": lambda L, v: L.cond(v.flag, lambda: L.scale(v.x, 2.0), lambda: L.scale(v.x, 3.0)),
    "cond of two": lambda L, v: L.cond(v.flag, lambda: [v.x * 1.0, v.y * 2.0], lambda: [v.x * 3.0, v.y * 4.0]),
    "case": lambda L, v: L.case([(v.flag, lambda: v.x * 2.0), (L.less_than(v.number, v.number), lambda: v.x * 3.0)], lambda: v.x * 4.0),
    "switch_case": lambda L, v: L.switch_case(v.number, {1: lambda: v.x * 2.0, 2: lambda: v.x * 3.0}),
    "arrays": _arrays,
    "dynamic_decode, greedy": _greedy,
    "dynamic_decode, drawn": _sampling,
    "dynamic_decode, given": _teacher,
    "dynamic_decode, beams": _beams,
    "ssd_loss": lambda L, v: L.ssd_loss(v.locations, v.confidences, v.boxes, v.box_labels, v.priors, v.priors),
    "multi_box_head": _heads,
    "attention": lambda L, v: _fluid(L).nets.scaled_dot_product_attention(v.long, v.long, v.long),
    "attention of two heads": lambda L, v: _fluid(L).nets.scaled_dot_product_attention(v.long, v.long, v.long, 2),
    "lstm_unit": lambda L, v: list(L.lstm_unit(v.x, v.state, v.state)),
    "npair_loss": lambda L, v: L.npair_loss(v.known, v.known, v.known_index),
    "addcmul": lambda L, v: L.addcmul(v.x, v.x, v.y, 2.0),
    "roll": lambda L, v: [L.roll(v.known, 1), L.roll(v.x, 1, 1)],
    "eye of a batch": lambda L, v: L.eye(2, batch_shape=[3]),
    "randint": lambda L, v: L.randint(0, 5, [2]),
    "randn": lambda L, v: L.randn([2]),
    "random_crop": lambda L, v: L.random_crop(v.image, [4, 4, 4]),
    "data_norm": lambda L, v: L.data_norm(v.x),
    "huber_loss": lambda L, v: L.huber_loss(v.x, v.y, 1.0),
    "reorder": lambda L, v: L.reorder_lod_tensor_by_rank(v.rows, _fluid(L).layers.control_flow.lod_rank_table(v.rows)),
    "Print": lambda L, v: L.Print(v.x),
    "sequence_mask of int32": lambda L, v: L.sequence_mask(v.short_lengths, L.shape(v.cube)[1]),
    "one_hot of int32": lambda L, v: L.one_hot(L.cast(v.label, "int32"), 4),
    "randperm": lambda L, v: L.randperm(5),
    "diag": lambda L, v: [L.diag(__import__("numpy").ones(3, "float32")), L.diag(v.fixed)],
    "affine_channel": lambda L, v: [
        L.affine_channel(v.image, v.channels, v.channels, act=act) if a else
        L.affine_channel(v.image, L.create_parameter([4], "float32"), L.create_parameter([4], "float32"), act=act)
        for a in (0, 1) for act in (None, "relu")
    ],
    "sign of an array": lambda L, v: L.sign(__import__("numpy").ones(3, "float32")),
    "assign of an array": lambda L, v: L.assign(__import__("numpy").ones((2, 3), "float32")),
    "reshape of sizes": lambda L, v: L.reshape(v.cube, [L.fill_constant([1], "int32", 3), -1]),
    "autoincreased_step_counter": lambda L, v: L.autoincreased_step_counter(),
    "weight_norm": lambda L, v: L.fc(v.x, 2, param_attr=_fluid(L).WeightNormParamAttr(dim=None)),
    "weight_norm of an axis": lambda L, v: L.fc(v.x, 2, param_attr=_fluid(L).WeightNormParamAttr(dim=1)),
    "exponential_decay": lambda L, v: L.exponential_decay(0.1, 10, 0.5),
    "natural_exp_decay": lambda L, v: L.natural_exp_decay(0.1, 10, 0.5, staircase=True),
    "inverse_time_decay": lambda L, v: L.inverse_time_decay(0.1, 10, 0.5),
    "polynomial_decay": lambda L, v: L.polynomial_decay(0.1, 10),
    "polynomial_decay, again and again": lambda L, v: L.polynomial_decay(0.1, 10, cycle=True),
    "piecewise_decay": lambda L, v: L.piecewise_decay([3, 5, 7], [0.4, 0.3, 0.2, 0.1]),
    "noam_decay": lambda L, v: L.noam_decay(16, 10),
    "cosine_decay": lambda L, v: L.cosine_decay(0.1, 10, 3),
    "linear_lr_warmup": lambda L, v: L.linear_lr_warmup(0.1, 5, 0.0, 0.1),
    "SGD": _minimized(lambda fluid: fluid.optimizer.SGD(0.1)),
    "Adam with decay": _minimized(lambda fluid: fluid.optimizer.Adam(0.1, regularization=fluid.regularizer.L2Decay(0.1))),
    "Adadelta": _minimized(lambda fluid: fluid.optimizer.Adadelta(0.1)),
    "SGD, absolute values": _minimized(lambda fluid: fluid.optimizer.SGD(0.1, regularization=fluid.regularizer.L1Decay(0.1))),
    "basic_gru": lambda L, v: list(_contrib(L).basic_gru(v.long, None, 4, 2, v.lengths, bidirectional=True)),
    "basic_lstm": lambda L, v: list(_contrib(L).basic_lstm(v.long, None, None, 4, 2)),
    "SGD, clipped by value": _minimized(lambda fluid: _clip(fluid, "GradientClipByValue", 1.0)),
    "SGD, clipped by norm": _minimized(lambda fluid: _clip(fluid, "GradientClipByNorm", 1.0)),
    "SGD, clipped by the norm of all": _minimized(lambda fluid: _clip(fluid, "GradientClipByGlobalNorm", 1.0)),
}


def flat(value):
    """Return the names of variables in a structure."""
    if isinstance(value, (list, tuple)):
        return [name for part in value for name in flat(part)]
    return [value.name] if isinstance(getattr(value, "name", None), str) else []


def used(fluid, ids, build):
    """Return how many names of each key a program uses up, and the names of what it returns.

    Args:
        fluid: the package.
        ids: gives the counter of the current generator of names.
        build: of `PROGRAMS`.
    """
    with fluid.unique_name.guard(), fluid.program_guard(fluid.Program(), fluid.Program()):
        made = flat(build(fluid.layers, inputs(fluid)))
        counts = {key: count for key, count in sorted(ids().items()) if count and "." not in key and "@" not in key}
    return {"names": made, "used": counts}


def main():
    """Record into a file."""
    import json
    from pathlib import Path

    import paddle.fluid as fluid

    found = {name: used(fluid, lambda: fluid.unique_name.generator.ids, build) for name, build in sorted(PROGRAMS.items())}
    Path(sys.argv[1]).write_text(json.dumps(found, sort_keys=True, separators=(",", ":")).replace('},"', '},\n"') + "\n")


if __name__ == "__main__":
    main()
