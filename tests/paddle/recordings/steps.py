"""Small trainings whose numbers are recorded: run by PaddlePaddle 1.8.5 (`python steps.py steps.json`) and by tests.

Parameters are set by their order in the program, from a generator with a seed, so that no random op decides about a number.
"""

import sys

import numpy as np

LENGTHS = [[2, 3]]


def sequences(fluid, rng, width=4, lengths=LENGTHS):
    """Return a fed tensor of random rows with sequences."""
    return fluid.create_lod_tensor(rng.randn(sum(lengths[0]), width).astype("float32"), lengths, fluid.CPUPlace())


def cut_by_a_sequence(fluid):
    """A constant as long as there are sequences; what it is compared with has a gradient."""
    layers = fluid.layers
    x = fluid.data("x", [None, 4], lod_level=1)
    pooled = layers.reduce_sum(layers.sequence_pool(layers.fc(x, 4), "sum"), 1, keep_dim=True)
    wanted = layers.fill_constant(shape=[layers.shape(pooled)[0], 1], value=0.1, dtype="float32")
    return layers.mean(layers.square(layers.elementwise_sub(wanted, pooled))), lambda rng: {"x": sequences(fluid, rng)}


def cut_by_ids(fluid):
    """The same, of looked-up rows."""
    layers = fluid.layers
    ids = fluid.data("ids", [None, 1], "int64", lod_level=1)
    pooled = layers.fc(layers.sequence_pool(fluid.embedding(ids, [10, 4]), "sum"), 1)
    wanted = layers.fill_constant(shape=[layers.shape(pooled)[0], 1], value=0.1, dtype="float32")
    loss = layers.mean(layers.square(layers.elementwise_sub(wanted, pooled)))

    def feed(rng):
        return {"ids": fluid.create_lod_tensor(rng.randint(0, 10, (5, 1)).astype("int64"), LENGTHS, fluid.CPUPlace())}

    return loss, feed


def cut_by_rows(fluid):
    """The same, of rows that keep their sequences."""
    layers = fluid.layers
    x = fluid.data("x", [None, 4], lod_level=1)
    rows = layers.reduce_sum(layers.fc(x, 4), 1, keep_dim=True)
    wanted = layers.fill_constant(shape=[layers.shape(rows)[0], 1], value=0.1, dtype="float32")
    return layers.mean(layers.square(layers.elementwise_sub(wanted, rows))), lambda rng: {"x": sequences(fluid, rng)}


def attention(layers, rows, keys, state):
    """Weigh rows of every sequence by a state: weights without a last axis, multiplied along the first one."""
    spread = layers.sequence_expand(layers.fc(state, 4, bias_attr=False), keys)
    weights = layers.fc(layers.tanh(layers.elementwise_add(keys, spread)), 1, bias_attr=False)
    flat = layers.reshape(layers.sequence_softmax(weights), [-1])
    return layers.sequence_pool(layers.elementwise_mul(rows, flat, axis=0), "sum")


def attention_in_rounds(fluid):
    """Attention over whole sequences, in every round of a DynamicRNN."""
    layers = fluid.layers
    x, t = fluid.data("x", [None, 4], lod_level=1), fluid.data("t", [None, 3], lod_level=1)
    rows = layers.fc(x, 4)
    first = layers.sequence_pool(rows, "first")
    rnn = layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(t)
        values, keys = rnn.static_input(rows), rnn.static_input(x)
        memory = rnn.memory(init=first, need_reorder=True)
        new = layers.fc([attention(layers, values, keys, memory), word], 4, act="tanh")
        rnn.update_memory(memory, new)
        rnn.output(new)
    loss = layers.mean(rnn())
    return loss, lambda rng: {"x": sequences(fluid, rng), "t": sequences(fluid, rng, 3, [[4, 2]])}


def softmax_of_sequences(fluid):
    """An activation that looks at whole sequences."""
    layers = fluid.layers
    x = fluid.data("x", [None, 4], lod_level=1)
    weights = layers.fc(x, 1, act="sequence_softmax")
    loss = layers.mean(layers.square(layers.sequence_pool(layers.elementwise_mul(x, weights, axis=0), "sum")))
    return loss, lambda rng: {"x": sequences(fluid, rng)}


