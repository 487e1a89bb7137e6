"""Training a program for some steps under a strategy, for "pass on = pass off"."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.build.build import load_and_build
from pe_cli.core.strategy import BuildStrategy
from pe_cli.core.types import Place
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.execute.startup import run_startup
from pe_cli.program.backward import append_backward
from pe_cli.program.ir import Program, Role

MODELS = Path(__file__).resolve().parents[3] / "models"
Values = dict[str, np.ndarray[Any, Any]]


def built(model: Path, folder: Path) -> Any:
    """Return the programs of a model file, trained with momentum."""
    run = folder / "run.yaml"
    run.write_text(
        f"model: {model}\n"
        "feeds: {image: image, label: label}\n"
        "train: {loss: loss, epochs: 1, batch_size: 4, optimizer: {type: Momentum, momentum: 0.9, learning_rate: 0.05}}\n"
    )
    return load_and_build(run)[1]


def train(
    program: Program,
    fill: Callable[[Scope], None],
    feed: Callable[[np.random.Generator], Mapping[str, Any]],
    fetches: Sequence[str],
    devices: int = 1,
    steps: int = 3,
    **strategy: Any,
) -> tuple[list[Values], Values]:
    """Run some steps; return what was fetched in each, and every persistable variable at the end."""
    scope = Scope([Place("cpu", d) for d in range(devices)])
    executor = Executor(program, scope, build=BuildStrategy(**strategy), seed=3)
    fill(scope)
    rng = np.random.default_rng(2)
    seen = []
    for step in range(steps):
        values = executor.run(feed(rng), list(fetches), step).values
        seen.append({n: np.concatenate([np.atleast_1d(v[n]) for v in values]) for n in fetches})
    return seen, {name: scope.get(name) for name in scope}


def startup(program: Program) -> Callable[[Scope], None]:
    """Return a `fill` that runs a startup program."""
    return lambda scope: run_startup(program, scope, 3)


def minimise(program: Program, loss: str) -> None:
    """Append backward and plain gradient descent with a rate `lr`."""
    block = program.global_block()
    for parameter, gradient in append_backward(block.var(loss)):
        with program.role(Role.OPTIMIZE, [parameter.name, gradient.name]):
            ins = {"Param": parameter, "Grad": gradient, "LearningRate": "lr"}
            block.append_op("sgd", ins, {"ParamOut": parameter})


def same(a: tuple[list[Values], Values], b: tuple[list[Values], Values]) -> None:
    """Check that two trainings gave the same bits."""
    for before, after in [*zip(a[0], b[0], strict=True), (a[1], b[1])]:
        assert before.keys() == after.keys()
        for name in before:
            np.testing.assert_array_equal(after[name], before[name], err_msg=name)
