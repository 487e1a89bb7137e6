"""The SSA graph: typed nodes on devices, variables in versions that are written once, and the edges that follow from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any, ClassVar, TypeVar

from pe_cli.core.errors import Span
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import Place
from pe_cli.program.ir import EMPTY, Operator, Program, Role

#: Slot -> (variable, device) pairs.
Slots = Mapping[str, list[tuple[str, int]]]


@dataclass(frozen=True)
class VarNode:
    """One version of a variable on a device. Version 0 is what is there before the step."""

    name: str
    device: int
    version: int

    def __str__(self) -> str:
        return f"{self.name}@{self.device}.{self.version}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Node:
    """What one device does, or several together. `GraphBuilder.append` fills in all but device and slots.

    Subclasses without fields of their own are no dataclasses again: that would compile the same methods once more, at every start.

    Attributes:
        device: index of the place it runs on; what joins devices is at home on the first that takes part.
        ins, outs: slot -> (variable, device) pairs; a node may read and write another device's memory.
        index: place in the graph.
        inputs, outputs: versions read and written.
        after: nodes whose work on the versions that this one replaces must be done: their readers, else their writer.
    """

    device: int
    ins: Slots
    outs: Slots
    index: int = -1
    inputs: tuple[VarNode, ...] = ()
    outputs: tuple[VarNode, ...] = ()
    after: tuple[int, ...] = ()

    #: What text calls the node, and pictures where it has no op.
    kind: ClassVar[str]

    @property
    def title(self) -> str:
        """What the node does, in a word."""
        return self.kind

    @property
    def role(self) -> Role:
        """Which part of a training step the node belongs to."""
        return Role.DIST

    @property
    def scope(self) -> str:
        """The name scope of the layer that it comes from, such as `stage1/0/`."""
        return ""

    @property
    def at(self) -> Span | None:
        """The place in the user's file that it comes from."""
        return None

    @property
    def joins_devices(self) -> bool:
        """Whether it moves values between devices rather than computes them."""
        return self.role is Role.DIST


@dataclass(frozen=True, eq=False, kw_only=True)
class Compute(Node):
    """An operator of the program on one device.

    Attributes:
        op: the operator.
        helped: threads of other devices that have nothing left to do may take parts of it.
    """

    op: Operator
    helped: bool = False

    kind: ClassVar[str] = "computation"

    @property
    def title(self) -> str:
        return self.op.type

    @property
    def role(self) -> Role:
        return self.op.role

    @property
    def scope(self) -> str:
        return self.op.scope

    @property
    def at(self) -> Span | None:
        return self.op.at


class ScaleLossGrad(Compute):
    """The first gradient, that of the loss, times the device's share of what the loss is the mean of."""

    kind: ClassVar[str] = "scale_loss_grad"

    @property
    def title(self) -> str:
        return self.kind


class Sync(Compute):
    """An operator that reads what every device with samples has written."""

    kind: ClassVar[str] = "sync"


class Update(Compute):
    """An update that is done once for all devices, which share what it writes.

    It may add the devices' gradients up itself: then slot `Grad` names the first device's, and `ADDENDS` those of the others, one
    device after the other.
    """

    kind: ClassVar[str] = "update"


class Copy(Compute):
    """An operator whose result is its input under another name, where the bytes will change under one of the two: they are copied."""

    kind: ClassVar[str] = "copy"


class Gather(Compute):
    """Merges the rows of a row-sparse gradient of all devices, in device order."""

    kind: ClassVar[str] = "gather"

    @property
    def title(self) -> str:
        return self.kind

    @property
    def role(self) -> Role:
        return Role.DIST


class Check(Compute):
    """Looks for NaN and infinity in results of an operator, slot X, and gives them as slot Out, the same bytes."""

    kind: ClassVar[str] = "check"

    @property
    def title(self) -> str:
        return "check_nan_inf"


class Collective(Node):
    """Sums gradients, slot X, over the devices with samples into slot Out.

    The sum passes through the gradients of the first device with samples: slot Through, where slot Out does not have them.
    """

    @property
    def names(self) -> list[str]:
        """The gradients, each once."""
        return list(dict.fromkeys(n for n, _ in self.outs["Out"]))


class AllReduce(Collective):
    """Every device gets the sums; those of several gradients are summed as one stretch of memory."""

    kind: ClassVar[str] = "all_reduce"

    @property
    def title(self) -> str:
        return self.kind if len(self.names) == 1 else f"fused_{self.kind}"


class Reduce(Collective):
    """The device that updates the parameter gets the sum."""

    kind: ClassVar[str] = "reduce"


class Start(Collective):
    """Begins something that processes do together, on the communication thread, beside what comes after."""


class Wait(Collective):
    """Waits for what another node has begun; every device gets the result."""


@dataclass(frozen=True, eq=False, kw_only=True)
class StartSum(Start):
    """Starts an asynchronous all-reduce of the first device's sums over all processes; without slot X this process contributes nothing.

    Attributes:
        pieces: that are summed one after the other, so that the room for them stays small.
        halved: numbers of float32 go as float16.
    """

    pieces: int = 1
    halved: bool = False

    kind: ClassVar[str] = "start_all_reduce_processes"