def nested_states(fluid):
    """A cell whose states are lists in lists, and that takes a further argument."""
    layers = fluid.layers

    class Two(layers.RNNCell):
        def __init__(self):
            self.cells = [layers.GRUCell(3, name="g0"), layers.GRUCell(3, name="g1")]

        def call(self, inputs, states, factor=None):
            first, _ = self.cells[0](inputs, states[0][0])
            second, _ = self.cells[1](layers.scale(first, factor), states[0][1])
            return second, [[first, second]]

        @property
        def state_shape(self):
            return [[[3], [3]]]

    x = fluid.data("x", [None, 4, 2])
    outputs, states = layers.rnn(Two(), x, factor=2.0)
    loss = layers.mean(layers.elementwise_add(layers.reduce_sum(outputs, 1), states[0][1]))
    return loss, lambda rng: {"x": rng.randn(2, 4, 2).astype("float32")}


def schedules(fluid):
    """A warm-up before a piecewise schedule."""
    layers = fluid.layers
    x = fluid.data("x", [None, 4])
    return layers.mean(layers.square(layers.fc(x, 1))), lambda rng: {"x": rng.randn(3, 4).astype("float32")}


def rows_of_a_table(fluid):
    """Rows of a table that are looked up, with a gradient for these alone."""
    ids = fluid.data("ids", [None, 1], "int64")
    loss = fluid.layers.mean(fluid.layers.square(fluid.embedding(ids, [6, 3], is_sparse=True)))
    return loss, lambda rng: {"ids": rng.randint(0, 6, (2, 1)).astype("int64")}


def grey_images(fluid):
    """Images of one channel, of sizes that nobody declares."""
    layers = fluid.layers
    x = fluid.data("x", [None, 1, None, None])
    made = layers.pool2d(layers.pool2d(x, 3, "avg", pool_padding=1), 7, "max", global_pooling=True)
    return layers.mean(layers.fc(layers.reshape(made, [-1, 1]), 1)), lambda rng: {"x": rng.randn(2, 1, 4, 5).astype("float32")}


def _decayed(name, **given):
    def optimizer(fluid):
        return getattr(fluid.optimizer, name)(0.1, regularization=fluid.regularizer.L2Decay(0.1), **given)

    return optimizer


def _sgd(fluid):
    return fluid.optimizer.SGD(0.1)


def _still(fluid):
    return fluid.optimizer.SGD(0.0)


def _warm(fluid):
    steps = fluid.layers.piecewise_decay([3], [0.1, 0.01])
    return fluid.optimizer.Momentum(fluid.layers.linear_lr_warmup(steps, 2, 0.0, 0.1), 0.9)


def _noam(fluid):
    return fluid.optimizer.Adam(fluid.layers.noam_decay(4, 2))


#: Name -> the network, and the optimizer.
TRAININGS = {
    "a constant of as many rows as sequences": (cut_by_a_sequence, _sgd),
    "a constant of as many rows as sequences of ids": (cut_by_ids, _sgd),
    "a constant of as many rows as there are": (cut_by_rows, _sgd),
    "attention in the rounds of a DynamicRNN": (attention_in_rounds, _sgd),
    "softmax of sequences as an activation": (softmax_of_sequences, _sgd),
    "nested states of a cell with a further argument": (nested_states, _sgd),
    "a decay of a table, SGD": (rows_of_a_table, _decayed("SGD")),
    "a decay of a table, Adam": (rows_of_a_table, _decayed("Adam", lazy_mode=True)),
    "images of one channel and unknown sizes": (grey_images, _sgd),
    "a rate of 0": (schedules, _still),
    "a warm-up before steps": (schedules, _warm),
    "noam_decay": (schedules, _noam),
}


def evaluated(fluid):
    """Return what evaluators say of two batches, after another one that is forgotten."""
    layers = fluid.layers
    ids, true, tags, right = (fluid.data(n, [None, 1], "int64", lod_level=1) for n in ("ids", "true", "tags", "right"))
    distance = fluid.evaluator.EditDistance(ids, true, ignored_tokens=[0])
    chunks = fluid.evaluator.ChunkEvaluator(tags, right, "IOB", 2)
    assert len(distance.metrics) == 2
    assert len(chunks.metrics) == 3
    assert layers is fluid.layers
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    rng = np.random.RandomState(3)
    found = []
    for step in range(3):
        if step < 2:
            for each in (distance, chunks):
                each.reset(executor)
        feed = {}
        for name, lengths in (("ids", [[3, 4]]), ("true", [[4, 2]]), ("tags", [[3, 4]]), ("right", [[3, 4]])):
            rows = rng.randint(0, 4, (sum(lengths[0]), 1)).astype("int64")
            feed[name] = fluid.create_lod_tensor(rows, lengths, fluid.CPUPlace())
        executor.run(feed=feed, fetch_list=distance.metrics + chunks.metrics)
        found += [float(v[0]) for v in (*distance.eval(executor), *chunks.eval(executor))]
    return found


