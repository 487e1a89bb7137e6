"""Feeds of other sizes than declared, conditions with an axis of unknown size, and numbers that scripts print."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.paddle import fluid
from pe_cli.paddle.errors import FluidValueError


@pytest.fixture
def exe():
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.scope_guard(fluid.Scope()),
        fluid.unique_name.guard(),
    ):
        yield fluid.Executor(fluid.CPUPlace())


def test_layers_data_takes_other_sizes_and_numbers_of_axes(exe):
    x = fluid.layers.data("x", [2, 2])
    y = fluid.layers.reduce_sum(fluid.layers.square(x), dim=-1)
    for shape in ((2, 2), (3, 2, 2), (4,), (1, 2, 3, 4), (2, 2)):
        given = np.arange(np.prod(shape), dtype="float32").reshape(shape)
        (found,) = exe.run(feed={"x": given}, fetch_list=[y])
        np.testing.assert_allclose(found, np.atleast_1d((given**2).sum(-1)))


def test_an_op_that_cannot_take_the_sizes_says_what_was_declared(exe):
    x = fluid.layers.data("x", [4])
    out = fluid.layers.fc(x, 3)
    exe.run(fluid.default_startup_program())
    with pytest.raises(FluidValueError, match=r"feed 'x' should be float32\[batch, 4\], got \[2, 5\]"):
        exe.run(feed={"x": np.zeros((2, 5), "float32")}, fetch_list=[out])


@pytest.mark.parametrize("devices", [1, 2])
def test_each_device_takes_other_numbers_of_axes(exe, devices):
    """As the zoo's ELMo feeds its first states as a row, and later ones as what was fetched."""
    x, state = fluid.layers.data("x", [4]), fluid.layers.data("state", [1])
    made = fluid.layers.elementwise_add(fluid.layers.fc(x, 3, param_attr="w", bias_attr=False), fluid.layers.reshape(state, [-1, 3]))
    loss = fluid.layers.mean(made)
    fluid.optimizer.SGD(0.1).minimize(loss)
    exe.run(fluid.default_startup_program())
    start = np.array(fluid.global_scope().find_var("w").get_tensor())
    places = [fluid.CPUPlace()] * devices
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(loss.name, places=places)
    rng = np.random.default_rng(0)
    for shape in ((6,), (2, 1, 3), (6, 1)):
        feeds = [{"x": rng.random((2, 4), "float32"), "state": rng.random(shape, "float32")} for _ in places]
        found = exe.run(program, feeds, [made], return_merged=False)[0]
        for each, given in zip(found, feeds, strict=True):
            np.testing.assert_allclose(each, given["x"] @ start + given["state"].reshape(2, 3), rtol=1e-5)
        start = start - 0.1 * np.concatenate([given["x"] for given in feeds]).mean(0)[:, None] / 3
        np.testing.assert_allclose(np.array(fluid.global_scope().find_var("w").get_tensor()), start, rtol=1e-5)
    if devices > 1:
        feeds[1]["state"] = np.zeros((3, 2), "float32")
        with pytest.raises(FluidValueError, match=r"feed 'state' should be float32\[batch, 1\], got \[3, 2\]"):
            exe.run(program, feeds, [made])


def test_fluid_data_takes_what_it_declares(exe):
    out = fluid.layers.relu(fluid.data("x", [-1, 2]))
    with pytest.raises(FluidValueError, match="should be"):
        exe.run(feed={"x": np.zeros((2, 2, 2), "float32")}, fetch_list=[out])


@pytest.mark.parametrize("by", ["feeder", "loader"])
def test_a_sample_of_more_axes_holds_several_rows(exe, by):
    # DataToLoDTensorConverter.done of 1.8.5: where the numbers of axes differ, the batch is reshaped to what is declared.
    lens, pairs = fluid.data("lens", [None], "int64"), fluid.data("pairs", [None, 2], "float32")
    batch = [([5, 6, 7], [[[0, 1], [2, 3]]]), ([8, 9, 10], [[[4, 5], [6, 7]]])]
    if by == "feeder":
        fed = fluid.DataFeeder([lens, pairs], fluid.CPUPlace()).feed(batch)
    else:
        loader = fluid.io.DataLoader.from_generator(feed_list=[lens, pairs], capacity=2)
        loader.set_sample_list_generator(lambda: iter([batch]), places=fluid.CPUPlace())
        ((fed,),) = loader()
    found = exe.run(feed=fed, fetch_list=[lens + 0, pairs + 0])
    np.testing.assert_array_equal(found[0], np.arange(5, 11))
    np.testing.assert_array_equal(found[1], np.arange(8).reshape(4, 2))
    with pytest.raises(FluidValueError, match="feed 'pairs' should be"):
        fluid.DataFeeder([pairs], fluid.CPUPlace()).feed([([[1.0, 2.0, 3.0]],)])


