"""Sharded parameters: what a process keeps, and when the rest is gathered and dropped."""

from __future__ import annotations

import pytest

from pe_cli.core.errors import PeError
from pe_cli.core.strategy import BuildStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.execute.diagnostics.estimate import estimate_memory
from pe_cli.graph.compile import Purpose, Stages, compile_program
from pe_cli.graph.sharded_parameters import group_bytes
from pe_cli.graph.text import describe, parse_graph
from pe_cli.optim.clip import GradientClipByGlobalNorm
from pe_cli.program.ir import Program
from pe_cli.program.verify import verify
from tests.execute.lowering.sharded_network import network

DEEP = (12, *[64] * 20, 5)
SHARD = BuildStrategy(reduce_strategy="Shard", fuse_all_reduce_bytes=1)


def stages(widths: tuple[int, ...] = (12, 16, 5), rule: str = "Adam", fetches=(), build: BuildStrategy = SHARD, **settings) -> Stages:
    main, _ = network(rule, widths, **settings)
    return compile_program(main, Purpose([Place("cpu", 0)], build, 4, rank=1), fetches)


def places(made: Stages, kind: str) -> list[int]:
    return [i for i, node in enumerate(made.graph().nodes) if node.title == kind]


def reads(made: Stages, name: str) -> list[tuple[int, str]]:
    """Return (place, variable) of the nodes that read a gathered parameter."""
    nodes = enumerate(made.graph().nodes)
    return [(i, v.name) for i, node in nodes for v in node.inputs if v.name.startswith(f"{name}@WHOLE") and not node.joins_devices]


def test_between_steps_a_process_has_its_rows_alone() -> None:
    made = stages()
    assert {n: made.kept[n].shape for n in ("w0", "b0", "w1", "b1")} == {"w0": (3, 16), "b0": (4,), "w1": (4, 5), "b1": (1,)}
    graph = made.graph()
    assert graph.program.var("w0").type == TensorType((3, 16))
    assert not {"put_rows"} & {node.title for node in graph.nodes}, "nothing is to be put back"
    verify(graph.program)
    text = describe(graph)
    assert describe(parse_graph(text, graph.program)) == text
    assert made.reports[-1] == "shard: 4 parameters are sharded, and gathered 4 times in 2 groups"


def test_a_parameter_is_gathered_before_it_is_read_and_again_where_others_come_between() -> None:
    made = stages(DEEP)
    nodes = made.graph().nodes
    for name in ("w0", "w9"):
        forward, *_, backward = reads(made, name)
        assert forward[1] != backward[1], "its memory was free in between"
        for place, gathered in (forward, backward):
            begun = next(i for i in places(made, "start_all_gather_processes") if gathered in [v.name for v in nodes[i].outputs])
            come = next(i for i in places(made, "wait_all_gather_processes") if gathered in [v.name for v in nodes[i].outputs])
            assert begun < come < place
    last = f"w{len(DEEP) - 2}"
    assert len({gathered for _, gathered in reads(made, last)}) == 1, "what is read last going forward is read first going back"


def test_what_comes_next_is_gathered_while_ops_compute() -> None:
    made = stages(DEEP)
    computes = {i for i, node in enumerate(made.graph().nodes) if "fused_gemm_epilogue" in node.title or "mul" in node.title}
    starts, waits = places(made, "start_all_gather_processes"), places(made, "wait_all_gather_processes")
    hidden = [any(begin < i < end for i in computes) for begin, end in zip(starts, waits, strict=True)]
    assert sum(hidden) >= len(hidden) - 2, "but for the first"


def test_rows_of_gradients_are_taken_while_others_are_made() -> None:
    made = stages(DEEP)
    taken, updates = places(made, "take_rows"), places(made, "fused_adam")
    assert len(taken) == 2 * (len(DEEP) - 1)
    computed = [node for node in made.graph().nodes if not node.joins_devices]
    last = max(node.index for node in computed if any(v.name == "w0@GRAD" for v in node.outputs))
    assert sum(i < last for i in taken) >= len(taken) - 6
    assert max(taken) < min(updates)


def test_a_common_length_takes_whole_gradients_and_parameters_stay_sharded() -> None:
    made = stages(grad_clip=GradientClipByGlobalNorm(0.5))
    kinds = [node.title for node in made.graph().nodes]
    assert "start_all_reduce_processes" in kinds
    assert "start_reduce_scatter_processes" not in kinds
    assert made.kept["w0"].shape == (3, 16)


def test_what_is_updated_as_a_whole_one_process_has() -> None:
    shapes = [
        compile_program(network("Lamb")[0], Purpose([Place("cpu", 0)], SHARD, 3, rank=rank)).kept["w0"].shape for rank in range(3)
    ]
    assert sorted(shapes) == [(0, 16), (0, 16), (12, 16)]


@pytest.mark.parametrize("name", ["w0", "w0_moment1_0"])
def test_nobody_has_all_rows(name: str) -> None:
    with pytest.raises(PeError, match=f"no process has all rows of '{name}', as reduce_strategy: Shard divides parameters"):
        stages(fetches=[name])


def test_an_evaluation_gathers_the_rows_that_training_has() -> None:
    main, _ = network("Adam")
    rows = {"w0": ((0, 5), (5, 12)), "b0": ((0, 16), (16, 16))}
    block = main.clone(for_test=True)
    made = compile_program(pruned(block), Purpose([Place("cpu", 0)], SHARD, 2, rank=1, sharded=rows), ["loss"])
    assert {n: made.kept[n].shape for n in ("w0", "b0", "w1")} == {"w0": (7, 16), "b0": (0,), "w1": (16, 5)}
    assert len(reads(made, "w0")) == 1


def test_what_nothing_updates_is_shared_out_too() -> None:
    main, _ = network("Adam")
    main.main_block.create_parameter("fixed", TensorType((8, 5)), trainable=False)
    main.main_block.append_op("elementwise_add", {"X": "a1", "Y": "b1"}, {"Out": "more"}, {"axis": 1})
    main.main_block.append_op("matmul", {"X": "fixed", "Y": "more"}, {"Out": "other"}, {"transpose_Y": True})
    made = compile_program(main, Purpose([Place("cpu", 0)], SHARD, 4, rank=2), ["other"])
    assert made.kept["fixed"].shape == (2, 5)
    assert len(reads(made, "fixed")) == 1


def pruned(program: Program) -> Program:
    from pe_cli.program.prune import prune

    return prune(program, ["loss"])


def test_one_process_alone_has_the_graph_of_all_reduce() -> None:
    main, _ = network("Adam")
    alone = compile_program(main, Purpose([Place("cpu", 0)], SHARD))
    usual = compile_program(main, Purpose([Place("cpu", 0)], BuildStrategy(fuse_all_reduce_bytes=1)))
    assert describe(alone.graph()) == describe(usual.graph())


def test_memory_of_a_process_is_its_share_and_a_few_groups() -> None:
    """Of parameters, gradients and two moments of Adam each process has a quarter, and room for about seven groups."""
    widths = (12, *[256] * 24, 5)
    main, _ = network("Adam", widths)
    (found,) = estimate_memory(main, [Place("cpu", 0)], 4, build=BuildStrategy(reduce_strategy="Shard"), processes=4)
    nbytes = sum(v.type.nbytes for v in main.parameters())
    assert found.persistable <= 0.76 * nbytes
    assert found.own <= nbytes + 7 * group_bytes(1 << 30, nbytes)
    (whole,) = estimate_memory(main, [Place("cpu", 0)], 4, processes=4)
    assert whole.own >= 4 * nbytes
