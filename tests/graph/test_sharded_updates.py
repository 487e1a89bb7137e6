"""Owners of rows: who updates what, that rows apart have the bits of rows together, and what the graph of a process shows."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.core.strategy import BuildStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.graph.compile import Purpose, compile_program
from pe_cli.graph.sharded_updates import own_rows, own_startup, share_rows
from pe_cli.graph.text import describe, parse_graph
from pe_cli.ops.define.registry import discover
from pe_cli.ops.define.traits import RowsApart
from pe_cli.optim.clip import GradientClipByGlobalNorm
from pe_cli.program.ir import Program
from pe_cli.program.verify import verify
from tests.execute.lowering.sharded_network import network

APART = sorted(name for name, op in discover().items() if op.has(RowsApart))
ROWS, WIDTH = 13, 7


def ran(name: str, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return what an op makes of some values; what it updates is its output."""
    op, program = discover()[name], Program("one")
    block = program.global_block()
    for slot, value in values.items():
        block.create_var(slot, TensorType(value.shape, str(value.dtype)), persistable=True)
    outs = {s.name: s.name.removesuffix("Out").replace("AccumOut", "Accumulator") or s.name for s in op.outputs if not s.optional}
    outs = {slot: made if made in values else slot for slot, made in outs.items()}
    outs |= {"SquaredAccumOut": "SquaredAccumulator", "LinearAccumOut": "LinearAccumulator"} if name == "ftrl" else {}
    for made in outs.values():
        if made not in values:
            block.create_var(made, block.var(next(iter(values))).type, persistable=True)
    block.append_op(name, {slot: slot for slot in values}, outs)
    executor = Executor(program, Scope([Place("cpu", 0)]))
    for slot, value in values.items():
        executor.scope.set(slot, value)
    executor.run({})
    return {made: executor.scope.get(made) for made in outs.values()}


@pytest.mark.parametrize("name", APART)
def test_rows_apart_have_the_bits_of_rows_together(name: str) -> None:
    rng = np.random.default_rng(4)
    single = ("LearningRate", "Pow", "Count", "Product", "Decay", "Scale", "Step")
    slots = [s.name for s in discover()[name].inputs if not s.optional]
    values = {s: rng.uniform(0.1, 0.9, (1,) if s.endswith(single) else (ROWS, WIDTH)).astype("float32") for s in slots}
    values |= {"Step": np.array([4], "int64")} if "Step" in values else {}
    whole = ran(name, values)
    for cut in (1, 6):
        parts = [ran(name, {s: v[rows] if v.shape[0] == ROWS else v for s, v in values.items()}) for rows in (slice(cut), slice(cut, ROWS))]
        for made, value in whole.items():
            expected = [value[:cut], value[cut:]] if value.shape[0] == ROWS else [value, value]
            assert [p[made].tobytes() for p in parts] == [v.tobytes() for v in expected], made


@pytest.mark.parametrize("size", [2, 3, 4, 7])
def test_all_get_as_much_to_a_row(size: int) -> None:
    sizes = [(784, 128), (128, 4), (10, 128), (1, 40), (5, 8), (0, 3), (64, 64)]
    found = share_rows(sizes, size)
    for (rows, _), own in zip(sizes, found, strict=True):
        taken = sorted(pair for pair in own if pair[0] < pair[1])
        assert [n for begin, end in taken for n in range(begin, end)] == list(range(rows)), "each row has one owner"
    load = [sum((own[r][1] - own[r][0]) * weight for own, (_, weight) in zip(found, sizes, strict=True)) for r in range(size)]
    assert max(load) - min(load) <= 2 * 128


def stages(rule: str = "Adam", fetches=(), rank: int = 0, places: int = 1, size: int = 4, **build: object):
    main, _ = network(rule)
    purpose = Purpose([Place("cpu", d) for d in range(places)], BuildStrategy(reduce_strategy="Reduce", **build), size, rank=rank)
    return compile_program(main, purpose, fetches)


def test_gradients_are_scattered_updates_take_rows_and_parameters_are_gathered() -> None:
    made = stages(fuse_all_optimizer_ops=False, places=2)
    graph = made.graph()
    kinds = [node.title for node in graph.nodes]
    scattered, last = kinds.index("start_reduce_scatter_processes"), kinds.index("wait_all_gather_processes")
    assert scattered < kinds.index("wait_reduce_scatter_processes") < kinds.index("adam") < kinds.index("put_rows")
    assert kinds.index("put_rows") < kinds.index("start_all_gather_processes") < last == len(kinds) - 1
    assert not any("start_all_reduce" in kind for kind in kinds)
    text = describe(graph)
    assert describe(parse_graph(text, graph.program)) == text
    verify(graph.program)
    assert made.reports[0] == "owners: processes share the updates of 4 parameters, and divide 8 variables of state"


