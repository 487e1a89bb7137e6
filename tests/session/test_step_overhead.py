"""How much Python stands around a step whose plan is there already: calls, which are the same on every machine."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

from pe_cli.session.job import Job
from pe_cli.session.training.loop import Trainer

MODEL = """\
name: small
feeds: {x: {shape: [64]}, y: {shape: [1], dtype: int64}}
layers:
  hidden: {type: fc, input: x, size: 32, act: relu}
  logits: {type: fc, size: 10}
  xent: {type: softmax_with_cross_entropy, logits: logits, label: y}
  loss: {type: mean, x: xent}
  acc: {type: accuracy, input: logits, label: y}
fetches: [loss, acc]
"""
RUN = """\
model: model.yaml
data: {train: {reader: synthetic, samples: 1280, fields: {x: {shape: [64]}, y: {shape: [1], dtype: int64, classes: 10}}}}
feeds: {x: x, y: y}
train: {loss: loss, epochs: 1, batch_size: 64, optimizer: {type: SGD, learning_rate: 0.01}}
executor: {seed: 3, devices: 2, num_threads: 2}
output: {checkpoint: ~}
"""


def test_a_step_on_two_devices_makes_few_calls_of_python(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("model.yaml").write_text(MODEL)
    Path("run.yaml").write_text(RUN)
    job = Job.open(Path("run.yaml"), ())
    job.initialise()
    trainer = Trainer(job)
    calls: list[int] = []

    def count(frame, event, argument):
        calls[-1] += event == "call"

    step, after = trainer._step, trainer._after_step

    def counted_step(*given):
        calls.append(0)
        sys.setprofile(count)
        step(*given)

    def counted_after():
        after()
        sys.setprofile(None)

    monkeypatch.setattr(trainer, "_step", counted_step)
    monkeypatch.setattr(trainer, "_after_step", counted_after)
    trainer.train()
    assert len(calls) == 20
    assert 0 < statistics.median(calls[5:]) <= 60, "now and then a thread is waited for, or the clock writes something"
