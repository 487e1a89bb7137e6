"""Inference models with loops and branches that 1.8.5 writes, with outputs: `python -m tests.paddle.recordings.loops FOLDER`."""

import json
import sys
from pathlib import Path

import numpy as np

from tests.paddle.recordings.decoders import DECODERS

DRAWS = np.random.RandomState(11)
STEPS = DRAWS.rand(4, 3, 5).astype("float32")
ROWS = DRAWS.rand(7, 5).astype("float32")
LENGTHS = [[2, 4, 1]]
STATE = DRAWS.rand(3, 6).astype("float32")


def static_rnn(fluid):
    L = fluid.layers
    x = fluid.data("x", [None, None, 5])
    rnn = L.StaticRNN()
    with rnn.step():
        step = rnn.step_input(x)
        memory = rnn.memory(shape=[-1, 6], batch_ref=step)
        hidden = L.fc([step, memory], 6, act="tanh")
        rnn.update_memory(memory, hidden)
        rnn.step_output(hidden)
        rnn.step_output(L.fc(hidden, 2))
    a, b = rnn()
    return {"x": STEPS}, [a, L.reduce_sum(b, 0)]


def cell_rnn(fluid):
    L = fluid.layers
    x = fluid.data("x", [None, 4, 5])
    out, (h, c) = L.rnn(L.LSTMCell(6), x, sequence_length=fluid.data("n", [None], "int64"))
    back, last = L.rnn(L.GRUCell(4), x, is_reverse=True)
    return {"x": np.ascontiguousarray(STEPS.transpose(1, 0, 2)), "n": np.array([4, 2, 3], "int64")}, [
        out,
        h,
        c,
        back,
        last,
    ]


def dynamic_rnn(fluid):
    L = fluid.layers
    x = fluid.data("x", [None, 5], lod_level=1)
    first = fluid.data("first", [None, 6])
    rnn = L.DynamicRNN()
    with rnn.block():
        step = rnn.step_input(x)
        memory = rnn.memory(init=first, need_reorder=True)
        count = rnn.memory(shape=[1], value=0.0)
        same = rnn.static_input(first)
        hidden = L.fc([step, memory, same], 6, act="tanh")
        more = L.scale(count, 1.0, 1.0)
        rnn.update_memory(memory, hidden)
        rnn.update_memory(count, more)
        rnn.output(hidden, more)
    a, b = rnn()
    return {"x": fluid.create_lod_tensor(ROWS, LENGTHS, fluid.CPUPlace()), "first": STATE}, [
        a,
        b,
        L.sequence_last_step(a),
    ]


def while_arrays(fluid):
    L = fluid.layers
    x = fluid.data("x", [None, 6])
    i = L.zeros([1], "int64")
    n = L.fill_constant([1], "int64", 4)
    array = L.array_write(x, i)
    going = L.less_than(i, n)
    loop = L.While(going)
    with loop.block():
        before = L.array_read(array, i)
        after = L.fc(before, 6, act="sigmoid")
        L.increment(i)
        L.array_write(after, i, array)
        L.less_than(i, n, cond=going)
    last = L.array_read(array, n)
    joined, sizes = L.tensor_array_to_tensor(array, axis=1)
    return {"x": STATE}, [last, joined, sizes, i, L.array_length(array)]


def while_loop(fluid):
    L = fluid.layers
    x = fluid.data("x", [None, 6])
    most = fluid.data("most", [1])
    total = L.fill_constant([1], "float32", 0.0)
    step = L.fill_constant([1], "int64", 0)

    def cond(i, s, y):
        return L.less_than(s, most)

    def body(i, s, y):
        y = L.fc(y, 6, act="tanh", param_attr="w", bias_attr="b")
        return L.increment(i, 1), L.elementwise_add(s, L.reshape(L.reduce_mean(L.abs(y)), [1])), y

    i, s, y = L.while_loop(cond, body, [step, total, x])
    return {"x": STATE, "most": np.array([2.5], "float32")}, [i, s, y]


