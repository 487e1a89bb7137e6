"""Schedulers of 2.x: the rates that PaddlePaddle 3.3.1 gives (recorded there), and what a program trains with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pe_cli.paddle as paddle
import pe_cli.paddle.fluid as fluid
from pe_cli.paddle.errors import FluidTypeError, FluidValueError, NotThereYet
from pe_cli.paddle.optimizer import lr

#: Scheduler, arguments, and the rates of eleven steps.
TOLD: list[tuple[str, dict[str, Any], list[float]]] = [
    (
        "NoamDecay",
        {"d_model": 64, "warmup_steps": 4, "learning_rate": 0.5},
        [
            0.0,
            0.0078125,
            0.015625,
            0.0234375,
            0.03125,
            0.02795084972,
            0.02551551815,
            0.02362277956,
            0.02209708691,
            0.02083333333,
            0.01976423538,
        ],
    ),
    (
        "PiecewiseDecay",
        {"boundaries": [2, 5], "values": [0.5, 0.25, 0.125]},
        [0.5, 0.5, 0.25, 0.25, 0.25, 0.125, 0.125, 0.125, 0.125, 0.125, 0.125],
    ),
    (
        "NaturalExpDecay",
        {"learning_rate": 0.5, "gamma": 0.1},
        [
            0.5,
            0.452418709,
            0.4093653765,
            0.3704091103,
            0.335160023,
            0.3032653299,
            0.274405818,
            0.2482926519,
            0.2246644821,
            0.2032848299,
            0.1839397206,
        ],
    ),
    (
        "InverseTimeDecay",
        {"learning_rate": 0.5, "gamma": 0.1},
        [
            0.5,
            0.4545454545,
            0.4166666667,
            0.3846153846,
            0.3571428571,
            0.3333333333,
            0.3125,
            0.2941176471,
            0.2777777778,
            0.2631578947,
            0.25,
        ],
    ),
    (
        "ExponentialDecay",
        {"learning_rate": 0.5, "gamma": 0.9},
        [0.5, 0.45, 0.405, 0.3645, 0.32805, 0.295245, 0.2657205, 0.23914845, 0.215233605, 0.1937102445, 0.1743392201],
    ),
    (
        "PolynomialDecay",
        {"learning_rate": 0.5, "decay_steps": 4, "end_lr": 0.1, "power": 2.0},
        [0.5, 0.325, 0.2, 0.125, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1],
    ),
    (
        "PolynomialDecay",
        {"learning_rate": 0.5, "decay_steps": 4, "cycle": True},
        [0.5, 0.375025, 0.25005, 0.125075, 0.0001, 0.1875625, 0.125075, 0.0625875, 0.0001, 0.125075, 0.08341666667],
    ),
    (
        "LinearWarmup",
        {"learning_rate": 0.5, "warmup_steps": 3, "start_lr": 0.0, "end_lr": 0.4},
        [0.0, 0.1333333333, 0.2666666667, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5],
    ),
    (
        "MultiStepDecay",
        {"learning_rate": 0.5, "milestones": [2, 4, 5], "gamma": 0.5},
        [0.5, 0.5, 0.25, 0.25, 0.125, 0.0625, 0.0625, 0.0625, 0.0625, 0.0625, 0.0625],
    ),
    (
        "StepDecay",
        {"learning_rate": 0.5, "step_size": 3, "gamma": 0.3},
        [0.5, 0.5, 0.5, 0.15, 0.15, 0.15, 0.045, 0.045, 0.045, 0.0135, 0.0135],
    ),
    (
        "CosineAnnealingDecay",
        {"learning_rate": 0.5, "T_max": 4, "eta_min": 0.1},
        [0.5, 0.4414213562, 0.3, 0.1585786438, 0.1, 0.1585786438, 0.3, 0.4414213562, 0.5, 0.4414213562, 0.3],
    ),
    (
        "LinearLR",
        {"learning_rate": 0.5, "total_steps": 4, "start_factor": 0.25, "end_factor": 0.75},
        [0.125, 0.1875, 0.25, 0.3125, 0.375, 0.375, 0.375, 0.375, 0.375, 0.375, 0.375],
    ),
    (
        "OneCycleLR",
        {"max_learning_rate": 0.5, "total_steps": 11},
        [
            0.02,
            0.2111705569,
            0.4801307124,
            0.4898752688,
            0.4422491838,
            0.3630703682,
            0.2653373571,
            0.1650946691,
            0.07879882834,
            0.02061674952,
            0.0001,
        ],
    ),
    (
        "OneCycleLR",
        {
            "max_learning_rate": 0.5,
            "total_steps": 11,
            "anneal_strategy": "linear",
            "three_phase": True,
            "phase_pct": 0.4,
        },
        [
            0.02,
            0.1611764706,
            0.3023529412,
            0.4435294118,
            0.4152941176,
            0.2741176471,
            0.1329411765,
            0.01875625,
            0.0125375,
            0.00631875,
            0.0001,
        ],
    ),
    (
        "CyclicLR",
        {"base_learning_rate": 0.1, "max_learning_rate": 0.5, "step_size_up": 3, "step_size_down": 2},
        [0.1, 0.2333333333, 0.3666666667, 0.5, 0.3, 0.1, 0.2333333333, 0.3666666667, 0.5, 0.3, 0.1],
    ),
    (
        "CyclicLR",
        {"base_learning_rate": 0.1, "max_learning_rate": 0.5, "step_size_up": 2, "mode": "triangular2"},
        [0.1, 0.3, 0.5, 0.3, 0.1, 0.2, 0.3, 0.2, 0.1, 0.15, 0.2],
    ),
    (
        "CyclicLR",
        {"base_learning_rate": 0.1, "max_learning_rate": 0.5, "step_size_up": 2, "mode": "exp_range", "exp_gamma": 0.9},
        [0.1, 0.28, 0.424, 0.2458, 0.1, 0.218098, 0.3125764, 0.19565938, 0.1, 0.1774840978, 0.239471376],
    ),
    (
        "CosineAnnealingWarmRestarts",
        {"learning_rate": 0.5, "T_0": 2, "T_mult": 2},
        [0.5, 0.25, 0.5, 0.4267766953, 0.25, 0.0732233047, 0.5, 0.4809698831, 0.4267766953, 0.3456708581, 0.25],
    ),
    (
        "CosineAnnealingWarmRestarts",
        {"learning_rate": 0.5, "T_0": 3, "eta_min": 0.1},
        [0.5, 0.4, 0.2, 0.5, 0.4, 0.2, 0.5, 0.4, 0.2, 0.5, 0.4],
    ),
]
#: Arguments of ReduceOnPlateau, and the rates before each of `MEASURED` and behind it.
MEASURED = [1.0, 0.9, 0.95, 0.9, 0.9, 0.89999, 0.5, 0.6, 0.6, 0.6, 0.6, 0.6]
PLATEAUS: list[tuple[dict[str, Any], list[float]]] = [
    ({"patience": 1}, [0.5, 0.5, 0.5, 0.5, 0.05, 0.05, 0.005, 0.005, 0.005, 0.0005, 0.0005, 5e-05]),
    (
        {"patience": 1, "mode": "max", "threshold_mode": "abs", "threshold": 0.05},
        [0.5, 0.5, 0.5, 0.05, 0.05, 0.005, 0.005, 0.0005, 0.0005, 5e-05, 5e-05, 5e-06],
    ),
    (
        {"patience": 0, "cooldown": 2, "factor": 0.5, "min_lr": 0.2},
        [0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2],
    ),
    ({"patience": 2, "threshold": 0.5}, [0.5, 0.5, 0.5, 0.5, 0.05, 0.05, 0.05, 0.005, 0.005, 0.005, 0.0005, 0.0005]),
]


def rates(scheduler: Any, count: int) -> list[float]:
    found = []
    for _ in range(count):
        found.append(scheduler())
        scheduler.step()
    return found


@pytest.mark.parametrize(("name", "given", "told"), TOLD, ids=[f"{name} {i}" for i, (name, _, _) in enumerate(TOLD)])
def test_rates_are_those_of_the_original(name: str, given: dict[str, Any], told: list[float]) -> None:
    made = getattr(lr, name)(**given)
    np.testing.assert_allclose(rates(made, len(told)), told, rtol=1e-9)
    again = getattr(lr, name)(**given)
    again.set_state_dict(made.state_dict())
    assert (again(), again.last_epoch) == (made(), made.last_epoch)
    made.step(3)
    assert made() == pytest.approx(told[3], rel=1e-9)


@pytest.mark.parametrize(("given", "told"), PLATEAUS, ids=[str(given) for given, _ in PLATEAUS])
def test_a_measure_that_gets_no_better_lowers_the_rate(given: dict[str, Any], told: list[float]) -> None:
    made, found = lr.ReduceOnPlateau(0.5, **given), []
    for measure in MEASURED:
        found.append(made())
        made.step(np.array([measure]))
    np.testing.assert_allclose(found, told, rtol=1e-9)


def test_functions_and_schedulers_inside_others() -> None:
    assert rates(lr.LambdaDecay(0.5, lambda step: 0.5**step), 4) == [0.5, 0.25, 0.125, 0.0625]
    assert rates(lr.MultiplicativeDecay(0.5, lambda step: 1 / (1 + step)), 4) == pytest.approx(
        [0.5, 0.25, 0.25 / 3, 0.25 / 12]
    )
    warm = lr.LinearWarmup(lr.StepDecay(0.5, 2, 0.5), 2, 0.0, 0.5)
    assert rates(warm, 8) == [0.0, 0.25, 0.5, 0.5, 0.25, 0.25, 0.125, 0.125]
    again = lr.LinearWarmup(lr.StepDecay(0.5, 2, 0.5), 2, 0.0, 0.5)
    again.set_state_dict(warm.state_dict())
    assert rates(again, 3) == rates(warm, 3)


@pytest.mark.parametrize("devices", [1, 2])
def test_a_program_trains_with_the_newest_rate(devices: int, capsys: pytest.CaptureFixture[str]) -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        x = fluid.data("x", [None, 1])
        out = fluid.layers.fc(x, 1, bias_attr=False, param_attr=fluid.ParamAttr("w", fluid.initializer.Constant(1.0)))
        loss = fluid.layers.mean(out)
        scheduler = lr.StepDecay(0.5, step_size=1, gamma=0.5, verbose=True)
        paddle.optimizer.SGD(learning_rate=scheduler).minimize(loss)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        program = (
            main
            if devices == 1
            else fluid.CompiledProgram(main).with_data_parallel(loss.name, places=fluid.cpu_places(2))
        )
        expected = 1.0
        for step in range(4):
            exe.run(program, feed={"x": np.ones((2, 1), "float32")}, fetch_list=[loss])
            expected -= 0.5 * 0.5**step
            assert np.array(fluid.global_scope().find_var("w").get_tensor()).item() == expected
            scheduler.step()
    assert capsys.readouterr().out.splitlines()[-1] == "Epoch 4: StepDecay set learning rate to 0.03125."


class Halved(lr.LRScheduler):
    """A user's own scheduler."""

    def get_lr(self) -> float:
        return self.base_lr / 2**self.last_epoch


