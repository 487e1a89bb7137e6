"""Trains shipped configs for five steps on the test device and on the CPU, and tells how far apart each step's values are.

Usage: python -m tests.cuda.ptx.models [--bf16|--tf32] [CONFIG ...], in float32, with precision bf16 in both places, or with tf32 on the
device; those of `configs/` and `configs/bench/` where none is named. The exit code is 1 where one differs by more than rounding
explains, or a kernel has what `kernels.tsv` does not allow. What takes long on a processor is made smaller by `SMALLER`: the ops and their
order stay.

Both places begin every step with the CPU's parameters and state, so that no step makes more of the differences of those before.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import FLOATS
from pe_cli.devices import cuda_driver
from pe_cli.session.job import Job
from pe_cli.session.training.step import Stepper
from tests.cuda.ptx.device import PtxDriver

Array = np.ndarray[Any, Any]
ROOT = Path(__file__).parents[3]
STEPS = 5
#: What is always allowed: a part of a loss and of the change that a step makes of a variable, and of the variable itself, whose last bit
#: is rounded in both places.
TOLERANCE, ROUNDING = 1e-5, 2.0**-23
#: Precision -> by what part of itself a number is moved on the CPU; `TIMES` the difference that this makes is allowed, too.
#: In float32 all numbers are moved, by 16 last bits: a step rounds many sums. In the others matrices are, as far as they are rounded.
MOVED, TIMES = {"float32": 2.0**-19, "tf32": 2.0**-9, "bf16": 2.0**-9}, 4.0
#: Times that numbers are moved: where one of a few numbers decides, such as the sign of one before relu, some draws do not meet it.
DRAWS = 3
#: Overrides of all configs.
ALWAYS = ("executor.devices=1", "train.batch_size=3", "output.checkpoint=null")
#: Config -> what makes it smaller.
SMALLER: dict[str, tuple[str, ...]] = {
    "configs/bench/mobilenet_v1.yaml": (
        "model={file: ../../models/mobilenet_v1.yaml, args: {side: 64, classes: 10}}", "data.train.fields.x.shape=[3, 64, 64]",
        "data.train.fields.y.classes=10", "train.batch_size=6",
    ),
    "configs/bench/resnet50.yaml": (
        "model={file: ../../models/resnet50.yaml, args: {side: 32, classes: 10}}", "data.train.fields.x.shape=[3, 32, 32]",
        "data.train.fields.y.classes=10", "train.batch_size=4",
    ),
}  # fmt: skip
#: Config -> variables, by what their names end with, that begin with a hundredth of their values. With a batch_norm over three or four
#: numbers at the end of each of 16 residual branches, float32 keeps no digit of the gradients of the first step, on no device (PyTorch
#: neither), which would hide any mistake.
CALMER = {"configs/bench/resnet50.yaml": "/c/bn.w_0"}
#: Take many minutes even so: they are trained where they are named.
LONG = ("mobilenet_v1.yaml", "resnet50.yaml")


@dataclass(frozen=True)
class After:
    """What a step leaves.

    Args:
        losses: [losses] of the step.
        state: name -> parameters and state.
    """

    losses: Array
    state: Mapping[str, Array]


class Training:
    """A training whose steps may begin with any parameters and state.

    Args:
        config: below `ROOT`.
        place: cpu or cuda.
        more: overrides.
    """

    def __init__(self, config: Path, place: str, more: Sequence[str] = ()) -> None:
        name = str(config.resolve().relative_to(ROOT))
        self._job = Job.open(config, [*ALWAYS, *SMALLER.get(name, ()), f"executor.place={place}", *more], smoke=True)
        self._job.initialise()
        for variable in self._job.scope if name in CALMER else ():
            if variable.endswith(CALMER[name]):
                self._job.scope.set(variable, np.array(self._job.scope.get(variable)) * np.float32(0.01))
        self._stepper = Stepper(self._job)
        assert self._job.run.train
        loader = self._job.data.loader("train", self._job.programs, self._job.run.train.batch_size)
        feeds = (feed for epoch in itertools.count() for feed in loader.epoch(epoch))
        self._feeds = list(itertools.islice(feeds, STEPS))
        self._losses = list(self._job.built.losses.values())

    @property
    def state(self) -> dict[str, Array]:
        """Parameters and state as they are now, by name."""
        return {name: np.array(self._job.scope.get(name)) for name in self._job.scope}

    def step(self, number: int, begin: Mapping[str, Array]) -> After:
        """Do the step with this number, from 0, on parameters and state `begin`."""
        for name, value in begin.items():
            self._job.scope.set(name, value)
        found = self._stepper.run(self._feeds[number], self._losses, number)
        losses = [float(next(v[n] for v in found.values if n in v).item()) for n in self._losses]
        return After(np.array(losses), self.state)


def train(config: Path, place: str, more: Sequence[str] = (), steps: int = STEPS) -> Array:
    """Train a config for so many steps, five at most, and return its losses [steps, losses]; see `Training`."""
    training = Training(config, place, more)
    return np.array([training.step(number, {}).losses for number in range(steps)])


def moved(state: Mapping[str, Array], precision: str, draw: int) -> dict[str, Array]:
    """Return parameters and state of which numbers are a little larger or smaller, as `MOVED` says."""
    rng, part = np.random.default_rng(draw), MOVED[precision]
    which = {n for n, v in state.items() if v.dtype.name in FLOATS and (precision == "float32" or v.ndim > 1)}
    return {n: (v * (1 + part * rng.choice([-1.0, 1.0], v.shape))).astype(v.dtype) if n in which else v for n, v in state.items()}


@dataclass(frozen=True)
class Difference:
    """How far a loss or a variable of a step is from that of the CPU.

    Args:
        name: of the variable; empty for a loss.
        relative: to the loss, or to the change that the step makes of the variable, beyond what rounding makes of the variable itself.
        share: of what is allowed; 1 at most is fine.
    """

    name: str
    relative: float
    share: float


def differences(
    begin: Mapping[str, Array], found: After, expected: After, others: Sequence[tuple[Mapping[str, Array], After]]
) -> Iterator[Difference]:
    """Return how far what a step leaves is from what it leaves on the CPU.

    Differences are norms, and those of variables are differences of what the step changes of them.

    Args:
        begin: with which both begin.
        found, expected: what it leaves on the device and on the CPU.
        others: with what else it began on the CPU, and what that left.
    """
    for i, loss in enumerate(expected.losses):
        usual = max((abs(other.losses[i] - loss) for _, other in others), default=0.0)
        yield _difference("", abs(found.losses[i] - loss), abs(loss), 0.0, TIMES * usual)
    assert set(found.state) == set(expected.state)
    for name, value in expected.state.items():
        change, same = _change(begin[name], value), _settled(name, found, expected)
        usual = max((_norm((_change(first[name], other.state[name]) - change)[same]) for first, other in others), default=0.0)
        apart = _norm((_change(begin[name], found.state[name]) - change)[same])
        rounding = ROUNDING * _norm(value) if value.dtype.name in FLOATS else 0.0
        yield _difference(name, apart, _norm(change) if value.dtype.name in FLOATS else 0.0, rounding, TIMES * usual)


def _settled(name: str, found: After, expected: After) -> Any:
    """Return which elements of a variable are compared.

    Adam divides by the size of a gradient, and makes a whole step of one that is nothing but rounding: a parameter is compared where its
    first moment is about the same. The moments themselves are compared everywhere.
    """
    moment = f"{name}_moment1_0"
    if moment not in expected.state:
        return ...
    return np.abs(found.state[moment] - expected.state[moment]) <= 0.1 * np.abs(expected.state[moment])


def _difference(name: str, apart: float, size: float, rounding: float, usual: float) -> Difference:
    if apart == 0:
        return Difference(name, 0.0, 0.0)
    share = apart / max(TOLERANCE * size + rounding + usual, 1e-30)
    return Difference(name, max(apart - rounding, 0.0) / max(size, 1e-30), float(np.nan_to_num(share, nan=np.inf)))


def _change(before: Array, after: Array) -> Array:
    return after.astype(np.float64) - before.astype(np.float64)


def _norm(value: Array) -> float:
    return float(np.linalg.norm(np.ravel(value).astype(np.float64)))


def shipped() -> list[Path]:
    """Return the configs that ship and train, but for `LONG` ones."""
    found = [*sorted((ROOT / "configs").glob("*.yaml")), *sorted((ROOT / "configs/bench").glob("*.yaml"))]
    return [path for path in found if path.name not in ("chain.yaml", *LONG)]


@dataclass(frozen=True)
class Compared:
    """How far the steps of a training on the device are from the CPU's.

    Args:
        losses: largest difference of a loss, relative to it.
        worst: the loss or variable that has most of what is allowed.
    """

    losses: float
    worst: Difference

    @property
    def fine(self) -> bool:
        """Whether no difference is more than rounding explains."""
        return self.worst.share <= 1


def compare(config: Path, precision: str = "float32") -> Compared:
    """Train on the test device, which must be in place, and on the CPU.

    In bf16 a sum whose last bits differ may be rounded to the other neighbour, and on CUDA tensor cores round factors of products within
    loops and recurrent layers, which CPUs take as they are. So how far float32 is from bf16 counts, too, beside steps with matrices that
    are moved as far as bf16 rounds them. In tf32 the CPU computes in float32, and the latter alone count: only factors of products are
    rounded so, and less.

    Args:
        config: below `ROOT`.
        precision: of both, but for tf32, which CPUs have not.
    """
    more = () if precision == "tf32" else (f"executor.precision={precision}",)
    device, cpu = Training(config, "cuda", (f"executor.precision={precision}",)), Training(config, "cpu", more)
    exact = Training(config, "cpu") if precision == "bf16" else None
    state, all_found = cpu.state, []
    for number in range(STEPS):
        expected, found = cpu.step(number, state), device.step(number, state)
        apart = list(differences(state, found, expected, ()))
        if any(each.share > 1 for each in apart):
            begins = [moved(state, precision, draw) for draw in range(DRAWS)]
            others = [(begin, cpu.step(number, begin)) for begin in begins]
            if exact is not None:
                others.append((state, exact.step(number, state)))
            apart = list(differences(state, found, expected, others))
        all_found += apart
        state = dict(expected.state)
    return Compared(max(each.relative for each in all_found if not each.name), max(all_found, key=lambda each: each.share))


def main(arguments: Sequence[str]) -> int:
    """Print a table; return the exit code."""
    precision = next((p for p in MOVED if f"--{p}" in arguments), "float32")
    configs = [Path(a).resolve() for a in arguments if not a.startswith("--")] or shipped()
    driver = PtxDriver()
    patch = pytest.MonkeyPatch()
    patch.setattr(cuda_driver, "only_driver", lambda: driver)
    patch.setattr(cuda_driver, "device_count", lambda: 1)
    wrong = 0
    sys.stdout.write(f"{'config':<36}{'launches':>9}{'losses':>10}{'worst':>10}{'allowed':>9}{'CPU s':>8}  what is worst\n")
    for path in configs:
        begin, driver.launches = time.process_time(), 0
        try:
            found = compare(path, precision)
            fine, seconds, worst = found.fine, time.process_time() - begin, found.worst
            far = f"{found.losses:>10.1e}{worst.relative:>10.1e}{worst.share:>9.0%}"
            said = f"{driver.launches:>9}{far}{seconds:>8.0f}  {worst.name or 'a loss'}"
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
