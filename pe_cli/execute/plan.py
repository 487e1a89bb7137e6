"""A plan: one step of a graph for one batch shape, as tapes over planned memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.devices.memory import Arena
from pe_cli.devices.scope import Scope
from pe_cli.devices.tape import Instruction, Tape, word
from pe_cli.execute.lower import GraphLowering, Task, concrete_types
from pe_cli.execute.memory import MemoryPlan, plan_memory
from pe_cli.execute.order import Range, chains, dependencies
from pe_cli.graph.ssa import Graph
from pe_cli.kernels.cache import Instance, addresses
from pe_cli.kernels.calls import STATUS, STEP, Buffer, Call, Numbers, Offset, Table
from pe_cli.ops.status import failure

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Request:
    """What a plan is for; equal requests share a plan.

    Args:
        feeds: per device: name -> type of its part of the batch.
        sizes: samples of each device.
        fetches: names of variables to read after the step.
    """

    feeds: tuple[tuple[tuple[str, TensorType], ...], ...]
    sizes: tuple[int, ...]
    fetches: tuple[str, ...]


class Plan:
    """A step, ready to run.

    Attributes:
        memory: of every device.
        tasks: in order, for pictures.
        tape: what runs.
    """

    def __init__(
        self,
        graph: Graph,
        request: Request,
        scope: Scope,
        *,
        seed: int,
        threads: int,
        share: bool = True,
        progress: Progress | None = None,
    ) -> None:
        self.graph = graph
        self.request = request
        self.step = np.zeros(1, np.int64)
        self._scope = scope
        self._keep: list[Any] = []
        types = [concrete_types(graph.program, dict(feeds)) for feeds in request.feeds]
        self._lowering = GraphLowering(graph, types, request.sizes, seed, len(graph.places))
        self.tasks = self._lowering.run()
        self._place(share)
        self._build(threads, progress)

    # --- memory -------------------------------------------------------------------------------------------------------

    def _place(self, share: bool) -> None:
        graph, low = self.graph, self._lowering
        block = graph.program.global_block()
        self._address: dict[Buffer, int] = {}
        self._space: dict[Buffer, int] = {}
        self.memory: list[MemoryPlan] = []
        self._arenas: list[Arena] = []
        reduced = [n for node in graph.nodes if node.kind.endswith("all_reduce") for n in node.op.inputs["X"]]
        for d in range(len(graph.places)):
            for name in [*dict(self.request.feeds[d]), *self._fetched(d)]:
                low.buffer(name, d)
            mine = {b: n for (n, where), b in low.buffers.items() if where == d}
            placed = [b for b, n in mine.items() if block.var(n).persistable]
            kept = [b for b, n in mine.items() if n in dict(self.request.feeds[d]) or n in self.request.fetches]
            kept = [b for b in kept if b not in placed]
            pinned = [low.buffer(n, d) for n in reduced]
            tasks = [t for t in self.tasks if any(b in mine for b in (*t.reads, *t.writes)) or t.home == d]
            plan, same = plan_memory([_only(t, mine) for t in tasks], placed, kept, pinned, share=share)
            arena = Arena(plan.nbytes)
            self.memory.append(plan)
            self._arenas.append(arena)
            for b, offset in plan.offsets.items():
                self._address[b], self._space[b] = arena.address + offset, d
            for b in placed:
                self._address[b], self._space[b] = self._scope.address(b.name, d), -1
            for b, other in same.items():
                self._address[b], self._space[b] = self._scope.address(other.name, d), -1

    def _fetched(self, device: int) -> list[str]:
        """Return fetches that exist on a device: those that its program writes, is fed or keeps."""
        types = self._lowering.types[device]
        for name in self.request.fetches:
            if name not in types:
                self.graph.program.global_block().var(name)
                raise PeError(f"variable '{name}' gets no value in this program", hint="fetch a variable that an op writes")
        return list(self.request.fetches)

    # --- tape ---------------------------------------------------------------------------------------------------------

    def _build(self, threads: int, progress: Progress | None) -> None:
        instances = {c: Instance(c.kernel, c.dtype, c.second) for t in self.tasks for c in t.calls}
        found = addresses(instances.values(), progress)
        instructions: list[Instruction] = []
        begins, ends = [], []
        for i, task in enumerate(self.tasks):
            begins.append(len(instructions))
            for call in task.calls:
                instructions.append(self._instruction(i, call, instances[call]))
            ends.append(len(instructions))
        made = []
        if threads > 1:
            chained = threads <= len(self.graph.places)
            waits = dependencies(self.tasks, self._ranges, chained)
            made = chains(self.tasks, waits, begins, ends)
        self.tape = Tape(instructions, found, made, threads)

    def _instruction(self, task: int, call: Call, instance: Instance) -> Instruction:
        words: list[int] = []
        status = None
        for i, arg in enumerate(call.args):
            if arg is STATUS:
                status = i
                words.append(0)
            else:
                words.append(self._word(arg))
        return Instruction(instance, tuple(words), task, status)

    def _word(self, arg: Any) -> int:
        if isinstance(arg, (Buffer, Offset)):
            return self._address_of(arg)
        if arg is STEP:
            return int(self.step.ctypes.data)
        if isinstance(arg, (Table, Numbers)):
            values = arg.values if isinstance(arg, Numbers) else [self._address_of(b) for b in arg.buffers]
            array = np.array([*values, 0], np.int64)
            self._keep.append(array)
            return int(array.ctypes.data)
        return word(arg)

    def _address_of(self, arg: Buffer | Offset) -> int:
        if isinstance(arg, Offset):
            return self._address[arg.buffer] + arg.elements * arg.buffer.type.numpy.itemsize
        return self._address[arg]

    def _ranges(self, task: Task) -> tuple[list[Range], list[Range]]:
        def of(b: Buffer) -> Range:
            return self._space[b], self._address[b], self._address[b] + max(1, b.type.nbytes)

        shard = _shard(task)
        if shard is not None:
            low, high = shard

            def part(b: Buffer) -> Range:
                return self._space[b], self._address[b] + low * b.type.numpy.itemsize, self._address[b] + high * b.type.numpy.itemsize

            return [part(b) for b in task.reads], [part(b) for b in task.writes]
        return [of(b) for b in task.reads], [of(b) for b in (*task.writes, *task.scratch)]

    # --- running ------------------------------------------------------------------------------------------------------

    def view(self, name: str, device: int) -> np.ndarray[Any, Any]:
        """Return an array over a variable's memory on a device."""
        b = self._lowering.buffers[(name, device)]
        if self._space[b] < 0:
            return self._scope.view(name, device)
        return self._arenas[device].view(self.memory[device].offsets[b], b.type)

    def run(self, feeds: Sequence[Mapping[str, np.ndarray[Any, Any]]], step: int) -> list[dict[str, np.ndarray[Any, Any]]]:
        """Feed, run the tape, and copy out what is fetched.

        Args:
            feeds: per device: arrays of the request's types.
            step: number of the step; random ops depend on it.

        Returns:
            Per active device: name -> value.

        Raises:
            PeError: a kernel reported an error; it names the layer and the value.
        """
        for d, given in enumerate(feeds):
            for name, value in given.items():
                np.copyto(self.view(name, d), value)
        self.step[0] = step
        failed = self.tape.run()
        if failed is not None:
            instruction, report = failed
            node = self.graph.nodes[self.tasks[instruction.op].node]
            raise failure(report, node.op, step)
        return [{name: self.view(name, d).copy() for name in self.request.fetches} for d in self.graph.active]

    @property
    def nbytes(self) -> int:
        """Bytes of all arenas."""
        return sum(m.nbytes for m in self.memory)


def _shard(task: Task) -> tuple[int, int] | None:
    if task.calls and task.calls[0].kernel.name.startswith("pe_cli.collectives"):
        return task.calls[0].args[4], task.calls[0].args[5]
    return None


def _only(task: Task, mine: Mapping[Buffer, str]) -> Task:
    """Return the part of a task that touches one device's buffers."""
    shared = task.shares if all(b in mine for b in task.shares) else {}
    over = task.takes_over if all(b in mine for b in task.takes_over) else {}
    reads = [b for b in task.reads if b in mine]
    writes = [b for b in task.writes if b in mine]
    return Task(task.node, task.home, task.calls, reads, writes, task.scratch, over, shared)
