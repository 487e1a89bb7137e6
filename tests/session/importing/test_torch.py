"""Small networks that PyTorch exports compute the same here."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from pe_cli.core.errors import PeError
from pe_cli.session.importing.define import ImportWish, read_model
from tests.needs import package
from tests.rotation import on_its_day
from tests.session.importing.test_onnx import computed
from tests.session.importing.test_onnx_exporters import RATE, TARGET, X, after_a_step


def _convolutions(torch: Any) -> tuple[Any, Any]:
    nn = torch.nn
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU6(), nn.Conv2d(8, 8, 3, groups=8), nn.SiLU(), nn.MaxPool2d(2),
        nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.uniform_(-1, 1)
            module.running_var.uniform_(0.5, 2)
    return net, torch.randn(2, 3, 12, 12)


def _recurrent(torch: Any) -> tuple[Any, Any]:
    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.rows = torch.nn.Embedding(20, 6)
            self.lstm = torch.nn.LSTM(6, 5, batch_first=True, bidirectional=True)
            self.gru = torch.nn.GRU(10, 4, batch_first=True)
            self.head = torch.nn.Linear(4, 3)

        def forward(self, ids: Any) -> Any:
            return self.head(self.gru(self.lstm(self.rows(ids))[0])[0][:, -1])

    return Net(), torch.randint(0, 20, (2, 7))


def _encoder(torch: Any) -> tuple[Any, Any]:
    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, activation="gelu", batch_first=True)
            self.encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

        def forward(self, x: Any) -> Any:
            return self.encoder(x).mean(1)

    return Net(), torch.randn(2, 6, 8)


@on_its_day(2, 5)
@pytest.mark.parametrize("make", [_convolutions, _recurrent, _encoder])
@pytest.mark.filterwarnings("ignore")
def test_a_network_of_pytorch_computes_the_same(make: Any, tmp_path: Path) -> None:
    torch = package("torch")
    torch.manual_seed(1)
    net, x = make(torch)
    net.eval()
    file = tmp_path / "m.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net, (x,), file, input_names=["x"], output_names=["y"], dynamic_axes={"x": {0: "n"}, "y": {0: "n"}}, dynamo=False,
            do_constant_folding=make is not _convolutions,
        )  # fmt: skip
    more = np.concatenate([x.numpy(), x.numpy()[:1]])
    (theirs,) = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]).run(None, {"x": more})
    (mine,) = computed(read_model(ImportWish(file)), tmp_path / "made", {"x": more})
    assert onnx.load(file).graph.output[0].name == "y"
    np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


@on_its_day(3, 5)
@pytest.mark.filterwarnings("ignore")
def test_a_network_that_has_learned_nothing_yet_takes_the_same_step(tmp_path: Path) -> None:
    """The exporter keeps one initializer for all biases and one for all factors, since they are equal."""
    torch = package("torch")
    torch.manual_seed(2)
    nn = torch.nn
    net = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 4))
    for module in net.modules():
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
    file = tmp_path / "m.onnx"
    torch.onnx.export(
        net, (torch.from_numpy(X),), file, input_names=["x"], output_names=["y"], dynamic_axes={"x": {0: "n"}, "y": {0: "n"}}, dynamo=False
    )
    assert len(onnx.load(file).graph.initializer) < 10
    found = after_a_step(read_model(ImportWish(file)), tmp_path / "made", {"x": X}, TARGET)
    steps = torch.optim.SGD(net.parameters(), lr=RATE)
    nn.functional.mse_loss(net(torch.from_numpy(X)), torch.from_numpy(TARGET)).backward()
    steps.step()
    np.testing.assert_allclose(found, net(torch.from_numpy(X)).detach().numpy(), rtol=1e-4, atol=1e-5)


@on_its_day(4, 5)
@pytest.mark.parametrize("dropped", [0.5, 0.0], ids=["dropout", "a step of training"])
@pytest.mark.filterwarnings("ignore")
def test_a_network_that_is_exported_for_training_trains(dropped: float, tmp_path: Path) -> None:
    """PyTorch's TrainingMode.TRAINING leaves batch norms as they are, with statistics of the batch, and dropout that drops."""
    torch = package("torch")
    torch.manual_seed(3)
    nn = torch.nn
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), *([nn.Dropout(dropped)] if dropped else []), nn.Linear(6, 4))
    net[1].running_mean.uniform_(-1, 1)
    net[1].running_var.uniform_(0.5, 2)
    file = tmp_path / "m.onnx"
    torch.onnx.export(
        net, (torch.from_numpy(X),), file, input_names=["x"], output_names=["y"], dynamic_axes={"x": {0: "n"}, "y": {0: "n"}}, dynamo=False,
        training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
    )  # fmt: skip
    with pytest.raises(PeError, match="training_mode"):
        read_model(ImportWish(file))
    made = read_model(ImportWish(file, training=True))
    (mine,) = computed(made, tmp_path / "made", {"x": X})
    np.testing.assert_allclose(mine, net.eval()(torch.from_numpy(X)).detach().numpy(), rtol=1e-5, atol=1e-5)
    kinds = [layer["type"] for layer in made.layers.values()]
    if dropped:
        assert kinds == ["fc", "batch_norm", "relu", "dropout", "fc"]
        return
    net.train()
    before = net[0](torch.from_numpy(X)).detach()
    steps = torch.optim.SGD(net.parameters(), lr=RATE)
    nn.functional.mse_loss(net(torch.from_numpy(X)), torch.from_numpy(TARGET)).backward()
    steps.step()
    # PyTorch's running variance is taken over one sample less.
    net[1].running_var -= 0.1 * (before.var(0) - before.var(0, correction=0))
    found = after_a_step(made, tmp_path / "step", {"x": X}, TARGET)
    np.testing.assert_allclose(found, net.eval()(torch.from_numpy(X)).detach().numpy(), rtol=1e-4, atol=1e-5)
