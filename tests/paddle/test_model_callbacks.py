"""Model.fit beside PaddlePaddle 2.6.2: losses, rates, what callbacks hear, files; and callbacks by themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pe_cli.paddle as paddle
from pe_cli.paddle.callbacks import EarlyStopping, LRScheduler, ReduceLROnPlateau
from tests.paddle.recordings.hapi.fit import KINDS, network, run

HERE = Path(__file__).parent / "recordings" / "hapi"
RECORD: dict[str, Any] = json.loads((HERE / "fit.json").read_text())


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_is_that_of_the_original(kind: str, tmp_path: Path) -> None:
    found, was = run(paddle, kind, str(HERE / "start"), tmp_path), RECORD[kind]
    for key in ("files", "saved", "kept"):
        assert found[key] == was[key], key
    _near(found["heard"], was["heard"])
    _near(found["evaluated"], was["evaluated"])
    _near(found["predicted"], was["predicted"])


def _near(found: Any, was: Any) -> None:
    if isinstance(was, dict):
        assert found.keys() == was.keys()
        for key in was:
            _near(found[key], was[key])
    elif isinstance(was, list):
        assert len(found) == len(was)
        for one, other in zip(found, was, strict=True):
            _near(one, other)
    elif isinstance(was, float):
        assert found == pytest.approx(was, abs=1e-4)
    else:
        assert found == was


class _Stands:
    """What callbacks use of a model and of its optimizer."""

    def __init__(self, rate: float = 0.8) -> None:
        self.stop_training, self.saved = False, []
        self._optimizer = paddle.optimizer.SGD(rate)

    def save(self, path: str) -> None:
        self.saved.append(Path(path).name)


def test_a_training_ends_where_evaluations_do_not_become_better() -> None:
    model, stops = _Stands(), EarlyStopping("acc", patience=2, min_delta=0.01, verbose=0)
    stops.set_model(model)
    stops.save_dir = "runs"
    stops.on_train_begin()
    for value, ended in ((0.5, False), (0.505, False), (0.6, False), (0.6, False), (0.55, True)):
        stops.on_eval_end({"acc": value})
        assert model.stop_training is ended
    assert model.saved == ["best_model", "best_model"]
    with pytest.warns(UserWarning, match="the evaluation has no 'acc'"):
        stops.on_eval_end({"loss": [1.0]})
    with pytest.warns(UserWarning, match="taken for auto"):
        EarlyStopping(mode="lowest")


def test_a_rate_becomes_smaller_on_a_plateau() -> None:
    model, reduces = _Stands(), ReduceLROnPlateau(factor=0.5, patience=2, cooldown=1, min_lr=0.3, verbose=0)
    reduces.set_model(model)
    reduces.on_train_begin()
    rates = []
    for value in (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5):
        reduces.on_eval_end({"loss": [value]})
        rates.append(model._optimizer.get_lr())
    assert rates == [0.8, 0.8, 0.4, 0.4, 0.3, 0.3, 0.3]
    with pytest.raises(ValueError, match="factor is 1"):
        ReduceLROnPlateau(factor=1)
    with pytest.raises(ValueError, match="by_step and by_epoch"):
        LRScheduler(True, True)


def test_a_rate_that_is_set_is_that_of_the_next_step() -> None:
    x = paddle.static.data("x", [1])
    w = paddle.static.create_parameter([1], "float32", "w", default_initializer=paddle.nn.initializer.Constant(1.0))
    optimizer = paddle.optimizer.SGD(0.5)
    optimizer.minimize(paddle.mean(x * w))
    executor = paddle.static.Executor()
    executor.run(paddle.static.default_startup_program())
    steps = []
    for rate in (0.5, 0.25):
        optimizer.set_lr(rate)
        steps.append(executor.run(feed={"x": np.ones(1, "float32")}, fetch_list=[w])[0].item())
        steps.append(np.array(paddle.static.global_scope().find_var("w").get_tensor()).item())
    assert steps[1::2] == [0.5, 0.25]
    with pytest.raises(RuntimeError, match="a scheduler says the rate"):
        paddle.optimizer.SGD(paddle.optimizer.lr.StepDecay(0.1, 2)).set_lr(0.1)


def test_steps_are_counted_down() -> None:
    model, heard = network(paddle), []

    class Hears(paddle.callbacks.Callback):
        def on_train_batch_end(self, step: int, logs: Any = None) -> None:
            heard.append(step)

    model.prepare(paddle.optimizer.SGD(0.1), paddle.nn.CrossEntropyLoss())
    rows = [(np.zeros((2, 4, 3), "float32"), np.zeros((2, 1), "int64"))] * 3
    model.fit(rows, epochs=1, verbose=0, callbacks=Hears(), num_iters=5)
    assert heard == [0, 1, 2, 0, 1]
    with pytest.raises(ValueError, match="num_iters is 0"):
        model.fit(rows, num_iters=0)
    with pytest.raises(ValueError, match="dynamic mode"):
        model.fit(rows, accumulate_grad_batches=2)


def test_values_of_another_shape_are_told_or_skipped(tmp_path: Path) -> None:
    model = network(paddle)
    model.prepare(paddle.optimizer.SGD(0.1), paddle.nn.CrossEntropyLoss())
    state = paddle.load(str(HERE / "start.pdparams"))
    state["heads.0.bias"] = np.zeros(7, "float32")
    paddle.save(state, str(tmp_path / "other.pdparams"))
    with pytest.raises(ValueError, match=r"a value of shape \[7\] for heads.0.bias"):
        model.load(str(tmp_path / "other"))
    model.load(str(tmp_path / "other"), skip_mismatch=True)
    found = paddle.static.global_scope().find_var(model.network.state_dict()["heads.1.weight"].name)
    np.testing.assert_array_equal(np.array(found.get_tensor()), state["heads.1.weight"])


def test_threads_of_a_loader_are_told_their_number() -> None:
    begun, seen = [], []

    class Rows(paddle.io.Dataset):
        def __getitem__(self, i: int) -> Any:
            info = paddle.io.get_worker_info()
            seen.append((info.num_workers, info.dataset is self))
            return (np.float32(i),)

        def __len__(self) -> int:
            return 4

    loader = paddle.io.DataLoader(Rows(), batch_size=2, num_workers=1, worker_init_fn=begun.append, prefetch_factor=4)
    assert [batch[0].tolist() for batch in loader()] == [[0, 1], [2, 3]]
    assert begun == [0]
    assert set(seen) == {(1, True)}
    assert paddle.io.get_worker_info() is None
