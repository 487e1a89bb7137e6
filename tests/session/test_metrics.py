"""Metrics of a run file: the same on any devices and for any batches as scikit-learn finds for the whole, and what they decide."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode
from pe_cli.io import checkpoint
from pe_cli.metrics.collection import Collector
from tests.mpi_support import finished, mpiexec, needs_mpi
from tests.session.conftest import Bench

MODEL = """\
name: sorter
feeds:
  x:     {shape: [4], dtype: float32}
  kind:  {shape: [1], dtype: int64}
  y:     {shape: [1], dtype: float32}
  extra: {shape: [1], dtype: int64}
layers:
  logits: {type: fc, input: x, size: 3}
  prob:   {type: softmax, input: logits}
  xent:   {type: softmax_with_cross_entropy, logits: logits, label: kind}
  some:   {type: mean, x: xent}
  guess:  {type: fc, input: x, size: 1}
  error:  {type: square_error_cost, input: guess, label: y}
  more:   {type: mean, x: error}
  loss:   {type: elementwise_add, x: some, y: more}
  acc:    {type: accuracy, input: prob, label: kind}
fetches: [loss, acc]
"""
CONFIG = """\
model: model.yaml
data:
  train: {reader: npz, file: data.npz, shuffle: true}
  eval:  {reader: npz, file: data.npz, limit: 41}
feeds: {x: x, kind: kind, y: y, extra: extra}
train:
  loss: loss
  epochs: 3
  batch_size: 8
  optimizer: {type: SGD, learning_rate: 0.1}
metrics:
  auc:   {type: roc_auc, scores: prob, labels: kind}
  ap:    {type: average_precision, scores: prob, labels: kind, average: weighted}
  f1:    {type: f1, average: macro, scores: prob, labels: kind}
  other: {type: recall, average: micro, scores: logits, labels: extra}
  top:   {type: top_k, k: 2, scores: prob, labels: kind}
  mcc:   {type: mcc, scores: prob, labels: kind}
  ece:   {type: calibration_error, scores: prob, labels: kind}
  r2:    {type: r2, predictions: guess, labels: y}
  mae:   {type: mae, predictions: guess, labels: y}
  ppl:   {type: perplexity, losses: xent}
