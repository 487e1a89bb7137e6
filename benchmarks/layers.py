"""Measure layers that are made of several ops: convolutions of volumes, transposed ones, and norms, forward and with their gradients.

Run `python benchmarks/layers.py [name ...]`. One thread, float32, the passes of a training. A convolution is measured by its operations,
2 per multiplication of a pixel and a weight, of which the backward pass has twice as many, against the peak; a norm by the bytes that it
must move, input twice and output once forward, and five times an image backward, against the triad.
"""

from __future__ import annotations

import functools
import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from common import aligned, machine, seconds, triad

from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.layers.define.registry import find
from pe_cli.program.backward import gradients
from pe_cli.program.defaults import program_guard
from pe_cli.program.ir import Program

#: Steps before the first that counts, and seconds that steps are timed for.
WARM, TURN = 3, 0.5


@dataclass(frozen=True)
class Case:
    """One layer over one input.

    Args:
        layer: its name.
        shape: of the input.
        given: arguments.
        norm: bytes count, not operations.
    """

    layer: str
    shape: tuple[int, ...]
    given: Mapping[str, Any]
    norm: bool = False


def _volume(side: int, channels: int, filters: int, **more: Any) -> Case:
    given = {"num_filters": filters, "filter_size": 3, "padding": 1, "bias_attr": False, **more}
    return Case("conv3d", (4, channels, side, side, side), given)


def _transposed(side: int, channels: int, filters: int, *, axes: int = 2, taps: int = 4, batch: int = 8) -> Case:
    given = {"num_filters": filters, "filter_size": taps, "stride": 2, "padding": 1, "bias_attr": False}
    return Case(f"conv{axes}d_transpose", (batch, channels, *(side,) * axes), given)


IMAGES = (32, 64, 56, 56)
CASES = {
    "conv3d 16 at 16^3": _volume(16, 16, 16),
    "conv3d 32 at 8^3": _volume(8, 32, 32),
    "conv3d 16 -> 32 stride 2": _volume(16, 16, 32, stride=2),
    "transposed 64 -> 32 at 16^2": _transposed(16, 64, 32),
    "transposed 128 -> 64 at 8^2": _transposed(8, 128, 64),
    "transposed 256 -> 128 at 4^2": _transposed(4, 256, 128),
    "transposed 32 -> 16 at 8^3": _transposed(8, 32, 16, axes=3, batch=4),
    "batch_norm": Case("batch_norm", IMAGES, {}, norm=True),
    "group_norm, 8 groups": Case("group_norm", IMAGES, {"groups": 8}, norm=True),
    "instance_norm": Case("instance_norm", IMAGES, {}, norm=True),
    "layer_norm of images": Case("layer_norm", IMAGES, {}, norm=True),
}  # fmt: skip


def build(case: Case, *, back: bool) -> tuple[Executor, float]:
    """Return a step of a layer, and the operations or bytes that it takes.

    Args:
        case: the layer.
        back: with gradients of the input and of all parameters.
    """
    main, startup = Program("layer"), Program("startup")
    with program_guard(main, startup):
        block = main.global_block()
        x = block.create_var("x", TensorType(case.shape, "float32"), persistable=True)
        y = find(case.layer).fn(x, **case.given)
        parameters = block.parameters()
        kept = [y.name]
        if back:
            start = block.create_var("y@START", y.type, persistable=True, stop_gradient=True)
            kept += [g.name for g in gradients([y], [x, *(p for p in parameters if p.trainable)], [start]) if g is not None]
    for name in kept:  # results in the scope, too: a temporary's pages may not be there yet
        block.vars[name].persistable = True
    execution = ExecutionStrategy(num_threads=1)
    executor = Executor(main, Scope([Place("cpu", 0)]), build=BuildStrategy(), execution=execution)
    rng = np.random.default_rng(1)
    for v in block.vars.values():
        if v.persistable and v.name not in kept:
            executor.scope.set(v.name, rng.random(v.shape, np.float32))
    if case.norm:
        return executor, (8 if back else 3) * math.prod(case.shape) * 4
    (weight,) = (p for p in parameters if len(p.shape) == len(case.shape))
    pixels = math.prod((x if "transpose" in case.layer else y).shape[2:])
    return executor, (3 if back else 1) * 2.0 * case.shape[0] * pixels * math.prod(weight.shape)


def fastest(executor: Executor) -> float:
    """Return the seconds of the fastest step."""
    plan = executor.run({}, [], 0).plan
    assert plan is not None
    step = functools.partial(plan.step.run, 1)
    for _ in range(WARM):
        step()
    best, until = math.inf, time.perf_counter() + TURN
    while time.perf_counter() < until:
        start = time.perf_counter()
        step()
        best = min(best, time.perf_counter() - start)
    return best


def main(names: Sequence[str]) -> None:
    """Print the layers that are named, or all."""
    if unknown := [name for name in names if name not in CASES]:
        sys.exit(f"{', '.join(unknown)}: expected names out of {', '.join(CASES)}")
    peak = machine("float32")
    streams = [aligned((8_000_000,), "float32") for _ in range(3)]
    memory = 3 * streams[0].nbytes / seconds(triad, "float32", *streams, len(streams[0])) / 1e9
    print(f"{'layer':<32}{'forward':>18}{'with gradients':>18}   GFLOP/s (share of peak), or GB/s (share of triad)")
    for name in names or CASES:
        cells = []
        for back in (False, True):
            executor, amount = build(CASES[name], back=back)
            found = amount / fastest(executor) / 1e9
            cells.append(f"{found:11.1f} ({found / (memory if CASES[name].norm else peak):4.0%})")
        print(f"{name:<32}{''.join(cells)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
