"""Measure loops: LSTM cells that are written with layers and scanned, beside the fused layer `lstm`.

Usage: python benchmarks/loops.py [--steps 64] [--batch 32] [--width 128] [--threads 2] [--rounds 8] [--forward | --calls]

All are trained in one process, with the same sizes, in float32. A round measures each in turn: the fastest of 30 steps. The table tells
medians over the rounds, and the median of the ratio to the fused layer in the same round. `--forward` measures the forward ops alone,
and `--calls` lists the kernel calls of a round of every loop instead.

- split: the gates are cut apart, and every function is a layer of its own;
- unit: the op lstm_unit, on gates of which the input's share was computed for all steps at once, as the fused layer does;
- layer: the layer lstm_unit, whose one product takes input and state together in every round.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.kernels.calls import Call, Nested
from pe_cli.layers.control.loops import scan
from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import find
from pe_cli.optim.optimizers import SGD
from pe_cli.program.defaults import program_guard
from pe_cli.program.ir import Program, Variable

KINDS = ("lstm", "split", "unit", "layer")
#: Steps of a figure, and those before the first one.
STEPS, WARM = 30, 4


def call(layer: str, *args: Any, **given: Any) -> Any:
    """Append a layer."""
    return find(layer).fn(*args, **given)


def by_layers(gates: Variable, cell: Variable) -> tuple[Variable, Variable]:
    """Append a cell in the layers that it is defined by; return its output and the cell."""
    i, f, o, g = call("split", gates, 4, 1)
    kept = call("elementwise_mul", call("sigmoid", f), cell)
    cell = call("elementwise_add", kept, call("elementwise_mul", call("sigmoid", i), call("tanh", g)))
    return call("elementwise_mul", call("sigmoid", o), call("tanh", cell)), cell


def by_unit(gates: Variable, cell: Variable) -> tuple[Variable, Variable]:
    """Append a cell as one op."""
    cell, hidden, _ = LayerHelper("lstm_unit").op("lstm_unit", {"X": gates, "C_prev": cell}, {}, ("C", "H", "Gates"))
    return hidden, cell


def scanned(kind: str, x: Variable, width: int) -> Variable:
    """Append a scanned cell over x, [steps, batch, width]; return the outputs of all steps."""
    zeros = find("fill_constant_batch_size_like").fn(x, [-1, width], "float32", 0.0, input_dim_idx=1)
    given = x if kind == "layer" else call("fc", x, 4 * width, num_flatten_dims=2)

    def body(each: list[Variable], states: list[Variable]) -> Any:
        hidden, cell = states
        if kind == "layer":
            hidden, cell = call("lstm_unit", each[0], hidden, cell)
        else:
            gates = call("elementwise_add", each[0], call("fc", hidden, 4 * width, bias_attr=False))
            hidden, cell = (by_unit if kind == "unit" else by_layers)(gates, cell)
        return [hidden, cell], [hidden]

    (out,), _ = scan(body, [given], [zeros, zeros])
    return out


class Model:
    """A sequence model: the mean of the squares of all outputs.

    Args:
        kind: one of KINDS.
        sizes: steps, batch, width.
        threads: of the executor.
        forward: without gradients and updates.
    """

    def __init__(self, kind: str, sizes: tuple[int, int, int], threads: int, *, forward: bool) -> None:
        steps, batch, width = sizes
        main, startup = Program("main"), Program("startup")
        with program_guard(main, startup):
            x = main.global_block().create_var("x", TensorType((steps, -1, width), "float32"), is_data=True)
            out = call("lstm", x, width, time_major=True)[0] if kind == "lstm" else scanned(kind, x, width)
            loss = call("mean", call("square", out))
            if not forward:
                SGD(learning_rate=0.01).minimize(loss)
        scope = Scope([Place("cpu", 0)])
        given: dict[str, Any] = {"build": BuildStrategy(), "execution": ExecutionStrategy(num_threads=threads), "seed": 1}
        Executor(startup, scope, **given).run({}, [], 0)
        self.executor, self.loss = Executor(main, scope, **given), loss.name
        self.feed = {"x": np.random.default_rng(0).standard_normal((steps, batch, width)).astype(np.float32)}
        self.number = 0
        self.fastest(WARM)

    def fastest(self, steps: int = STEPS) -> float:
        """Return the fastest of so many steps, in ms."""
        found = []
        for _ in range(steps):
            start = time.perf_counter()
            self.executor.run(self.feed, [self.loss], self.number)
            found.append(1e3 * (time.perf_counter() - start))
            self.number += 1
        return min(found)

    def rounds(self) -> Iterator[Nested]:
        """Yield the calls of a round of each loop."""
        (plan,) = self.executor.plans.values()
        for task in plan.tasks:
            for each in task.calls:
                yield from (arg for arg in each.args if isinstance(arg, Nested))


def listed(calls: Sequence[Call]) -> str:
    """Return calls as lines: the kernel and its numbers."""
    return "\n".join(f"  {c.kernel} {[a for a in c.args if isinstance(a, int)]}" for c in calls)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description="time scanned LSTM cells beside the fused layer")
    for name, value in (("steps", 64), ("batch", 32), ("width", 128), ("threads", 2), ("rounds", 8)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--forward", action="store_true")
    parser.add_argument("--calls", action="store_true")
    o = parser.parse_args()
    models = {k: Model(k, (o.steps, o.batch, o.width), o.threads, forward=o.forward) for k in KINDS}
    if o.calls:
        for kind, model in models.items():
            for number, nested in enumerate(model.rounds()):
                print(f"{kind}, loop {number}: {len(nested.calls)} calls\n{listed(nested.calls)}")
        return
    found: dict[str, list[float]] = {k: [] for k in models}
    for _ in range(o.rounds):
        for kind, model in models.items():
            found[kind].append(model.fastest())
    print(f"{o.steps} steps, batch {o.batch}, width {o.width}, {o.threads} threads, {'forward' if o.forward else 'training'}; ms")
    for kind, times in found.items():
        ratios = [t / other for t, other in zip(times, found["lstm"], strict=True)]
        print(
            f"{kind:6} {statistics.median(times):7.2f} ({min(times):.2f} to {max(times):.2f})"
            f"   ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        )


if __name__ == "__main__":
    main()
