"""Weights of classes and drawn rows in training, against PyTorch and against counting."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from pe_cli.cli.main import run as run_command_line
from pe_cli.io.checkpoint import load_arrays
from pe_cli.session.evaluation.evaluator import Evaluator
from pe_cli.session.job import Job
from tests.needs import torch

MODEL = """\
name: kinds
feeds:
  x: {shape: [3]}
  kind: {shape: [1], dtype: int64}
layers:
  logits: {type: fc, input: x, size: 3, param_attr: {name: w}, bias_attr: {name: b}}
  xent:   {type: softmax_with_cross_entropy, logits: logits, label: kind}
  loss:   {type: mean, x: xent}
fetches: [loss, logits]
"""
TWO = """\
name: two
feeds:
  x: {shape: [3]}
  kind: {shape: [1]}
layers:
  logits: {type: fc, input: x, size: 1, param_attr: {name: w}, bias_attr: {name: b}}
  xent:   {type: sigmoid_cross_entropy_with_logits, x: logits, label: kind}
  loss:   {type: mean, x: xent}
fetches: [loss, logits]
"""
CONFIG = """\
model: model.yaml
data:
  train: {reader: table, files: rows.csv, shuffle: false}
  columns: {p: {type: number}, q: {type: number}, r: {type: number}, kind: {type: category}}
  WISH
