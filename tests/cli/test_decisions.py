"""Thresholds and calibration from a config to answers: train, eval, predict, the exported model; and what is refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from pe_cli.cli.common import open_trained
from pe_cli.session.evaluation.predictor import Predictor
from tests.cli.conftest import Pe

MODEL = """
feeds: {x: {shape: [2]}, label: {shape: [1], dtype: int64}}
layers:
  logits: {type: fc, input: x, size: CLASSES}
  xent: {type: softmax_with_cross_entropy, logits: logits, label: label}
  loss: {type: mean, x: xent}
  prob: {type: softmax, input: logits}
fetches: [loss, prob]
"""
TAGS = """
feeds: {x: {shape: [2]}, label: {shape: [3]}}
layers:
  logits: {type: fc, input: x, size: 3}
  xent: {type: sigmoid_cross_entropy_with_logits, x: logits, label: label}
  loss: {type: mean, x: xent}
  prob: {type: sigmoid, x: logits}
fetches: [loss, prob]
"""
CONFIG = """model: m.yaml
data:
  source: {reader: table, files: t.csv}
  split: {eval: 0.4, seed: 1}
  columns: {y: COLUMN}
feeds: {x: [a, b], label: y}
train: {loss: loss, epochs: 2, batch_size: 32, optimizer: {type: Adam, learning_rate: 0.05}MORE}
output: {dir: runs, checkpoint: {every: 1 epoch}}
"""


@pytest.fixture
def write(tmp_path: Path):
    """Return what writes a table, a model and a config of two or more classes, or of tags."""

    def call(more: str, classes: int = 2) -> Path:
        rng = np.random.default_rng(2)
        x = rng.standard_normal((300, 2)).round(3)
        noisy = x[:, 0] + rng.standard_normal(300)
        if classes:
            y = np.array(["no", "yes", "maybe"])[np.digitize(noisy, [1.2, 2.0][: classes - 1])].tolist()
            column = f"{{type: category, classes: ['no', 'yes'{', maybe' * (classes > 2)}]}}"
        else:
            y = ["|".join(n for n, t in zip("abc", (0.2, 1.0, 1.8), strict=True) if value > t) for value in noisy]
            column = "{type: bag, classes: [a, b, c]}"
        with (tmp_path / "t.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["a", "b", "y"], *([*row, one] for row, one in zip(x, y, strict=True))])
        (tmp_path / "m.yaml").write_text(MODEL.replace("CLASSES", str(classes)) if classes else TAGS)
        config = tmp_path / "c.yaml"
        config.write_text(CONFIG.replace("COLUMN", column).replace("MORE", f", {more}" if more else ""))
        return config

    return call


def trained(pe: Pe, config: Path) -> Path:
    said = pe("train", config, "-o", f"output.dir={config.parent / 'runs'}")
    assert said.code == 0, said.err
    assert "found" in said.out + said.err, "what the threshold does is said"
    return next((config.parent / "runs").iterdir())


def answers(pe: Pe, run: Path, *options: object) -> list[dict[str, str]]:
    out = run.parent.parent / "o.csv"
    said = pe("predict", run, run.parent.parent / "t.csv", "--out", out, *options)
    assert said.code == 0, said.err
    with out.open(newline="") as file:
        return list(csv.DictReader(file))


def decision(run: Path) -> dict[str, object]:
    newest = max((run / "checkpoints").glob("step-*"), key=lambda path: int(path.name[5:]))
    return json.loads((newest / "decision.json").read_text())


def test_f1_with_a_precision(pe: Pe, write):
    run = trained(pe, write("decide: {f1: {precision: 0.6}}"))
    (counts,) = json.loads(pe("eval", run, "--json").out)["decided"]
    assert counts["found"] / (counts["found"] + counts["false_alarms"]) >= 0.6
    assert decision(run)["said"] == "the best F1 with a precision of at least 0.6"
    (threshold,) = decision(run)["thresholds"]
    assert [row["y"] == "yes" for row in answers(pe, run)] == [float(row["prob_yes"]) >= threshold for row in answers(pe, run)]


@pytest.mark.parametrize("calibrate", ["isotonic", "temperature"])
def test_one_of_two_classes(pe: Pe, write, calibrate):
    run = trained(pe, write(f"decide: {{recall: 0.8}}, calibrate: {calibrate}"))
    (threshold,) = decision(run)["thresholds"]
    rows = answers(pe, run)
    assert [row["y"] for row in rows] == ["yes" if float(row["prob_yes"]) >= threshold else "no" for row in rows]
    assert abs(threshold - 0.5) > 0.01, "another one than without train.decide"
    measured = json.loads(pe("eval", run, "--json").out)
    (counts,) = measured["decided"]
    assert counts["found"] / (counts["found"] + counts["missed"]) >= 0.8
    assert counts["threshold"] == threshold
    other = answers(pe, run, "--threshold", "0.9")
    assert [row["y"] for row in other] == ["yes" if float(row["prob_yes"]) >= 0.9 else "no" for row in rows]
    _exported(pe, run, rows, "prob_label")


def test_tags(pe: Pe, write):
    run = trained(pe, write("decide: f1, calibrate: isotonic", 0))
    limits = decision(run)["thresholds"]
    rows = answers(pe, run)

    def taken(row: dict[str, str], limits: object) -> str:
        return "|".join(name for name, t in zip("abc", limits, strict=True) if float(row[f"prob_{name}"]) >= t)

    assert [row["y"] for row in rows] == [taken(row, limits) for row in rows]
    other = answers(pe, run, "--threshold", "0.2", "--threshold", "c=0.01")
    assert [row["y"] for row in other] == [taken(row, (0.2, 0.2, 0.01)) for row in rows]
    predictor = Predictor(open_trained(run, (), None)[0])  # what pe serve asks
    with (run.parent.parent / "t.csv").open(newline="") as table:
        asked = [{name: float(row[name]) for name in "ab"} for row in csv.DictReader(table)][:9]
    assert [answer["y"] for answer in predictor.rows(asked)] == [row["y"] for row in rows[:9]]
    assert predictor.schema()["answers"][0]["thresholds"] == dict(zip("abc", limits, strict=True))
    table_of_tags = pe("eval", run, "--classes")
    assert "sets are right as a whole" in table_of_tags.out
    assert all(f"\n{name} " in table_of_tags.out for name in "abc")
    refused = pe("eval", run, "--confusion", run.parent.parent / "m.csv")
    assert (refused.code, "hint: --classes counts each tag" in refused.err) == (2, True)
    _exported(pe, run, rows, "prob_tags")
    refused = pe("predict", run, run.parent.parent / "t.csv", "--threshold", "d=0.1")
    assert (refused.code, "there is no tag 'd'" in refused.err) == (2, True)


def _exported(pe: Pe, run: Path, rows: list[dict[str, str]], decided: str) -> None:
    """Compare the exported model's probabilities and decisions with answers."""
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    file = run.parent.parent / "m.onnx"
    assert pe("export", run, "--onnx", file).code == 0
    session = runtime.InferenceSession(file)
    with (run.parent.parent / "t.csv").open(newline="") as table:
        given = list(csv.DictReader(table))
    kinds = {"tensor(double)": np.float64, "tensor(float)": np.float32}
    fed = {i.name: np.array([[float(row[i.name])] for row in given], kinds[i.type]) for i in session.get_inputs()}
    found = dict(zip([o.name for o in session.get_outputs()], session.run(None, fed), strict=True))
    names = [name.removeprefix("prob_") for name in rows[0] if name.startswith("prob_")]
    wanted = np.array([[float(row[f"prob_{name}"]) for name in names] for row in rows])
    np.testing.assert_allclose(found["prob"], wanted, atol=1e-5)
    if decided == "prob_label":
        assert found[decided][:, 0].tolist() == [row["y"] for row in rows]
    else:
        assert ["|".join(np.array(names)[tags == 1]) for tags in found[decided]] == [row["y"] for row in rows]
    assert "pe.decision" in session.get_modelmeta().custom_metadata_map


