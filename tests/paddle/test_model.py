"""Model, summary, flops, metrics and loaders of 2.x in static mode."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import pe_cli.paddle as paddle
import pe_cli.paddle.fluid as fluid
from pe_cli.paddle import nn
from pe_cli.paddle.io import BatchSampler, DataLoader, Dataset, IterableDataset, TensorDataset, random_split
from pe_cli.paddle.metric import Accuracy, Auc, Precision, Recall
from pe_cli.paddle.static import InputSpec


def separable(rows: int = 64) -> TensorDataset:
    x = np.random.default_rng(0).normal(size=(rows, 4)).astype("float32")
    return TensorDataset([x, (x[:, :1] > 0).astype("int64")])


def model(rate: float = 0.05, metrics: bool = True) -> paddle.Model:
    fluid.default_startup_program().random_seed = 3
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    made = paddle.Model(network, InputSpec([None, 4], "float32", "x"), InputSpec([None, 1], "int64", "y"))
    made.prepare(paddle.optimizer.Adam(rate, parameters=made.parameters()), nn.CrossEntropyLoss(), Accuracy() if metrics else None)
    return made


def test_a_model_learns_and_counts_what_it_gets_right(capsys):
    made, data = model(), separable()
    made.fit(data, data, batch_size=16, epochs=20, verbose=1)
    found = made.evaluate(data, batch_size=16, verbose=0)
    assert found["acc"] > 0.95
    outputs = made.predict(data, batch_size=16, stack_outputs=True)[0]
    assert np.mean(outputs.argmax(axis=1) == data.tensors[1][:, 0]) == pytest.approx(found["acc"])
    assert "epoch 20/20: loss" in capsys.readouterr().out


def test_a_step_is_that_of_the_executor_by_hand():
    made, data = model(metrics=False), separable(8)
    x, y = data.tensors
    logits = made.predict_batch(x)[0]
    first = made.eval_batch([x], [y])[0]
    shifted = logits - logits.max(axis=1, keepdims=True)
    expected = np.mean(np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(8), y[:, 0]])
    assert first == pytest.approx([expected], rel=1e-5)
    assert made.train_batch([x], [y])[0] == pytest.approx(first)
    assert made.eval_batch([x], [y])[0] < first


def test_saved_values_come_back(tmp_path):
    made, data = model(), separable()
    made.fit(data, batch_size=32, epochs=1, verbose=0, save_dir=tmp_path)
    expected = made.predict_batch(data.tensors[0])[0]
    assert (tmp_path / "0.pdparams").is_file()
    made.fit(data, batch_size=32, epochs=1, verbose=0)
    assert not np.array_equal(made.predict_batch(data.tensors[0])[0], expected)
    made.load(str(tmp_path / "final"))
    np.testing.assert_array_equal(made.predict_batch(data.tensors[0])[0], expected)
    made.save(str(tmp_path / "deployed"), training=False)
    with fluid.scope_guard(fluid.Scope()):
        executor = fluid.Executor(fluid.CPUPlace())
        program, feeds, fetches = paddle.static.load_inference_model(str(tmp_path / "deployed"), executor)
        np.testing.assert_array_equal(executor.run(program, {feeds[0]: data.tensors[0]}, fetches)[0], expected)


def test_callbacks_hear_of_epochs_and_may_end_the_training():
    heard = []

    class Ends:
        def set_model(self, model):
            self.model = model

        def on_epoch_end(self, epoch, logs):
            heard.append((epoch, sorted(logs)))
            self.model.stop_training = epoch == 1

    model().fit(separable(), batch_size=16, epochs=9, verbose=0, callbacks=Ends())
    assert heard == [(epoch, ["acc", "batch_size", "loss", "step"]) for epoch in (0, 1)]


def test_a_model_says_what_it_lacks():
    network = nn.Linear(4, 2)
    with pytest.raises(TypeError, match="needs the shapes"):
        paddle.Model(network)
    made = paddle.Model(network, InputSpec([None, 4], "float32", "x"))
    with pytest.raises(ValueError, match="needs an optimizer and a loss"):
        made.train_batch([np.zeros((1, 4), "float32")])


def test_summary_and_flops_count_by_hand(capsys):
    network = nn.Sequential(nn.Conv2D(2, 6, 3, padding=1, groups=2), nn.BatchNorm2D(6), nn.ReLU(), nn.Flatten(), nn.Linear(96, 10))
    convolution, norm, linear = 6 * 1 * 9 + 6, 4 * 6, 960 + 10
    assert paddle.summary(network, (1, 2, 4, 4)) == {
        "total_params": convolution + norm + linear,
        "trainable_params": convolution + norm - 12 + linear,
    }
    assert "[1, 6, 4, 4]" in capsys.readouterr().out
    expected = 96 * (9 + 1) + 2 * 96 + 10 * 96
    assert paddle.flops(network, [1, 2, 4, 4]) == expected

    def count(layer, inputs, output):
        layer.total_ops += 7
        # what `copy` makes has no attributes before it gives them
        assert copy.copy(layer).total_ops == 7
        with pytest.raises(AttributeError):
            _ = object.__new__(type(layer)).training

    assert paddle.flops(network, [1, 2, 4, 4], custom_ops={nn.ReLU: count}, print_detail=True) == expected + 7
    assert network.training


def test_flops_of_a_transposed_convolution():
    assert paddle.flops(nn.Conv2DTranspose(4, 6, 2, stride=2, groups=2), [1, 4, 3, 3]) == 6 * 36 * (2 * 4 + 1)


@pytest.mark.parametrize(
    ("label", "shape"), [pytest.param([1, 2], (2,), id="indices"), pytest.param([[0, 1, 0], [0, 0, 1]], (2, 3), id="one-hot rows")]
)
def test_accuracy_of_the_highest_k(label, shape):
    metric = Accuracy(topk=(1, 2))
    correct = metric.compute(np.array([[0.1, 0.7, 0.2], [0.6, 0.1, 0.3]]), np.array(label).reshape(shape))
    assert metric.update(correct) == [0.5, 1.0]
    assert metric.accumulate() == [0.5, 1.0]
    assert metric.name() == ["acc_top1", "acc_top2"]


def test_accuracy_in_a_program_is_that_of_arrays():
    metric, rng = Accuracy(topk=(1, 3)), np.random.default_rng(1)
    pred, label = rng.random((7, 5), "float32"), rng.integers(0, 5, (7, 1))
    x, y = fluid.data("x", [-1, 5]), fluid.data("y", [-1, 1], "int64")
    (found,) = fluid.Executor().run(feed={"x": pred, "y": label}, fetch_list=[metric.compute(x, y)])
    np.testing.assert_array_equal(found, metric.compute(pred, label))


def test_counts_of_a_threshold():
    preds, labels = np.array([[0.5], [0.4], [0.9], [0.1]]), np.array([[1], [1], [0], [0]])
    for kind, expected in ((Precision, 0.5), (Recall, 0.5)):
        metric = kind()
        metric.update(preds, labels)
        assert metric.accumulate() == expected
        metric.reset()
        assert metric.accumulate() == 0.0
    auc = Auc()
    auc.update(np.hstack([1 - preds, preds]), labels)
    assert auc.accumulate() == pytest.approx(0.5, abs=1e-3)


def test_loaders_make_batches():
    data = TensorDataset([np.arange(5), np.arange(5) * 2])
    assert [b[0].tolist() for b in DataLoader(data, batch_size=2)] == [[0, 1], [2, 3], [4]]
    assert [b[1].tolist() for b in DataLoader(data, batch_size=2, drop_last=True, num_workers=2)] == [[0, 2], [4, 6]]
    assert sorted(i for b in BatchSampler(data, shuffle=True, batch_size=3) for i in b) == [0, 1, 2, 3, 4]
    x, y = fluid.data("x", [-1], "int64"), fluid.data("y", [-1], "int64")
    assert [sorted(feed) for feed in next(iter(DataLoader(data, [x, y], return_list=False, batch_size=2)))] == [["x", "y"]]
    first, second = random_split(data, [2, 3])
    assert sorted(int(d[i][0]) for d in (first, second) for i in range(len(d))) == [0, 1, 2, 3, 4]

    class Counted(IterableDataset):
        def __iter__(self):
            yield from range(3)

    assert [b[0].tolist() for b in DataLoader(Counted(), batch_size=2)] == [[0, 1], [2]]
    with pytest.raises(ValueError, match="no order"):
        DataLoader(Counted(), shuffle=True)
    with pytest.raises(NotImplementedError, match="define __len__"):
        len(Dataset())
