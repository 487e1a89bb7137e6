"""A picture before it is text: boxes with roles, arrows with the data that flows, and clusters per device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType
from pe_cli.graph.ssa import Collective, Compute, Graph, Node, Sync, VarNode
from pe_cli.program.ir import Variable

#: Kinds of boxes that stand for work: what computes, what joins devices, and several ops in one.
OPS = ("op", "collective", "group")


@dataclass(frozen=True)
class Datum:
    """A variable that flows along an arrow.

    Args:
        name: of the variable.
        type: None where it is not known.
    """

    name: str
    type: TensorType | None


@dataclass(frozen=True)
class Box:
    """An op, a variable, or a group of ops.

    Args:
        key: unique, the same in every picture of a graph.
        title: op type, or name of the variable.
        kind: of OPS or VARIABLES.
        role: of an op: forward, backward, ...; empty for variables.
        cluster: index of the device; None for what joins devices.
        scope: name scope, such as `stage1/0/`.
        lines: shown under the title.
        tip: shown when pointed at.
        names: variables that an op touches, or the variable itself.
        fused: joins what the model writes as several ops.
    """

    key: str
    title: str
    kind: str
    role: str = ""
    cluster: int | None = None
    scope: str = ""
    lines: tuple[str, ...] = ()
    tip: str = ""
    names: frozenset[str] = frozenset()
    fused: bool = False

    @property
    def is_op(self) -> bool:
        """Whether the box is an operation, not data."""
        return self.kind in OPS


@dataclass(frozen=True)
class Arrow:
    """An arrow from what makes data to what takes it.

    Args:
        source, target: keys of boxes.
        data: what flows; empty for order alone.
        shown: whether the data is written at it.
        order: says only that one runs after the other.
    """

    source: str
    target: str
    data: tuple[Datum, ...] = ()
    shown: bool = True
    order: bool = False


@dataclass(frozen=True)
class Picture:
    """Boxes and arrows.

    Args:
        title: over the picture.
        clusters: a name for each device.
        boxes: by order of appearance.
        arrows: between them.
        notes: under the title, such as what was left out.
    """

    title: str
    clusters: tuple[str, ...]
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    notes: tuple[str, ...] = field(default=())

    def ops(self) -> int:
        """Return how many boxes compute."""
        return sum(b.is_op for b in self.boxes)


def picture_of(
    graph: Graph, type_of: Callable[[VarNode], TensorType] | None = None, title: str = "", *, versions: bool = True
) -> Picture:
    """Return the picture of a graph: ops and variables, each written once.

    Args:
        graph: of any stage.
        type_of: type of a variable on a device; default: as the program declares it.
        title: over the picture.
        versions: False draws every variable once, as a program names it, however often it is written.
    """
    variables = graph.program.vars
    kind_of = type_of or (lambda v: variables[v.name].type)
    made: dict[str, Box] = {}
    arrows: dict[Arrow, None] = {}
    # What the step itself makes shows its size at the arrow into it, and not again at each reader.
    produced = {v for node in graph.nodes for v in node.outputs}
    for node in graph.nodes:
        box = _op(node)
        made[box.key] = box
        for v, reads in [*((v, True) for v in node.inputs), *((v, False) for v in node.outputs)]:
            # Without versions all writes of a variable are one box, as a reader of the model thinks of it.
            at = v if versions else VarNode(v.name, v.device, 0)
            key = _key(at)
            made.setdefault(key, _variable(at, variables.get(v.name)))
            datum = (Datum(v.name, _known(kind_of, v)),)
            if reads:
                arrows.setdefault(Arrow(key, box.key, datum, shown=v not in produced), None)
            else:
                arrows.setdefault(Arrow(box.key, key, datum), None)
        for before in node.after if versions else ():
            arrows.setdefault(Arrow(f"op{before}", box.key, order=True), None)
    name = title or graph.program.name or "program"
    return Picture(name, tuple(map(str, graph.places)), tuple(made.values()), tuple(arrows))


def _known(kind_of: Callable[[VarNode], TensorType], v: VarNode) -> TensorType | None:
    try:
        # A picture is drawn before any batch is known, too: sizes then stay open.
        return kind_of(v)
    except KeyError:
        return None


def _op(node: Node) -> Box:
    lines = [node.scope.strip("/")] if node.scope else []
    if isinstance(node, Sync):
        lines.append("reads all devices")
    if isinstance(node, Collective) and len(node.names) > 1:
        lines.append(f"{len(node.names)} gradients")
    names = frozenset(v.name for v in (*node.inputs, *node.outputs))
    return Box(
        f"op{node.index}",
        node.title,
        "collective" if node.joins_devices else "op",
        node.role.value,
        None if node.joins_devices else node.device,
        node.scope,
        tuple(lines),
        str(node.at or ""),
        names,
        is_fused(node),
    )


def is_fused(node: Node) -> bool:
    """Whether a node joins what the model writes as several ops: an op of the family `fused`, or a sum of several gradients."""
    if isinstance(node, Collective):
        return len(node.names) > 1
    return isinstance(node, Compute) and ".fused." in f"{node.op.definition.module}."


def _key(v: VarNode) -> str:
    return f"{v.name}/{v.device}/{v.version}"


def _variable(v: VarNode, found: Variable | None) -> Box:
    kind = "variable"
    if found is not None and (found.persistable or found.is_data):
        kind = "feed" if found.is_data else "persistable"
    lines = (f"version {v.version}",) if v.version > 1 else ()
    return Box(_key(v), v.name, kind, "", v.device, "", lines, v.name, frozenset([v.name]))
