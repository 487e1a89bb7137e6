"""Measure the ops that memory bounds: bytes they must move over time, against the triad of STREAM.

Run `python benchmarks/memory.py [name ...]`. Arrays are far larger than the caches. Every byte that is read or written counts once, and
once more where an op has to read it again: batch_norm needs the statistics of all before it can change one. Every op runs on one core
alone, and then on each core at once, as steps run them: memory gives one core more than its part, so that what takes its time to compute
falls behind on one and not on all. The op and the triad take turns, so that what neighbours on the machine take, both miss.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.synchronize import Barrier
from typing import Any

import numpy as np
from common import aligned, call_of, triad

from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.ops.define.registry import find
from pe_cli.program.ir import Program

BIG = (24_000_000,)
ROWS = (24_000, 1000)
IMAGES = (128, 56, 56, 64)
CHANNELS = (64,)
#: Inputs that an op has to read twice.
TWICE = {"batch_norm": ("X",), "batch_norm_grad": ("X", "Y@GRAD")}
#: Turns of an op and of the triad, and how long each lasts, in seconds.
ROUNDS, TURN = 5, 0.2
NHWC = {"data_format": "NHWC"}
LAYOUT = {"data_layout": "NHWC"}

#: Name -> (op, inputs, outputs, attributes). An output that is called like an input is that variable. What an op does not take is there
#: for its gradient's shape.
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
        {"Ids": np.random.default_rng(0).integers(0, 400_000, (400_000, 1)), "W": (400_000, 64)},
        {"Out": "y"},
        {},
    ),
    "relu_grad": ("relu_grad", {"Out": BIG, "Out@GRAD": BIG, "X": BIG}, {"X@GRAD": "X@GRAD"}, {}),
    "softmax_grad": ("softmax_grad", {"Out": ROWS, "Out@GRAD": ROWS, "X": ROWS}, {"X@GRAD": "X@GRAD"}, {}),
    "cross-entropy's gradient": (
        "softmax_with_cross_entropy_grad",
        {"Label": np.arange(ROWS[0]).reshape(-1, 1) % ROWS[1], "Softmax": ROWS, "Loss@GRAD": (ROWS[0], 1), "Logits": ROWS},
        {"Logits@GRAD": "Logits@GRAD"},
        {},
    ),
    "layer_norm_grad": (
        "layer_norm_grad",
        {"X": ROWS, "Scale": ROWS[1:], "Mean": ROWS[:1], "Variance": ROWS[:1], "Y@GRAD": ROWS, "Bias": ROWS[1:]},
        {s: s for s in ("X@GRAD", "Scale@GRAD", "Bias@GRAD")},
        {"begin_norm_axis": 1},
    ),
    "batch_norm_grad": (
        "batch_norm_grad",
        {"X": IMAGES, "Scale": CHANNELS, "SavedMean": CHANNELS, "SavedVariance": CHANNELS, "Y@GRAD": IMAGES, "Bias": CHANNELS},
        {s: s for s in ("X@GRAD", "Scale@GRAD", "Bias@GRAD")},
        LAYOUT,
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
    taken = [slot.name for slot in find(kind).inputs if slot.name in inputs]
    block.append_op(kind, {s: s for s in taken}, dict(outputs), dict(attrs))
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
    again = sum(size[s] for s in TWICE.get(case, ()))
    return executor, sum(size[s] for s in taken) + sum(size[name] for name in outputs.values()) + again


def prepared(case: str) -> tuple[Callable[[], object], int]:
    """Return what runs a case once, or the triad, and its bytes."""
    if case == "triad":
        streams = [aligned(BIG, "float32") for _ in range(3)]
        call = call_of(triad, "float32", *streams, BIG[0])
        return lambda: (call(), streams), sum(s.nbytes for s in streams)
    executor, size = build(case)
    plan = executor.run({}, [], 0).plan
    assert plan is not None
    return functools.partial(plan.step.run, 1), size


def measure(case: str, together: Barrier | None = None) -> tuple[float, float]:
    """Return the GB/s of a case and of the triad: of the fastest runs where they are alone, of the median where others run beside them.

    Args:
        case: name.
        together: with those that run it on the other cores, which change between the two at the same time; None: alone.
    """
    ways = prepared(case), prepared("triad")
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for (run, _), own in zip(ways, times, strict=True):
            if together is not None:
                together.wait()
            until = time.perf_counter() + TURN
            while time.perf_counter() < until:
                start = time.perf_counter()
                run()
                own.append(time.perf_counter() - start)
    one, other = (size / (min(t) if together is None else statistics.median(t)) / 1e9 for (_, size), t in zip(ways, times, strict=True))
    return one, other


def on_all_cores(case: str, cores: int) -> tuple[float, float]:
    """Return the GB/s of a case and of the triad, of all cores together."""
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        barrier = manager.Barrier(cores)
        with context.Pool(cores) as pool:
            found = pool.starmap(measure, [(case, barrier)] * cores, chunksize=1)
    return sum(one for one, _ in found), sum(other for _, other in found)


def main(names: Sequence[str]) -> None:
    """Print the cases that are named, or all."""
    if unknown := [name for name in names if name not in CASES]:
        sys.exit(f"{', '.join(unknown)}: expected names out of {', '.join(CASES)}")
    cores = len(os.sched_getaffinity(0))
    print(f"{'op':<24}{'GB/s':>9}{'triad':>9}   share{f'GB/s on {cores}':>15}{'triad':>9}   share")
    for case in names or CASES:
        (alone, one), (beside, every) = measure(case), on_all_cores(case, cores)
        print(f"{case:<24}{alone:9.1f}{one:9.1f}{alone / one:8.0%}{beside:15.1f}{every:9.1f}{beside / every:8.0%}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
