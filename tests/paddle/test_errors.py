"""Errors of scripts: types as the reference and the table of observations say, one line with the real values."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from tests.paddle.support import regression, rows, trained


@pytest.fixture
def parallel(monkeypatch):
    """Return an executor on two devices and the loss."""
    monkeypatch.setenv("CPU_NUM", "2")
    loss, _ = trained()
    return fluid.ParallelExecutor(False, loss_name=loss.name), loss


@pytest.mark.parametrize(
    ("feed", "kind", "message"),
    [
        pytest.param({"X": rows(1)}, ValueError, "1 samples for 2 devices", id="fewer rows than devices"),
        pytest.param([{"X": rows(2)}], ValueError, "1 elements for 2 devices", id="a list shorter than the devices"),
        pytest.param([{"X": rows(2)}] * 3, ValueError, "3 elements for 2 devices", id="a list longer than the devices"),
        pytest.param([rows(2), rows(2)], TypeError, "should be a dict, element 0", id="a list of arrays"),
        pytest.param(rows(4), ValueError, "feed is ndarray", id="an array"),
        pytest.param("X", ValueError, "feed is str", id="a text"),
        pytest.param({"x": rows(4)}, ValueError, "no feed 'x' .*did you mean 'X'", id="an unknown name"),
        pytest.param({}, ValueError, "'X' is missing", id="a missing name"),
        pytest.param(
            {"X": rows(4).astype("float64")}, TypeError, "'X' should be float32, got float64 .*astype", id="float64"
        ),
        pytest.param(
            {"X": rows(4).astype("int64")}, TypeError, "should be float32, got int64", id="integers for floats"
        ),
        pytest.param(
            {"X": np.zeros((4, 2), "float32")}, ValueError, r"float32\[batch, 1\], got \[4, 2\]", id="a wrong shape"
        ),
        pytest.param({"X": rows(4)[:, 0]}, ValueError, r"got \[4\]", id="an axis too few"),
    ],
)
def test_a_wrong_feed(parallel, feed, kind, message):
    executor, loss = parallel
    with pytest.raises(kind, match=message) as caught:
        executor.run([loss.name], feed=feed)
    assert "\n" not in str(caught.value)


def test_the_executor_refuses_unknown_feeds_and_fetches():
    loss, executor = trained()
    with pytest.raises(ValueError, match="no feed 'Y'"):
        executor.run(feed={"X": rows(2), "Y": rows(2)}, fetch_list=[loss])
    with pytest.raises(ValueError, match="no variable 'mean_9'"):
        executor.run(feed={"X": rows(2)}, fetch_list=["mean_9"])
    with pytest.raises(TypeError, match="variables and names, got 3"):
        executor.run(feed={"X": rows(2)}, fetch_list=[3])
    with pytest.raises(TypeError, match="takes a Program"):
        executor.run("main")


def test_an_unknown_fetch_of_a_parallel_executor(parallel):
    executor, loss = parallel
    with pytest.raises(ValueError, match=f"did you mean '{loss.name}'"):
        executor.run([loss.name[:-1]], feed={"X": rows(4)})


def test_numbers_and_narrow_integers_are_cast():
    x = fluid.layers.data("x", [1])
    ids = fluid.layers.data("ids", [1], dtype="int64")
    executor = fluid.Executor(fluid.CPUPlace())
    found = executor.run(feed={"x": [[0.5], [1]], "ids": np.array([[1], [2]], "int32")}, fetch_list=[x, ids])
    assert [v.dtype.name for v in found] == ["float32", "int64"]


def test_feed_dict_is_the_old_name_of_feed(parallel):
    executor, loss = parallel
    with pytest.warns(DeprecationWarning, match="feed_dict"):
        (old,) = executor.run([loss.name], feed_dict={"X": rows(4)})
    assert old.shape == (2,)


def test_share_vars_from_another_kind(parallel):
    executor, _ = parallel
    with pytest.raises(TypeError, match="must be a ParallelExecutor, got Executor"):
        fluid.ParallelExecutor(False, share_vars_from=fluid.Executor(fluid.CPUPlace()))
    compiled = fluid.CompiledProgram(fluid.default_main_program())
    with pytest.raises(TypeError, match="data-parallel CompiledProgram"):
        compiled.with_data_parallel(share_vars_from=executor)


def test_share_vars_from_before_its_first_run(parallel):
    executor, loss = parallel
    test = fluid.default_main_program().clone(for_test=True)
    tester = fluid.ParallelExecutor(False, loss.name, test, share_vars_from=executor)
    with pytest.raises(RuntimeError, match="has not run yet"):
        tester.run([loss.name], feed={"X": rows(4)})


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        pytest.param(None, "loss_name is missing .*mean_0", id="missing"),
        pytest.param("los", "no variable 'los'", id="unknown"),
    ],
)
def test_a_wrong_loss_name(loss, message):
    trained()
    with pytest.raises(ValueError, match=message):
        fluid.ParallelExecutor(False, loss_name=loss)


def test_another_variable_than_the_loss_is_said_and_gradients_start_where_they_do():
    """As in 1.8.5, which looks at no name; the zoo's ELMo names the mean that its loss is a multiple of."""
    loss, _ = trained()
    with pytest.warns(UserWarning, match=f"'fc_0.tmp_0', but the program's gradients start at '{loss.name}'"):
        executor = fluid.ParallelExecutor(False, loss_name="fc_0.tmp_0")
    assert executor.run([loss], feed={"X": rows(2)})[0].shape == (1,)