def grown(fluid):
    """Return sums of a cache that begins with no rows and grows by one in every round of a While."""
    layers = fluid.layers
    x = fluid.data("x", [None, 3])
    i, n = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 4)
    holds = layers.less_than(i, n)
    cache = layers.fill_constant_batch_size_like(x, [-1, 0, 3], "float32", 0.0)
    loop = layers.While(holds)
    with loop.block():
        row = layers.unsqueeze(layers.scale(x, 2.0), [1])
        seen = layers.concat([cache, row], axis=1)
        layers.assign(layers.elementwise_add(seen, layers.cast(i, "float32")), cache)
        layers.increment(i, 1.0)
        layers.less_than(i, n, cond=holds)
    given = np.array([[1, 2, 3], [4, 5, 6]], "float32")
    found = fluid.Executor(fluid.CPUPlace()).run(feed={"x": given}, fetch_list=[cache, layers.reduce_sum(cache, 1)])
    return [float(v) for part in found for v in np.ravel(part)]


def grown_by_a_function(fluid):
    """Return the same of a while_loop whose rounds are fed."""
    layers = fluid.layers
    x, most = fluid.data("x", [None, 3]), fluid.data("most", [1], "int64")
    cache = layers.fill_constant_batch_size_like(x, [-1, 0, 3], "float32", 0.0)

    def body(i, seen, row):
        return [i + 1, layers.concat([seen, layers.unsqueeze(row, [1])], axis=1), row * 0.5]

    i = layers.fill_constant([1], "int64", 0)
    _, cache, _ = layers.while_loop(lambda i, seen, row: layers.less_than(i, most), body, [i, cache, x])
    given = np.array([[1, 2, 3], [4, 5, 6]], "float32")
    executor, found = fluid.Executor(fluid.CPUPlace()), []
    for rounds in (3, 1):
        found += np.ravel(executor.run(feed={"x": given, "most": np.array([rounds])}, fetch_list=[cache])[0]).tolist()
    return found


def kept_outside(fluid):
    """Return sums of a loop that keeps something in the block around it, made there, and doubles it in every round."""
    layers = fluid.layers
    x = fluid.data("x", [None, 3])
    main = fluid.default_main_program()
    i, n = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 3)
    holds, kept = layers.less_than(i, n), layers.create_tensor("float32")
    loop = layers.While(holds)
    with loop.block():
        inside = main.current_block().idx
        main.current_block_idx = main.current_block().parent_idx
        layers.assign(layers.scale(x, 3.0), kept)
        main.current_block_idx = inside
        layers.assign(layers.scale(kept, 2.0), kept)
        layers.increment(i, 1.0)
        layers.less_than(i, n, cond=holds)
    found = fluid.Executor(fluid.CPUPlace()).run(feed={"x": np.ones((2, 3), "float32")}, fetch_list=[layers.reduce_sum(kept), i])
    return [float(np.ravel(v)[0]) for v in found]


def trained(fluid, network, optimizer, steps=5):
    """Return the losses of some steps."""
    loss, feed = network(fluid)
    optimizer(fluid).minimize(loss)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    rng = np.random.RandomState(1)
    for p in fluid.default_main_program().global_block().all_parameters():
        value = (rng.randn(*p.shape) * 0.4).astype("float32")
        fluid.global_scope().find_var(p.name).get_tensor().set(value, fluid.CPUPlace())
    return [float(executor.run(feed=feed(rng), fetch_list=[loss])[0][0]) for _ in range(steps)]


def results(fluid):
    """Return name -> a function that gives numbers, for programs and a scope of its own."""
    found = {name: lambda given=given: trained(fluid, *given) for name, given in TRAININGS.items()}
    found["evaluators"] = lambda: evaluated(fluid)
    found["a cache that grows in a While"] = lambda: grown(fluid)
    found["a cache that grows in a while_loop"] = lambda: grown_by_a_function(fluid)
    found["a loop with something of the block around it"] = lambda: kept_outside(fluid)
    return found


def alone(fluid, compute):
    """Return what a function gives in programs and a scope of its own."""
    programs = fluid.Program(), fluid.Program()
    with fluid.program_guard(*programs), fluid.scope_guard(fluid.Scope()), fluid.unique_name.guard():
        return compute()


def main():
    """Record all numbers into a file."""
    import json
    from pathlib import Path

    import paddle.fluid as fluid

    found = {name: alone(fluid, compute) for name, compute in sorted(results(fluid).items())}
    Path(sys.argv[1]).write_text(json.dumps(found, sort_keys=True, indent=1) + "\n")


if __name__ == "__main__":
    main()