def test_what_others_read_is_whole() -> None:
    """A gradient that is fetched, and all of them where a norm is taken over all."""
    kinds = [n.title for n in stages(fetches=["w0@GRAD"], fuse_all_reduce_bytes=1).graph().nodes]
    assert kinds.count("start_all_reduce_processes") == 1
    assert kinds.count("start_reduce_scatter_processes") == 3
    main, _ = network("Adam", grad_clip=GradientClipByGlobalNorm(0.5))
    purpose = Purpose([Place("cpu", 0)], BuildStrategy(reduce_strategy="Reduce"), 4)
    kinds = [n.title for n in compile_program(main, purpose).graph().nodes]
    assert "start_all_reduce_processes" in kinds
    assert "start_reduce_scatter_processes" not in kinds
    assert "start_all_gather_processes" in kinds


def test_nobody_has_all_rows_of_the_state() -> None:
    name = next(n for n in own_rows(network("Adam")[0], 0, 4).state)
    with pytest.raises(PeError, match=f"no process has all rows of '{name}'"):
        stages(fetches=[name])


def test_large_parameters_are_gathered_in_pieces() -> None:
    text = describe(stages(fuse_all_reduce_bytes=200).graph())
    assert " pieces " in text


def test_first_values_are_rows_of_those_of_the_whole() -> None:
    """State that is a constant is never whole; what is drawn, and what is given, is cut."""
    main, startup = network("Adam")
    rows = own_rows(main, 1, 2).state
    made = own_startup(startup, {**rows, "w0": ((0, 5), (5, 12))}, 1)
    whole, scope = Scope([Place("cpu", 0)]), Scope([Place("cpu", 0)])
    Executor(startup, whole).run({})
    Executor(made, scope).run({})
    np.testing.assert_array_equal(scope.get("w0"), whole.get("w0")[5:])
    assert "w0@WHOLE" in made.global_block().vars
    for name, own in rows.items():
        begin, end = own[1]
        np.testing.assert_array_equal(scope.get(name), whole.get(name)[begin:end])
        assert f"{name}@WHOLE" not in made.global_block().vars


@pytest.mark.parametrize("rule", ["Lamb", "Adafactor", "Muon"])
def test_what_looks_at_a_whole_parameter_has_one_process_for_it(rule: str) -> None:
    found = [own_rows(network(rule)[0], rank, 2) for rank in range(2)]
    assert all(len({begin == end for begin, end in rows}) == 2 for name, rows in found[0].rows.items() if name.startswith("w"))
    op = {"Lamb": "lamb", "Adafactor": "adafactor", "Muon": "muon_direction"}[rule]
    counts = [sum(o.type == op for o in each.program.global_block().ops) for each in found]
    assert sum(counts) == sum(o.type == op for o in network(rule)[0].global_block().ops)


def test_a_parameter_of_one_element_takes_no_learning_rate_with_it() -> None:
    """Both have the shape [1], and so have the powers of its betas, which go with it."""
    main, _ = network("Adam", widths=(12, 1))
    owned = own_rows(main, 0, 2)
    assert set(owned.rows) == {"w0", "b0"}
    assert not any("learning_rate" in name for name in owned.state)
    assert sum("pow" in name for name in owned.state) == 2
    alone = compile_program(main, Purpose([Place("cpu", 0)], BuildStrategy(reduce_strategy="Reduce"), 2))
    verify(alone.fused)


def test_state_is_divided_to_a_quarter() -> None:
    main, _ = network("Adam", widths=(64, 300, 30, 10))
    whole = {v.name: v.type.nbytes for v in main.list_vars() if v.persistable}
    state = own_rows(main, 0, 4).state
    for rank in range(4):
        mine = {v.name: v.type.nbytes for v in own_rows(main, rank, 4).program.list_vars() if v.name in state}
        assert sum(mine.values()) <= 0.26 * sum(whole[n] for n in state)
    assert all(sum(end - begin for begin, end in rows) == main.global_block().var(n).shape[0] for n, rows in state.items())
    assert len(state) == 2 * 6, "two moments of three weights and three biases"
