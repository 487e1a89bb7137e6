"""Schedules as programs: one counter per program, nested rates, and fluid's functions."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pe_cli.core.types import Place
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.execute.startup import run_startup
from pe_cli.optim import schedule
from pe_cli.optim.optimizers import SGD
from pe_cli.optim.schedule import COUNTER, SCHEDULES, CosineDecay, CosineRestarts, LinearLrWarmup, NoamDecay
from pe_cli.program.defaults import program_guard
from pe_cli.program.ir import Program, Role
from tests.needs import torch
from tests.optim.support import Training

ARGUMENTS = {
    "exponential_decay": ({"learning_rate": 1.0, "decay_steps": 1, "decay_rate": 0.5}, [1.0, 0.5, 0.25]),
    "natural_exp_decay": (
        {"learning_rate": 1.0, "decay_steps": 1, "decay_rate": 0.5},
        [1.0, np.exp(-0.5), np.exp(-1.0)],
    ),
    "inverse_time_decay": ({"learning_rate": 1.0, "decay_steps": 1, "decay_rate": 1.0}, [1.0, 0.5, 1 / 3]),
    "polynomial_decay": ({"learning_rate": 1.0, "decay_steps": 2, "end_learning_rate": 0.5}, [1.0, 0.75, 0.5]),
    "piecewise_decay": ({"boundaries": [1, 2], "values": [0.3, 0.2, 0.1]}, [0.3, 0.2, 0.1]),
    "cosine_decay": ({"learning_rate": 1.0, "step_each_epoch": 1, "epochs": 2}, [1.0, 0.5, 0.0]),
    "noam_decay": ({"d_model": 4, "warmup_steps": 1}, [0.5, 0.5 * 2**-0.5, 0.5 * 3**-0.5]),
    "one_cycle": (
        {"max_lr": 1.0, "total_steps": 3, "pct_start": 2 / 3, "div_factor": 4.0, "final_div_factor": 5.0},
        [0.25, 1.0, 0.05],
    ),
    "cosine_restarts": ({"learning_rate": 1.0, "T_0": 2, "eta_min": 0.5}, [1.0, 0.75, 1.0]),
    "linear_lr_warmup": ({"learning_rate": 0.7, "warmup_steps": 2, "start_lr": 0.0, "end_lr": 1.0}, [0.0, 0.5, 0.7]),
}


def run(main, startup, name, steps=3):
    scope = Scope([Place("cpu", 0)])
    executor = Executor(main, scope)
    run_startup(startup, scope, 1)
    return [float(executor.run({}, [name], s).values[0][name][0]) for s in range(steps)]


def test_every_schedule_is_tried_here():
    assert set(ARGUMENTS) == set(SCHEDULES)


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_first_steps_of(name):
    arguments, expected = ARGUMENTS[name]
    main, startup = Program(), Program()
    made = SCHEDULES[name](**arguments).append(main, startup, "float64")
    np.testing.assert_allclose(run(main, startup, made.name), expected, atol=1e-15)


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_function_of_that_name_appends_to_the_default_programs(name):
    arguments, expected = ARGUMENTS[name]
    main, startup = Program(), Program()
    with program_guard(main, startup):
        made = getattr(schedule, name)(**arguments)
    assert made.shape == (1,)
    assert made.dtype == "float32"
    np.testing.assert_allclose(run(main, startup, made.name), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", SCHEDULES)
def test_arguments_are_the_fields(name):
    made = SCHEDULES[name](**ARGUMENTS[name][0])
    assert dataclasses.replace(made) == made


def test_two_schedules_share_one_counter():
    main, startup = Program(), Program()
    first = CosineDecay(1.0, 1, 4).append(main, startup)
    second = NoamDecay(4, 10).append(main, startup)
    kinds = [op.type for op in main.global_block().ops]
    assert kinds == ["increment", "cosine_decay", "noam_decay"]
    assert {op.role for op in main.global_block().ops} == {Role.LR_SCHED}
    assert run(main, startup, first.name, 2)[1] == pytest.approx(0.5 * (1 + np.cos(np.pi / 4)))
    assert run(main, startup, second.name, 2)[1] == pytest.approx(0.5 * 2 * 10**-1.5)
    assert run(main, startup, COUNTER, 3) == [0, 1, 2]


def test_a_warmup_hands_over_to_a_schedule_that_counted_on():
    warm = LinearLrWarmup(CosineDecay(1.0, 1, 4), 2, 0.0, 0.5)
    training = Training(SGD(warm), w=np.zeros(1))
    seen = []
    for _ in range(4):
        before = training.value("w")[0]
        training.step(w=np.ones(1))
        seen.append(before - training.value("w")[0])
    np.testing.assert_allclose(seen, [0, 0.25, 0.5, 0.5 * (1 + np.cos(3 * np.pi / 4))], atol=1e-15)


def test_with_delay_a_schedule_begins_when_the_warmup_ends():
    main, startup = Program(), Program()
    inner = LinearLrWarmup(CosineRestarts(1.0, 2), 2, 0.5, 1.0, delay=True)  # counts from step 3 on, the cosine from step 5 on
    made = LinearLrWarmup(inner, 3, 0.0, 0.3, delay=True).append(main, startup, "float64")
    np.testing.assert_allclose(run(main, startup, made.name, 9), [0, 0.1, 0.2, 0.5, 0.75, 1.0, 0.5, 1.0, 0.5], atol=1e-15)


def test_torch_hands_over_alike():
    main, startup = Program(), Program()
    made = LinearLrWarmup(CosineRestarts(0.3, 4, 2, 0.01), 5, 0.06, 0.3, delay=True).append(main, startup, "float64")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.3)
    schedulers = torch.optim.lr_scheduler
    warm = schedulers.LinearLR(optimizer, 0.2, 1.0, total_iters=5)
    then = schedulers.CosineAnnealingWarmRestarts(optimizer, 4, 2, 0.01)
    both = schedulers.SequentialLR(optimizer, [warm, then], milestones=[5])
    wanted = []
    for _ in range(30):
        wanted.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        both.step()
    np.testing.assert_allclose(run(main, startup, made.name, 30), wanted, rtol=1e-12)


def test_a_schedule_of_the_optimizer_is_appended_after_the_forward_ops():
    training = Training(SGD(CosineDecay(1.0, 1, 4)), w=np.zeros(1))
    roles = [op.role for op in training.main.global_block().ops]
    assert roles.index(Role.LR_SCHED) > roles.index(Role.BACKWARD)
    assert roles[-1] is Role.OPTIMIZE