feeds: {x: [p, q, r], kind: kind}
train: {loss: loss, epochs: 3, batch_size: 12, drop_last: true, optimizer: {type: SGD, learning_rate: 0.5}}
executor: {devices: 1, seed: 1}
output: {dir: RUNS}
"""
KINDS = ("ant", "bee", "cat")
ROWS = 48


@pytest.fixture
def data(tmp_path, rng):
    """Rows of which two thirds are ants."""
    x = rng.normal(size=(ROWS, 3)).round(4)
    kinds = np.where(np.arange(ROWS) % 3 < 2, 0, 1 + np.arange(ROWS) % 2)
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["p", "q", "r", "kind", "often"])
        out.writerows([*row, KINDS[kind], 3.0 if kind == 2 else 0.0] for row, kind in zip(x.tolist(), kinds.tolist(), strict=True))
    return x.astype("float32"), kinds


def written(tmp_path: Path, wish: str, model: str = MODEL) -> Path:
    (tmp_path / "model.yaml").write_text(model)
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG.replace("WISH", wish).replace("RUNS", str(tmp_path / "runs")))
    return config


def trained(tmp_path: Path, config: Path, start: dict[str, np.ndarray], *overrides: str) -> dict[str, np.ndarray]:
    np.savez(tmp_path / "start.npz", **start)
    options = [part for override in overrides for part in ("-o", override)]
    init = ["--init", str(tmp_path / "start.npz"), "-o", "train.init.layout=paddle"]
    assert run_command_line(["train", str(config), "--quiet", *init, *options]) == 0
    run = max((tmp_path / "runs").iterdir(), key=lambda folder: folder.stat().st_mtime_ns)
    return load_arrays(max((run / "checkpoints").glob("step-*"), key=lambda step: int(step.name[5:])))


def start_of(rng: np.random.Generator, width: int) -> dict[str, np.ndarray]:
    return {"w": rng.normal(size=(3, width)).astype("float32"), "b": rng.normal(size=width).astype("float32")}


@pytest.mark.parametrize(
    ("wish", "weights"),
    [
        pytest.param("class_weights: {bee: 5, cat: 0.25}", [1.0, 5.0, 0.25], id="by name"),
        pytest.param("class_weights: balanced", [ROWS / 3 / 32, ROWS / 3 / 8, ROWS / 3 / 8], id="balanced"),
    ],
)
@pytest.mark.parametrize(
    ("overrides", "together"),
    [
        pytest.param([], 12, id="one device"),
        pytest.param(["executor.devices=2"], 12, id="two devices"),
        pytest.param(["train.accumulate=2"], 24, id="two batches a step"),
    ],
)
def test_training_is_that_of_pytorch(tmp_path, rng, data, wish, weights, overrides, together):
    x, kinds = data
    start = start_of(rng, 3)
    found = trained(tmp_path, written(tmp_path, wish), start, *overrides)
    w, b = (torch.tensor(start[name], requires_grad=True) for name in ("w", "b"))
    optimizer = torch.optim.SGD([w, b], lr=0.5)
    weigh = torch.nn.CrossEntropyLoss(weight=torch.tensor(weights), reduction="none")
    for _ in range(3):
        for begin in range(0, ROWS, together):
            optimizer.zero_grad()
            part = slice(begin, begin + together)
            weigh(torch.tensor(x[part]) @ w + b, torch.tensor(kinds[part])).mean().backward()
            optimizer.step()
    np.testing.assert_allclose(found["w"], w.detach().numpy(), rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(found["b"], b.detach().numpy(), rtol=2e-5, atol=1e-6)


def test_two_classes_of_one_score_are_those_of_pytorch(tmp_path, rng, data):
    x, kinds = data
    (tmp_path / "rows.csv").write_text((tmp_path / "rows.csv").read_text().replace("bee", "cat"))
    start = start_of(rng, 1)
    found = trained(tmp_path, written(tmp_path, "class_weights: {cat: 3}", TWO), start)
    w, b = (torch.tensor(start[name], requires_grad=True) for name in ("w", "b"))
    optimizer = torch.optim.SGD([w, b], lr=0.5)
    weigh = torch.nn.BCEWithLogitsLoss(pos_weight=torch.tensor(3.0))
    for _ in range(3):
        for begin in range(0, ROWS, 12):
            optimizer.zero_grad()
            part = slice(begin, begin + 12)
            weigh((torch.tensor(x[part]) @ w + b)[:, 0], torch.tensor((kinds[part] > 0).astype("float32"))).backward()
            optimizer.step()
    np.testing.assert_allclose(found["w"], w.detach().numpy(), rtol=2e-5, atol=1e-6)


def test_evaluation_is_not_weighted(tmp_path, rng, data):
    config = written(tmp_path, "class_weights: {bee: 50}\n  eval: {reader: table, files: rows.csv}")
    job = Job.open(config)
    job.initialise()
    plain = Job.open(written(tmp_path, "eval: {reader: table, files: rows.csv}"))
    plain.initialise()
    assert Evaluator(job).evaluate("eval") == Evaluator(plain).evaluate("eval")
    assert not any("CLASS_WEIGHTS" in v.name for v in job.built.eval.list_vars())


@pytest.mark.parametrize(
    ("wish", "shares"),
    [
        pytest.param("sampling: balanced", [1 / 3, 1 / 3, 1 / 3], id="every class as often"),
        pytest.param("sampling: {weights: often}", [0, 0, 1], id="by a column"),
    ],
)
def test_rows_are_drawn_as_the_config_says(tmp_path, data, wish, shares):
    job = Job.open(written(tmp_path, wish))
    job.initialise()
    loader = job.data.loader("train", job.program, 12)
    seen = np.concatenate([batch["kind"].ravel() for epoch in range(40) for batch in loader.epoch(epoch)])
    assert len(seen) == 40 * ROWS
    np.testing.assert_allclose(np.bincount(seen, minlength=3) / len(seen), shares, atol=0.04)
    again = np.concatenate([batch["kind"].ravel() for batch in loader.epoch(7)])
    assert again.tolist() == seen[7 * ROWS : 8 * ROWS].tolist()


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        pytest.param("class_weights: {dog: 2}", "data.class_weights: there is no class 'dog'", id="no class"),
        pytest.param("class_weights: {bee: 0}", "data.class_weights.bee must be a number above 0, got 0", id="zero"),
        pytest.param("class_weights: {bee: heavy}", "data.class_weights.bee must be a number above 0, got 'heavy'", id="a text"),
        pytest.param("sampling: {weights: kinds}", "no column 'kinds'", id="no column of weights"),
        pytest.param("sampling: {weights: kind}", "kind", id="weights that are texts"),
        pytest.param("sampling: {weights: p}", "p", id="weights below 0"),
    ],
)
def test_mistakes(tmp_path, data, capsys, wish, message):
    assert run_command_line(["train", str(written(tmp_path, wish)), "--quiet"]) in (2, 3)
    assert message in capsys.readouterr().err


def test_a_loss_of_numbers_has_no_classes(tmp_path, data, capsys):
    model = MODEL.replace("kind: {shape: [1], dtype: int64}", "kind: {shape: [3]}").replace(
        "softmax_with_cross_entropy, logits: logits", "square_error_cost, input: logits"
    )
    config = written(tmp_path, "class_weights: balanced", model)
    assert run_command_line(["train", str(config), "--quiet"]) == 2
    assert "data.class_weights: no layer of the model compares scores with class numbers" in capsys.readouterr().err
