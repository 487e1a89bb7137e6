"""Every option of every strategy changes something: the program, the graph, what waits for what, memory, or how steps are run."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy
from pe_cli.core.types import Place
from pe_cli.devices.scope import Scope
from pe_cli.execute import executor as executors
from pe_cli.execute.diagnostics.estimate import estimate_memory
from pe_cli.execute.executor import Executor
from pe_cli.execute.plan.plan import Plan
from pe_cli.graph.compile import Purpose, compile_program
from pe_cli.graph.text import describe
from pe_cli.program.ir import Program
from pe_cli.program.parse import parse_program
from pe_cli.program.text import print_program
from tests.execute.test_executor import classifier
from tests.execute.test_updates import batch, network
from tests.graph.passes.support import MODELS, built

POINTWISE = """program "pointwise"
block 0
  var x: float32[batch, 8] is_data stop_gradient
  forward tanh(X=x) -> Out=a: float32[batch, 8]
  forward square(X=a) -> Out=b: float32[batch, 8]
  forward sigmoid(X=b) -> Out=c: float32[batch, 8]
  forward mean(X=c) -> Out=loss: float32[1]
"""
DEPTHWISE = """program "depthwise"
block 0
  var x: float32[batch, 8, 6, 6] is_data stop_gradient
  param first: float32[8, 8, 1, 1]
  param k: float32[8, 1, 3, 3]
  forward conv2d(Input=x, Filter=first) -> Output=c: float32[batch, 8, 6, 6]
  forward relu(X=c) -> Out=a: float32[batch, 8, 6, 6]
  forward depthwise_conv2d(Input=a, Filter=k) -> Output=b: float32[batch, 8, 4, 4] {"groups": 8}
  forward mean(X=b) -> Out=loss: float32[1]
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory) -> dict[str, Program]:
    folder = tmp_path_factory.mktemp("run")
    resnet, mobilenet = (built(MODELS / f"{name}.yaml", folder) for name in ("resnet20", "mobilenet_v1"))
    return {
        "perceptron": network("Momentum")[0],
        "adagrad": network("Adagrad")[0],
        "resnet": resnet.train,
        "resnet, evaluated": resnet.eval,
        "mobilenet": mobilenet.train,
        "products alone": classifier(),
        "pointwise": parse_program(POINTWISE),
        "depthwise": parse_program(DEPTHWISE),
    }


def places(devices: int) -> list[Place]:
    return [Place("cpu", d) for d in range(devices)]


def fused(program: Program, strategy: BuildStrategy, devices: int) -> str:
    return print_program(compile_program(program, Purpose(places(devices), strategy), ["loss"]).fused)


def graph(program: Program, strategy: BuildStrategy, devices: int) -> str:
    return describe(compile_program(program, Purpose(places(devices), strategy)).graph())


def ran(program: Program, build: BuildStrategy, devices: int, threads: int, **execution: Any) -> tuple[Executor, Plan]:
    """Run a step of a perceptron, and return what ran it."""
    strategy = ExecutionStrategy(num_threads=threads, **execution)
    executor = Executor(program, Scope(places(devices)), build=build, execution=strategy)
    executor.run(batch(0), [])
    (plan,) = executor.plans.values()
    return executor, plan


def waits(program: Program, strategy: BuildStrategy, devices: int) -> list[set[int]]:
    return ran(program, strategy, devices, devices + 1)[1].waits(devices + 1)


def memory(program: Program, strategy: BuildStrategy, devices: int) -> int:
    return estimate_memory(program, places(devices), 4, build=strategy)[0].temporaries


def lock(program: Program, strategy: BuildStrategy, devices: int) -> bool:
    """Whether a step waits for one of another executor of the process."""
    executor, _ = ran(program, strategy, devices, devices)
    done = threading.Event()
    with executors._STEPS:
        thread = threading.Thread(target=lambda: (executor.run(batch(0), []), done.set()))
        thread.start()
        ended = done.wait(0.3)
    thread.join()
    return not ended


def kept(program: Program, strategy: BuildStrategy, devices: int) -> int:
    """Return how many plans are left when temporaries were dropped twice since they ran."""
    executor, _ = ran(program, strategy, devices, devices)
    executor.drop_unused()
    executor.drop_unused()
    return len(executor.plans)


