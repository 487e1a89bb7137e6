"""Schedules that are written in epochs: how many steps an epoch has, in every command."""

from __future__ import annotations

import pytest

from pe_cli.core.errors import PeError
from pe_cli.optim.schedule import SCHEDULES, PiecewiseDecay
from pe_cli.program.epoch_attributes import Epochs, count_epochs, epochs_of
from pe_cli.program.ir import Program
from pe_cli.program.text import print_program
from pe_cli.session.job import Job

ASYNC_MODEL = """\
name: line
feeds: {x: {shape: [1]}, y: {shape: [1]}}
layers:
  guess: {type: fc, input: x, size: 1}
  error: {type: square_error_cost, input: guess, label: y}
  loss:  {type: mean, x: error}
fetches: [loss]
"""
ASYNC_RUN = """\
model: model.yaml
data:
  train: {reader: multi_slot, files: [a.txt], slots: {x: {type: float, dense: true}, y: {type: float, dense: true}}}
feeds: {x: x, y: y}
train:
  loss: loss
  epochs: 1
  batch_size: 4
  optimizer: {type: SGD, learning_rate: {type: exponential_decay, learning_rate: 1, decay_steps: 1 epoch, decay_rate: 0.5}}
executor: {type: async, threads: 1}
output: {checkpoint: ~}
"""
RATE = "{type: exponential_decay, learning_rate: 0.05, decay_steps: 5, decay_rate: 0.8}"


def rewrite(bench, old, new):
    path = bench.base / "run.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def steps_of(bench, *overrides, smoke=False):
    """Return the decay_steps of one epoch."""
    rewrite(bench, "decay_steps: 5", "decay_steps: 1 epoch")
    job = Job.open(bench.base / "run.yaml", overrides, smoke=smoke)
    job.count_epochs()
    (op,) = [op for op in job.program.global_block().ops if "decay_steps" in op.attrs]
    assert not epochs_of(job.program)
    assert type(op.attrs["decay_steps"]) is int
    return op.attrs["decay_steps"]


@pytest.mark.parametrize(
    ("overrides", "steps"),
    [
        pytest.param((), 6, id="44 samples are five batches of eight and one of four"),
        pytest.param(("train.drop_last=true",), 5, id="drop_last leaves the last out"),
        pytest.param(("train.accumulate=2",), 3, id="a step takes the samples of all its parts"),
        pytest.param(("train.accumulate=3", "train.drop_last=true"), 1, id="parts and drop_last together"),
        pytest.param(("executor.devices=8", "executor.uneven_batch=drop"), 5, id="four samples do not do for eight devices"),
        pytest.param(("executor.devices=4", "executor.uneven_batch=drop"), 6, id="four samples do for four devices"),
        pytest.param(("executor.devices=8", "executor.uneven_batch=weighted"), 6, id="an uneven batch is a step"),
        pytest.param(("data.train.limit=20",), 3, id="the limit of the reader"),
        pytest.param(("exec_strategy.num_iteration_per_run=3",), 18, id="every batch is three steps of the counter"),
    ],
)
def test_steps_of_an_epoch(bench, overrides, steps):
    assert steps_of(bench, *overrides) == steps


def test_a_smoke_run_has_small_batches(bench):
    assert steps_of(bench, "train.batch_size=44", smoke=True) == 6


@pytest.mark.parametrize(
    ("written", "steps"),
    [
        pytest.param(RATE.replace(" 5,", " 2 epochs,"), RATE.replace(" 5,", " 12,"), id="decay_steps"),
        pytest.param(RATE.replace(" 5,", " 5 steps,"), RATE, id="a number of steps with its unit"),
        pytest.param(
            "{type: piecewise_decay, boundaries: [500 steps, 200 epochs, 300 epochs], values: [0.1, 0.2, 0.3, 0.4]}",
            "{type: piecewise_decay, boundaries: [500, 1200, 1800], values: [0.1, 0.2, 0.3, 0.4]}",
            id="boundaries, some in epochs",
        ),
        pytest.param(
            "{type: linear_lr_warmup, warmup_steps: 1 epoch, start_lr: 0, end_lr: 0.1, delay: true,"
            " learning_rate: {type: cosine_restarts, learning_rate: 0.1, T_0: 1 epoch}}",
            "{type: linear_lr_warmup, warmup_steps: 6, start_lr: 0, end_lr: 0.1, delay: true,"
            " learning_rate: {type: cosine_restarts, learning_rate: 0.1, T_0: 6}}",
            id="a warm-up and what is behind it",
        ),
        pytest.param(
            "{type: one_cycle, max_lr: 0.1, total_steps: 3 epochs}",
            "{type: one_cycle, max_lr: 0.1, total_steps: 18}",
            id="one_cycle",
        ),
        pytest.param(
            "{type: cosine_decay, learning_rate: 0.1, step_each_epoch: 1 epoch, epochs: 3}",
            "{type: cosine_decay, learning_rate: 0.1, step_each_epoch: 6, epochs: 3}",
            id="cosine_decay",
        ),
        pytest.param(
            "{type: noam_decay, d_model: 4, warmup_steps: 1 epoch}",
            "{type: noam_decay, d_model: 4, warmup_steps: 6}",
            id="noam_decay",
        ),
    ],
)
def test_epochs_give_the_bits_of_their_steps(bench, written, steps):
    rewrite(bench, RATE, written)
    found = bench.seen(bench.train("epochs"))
    rewrite(bench, written, steps)
    assert bench.seen(bench.train("steps")) == found


