"""With one thread per device, sums of early gradients may run while other devices still go backward, and hold no backward op up."""

from __future__ import annotations

import numpy as np

from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.execute.plan.plan import Plan
from pe_cli.program.ir import Program, Role
from tests.graph.passes.support import minimise

WIDTH, LAYERS = 128, 4


def plan(**execution: object) -> Plan:
    """Return the step of a deep perceptron on two devices with two threads, one bucket per layer."""
    program = Program("deep")
    block = program.global_block()
    block.create_var("x", TensorType((-1, WIDTH)), is_data=True, stop_gradient=True)
    block.create_var("lr", TensorType((1,)), persistable=True, stop_gradient=True)
    last = "x"
    for i in range(LAYERS):
        block.create_parameter(f"w{i}", TensorType((WIDTH, WIDTH)))
        block.append_op("mul", {"X": last, "Y": f"w{i}"}, {"Out": f"m{i}"})
        last = f"m{i}"
    block.append_op("mean", {"X": last}, {"Out": "loss"})
    minimise(program, "loss")
    scope = Scope([Place("cpu", d) for d in range(2)])
    strategy = ExecutionStrategy(num_threads=2, **execution)  # type: ignore[arg-type]
    # updates of many parameters would add the gradients up themselves
    build = BuildStrategy(fuse_all_reduce_bytes=1, fuse_all_optimizer_ops=False)
    executor = Executor(program, scope, build=build, execution=strategy)
    executor.run({"x": np.ones((4, WIDTH), "float32")}, ["loss"])
    (found,) = executor.plans.values()
    return found


def before(waits: list[set[int]], task: int) -> set[int]:
    """Return all tasks that are done before one begins."""
    found: set[int] = set()
    todo = [task]
    while todo:
        for b in waits[todo.pop()] - found:
            found.add(b)
            todo.append(b)
    return found


def backward(made: Plan) -> set[int]:
    return {i for i, t in enumerate(made.tasks) if made.graph.nodes[t.node].role is Role.BACKWARD}


def sums(made: Plan) -> list[int]:
    found = [i for i, t in enumerate(made.tasks) if made.graph.nodes[t.node].kind == "all_reduce"]
    assert len(found) >= 2 * LAYERS, "every sum is cut into a shard per thread"
    return found


def test_the_first_sum_waits_for_its_gradient_only_and_no_backward_op_for_it():
    made = plan()
    waits = made.waits(2)
    first = before(waits, sums(made)[0])
    for device in (0, 1):
        later = {i for i in backward(made) - first if made.tasks[i].home == device}
        assert len(later) >= LAYERS - 1
        assert not any(before(waits, i) & set(sums(made)) for i in later)


def test_delayed_sums_wait_for_the_whole_backward_pass():
    made = plan(allow_op_delay=True)
    waits = made.waits(2)
    for i in sums(made):
        assert backward(made) <= before(waits, i)
