"""Where a program is cut, and what its parts read and write, against the order by hand."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from pe_cli.execute.plan.program_parts import parts_of

L = fluid.layers


@pytest.fixture(autouse=True)
def program():
    made = fluid.Program()
    with fluid.program_guard(made, fluid.Program()):
        yield made


def types(parts):
    return [("host" if part.host else "part", [op.type for op in part.ops]) for part in parts]


def test_ops_that_wait_for_the_same_host_op_are_one_part_wherever_they_stand(program):
    x = fluid.data("x", [None], "float32")
    first = L.where(x > 0)
    L.relu(x)
    L.where(x > 1)
    L.cast(first, "float32")
    L.sigmoid(x)
    kinds = [kind for kind, _ in types(parts_of(program))]
    assert kinds == ["part", "host", "host", "part"]
    assert [op.type for op in parts_of(program)[-1].ops] == ["cast"]


def test_who_reads_before_a_variable_is_written_again_runs_before_that(program):
    x = fluid.data("x", [None], "float32")
    total = L.fill_constant([1], "float32", 1.0)
    twice = L.scale(total, 2.0)
    rows = L.cast(L.where(x > 0), "float32")
    L.assign(L.reduce_sum(rows), total)
    three = L.scale(total, 3.0)
    executor = fluid.Executor(fluid.CPUPlace())
    found = executor.run(program, {"x": np.array([0, 1, 1], "float32")}, [twice, three, total])
    assert [float(v.item()) for v in found] == [2, 9, 3]


def test_a_gradient_is_told_the_sizes_of_this_step_by_what_it_is_the_gradient_of(program):
    x = fluid.data("x", [None, 2], "float32")
    x.stop_gradient = False
    y = L.reshape(x, [-1])
    rows = L.shape(x)
    grown = L.expand(L.reduce_sum(y), [L.reduce_max(rows)])
    (gradient,) = fluid.gradients(L.reduce_sum(grown), x)
    executor = fluid.Executor(fluid.CPUPlace())
    for n in (3, 5, 2, 7, 5):
        (found,) = executor.run(program, {"x": np.ones((n, 2), "float32")}, [gradient])
        assert found.tolist() == [[max(n, 2)] * 2] * n


def test_what_is_written_to_the_scope_between_two_steps_is_read_by_the_next(program):
    w = L.create_global_var([1], 1.0, "float32", persistable=True, name="w")
    out = L.scale(w, 2.0)
    executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    with fluid.scope_guard(scope):
        executor.run(fluid.default_startup_program())
        seen = []
        for value in (3.0, 3.0, 5.0):
            seen += [executor.run(program, fetch_list=[out])[0].item() for _ in range(2)]
            scope.find_var("w").get_tensor().set(np.array([value], "float32"), fluid.CPUPlace())
        seen.append(executor.run(program, fetch_list=[out])[0].item())
    assert seen == [2, 2, 6, 6, 6, 6, 10]
