"""Where outputs may lie, by hand: on no input of their op, unless the op takes its memory over from the first byte on."""

from __future__ import annotations

import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.execute.lowering.tasks import Task
from pe_cli.execute.memory import alias_check
from pe_cli.graph.ssa import Graph
from pe_cli.kernels.calls import Buffer, Call
from pe_cli.kernels.cpu.no_op import nothing

X, Y, OUT, MORE = (Buffer(name, TensorType((4,), "float32")) for name in ("x", "y", "out", "more"))
GRAPH = type("Nodes", (), {"nodes": [object()]})()
APART = {X: (0, 0), Y: (0, 16), OUT: (0, 32), MORE: (0, 48)}


def check(monkeypatch: pytest.MonkeyPatch, places: dict[Buffer, tuple[int, int]], **facts: object) -> None:
    monkeypatch.setattr(alias_check, "CHECKED", True)
    task = Task(0, 0, [Call(nothing, (), "float32", "float32")], **({"reads": [X, Y], "writes": [OUT, MORE]} | facts))  # type: ignore[arg-type]
    graph: Graph = GRAPH
    alias_check.check([task], graph, lambda b: (APART | places)[b])


@pytest.mark.parametrize(
    ("places", "facts"),
    [
        pytest.param({}, {}, id="one behind the other"),
        pytest.param({OUT: (1, 0)}, {}, id="in other memory"),
        pytest.param({OUT: (0, 0)}, {"takes_over": {OUT: X}}, id="in place"),
        pytest.param({OUT: (0, 16)}, {"views": {OUT: Y}}, id="a view"),
        pytest.param({}, {"writes": [X]}, id="an input that is written"),
        pytest.param({OUT: (0, 0)}, {"spans": {OUT: (0, 2), X: (2, 4)}}, id="other parts of the same bytes"),
    ],
)
def test_what_may_share_memory_passes(places, facts, monkeypatch):
    check(monkeypatch, places, **facts)


@pytest.mark.parametrize(
    ("places", "facts", "said"),
    [
        pytest.param({OUT: (0, 0)}, {}, "'out' would be written over 'x'", id="over an input"),
        pytest.param({OUT: (0, 28)}, {}, "'out' would be written over 'y'", id="over the end of an input"),
        pytest.param({OUT: (0, 4)}, {"takes_over": {OUT: X}}, "'out' would be written over 'x'", id="in place, but shifted"),
        pytest.param({OUT: (0, 16)}, {"takes_over": {OUT: X}}, "'out' would be written over 'y'", id="in place of another input"),
        pytest.param({MORE: (0, 32)}, {}, "'out' would be written over 'more'", id="two outputs"),
        pytest.param({MORE: (0, 12)}, {"writes": [OUT], "scratch": [MORE]}, "'more' would be written over 'x'", id="scratch"),
    ],
)
def test_what_may_not_is_a_bug_that_is_told(places, facts, said, monkeypatch):
    with pytest.raises(PeError, match=said) as caught:
        check(monkeypatch, places, **facts)
    assert caught.value.code == ExitCode.BUG