class WaitSum(Wait):
    """Waits for a sum over all processes; every device gets the sum."""

    kind: ClassVar[str] = "wait_all_reduce_processes"


class StartScatter(StartSum):
    """Starts a reduce-scatter: every process gets the sum of its own rows; the other rows are undefined afterwards."""

    kind: ClassVar[str] = "start_reduce_scatter_processes"


class WaitScatter(WaitSum):
    """Waits for a reduce-scatter."""

    kind: ClassVar[str] = "wait_reduce_scatter_processes"


@dataclass(frozen=True, eq=False, kw_only=True)
class StartGather(Start):
    """Begins to give all processes the rows of parameters that each has updated, slot X.

    Attributes:
        pieces: messages of an exchange of half of the rows, so that the room for them stays small.
    """

    pieces: int = 1

    kind: ClassVar[str] = "start_all_gather_processes"


class WaitGather(Wait):
    """Waits for the rows of all processes."""

    kind: ClassVar[str] = "wait_all_gather_processes"


class GatherProcesses(Collective):
    """Gives what each device has written, slot X, to all processes: a row for every device of all, zeros for one without samples."""

    kind: ClassVar[str] = "all_gather_processes"


#: Kinds of nodes by what text calls them.
KINDS: dict[str, type[Node]] = {
    of.kind: of
    for of in (
        Compute, ScaleLossGrad, Sync, Update, Copy, Gather, Check, AllReduce, Reduce, StartSum, WaitSum, StartScatter, WaitScatter,
        StartGather, WaitGather, GatherProcesses,
    )
}  # fmt: skip
#: Slot of an `Update`: the gradients of the other devices that it adds up.
ADDENDS = "Grad@ADDENDS"

N = TypeVar("N", bound=Node)


@dataclass
class Graph:
    """Nodes in a valid order.

    Attributes:
        program: whose variables the nodes name.
        places: devices.
        active: devices that have samples; the others only take part in updates.
        nodes: in order.
        homes: variables of which one device's copy is every device's after the step.
        gathered: variables that the devices make together, so that they have other sizes than the program infers.
    """

    program: Program
    places: tuple[Place, ...]
    active: tuple[int, ...]
    nodes: list[Node] = field(default_factory=list)
    homes: dict[str, int] = field(default_factory=dict)
    gathered: tuple[str, ...] = ()

    def edges(self) -> Iterator[tuple[int, int]]:
        """Yield (before, after) pairs of node indices: data first, then write-after-read and write-after-write."""
        made: dict[VarNode, int] = {}
        for node in self.nodes:
            for v in node.inputs:
                if v in made:
                    yield made[v], node.index
            # An edge of order alone: data is older, or overwritten.
            for before in node.after:
                yield before, node.index
            made |= dict.fromkeys(node.outputs, node.index)


class GraphBuilder:
    """Appends nodes and keeps versions; write-after-read edges come out right by construction."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._version: dict[tuple[str, int], int] = {}
        self._writer: dict[tuple[str, int], int] = {}
        self._readers: dict[tuple[str, int], list[int]] = {}

    def current(self, name: str, device: int) -> VarNode:
        """Return the newest version of a variable on a device."""
        return VarNode(name, device, self._version.get((name, device), 0))

    def append(self, node: N) -> N:
        """Append a node, or one of another graph: it reads the newest versions of its inputs and writes new ones of its outputs."""
        index = len(self.graph.nodes)
        reads = dict.fromkeys(p for pairs in node.ins.values() for p in pairs if p[0] != EMPTY)
        inputs = tuple(self.current(*p) for p in reads)
        after: dict[int, None] = {}
        outputs = []
        writes = dict.fromkeys(p for pairs in node.outs.values() for p in pairs if p[0] != EMPTY)
        # What the step writes must not be overwritten before its readers are done.
        for write in writes:
            readers = self._readers.pop(write, [])
            after |= dict.fromkeys(readers)
            # A value that nobody read still must not land after this one.
            if not readers and write not in reads and write in self._writer:
                after[self._writer[write]] = None
            outputs.append(VarNode(*write, self._version.get(write, 0) + 1))
        for at, v in zip(writes, outputs, strict=True):
            self._version[at], self._writer[at] = v.version, index
        # A node that reads and writes a variable is its writer; as a reader it would wait for itself.
        for read in reads:
            if read not in writes:
                self._readers.setdefault(read, []).append(index)
        made = replace(node, index=index, inputs=inputs, outputs=tuple(outputs), after=tuple(after))
        self.graph.nodes.append(made)
        return made


def rebuilt(graph: Graph, nodes: Iterator[Node], **changes: Any) -> Graph:
    """Return a graph of these nodes, some of them perhaps of the first; versions and edges are found anew.

    Args:
        graph: gives the variables and devices.
        nodes: in a valid order.
        changes: attributes of the graph that become others.
    """
    builder = GraphBuilder(replace(graph, **{"nodes": [], **changes}))
    for node in nodes:
        builder.append(node)
    return builder.graph