def test_samples_of_as_many_axes_are_never_reshaped(exe):
    # 1.8.5: "The fed Variable 'turned' should have dimensions = 3, shape = (-1, 2, 3), but received fed shape [1, 3, 2]".
    turned, free = fluid.data("turned", [None, 2, 3]), fluid.layers.data("free", [2, 3])
    sample = np.arange(6, dtype="float32").reshape(3, 2)
    with pytest.raises(FluidValueError, match=r"feed 'turned' should be float32\[batch, 2, 3\], got \[1, 3, 2\]"):
        fluid.DataFeeder([turned], fluid.CPUPlace()).feed([(sample,)])
    fed = fluid.DataFeeder([free], fluid.CPUPlace()).feed([(sample,)])
    np.testing.assert_array_equal(exe.run(feed={"free": fed["free"]}, fetch_list=[free + 0])[0], [sample])


def test_layers_data_takes_whole_numbers_of_another_type(exe):
    # The icnet of 1.3 to 1.6 feeds labels as float32 where it has declared int32, which the original does not check.
    label, strict = fluid.layers.data("label", [2], dtype="int32"), fluid.data("strict", [None, 2], "int32")
    given = np.array([[1, 2], [3, 18]], "float32")
    np.testing.assert_array_equal(exe.run(feed={"label": given}, fetch_list=[fluid.layers.cast(label, "int64")])[0], given)
    for array in (given + 0.5, given * np.nan, given * 1e20):
        with pytest.raises(TypeError, match="feed 'label' should be int32, got float32"):
            exe.run(feed={"label": array}, fetch_list=[label + 0])
    with pytest.raises(TypeError, match="feed 'strict' should be int32, got float32"):
        exe.run(feed={"strict": given}, fetch_list=[strict + 0])


def test_a_condition_of_a_batch_of_one(exe):
    a, b = fluid.data("a", [-1, 1]), fluid.data("b", [-1, 1])
    out = fluid.layers.cond(fluid.layers.less_than(a, b), lambda: a + b, lambda: a * b)
    for first, second in ((2.0, 3.0), (3.0, 2.0)):
        feed = {"a": np.full((1, 1), first, "float32"), "b": np.full((1, 1), second, "float32")}
        assert exe.run(feed=feed, fetch_list=[out])[0].item() == (first + second if first < second else first * second)
    with pytest.raises(RuntimeError, match="its condition is"):
        exe.run(feed={n: np.ones((2, 1), "float32") for n in "ab"}, fetch_list=[out])


def test_one_number_in_a_list_is_printed_as_a_number(exe):
    (found,) = exe.run(fetch_list=[fluid.layers.fill_constant([1], "float32", 2.5)])
    assert f"{float(found):.1f} {int(found)}" == "2.5 2"
    assert "%.2f" % found == "2.50"  # noqa: UP031 - what scripts of the time do
    with pytest.raises(TypeError):
        float(np.concatenate([found, found]).view(type(found)))


def test_full_takes_a_bool_and_a_variable_that_is_known(exe):
    two = fluid.layers.fill_constant([1], "float32", 2.0)
    fetches = [fluid.layers.full([2, 1], True, dtype="bool"), fluid.layers.full([2, 1], two, dtype="float32")]
    yes, twos = exe.run(fetch_list=fetches)
    assert yes.tolist() == [[True], [True]]
    assert twos.tolist() == [[2.0], [2.0]]


@pytest.mark.parametrize("parallel", [False, True])
def test_a_result_that_a_script_makes_persistable_is_in_the_scope_and_saved(exe, parallel, tmp_path):
    """As `last_hidden.persistable = True` of the zoo's language models, whose sizes follow from the batch."""
    x = fluid.layers.data("x", [3])
    hidden = fluid.layers.fc(x, 2)
    hidden.persistable = True
    loss = fluid.layers.mean(hidden)
    fluid.optimizer.SGD(0.1).minimize(loss)
    exe.run(fluid.default_startup_program())
    program = fluid.default_main_program()
    if parallel:
        program = fluid.CompiledProgram(program).with_data_parallel(loss.name, places=[fluid.CPUPlace()])
    for rows in (4, 2):
        (found,) = exe.run(program, feed={"x": np.ones((rows, 3), "float32")}, fetch_list=[hidden])
        np.testing.assert_array_equal(np.array(fluid.global_scope().find_var(hidden.name).get_tensor()), found)
        exe.run(program, feed={"x": np.ones((rows + 1, 3), "float32")}, fetch_list=[loss])
        assert fluid.global_scope().find_var(hidden.name).get_tensor().shape() == [rows + 1, 2]
    fluid.io.save_persistables(exe, str(tmp_path))
    assert hidden.name in {path.name for path in tmp_path.iterdir()}
