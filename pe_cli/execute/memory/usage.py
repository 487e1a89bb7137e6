"""What the memory of a plan holds, by category, and what is alive where it needs most."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import Place
from pe_cli.devices.aligned_memory import aligned
from pe_cli.execute.executor import Executor
from pe_cli.execute.plan.plan import Plan
from pe_cli.graph.ssa import Collective
from pe_cli.kernels.calls import Buffer
from pe_cli.ops.define.registry import GRAD, forward_name
from pe_cli.program.ir import Block, Parameter, Role

#: Categories in the order of reports; the first three live between steps.
CATEGORIES = (
    "parameters",
    "optimizer state",
    "other state",
    "gradients",
    "activations",
    "activation gradients",
    "feeds",
    "workspace",
)
KEPT = CATEGORIES[:3]


@dataclass(frozen=True)
class Alive:
    """A variable that is alive at the peak.

    Args:
        name: of the variable.
        kind: category.
        nbytes: its size.
    """

    name: str
    kind: str
    nbytes: int


@dataclass(frozen=True)
class Usage:
    """Memory of one device.

    Args:
        place: the device.
        kept: category -> bytes that stay between steps; 0 where the device uses another's copy.
        arena: bytes of a step's temporaries, as they are laid out.
        peak: most bytes of temporaries that are alive at a time, in program order.
        at: the op where that is.
        at_peak: category -> bytes alive there.
        alive: what is alive there, largest first.
        whole: category -> bytes of all temporaries, as if none shared memory.
    """

    place: Place
    kept: dict[str, int]
    arena: int
    peak: int
    at: str
    at_peak: dict[str, int]
    alive: tuple[Alive, ...]
    whole: dict[str, int]


def usage(executor: Executor, plan: Plan) -> list[Usage]:
    """Return what the memory of every device holds in one of an executor's plans."""
    return [_usage(executor, plan, d) for d in range(len(plan.graph.places))]


def _usage(executor: Executor, plan: Plan, d: int) -> Usage:
    block = plan.graph.program.main_block
    state = _optimizer_state(block)
    scope = executor.scope
    kept: Counter[str] = Counter(dict.fromkeys(KEPT, 0))
    for v in block.vars.values():
        if v.persistable and v.name in scope:
            # With Reduce, devices read a parameter in its owner's memory, which counts once.
            own = d == 0 or scope.spot(v.name, d).memory is not scope.spot(v.name, 0).memory
            kept[_kind(block, v.name, state)] += aligned(v.type.nbytes) if own else 0
    offsets = plan.memory[d].plan.offsets
    names = {b: b.name for b in offsets}
    kinds = {b: "workspace" if b.name == "scratch" else _kind(block, b.name, state) for b in offsets}
    alive = _lifetimes(plan, d, offsets, executor.build.memory_optimize)
    best, at, peak = 0, 0, -1
    for i, buffers in enumerate(alive):
        size = sum(_bytes(offsets, buffers).values())
        # The first of equal peaks, which a reader finds earlier in the model.
        if size > peak:
            best, at, peak = i, plan.tasks[i].node, size
    there = alive[best] if alive else []
    node = plan.graph.nodes[at] if plan.tasks else None
    whole: Counter[str] = Counter()
    for b in offsets:
        whole[kinds[b]] += aligned(b.type.nbytes)
    shown, at_peak = [], Counter[str]()
    fed = {b for b in there if kinds[b] == "feeds"}
    # Feeds come last, so that where an op writes into a feed's bytes the feed's name is shown.
    for nbytes, b in _owners(offsets, [b for b in there if b not in fed] + [b for b in there if b in fed]):
        at_peak[kinds[b]] += nbytes
        shown.append(Alive(names[b], kinds[b], nbytes))
    shown.sort(key=lambda a: (-a.nbytes, a.name))
    where = f"{node.title} {node.scope.strip('/')}".strip() if node else "nothing"
    return Usage(
        plan.graph.places[d], dict(kept), plan.memory[d].plan.nbytes, max(0, peak), where,
        _ordered(at_peak), tuple(shown), _ordered(whole),
    )  # fmt: skip


def _ordered(found: Counter[str]) -> dict[str, int]:
    return {c: found[c] for c in CATEGORIES if found[c]}


def _optimizer_state(block: Block) -> set[str]:
    """Return the variables that updates write."""
    return {n for op in block.ops if op.role is Role.OPTIMIZE for n in op.output_names()}


def _kind(block: Block, name: str, state: set[str]) -> str:
    v = block.vars.get(name)
    found = "activations"
    if v is None:
        found = "workspace"
    elif isinstance(v, Parameter):
        found = "parameters"
    elif v.persistable:
        found = "optimizer state" if name in state else "other state"
    elif v.is_data:
        found = "feeds"
    elif GRAD in name:
        of = block.vars.get(forward_name(name))
        found = "gradients" if isinstance(of, Parameter) else "activation gradients"
    elif name in state:
        found = "workspace"
    return found


def _lifetimes(plan: Plan, d: int, offsets: dict[Buffer, int], share: bool) -> list[list[Buffer]]:
    """Return which buffers of a device are alive at every task."""
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    for i, task in enumerate(plan.tasks):
        for b in (*task.reads, *task.writes, *task.scratch):
            # What lies in the scope has no offset in the arena.
            if b in offsets:
                first.setdefault(b, i)
                last[b] = i
    end = len(plan.tasks) - 1
    reduced = {n for node in plan.graph.nodes if isinstance(node, Collective) for n in node.names}
    always = {*dict(plan.request.feeds[d]), *plan.request.fetches, *reduced}
    begin_at: dict[int, list[Buffer]] = defaultdict(list)
    end_at: dict[int, list[Buffer]] = defaultdict(list)
    for b in offsets:
        # The plan gives these buffers bytes from beginning to end, whatever tasks touch them when.
        whole = not share or b not in first or (b.name in always and b.name != "scratch")
        begin_at[0 if whole else first[b]].append(b)
        end_at[end if whole else last[b]].append(b)
    now: dict[Buffer, None] = {}
    out = []
    for i in range(len(plan.tasks)):
        now |= dict.fromkeys(begin_at[i])
        out.append(list(now))
        for b in end_at[i]:
            now.pop(b, None)
    return out


def _bytes(offsets: dict[Buffer, int], buffers: Sequence[Buffer]) -> dict[int, int]:
    """Return offset -> bytes; buffers at one offset are the same bytes."""
    found: dict[int, int] = {}
    for b in buffers:
        found[offsets[b]] = max(found.get(offsets[b], 0), aligned(b.type.nbytes))
    return found


def _owners(offsets: dict[Buffer, int], buffers: Sequence[Buffer]) -> list[tuple[int, Buffer]]:
    """Return (bytes, buffer) for every place that is taken; where several names stand for it, the last."""
    last = {offsets[b]: b for b in buffers}
    return [(size, last[at]) for at, size in _bytes(offsets, buffers).items()]
