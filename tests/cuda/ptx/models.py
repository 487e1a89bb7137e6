"""Trains shipped configs for five steps on the test device and on the CPU, and tells how far apart they end.

Usage: python -m tests.cuda.ptx.models [CONFIG ...], all of `configs/` and `configs/bench/` where none is named. The exit code is 1 where
one differs by more than `TOLERANCE`, or a kernel has what `kernels.tsv` does not allow. What takes long on a processor is made smaller by
`SMALLER`: the ops and their order stay.
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

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS
from pe_cli.devices import cuda_driver
from pe_cli.session.job import Job
from pe_cli.session.step import Stepper
from tests.cuda.ptx.device import PtxDriver

Array = np.ndarray[Any, Any]
ROOT = Path(__file__).parents[3]
STEPS = 5
#: Largest difference of a loss, and of a parameter, relative to it.
TOLERANCE = 2e-4
#: Overrides of all configs.
ALWAYS = ("executor.devices=1", "train.batch_size=3", "output.checkpoint=null")
#: Config -> what makes it smaller.
SMALLER: dict[str, tuple[str, ...]] = {}


@dataclass(frozen=True)
class Trained:
    """What a training of five steps leaves.

    Args:
        losses: [steps, losses] of every step.
        weights: name -> parameters and state after the last step.
    """

    losses: Array
    weights: dict[str, Array]


def train(config: Path, place: str) -> Trained:
    """Train a config for five steps.

    Args:
        config: below `ROOT`.
        place: cpu or cuda.
    """
    name = str(config.resolve().relative_to(ROOT))
    job = Job.open(config, [*ALWAYS, *SMALLER.get(name, ()), f"executor.place={place}"], smoke=True)
    job.initialise()
    stepper = Stepper(job)
    assert job.run.train
    loader = job.data.loader("train", job.programs, job.run.train.batch_size)
    feeds = (feed for epoch in itertools.count() for feed in loader.epoch(epoch))
    names = list(job.built.losses.values())
    losses = []
    for step, feed in enumerate(itertools.islice(feeds, STEPS)):
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
    """Return all configs that ship and train."""
    found = [*sorted((ROOT / "configs").glob("*.yaml")), *sorted((ROOT / "configs/bench").glob("*.yaml"))]
    return [path for path in found if path.name != "chain.yaml"]


def compare(config: Path) -> tuple[float, float, str]:
    """Return the differences between a training on the test device, which must be in place, and one on the CPU."""
    return difference(train(config, "cuda"), train(config, "cpu"))


def main(arguments: Sequence[str]) -> int:
    """Print a table; return the exit code."""
    driver = PtxDriver()
    patch = pytest.MonkeyPatch()
    patch.setattr(cuda_driver, "only_driver", lambda: driver)
    patch.setattr(cuda_driver, "device_count", lambda: 1)
    wrong = 0
    sys.stdout.write(f"{'config':<36}{'launches':>9}{'losses':>10}{'weights':>10}{'CPU s':>8}  where the weights differ most\n")
    for path in [Path(a).resolve() for a in arguments] or shipped():
        begin, driver.launches = time.process_time(), 0
        try:
            losses, weights, where = compare(path)
            fine = losses <= TOLERANCE and weights <= TOLERANCE
            said = f"{driver.launches:>9}{losses:>10.1e}{weights:>10.1e}{time.process_time() - begin:>8.0f}  {where}"
        except (PeError, AssertionError) as error:
            fine, said = False, f"  {str(error).splitlines()[0]}"
        wrong += not fine
        sys.stdout.write(f"{path.relative_to(ROOT)!s:<36}{said}{'' if fine else '   <--'}\n")
        sys.stdout.flush()
    said = driver.complaints()
    sys.stdout.writelines(f"{line}\n" for line in said)
    return int(wrong > 0 or bool(said))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
