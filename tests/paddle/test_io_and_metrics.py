"""Saving and loading, inference models, metrics, the profiler, flags and versions."""

from __future__ import annotations

import json

import numpy as np
import pytest

import pe_cli.paddle as paddle
import pe_cli.paddle.fluid as fluid
from tests.paddle.support import rows, trained

# --- io -------------------------------------------------------------------------------------------------------------


def values():
    program = fluid.default_main_program()
    scope = fluid.global_scope()
    return {
        v.name: np.array(scope.find_var(v.name).get_tensor()) for v in fluid.io.get_program_persistable_vars(program)
    }


@pytest.mark.parametrize("filename", [None, "all"], ids=["a file each", "one file"])
def test_persistables_are_saved_and_loaded(tmp_path, filename):
    _, executor = trained()
    before = values()
    fluid.io.save_persistables(executor, tmp_path, filename=filename)
    executor.run(feed={"X": rows(4)})
    assert any(not np.array_equal(v, before[k]) for k, v in values().items())
    fluid.io.load_persistables(executor, tmp_path, filename=filename)
    assert all(np.array_equal(v, before[k]) for k, v in values().items())


def test_what_cannot_be_loaded(tmp_path):
    _, executor = trained()
    with pytest.raises(ValueError, match="no such file"):
        fluid.io.load_params(executor, tmp_path / "absent")
    with pytest.raises(ValueError, match="leads out of"):
        fluid.io.save_params(executor, tmp_path / "in", filename="../out")
    fluid.io.save_params(executor, tmp_path, filename="all")
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        fluid.layers.fc(fluid.layers.data("X", [1]), 3)
        with pytest.raises(ValueError, match=r"'fc_0.w_0' is float32\[1, 10\] in the file and float32\[1, 3\]"):
            fluid.io.load_params(executor, tmp_path, filename="all")


def test_an_inference_model_needs_no_training_part(tmp_path):
    x = fluid.layers.data("X", [1])
    out = fluid.layers.fc(x, 3, act="softmax")
    label = fluid.layers.data("label", [1], dtype="int64")
    fluid.optimizer.Adam().minimize(fluid.layers.mean(fluid.layers.cross_entropy(out, label)))
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    feed = {"X": rows(4), "label": np.zeros((4, 1), "int64")}
    executor.run(feed=feed)
    assert fluid.io.save_inference_model(tmp_path, ["X"], [out], executor) == [out.name]
    before = executor.run(feed=feed, fetch_list=[out])[0]  # fetched before the update, saved before it too
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, targets = fluid.io.load_inference_model(tmp_path, executor)
        assert feeds == ["X"]
        assert not any(op.type == "adam" for op in program.global_block().ops)
        (after,) = executor.run(program, feed={"X": feed["X"]}, fetch_list=targets)
    assert np.array_equal(before, after)


def test_a_damaged_inference_model(tmp_path):
    _, executor = trained()
    with pytest.raises(ValueError, match="there is no model"):
        fluid.io.load_inference_model(tmp_path, executor)
    (tmp_path / "__model__").write_text(json.dumps({"program": {}}))
    with pytest.raises(ValueError, match="no inference model"):
        fluid.io.load_inference_model(tmp_path, executor)


def test_whole_programs_and_paths_of_2x(tmp_path):
    _, executor = trained()
    program = fluid.default_main_program()
    fluid.save(program, str(tmp_path / "model"))
    state = fluid.load_program_state(str(tmp_path / "model"))
    assert set(state) == set(values())
    fluid.set_program_state(program, {k: np.zeros_like(v) for k, v in state.items()})
    assert not values()["fc_0.w_0"].any()
    fluid.load(program, str(tmp_path / "model"), executor)
    assert np.array_equal(values()["fc_0.w_0"], state["fc_0.w_0"])
    x = program.global_block().var("X")
    paddle.static.save_inference_model(
        str(tmp_path / "infer"), [x], [program.global_block().var("fc_0.tmp_1")], executor
    )
    found = paddle.static.load_inference_model(str(tmp_path / "infer"), executor)
    assert found[1] == ["X"]


# --- metrics --------------------------------------------------------------------------------------------------------

PREDS = np.array([[0.1], [0.7], [0.8], [0.9], [0.2], [0.2], [0.3], [0.5], [0.8], [0.6]])
LABELS = np.array([[0], [1], [1], [1], [1], [0], [0], [0], [0], [0]])


def test_precision_and_recall_together():
    both = fluid.metrics.CompositeMetric()
    both.add_metric(fluid.metrics.Precision())
    both.add_metric(fluid.metrics.Recall())
    both.update(preds=PREDS, labels=LABELS)
    assert both.eval() == [3 / 5, 3 / 4]
    with pytest.raises(TypeError):
        both.add_metric("precision")