def test_a_variable_is_taken_as_the_loss(monkeypatch):
    loss, _ = trained()
    assert fluid.ParallelExecutor(False, loss_name=loss).run([loss], feed={"X": rows(2)})[0].shape == (1,)


@pytest.mark.parametrize(("text", "devices"), [(None, 1), ("3", 3)])
def test_cpu_num(monkeypatch, text, devices):
    if text is None:
        monkeypatch.delenv("CPU_NUM", raising=False)
    else:
        monkeypatch.setenv("CPU_NUM", text)
    regression()
    assert fluid.ParallelExecutor(False).device_count == devices
    assert len(fluid.cpu_places()) == devices


@pytest.mark.parametrize("text", ["0", "two", "-1", ""])
def test_a_wrong_cpu_num(monkeypatch, text):
    monkeypatch.setenv("CPU_NUM", text)
    regression()
    with pytest.raises(ValueError, match="CPU_NUM is"):
        fluid.ParallelExecutor(False)


def test_a_customized_scale_must_be_fed(monkeypatch):
    monkeypatch.setenv("CPU_NUM", "2")
    loss, _ = trained()
    build = fluid.BuildStrategy()
    build.gradient_scale_strategy = fluid.BuildStrategy.GradientScaleStrategy.Customized
    executor = fluid.ParallelExecutor(False, loss_name=loss.name, build_strategy=build)
    gradient = f"{loss.name}@GRAD"
    with pytest.raises(ValueError, match=gradient):
        executor.run([loss.name], feed={"X": rows(4)})
    feed = {"X": rows(4), gradient: np.full(2, 0.5, "float32")}
    assert executor.run([gradient], feed=feed)[0].tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [pytest.param("CoeffNumDevice", [0.5, 0.5], id="a share each"), pytest.param("One", [1, 1], id="one each")],
)
def test_the_gradient_of_the_loss(monkeypatch, strategy, expected):
    monkeypatch.setenv("CPU_NUM", "2")
    loss, _ = trained()
    build = fluid.BuildStrategy()
    build.gradient_scale_strategy = strategy
    executor = fluid.ParallelExecutor(False, loss_name=loss.name, build_strategy=build)
    assert executor.run([f"{loss.name}@GRAD"], feed={"X": rows(4)})[0].tolist() == expected


def test_several_iterations_a_run():
    x = fluid.layers.data("X", [1])
    counter = fluid.layers.autoincreased_step_counter()
    fluid.layers.scale(x)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    execution = fluid.ExecutionStrategy()
    execution.num_iteration_per_run = 3
    parallel = fluid.ParallelExecutor(False, exec_strategy=execution)
    assert [parallel.run([counter], feed={"X": rows(1)})[0].tolist() for _ in range(2)] == [[3], [6]]


def test_several_trainers_are_processes_that_mpiexec_has_started():
    loss, _ = trained()
    with pytest.raises(ValueError, match="num_trainers is 2, and this process is alone"):
        fluid.ParallelExecutor(False, loss_name=loss.name, num_trainers=2, trainer_id=0)


