"""A graph as text that people read and tests compare, and that is read back.

    graph main on cpu:0, cpu:1
    home w0 = 0
       0 forward   0 mul(X=x@0.0, Y=w0@0.0) -> Out=h@0.1 op 0
       1 forward   1 mul(X=x@1.0, Y=w0@0.0) -> Out=h@1.1 op 0
       9 dist      0 all_reduce(X=[w0@GRAD@0.1, w0@GRAD@1.1]) -> Out=w0@GRAD@0.2
      10 optimize  0 sgd(Param=w0@0.0, Grad=w0@GRAD@0.2, ...) -> ParamOut=w0@0.1 after 0, 1 op 7 as update

Behind the devices stand those with samples, `active 0, 2`, where that is not all of them. A node has its number, role and device; what
it does; slots with versions, `variable@device.version`; the nodes that it runs after though it reads nothing of theirs; the number of
its operator in the program; its kind, where that is not plain computation; and of what processes exchange, its
pieces where there are several, and whether its numbers are halved on the way. The program's own text says the rest.
"""

from __future__ import annotations

from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.types import Place
from pe_cli.graph.ssa import KINDS, Collective, Compute, Graph, GraphBuilder, Node, Slots, StartGather, StartSum
from pe_cli.program.ir import EMPTY, Program
from pe_cli.program.line import Line
from pe_cli.program.text import bare_or_quoted


def describe(graph: Graph) -> str:
    """Return the graph as text, one line per node, with a newline at the end."""
    # Operators by identity: two that say the same are two nodes.
    number = {id(op): i for i, op in enumerate(graph.program.top_ops)}
    head = f"graph {bare_or_quoted(graph.program.name or 'program')} on {', '.join(map(str, graph.places))}"
    # Only what differs from the usual is written, so that texts of tests stay short.
    idle = graph.active != tuple(range(len(graph.places)))
    lines = [f"{head} active {', '.join(map(str, graph.active))}".rstrip() if idle else head]
    lines += [f"home {bare_or_quoted(name)} = {d}" for name, d in sorted(graph.homes.items())]
    lines += [f"gathered {bare_or_quoted(name)}" for name in graph.gathered]
    lines += [_node(node, number) for node in graph.nodes]
    return "\n".join(lines) + "\n"


def _node(node: Node, number: dict[int, int]) -> str:
    text = f"{node.index:4} {node.role.value:9} {node.device} {node.title}"
    reads = {(v.name, v.device): str(v) for v in node.inputs}
    writes = {(v.name, v.device): str(v) for v in node.outputs}
    text += f"({_slots(node.ins, reads)}) -> {_slots(node.outs, writes)}".rstrip()
    text += f" after {', '.join(map(str, node.after))}" if node.after else ""
    if isinstance(node, Compute):
        text += f" op {number[id(node.op)]}"
        text += f" as {node.kind}" if node.kind != Compute.kind else ""
        text += " helped" if node.helped else ""
    if isinstance(node, (StartSum, StartGather)):
        text += f" pieces {node.pieces}" if node.pieces > 1 else ""
    if isinstance(node, StartSum):
        text += " halved" if node.halved else ""
    return text


def _slots(slots: Slots, versions: dict[tuple[str, int], str]) -> str:
    shown = []
    for slot, pairs in slots.items():
        names = [bare_or_quoted(versions[p] if p[0] != EMPTY else EMPTY) for p in pairs]
        shown.append(f"{bare_or_quoted(slot)}={names[0] if len(names) == 1 else '[' + ', '.join(names) + ']'}")
    return ", ".join(shown)


def parse_graph(text: str, program: Program, file: str = "graph") -> Graph:
    """Return the graph of a text.

    Args:
        text: as `describe` writes it; lines that are empty or start with # are skipped.
        program: that the graph was made of.
        file: name for errors.

    Raises:
        PeError: the text does not follow the form, names what the program does not have, or has versions, or nodes to run after, that do
            not follow from the order of its nodes; with its line and column.
    """
    builder: GraphBuilder | None = None
    for number, row in enumerate(text.split("\n"), 1):
        if not row.strip() or row.lstrip().startswith("#"):
            continue
        line = Line(file, number, row)
        if builder is None:
            builder = GraphBuilder(_head(line, program))
        elif line.peek() == "home":
            line.word()
            name = _variable(line, program)
            line.expect("=")
            builder.graph.homes[name] = _device(line, builder.graph)
        elif line.peek() == "gathered":
            line.word()
            builder.graph.gathered += (_variable(line, program),)
        else:
            _read(line, builder)
        line.end()
    if builder is None:
        raise PeError(f"{file} has no graph", hint='it starts with: graph "name" on cpu:0')
    return builder.graph


