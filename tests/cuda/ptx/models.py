"""Trains shipped configs for five steps on the test device and on the CPU, and tells how far apart they end.

Usage: python -m tests.cuda.ptx.models [--bf16|--tf32] [CONFIG ...], in float32, with precision bf16 in both places, or with tf32 on the
device; those of `configs/` and `configs/bench/` where none is named. The exit code is 1 where one differs by more than rounding
explains, or a kernel has what `kernels.tsv` does not allow. What takes long on a processor is made smaller by `SMALLER`: the ops and their
order stay.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import FLOATS, narrowed, widened
from pe_cli.devices import cuda_driver
from pe_cli.session.job import Job
from pe_cli.session.step import Stepper
from tests.cuda.ptx.device import PtxDriver

Array = np.ndarray[Any, Any]
ROOT = Path(__file__).parents[3]
STEPS = 5
#: Difference of a loss and of a parameter, relative to it, that is always allowed, and how many times the difference that other last
#: bits of the first parameters make on the CPU: five steps of a deep model with momentum make much of little.
TOLERANCE, TIMES = 2e-5, {"float32": 20.0, "tf32": 2.0, "bf16": 2.0}
#: Overrides of all configs.
ALWAYS = ("executor.devices=1", "train.batch_size=3", "output.checkpoint=null")
#: Config -> what makes it smaller.
SMALLER: dict[str, tuple[str, ...]] = {
    "configs/bench/mobilenet_v1.yaml": (
        "model={file: ../../models/mobilenet_v1.yaml, args: {side: 64, classes: 10}}", "data.train.fields.x.shape=[3, 64, 64]",
        "data.train.fields.y.classes=10", "train.batch_size=6", "train.optimizer.learning_rate=0.000001",
    ),
    "configs/bench/resnet50.yaml": (
        "model={file: ../../models/resnet50.yaml, args: {side: 32, classes: 10}}", "data.train.fields.x.shape=[3, 32, 32]",
        "data.train.fields.y.classes=10", "train.batch_size=4",
    ),
    "configs/resnet20_synthetic.yaml": ("train.optimizer.learning_rate=0.001",),  # at 0.1 three samples make much of the last bits
}  # fmt: skip
#: Config -> variables, by what their names end with, that begin with a hundredth of their values. With a batch_norm over three or four
#: numbers at the end of each of 16 residual branches, other last bits of the first parameters make 74% of the loss in five steps, and so
#: would hide any mistake; where branches begin small, it is 6e-7.
CALMER = {"configs/bench/resnet50.yaml": "/c/bn.w_0"}
#: Take many minutes even so: they are trained where they are named.
LONG = ("mobilenet_v1.yaml", "resnet50.yaml")


@dataclass(frozen=True)
class Trained:
    """What a training of five steps leaves.

    Args:
        losses: [steps, losses] of every step.
        weights: name -> parameters and state after the last step.
    """

    losses: Array
    weights: dict[str, Array]


def train(config: Path, place: str, *, moved: str = "", more: Sequence[str] = (), steps: int = STEPS) -> Trained:
    """Train a config for some steps.

    Args:
        config: below `ROOT`.
        place: cpu or cuda.
        moved: bf16: the first matrices are rounded to it; float32: all first parameters have other last bits. Empty: neither.
        more: overrides.
        steps: how many.
    """
    name = str(config.resolve().relative_to(ROOT))
    job = Job.open(config, [*ALWAYS, *SMALLER.get(name, ()), f"executor.place={place}", *more], smoke=True)
    job.initialise()
    for variable in job.scope if name in CALMER else ():
        if variable.endswith(CALMER[name]):
            job.scope.set(variable, np.array(job.scope.get(variable)) * np.float32(0.01))
    rng = np.random.default_rng(0)
    for name in job.scope if moved else ():
        value = np.array(job.scope.get(name))
        if value.dtype == np.float32 and moved == "bf16":
            job.scope.set(name, widened(narrowed(value)) if value.ndim > 1 else value)
        elif value.dtype == np.float32:
            job.scope.set(name, np.nextafter(value, rng.choice([-np.inf, np.inf], value.shape).astype("float32")) * (value != 0))
    stepper = Stepper(job)
    assert job.run.train
    loader = job.data.loader("train", job.programs, job.run.train.batch_size)
    feeds = (feed for epoch in itertools.count() for feed in loader.epoch(epoch))
    names = list(job.built.losses.values())
    losses = []
    for step, feed in enumerate(itertools.islice(feeds, steps)):
        found = stepper.run(feed, names, step)
        losses.append([float(next(v[n] for v in found.values if n in v).item()) for n in names])
    return Trained(np.array(losses), {n: np.array(job.scope.get(n)) for n in job.scope})


def difference(one: Trained, two: Trained) -> tuple[float, float, str]:
    """Return the largest difference of losses, that of parameters and state, both relative, and which of these has it.

    That of a parameter is the norm of its difference: an optimizer that divides by the size of a gradient makes a whole step of a single
    gradient that is nothing but rounding.
    """
    losses = float(np.max(np.abs(one.losses - two.losses) / np.maximum(np.abs(two.losses), 1e-6)))
    assert set(one.weights) == set(two.weights)
    apart = {name: _apart(one.weights[name], value) for name, value in two.weights.items()}
    where = max(apart, key=lambda name: np.nan_to_num(apart[name], nan=np.inf))
    return losses, apart[where], where


def _apart(a: Array, b: Array) -> float:
    if b.dtype.name not in FLOATS:
        return float(not np.array_equal(a, b))
    return float(np.linalg.norm(np.ravel(a - b).astype(np.float64)) / max(np.linalg.norm(np.ravel(b).astype(np.float64)), 1e-6))


def shipped() -> list[Path]:
    """Return the configs that ship and train, but for `LONG` ones."""
    found = [*sorted((ROOT / "configs").glob("*.yaml")), *sorted((ROOT / "configs/bench").glob("*.yaml"))]
    return [path for path in found if path.name not in ("chain.yaml", *LONG)]


@dataclass(frozen=True)
class Compared:
    """How far a training on the test device is from one on the CPU.

    Args:
        losses, weights: differences, as of `difference`.
        where: what differs most.
        fine: whether that is no more than rounding explains.
    """

    losses: float
    weights: float
    where: str
    fine: bool


def compare(config: Path, precision: str = "float32") -> Compared:
    """Train on the test device, which must be in place, and on the CPU.

    In bf16 a sum whose last bits differ may be rounded to the other neighbour, and on CUDA tensor cores round factors of products within
    loops and recurrent layers, which CPUs take as they are. So both places may be twice as far from each other as float32 is from bf16, or
    as training from matrices that are rounded first. In tf32 the CPU computes in float32, and the latter bound
    holds, of matrices that are rounded to bfloat16: only one factor of a product is rounded so, and neither gradients nor what layers give.

    Args:
        config: below `ROOT`.
        precision: of both, but for tf32, which CPUs have not.
    """
    more = () if precision == "tf32" else (f"executor.precision={precision}",)
    found, expected = train(config, "cuda", more=(f"executor.precision={precision}",)), train(config, "cpu", more=more)
    losses, weights, where = difference(found, expected)
    if losses <= TOLERANCE and weights <= TOLERANCE:
        return Compared(losses, weights, where, True)
    moved = "bf16" if precision == "tf32" else precision
    others = [train(config, "cpu", moved=moved, more=more), *([train(config, "cpu")] if precision == "bf16" else [])]
    usual, times = [difference(other, expected) for other in others], TIMES[precision]
    fine = losses <= TOLERANCE + times * max(each[0] for each in usual) and weights <= TOLERANCE + times * max(each[1] for each in usual)
    return Compared(losses, weights, where, fine)


def main(arguments: Sequence[str]) -> int:
    """Print a table; return the exit code."""
    precision = next((p for p in TIMES if f"--{p}" in arguments), "float32")
    configs = [Path(a).resolve() for a in arguments if not a.startswith("--")] or shipped()
    driver = PtxDriver()
    patch = pytest.MonkeyPatch()
    patch.setattr(cuda_driver, "only_driver", lambda: driver)
    patch.setattr(cuda_driver, "device_count", lambda: 1)
    wrong = 0
    sys.stdout.write(f"{'config':<36}{'launches':>9}{'losses':>10}{'weights':>10}{'CPU s':>8}  where the weights differ most\n")
    for path in configs:
        begin, driver.launches = time.process_time(), 0
        try:
            found = compare(path, precision)
            fine, seconds = found.fine, time.process_time() - begin
            said = f"{driver.launches:>9}{found.losses:>10.1e}{found.weights:>10.1e}{seconds:>8.0f}  {found.where}"
        except (PeError, AssertionError) as error:
            fine = isinstance(error, PeError) and error.code in (ExitCode.DEVICE, ExitCode.USAGE)  # refused
            said = f"  {str(error).splitlines()[0]}"
        wrong += not fine
        sys.stdout.write(f"{path.relative_to(ROOT)!s:<36}{said}{'' if fine else '   <--'}\n")
        sys.stdout.flush()
    complaints = driver.complaints()
    sys.stdout.writelines(f"{line}\n" for line in complaints)
    return int(wrong > 0 or bool(complaints))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
