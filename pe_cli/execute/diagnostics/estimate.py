"""What a step will need, before a byte is allocated or a kernel compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.strategy import BuildStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.aligned_memory import aligned
from pe_cli.devices.protocol import Carried, Spot, Work, device
from pe_cli.execute.batch_split import Sizes, split_sizes
from pe_cli.execute.lowering.batch_rows import Whole
from pe_cli.execute.lowering.context import GraphLowering
from pe_cli.execute.lowering.nodes import lower
from pe_cli.execute.lowering.options import lowering
from pe_cli.execute.lowering.tasks import Task
from pe_cli.execute.lowering.types import concrete_types, device_types
from pe_cli.execute.memory.device_memory import plan_devices
from pe_cli.execute.numeric_settings import USUAL, Numerics
from pe_cli.execute.request import Request, fetched_rows
from pe_cli.graph.compile import Purpose, Stages, compile_program
from pe_cli.graph.lod_resolution import Sequences
from pe_cli.graph.ssa import Graph
from pe_cli.kernels.calls import Buffer
from pe_cli.program.ir import Program, Variable

Array = np.ndarray[Any, Any]
#: Rows of a sequence where only data shows them.
ASSUMED_ROWS = 16


@dataclass(frozen=True)
class Estimate:
    """Memory of one device.

    Args:
        place: the device.
        persistable: bytes of parameters and everything else that lives between steps.
        temporaries: bytes of the arena of a step.
        unshared: what the arena would be if no two buffers shared bytes.
        carried: what brings feeds to it, and values back.
        kernels: number of different kernels that a step needs.
        kept: variable -> its bytes of `persistable`.
    """

    place: Place
    persistable: int
    temporaries: int
    unshared: int
    kernels: int
    carried: Carried
    kept: Mapping[str, int] = field(default_factory=dict)

    @property
    def own(self) -> int:
        """Bytes of the device's memory."""
        return self.persistable + self.temporaries + self.carried.rooms


def beside(*found: Estimate) -> Estimate:
    """Return what a device needs for several programs of one scope that run one after the other.

    Their temporaries take turns in the same bytes of the host; other devices keep those of each, and what carries their feeds.
    """
    kept = {name: size for each in found for name, size in each.kept.items()}
    # On the host programs share one arena, one after the other; on a card each has its own, for graphs of launches keep addresses.
    join = max if device(found[0].place.kind).is_host else sum
    temporaries, unshared = join(each.temporaries for each in found), join(each.unshared for each in found)
    beside = Carried(sum(each.carried.pinned for each in found), sum(each.carried.rooms for each in found))
    return Estimate(found[0].place, sum(kept.values()), temporaries, unshared, max(each.kernels for each in found), beside, kept)


def batch_types(sequences: Sequences, sizes: Sequence[int]) -> list[dict[str, TensorType]]:
    """Return the types of every device's part of a batch, for the feeds that a program reads.

    Sequences count ASSUMED_ROWS rows each, lengths that are fed are that number, too.

    Args:
        sequences: a program and its LoD.
        sizes: samples of every device.

    Raises:
        PeError: a feed has an axis, besides the batch, whose size only the data shows.
    """
    program = sequences.program
    read = {n for op in program.top_ops for n in op.input_names()}
    made = {recipe.name for recipe in sequences.recipes}
    needed = read | {source for recipe in sequences.recipes for source in recipe.sources}
    data = [v for v in program.list_vars() if v.is_data and v.name in needed and v.name not in made]
    parts = [{v.name: _type_of(v, sequences, n) for v in data} for n in sizes]
    if not made:
        return parts
    arrays = [{name: _stand_in(name, kind, sequences) for name, kind in part.items()} for part in parts]
    # Recipes are run on stand-ins, because the size of what they make follows from values.
    complete = sequences.complete(arrays)
    types = [{name: TensorType(a.shape, str(a.dtype)) for name, a in part.items()} for part in complete]
    return [{name: kind for name, kind in part.items() if name in read} for part in types]


def _type_of(v: Variable, sequences: Sequences, samples: int) -> TensorType:
    batch, rest = v.shape[:1], v.shape[1:]
    if -1 in rest:
        raise PeError(
            f"feed '{v.name}' is {v.type}: the size of one of its axes is only known from data",
            at=v.at,
            hint="give the feed its full shape",
        )
    for levels in sequences.feeds.values():
        if v.name in levels:
            return TensorType((samples * ASSUMED_ROWS ** levels.index(v.name) + 1,), v.dtype)
    if batch != (-1,):
        return v.type
    return TensorType((samples * ASSUMED_ROWS ** len(sequences.feeds.get(v.name, ())), *rest), v.dtype)


def _stand_in(name: str, kind: TensorType, sequences: Sequences) -> Array:
    """Return an array to make other arrays from: offsets of equal sequences, or lengths."""
    if any(name in levels for levels in sequences.feeds.values()):
        return np.arange(kind.shape[0], dtype=kind.numpy) * ASSUMED_ROWS
    return np.broadcast_to(np.asarray(ASSUMED_ROWS, kind.numpy), kind.shape)


