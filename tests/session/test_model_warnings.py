"""What is allowed and hardly meant is told before training, and is the remedy where the loss is no number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, did_you_mean
from tests.cli.conftest import Pe, pe

__all__ = ["pe"]  # a fixture

MODEL = """\
feeds: {x: {shape: [4]}, label: {shape: [1], dtype: int64}}
layers:
  scores: {type: fc, input: x, size: 3}
  prob:   {type: softmax, input: scores}
  xent:   {type: LOSS, label: label}
  loss:   {type: mean, x: xent}
fetches: [loss, prob]
"""
RUN = """\
model: m.yaml
data: {train: {reader: npz, file: d.npz}}
train: {loss: loss, epochs: 1, batch_size: 8, optimizer: {type: SGD, learning_rate: 0.1}}
executor: {devices: 1}
output: {dir: RUNS}
"""


def written(tmp_path: Path, loss: str, *, bad: float | None = None, extra: str = "") -> Path:
    x = np.random.default_rng(0).standard_normal((32, 4)).astype(np.float32)
    if bad is not None:
        x[13, 2] = bad
    np.savez(tmp_path / "d.npz", x=x, label=np.arange(32).reshape(-1, 1) % 3)
    (tmp_path / "m.yaml").write_text(MODEL.replace("type: LOSS", f"type: {loss}").replace("fetches", f"{extra}fetches"))
    (tmp_path / "r.yaml").write_text(RUN.replace("RUNS", str(tmp_path / "runs")))
    return tmp_path / "r.yaml"


@pytest.mark.parametrize(
    ("loss", "extra", "said"),
    [
        pytest.param("softmax_with_cross_entropy, logits: prob", "", "'xent' makes probabilities of its scores itself", id="softmax twice"),
        pytest.param("cross_entropy, input: scores", "", "'xent' takes probabilities, and nothing makes 'scores' some", id="no softmax"),
        pytest.param("cross_entropy, input: prob", "  more: {type: fc, input: x, size: 2}\n", "nothing uses layer 'more'", id="unused"),
    ],
)
def test_what_is_hardly_meant_is_told(pe: Pe, tmp_path: Path, loss: str, extra: str, said: str) -> None:
    found = pe("check", written(tmp_path, loss, extra=extra))
    assert f"warning: {said}" in found.err
    assert "1 warning" in found.out
    trained = pe("train", tmp_path / "r.yaml")
    assert f"note: {said}" in trained.err


@pytest.mark.parametrize("loss", ["softmax_with_cross_entropy, logits: scores", "cross_entropy, input: prob"])
def test_what_is_meant_is_not_doubted(pe: Pe, tmp_path: Path, loss: str) -> None:
    assert "warning" not in pe("check", written(tmp_path, loss)).err


def test_the_remedy_is_that_of_the_cause(pe: Pe, tmp_path: Path) -> None:
    said = pe("train", written(tmp_path, "cross_entropy, input: scores"), "--quiet")
    assert said.code == ExitCode.DIVERGED
    assert "hint: 'xent' takes probabilities" in said.err
    for bad, word in ((np.nan, "NaN"), (np.inf, "infinity")):
        said = pe("train", written(tmp_path, "cross_entropy, input: prob", bad=bad), "--quiet")
        assert said.code == ExitCode.DIVERGED
        assert f"hint: feed 'x' has {word} in row 14 of data.train: mend the data" in said.err


@pytest.mark.parametrize(
    ("before", "after", "hint"),
    [
        pytest.param("dtype: int64", "dtype: int", "did you mean 'int64'?", id="a type of another system"),
        pytest.param(", dtype: int64", "", "declare the feed with dtype: int64, or cast it", id="class numbers of floats"),
        pytest.param("logits: scores, label: label", "logits: label, label: scores", "look exchanged", id="exchanged"),
        pytest.param("shape: [1], dtype: int64", "shape: [3]", "set soft_label: true", id="one-hot labels"),
    ],
)
def test_hints_lead_to_the_cause(pe: Pe, tmp_path: Path, before: str, after: str, hint: str) -> None:
    config = written(tmp_path, "softmax_with_cross_entropy, logits: scores")
    model = tmp_path / "m.yaml"
    text = model.read_text()
    assert before in text
    model.write_text(text.replace(before, after))
    assert hint in pe("check", config).err


def test_a_picture_with_channels_last_is_told_to_be_transposed(pe: Pe, tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.zeros((4, 8, 9, 3), np.float32), y=np.zeros((4, 1), np.float32))
    (tmp_path / "m.yaml").write_text(
        "feeds: {x: {shape: [3, 8, 9]}, y: {shape: [1]}}\nlayers:\n  c: {type: conv2d, input: x, num_filters: 2, filter_size: 3}\n"
        "  g: {type: fc, input: c, size: 1}\n  e: {type: square_error_cost, input: g, label: y}\n  loss: {type: mean, x: e}\n"
    )
    (tmp_path / "r.yaml").write_text(RUN)
    said = pe("check", tmp_path / "r.yaml").err
    assert "declare the feed with shape [8, 9, 3] and put a layer {type: transpose, perm: [0, 3, 1, 2]} behind it" in said
    (tmp_path / "m.yaml").write_text((tmp_path / "m.yaml").read_text().replace("num_filters: 2", "num_filters: 0"))
    assert "num_filters is 0, it must be at least 1" in pe("check", tmp_path / "r.yaml").err


def test_a_step_that_cannot_be_planned_is_a_mistake(pe: Pe, tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.zeros((16, 64), np.float32), y=np.zeros((16, 1), np.float32))
    (tmp_path / "m.yaml").write_text(
        "feeds: {x: {shape: [64]}, y: {shape: [1]}}\nlayers:\n  r: {type: reshape, x: x, shape: [-1, 100]}\n"
        "  g: {type: fc, input: r, size: 1}\n  e: {type: square_error_cost, input: g, label: y}\n  loss: {type: mean, x: e}\n"
    )
    (tmp_path / "r.yaml").write_text(RUN)
    said = pe("check", tmp_path / "r.yaml")
    assert said.code == ExitCode.USAGE
    assert "m.yaml:3:7: error: reshape of float32[" in said.err
    assert "elements do not divide by 100" in said.err
    assert "no mistakes" not in said.out


@pytest.mark.parametrize(("name", "meant"), [("int", "int64"), ("float", "float32"), ("Double", "float64"), ("boolean", "bool")])
def test_types_of_other_systems(name: str, meant: str) -> None:
    assert did_you_mean(name, ("float32", "float64", "int64", "int32", "uint8", "bool")) == f"did you mean '{meant}'?"
