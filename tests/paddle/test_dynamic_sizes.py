"""Sizes that only a step knows, against NumPy; programs that are cut there train as others do, on one device and on two."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle as paddle
import pe_cli.paddle.fluid as fluid
from tests.needs import torch

L = fluid.layers

def run(*fetches, **feed):
    return fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=list(fetches))


def array(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def test_places_where_a_condition_holds():
    a = array(3, 4)
    x = fluid.data("x", [-1, 4])
    found = L.where(L.greater_than(x, L.fill_constant([1], "float32", 0.0)))
    assert (found.shape, found.dtype) == ((-1, 2), "int64")
    for value in (a, -np.abs(a), a[:1]):
        (places,) = run(found, x=value)
        assert np.array_equal(places, np.argwhere(value > 0))


def test_what_follows_such_places_goes_on_with_them():
    a = array(5, 3)
    x = fluid.data("x", [-1, 3])
    places = L.where(L.greater_than(x, L.fill_constant([1], "float32", 0.0)))
    doubled = L.scale(L.cast(places, "float32"), 2.0)
    total = L.reduce_sum(doubled)
    found, sum_ = run(doubled, total, x=a)
    np.testing.assert_array_equal(found, 2.0 * np.argwhere(a > 0))
    assert sum_ == 2 * np.argwhere(a > 0).sum()


def test_the_largest_of_a_number_that_is_fed():
    a = array(4, 6)
    x, k = fluid.data("x", [-1, 6]), fluid.data("k", [1], "int32")
    values, places = L.topk(x, k)
    assert values.shape == (-1, -1)
    for count in (2, 5, 2):
        v, p = run(values, places, x=a, k=np.array([count], "int32"))
        assert np.array_equal(p, np.argsort(-a, 1)[:, :count])
        assert np.array_equal(v, np.take_along_axis(a, p, 1))
    with pytest.raises(RuntimeError, match="top_k needs k from 1 to the size of the last axis, got k 7"):
        run(values, x=a, k=np.array([7], "int32"))


def test_a_size_that_the_program_computes():
    x = fluid.data("x", [-1, 6])
    count = L.cast(L.reduce_sum(L.cast(L.greater_than(x, L.fill_constant([1], "float32", 0.0)), "float32")), "int32")
    drawn = L.gaussian_random([count, 3], mean=5.0, std=0.1)
    a = array(2, 6)
    (found,) = run(drawn, x=a)
    assert found.shape == ((a > 0).sum(), 3)
    assert abs(found.mean() - 5) < 0.2


def test_draws_differ_from_step_to_step():
    sizes = fluid.data("sizes", [2], "int64")
    drawn = L.gaussian_random(sizes)
    executor = fluid.Executor(fluid.CPUPlace())
    found = [executor.run(feed={"sizes": np.array(s)}, fetch_list=[drawn])[0] for s in ([2, 3], [4, 1], [2, 3])]
    assert [f.shape for f in found] == [(2, 3), (4, 1), (2, 3)]
    assert not np.array_equal(found[0], found[2])


def test_an_image_of_a_fed_size():
    theta, size = fluid.data("theta", [-1, 2, 3]), fluid.data("size", [4], "int32")
    grid = L.affine_grid(theta, size)
    a = array(2, 2, 3)
    (found,) = run(grid, theta=a, size=np.array([2, 1, 4, 5], "int32"))
    expected = torch.nn.functional.affine_grid(torch.tensor(a), [2, 1, 4, 5], align_corners=True)
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-6)


def branches(x, w):
    """Square what is above 0 and times w, else the row times 3."""
    ie = L.IfElse(L.greater_than(L.slice(x, [1], [0], [1]), L.fill_constant([1], "float32", 0.0)))
    with ie.true_block():
        ie.output(L.square(L.fc(ie.input(x), 1, param_attr=w, bias_attr=False)))
    with ie.false_block():
        ie.output(L.scale(L.fc(ie.input(x), 1, param_attr=w, bias_attr=False), 3.0))
    return ie()[0]


def selected(x, w):
    """The same with both branches computed for every row."""
    positive = L.cast(L.greater_than(L.slice(x, [1], [0], [1]), L.fill_constant([1], "float32", 0.0)), "float32")
    made = L.fc(x, 1, param_attr=w, bias_attr=False)
    yes = L.elementwise_mul(L.square(made), positive)
    return L.elementwise_add(yes, L.elementwise_mul(L.scale(made, 3.0), L.scale(positive, -1.0, 1.0)))


def train(network, devices=1, batch=None):
    programs = fluid.Program(), fluid.Program()
    with fluid.program_guard(*programs), fluid.scope_guard(fluid.Scope()), fluid.unique_name.guard():
        x = fluid.data("x", [-1, 4])
        loss = L.mean(network(x, fluid.ParamAttr("w", fluid.initializer.Constant(0.3))))
        fluid.optimizer.SGD(0.1).minimize(loss)
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(programs[1])
        main = programs[0]
        if devices > 1:
            main = fluid.CompiledProgram(main).with_data_parallel(loss.name, places=[fluid.CPUPlace()] * devices)
        losses = [executor.run(main, {"x": batch}, [loss])[0].mean() for _ in range(3)]
        return losses, np.array(fluid.global_scope().find_var("w").get_tensor())


@pytest.mark.parametrize("rows", [
    pytest.param(array(9, 4), id="both branches have rows"),
    pytest.param(np.abs(array(6, 4)), id="one branch has none"),
])  # fmt: skip
@pytest.mark.parametrize("devices", [1, 2])
def test_branches_over_rows_train_as_a_selection_does(devices, rows):
    ours, theirs = train(branches, devices, rows), train(selected, 1, rows)
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-5, atol=1e-6)
    if devices == 1:
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5)
    assert ours[0][-1] < ours[0][0]


def test_mistakes_of_branches():
    x = fluid.data("x", [-1, 1])
    ie = L.IfElse(L.greater_than(x, L.fill_constant([1], "float32", 0.0)))
    with pytest.raises(ValueError, match="input is for inside a block"):
        ie.input(x)
    with ie.true_block():
        ie.output(L.reduce_sum(ie.input(x), keep_dim=True))
        with pytest.raises(ValueError, match="a block inside a block"), ie.false_block():
            pass
    with pytest.raises(ValueError, match="1 and 0 outputs"):
        ie()
    with ie.false_block():
        ie.output(ie.input(x))
    (out,) = ie()
    with pytest.raises(RuntimeError, match="merge_rows: Mask holds in 2 of 3 rows, got 1 and 1"):
        run(out, x=np.array([[1], [2], [-1]], "float32"))
    with pytest.raises(TypeError, match="needs a bool variable"):
        L.IfElse(True)


def test_each_device_may_have_a_size_of_its_own():
    x, k = fluid.data("x", [-1, 6]), fluid.data("k", [-1, 1], "int32")
    values, _ = L.topk(x, k)
    total = L.reduce_sum(values)
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(places=[fluid.CPUPlace()] * 2)
    executor, feed = fluid.Executor(fluid.CPUPlace()), {"x": array(2, 6), "k": np.array([[2], [3]], "int32")}
    wanted = -np.sort(-feed["x"], 1)
    with pytest.raises(ValueError, match=r"cannot be joined along axis 0: \[1, 2\], \[1, 3\]"):
        executor.run(program, feed, [values])
    (found,) = executor.run(program, feed, [values], return_merged=False)
    for row, count in enumerate((2, 3)):
        np.testing.assert_array_equal(found[row], wanted[row : row + 1, :count])
    np.testing.assert_allclose(executor.run(program, feed, [total])[0], [wanted[0, :2].sum(), wanted[1, :3].sum()], rtol=1e-6)
    feed["k"][:] = 3
    assert executor.run(program, feed, [values])[0].shape == (2, 3)


def repeated(x, w):
    """A row that is repeated as many times as the device has samples, as scripts write it, with ops around that passes would join."""
    rows = L.cast(L.slice(L.shape(x), [0], [0], [1]), "int32")
    mean = L.reduce_mean(L.reduce_sum(L.fc(x, 1, param_attr=w, bias_attr=False)) * 0.0 + 0.5, dim=[0], keep_dim=True)
    one = L.expand(L.reshape(mean, [1, 1]), [rows, 1])
    filled = L.fill_constant([rows, 1], "float32", 0.25)
    return L.relu(L.elementwise_add(L.elementwise_mul(L.fc(x, 1, param_attr=w, bias_attr=False), one), filled))


def whole(x, w):
    """The same of numbers."""
    return L.relu(L.scale(L.fc(x, 1, param_attr=w, bias_attr=False), 0.5, 0.25))


@pytest.mark.parametrize("rows", [9, 5, 3, 8])
@pytest.mark.parametrize("devices", [1, 2, 3])
def test_batches_that_devices_do_not_divide_train_as_on_one(devices, rows):
    ours, theirs = train(repeated, devices, array(rows, 4)), train(whole, 1, array(rows, 4))
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-5, atol=1e-6)


def test_the_functions_of_2x():
    x, y = fluid.data("x", [-1, 2]), fluid.data("y", [-1, 2])
    a, b = array(3, 2), array(3, 2, seed=1)
    condition = L.greater_than(x, y)
    wanted = paddle.where(condition), paddle.where(condition, x, y), paddle.randperm(5, "int32")
    places, chosen, order = run(*wanted, x=a, y=b)
    assert np.array_equal(places, np.argwhere(a > b))
    assert np.array_equal(chosen, np.maximum(a, b))
    assert sorted(order.tolist()) == list(range(5))


def test_such_a_program_does_not_run_as_a_whole():
    from pe_cli.core.errors import PeError
    from pe_cli.core.types import Place
    from pe_cli.devices.scope import Scope
    from pe_cli.execute.executor import Executor

    x = fluid.data("x", [3], "bool")
    out = L.where(x)
    with pytest.raises(PeError, match="'where_index' has sizes that only a step knows"):
        Executor(fluid.default_main_program(), Scope([Place("cpu", 0)])).run({"x": np.ones(3, "bool")}, [out.name])


def test_different_values_in_the_order_of_their_first_places():
    x = fluid.data("x", [-1], "int64")
    values, places, counts = L.unique_with_counts(x, "int64")
    same = L.unique(x)
    a = np.array([7, 3, 7, 9, 3, 7])
    found = run(values, places, counts, *same, x=a)
    assert [f.tolist() for f in found] == [[7, 3, 9], [0, 1, 0, 2, 1, 0], [3, 2, 1], [7, 3, 9], [0, 1, 0, 2, 1, 0]]
    assert [str(f.dtype) for f in found] == ["int64", "int64", "int64", "int64", "int32"]
    with pytest.raises(ValueError, match="needs a vector"):
        L.unique(fluid.data("matrix", [2, 2]))


def test_what_2x_selects_and_sorts():
    x = fluid.data("x", [-1, 3])
    x.stop_gradient = False
    chosen = paddle.masked_select(x, L.greater_than(x, L.fill_constant([1], "float32", 0.0)))
    (gradient,) = fluid.gradients([L.reduce_sum(L.square(chosen))], [x])
    wanted = [chosen, gradient, paddle.nonzero(x), paddle.cumsum(x), paddle.cumsum(x, 0), paddle.sort(x), paddle.argsort(x)]
    a = np.array([[1, -2, 0], [-1, 3, 2]], "float32")
    expected = [a[a > 0], np.where(a > 0, 2 * a, 0), np.argwhere(a), a.cumsum(), a.cumsum(0), np.sort(a), a.argsort()]
    for value, right in zip(run(*wanted, x=a), expected, strict=True):
        assert np.array_equal(value, right)


def test_rows_that_2x_writes():
    x, ids, updates = fluid.data("x", [3, 2]), fluid.data("ids", [2], "int64"), fluid.data("updates", [2, 2])
    added = paddle.scatter(x, ids, updates, False)
    feed = {"x": np.ones((3, 2), "float32"), "ids": np.array([1, 1]), "updates": np.ones((2, 2), "float32")}
    assert run(added, **feed)[0][:, 0].tolist() == [1, 2, 1]


def test_sizes_counts_and_factors_that_are_fed():
    a = array(2, 6)
    x, sizes, one = fluid.data("x", [2, 6]), fluid.data("sizes", [2], "int32"), fluid.data("one", [1], "int32")
    x.stop_gradient = False
    number = fluid.data("number", [1])
    shown = [
        L.fill_constant(sizes, "int64", 7), L.fill_constant([2, 2], "float32", number), L.full([one, 2], 1.5), L.expand(x, sizes),
        L.slice(x, [0, 1], [0, one], sizes), L.crop_tensor(x, [-1, one], [0, 2]), L.crop(x, [1, 2], sizes), L.scale(x, number, 1.0),
        L.clamp(x, max=number), L.range(one, 9, 3, "int64"), L.linspace(0.0, number, sizes[1]),
    ]  # fmt: skip
    loss = L.reduce_sum(L.square(shown[3])) + L.reduce_sum(L.square(shown[4]))
    (slope,) = fluid.gradients([loss], [x])
    drawn = [L.uniform_random(sizes, min=2.0, max=3.0), L.randint(4, 6, sizes), L.randn([one, 3])]
    assert [L.randn([2]).stop_gradient, L.randn([2], stop_gradient=False).stop_gradient] == [True, False]
    assert [v.shape for v in drawn] == [(-1, -1), (-1, -1), (-1, 3)]
    for s, k in (((1, 3), 1), ((1, 4), 2)):
        given = {"x": a, "sizes": np.array(s, "int32"), "one": np.array([k], "int32"), "number": np.array([0.25], "float32")}
        *found, back, uniform, whole, normal = run(*shown, slope, *drawn, **given)
        part = np.zeros_like(a)
        part[: s[0], k : s[1]] = a[: s[0], k : s[1]]
        wanted = [
            np.full(s, 7), np.full((2, 2), 0.25), np.full((k, 2), 1.5), np.tile(a, s), a[: s[0], k : s[1]], a[:, 2 : 2 + k],
            a[s[0] : s[0] + 1, s[1] : s[1] + 2], 0.25 * a + 1, a.clip(max=0.25), np.arange(k, 9, 3), np.linspace(0, 0.25, s[1]),
        ]  # fmt: skip
        for i, (got, right) in enumerate(zip(found, wanted, strict=True)):
            np.testing.assert_allclose(got, right, rtol=1e-6, atol=1e-7, err_msg=str(i))
        np.testing.assert_allclose(back, 2 * s[0] * s[1] * a + 2 * part, rtol=1e-5)
        assert uniform.shape == whole.shape == s
        assert 2 <= uniform.min() <= uniform.max() < 3
        assert set(whole.ravel()) <= {4, 5}
        assert normal.shape == (k, 3)


def test_sizes_and_axes_of_joined_cut_and_marked_tensors_are_fed():
    a = array(2, 3, 4)
    x, k, label = fluid.data("x", [2, 3, 4]), fluid.data("k", [1], "int32"), fluid.data("label", [3, 1], "int64")
    x.stop_gradient = False
    joined = L.concat([x, x], k)
    halves = L.split(x, [k, 3], dim=2)
    cut = L.strided_slice(x, [1, 2], [k, 3], [3, 0], [1, -2])
    marked = [L.one_hot(label, k, allow_out_of_range=True), fluid.one_hot(L.squeeze(label, [1]), k, allow_out_of_range=True)]
    (slope,) = fluid.gradients(L.reduce_sum(L.square(cut)), [x])
    ids = np.array([[0], [1], [2]])
    for n in (1, 2):
        feed = {"x": a, "k": np.array([n], "int32"), "label": ids}
        both, thin, back, one, other = run(joined, cut, slope, *marked, **feed)
        np.testing.assert_array_equal(both, np.concatenate([a, a], n))
        np.testing.assert_array_equal(thin, a[:, n:3, 3:0:-2])
        expected = np.zeros_like(a)
        expected[:, n:3, 3:0:-2] = 2 * thin
        np.testing.assert_allclose(back, expected, rtol=1e-6)
        for v in (one, other):
            np.testing.assert_array_equal(v, (ids == np.arange(n)).astype("float32"))
    first, rest = run(*halves, x=a, k=np.array([1], "int32"), label=ids)
    np.testing.assert_array_equal(first, a[:, :, :1])
    np.testing.assert_array_equal(rest, a[:, :, 1:])
    made = [L.unsqueeze(x, [k]), L.unsqueeze(x, k), L.ones([k, 3], "int32"), L.zeros([2, k], "float32")]
    shapes = [(2, 3, 1, 4), (2, 3, 1, 4), (2, 3), (2, 2)]
    assert [v.shape for v in run(*made, x=a, k=np.array([2], "int32"), label=ids)] == shapes
    along = L.split(x, 2, dim=L.scale(k, 2.0))
    assert [v.shape for v in run(*along, x=a, k=np.array([1], "int32"), label=ids)] == [(2, 3, 2)] * 2


def test_windows_of_images_are_sequences_and_constants_have_a_row_for_each_sequence():
    x = fluid.data("x", [-1, 1, 3, 4])
    x.stop_gradient = False
    windows = L.im2sequence(L.scale(x, 2.0), filter_size=2)
    best = L.sequence_pool(windows, "max")
    (slope,) = fluid.gradients(L.reduce_sum(best), [x])
    a = np.arange(24, dtype="float32").reshape(2, 1, 3, 4)
    exe = fluid.Executor(fluid.CPUPlace())
    rows, largest, back = exe.run(feed={"x": a}, fetch_list=[windows, best, slope], return_numpy=False)
    assert rows.lod() == [[0, 6, 12]]
    np.testing.assert_array_equal(np.array(largest), 2 * a[:, 0, 1:, 2:].reshape(2, 4))
    expected = np.zeros_like(a)
    expected[:, :, 1:, 2:] = 2
    np.testing.assert_array_equal(np.array(back), expected)


def test_a_constant_has_a_row_for_each_sequence():
    words = fluid.data("words", [-1, 1], lod_level=1)
    made = L.fill_constant_batch_size_like(words, [-1, 3], "float32", 2.0)
    value = fluid.create_lod_tensor(np.zeros((6, 1), "float32"), [[2, 4]], fluid.CPUPlace())
    (found,) = run(made, words=value)
    np.testing.assert_array_equal(found, np.full((2, 3), 2.0))


@pytest.mark.parametrize("mode", ["circular", "reflect", "replicate"])
@pytest.mark.parametrize("layout", ["NCL", "NCHW", "NCDHW"])
def test_borders_of_axes_whose_sizes_only_a_batch_has(mode, layout):
    value = array(*[2, 3, 4, 5, 6][: len(layout)])
    sides = [1, 2, 2, 1, 1, 0][: 2 * (len(layout) - 2)]
    x = fluid.data("x", [-1, 3] + [-1] * (len(layout) - 2))
    (found,) = run(paddle.nn.functional.pad(x, sides, mode, data_format=layout), x=value)
    np.testing.assert_array_equal(found, torch.nn.functional.pad(torch.tensor(value), sides, mode).numpy())


def test_sizes_that_are_known_beside_others_that_are_not_train_inside_of_a_loop(rng):
    cell = L.GRUCell(4)
    steps, memory = fluid.data("steps", [None, 3, 4]), fluid.data("memory", [None, 2, 4])

    class Attention(L.RNNCell):
        def call(self, inputs, states):
            state = L.unsqueeze(states, [1])
            seen = memory + L.expand(state, [1, L.shape(memory)[1], 1])
            return cell(L.reduce_sum(seen, dim=1) + inputs, states)

        state_shape = property(lambda self: [4])

    first = L.fill_constant_batch_size_like(steps, [-1, 4], "float32", 0.0)
    out, _ = L.rnn(Attention(), steps, first)
    loss = L.mean(L.square(out))
    fluid.optimizer.SGD(0.5).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    fed = {name: rng.standard_normal((2, size, 4)).astype("float32") for name, size in (("steps", 3), ("memory", 2))}
    losses = [float(exe.run(feed=fed, fetch_list=[loss])[0]) for _ in range(3)]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > losses[2]


def test_sizes_that_are_numbers_are_known_beside_variables():
    x = fluid.data("x", [None, 4, None])
    n, h = L.slice(L.shape(x), [0], [0], [1]), L.slice(L.shape(x), [0], [2], [3])
    one = L.fill_constant([1, 3], "float32", 1.0)
    made = [
        L.reshape(x, [n, 2, 2, h]), L.reshape(x, [0, 0, h, 1]), L.fill_constant([n, 7], "float32", 2.0), L.expand(one, [n, 2]),
        L.gaussian_random([n, 5]), L.uniform_random([n, 5]),
    ]  # fmt: skip
    # what 1.8.5 tells of them, but for `uniform_random`, of which it says -1 twice
    assert [v.shape for v in made] == [(-1, 2, 2, -1), (-1, 4, -1, 1), (-1, 7), (-1, 6), (-1, 5), (-1, 5)]
    made.append(L.fc(made[2], 1))
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    found = executor.run(feed={"x": np.ones((3, 4, 5), "float32")}, fetch_list=made)
    assert [v.shape for v in found] == [(3, 2, 2, 5), (3, 4, 5, 1), (3, 7), (3, 6), (3, 5), (3, 5), (3, 1)]


MIXED = {
    "a slice": (lambda x, k: L.slice(x, [1, 2], [k, 0], [3, 2]), (-1, -1, 2), lambda a: a[:, 1:3, :2]),
    "a slice of three axes": (lambda x, k: L.slice(x, [0, 1, 2], [0, k, 1], [1, 3, 4]), (-1, -1, 3), lambda a: a[:1, 1:3, 1:4]),
    "a slice from the end": (lambda x, k: L.slice(x, [1, 2], [k, -3], [3, -1]), (-1, -1, 2), lambda a: a[:, 1:3, -3:-1]),
    "a slice with steps": (lambda x, k: L.strided_slice(x, [1, 2], [k, 0], [3, 5], [1, 2]), (-1, -1, 3), lambda a: a[:, 1:3, :5:2]),
    "a box of an open size": (lambda x, k: L.crop_tensor(x, [k, 2, 3], [0, 1, 2]), (-1, 2, 3), lambda a: a[:1, 1:3, 2:5]),
    "a box at an open place": (lambda x, k: L.crop_tensor(x, [1, 2, 3], [0, k, 1]), (1, 2, 3), lambda a: a[:1, 1:3, 1:4]),
    "a box that takes all of an axis": (lambda x, k: L.crop_tensor(x, [-1, 2, k], [0, k, 1]), (-1, 2, -1), lambda a: a[:, 1:3, 1:2]),
}


@pytest.mark.parametrize("name", sorted(MIXED))
def test_sizes_that_are_numbers_beside_variables_stay_known(name):
    # shapes are those that PaddlePaddle 1.8.5 declares
    make, shape, expected = MIXED[name]
    a = array(2, 4, 6)
    x, k = fluid.data("x", [None, 4, 6]), fluid.data("k", [1], "int32")
    x.stop_gradient = False
    out = make(x, k)
    assert out.shape == shape
    gradient = fluid.gradients(L.reduce_sum(L.square(out)), x)[0]
    found, slope = run(out, gradient, x=a, k=np.array([1], np.int32))
    np.testing.assert_array_equal(found, expected(a))
    np.testing.assert_allclose(np.abs(slope).sum(), 2 * np.abs(expected(a)).sum(), rtol=1e-6)


def test_a_column_is_repeated_over_an_open_axis():
    a = array(1, 4, 1)
    x, y = fluid.data("x", [1, 4, 1]), fluid.data("y", [None, 4, None])
    (found,) = run(L.expand_as(x, y), x=a, y=array(2, 4, 3))
    np.testing.assert_array_equal(found, np.broadcast_to(a, (2, 4, 3)))