def test_accuracy_is_weighted():
    metric = fluid.metrics.Accuracy()
    with pytest.raises(ValueError, match="no data"):
        metric.eval()
    metric.update(value=0.5, weight=2)
    metric.update(value=np.array([1.0]), weight=6)
    assert metric.eval() == pytest.approx(7 / 8)
    metric.reset()
    assert metric.weight == 0


def test_auc_against_pairs():
    """The area is the chance that a positive one is above a negative one, ties count half."""
    positive, negative = PREDS[LABELS == 1], PREDS[LABELS == 0]
    pairs = [(p > n) + 0.5 * (p == n) for p in positive for n in negative]
    metric = fluid.metrics.Auc()
    metric.update(np.hstack([1 - PREDS, PREDS]), LABELS)
    assert metric.eval() == pytest.approx(np.mean(pairs))


def test_chunks_and_edit_distances():
    chunks = fluid.metrics.ChunkEvaluator()
    chunks.update(10, 9, 8)
    assert chunks.eval() == pytest.approx((0.8, 8 / 9, 16 / 19))
    distances = fluid.metrics.EditDistance()
    distances.update(np.array([[0.0], [2.0], [1.0]]), 3)
    assert distances.eval() == pytest.approx((1.0, 2 / 3))


# --- profiler, flags, versions --------------------------------------------------------------------------------------


def test_the_profiler_writes_a_table_and_a_trace(tmp_path, capfd):
    _, executor = trained()
    with fluid.profiler.profiler("CPU", "total", str(tmp_path / "profile")):
        for i in range(4):
            if i == 1:
                fluid.profiler.reset_profiler()
            executor.run(feed={"X": rows(2)})
    events = json.loads((tmp_path / "profile").read_text())["traceEvents"]
    assert len(events) == 3
    assert "Calls" in capfd.readouterr().out
    executor.run(feed={"X": rows(2)})
    assert not fluid.profiler.RECORDER.steps
    with pytest.raises(ValueError, match="the state is 'TPU'"):
        fluid.profiler.start_profiler("TPU")


def test_flags_and_versions():
    fluid.set_flags({"FLAGS_eager_delete_tensor_gb": 1.0})
    assert fluid.get_flags(["FLAGS_eager_delete_tensor_gb"]) == {"FLAGS_eager_delete_tensor_gb": 1.0}
    fluid.set_flags({"FLAGS_eager_delete_tensor_gb": 0.0})
    with pytest.raises(ValueError, match="no flag"):
        fluid.get_flags("FLAGS_check_nan")
    fluid.require_version("0.1.0", "10.0.0")
    with pytest.raises(ValueError, match=r"2\.0\.0 or newer"):
        fluid.require_version("2.0.0")
    with pytest.raises(TypeError):
        fluid.require_version(1)


def test_check_nan_inf_names_the_first_op(monkeypatch):
    monkeypatch.delenv("FLAGS_check_nan_inf", raising=False)
    out = fluid.layers.mean(fluid.layers.log(fluid.layers.data("X", [1])))
    executor = fluid.Executor(fluid.CPUPlace())
    negative = {"X": -np.ones((2, 1), "float32")}
    assert np.isnan(executor.run(feed=negative, fetch_list=[out])[0])
    fluid.set_flags({"FLAGS_check_nan_inf": True})
    try:
        with pytest.raises(RuntimeError, match=r"log: its result 'log_0.tmp_0' is nan at \[0, 0\]"):
            executor.run(feed=negative, fetch_list=[out])
        assert executor.run(feed={"X": np.ones((2, 1), "float32")}, fetch_list=[out])[0] == 0
    finally:
        fluid.set_flags({"FLAGS_check_nan_inf": False})


def test_a_script_that_imports_paddle_runs_as_it_is(tmp_path):
    """`paddle` is this package through an import hook of the caller's; submodules are importable by name."""
    import importlib

    for name in (
        "fluid.layers",
        "fluid.framework",
        "fluid.executor",
        "fluid.param_attr",
        "fluid.compiler",
        "static.nn",
        "reader",
    ):
        assert importlib.import_module(f"pe_cli.paddle.{name}")


def test_a_metric_of_ones_own_is_cleared_and_copied():
    class Mine(fluid.metrics.MetricBase):
        def __init__(self):
            super().__init__("mine")
            self.total, self.share, self.names, self.each = 3, 0.5, [1], np.ones(2)

    metric = Mine()
    config = metric.get_config()
    assert (config["name"], sorted(config["states"])) == ("mine", ["each", "names", "share", "total"])
    metric.each += 1
    assert config["states"]["each"].tolist() == [1, 1]
    metric.reset()
    assert (metric.total, metric.share, metric.names, metric.each.tolist()) == (0, 0.0, None, [0, 0])