def test_a_resumed_run_goes_on_bit_for_bit(bench):
    rewrite(bench, "decay_steps: 5", "decay_steps: 1 epoch")
    whole = bench.seen(bench.train("whole"))
    stopped = bench.train("parts", "--max-steps", "7", code=75)
    assert bench.run("train", "--resume", stopped, "--quiet") == 0, bench.err
    assert bench.seen(stopped) == whole


def test_the_commands_that_train_count_too(bench):
    rewrite(bench, "decay_steps: 5", "decay_steps: 1 epoch")
    folder = bench.train("run")
    config = bench.base / "run.yaml"
    for arguments in (
        ("verify", folder),
        ("check", config),
        ("bench", config, "--steps", "2", "--warmup", "1"),
        ("profile", config, "--steps", "2"),
        ("train", config, "--smoke", "--quiet", "-o", f"output.dir={bench.base / 'smoke'}"),
        ("graph", config, "--stage", "plan"),
    ):
        assert bench.run(*arguments) == 0, bench.err


def test_the_text_of_a_program_shows_epochs(bench):
    rewrite(bench, "decay_steps: 5", "decay_steps: 10 epochs")
    assert bench.run("graph", bench.base / "run.yaml") == 0
    assert '"decay_steps": "10 epochs"' in bench.out


# --- mistakes ---------------------------------------------------------------------------------------------------------


def refused(bench, *arguments):
    assert bench.run(*arguments) == 2
    return bench.err


def test_boundaries_that_turn_out_not_to_increase(bench):
    rewrite(bench, RATE, "{type: piecewise_decay, boundaries: [10, 1 epoch], values: [0.1, 0.2, 0.3]}")
    error = refused(bench, "check", bench.base / "run.yaml")
    assert "run.yaml:10:" in error
    assert "increasing boundaries, got [10, 6]" in error
    assert "hint: an epoch has 6 steps" in error


def test_without_training_data_it_is_not_known(bench):
    rewrite(bench, "decay_steps: 5", "decay_steps: 1 epoch")
    text = (bench.base / "run.yaml").read_text()
    (bench.base / "run.yaml").write_text("\n".join(line for line in text.splitlines() if "train: {reader" not in line))
    error = refused(bench, "train", bench.base / "run.yaml")
    assert "how many steps an epoch has is not known: the run file has no data.train" in error
    assert "hint: add data.train, or write a number of steps" in error


def test_no_batch_for_all_devices(bench):
    rewrite(bench, "decay_steps: 5", "decay_steps: 1 epoch")
    wanted = ["train.batch_size=2", "executor.devices=4", "executor.uneven_batch=drop"]
    error = refused(bench, "train", bench.base / "run.yaml", *(word for each in wanted for word in ("-o", each)))
    assert "an epoch has no step" in error


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("1.5", "must be a whole number of steps, or like '50 steps' or '10 epochs', got 1.5"),
        ("0 epochs", "must be a whole number of steps, or like '50 steps' or '10 epochs'"),
        ("10 minutes", "must be a whole number of steps, or like '50 steps' or '10 epochs'"),
        ("[5]", "must be a whole number of steps, or like '50 steps' or '10 epochs'"),
    ],
)
def test_what_is_no_number_of_steps(bench, written, sentence):
    rewrite(bench, "decay_steps: 5", f"decay_steps: {written}")
    assert f"learning-rate schedule 'exponential_decay': decay_steps {sentence}" in refused(bench, "check", bench.base / "run.yaml")


def test_boundaries_are_a_list(bench):
    rewrite(bench, RATE, "{type: piecewise_decay, boundaries: 1 epoch, values: [0.1, 0.2]}")
    assert "boundaries must be a list of numbers of steps" in refused(bench, "check", bench.base / "run.yaml")


def test_asynchronous_training_refuses_epochs(tmp_path):
    (tmp_path / "model.yaml").write_text(ASYNC_MODEL)
    (tmp_path / "run.yaml").write_text(ASYNC_RUN)
    (tmp_path / "a.txt").write_text("1 0.5 1 1.0\n" * 8)
    with pytest.raises(PeError, match="asynchronous training has no steps in common") as caught:
        Job.open(tmp_path / "run.yaml").count_epochs()
    assert "decay_steps: 1 epoch" in caught.value.render()
    assert caught.value.hint == "write a number of steps, or executor.type: parallel"


# --- programs ---------------------------------------------------------------------------------------------------------


def test_schedules_of_python_take_epochs_too():
    main, startup = Program(), Program()
    PiecewiseDecay([Epochs(1), Epochs(3)], [0.3, 0.2, 0.1]).append(main, startup)
    assert epochs_of(main) == [Epochs(1), Epochs(3)]
    assert '"1 epoch", "3 epochs"' in print_program(main)
    count_epochs(main, 7)
    assert main.global_block().ops[-1].attrs["boundaries"] == [7, 21]


def test_every_schedule_with_steps_is_known():
    counting = {name for name, made in SCHEDULES.items() if "Steps" in str(made.__annotations__)}
    assert counting == set(SCHEDULES)