def step_on_paper(
    program: Program,
    places: Sequence[Place],
    samples: int,
    *,
    build: BuildStrategy | None = None,
    fetches: Sequence[str] = (),
    numerics: Numerics = USUAL,
) -> tuple[list[Work], dict[Buffer, Spot]]:
    """Return a step's work on the first device, in order, and where each of its buffers would lie, in no memory.

    Arguments and errors as of `estimate_memory`.
    """
    strategy = build or BuildStrategy()
    lowered = _lowered(program, places, samples, strategy, fetches, len(places), numerics)
    memory, *_ = plan_devices(lowered.graph, lowered.request, lowered.low, lowered.tasks, strategy, len(places))
    where, named, at = dict(memory.plan.offsets), dict[str, int](), aligned(memory.plan.nbytes)
    for b in (*memory.placed, *memory.same.values()):
        if b.name not in named:
            named[b.name] = at
            at += aligned(b.type.nbytes)
        where[b] = named[b.name]
    lasting = {*memory.placed, *memory.same}
    where |= {b: named[other.name] for b, other in memory.same.items()}
    spots = {b: Spot(None, offset, -1 if b in lasting else 0) for b, offset in where.items()}
    return [task.work(task.calls) for task in lowered.tasks if task.home == 0], spots


@dataclass(frozen=True)
class _Lowered:
    """A program for a batch, as calls of kernels."""

    stages: Stages
    graph: Graph
    request: Request
    low: GraphLowering
    tasks: list[Task]


def _lowered(
    program: Program, places: Sequence[Place], samples: int, build: BuildStrategy, fetches: Sequence[str], threads: int,
    numerics: Numerics, processes: int = 1,
) -> _Lowered:
    of_all = split_sizes(samples, len(places) * processes)
    sizes = of_all[: len(places)]
    stages = compile_program(program, Purpose(places, build, processes, threads=threads, precision=numerics.precision), fetches)
    everyone = batch_types(stages.sequences, of_all)
    parts = everyone[: len(places)]
    graph = stages.executed([d for d, n in enumerate(sizes) if n] or [0])
    types = device_types(graph, parts, [*zip(everyone, of_all, strict=True)] if processes > 1 else ())
    request = Request(tuple(tuple(sorted(p.items())) for p in parts), tuple(sizes), tuple(fetches))
    whole = Whole([concrete_types(graph.program, part) for part in everyone], Sizes(of_all), 0, len(places)) if processes > 1 else None
    low = lowering(graph, types, request.sizes, numerics, threads=threads, whole=whole)
    return _Lowered(stages, graph, request, low, lower(low))


def estimate_memory(
    program: Program,
    places: Sequence[Place],
    samples: int,
    *,
    build: BuildStrategy | None = None,
    fetches: Sequence[str] = (),
    threads: int = 0,
    numerics: Numerics = USUAL,
    processes: int = 1,
) -> list[Estimate]:
    """Plan the memory of a step without allocating it.

    Args:
        program: training or evaluation.
        places: devices of a process.
        samples: of a batch, over all devices of all processes.
        build: strategy of the graph.
        fetches: variables that are read after the step.
        threads: of all devices of a process; 0 for one each.
        numerics: how kernels compute, which decides about scratch memory.
        processes: that share every batch.

    Returns:
        One entry per device of the first process.

    Raises:
        PeError: sizes that only a batch shows do not fit, or an op that a device cannot run.
    """
    strategy = build or BuildStrategy()
    threads = threads or len(places)
    lowered = _lowered(program, places, samples, strategy, fetches, threads, numerics, processes)
    graph, tasks = lowered.graph, lowered.tasks
    shared = lowered.stages.shared
    kept = {v.name: aligned(v.type.nbytes) for v in graph.program.persistables()}
    found = plan_devices(graph, lowered.request, lowered.low, tasks, strategy, threads)
    late = _read_late(lowered)
    out = []
    for d, memory in enumerate(found):
        calls = [c for t in tasks if t.home == d for c in t.calls]
        kernels = {(c.kernel.name, c.dtype, c.second) for c in calls}
        # What devices share is counted for the first of them alone.
        own = {name: size for name, size in kept.items() if not d or name not in shared}
        feeds = [kind for _, kind in lowered.request.feeds[d]]
        beside = device(places[d].kind).carried(calls, feeds, late if d in graph.active else [])
        out.append(Estimate(places[d], sum(own.values()), memory.plan.nbytes, memory.plan.unshared, len(kernels), beside, own))
    return out


def _read_late(lowered: _Lowered) -> list[TensorType]:
    """Return the types of what is read of a step when the next one has begun; see `Plan.run`."""
    graph, request = lowered.graph, lowered.request
    if len(graph.active) > 1 or fetched_rows(graph, request):
        return []
    (d,) = graph.active
    return [lowered.low.value(name, d).type for name in request.fetches]