def nested(fluid):
    L = fluid.layers
    x = fluid.data("x", [None, 6])
    i, n = L.zeros([1], "int64"), L.fill_constant([1], "int64", 3)
    y = L.fc(x, 6)
    outer = L.less_than(i, n)
    loop = L.While(outer)
    with loop.block():
        j = L.zeros([1], "int64")
        inner = L.less_than(j, n)
        again = L.While(inner)
        with again.block():
            L.assign(L.scale(y, 0.5, 1.0), y)
            L.increment(j)
            L.less_than(j, n, cond=inner)
        L.assign(L.scale(y, 0.9), y)
        L.increment(i)
        L.less_than(i, n, cond=outer)
    return {"x": STATE}, [y, i]


def branches(fluid):
    L = fluid.layers
    x = fluid.data("x", [None, 6])
    which = fluid.data("which", [1], "int32")
    mean = L.reduce_mean(x)
    half, two = L.fill_constant([1], "float32", 0.5), L.fill_constant([1], "float32", 2.0)
    a = L.cond(L.less_than(mean, half), lambda: L.fc(x, 3), lambda: L.fc(x, 3, act="relu"))
    b, c = L.cond(L.less_than(mean, two), lambda: (L.scale(x, 2.0), L.scale(x, 3.0)), lambda: (x, L.scale(x, 4.0)))
    d = L.case(
        [(L.less_than(mean, half), lambda: L.scale(x, 5.0)), (L.less_than(mean, two), lambda: L.scale(x, 6.0))],
        lambda: L.scale(x, 7.0),
    )
    e = L.switch_case(
        which, {1: lambda: L.scale(x, 8.0), 2: lambda: L.scale(x, 9.0), 5: lambda: L.fc(x, 6)}, lambda: L.scale(x, 10.0)
    )
    return {"x": STATE, "which": np.array([2], "int32")}, [a, b, c, d, e]


def switch(fluid):
    L = fluid.layers
    x = fluid.data("x", [None, 6])
    mean = L.reshape(L.reduce_mean(x), [1])
    rate = L.create_global_var([1], 0.0, "float32", persistable=True, name="rate")
    half, two = L.fill_constant([1], "float32", 0.5), L.fill_constant([1], "float32", 2.0)
    with L.Switch() as s:
        with s.case(L.less_than(mean, half)):
            L.assign(L.fill_constant([1], "float32", 0.1), rate)
        with s.case(L.less_than(mean, two)):
            L.assign(L.scale(mean, 3.0), rate)
        with s.default():
            L.assign(two, rate)
    return {"x": STATE}, [L.elementwise_mul(x, rate)]


def if_else(fluid):
    L = fluid.layers
    x = fluid.data("x", [None, 6])
    first = L.slice(x, [1], [0], [1])
    half = L.fill_constant_batch_size_like(x, [-1, 1], "float32", 0.4)
    ie = L.IfElse(L.less_than(first, half))
    with ie.true_block():
        ie.output(L.fc(ie.input(x), 2), L.scale(ie.input(x), 2.0))
    with ie.false_block():
        ie.output(L.fc(ie.input(x), 2, act="tanh"), L.scale(ie.input(x), -1.0))
    a, b = ie()
    return {"x": STATE}, [a, b]


def branch_in_loop(fluid):
    L = fluid.layers
    x = fluid.data("x", [None, 6])
    i, n, half = L.zeros([1], "int64"), L.fill_constant([1], "int64", 5), L.fill_constant([1], "int64", 2)
    y = L.fc(x, 6)
    array, going = L.array_write(L.reduce_sum(y, 1), i), L.less_than(i, n)
    loop = L.While(going)
    with loop.block():
        more = L.cond(L.less_than(i, half), lambda: L.scale(y, 2.0), lambda: L.fc(y, 6, act="tanh"))
        L.assign(more, y)
        L.increment(i)
        L.array_write(L.reduce_sum(more, 1), i, array)
        L.less_than(i, n, cond=going)
    joined, sizes = L.tensor_array_to_tensor(array, axis=0)
    return {"x": STATE}, [y, joined, sizes]