def _head(line: Line, program: Program) -> Graph:
    line.expect("graph")
    line.word()
    line.expect("on")
    places: list[Place] = []
    while not places or line.peek() == ",":
        if places:
            line.expect(",")
        kind = line.word()
        line.expect(":")
        places.append(Place(kind, line.integer()))
    graph = Graph(program, tuple(places), tuple(range(len(places))))
    if line.peek() == "active":
        line.word()
        graph.active = tuple(_numbers(line, len(places), "device")) if not line.done() else ()
    return graph


def _numbers(line: Line, count: int, what: str) -> list[int]:
    found: list[int] = []
    while not found or line.peek() == ",":
        if found:
            line.expect(",")
        found.append(line.integer())
        # A number that is too large is the user's mistake in the text, and told with its line.
        if found[-1] >= count:
            raise line.error(f"there is no {what} {found[-1]}", f"there are {count}, from 0")
    return found


def _device(line: Line, graph: Graph) -> int:
    return _numbers(line, len(graph.places), "device")[0]


def _variable(line: Line, program: Program) -> str:
    name = line.word()
    if name not in program.vars:
        raise line.error(f"the program has no variable '{name}'")
    return name


def _read(line: Line, builder: GraphBuilder) -> None:
    """Append the node of a line."""
    graph = builder.graph
    if line.integer() != len(graph.nodes):
        raise line.error(f"the next node has the number {len(graph.nodes)}")
    role, device, title = line.word(), _device(line, graph), line.word()
    line.expect("(")
    ins, read = _pairs(line, ")", graph)
    line.expect(")")
    line.expect("->")
    outs, written = _pairs(line, "", graph)
    after: list[int] = []
    if line.peek() == "after":
        line.word()
        after = _numbers(line, len(graph.nodes), "earlier node")
    kind = title.removeprefix("fused_")
    facts = _of_sum(line) if issubclass(KINDS.get(kind, Node), (StartSum, StartGather)) else {}
    if line.peek() == "op":
        line.word()
        kind = Compute.kind
        ops = graph.program.top_ops
        facts["op"] = ops[_numbers(line, len(ops), "operator")[0]]
        if line.peek() == "as":
            line.word()
            kind = line.word()
        if line.peek() == "helped":
            line.word()
            facts["helped"] = True
    of = KINDS.get(kind)
    if of is None or not issubclass(of, Compute if "op" in facts else Collective):
        raise line.error(f"there is no node of kind '{kind}'" + ("" if "op" in facts else " without an operator"))
    made = builder.append(of(device=device, ins=ins, outs=outs, **facts))
    # Everything that follows from the order is written as well, and compared: an edited text cannot contradict itself.
    if (made.title, made.role.value) != (title, role):
        raise line.error(f"node {made.index} is {made.role.value} {made.title}, not {role} {title}")
    if [*map(str, made.inputs)] != read or [*map(str, made.outputs)] != written or [*made.after] != after:
        raise line.error(f"the versions of node {made.index}, or what it runs after, do not follow from the order of the nodes")


def _of_sum(line: Line) -> dict[str, Any]:
    """Parse the attributes of a sum over processes."""
    facts: dict[str, Any] = {}
    if line.peek() == "pieces":
        line.word()
        facts["pieces"] = line.integer()
    if line.peek() == "halved":
        line.word()
        facts["halved"] = True
    return facts


def _pairs(line: Line, end: str, graph: Graph) -> tuple[dict[str, list[tuple[str, int]]], list[str]]:
    """Take slots with versions; return them, and the versions in order, each once."""
    slots: dict[str, list[tuple[str, int]]] = {}
    versions: dict[str, None] = {}
    while line.peek() not in (end, "after", "op", "pieces", "halved", ""):
        if slots:
            line.expect(",")
        slot = line.word()
        line.expect("=")
        listed = line.peek() == "["
        if listed:
            line.expect("[")
        names = line.names("]") if listed else [line.word()]
        if listed:
            line.expect("]")
        slots[slot] = [_version(line, name, graph, versions) for name in names]
    return slots, list(versions)


def _version(line: Line, text: str, graph: Graph, versions: dict[str, None]) -> tuple[str, int]:
    if text == EMPTY:
        return EMPTY, 0
    name, _, rest = text.rpartition("@")
    device, _, _ = rest.partition(".")
    if name not in graph.program.vars or not device.isdigit() or int(device[:9]) >= len(graph.places):
        raise line.error(f"'{text}' is no version of a variable of the program on a device", "variable@device.version")
    versions[text] = None
    return name, int(device)