Look = Callable[[Program, BuildStrategy, int], object]
#: Option -> another value than its default, a program where that shows, how it shows, and on how many devices.
BUILD: dict[str, tuple[object, str, Look, int]] = {
    "reduce_strategy": ("Reduce", "perceptron", graph, 2),
    "gradient_scale_strategy": ("One", "perceptron", graph, 2),
    "fuse_all_reduce_ops": (False, "perceptron", graph, 2),
    "fuse_all_reduce_bytes": (1, "perceptron", graph, 2),
    "fuse_all_optimizer_ops": (False, "perceptron", fused, 1),
    "fuse_bn_add_act_ops": (False, "resnet", fused, 1),
    "fuse_bn_act_ops": (False, "resnet", fused, 1),
    "fuse_bn_statistics": (False, "resnet", fused, 1),
    "fuse_bn_conv": (False, "mobilenet", fused, 1),
    "fuse_conv_bn": (False, "resnet, evaluated", fused, 1),
    "fuse_relu_depthwise_conv": (True, "depthwise", fused, 1),
    "fuse_elewise_add_act_ops": (True, "perceptron", fused, 1),
    "simplify": (False, "resnet, evaluated", fused, 1),
    "fuse_gemm_epilogue": (False, "perceptron", fused, 1),
    "enable_auto_fusion": (False, "pointwise", fused, 1),
    "enable_addto": (False, "resnet", fused, 1),
    "fuse_grad_update": (False, "products alone", fused, 1),
    "enable_inplace": (False, "resnet", memory, 1),
    "memory_optimize": (False, "resnet", memory, 1),
    "sync_batch_norm": (True, "resnet", fused, 2),
    "enable_sequential_execution": (True, "adagrad", waits, 2),
    "enable_backward_optimizer_op_deps": (False, "adagrad", waits, 2),
    "remove_unnecessary_lock": (False, "perceptron", lock, 1),
    "cache_runtime_context": (True, "perceptron", kept, 1),
    "data_layout": ("keep", "resnet", fused, 1),
}
#: Options that are seen elsewhere, by what.
ELSEWHERE = {
    "debug_graphviz_path": "tests/session/test_strategies.py: pictures in the run's folder",
    "fp16_allreduce": "tests/execute/plan/test_distributed.py: sums over processes",
    "use_hierarchical_allreduce": "tests/collectives/test_mpi.py: processes are numbered machine by machine",
    "fuse_broadcast_ops": "tests/config/test_run.py: true is refused, because no graph has broadcasts",
}


@pytest.mark.parametrize("option", BUILD)
def test_a_build_strategy_changes(programs, option):
    value, model, look, devices = BUILD[option]
    before = BuildStrategy()
    assert value != getattr(before, option)
    after = dataclasses.replace(before, **{option: value})
    assert look(programs[model], before, devices) != look(programs[model], after, devices)


def test_no_build_strategy_is_left_out():
    assert {f.name for f in dataclasses.fields(BuildStrategy)} == {*BUILD, *ELSEWHERE}


def threads(program: Program, **execution: Any) -> int:
    return Executor(program, Scope(places(1)), execution=ExecutionStrategy(**execution)).threads


def steps(program: Program, **execution: Any) -> list[np.ndarray]:
    """Return the parameters after one call."""
    main, startup, loss, _ = network("SGD")
    scope = Scope(places(1))
    Executor(startup, scope, seed=4).run({})
    Executor(main, scope, seed=4, execution=ExecutionStrategy(**execution)).run(batch(0), [loss])
    return [scope.get(name) for name in sorted(scope)]


def order(program: Program, **execution: Any) -> list[int]:
    return [task.node for task in ran(program, BuildStrategy(fuse_all_reduce_bytes=1), 2, 2, **execution)[1].tasks]


EXECUTION: dict[str, tuple[object, Callable[..., object]]] = {
    "num_threads": (3, threads),
    "num_iteration_per_run": (2, steps),
    "allow_op_delay": (True, order),
    "dry_run": (True, steps),
}
SESSION = {"num_iteration_per_drop_scope": "tests/session/test_strategies.py: how often temporaries are dropped"}


def differ(one: object, two: object) -> bool:
    if isinstance(one, list) and one and isinstance(one[0], np.ndarray):
        return not all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))  # type: ignore[call-overload]
    return one != two


@pytest.mark.parametrize("option", EXECUTION)
def test_an_execution_strategy_changes(programs, option):
    value, look = EXECUTION[option]
    assert differ(look(programs["adagrad"]), look(programs["adagrad"], **{option: value}))


def test_no_execution_strategy_is_left_out():
    assert {f.name for f in dataclasses.fields(ExecutionStrategy)} == {*EXECUTION, *SESSION}