def test_a_program_whose_startup_did_not_run():
    loss = regression()
    with pytest.raises(RuntimeError, match=r"variable 'fc_0.w_0'.*run the startup program"):
        fluid.Executor(fluid.CPUPlace()).run(feed={"X": rows(2)}, fetch_list=[loss])


def test_a_gpu_that_is_not_there():
    if fluid.is_compiled_with_cuda():
        pytest.skip("there is a GPU")
    with pytest.raises(RuntimeError, match=r"CUDAPlace\(0\): there are 0 CUDA devices"):
        fluid.Executor(fluid.CUDAPlace(0))
    with pytest.raises(RuntimeError, match="no CUDA device"):
        fluid.cuda_places()


def test_a_label_out_of_range_names_row_and_value():
    x = fluid.layers.data("x", [3])
    y = fluid.layers.data("y", [1], dtype="int64")
    loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(x, y))
    feed = {"x": np.zeros((2, 3), "float32"), "y": np.array([[0], [12]])}
    with pytest.raises(RuntimeError, match="12"):
        fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[loss])


def test_names_that_are_not_there_yet_say_so():
    with pytest.raises(AttributeError, match="not there yet"):
        fluid.layers.AdaptiveAvgPool1D  # noqa: B018
    with pytest.raises(AttributeError, match=r"no 'ParalelExecutor'.*did you mean 'ParallelExecutor'"):
        fluid.ParalelExecutor  # noqa: B018
    with pytest.raises(AttributeError, match="no 'fcc'"):
        fluid.layers.fcc  # noqa: B018


# --- what works where the original failed ---------------------------------------------------------------------------


def test_five_rows_on_four_devices(monkeypatch):
    monkeypatch.setenv("CPU_NUM", "4")
    x = fluid.layers.data("X", [1])
    total = fluid.layers.reduce_sum(x)
    (sums,) = fluid.ParallelExecutor(False).run([total], feed={"X": np.array([[1], [2], [4], [8], [16]], "float32")})
    assert sums.tolist() == [1, 2, 4, 24]


def test_fetched_values_of_devices_are_joined_along_the_first_axis(parallel):
    executor, loss = parallel
    weight, both = executor.run(["fc_0.w_0", loss], feed={"X": rows(4)}, return_numpy=False)
    assert isinstance(weight, fluid.LoDTensor)
    assert (weight.shape(), both.shape()) == ([2, 10], [2])
    assert np.array_equal(*np.array(weight))


def test_values_of_devices_can_stay_apart(monkeypatch):
    monkeypatch.setenv("CPU_NUM", "2")
    loss, executor = trained()
    compiled = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(loss_name=loss.name)
    (apart,) = executor.run(compiled, feed={"X": rows(3)}, fetch_list=["X"], return_merged=False)
    assert [v.shape for v in apart] == [(1, 1), (2, 1)]


def test_an_uneven_split_averages_samples(monkeypatch):
    """Three samples on two devices train as on one: weights are by samples, not by devices."""
    found = []
    for devices in ("1", "2"):
        monkeypatch.setenv("CPU_NUM", devices)
        programs = fluid.Program(), fluid.Program()
        with fluid.program_guard(*programs), fluid.scope_guard(fluid.Scope()), fluid.unique_name.guard():
            fluid.default_startup_program().random_seed = 3
            loss, _ = trained(0.5)
            executor = fluid.ParallelExecutor(False, loss_name=loss.name)
            for i in range(3):
                executor.run([loss], feed={"X": rows(3, i)})
            found.append(np.array(fluid.global_scope().find_var("fc_0.w_0").get_tensor()))
    np.testing.assert_allclose(*found, rtol=1e-5)


def test_what_an_optimizer_cannot_have_is_a_value_error():
    with pytest.raises(ValueError, match="learning_rate must be finite"):
        fluid.optimizer.SGD(float("nan"))


def test_gradients_without_a_way_back_are_a_value_error():
    count, x = fluid.layers.fill_constant([1], "int64", 0), fluid.data("x", [2])
    x.stop_gradient = False
    _, doubled = fluid.layers.while_loop(lambda i, v: i < 3, lambda i, v: [i + 1, v * 2.0], [count, x])
    with pytest.raises(ValueError, match="without a bound"):
        fluid.gradients([doubled], [x])


def test_regularizers_have_the_module_path_of_2x():
    assert issubclass(importlib.import_module("pe_cli.paddle.regularizer").L2Decay, fluid.regularizer.L2Decay)
