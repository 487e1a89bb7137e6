"""Runs one step of a program on places of a scope: what every executor of fluid comes down to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from pe_cli.collectives.protocol import Summing
from pe_cli.core.errors import did_you_mean
from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy
from pe_cli.core.types import TensorType
from pe_cli.execute.executor import Executor as CoreExecutor
from pe_cli.execute.plan.distributed import Told
from pe_cli.execute.plan.dynamic_programs import DynamicProgram, is_dynamic
from pe_cli.execute.seeds import seed_of
from pe_cli.ops.define.lod import Leveled
from pe_cli.paddle.errors import EnforceNotMet, FluidTypeError, FluidValueError
from pe_cli.paddle.fluid import feeding
from pe_cli.paddle.fluid.flags import get_flags
from pe_cli.paddle.fluid.lod_tensor import LoDTensor, to_lengths
from pe_cli.paddle.fluid.profiler import RECORDER
from pe_cli.paddle.fluid.py_func_results import freed
from pe_cli.paddle.fluid.scope import Key, Places, Scope, Store
from pe_cli.paddle.fluid.whole_gradients import decay_all_rows
from pe_cli.program.ir import Program, Role, Variable

Array = np.ndarray[Any, Any]


@dataclass
class Prepared:
    """A program ready for a core scope.

    Attributes:
        program: a copy, with what is fed marked as data.
        executor: the core's.
        reads: persistable variables that must have a value before a run.
        keeps: all persistable variables.
        writes: those that a run writes.
        initialises: writes nothing but persistable variables.
        steps: runs so far.
    """

    program: Program
    executor: CoreExecutor
    reads: dict[str, TensorType]
    keeps: dict[str, TensorType]
    writes: list[str]
    initialises: bool
    steps: int = 0


@dataclass(frozen=True)
class Setting:
    """How a program is run.

    Args:
        places: devices.
        build: strategy of the graph.
        execution: strategy of the schedule.
        worker: a number for each of several threads that run one program at once; each gets its own temporaries.
        shared: devices use one copy of the parameters; default: as the strategy says.
        peers: trainers that sum their gradients; None for one.
    """

    places: Places
    build: BuildStrategy = field(default_factory=BuildStrategy)
    execution: ExecutionStrategy = field(default_factory=ExecutionStrategy)
    worker: int = 0
    shared: bool | None = None
    peers: Summing | None = None

    @property
    def key(self) -> Key:
        """Which core scope it runs in."""
        alone = self.build.reduce_strategy == "Reduce" and len(self.places) > 1
        return self.places, alone if self.shared is None else self.shared


#: What an entry of a fetch list stands for: a variable's name, or those of an array's tensors.
Wanted = str | tuple[str, ...]


def wanted_of(program: Program, fetch_list: Any) -> list[Wanted]:
    """Return what every entry of a fetch list stands for.

    Raises:
        FluidTypeError: something that is neither a variable, an array of tensors nor a name; a TypeError.
        FluidValueError: there is no such variable; a ValueError.
        NotThereYet: an array whose length only a step knows.
    """
    if isinstance(fetch_list, (str, Variable)):
        fetch_list = [fetch_list]
    known, arrays = program.global_block().vars, getattr(program, "named_arrays", {})
    found: list[Wanted] = []
    for wanted in _flat(fetch_list or []):
        name = wanted if isinstance(wanted, str) else getattr(wanted, "name", None)
        if isinstance(name, str) and name in arrays:
            found.append(arrays[name].written())
            continue
        if not isinstance(wanted, (str, Variable)) or name is None:
            raise FluidTypeError(f"fetch_list takes variables and names, got {wanted!r:.60}")
        if name not in known:
            raise FluidValueError(f"the program has no variable '{name}' to fetch", hint=did_you_mean(name, known))
        found.append(name)
    return found


def names_of(wanted: Sequence[Wanted]) -> list[str]:
    """Return the names of all variables that are fetched."""
    return [name for each in wanted for name in ([each] if isinstance(each, str) else each)]


def in_order(wanted: Sequence[Wanted], value_of: Callable[[str], Any]) -> list[Any]:
    """Return a value for every entry of a fetch list: a list of those of its tensors where it is an array."""
    return [value_of(each) if isinstance(each, str) else [value_of(name) for name in each] for each in wanted]


def _flat(values: Any) -> list[Any]:
    return [w for v in values for w in (_flat(v) if isinstance(v, (list, tuple)) else [v])]


def run(
    program: Program, scope: Scope, setting: Setting, parts: Sequence[Mapping[str, LoDTensor]], fetches: Sequence[str]
) -> list[dict[str, LoDTensor]]:
    """Run one step.

    Args:
        program: not changed.
        scope: values that live between steps.
        setting: devices and strategies.
        parts: per device: what it is fed, checked.
        fetches: names.

    Returns:
        Per device: name -> value with its sequences.

    Raises:
        EnforceNotMet: a variable without a value, sequences that an op misses, or a failing kernel; a RuntimeError.
    """
    root = scope.root()
    shown = [p for p in getattr(program, "prints", ()) if p.first_n < 0 or p.count < p.first_n]
    wanted, fetches = fetches, list(dict.fromkeys([*fetches, *(n for p in shown for n in p.names)]))
    if not program.global_block().ops and not fetches:
        return [{} for _ in parts]
    cut = _cut(program)
    values = _run_parts(cut, root, setting, parts, fetches) if cut else _run_once(program, root, setting, parts, fetches)
    for each in shown:
        each.count += 1
        each.look([merged([np.asarray(v[name]) for v in values]) for name in each.names])
    return [{name: v[name] for name in wanted} for v in values]


@dataclass(frozen=True)
class Step:
    """What a part of a program does not know by itself.

    Args:
        sizes: samples of each device.
        number: that random ops depend on.
    """

    sizes: Sequence[int]
    number: int


#: Program -> its version, and its parts where sizes that only values tell cut it.
_CUT: WeakKeyDictionary[Program, tuple[int, DynamicProgram | None]] = WeakKeyDictionary()


def _cut(program: Program) -> DynamicProgram | None:
    """Return the parts of a program, None for one that runs as a whole."""
    version = getattr(program, "version", len(program.global_block().ops))
    if program not in _CUT or _CUT[program][0] != version:
        free = freed(program) or program
        _CUT[program] = version, DynamicProgram(free.clone()) if is_dynamic(free) else None
    return _CUT[program][1]


def _run_parts(
    cut: DynamicProgram, root: Scope, setting: Setting, parts: Sequence[Mapping[str, LoDTensor]], fetches: Sequence[str]
) -> list[dict[str, LoDTensor]]:
    """Run one step of a program that is cut."""
    sizes = [feeding.samples_of(cut.program, part) for part in parts]

    def once(part: Program, feeds: list[dict[str, Any]], names: list[str], number: int) -> list[dict[str, Any]]:
        given = [{n: tensor_of(v) for n, v in feed.items()} for feed in feeds]
        found = _run_once(part, root, setting, given, names, Step(sizes, number))
        return [{name: leveled(t) for name, t in each.items()} for each in found]

    def kept(name: str) -> Array:
        found = root.find_var(name)
        if found is None:
            raise EnforceNotMet(f"variable '{name}' has no value yet", hint="run the startup program in this scope first")
        return np.asarray(found.get_tensor())

    given = [{name: leveled(t) for name, t in part.items()} for part in parts]
    return [{name: tensor_of(v) for name, v in each.items()} for each in cut.run(given, fetches, once, kept, root.write)]


def leveled(tensor: LoDTensor) -> Any:
    """Return a tensor as parts of a program hand it on."""
    return Leveled(tensor.array, tuple(tensor.lod())) if tensor.lod() else tensor.array


def tensor_of(value: Any) -> LoDTensor:
    """Return what parts of a program hand on as a tensor."""
    return LoDTensor(value.array, to_lengths(value.lod)) if isinstance(value, Leveled) else LoDTensor(value)


def _run_once(
    program: Program,
    root: Scope,
    setting: Setting,
    parts: Sequence[Mapping[str, LoDTensor]],
    fetches: Sequence[str],
    step: Step | None = None,
) -> list[dict[str, LoDTensor]]:
    """Run a program, or a part of one, as one plan."""
    with _PREPARING:
        ready = _prepare(program, root, setting, frozenset(parts[0]), feeding.levels_of(parts))
    for name, kind in ready.reads.items():
        if not root.has_value(name):
            hint = "run the startup program in this scope first"
            raise EnforceNotMet(f"variable '{name}', {kind}, has no value yet", hint=hint)
    root.bring(setting.key, ready.keeps)
    sequences, used = ready.executor.sequences, ready.executor.read.union(fetches)
    told = Told(setting.peers) if setting.peers else None
    mine = [feeding.arrays_of(part) for part in parts]
    whole = sequences.complete(mine, told.longest) if told else sequences.complete(mine)
    arrays = [{name: a for name, a in part.items() if name in used} for part in whole]
    sizes = step.sizes if step else [feeding.samples_of(program, part) for part in parts]
    with _PREPARING:
        batch = ready.executor.batch_of(arrays, sizes, fetches, told)
    with RECORDER.step(program.name or "program"):
        values = ready.executor.step(batch, step.number if step else _step(ready, program)).values
    ready.steps += 1
    every = setting.execution.num_iteration_per_drop_scope
    if every > 0 and ready.steps % every == 0:
        ready.executor.drop_unused()
    root.wrote(setting.key, ready.writes)
    lods = {name: sequences.lods.get(name, ()) for name in fetches}
    return [
        {name: LoDTensor(v[name], to_lengths([part[o].tolist() for o in lods[name]])) for name in fetches}
        for v, part in zip(values, whole, strict=False)
    ]


def _step(ready: Prepared, program: Program) -> int:
    """Return the number that random ops depend on; a program that only initialises draws the same every time."""
    return 0 if program.random_seed and ready.initialises else ready.steps


def _prepare(
    program: Program, root: Scope, setting: Setting, fed: frozenset[str], levels: feeding.Levels
) -> Prepared:
    block = program.global_block()
    types = {v.name: v.type for v in block.vars.values() if v.persistable and v.type.known and _used(v)}
    store: Store = root.store(setting.key, types)
    kept = store.executors.setdefault(program, {})
    version = getattr(program, "version", len(block.ops))
    key = (version, setting, fed, levels, program.random_seed, _check_nan_inf())
    if key not in kept:
        steps = max((p.steps for p in kept.values()), default=0)
        kept[key] = _made(program, store, setting, fed, levels, types)
        kept[key].steps = steps
        while len(kept) > MOST:
            del kept[next(iter(kept))]
    found: Prepared = kept[key]
    return found


#: Kernels are compiled by one thread at a time.
_PREPARING = threading.RLock()
#: Forms of one program that are kept for one set of places.
MOST = 64


def _used(v: Variable) -> bool:
    return not getattr(v, "undefined", False)


def _made(
    program: Program,
    store: Store,
    setting: Setting,
    fed: frozenset[str],
    levels: feeding.Levels,
    types: dict[str, TensorType],
) -> Prepared:
    copy = program.clone()
    decay_all_rows(copy)
    block = copy.global_block()
    for v in block.vars.values():
        v.is_data = v.is_data or v.name in fed
        v.persistable = v.name in types and v.name not in fed
    seed = seed_of(program)
    executor = CoreExecutor(
        copy,
        store.scope,
        build=setting.build,
        execution=setting.execution,
        seed=seed,
        check_nan_inf=_check_nan_inf(),
        levels=dict(levels),
        peers=setting.peers,
    )
    keeps = {v.name: v.type for v in block.vars.values() if v.persistable}
    written: set[str] = set()
    reads = {}
    for op in block.ops:
        reads.update({n: keeps[n] for n in op.input_names() if n in keeps and n not in written})
        written.update(op.output_names())
    writes = [n for n in keeps if n in written]
    return Prepared(copy, executor, reads, keeps, writes, initialises=set(writes) == written)


def _check_nan_inf() -> bool:
    return bool(get_flags("FLAGS_check_nan_inf")["FLAGS_check_nan_inf"])


def has_backward(program: Program) -> bool:
    """Return whether a program has gradient ops."""
    return any(op.role in (Role.BACKWARD, Role.LOSS) for op in program.global_block().ops)


def merged(values: Sequence[Array]) -> Array:
    """Join per-device values along axis 0; a scalar counts as [1]."""
    return values[0] if len(values) == 1 else np.concatenate([np.atleast_1d(v) for v in values])


class _One(np.ndarray[Any, Any]):
    """One number in a list: scripts print it with %f, as early NumPy let them."""

    def __repr__(self) -> str:
        return repr(np.asarray(self))

    def __float__(self) -> float:
        return float(self.item()) if self.size == 1 else super().__float__()

    def __int__(self) -> int:
        return int(self.item()) if self.size == 1 else super().__int__()


def as_fetched(name: str, value: LoDTensor, return_numpy: bool) -> Any:
    """Return a fetched value as an array, or as it is.

    Raises:
        EnforceNotMet: sequences, which an array would lose; a RuntimeError.
    """
    if not return_numpy:
        return value
    if value.lod():
        raise EnforceNotMet(f"'{name}' has sequences, which no array can show", hint="use return_numpy=False")
    return value.array.view(_One) if value.array.size == 1 else value.array
