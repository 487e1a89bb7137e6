"""Data that the model has no place for is told before training, by the row of the file; and during training, too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pe_cli.cli.main import run as run_command_line

MODEL = """\
name: small
feeds:
  x: {shape: [3], dtype: float32}
  y: {shape: [1], dtype: KIND}
layers:
  made: {type: fc, input: x, size: SIZE, act: ACT}
  each: {type: LOSS, label: y, INPUT: made}
  loss: {type: mean, x: each}
fetches: [loss]
"""
UNUSED = "layers:\n  unused: {type: tanh, x: x}"
CONFIG = """\
model: model.yaml
data:
  train: {reader: npz, file: data.npz, shuffle: true, skip: 5}
feeds: {x: x, y: y}
train: {loss: loss, epochs: 1, batch_size: 8, optimizer: {type: SGD, learning_rate: 0.1}}
output: {dir: runs}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text(CONFIG)
    return tmp_path


def written(folder: Path, y: np.ndarray, kind: str, size: int, act: str, loss: str) -> None:
    x = np.random.default_rng(0).standard_normal((len(y), 3)).astype(np.float32)
    np.savez(folder / "data.npz", x=x, y=y)
    slot = "logits" if loss.startswith("softmax") else "input"
    text = MODEL.replace("KIND", kind).replace("SIZE", str(size)).replace("ACT", act).replace("LOSS", loss).replace("INPUT", slot)
    (folder / "model.yaml").write_text(text)


def classes(bad: int) -> np.ndarray:
    y = np.arange(40, dtype=np.int64) % 3
    y[21] = bad
    return y[:, None]


@pytest.mark.parametrize("command", ["check", "train"])
@pytest.mark.parametrize("bad", [10, -1])
def test_a_class_without_a_score_is_told_with_its_row(folder: Path, capsys: pytest.CaptureFixture[str], command: str, bad: int) -> None:
    written(folder, classes(bad), "int64", 3, "~", "softmax_with_cross_entropy")
    assert run_command_line([command, "run.yaml"]) == 3
    assert f"feed 'y' is class {bad} at row 22 of data.train, and 'made' has the classes 0 to 2" in capsys.readouterr().err


def test_a_class_that_is_ignored_needs_no_score(folder: Path) -> None:
    written(folder, classes(-100), "int64", 3, "~", "softmax_with_cross_entropy")
    assert run_command_line(["check", "run.yaml"]) == 0


def test_an_id_that_a_step_stumbles_over_has_the_row_of_the_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(folder, classes(10), "int64", 1, "~", "square_error_cost")
    lookup = "  table: {type: embedding, input: y, size: [3, 1]}\n  each: {type: square_error_cost, input: made, label: table}"
    model = (folder / "model.yaml").read_text().replace("  each: {type: square_error_cost, label: y, input: made}", lookup)
    (folder / "model.yaml").write_text(model)
    assert run_command_line(["check", "run.yaml"]) == 0
    assert run_command_line(["train", "run.yaml", "--quiet"]) == 3
    assert "value 10 of feed 'y' at row 22 of data.train is out of range [0, 3)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("act", "low", "high", "said"),
    [
        pytest.param("relu", -3.0, 10.0, "'made' (relu) makes nothing below 0, and 'y' of data.train goes from -3 to 10", id="below 0"),
        pytest.param("sigmoid", 0.0, 4.0, "'made' (sigmoid) makes 0 to 1, and 'y' of data.train goes from 0 to 4", id="above 1"),
        pytest.param("tanh", -1.0, 1.0, "", id="just within"),
        pytest.param("~", -1e6, 1e6, "", id="no activation"),
    ],
)
def test_numbers_that_the_last_layer_cannot_make_are_told(
    folder: Path, capsys: pytest.CaptureFixture[str], act: str, low: float, high: float, said: str
) -> None:
    written(folder, np.linspace(low, high, 40, dtype=np.float32)[:, None], "float32", 1, act, "square_error_cost")
    assert run_command_line(["check", "run.yaml", "-o", "data.train.skip=0"]) == 0
    err = capsys.readouterr().err
    assert said in err
    assert bool(said) == ("warning: 'made'" in err)


def test_a_model_larger_than_the_machine_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written(folder, classes(0), "int64", 3, "~", "softmax_with_cross_entropy")
    monkeypatch.setattr("pe_cli.session.device_choice.memory", lambda: 40)
    for command in ("check", "train"):
        assert run_command_line([command, "run.yaml"]) == 5
        assert "GiB of memory, and there are" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("override", "place", "said"),
    [
        ("feeds.x.reshape=[-1, 100]", 17, "reshape [-1, 100] cannot hold"),
        ("feeds.x.scale=1e300", 15, "scale must be a finite float32 number"),
        ("train.optimizer={type: Momentum, learning_rate: 0.1, momentum: 2}", 64, "momentum must be in [0, 1)"),
    ],
)
def test_an_error_of_an_override_points_at_it(
    folder: Path, capsys: pytest.CaptureFixture[str], override: str, place: int, said: str
) -> None:
    written(folder, classes(0), "int64", 3, "~", "softmax_with_cross_entropy")
    assert run_command_line(["check", "run.yaml", "-o", override]) in (2, 3)
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith(f"-o {override}:1:{place}: error: ")
    assert said in first


def test_an_argument_of_the_command_line_that_a_layer_refuses_is_noted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(folder, classes(0), "int64", 3, "~", "softmax_with_cross_entropy")
    model = (folder / "model.yaml").read_text().replace("size: 3", 'size: "${size}"').replace("feeds:", "args: {size: 3}\nfeeds:")
    (folder / "model.yaml").write_text(model)
    assert run_command_line(["check", "run.yaml", "-o", "model.args.size=0"]) == 2
    assert "-o model.args.size=0:1:17: note: the value is written here" in capsys.readouterr().err


@pytest.mark.parametrize("checked", [True, False])
def test_a_number_that_is_none_is_told_by_feed_row_and_layer(folder: Path, capsys: pytest.CaptureFixture[str], checked: bool) -> None:
    written(folder, np.zeros((40, 1), np.float32), "float32", 4, "relu", "square_error_cost")
    x = np.random.default_rng(1).standard_normal((40, 3)).astype(np.float32)
    x[13, 2] = np.nan
    np.savez(folder / "data.npz", x=x, y=np.zeros((40, 4), np.float32))
    model = (folder / "model.yaml").read_text().replace("y: {shape: [1]", "y: {shape: [4]").replace("layers:", UNUSED)
    (folder / "model.yaml").write_text(model)
    assert run_command_line(["train", "run.yaml", "-o", f"executor.check_nan_inf={str(checked).lower()}"]) == 4
    err = capsys.readouterr().err
    assert "hint: feed 'x' has NaN in row 14 of data.train: mend the data; " in err
    assert ("error: layer 'made': its result 'made' is nan" in err) is checked
    assert "fused" not in err


def test_a_layer_that_nothing_uses_is_no_reason_for_a_loss_that_is_none(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(folder, np.zeros((40, 1), np.float32), "float32", 1, "~", "square_error_cost")
    model = (folder / "model.yaml").read_text().replace("layers:", UNUSED)
    (folder / "model.yaml").write_text(model)
    assert run_command_line(["train", "run.yaml", "-o", "train.optimizer.learning_rate=1e30", "-o", "train.epochs=4"]) == 4
    assert "hint: lower the learning rate or clip gradients" in capsys.readouterr().err
