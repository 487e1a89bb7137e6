"""Inference models by the C++ names; the numbers are those that 1.8.5 computed of the same model."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.paddle import fluid
from pe_cli.paddle.fluid import core

IDS = np.array([[1], [2], [3], [4], [5]], "int64")
X = np.arange(6, dtype="float32").reshape(2, 3) / 6
PROB = [[0.7696959972381592, 0.23030400276184082], [0.3897530138492584, 0.610247015953064]]
WEIGHTS = [[0.5], [0.5], [1 / 3], [1 / 3], [1 / 3]]


def _weight(*sizes):
    values = np.linspace(-1, 1, int(np.prod(sizes))).reshape(sizes).astype("float32")
    return fluid.ParamAttr(initializer=fluid.initializer.NumpyArrayInitializer(values))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Save a model of words and numbers, once with a file for each parameter, and once with two files."""
    made = tmp_path_factory.mktemp("models")
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()), fluid.unique_name.guard():
        ids, x = fluid.data("ids", [None, 1], "int64", lod_level=1), fluid.data("x", [None, 3])
        rows = fluid.layers.squeeze(fluid.embedding(ids, [10, 4], param_attr=_weight(10, 4)), [1])
        weights = fluid.layers.sequence_softmax(fluid.layers.fc(rows, 1, param_attr=_weight(4, 1)))
        pooled = fluid.layers.sequence_pool(rows, "sum")
        prob = fluid.layers.fc([pooled, x], 2, act="softmax", param_attr=[_weight(4, 2), _weight(3, 2)])
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(fluid.default_startup_program())
        fluid.io.save_inference_model(str(made / "many"), ["ids", "x"], [prob, weights], exe)
        fluid.io.save_inference_model(str(made / "two"), ["ids", "x"], [prob, weights], exe, model_filename="m", params_filename="p")
    return made


def _configs(made):
    native = core.NativeConfig()
    native.model_dir = str(made / "many")
    return {
        "a folder": core.AnalysisConfig(str(made / "many")),
        "two files": core.AnalysisConfig(str(made / "two" / "m"), str(made / "two" / "p")),
        "the older configuration": native,
    }


@pytest.mark.parametrize("by", ["a folder", "two files", "the older configuration"])
def test_a_model_is_run_on_tensors(saved, by):
    words, numbers = core.PaddleTensor(IDS), core.PaddleTensor(X, "x")
    words.lod = [[0, 2, 5]]
    first, second = core.create_paddle_predictor(_configs(saved)[by]).run([words, numbers])
    np.testing.assert_allclose(first.as_ndarray(), PROB, rtol=1e-5)
    np.testing.assert_allclose(first.data.float_data(), np.ravel(PROB), rtol=1e-5)
    np.testing.assert_allclose(second.as_ndarray(), WEIGHTS, rtol=1e-5)
    assert (first.shape, first.lod, first.dtype, second.lod) == ([2, 2], [], core.PaddleDType.FLOAT32, [[0, 2, 5]])


def test_a_model_is_run_on_what_its_variables_hold(saved):
    config = core.AnalysisConfig(str(saved / "many"))
    config.switch_use_feed_fetch_ops(False)
    predictor = core.create_paddle_predictor(config).clone()
    assert predictor.get_input_names() == ["ids", "x"]
    assert predictor.get_input_tensor_shape() == {"ids": [-1, 1], "x": [-1, 3]}
    ids, x = (predictor.get_input_tensor(name) for name in ("ids", "x"))
    ids.reshape([5, 1])
    ids.copy_from_cpu(IDS)
    ids.set_lod([[0, 2, 5]])
    x.copy_from_cpu(X)
    assert predictor.zero_copy_run()
    prob, weights = (predictor.get_output_tensor(name) for name in predictor.get_output_names())
    np.testing.assert_allclose(prob.copy_to_cpu(), PROB, rtol=1e-5)
    assert (weights.lod(), weights.shape(), ids.type()) == ([[0, 2, 5]], [5, 1], core.PaddleDType.INT64)


def test_inputs_belong_to_variables_by_their_names(saved):
    config = core.AnalysisConfig(str(saved / "many"))
    config.switch_specify_input_names(True)
    predictor = core.create_paddle_predictor(config)
    words, numbers = core.PaddleTensor(IDS, "ids", [[0, 2, 5]]), core.PaddleTensor(X, "x")
    np.testing.assert_allclose(predictor.run([numbers, words])[0].as_ndarray(), PROB, rtol=1e-5)
    with pytest.raises(ValueError, match="no such variable 'y'"):
        predictor.run([core.PaddleTensor(X, "y"), words])
    with pytest.raises(ValueError, match="takes 2 inputs, ids, x, and got 1"):
        predictor.run([words])


def test_a_configuration_says_what_it_was_told():
    config = core.AnalysisConfig("folder")
    config.enable_use_gpu(100, 3)
    config.switch_ir_optim(False)
    config.set_cpu_math_library_num_threads(4)
    copied = core.AnalysisConfig(config)
    config.disable_gpu()
    assert (copied.use_gpu(), copied.gpu_device_id(), copied.ir_optim(), copied.cpu_math_library_num_threads()) == (True, 3, False, 4)
    assert (config.use_gpu(), config.model_dir(), config.prog_file(), config.params_file()) == (False, "folder", "", "")
    config.set_model("a/m", "a/p")
    assert (config.model_dir(), config.prog_file(), config.params_file()) == ("", "a/m", "a/p")


def test_buffers_hold_bytes():
    assert core.PaddleBuf([1.0, 2.0]).length() == 8
    assert core.PaddleBuf(4).int32_data() == [0]
    assert core.PaddleBuf(np.array([7, 8])).int64_data() == [7, 8]
    buffer = core.PaddleBuf(0)
    assert buffer.empty()
    buffer.reset(X)
    np.testing.assert_array_equal(buffer.tolist("float32"), X.ravel())


def test_what_is_no_model_or_no_tensor_is_told(tmp_path):
    with pytest.raises(ValueError, match="names no model"):
        core.create_paddle_predictor(core.AnalysisConfig())
    with pytest.raises(ValueError, match="there is no model"):
        core.create_paddle_predictor(core.AnalysisConfig(str(tmp_path)))
    with pytest.raises(TypeError, match="float32, int64, int32, got float64"):
        core.PaddleTensor(np.ones(2))
