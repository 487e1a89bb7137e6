"""Which tasks wait for which, by the bytes that they read and write, against a history of every single byte."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.execute.plan.plan import Plan
from pe_cli.execute.plan.task_order import Rules, _Bytes, dependencies, graph_edges
from tests.execute.test_executor import batch, classifier, values

BYTES = 24


class History:
    """Who last wrote every byte of two spaces, and who has read it since."""

    def __init__(self):
        self.writers = {(space, at): set() for space in (0, 1) for at in range(BYTES)}
        self.readers = {place: set() for place in self.writers}

    def access(self, task, reads, writes, kin):
        found = set()
        for place in (p for r in reads for p in places(r)):
            found |= self.writers[place]
            self.readers[place].add(task)
        for place in (p for w in writes for p in places(w)):
            found |= self.writers[place] | self.readers[place]
            self.writers[place] = (self.writers[place] & set(kin)) | {task}
            self.readers[place] &= set(kin)
        return found - {task} - set(kin)


def places(of):
    space, begin, end = of
    return [(space, at) for at in range(begin, end)]


@pytest.mark.parametrize("seed", range(30))
def test_a_task_waits_for_whom_its_bytes_name(seed):
    rng = np.random.default_rng(seed)

    def some(most):
        return [(int(rng.integers(2)), *map(int, sorted(rng.integers(0, BYTES + 1, 2)))) for _ in range(rng.integers(most))]

    bytes_, history, kin = _Bytes(), History(), range(0)
    for task in range(60):
        kin = range(kin.start if rng.random() < 0.3 else task, task)  # a task beside those before it, or not
        reads, writes = some(4), some(3)
        assert bytes_.access(task, reads, writes, kin) == history.access(task, reads, writes, kin), task


def plan(devices: int, threads: int, **build: object) -> Plan:
    """Return a step in which nothing but the update of a parameter waits for one of its readers."""
    program = classifier()
    block = program.global_block()
    block.create_var("read", TensorType(block.var("w1").shape))
    block.append_op("relu", {"X": "w1"}, {"Out": "read"})
    block.ops.insert(0, block.ops.pop())
    scope = Scope([Place("cpu", d) for d in range(devices)])
    executor = Executor(program, scope, build=BuildStrategy(**build), execution=ExecutionStrategy(num_threads=threads))
    for name, value in values().items():
        scope.set(name, value)
    executor.run(batch(40, 0), ["loss", "read"])
    (made,) = executor.plans.values()
    return made


APART = {"memory_optimize": False, "enable_inplace": False, "fuse_grad_update": False}


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_where_no_memory_is_shared_the_graph_says_all(devices):
    made = plan(devices, devices + 2, **APART)
    assert dependencies(made.tasks, made.graph, made._ranges, Rules()) == graph_edges(made.tasks, made.graph)


def test_reuse_of_memory_adds_edges():
    made = plan(1, 1, fuse_grad_update=False)
    found = dependencies(made.tasks, made.graph, made._ranges, Rules())
    plain = graph_edges(made.tasks, made.graph)
    assert all(more >= least for more, least in zip(found, plain, strict=True))
    assert found != plain


@pytest.mark.parametrize("lost", ["after", "inputs"])
def test_a_graph_that_lacks_edges_is_found_out(lost):
    """An update overwrites what others have read; without that edge nothing but its bytes would tell."""
    made = plan(2, 4, **APART)
    nodes = [replace(node, **{lost: ()}) for node in made.graph.nodes]
    with pytest.raises(AssertionError, match="the graph lacks an edge from node"):
        dependencies(made.tasks, replace(made.graph, nodes=nodes), made._ranges, Rules())