def test_a_scheduler_of_ones_own() -> None:
    assert rates(Halved(0.5), 3) == [0.5, 0.25, 0.125]
    with pytest.raises(NotThereYet, match="LRScheduler does not define get_lr"):
        lr.LRScheduler(0.1)


@pytest.mark.parametrize(
    ("wrong", "kind", "said"),
    [
        pytest.param(lambda: Halved("fast"), FluidTypeError, "learning_rate is 'fast'", id="a rate that is no number"),
        pytest.param(lambda: Halved(-1), FluidValueError, "learning_rate is -1", id="a rate below 0"),
        pytest.param(lambda: lr.StepDecay(0.5, 2.5), FluidTypeError, "step_size is 2.5", id="half a step"),
        pytest.param(lambda: lr.StepDecay(0.5, 0), FluidValueError, "step_size is 0, not above 0", id="no steps"),
        pytest.param(
            lambda: lr.StepDecay(0.5, 2, 1.0), FluidValueError, "gamma is 1.0, not below 1", id="a factor of one"
        ),
        pytest.param(lambda: lr.ExponentialDecay(0.5, 1.5), FluidValueError, "gamma is 1.5", id="a factor above one"),
        pytest.param(lambda: lr.NaturalExpDecay(0.5, 0), FluidValueError, "gamma is 0", id="no decay"),
        pytest.param(lambda: lr.NoamDecay(0, 4), FluidValueError, "d_model is 0", id="no width"),
        pytest.param(lambda: lr.PiecewiseDecay([], [1.0]), FluidValueError, "boundaries are empty", id="no boundaries"),
        pytest.param(
            lambda: lr.PiecewiseDecay([1], [1.0]),
            FluidValueError,
            "1 boundaries need a value more",
            id="too few values",
        ),
        pytest.param(
            lambda: lr.MultiStepDecay(0.5, 3), FluidTypeError, "milestones are 3", id="milestones that are no list"
        ),
        pytest.param(
            lambda: lr.MultiStepDecay(0.5, [3, 2]),
            FluidValueError,
            "milestones do not rise",
            id="milestones out of order",
        ),
        pytest.param(
            lambda: lr.LinearWarmup("a", 2, 0, 1), FluidTypeError, "learning_rate is 'a'", id="no rate behind"
        ),
        pytest.param(
            lambda: lr.LinearWarmup(0.5, 2, 1, 1), FluidValueError, "not above start_lr", id="a start that is no lower"
        ),
        pytest.param(lambda: lr.PolynomialDecay(0.5, 2, power=0), FluidValueError, "power is 0", id="no power"),
        pytest.param(lambda: lr.LambdaDecay(0.5, 2), FluidTypeError, "lr_lambda is 2", id="no function"),
        pytest.param(
            lambda: lr.CosineAnnealingDecay(0.5, 2, "a"),
            FluidTypeError,
            "eta_min is 'a'",
            id="an end that is no number",
        ),
        pytest.param(lambda: lr.LinearLR(0.5, 2, 0), FluidValueError, "start_factor is 0", id="a start at zero"),
        pytest.param(lambda: lr.LinearLR(0.5, 2, 1, 2), FluidValueError, "end_factor is 2", id="an end above one"),
        pytest.param(lambda: lr.LinearLR(0.5, 0), FluidValueError, "total_steps is 0", id="no time"),
        pytest.param(
            lambda: lr.OneCycleLR(0.5, 9, phase_pct=2), FluidValueError, "phase_pct is 2", id="a phase longer than all"
        ),
        pytest.param(
            lambda: lr.OneCycleLR(0.5, 9, anneal_strategy="x"),
            FluidValueError,
            "neither cos nor linear",
            id="another curve",
        ),
        pytest.param(
            lambda: lr.OneCycleLR(0.5, 9, phase_pct=0.5, three_phase=True),
            FluidValueError,
            "below 0.5",
            id="no third phase",
        ),
        pytest.param(lambda: lr.OneCycleLR(0.5, 3).step(4), FluidValueError, "step 4 of 3", id="behind the end"),
        pytest.param(
            lambda: lr.CyclicLR(0.1, 0.5, 2, mode="x"), FluidValueError, "mode is 'x'", id="another way of cycles"
        ),
        pytest.param(
            lambda: lr.CyclicLR(0.1, 0.5, 2, scale_mode="x"), FluidValueError, "scale_mode is 'x'", id="another scale"
        ),
        pytest.param(lambda: lr.ReduceOnPlateau(0.5, "x"), FluidValueError, "mode is 'x'", id="neither least nor most"),
        pytest.param(lambda: lr.ReduceOnPlateau(0.5, factor=1), FluidValueError, "factor is 1", id="no lower rate"),
        pytest.param(
            lambda: lr.ReduceOnPlateau(0.5, threshold_mode="x"),
            FluidValueError,
            "threshold_mode is 'x'",
            id="another threshold",
        ),
        pytest.param(
            lambda: lr.ReduceOnPlateau(0.5).step("a"),
            FluidTypeError,
            "metrics is 'a'",
            id="a measure that is no number",
        ),
        pytest.param(
            lambda: lr.ReduceOnPlateau(0.5).step(np.ones(2)), FluidValueError, "has 2 numbers", id="two measures"
        ),
    ],
)
def test_what_does_not_fit_is_told(wrong: Any, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        wrong()