executor: {devices: 1, seed: 3}
output: {dir: RUNS, checkpoint: {every: 1 epoch, keep: 100}, log: [jsonl, csv]}
"""
NAMES = ["auc", "ap", "f1", "other", "top", "mcc", "ece", "r2", "mae", "ppl"]


@pytest.fixture
def sorter(bench: Bench, rng: np.random.Generator) -> Bench:
    """Three classes and a number, of 61 rows; `extra` is read by no layer."""
    x = np.round(rng.standard_normal((61, 4)), 1).astype(np.float32)
    kind = (x[:, :1] + x[:, 1:2] > 0).astype(np.int64) + (x[:, 2:3] > 0.5)
    extra = np.roll(kind, 1, axis=0)
    np.savez(bench.base / "data.npz", x=x, kind=kind, y=x[:, :1] * 2 + rng.standard_normal((61, 1)).astype(np.float32), extra=extra)
    (bench.base / "model.yaml").write_text(MODEL)
    (bench.base / "run.yaml").write_text(CONFIG.replace("RUNS", str(bench.base / "runs")))
    return bench


def evaluated(folder: Path) -> list[dict[str, float]]:
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in found if line["split"] == "eval"]


def by_hand(bench: Bench, folder: Path) -> dict[str, float]:
    """Compute all metrics with scikit-learn, of values that the last checkpoint makes in NumPy."""
    metrics = pytest.importorskip("sklearn.metrics")
    with np.load(bench.base / "data.npz") as data:
        x, kind, y, extra = (data[name][:41].astype(np.float64) for name in ("x", "kind", "y", "extra"))
    arrays, _ = checkpoint.load(folder)
    logits = x @ arrays["logits.w_0"] + arrays["logits.b_0"]
    prob = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    guess = x @ arrays["guess.w_0"] + arrays["guess.b_0"]
    taken, kind = prob.argmax(axis=1), kind[:, 0].astype(int)
    return {
        "auc": metrics.roc_auc_score(kind, prob, multi_class="ovr"),
        "ap": metrics.average_precision_score(np.eye(3)[kind], prob, average="weighted"),
        "f1": metrics.f1_score(kind, taken, average="macro"),
        "other": metrics.recall_score(extra[:, 0], taken, average="micro"),
        "top": metrics.top_k_accuracy_score(kind, prob, k=2),
        "mcc": metrics.matthews_corrcoef(kind, taken),
        "r2": metrics.r2_score(y, guess),
        "mae": metrics.mean_absolute_error(y, guess),
        "ppl": np.exp(metrics.log_loss(kind, prob)),
    }


def test_metrics_are_those_of_scikit_learn_whatever_the_batches_and_devices(sorter: Bench) -> None:
    first = sorter.train("runs")
    last = evaluated(first)[-1]
    assert list(last) == ["step", "epoch", "split", "loss", "acc", *NAMES]
    expected = by_hand(sorter, first)
    assert {name: last[name] for name in expected} == pytest.approx(expected, rel=2e-5)
    for devices in (1, 2, 3):
        for size in (5, 7, 64):
            options = ["-o", f"executor.devices={devices}", "-o", f"train.batch_size={size}"]
            assert sorter.run("eval", first, *options, "--json") == 0, sorter.err
            found = json.loads(sorter.out)
            assert [found[name] for name in NAMES] == pytest.approx([last[name] for name in NAMES], rel=1e-6), (devices, size)
            exact = ("auc", "ap", "f1", "other", "top", "mcc")
            assert [found[name] for name in exact] == [last[name] for name in exact], "of the same order and decisions"
    header = (first / "metrics.csv").read_text().splitlines()[0]
    assert header.endswith("learning_rate,auc,ap,f1,other,top,mcc,ece,r2,mae,ppl")


def test_the_best_checkpoint_and_early_stopping_go_by_metrics(sorter: Bench) -> None:
    best = ["-o", "output.checkpoint={every: 1 epoch, keep: 100, best: {by: eval/auc, mode: max}}", "-o", "train.epochs=6"]
    folder = sorter.train("best", *best)
    measured = {line["step"]: line["auc"] for line in evaluated(folder)}
    assert checkpoint.marked(folder / "checkpoints", "best") == max(measured, key=lambda step: measured[step])
    early = ["-o", "train.early_stopping={by: eval/mcc, mode: max, patience: 2, min_delta: 2.0}", "-o", "train.epochs=50"]
    folder = sorter.train("early", *early)
    assert len(evaluated(folder)) == 3
    assert "eval/mcc got no better in 2 measurements" in (folder / "log.txt").read_text()


def test_a_stopped_run_goes_on_with_its_metrics(sorter: Bench) -> None:
    best = ["-o", "output.checkpoint={every: 1 epoch, keep: 100, best: {by: eval/f1, mode: max}}"]
    whole = sorter.train("whole", *best)
    folder = sorter.train("pieces", *best, "--max-steps", 9, code=ExitCode.STOPPED)
    assert sorter.run("train", "--resume", folder, "--quiet") == 0, sorter.err
    assert sorter.seen(folder) == sorter.seen(whole)
    assert sorter.run("verify", folder, "--quiet") == 0, sorter.err
    other = ["-o", "train.epochs=4", "-o", "metrics={f1: {type: f1, scores: prob, labels: kind}}"]
    assert sorter.run("train", "--resume", folder, "--quiet", *other) == 0, sorter.err
    assert list(evaluated(folder)[-1]) == ["step", "epoch", "split", "loss", "acc", "f1"], "metrics change no step"


def test_a_metric_without_a_value_is_left_out_and_told_once(sorter: Bench) -> None:
    with np.load(sorter.base / "data.npz") as data:
        arrays = dict(data)
    arrays["kind"][:] = np.minimum(arrays["kind"], 1)
    np.savez(sorter.base / "data.npz", **arrays)
    folder = sorter.train("runs")
    assert list(evaluated(folder)[-1]) == ["step", "epoch", "split", "loss", "acc", *NAMES[2:]]
    text = "metric 'auc' (roc_auc) is left out: no row is of class 2"
    assert (folder / "log.txt").read_text().count(text) == 1
    assert sorter.run("eval", folder) == 0
    assert f"note: {text}" in sorter.err


def test_a_smoke_run_measures_one_batch(sorter: Bench) -> None:
    assert sorter.run("train", sorter.base / "run.yaml", "--smoke", "--quiet") == 0, sorter.err


@pytest.mark.parametrize(
    ("override", "said"),
    [
        pytest.param("metrics.auc.type=roc_au", "there is no metric 'roc_au'|did you mean 'roc_auc'?", id="an unknown type"),
        pytest.param("metrics.auc.scores=probs", "'probs'|did you mean 'prob'?", id="an unknown variable"),
        pytest.param("metrics.auc.score=prob", "metrics.auc has no key 'score'|did you mean 'scores'?", id="an unknown option"),
        pytest.param("metrics.auc={type: roc_auc, scores: prob}", "metrics.auc needs labels", id="an option that is missing"),
        pytest.param("metrics.auc={scores: prob}", "metrics.auc needs a type|one of accuracy, average_precision", id="no type"),
        pytest.param("metrics.auc=roc_auc", "metrics.auc must be a mapping with type", id="no mapping"),
        pytest.param("metrics=[auc]", "metrics must be a mapping, got ['auc']", id="a list"),
        pytest.param("metrics.f1.average=mean", "metrics.f1.average must be binary, micro, macro or weighted", id="no such average"),
        pytest.param("metrics.ppl.losses=loss", "metric 'ppl': losses is 'loss'|before its mean is taken", id="one number per batch"),
        pytest.param("metrics.ppl.losses=logits.w_0", "has no value for each row", id="a parameter"),
        pytest.param("metrics.r2.predictions=logits", "metric 'r2': predictions are float32[batch, 3]", id="other shapes"),
        pytest.param("metrics.auc.scores=kind", "scores must be float32 or float64", id="class numbers as scores"),
        pytest.param("metrics.acc={type: accuracy, scores: prob, labels: kind}", "recorded as eval/acc already", id="a name twice"),
        pytest.param("metrics.step={type: accuracy, scores: prob, labels: kind}", "cannot be called 'step'", id="a name that lines have"),
        pytest.param("train.early_stopping={by: eval/au, mode: max}", "nothing is measured as 'eval/au'|'eval/auc'?", id="by none"),
        pytest.param("train.early_stopping={by: train/auc, mode: max}", "nothing is measured as 'train/auc'", id="by one of training"),
    ],
)
def test_what_is_wrong_has_its_place(sorter: Bench, override: str, said: str) -> None:
    assert sorter.run("train", sorter.base / "run.yaml", "-o", override) == ExitCode.USAGE
    for text in said.split("|"):
        assert text in sorter.err
    assert "error: " in sorter.err


def test_labels_that_are_no_classes_end_the_evaluation_with_the_place(sorter: Bench) -> None:
    override = "metrics.f1.labels=y"
    assert sorter.run("train", sorter.base / "run.yaml", "-o", override) == ExitCode.DATA
    assert "metric 'f1': a label is " in sorter.err
    assert "name the feed with the classes" in sorter.err


def test_more_values_than_memory_is_for_are_refused_before_the_first_step(sorter: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Collector.__init__, "__defaults__", (500,))
    assert sorter.run("train", sorter.base / "run.yaml") == ExitCode.USAGE
    assert "metric 'auc': the values of 'kind' in all rows of the evaluation take more than" in sorter.err
    assert "step 1" not in sorter.out


SEQUENCES = """\
feeds:
  ids:  {shape: [1], dtype: int64, lod_level: 1}
  tags: {shape: [1], dtype: int64, lod_level: 1}