@pytest.mark.parametrize(
    ("more", "classes", "message"),
    [
        pytest.param("decide: f1", 3, "train.decide: 'label' has 3 classes", id="a threshold of several classes"),
        pytest.param("calibrate: isotonic", 3, "train.calibrate: 'label' has 3 classes", id="isotonic of several classes"),
        pytest.param("decide: {threshold: 1.5}", 2, "must be a number from 0 to 1", id="a threshold above 1"),
        pytest.param("decide: {precision: 0.9, recall: 0.9}", 2, "with one of f1, precision, recall, cost and threshold", id="two rules"),
        pytest.param("decide: {f1: 0.5}", 2, "must be a mapping of precision", id="F1 without what is wanted"),
        pytest.param("decide: {f1: {precision: 2}}", 2, "must be a number from 0 to 1", id="a precision above 1"),
        pytest.param("decide: {cost: {missed: 1}}", 2, "must be a mapping of missed and false_alarm", id="half a cost"),
        pytest.param("decide: best", 2, "must be f1, or a mapping", id="no rule"),
    ],
)
def test_what_cannot_be_decided_is_refused(pe: Pe, write, more, classes, message):
    said = pe("check", write(more, classes))
    assert said.code == 2
    assert message in said.err
    assert "hint:" in said.err
    assert "c.yaml:7:" in said.err, "the line that settles it"


def test_evaluation_rows_are_needed(pe: Pe, write):
    config = write("decide: f1")
    config.write_text(config.read_text().replace("  split: {eval: 0.4, seed: 1}\n", ""))
    said = pe("check", config)
    assert said.code == 2
    assert "add data.split: {eval: 0.2, seed: 1}" in said.err


def test_a_temperature_of_several_classes_changes_no_answer(pe: Pe, write):
    config = write("calibrate: temperature", 3)
    said = pe("train", config, "-o", f"output.dir={config.parent / 'runs'}")
    assert said.code == 0, said.err
    run = next((config.parent / "runs").iterdir())
    assert decision(run)["temperature"] != 1
    rows = answers(pe, run)
    for row in rows:
        prob = {name: float(row[f"prob_{name}"]) for name in ("no", "yes", "maybe")}
        assert row["y"] == max(prob, key=prob.__getitem__)
        assert sum(prob.values()) == pytest.approx(1, abs=1e-6)
    refused = pe("predict", run, config.parent / "t.csv", "--threshold", "0.3")
    assert (refused.code, "has 3 classes" in refused.err) == (2, True)


@pytest.mark.parametrize("text", ["1.5", "-0.1", "nan", "high"])
def test_a_threshold_is_a_share(text):
    from pe_cli.core.errors import PeError
    from pe_cli.session.evaluation.output_meaning import Answer
    from pe_cli.session.evaluation.threshold_option import with_thresholds

    with pytest.raises(PeError, match="from 0 to 1"):
        with_thresholds([Answer("p", "y", classes=("no", "yes"))], [text])
