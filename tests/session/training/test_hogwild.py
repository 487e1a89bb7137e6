"""Asynchronous training from a run file: threads, files, what is recorded, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError, PeErrors
from pe_cli.session.evaluation.evaluator import Evaluator
from pe_cli.session.job import Job
from pe_cli.session.processes.trainer_choice import trainer_of
from pe_cli.session.training.hogwild import AsyncTrainer
from pe_cli.session.training.loop import Result

MODEL = """\
name: sums
feeds:
  ids: {shape: [1], dtype: int64, lod_level: 1}
  y: {shape: [1]}
layers:
  table: {type: embedding, input: ids, size: [4, 1]}
  out: {type: sequence_pool, pool_type: sum}
  cost: {type: square_error_cost, input: out, label: y}
  loss: {type: mean, x: cost}
fetches: [loss]
"""
RUN = """\
model: model.yaml
data:
  train: {reader: multi_slot, files: [a.txt, b.txt, c.txt], slots: {ids: {}, y: {type: float, dense: true}}}
  eval: {reader: multi_slot, files: [a.txt], slots: {ids: {}, y: {type: float, dense: true}}}
feeds: {ids: ids, y: y}
train: {loss: loss, epochs: 12, batch_size: 8, optimizer: {type: Adagrad, learning_rate: 0.5}}
fetches: {loss: {every: 5 steps}}
executor: {type: async, threads: 2, seed: 3}
output: {checkpoint: ~}
"""
#: What an id is worth; a text is worth the sum.
WORTH = np.array([1.0, -2.0, 0.5, 3.0])


def write_files(model: str, run: str) -> None:
    """Write a model, a run file and its three files of 40 texts into the working folder."""
    Path("model.yaml").write_text(model)
    Path("run.yaml").write_text(run)
    rng = np.random.default_rng(1)
    for name in ("a", "b", "c"):
        lines = []
        for _ in range(40):
            ids = rng.integers(0, 4, rng.integers(1, 6))
            lines.append(f"{len(ids)} {' '.join(map(str, ids))} 1 {WORTH[ids].sum()}\n")
        Path(f"{name}.txt").write_text("".join(lines))


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(MODEL, RUN)


def train(*overrides: str) -> tuple[Job, Result]:
    job = Job.open(Path("run.yaml"), overrides)
    job.initialise()
    trainer = trainer_of(job)
    assert isinstance(trainer, AsyncTrainer)
    return job, trainer.train()


def test_threads_have_no_common_step_at_which_a_group_begins():
    with pytest.raises(PeError, match="asynchronous training has no step in common"):
        train("train.groups=[{match: table, freeze: until 3 steps}]")


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_learn_one_table(threads):
    job, result = train(f"executor.threads={threads}")
    np.testing.assert_allclose(job.scope.get("embedding_0.w_0").ravel(), WORTH, atol=0.05)
    assert result.step == 12 * 15
    assert result.metrics["eval/loss"] < 0.01


def test_numbers_are_recorded_and_evaluation_works_afterwards():
    job, result = train("train.epochs=2")
    lines = [json.loads(line) for line in (result.folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["split"] == "train"] == [5, 10, 15, 20, 25, 30]
    assert [line["epoch"] for line in lines if line["split"] == "eval"] == [1, 2]
    assert Evaluator(job).evaluate("eval")["loss"] == pytest.approx(result.metrics["eval/loss"])


def test_files_of_the_executor_go_before_those_of_the_data():
    _, result = train("executor.files=[b.txt]", "train.epochs=1")
    assert result.step == 5


def test_steps_are_a_limit():
    _, result = train("train.steps=7")
    assert result.step == 7


def test_an_error_in_a_thread_ends_the_run():
    Path("c.txt").write_text("1 9 1 0.5\n" * 8)  # the table has 4 rows
    with pytest.raises(PeError, match="value 9 at row 0 is out of range") as caught:
        train()
    assert caught.value.code == ExitCode.DATA


def test_a_wrong_line_in_the_last_file_is_told_before_the_first_step():
    with Path("c.txt").open("a") as file:
        file.write("2 1 1 0\n")
    with pytest.raises(PeError, match="slot 'y' begins"):
        train()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        pytest.param("executor.devices=2", "has threads, not devices", id="devices"),
        pytest.param("executor.deterministic=true", "no two runs are alike", id="deterministic"),
        pytest.param("executor.uneven_batch=drop", "not split", id="uneven_batch"),
        pytest.param("executor.num_threads=2", "each step on one thread", id="num_threads"),
        pytest.param("train.eval_every=3 steps", "evaluates between epochs", id="eval_every"),
        pytest.param("output.checkpoint={every: 3 steps}", "saves between epochs", id="checkpoint"),
        pytest.param("data.train={reader: csv, file: a.txt}", "files of reader multi_slot", id="another reader"),
        pytest.param("executor.type=parallel", "for asynchronous training", id="threads without async"),
    ],
)
def test_wishes_that_it_cannot_act_on(override, message):
    with pytest.raises((PeError, PeErrors), match=message):
        Job.open(Path("run.yaml"), [override])
