"""A graph as text: it is read back as what it was, and mistakes in it are named with their place."""

from __future__ import annotations

import itertools

import pytest

from pe_cli.core.errors import PeError
from pe_cli.core.strategy import BuildStrategy
from pe_cli.core.types import Place
from pe_cli.graph.compile import Purpose, compile_program
from pe_cli.graph.ssa import Graph
from pe_cli.graph.text import describe, parse_graph
from tests.execute.test_executor import classifier
from tests.execute.test_sparse_gradients import executor_of, named
from tests.graph.passes.support import MODELS, built
from tests.rotation import of_today

STRATEGIES = [
    {},
    {"reduce_strategy": "Reduce"},
    {"sync_batch_norm": True},
    {"fuse_all_reduce_ops": False, "fuse_all_optimizer_ops": False},
]


def same(one: Graph, two: Graph) -> None:
    """Check that two graphs are equal, node by node; of slots that are left out, the device does not count."""
    assert (one.places, one.active, one.homes, one.gathered) == (two.places, two.active, two.homes, two.gathered)
    assert len(one.nodes) == len(two.nodes)
    for a, b in zip(one.nodes, two.nodes, strict=True):
        assert type(a) is type(b)
        assert (a.index, a.device, a.inputs, a.outputs, a.after, a.title) == (
            b.index,
            b.device,
            b.inputs,
            b.outputs,
            b.after,
            b.title,
        )
        assert {s: [n for n, _ in p] for s, p in a.ins.items()} == {s: [n for n, _ in p] for s, p in b.ins.items()}
        assert getattr(a, "op", None) is getattr(b, "op", None)
        assert getattr(a, "helped", None) == getattr(b, "helped", None)


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return {
        "perceptron": classifier(),
        "images": built(MODELS / "resnet20.yaml", folder).train,
        "rows": executor_of(named("Adagrad")).program,
    }


@pytest.mark.parametrize(
    ("model", "strategy"), of_today(list(itertools.product(["perceptron", "images", "rows"], STRATEGIES)), 4), ids=str
)
@pytest.mark.parametrize("devices", [1, 3])
@pytest.mark.parametrize("checked", [False, True], ids=["", "checked"])
def test_what_is_written_is_read_back(programs, model, strategy, devices, checked):
    places = [Place("cpu", d) for d in range(devices)]
    stages = compile_program(
        programs[model], Purpose(places, BuildStrategy(**strategy), checked=checked, threads=devices), ["loss"]
    )
    for graph in (
        *map(stages.stage, ("ssa", "fused", "multi_device", "executed")),
        stages.graph([0]),
        stages.executed([0]),
    ):
        text = describe(graph)
        read = parse_graph(text, graph.program)
        same(read, graph)
        assert describe(read) == text


def test_sums_over_processes_are_read_back():
    stages = compile_program(classifier(), Purpose([Place("cpu", 0), Place("cpu", 1)], processes=2), ["loss"])
    for active in (None, [0], []):
        graph = stages.executed(active)
        same(parse_graph(describe(graph), graph.program), graph)


MISTAKES = [
    ("", "graph has no graph", None),
    ("graph g on cpu:0\n   1 forward 0 mul(X=x@0.0, Y=w0@0.0) -> Out=h0@0.1 op 0", "the next node has the number 0", 2),
    ("graph g on cpu:0\n   0 forward 1 mul(X=x@0.0, Y=w0@0.0) -> Out=h0@0.1 op 0", "there is no device 1", 2),
    ("graph g on cpu:0\n   0 forward 0 mul(X=x@0.0, Y=w0@0.0) -> Out=h0@0.1 op 99", "there is no operator 99", 2),
    ("graph g on cpu:0\n   0 forward 0 mul(X=x@0.0, Y=w0@0.0) -> Out=h0@0.1 op 0 as king", "no node of kind 'king'", 2),
    (
        "graph g on cpu:0\n   0 forward 0 mul(X=x@0.0, Y=w0@0.0) -> Out=h0@0.1",
        "no node of kind 'mul' without an operator",
        2,
    ),
    (
        "graph g on cpu:0\n   0 forward 0 relu(X=x@0.0, Y=w0@0.0) -> Out=h0@0.1 op 0",
        "node 0 is forward mul, not forward relu",
        2,
    ),
    ("graph g on cpu:0\n   0 forward 0 mul(X=x@0.1, Y=w0@0.0) -> Out=h0@0.1 op 0", "do not follow from the order", 2),
    (
        "graph g on cpu:0\n   0 forward 0 mul(X=x@0.0, Y=w0@0.0) -> Out=h0@0.1 after 0 op 0",
        "there is no earlier node 0",
        2,
    ),
    (
        "graph g on cpu:0\n   0 forward 0 mul(X=y9@0.0, Y=w0@0.0) -> Out=h0@0.1 op 0",
        "'y9@0.0' is no version of a variable",
        2,
    ),
    (
        "graph g on cpu:0\n   0 forward 0 mul(X=x@4.0, Y=w0@0.0) -> Out=h0@0.1 op 0",
        "'x@4.0' is no version of a variable",
        2,
    ),
    ("graph g on cpu:0\nhome w9 = 0", "the program has no variable 'w9'", 2),
    ("graph g on cpu:0\n   0 forward 0 mul(X=x@0.0, Y=w0@0.0) -> Out=h0@0.1 op 0 then", "unexpected 'then'", 2),
]


@pytest.mark.parametrize(("text", "message", "line"), MISTAKES, ids=[m for _, m, _ in MISTAKES])
def test_mistakes_are_named(text, message, line):
    with pytest.raises(PeError, match=message) as raised:
        parse_graph(text, classifier())
    assert (raised.value.at.line if raised.value.at else None) == line