layers:
  table:  {type: embedding, input: ids, size: [5, 4]}
  logits: {type: fc, size: 3}
  xent:   {type: softmax_with_cross_entropy, logits: logits, label: tags}
  loss:   {type: mean, x: xent}
fetches: [loss]
"""
TEXTS = """\
model: model.yaml
data:
  train: {reader: multi_slot, files: [a.txt, b.txt], slots: {ids: {}, tags: {}}}
  eval:  {reader: multi_slot, files: [a.txt, b.txt], slots: {ids: {}, tags: {}}}
feeds: {ids: ids, tags: tags}
train: {loss: loss, epochs: 2, batch_size: 4, optimizer: {type: SGD, learning_rate: 0.5}}
metrics:
  f1:  {type: f1, scores: logits, labels: tags}
  auc: {type: roc_auc, scores: logits, labels: tags}
  ppl: {type: perplexity, losses: xent}
output: {dir: RUNS}
"""


@pytest.mark.parametrize("executor", ["devices=1", "devices=3", "type=async"])
def test_rows_of_sequences_are_measured_one_by_one(bench: Bench, rng: np.random.Generator, executor: str) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    ids, tags = [], []
    for name in "ab":
        lines = []
        for length in rng.integers(1, 8, 13):
            ids.append(rng.integers(0, 5, length))
            tags.append((ids[-1] + (rng.uniform(size=length) < 0.2)) % 3)
            lines.append(" ".join(map(str, [length, *ids[-1], length, *tags[-1]])))
        (bench.base / f"{name}.txt").write_text("\n".join(lines) + "\n")
    (bench.base / "model.yaml").write_text(SEQUENCES)
    (bench.base / "run.yaml").write_text(TEXTS.replace("RUNS", str(bench.base / "runs")))
    folder = bench.train("learned", "-o", f"executor.{executor}")
    found = evaluated(folder)[-1]
    arrays, _ = checkpoint.load(folder)
    table = next(a for a in arrays.values() if a.shape == (5, 4))
    logits = (table @ arrays["logits.w_0"] + arrays["logits.b_0"])[np.concatenate(ids)].astype(np.float64)
    truth, prob = np.concatenate(tags), np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert found["f1"] == pytest.approx(metrics.f1_score(truth, logits.argmax(axis=1), average="macro"), rel=1e-12)
    assert found["ppl"] == pytest.approx(np.exp(metrics.log_loss(truth, prob)), rel=1e-5)
    each = [metrics.roc_auc_score(truth == i, logits[:, i]) for i in range(3)]
    assert found["auc"] == pytest.approx(np.mean(each), rel=1e-12)


@needs_mpi
def test_two_processes_find_what_two_devices_find(sorter: Bench) -> None:
    best = ["-o", "output.checkpoint={every: 1 epoch, best: {by: eval/auc, mode: max}}", "-o", "train.batch_size=7"]
    line = ["-m", "pe_cli", "train", sorter.base / "run.yaml", "--quiet", "-o", "executor.processes=auto"]
    code, _, err = finished(mpiexec(2, *line, "-o", f"output.dir={sorter.base / 'several'}", *best))
    assert code == 0, err
    (several,) = (sorter.base / "several").iterdir()
    assert sorter.seen(several) == sorter.seen(sorter.train("one", "-o", "executor.devices=2", *best))


def test_data_that_is_made_up_has_no_metrics(sorter: Bench) -> None:
    (sorter.base / "data.npz").unlink()
    folder = sorter.train("runs", "--smoke")
    assert "metrics of data.eval are left out: it is made up" in (folder / "log.txt").read_text()
    assert list(evaluated(folder)[-1]) == ["step", "epoch", "split", "loss", "acc"]
