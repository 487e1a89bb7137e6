"""Further programs with loops and branches, which are written here for 1.8.5.

`python -m tests.paddle.recordings.written FOLDER`, run by 1.8.5, builds each of them there and writes what it computes to FOLDER/NAME.npz.
`python -m tests.paddle.recordings.written FOLDER FILES` also loads what was written here to FILES/NAME, and those of `loops.py`, and
compares what these compute; it names those that do not agree, and ends with 1.
"""

import os
import sys
from pathlib import Path

import numpy as np

from tests.paddle.recordings.loops import LENGTHS, MODELS, ROWS, STATE, STEPS, build


def growing_array(fluid):
    """An array that has no tensor before the loop, read at computed places; its length is in the condition."""
    L = fluid.layers
    x = fluid.data("x", [None, 6])
    i, one = L.zeros([1], "int64"), L.fill_constant([1], "int64", 1)
    many, most = L.fill_constant([1], "int64", 0), L.fill_constant([1], "int64", 4)
    array = L.create_array("float32")
    y = L.fc(x, 6)
    going = L.less_than(many, most)
    loop = L.While(going)
    with loop.block():
        L.array_write(L.scale(y, 2.0, 0.5), i, array)
        half = L.elementwise_floordiv(i, L.fill_constant([1], "int64", 2))
        L.assign(L.elementwise_add(y, L.array_read(array, half)), y)
        L.increment(i)
        L.assign(L.array_length(array), many)
        L.less_than(many, most, cond=going)
    joined, sizes = L.tensor_array_to_tensor(array, axis=1)
    return {"x": STATE}, [y, joined, sizes, L.array_read(array, L.elementwise_sub(i, one))]


def swapped(fluid):
    """States that change places."""
    L = fluid.layers
    a, b = fluid.data("a", [None, 6]), fluid.data("b", [None, 6])
    i, n = L.zeros([1], "int64"), L.fill_constant([1], "int64", 3)
    out = L.while_loop(
        lambda i, a, b: L.less_than(i, n), lambda i, a, b: [L.increment(i), L.scale(b, 1.0), L.scale(a, 0.5)], [i, L.fc(a, 6), b]
    )
    return {"a": STATE, "b": STATE[::-1].copy()}, list(out)


def switch_in_loop(fluid):
    """A Switch and a branch without a result in a loop."""
    L = fluid.layers
    x = fluid.data("x", [None, 6])
    i, n = L.zeros([1], "int64"), L.fill_constant([1], "int64", 5)
    two, four = L.fill_constant([1], "int64", 2), L.fill_constant([1], "int64", 4)
    rate, y = L.fill_constant([1], "float32", 1.0), L.fc(x, 6)
    going = L.less_than(i, n)
    loop = L.While(going)
    with loop.block():
        with L.Switch() as s:
            with s.case(L.less_than(i, two)):
                L.assign(L.scale(rate, 2.0), rate)
            with s.case(L.less_than(i, four)):
                L.assign(L.scale(rate, 1.0, 0.25), rate)
            with s.default():
                L.assign(L.fill_constant([1], "float32", 0.1), rate)
        L.assign(L.elementwise_mul(y, rate), y)
        L.increment(i)
        L.less_than(i, n, cond=going)
    return {"x": STATE}, [y, rate]


def last_states(fluid):
    """Layers of cells, whose last states are read."""
    L = fluid.layers
    x = fluid.data("x", [None, 4, 5])
    out, last = L.rnn(L.GRUCell(6), x)
    back, (h, c) = L.rnn(L.LSTMCell(3), out, is_reverse=True)
    return {"x": np.ascontiguousarray(STEPS.transpose(1, 0, 2))}, [last, back, h, c]


def two_inputs(fluid):
    """A StaticRNN over two inputs, with what all steps have alike."""
    L = fluid.layers
    x = fluid.data("x", [4, 3, 5])
    y = fluid.layers.fc(x, 5, num_flatten_dims=2)
    rnn, first, mean = L.StaticRNN(), L.fill_constant([3, 5], "float32", 0.5), L.reduce_mean(y, 0)
    with rnn.step():
        a, b = rnn.step_input(x), rnn.step_input(y)
        state = rnn.memory(init=first)
        new = L.elementwise_add(L.elementwise_mul(a, b), L.elementwise_add(state, mean))
        rnn.update_memory(state, new)
        rnn.step_output(new)
    return {"x": STEPS}, [rnn()]


def shared_sequences(fluid):
    """Two DynamicRNNs, the second over what the first gives, and one that reads two sequences."""
    L = fluid.layers
    x = fluid.data("x", [None, 5], lod_level=1)
    y = fluid.data("y", [None, 5], lod_level=1)
    first = L.DynamicRNN()
    with first.block():
        step, other = first.step_input(x), first.step_input(y)
        state = first.memory(shape=[5], value=0.25)
        new = L.elementwise_add(L.elementwise_mul(step, other), state)
        first.update_memory(state, new)
        first.output(new)
    again, largest = L.DynamicRNN(), L.sequence_pool(x, "max")
    with again.block():
        step = again.step_input(first())
        state = again.memory(init=largest, need_reorder=True)
        new = L.fc([step, state], 5, act="tanh")
        again.update_memory(state, new)
        again.output(new)
    given = {n: fluid.create_lod_tensor(v, LENGTHS, fluid.CPUPlace()) for n, v in (("x", ROWS), ("y", ROWS[::-1].copy()))}
    return given, [first(), again(), L.sequence_pool(again(), "last")]


