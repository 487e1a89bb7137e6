"""What a step will need, before a byte is allocated or a kernel compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pe_cli.core.errors import PeError
from pe_cli.core.strategy import BuildStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.memory import aligned
from pe_cli.execute.executor import split_sizes
from pe_cli.execute.lower import GraphLowering, device_types
from pe_cli.execute.plan import Request, plan_devices
from pe_cli.graph.pipeline import apply_passes
from pe_cli.graph.replicate import replicate
from pe_cli.program.ir import Program


@dataclass(frozen=True)
class Estimate:
    """Memory of one device.

    Args:
        place: the device.
        persistable: bytes of parameters and everything else that lives between steps.
        temporaries: bytes of the arena of a step.
        unshared: what the arena would be if no two buffers shared bytes.
        kernels: number of different kernels that a step needs.
    """

    place: Place
    persistable: int
    temporaries: int
    unshared: int
    kernels: int


def feed_types(program: Program, samples: int) -> dict[str, TensorType]:
    """Return the types of a batch for the feeds that a program reads.

    Raises:
        PeError: a feed has an axis, besides the batch, whose size only the data shows.
    """
    read = {n for op in program.global_block().ops for n in op.input_names()}
    found = {}
    for v in program.list_vars():
        if not v.is_data or v.name not in read:
            continue
        batch, rest = v.shape[:1], v.shape[1:]
        if -1 in rest:
            raise PeError(
                f"feed '{v.name}' is {v.type}: the size of one of its axes is only known from data",
                at=v.at,
                hint="give the feed its full shape",
            )
        found[v.name] = TensorType((samples, *rest) if batch == (-1,) else v.shape, v.dtype)
    return found


def split_types(types: Mapping[str, TensorType], program: Program, sizes: Sequence[int]) -> list[dict[str, TensorType]]:
    """Return the types of every device's part of a batch."""
    block = program.global_block()
    batched = {name for name in types if block.var(name).shape[:1] == (-1,)}
    return [
        {name: kind.with_shape(n, *kind.shape[1:]) if name in batched else kind for name, kind in types.items()}
        for n in sizes
    ]


def estimate_memory(
    program: Program,
    places: Sequence[Place],
    samples: int,
    *,
    build: BuildStrategy | None = None,
    fetches: Sequence[str] = (),
) -> list[Estimate]:
    """Plan the memory of a step without allocating it.

    Args:
        program: training or evaluation.
        places: devices.
        samples: of a batch, over all devices.
        build: strategy of the graph.
        fetches: variables that are read after the step.

    Returns:
        One entry a device.

    Raises:
        PeError: sizes that only a batch shows do not fit, or an op that a device cannot run.
    """
    strategy = build or BuildStrategy()
    sizes = split_sizes(samples, len(places))
    parts = split_types(feed_types(program, samples), program, sizes)
    active = [d for d, n in enumerate(sizes) if n] or [0]
    graph = replicate(apply_passes(program, strategy, fetches), places, strategy, active=active)
    types = device_types(graph, parts)
    low = GraphLowering(graph, types, sizes, 0, len(places))
    tasks = low.run()
    request = Request(tuple(tuple(sorted(p.items())) for p in parts), tuple(sizes), tuple(fetches))
    kept = sum(aligned(v.type.nbytes) for v in program.list_vars() if v.persistable)
    found = plan_devices(graph, request, low, tasks, strategy)
    out = []
    for d, memory in enumerate(found):
        kernels = {(c.kernel.name, c.dtype, c.second) for t in tasks if t.home == d for c in t.calls}
        out.append(Estimate(places[d], kept, memory.plan.nbytes, memory.plan.unshared, len(kernels)))
    return out