def loop_in_branch(fluid):
    L = fluid.layers
    x = fluid.data("x", [None, 6])

    def grown():
        i, n = L.zeros([1], "int64"), L.fill_constant([1], "int64", 3)
        return L.while_loop(
            lambda i, y: L.less_than(i, n), lambda i, y: [L.increment(i), L.scale(y, 1.5, 0.5)], [i, L.fc(x, 6)]
        )[1]

    a = L.cond(L.less_than(L.reduce_mean(x), L.fill_constant([1], "float32", 2.0)), grown, lambda: L.scale(x, 2.0))
    b = L.cond(L.less_than(L.fill_constant([1], "float32", 2.0), L.reduce_mean(x)), grown, lambda: L.scale(x, 2.0))
    return {"x": STATE}, [a, b]


def nested_sequences(fluid):
    """A DynamicRNN over sentences of documents."""
    L = fluid.layers
    x = fluid.data("x", [None, 5], lod_level=2)
    rnn = L.DynamicRNN()
    with rnn.block():
        sentence = rnn.step_input(x)
        rnn.output(L.sequence_pool(L.fc(sentence, 3, act="tanh"), "max"))
    out = rnn()
    return {"x": fluid.create_lod_tensor(ROWS, [[2, 1], [2, 4, 1]], fluid.CPUPlace())}, [
        out,
        L.sequence_pool(out, "last"),
    ]


LOOPS = {
    f.__name__: f
    for f in (
        static_rnn, cell_rnn, dynamic_rnn, while_arrays, while_loop, nested, branches, switch, if_else, branch_in_loop, loop_in_branch,
        nested_sequences,
    )
}  # fmt: skip
MODELS = {**LOOPS, **DECODERS}


def build(fluid, name, models=MODELS):
    """Return an executor, the program, feeds and outputs of a model, whose parameters are set."""
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = main.random_seed = 5
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        fed, outputs = models[name](fluid)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(startup)
    draws = np.random.RandomState(7)
    for v in main.list_vars():
        if v.persistable and isinstance(v, fluid.framework.Parameter):
            tensor = fluid.global_scope().find_var(v.name).get_tensor()
            tensor.set((draws.rand(*np.array(tensor).shape) - 0.5).astype("float32"), fluid.CPUPlace())
    return executor, main, fed, outputs


#: Attributes that say where a script has an operator.
PLACES = {"op_callstack", "op_namescope", "op_role_var"}


def write(fluid, folder, name):
    """Write a model and what it computes."""
    from paddle.fluid.proto import framework_pb2

    executor, program, fed, outputs = build(fluid, name)
    fluid.io.save_inference_model(str(folder), list(fed), outputs, executor, program, params_filename="params")
    said = framework_pb2.ProgramDesc.FromString((folder / "__model__").read_bytes())
    for block in said.blocks:
        for op in block.ops:
            kept = [attr for attr in op.attrs if attr.name not in PLACES]
            del op.attrs[:]
            op.attrs.extend(kept)
    (folder / "__model__").write_bytes(said.SerializeToString())
    loaded, _, targets = fluid.io.load_inference_model(str(folder), executor, params_filename="params")
    found = executor.run(loaded, feed=fed, fetch_list=targets, return_numpy=False)
    lengths = {f"lengths_{i}": np.array(json.dumps(v.recursive_sequence_lengths())) for i, v in enumerate(found)}
    np.savez(str(folder / "outputs.npz"), **{f"output_{i}": np.array(v) for i, v in enumerate(found)}, **lengths)


def main():
    """Write the files."""
    import paddle.fluid as fluid

    for name in sys.argv[2:] or MODELS:
        with fluid.scope_guard(fluid.Scope()):
            write(fluid, Path(sys.argv[1]) / name, name)


if __name__ == "__main__":
    main()