def nested_static(fluid):
    """A DynamicRNN over sentences that also reads something for each document."""
    L = fluid.layers
    x = fluid.data("x", [None, 5], lod_level=2)
    topic = fluid.data("topic", [None, 3])
    rnn = L.DynamicRNN()
    with rnn.block():
        sentence = rnn.step_input(x)
        about = rnn.static_input(topic)
        rnn.output(L.elementwise_add(L.sequence_pool(L.fc(sentence, 3), "sum"), about))
    out = rnn()
    lods = [[1, 2], [2, 4, 1]]
    return {"x": fluid.create_lod_tensor(ROWS, lods, fluid.CPUPlace()), "topic": STATE[:2, :3].copy()}, [out]


def parts_of_parts(fluid):
    """An IfElse whose parts read what stands around it."""
    L = fluid.layers
    x = fluid.data("x", [None, 6])
    total = L.reduce_sum(x, 1, keep_dim=True)
    ie = L.IfElse(L.less_than(total, L.fill_constant_batch_size_like(x, [-1, 1], "float32", -5.0)))
    with ie.true_block():
        ie.output(L.fc(ie.input(x), 2, act="relu"))
    with ie.false_block():
        mine = ie.input(x)
        ie.output(L.elementwise_add(L.fc(mine, 2), ie.input(total)))
    return {"x": STATE}, [ie()[0]]


def cases_of_cases(fluid):
    """Branches in branches which write a variable from outside."""
    L = fluid.layers
    x = fluid.data("x", [None, 6])
    low, high = L.fill_constant([1], "float32", 0.2), L.fill_constant([1], "float32", 0.9)
    mean = L.reshape(L.reduce_mean(x), [1])

    def inner():
        return L.cond(L.less_than(mean, high), lambda: L.fc(x, 6, act="tanh"), lambda: L.scale(x, 3.0))

    y = L.cond(L.less_than(mean, low), lambda: L.scale(x, 2.0), inner)
    i, n = L.zeros([1], "int64"), L.fill_constant([1], "int64", 2)
    again = L.while_loop(
        lambda i, y: L.less_than(i, n),
        lambda i, y: [L.increment(i), L.cond(L.less_than(mean, low), lambda: L.scale(y, 2.0), lambda: L.scale(y, 0.5, 1.0))],
        [i, L.scale(y, 1.0)],
    )
    return {"x": STATE}, [y, again[1]]


def axes_from_the_end(fluid):
    """Layers whose axes are counted from the end, or whose sizes are variables, and whole numbers that are turned."""
    L = fluid.layers
    x, ids, at = fluid.data("x", [None, 6]), fluid.data("ids", [None, 2], "int64"), fluid.data("at", [1], "int32")
    a, b = L.split(L.fc(x, 6), 2, dim=-1)
    turned = L.squeeze(L.unsqueeze(L.transpose(ids, [1, 0]), [-1]), [-1])
    ends = L.elementwise_add(at, L.fill_constant([1], "int32", 2))
    fed = {"x": STATE, "ids": np.arange(6).reshape(3, 2).astype("int64"), "at": np.array([1], "int32")}
    return fed, [L.concat([b, a], -1), turned, L.slice(x, [1], at, ends)]


WRITTEN = {
    f.__name__: f
    for f in (
        axes_from_the_end, cases_of_cases, growing_array, last_states, nested_static, parts_of_parts, shared_sequences, swapped,
        switch_in_loop, two_inputs,
    )
}  # fmt: skip


def outputs(fluid, folder, executor, fed):
    """Return what the model of a folder computes."""
    program, _, targets = fluid.io.load_inference_model(str(folder), executor, params_filename="params")
    found = executor.run(program, feed=fed, fetch_list=targets, return_numpy=False)
    return {f"output_{i}": np.array(v) for i, v in enumerate(found)}


def agrees(fluid, name, wanted, folder):
    """Return whether what was written here computes what it should, in the original."""
    executor, _, fed, _ = build(fluid, name, {**MODELS, **WRITTEN})
    found = outputs(fluid, folder / name, executor, fed)
    program = fluid.Program.parse_from_string((folder / name / "program").read_bytes())
    fetches = (folder / name / "fetches").read_text().split()
    again = executor.run(program, feed=fed, fetch_list=fetches, return_numpy=False)
    pairs = [(value, wanted[key]) for key, value in found.items()]
    pairs += [(np.array(v), wanted[f"output_{i}"]) for i, v in enumerate(again)]
    return all(np.allclose(value, right, rtol=1e-5, atol=1e-6) for value, right in pairs)


def checked(fluid, folder, files, name):
    """Write what one program computes in the original, and return whether it does so as written here."""
    with fluid.scope_guard(fluid.Scope()):
        if name in WRITTEN:
            executor, program, fed, wanted = build(fluid, name, WRITTEN)
            found = executor.run(program, feed=fed, fetch_list=wanted, return_numpy=False)
            np.savez(str(folder / (name + ".npz")), **{f"output_{i}": np.array(v) for i, v in enumerate(found)})
            wanted = np.load(str(folder / (name + ".npz")))
        else:
            wanted = np.load(str(Path(__file__).parent / "loops" / name / "outputs.npz"))
        return files is None or agrees(fluid, name, wanted, files)


def main():
    """Check all programs, each in a process of its own, as what it cannot run may end it."""
    import paddle.fluid as fluid

    folder, files = Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None
    lost = []
    for name in [*WRITTEN, *(MODELS if files else ())]:
        child = os.fork()
        if not child:
            right = checked(fluid, folder, files, name)
            sys.stdout.flush()
            os._exit(0 if right else 1)
        if os.waitpid(child, 0)[1]:
            lost.append(name)
    sys.stdout.write(f"not agreeing: {' '.join(lost) or 'none'}\n")
    sys.exit(bool(lost))


if __name__ == "__main__":
    main()
