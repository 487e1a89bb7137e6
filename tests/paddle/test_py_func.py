"""py_func: values, gradients and devices against the same network without it; errors with the line that made the layer."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from pe_cli.build.build import build
from pe_cli.config.load import load_model
from pe_cli.core.errors import PeError
from pe_cli.io.fluid import program_desc
from pe_cli.program.serialize import to_json
from pe_cli.program.text_forms import from_string

L = fluid.layers
BATCH = np.random.default_rng(0).standard_normal((7, 5)).astype("float32")


def made(like, name=None):
    return fluid.default_main_program().current_block().create_var(name=name, dtype=like.dtype, shape=like.shape)


def tanh(x):
    return np.tanh(x)


def tanh_grad(y, dy):
    return np.array(dy) * (1 - np.square(np.array(y)))


def own_tanh(x):
    return L.py_func(tanh, x, made(x), tanh_grad, skip_vars_in_backward_input=x)


def train(activation, *, devices=1, threads=0, steps=3):
    """Return the losses and the weights of a small training."""
    programs = fluid.Program(), fluid.Program()
    with fluid.program_guard(*programs), fluid.scope_guard(fluid.Scope()), fluid.unique_name.guard():
        programs[1].random_seed = 3
        hidden = activation(L.fc(fluid.data("x", [-1, 5]), 4, name="a"))
        loss = L.mean(L.square(L.fc(activation(hidden), 2, name="b")))
        fluid.optimizer.SGD(0.5).minimize(loss)
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(programs[1])
        main = programs[0]
        if devices > 1:
            strategy = fluid.ExecutionStrategy()
            strategy.num_threads = threads
            main = fluid.CompiledProgram(main).with_data_parallel(
                loss.name, exec_strategy=strategy, places=[fluid.CPUPlace()] * devices
            )
        losses = [executor.run(main, {"x": BATCH}, [loss])[0] for _ in range(steps)]
        weights = [np.array(fluid.global_scope().find_var(f"{n}.w_0").get_tensor()) for n in "ab"]
        return losses, weights


def test_it_trains_as_the_layer_that_does_the_same():
    ours, theirs = train(own_tanh), train(L.tanh)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5)
    for a, b in zip(ours[1], theirs[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_two_devices_give_the_same_and_threads_change_no_bit():
    one, two, four = train(own_tanh), train(own_tanh, devices=2, threads=2), train(own_tanh, devices=2, threads=4)
    for a, b, c in zip(one[1], two[1], four[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        assert np.array_equal(b, c)


def run(*fetches, **feed):
    return fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=list(fetches))


def test_several_inputs_and_outputs():
    x, y = fluid.data("x", [2, 3], "int32"), fluid.data("y", [2, 3], "int32")
    total, most = made(x), made(y)

    def both(a, b):
        assert isinstance(a, fluid.LoDTensor)
        return np.array(a) + np.array(b), np.maximum(a, b)

    assert L.py_func(both, [x, y], (total, most)) == (total, most)
    a, b = np.arange(6, dtype="int32").reshape(2, 3), np.full((2, 3), 2, "int32")
    found = run(total, most, x=a, y=b)
    assert np.array_equal(found[0], a + b)
    assert np.array_equal(found[1], np.maximum(a, b))


def test_a_function_may_return_nothing_and_take_nothing():
    seen = []
    x = fluid.data("x", [-1, 2])
    out = fluid.default_main_program().current_block().create_var(name="out", dtype="float32", shape=[2])
    L.py_func(lambda a: seen.append(np.array(a)), x, None)
    L.py_func(lambda: np.array([1.0, 2.0]), None, out)
    (found,) = run(out, x=np.ones((3, 2), "float32"))
    assert found.tolist() == [1, 2]
    assert [a.shape for a in seen] == [(3, 2)]


def test_functions_run_in_the_order_of_the_program_and_the_devices(monkeypatch):
    seen = []
    x = fluid.data("x", [-1, 1])
    for i in range(5):
        L.py_func(lambda a, i=i: seen.append((i, len(a))), x, None)
    strategy = fluid.ExecutionStrategy()
    strategy.num_threads = 4
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        exec_strategy=strategy, places=[fluid.CPUPlace()] * 2
    )
    fluid.Executor(fluid.CPUPlace()).run(program, {"x": np.zeros((3, 1), "float32")}, [])
    assert seen == [(i, rows) for i in range(5) for rows in (1, 2)]


def test_what_a_function_keeps_stays_as_it_was():
    kept = []
    x = fluid.data("x", [-1, 2])
    L.py_func(kept.append, x, None)
    for value in (1, 2):
        run(x=np.full((2, 2), value, "float32"))
    assert [np.array(t)[0, 0] for t in kept] == [1, 2]


def test_a_gradient_may_be_none_and_one_that_is_not_there_is_none():
    x, y = fluid.data("x", [-1, 2]), fluid.data("y", [-1, 2])
    x.stop_gradient = y.stop_gradient = False
    a, b = made(x), made(x)
    given = []

    def backward(x, y, a, b, da, db):
        given.append((da is None, db is None))
        return np.array(da) * 3, None

    L.py_func(lambda x, y: (3 * np.array(x), y), [x, y], [a, b], backward)
    gradients = fluid.gradients([L.reduce_sum(a)], [x, y])
    ones = np.ones((2, 2), "float32")
    dx, dy = run(*gradients, x=ones, y=ones)
    assert dx.tolist() == [[3, 3], [3, 3]]
    assert not dy.any()
    assert given == [(False, True)]


def test_without_a_backward_function_no_gradient_flows():
    x = fluid.data("x", [-1, 2])
    hidden = L.fc(x, 2)
    out = L.py_func(tanh, hidden, made(hidden))
    loss = L.mean(out + hidden)
    fluid.backward.append_backward(loss)
    assert not any(op.type == "py_func_grad" for op in fluid.default_main_program().global_block().ops)
    assert out.stop_gradient


# --- mistakes -------------------------------------------------------------------------------------------------------


def broken(x):
    raise KeyError(f"no {len(x)} here")


def test_what_a_function_raises_names_the_line_and_is_the_cause():
    x = fluid.data("x", [-1, 2])
    L.py_func(broken, x, None)
    with pytest.raises(RuntimeError, match=r"test_py_func.py:\d+:5: py_func: KeyError: 'no 3 here', at step 0") as caught:
        run(x=np.zeros((3, 2), "float32"))
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.at.text.strip() == "L.py_func(broken, x, None)"


def test_a_step_after_a_failed_one_runs():
    x = fluid.data("x", [-1, 2])
    out = made(x)
    times = []

    def once(a):
        times.append(1)
        if len(times) < 3:
            raise ValueError("not yet")
        return a

    L.py_func(once, x, out)
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(places=[fluid.CPUPlace()] * 2)
    executor, feed = fluid.Executor(fluid.CPUPlace()), {"x": np.ones((4, 2), "float32")}
    for _ in range(2):
        with pytest.raises(RuntimeError, match="ValueError: not yet"):
            executor.run(program, feed, [out])
    assert executor.run(program, feed, [out])[0].shape == (4, 2)
    assert len(times) == 4


def test_an_interrupt_in_a_function_is_one():
    x = fluid.data("x", [-1, 2])

    def stop(a):
        raise KeyboardInterrupt

    L.py_func(stop, x, None)
    with pytest.raises(KeyboardInterrupt):
        run(x=np.zeros((3, 2), "float32"))


@pytest.mark.parametrize(("function", "text"), [
    pytest.param(lambda a: np.zeros((2, 3), "float32"), r"returned float32\[2, 3\] for float32\[-1, 2\]", id="shape"),
    pytest.param(lambda a: np.zeros((2, 2), "complex64"), r"returned complex64", id="dtype"),
    pytest.param(lambda a: (a, a), "returned 2 values for 1 variables", id="count"),
    pytest.param(lambda a: None, "returned object", id="nothing"),
])  # fmt: skip
def test_what_is_returned_must_fit(function, text):
    x = fluid.data("x", [-1, 2])
    L.scale(L.py_func(function, x, made(x, "out")), 1.0)
    with pytest.raises(RuntimeError, match=text):
        run(x=np.zeros((2, 2), "float32"))


@pytest.mark.parametrize("shape", [[9], [-1, 2], [3, 1]])
def test_what_is_fetched_alone_may_have_any_shape(shape):
    x, y = fluid.data("x", [-1, 2]), fluid.data("y", [-1, 2])
    block = fluid.default_main_program().current_block()
    out, count = (block.create_var(name=name, dtype=kind, shape=shape) for name, kind in (("o", "float32"), ("c", "int64")))
    L.py_func(lambda a, b: (np.array(a)[:1] + np.array(b)[:1], np.array([len(np.array(a))])), [x, y], (out, count))
    values = np.arange(6, dtype="float32").reshape(3, 2)
    for rows in (3, 2):
        total, number, twice = run(out, count, L.scale(x, 2.0), x=values[:rows], y=values[:rows])
        np.testing.assert_array_equal(total, [[0, 2]])
        assert number.tolist() == [rows]
        np.testing.assert_array_equal(twice, 2 * values[:rows])
    out = block.create_var(name="p", dtype="float32", shape=shape)
    L.py_func(lambda a: {}["no"], x, out)
    with pytest.raises(RuntimeError, match=r"test_py_func.py:\d+:5: py_func: KeyError: 'no'"):
        run(out, x=values, y=values)


def test_arguments_that_do_not_fit():
    x = fluid.data("x", [-1, 2])
    block = fluid.default_main_program().current_block()
    with pytest.raises(TypeError, match="func must be a function, got 3"):
        L.py_func(3, x, None)
    with pytest.raises(TypeError, match="x takes variables"):
        L.py_func(tanh, "x", None)
    with pytest.raises(ValueError, match="'y' has no shape"):
        L.py_func(tanh, x, block.create_var(name="y"))
    with pytest.raises(ValueError, match=r"no x has the sizes of -1 of 'z'"):
        L.py_func(tanh, x, block.create_var(name="z", shape=[2, -1], dtype="float32"), tanh_grad)
    with pytest.raises(ValueError, match="'z' to skip is neither x nor out"):
        L.py_func(tanh, x, made(x), tanh_grad, skip_vars_in_backward_input=block.var("z"))
    with pytest.raises(ValueError, match="given twice"):
        L.py_func(np.add, [x, x], made(x), tanh_grad)


def test_a_step_inside_a_function():
    inner = fluid.Program()
    with fluid.program_guard(inner, fluid.Program()):
        double = L.scale(fluid.data("v", [-1, 2]), 2.0)
    parallel = fluid.CompiledProgram(inner).with_data_parallel(places=[fluid.CPUPlace()] * 2)
    executor = fluid.Executor(fluid.CPUPlace())
    x = fluid.data("x", [-1, 2])
    # of known sizes, so that it is called between the instructions of a step
    out = fluid.default_main_program().current_block().create_var(name="out", dtype="float32", shape=[2, 2])
    out = L.scale(L.py_func(lambda a: executor.run(which[0], {"v": np.array(a)}, [double])[0], x, out), 1.0)
    main = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(places=[fluid.CPUPlace()] * 2)
    which, ones = [inner], np.ones((4, 2), "float32")
    assert (executor.run(main, {"x": ones}, [out])[0] == 2).all()
    which[0] = parallel
    with pytest.raises(RuntimeError, match="cannot run inside a py_func"):
        executor.run(main, {"x": ones}, [out])


# --- files hold no functions ----------------------------------------------------------------------------------------


def test_no_file_can_have_one(tmp_path, monkeypatch):
    x = fluid.data("x", [-1, 2])
    L.py_func(tanh, x, made(x))
    program = fluid.default_main_program()
    assert '"forward": {"$python": "tanh"}' in str(program)
    with pytest.raises(PeError, match="calls the Python function 'tanh'"):
        from_string(str(program))
    with pytest.raises(PeError, match="cannot be saved: files hold no Python functions"):
        to_json(program)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.yaml").write_text("feeds: {x: {shape: [2]}}\nlayers: {y: {type: py_func, x: x}}\n")
    with pytest.raises(PeError, match=r"'py_func' of fluid.layers is no layer of a model file: it runs a Python function"):
        build(load_model("m.yaml"))


def test_a_program_that_names_no_function_says_so():
    text = str(fluid.default_main_program())
    attrs = '{"shapes": [[2]], "dtypes": ["float32"], "sources": [0]}'
    text += f"  var x: float32[2] is_data\n  forward py_func(X=x) -> Out=y: float32[2] {attrs}\n"
    program = from_string(text)
    with pytest.raises(RuntimeError, match="no function to call forward, but None"):
        fluid.Executor(fluid.CPUPlace()).run(program, {"x": np.zeros(2, "float32")}, ["y"])


# --- sizes and sequences that a function says -----------------------------------------------------------------------


def tensor(value, *lengths):
    made = fluid.LoDTensor()
    made.set(np.asarray(value), fluid.CPUPlace())
    made.set_recursive_sequence_lengths([list(level) for level in lengths])
    return made


def test_layers_read_as_many_rows_and_sequences_as_a_function_says():
    block = fluid.default_main_program().current_block()
    x = fluid.data("x", [None, 2], lod_level=1)
    out = block.create_var(name="kept", dtype="float32", shape=[-1, 2], lod_level=1)

    def first_of_each(given):
        kept = fluid.LoDTensor()
        ends = given.lod()[0]
        rows = [np.array(given)[a : a + 2] for a in ends[:-1]]
        kept.set_lod([np.cumsum([0, *map(len, rows)]).tolist()])
        kept.set(np.concatenate(rows), fluid.CPUPlace())
        return kept

    hidden = L.fc(L.py_func(first_of_each, x, out), 1, bias_attr=False, param_attr=fluid.ParamAttr(name="w"))
    summed = L.sequence_pool(hidden, "sum")
    fluid.optimizer.SGD(0.5).minimize(L.mean(summed))
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    for lengths in ([3, 2], [4, 2, 2]):
        before = np.array(fluid.global_scope().find_var("w").get_tensor())
        values = np.arange(2.0 * sum(lengths), dtype="float32").reshape(-1, 2)
        found, rows = executor.run(feed={"x": tensor(values, lengths)}, fetch_list=[summed, hidden], return_numpy=False)
        starts = np.cumsum([0, *lengths[:-1]])
        sums = np.stack([values[a] + values[a + 1] for a in starts])
        np.testing.assert_allclose(np.array(found), sums @ before, rtol=1e-5, atol=1e-6)
        assert rows.recursive_sequence_lengths() == [[2] * len(lengths)]
        after = np.array(fluid.global_scope().find_var("w").get_tensor())
        np.testing.assert_allclose(after, before - 0.5 * sums.mean(0)[:, None], rtol=1e-5, atol=1e-6)


def test_a_size_that_no_input_has():
    block = fluid.default_main_program().current_block()
    x = fluid.data("x", [2, 3])
    out = L.py_func(lambda a: np.array(a)[:, : 1 + int(np.array(a)[0, 0])], x, block.create_var(name="z", shape=[2, -1], dtype="float32"))
    (found,) = run(L.reduce_sum(out, dim=1), x=np.full((2, 3), 1, "float32"))
    assert found.tolist() == [2, 2]


def test_a_saved_program_holds_the_numbers_of_functions_and_no_code(tmp_path):
    # attributes as PaddlePaddle 1.8.5 writes them for these two layers
    x = fluid.data("x", [4, 3])
    square = L.py_func(lambda v: np.array(v) ** 2, x, made(x))
    L.py_func(lambda v: np.array(v) ** 3, square, made(x), lambda v, o, d: 3 * np.array(v) ** 2 * np.array(d))
    fluid.save(fluid.default_main_program(), str(tmp_path / "all"))
    blocks = program_desc.read((tmp_path / "all.pdmodel").read_bytes())
    ops = [op for op in blocks[0].ops if op.type == "py_func"]
    assert [(op.attrs["forward_callable_id"], op.attrs["backward_callable_id"]) for op in ops] == [(0, -1), (1, 2)]
    with pytest.raises(ValueError, match="operators that are not read: py_func"):
        fluid.Program.parse_from_string((tmp_path / "all.pdmodel").read_bytes())
