"""Measure the ops that memory bounds, on one thread: bytes they must move over time, against the triad of STREAM.

Run `python benchmarks/memory.py [name ...]`. Arrays are far larger than the caches. Every byte that is read or written counts once, also
where an op has to read it again, so that its share shows that.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from kernels import aligned, seconds, triad

from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.program.ir import Program

BIG = (8_000_000,)
ROWS = (8000, 1000)
IMAGES = (64, 56, 56, 64)
CHANNELS = (64,)
NHWC = {"data_format": "NHWC"}
LAYOUT = {"data_layout": "NHWC"}

#: Name -> (op, inputs, outputs, attributes). An output that is called like an input is that variable.
CASES: dict[str, tuple[str, Mapping[str, Any], Mapping[str, str], Mapping[str, Any]]] = {
    "relu": ("relu", {"X": BIG}, {"Out": "y"}, {}),
    "scale": ("scale", {"X": BIG}, {"Out": "y"}, {"scale": 2.0}),
    "elementwise_add": ("elementwise_add", {"X": BIG, "Y": BIG}, {"Out": "y"}, {}),
    "add a row to all": ("elementwise_add", {"X": ROWS, "Y": ROWS[1:]}, {"Out": "y"}, {"axis": 1}),
    "tanh": ("tanh", {"X": BIG}, {"Out": "y"}, {}),
    "dropout": ("dropout", {"X": BIG}, {"Out": "y", "Mask": "m"}, {"dropout_prob": 0.5}),
    "mean": ("mean", {"X": BIG}, {"Out": "y"}, {}),
    "reduce_sum of rows": ("reduce_sum", {"X": ROWS}, {"Out": "y"}, {"dim": [1]}),
    "reduce_sum of columns": ("reduce_sum", {"X": ROWS}, {"Out": "y"}, {"dim": [0]}),
    "transpose": ("transpose", {"X": ROWS}, {"Out": "y"}, {"axis": [1, 0]}),
    "softmax": ("softmax", {"X": ROWS}, {"Out": "y"}, {}),
    "cross-entropy": (
        "softmax_with_cross_entropy",
        {"Logits": ROWS, "Label": np.arange(ROWS[0]).reshape(-1, 1) % ROWS[1]},
        {"Softmax": "p", "Loss": "y"},
        {},
    ),
    "layer_norm": (
        "layer_norm",
        {"X": ROWS, "Scale": ROWS[1:], "Bias": ROWS[1:]},
        {"Y": "y", "Mean": "m", "Variance": "v"},
        {"begin_norm_axis": 1},
    ),
    "batch_norm": (
        "batch_norm",
        {"X": IMAGES, "Scale": CHANNELS, "Bias": CHANNELS, "Mean": CHANNELS, "Variance": CHANNELS},
        {"Y": "y", "MeanOut": "Mean", "VarianceOut": "Variance", "SavedMean": "sm", "SavedVariance": "sv"},
        LAYOUT,
    ),
    "max pooling 2x2": (
        "pool2d", {"X": IMAGES}, {"Out": "y"}, {"ksize": [2, 2], "strides": [2, 2], "pooling_type": "max", **NHWC}
    ),
    "average pooling 3x3": (
        "pool2d",
        {"X": IMAGES},
        {"Out": "y"},
        {"ksize": [3, 3], "strides": [2, 2], "paddings": [1, 1], "pooling_type": "avg", **NHWC},
    ),
    "embedding, width 64": (
        "lookup_table",
        {"Ids": np.random.default_rng(0).integers(0, 125_000, (125_000, 1)), "W": (125_000, 64)},
        {"Out": "y"},
        {},
    ),
    "sgd": ("sgd", {"Param": BIG, "Grad": BIG, "LearningRate": (1,)}, {"ParamOut": "Param"}, {}),
    "momentum": (
        "momentum",
        {"Param": BIG, "Grad": BIG, "Velocity": BIG, "LearningRate": (1,)},
        {"ParamOut": "Param", "VelocityOut": "Velocity"},
        {},
    ),
    "adam": (
        "adam",
        {"Param": BIG, "Grad": BIG, "Moment1": BIG, "Moment2": BIG, "LearningRate": (1,), "Beta1Pow": (1,), "Beta2Pow": (1,)},
        {f"{s}Out": s for s in ("Param", "Moment1", "Moment2", "Beta1Pow", "Beta2Pow")},
        {},
    ),
}  # fmt: skip


def build(case: str) -> tuple[Executor, int]:
    """Return a step of one op over variables that stay, and the bytes that it must move."""
    kind, inputs, outputs, attrs = CASES[case]
    program = Program(case)
    block = program.global_block()
    values = {}
    rng = np.random.default_rng(1)
    for slot, given in inputs.items():
        value = given if isinstance(given, np.ndarray) else rng.random(given, np.float32)
        block.create_var(slot, TensorType(value.shape, str(value.dtype)), persistable=True, stop_gradient=True)
        values[slot] = value
    ops = {name for name in outputs.values() if name not in inputs}
    block.append_op(kind, {s: s for s in inputs}, dict(outputs), dict(attrs))
    for name in ops:  # results in the scope, too: a temporary's pages may not be there yet
        block.vars[name].persistable = True
    strategy = BuildStrategy(simplify=False, enable_auto_fusion=False, data_layout="keep")
    execution = ExecutionStrategy(num_threads=1)
    executor = Executor(program, Scope([Place("cpu", 0)]), build=strategy, execution=execution)
    for name, value in values.items():
        executor.scope.set(name, value)
    size = {name: v.type.nbytes for name, v in block.vars.items()}
    if "Ids" in inputs:
        size["W"] = min(size["W"], size["y"])  # the rows that are looked up
    return executor, sum(size[s] for s in inputs) + sum(size[name] for name in outputs.values())


def fastest(executor: Executor) -> float:
    """Return the least seconds of a step."""
    executor.run({}, [], 0)
    plan, times = executor.newest, []
    assert plan is not None
    until = time.perf_counter() + 0.6
    while time.perf_counter() < until or len(times) < 5:
        start = time.perf_counter()
        plan.step.run(1)
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Print every case, or those that the command line names."""
    streams = [aligned(BIG, "float32") for _ in range(3)]
    stream = max(3 * streams[0].nbytes / seconds(triad, "float32", *streams, BIG[0]) / 1e9 for _ in range(5))
    print(f"triad {stream:.1f} GB/s\n\n{'op':<24}{'ms':>9}{'GB/s':>9}   share of the triad")
    for case in sys.argv[1:] or CASES:
        executor, size = build(case)
        t = fastest(executor)
        print(f"{case:<24}{t * 1e3:9.3f}{size / t / 1e9:9.1f}{size / t / 1e9 / stream:8.0%}")


if __name__ == "__main__":
    main()
