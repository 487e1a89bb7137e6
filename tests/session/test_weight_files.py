"""pe export --safetensors: weights of a trained model for this project and for PyTorch, which takes them as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from pe_cli.core.errors import ExitCode
from pe_cli.io import checkpoint
from pe_cli.io.tensors import read_safetensors, written_by
from tests.needs import torch
from tests.session.conftest import Bench

PICTURES = """\
name: pictures
feeds:
  x: {shape: [2, 6, 6], dtype: float32}
  y: {shape: [1], dtype: float32}
blocks:
  begin:
    args: {input: ~}
    layers:
      conv: {type: conv2d, input: "${input}", num_filters: 3, filter_size: 3, bias_attr: false}
      norm: {type: batch_norm, act: relu}
layers:
  stem:      {block: begin, input: x}
  apart:     {type: conv2d, input: stem, num_filters: 3, filter_size: 3, padding: 1, groups: 3}
  up:        {type: conv2d_transpose, input: apart, num_filters: 2, filter_size: 2, stride: 2}
  wide:      {type: fc, input: up, size: 5, act: tanh}
  head:      {type: fc, input: wide, size: 1}
  error:     {type: square_error_cost, input: head, label: y}
  loss:      {type: mean, x: error}
fetches: [loss]
"""
RECURRENT = """\
name: words
feeds:
  x: {shape: [4, 3], dtype: float32}
  y: {shape: [1], dtype: float32}
layers:
  cells: {type: lstm, input: x, hidden_size: 4}
  head:  {type: fc, input: cells, size: 1}
  error: {type: square_error_cost, input: head, label: y}
  loss:  {type: mean, x: error}
fetches: [loss]
"""


@pytest.fixture
def run(bench: Bench, rng: np.random.Generator) -> Path:
    (bench.base / "model.yaml").write_text(PICTURES)
    data = {"x": rng.standard_normal((16, 2, 6, 6)), "y": rng.standard_normal((16, 1))}
    np.savez(bench.base / "data.npz", **{name: value.astype(np.float32) for name, value in data.items()})
    return bench.train("first", "-o", "fetches={}", "-o", "train.epochs=2")


def test_pytorch_takes_all_of_it_and_answers_alike(bench: Bench, run: Path, rng: np.random.Generator) -> None:
    nn = torch.nn
    there = nn.ModuleDict({
        "stem": nn.ModuleDict({"conv": nn.Conv2d(2, 3, 3, bias=False), "norm": nn.BatchNorm2d(3)}),
        "apart": nn.Conv2d(3, 3, 3, padding=1, groups=3),
        "up": nn.ConvTranspose2d(3, 2, 2, stride=2),
        "wide": nn.Linear(128, 5),
        "head": nn.Linear(5, 1),
    }).eval()  # fmt: skip
    file, model = bench.base / "w.safetensors", bench.base / "m.onnx"
    written = bench.run("export", run, "--safetensors", file, "--layout", "torch", "--onnx", model, "--raw", "--fetch", "head")
    assert written == 0, bench.err
    assert written_by(file) == "pt"
    load = pytest.importorskip("safetensors.torch").load_file
    there.load_state_dict(load(file), strict=True)
    x = rng.standard_normal((3, 2, 6, 6)).astype(np.float32)
    with torch.no_grad():
        norm = there["stem"]["norm"](there["stem"]["conv"](torch.from_numpy(x))).relu()
        found = there["head"](there["wide"](there["up"](there["apart"](norm)).flatten(1)).tanh()).numpy()
    (expected,) = onnxruntime.InferenceSession(str(model)).run(["head"], {"x": x})
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_names_and_axes_are_those_of_modules(bench: Bench, run: Path) -> None:
    file = bench.base / "w.safetensors"
    assert bench.run("export", run, "--safetensors", file, "--layout", "torch") == 0, bench.err
    found, own = read_safetensors(file), checkpoint.load(run)[0]
    np.testing.assert_array_equal(found["wide.weight"], own["wide.w_0"].T)
    np.testing.assert_array_equal(found["stem.norm.running_var"], own["stem/norm.w_2"])
    assert found["stem.norm.num_batches_tracked"].dtype == np.int64
    assert {name for name in found if name.startswith("up")} == {"up.weight", "up.bias"}


def test_without_a_layout_a_model_of_pe_takes_it(bench: Bench, run: Path) -> None:
    file = bench.base / "w.safetensors"
    assert bench.run("export", run, "--safetensors", file) == 0, bench.err
    assert written_by(file) == "pe"
    own = checkpoint.load(run)[0]
    for name, value in read_safetensors(file).items():
        np.testing.assert_array_equal(value, own[name])
    bench.train("second", "--init", file, "-o", "train.init.strict=true", "-o", "fetches={}")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param([], "nothing says what to write", id="no file"),
        pytest.param(["--onnx", "m.onnx", "--layout", "torch"], "--layout is for --safetensors", id="a layout of ONNX"),
        pytest.param(["--safetensors", "w.safetensors", "--raw"], "--fetch, --opset and --raw are for --onnx", id="outputs of weights"),
    ],
)
def test_options_that_do_not_fit_are_refused(bench: Bench, run: Path, options: list[str], said: str) -> None:
    assert bench.run("export", run, *options) == ExitCode.USAGE
    assert said in bench.err


def test_weights_that_pytorch_keeps_otherwise_are_refused(bench: Bench, rng: np.random.Generator) -> None:
    (bench.base / "model.yaml").write_text(RECURRENT)
    data = {"x": rng.standard_normal((8, 4, 3)), "y": rng.standard_normal((8, 1))}
    np.savez(bench.base / "data.npz", **{name: value.astype(np.float32) for name, value in data.items()})
    run = bench.train("first", "-o", "fetches={}", "-o", "train.epochs=1")
    file = bench.base / "w.safetensors"
    assert bench.run("export", run, "--safetensors", file, "--layout", "torch") == ExitCode.USAGE
    assert "lies in an order of its own" in bench.err
    assert not file.exists()
