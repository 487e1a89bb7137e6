"""Programs made ready to run on places of a scope, and kept until they change."""

from __future__ import annotations

import threading
from dataclasses import field
from weakref import WeakKeyDictionary

from pe_cli.collectives.protocol import Summing
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy
from pe_cli.core.types import TensorType
from pe_cli.execute.executor import Executor as CoreExecutor
from pe_cli.execute.seeds import seed_of
from pe_cli.paddle.errors import EnforceNotMet
from pe_cli.paddle.fluid import feeding
from pe_cli.paddle.fluid.constant_sizes import lasts
from pe_cli.paddle.fluid.flags import get_flags
from pe_cli.paddle.fluid.scope import Key, Places, Scope, Store
from pe_cli.paddle.fluid.whole_gradients import decay_all_rows
from pe_cli.program.ir import Program, Variable


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
        # With Reduce on several devices each owns some parameters, and all share one copy.
        alone = self.build.reduce_strategy == "Reduce" and len(self.places) > 1
        return self.places, alone if self.shared is None else self.shared


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
        settled: changes of the scope up to which all values are known to be where they are needed.
    """

    program: Program
    executor: CoreExecutor
    reads: dict[str, TensorType]
    keeps: dict[str, TensorType]
    writes: list[str]
    initialises: bool
    steps: int = 0
    settled: int = -1

    def settle(self, root: Scope, key: Key) -> int:
        """Bring what is read to where it is needed, and return the scope's changes so far; nothing is looked at without new ones.

        Raises:
            EnforceNotMet: a variable has no value; a RuntimeError.
        """
        changes = root.changes
        # `changes` counts what anyone wrote into the scope: while it stands still, all values are where the last step left them.
        if changes == self.settled:
            return changes
        for name, kind in self.reads.items():
            if not root.has_value(name):
                hint = "run the startup program in this scope first"
                raise EnforceNotMet(f"variable '{name}', {kind}, has no value yet", hint=hint)
        root.bring(key, self.keeps)
        return root.changes

    def count(self, root: Scope, key: Key, changes: int) -> None:
        """Count a run, and say what it wrote.

        Args:
            root: scope.
            key: which core scope it ran in.
            changes: of the scope, before.
        """
        self.steps += 1
        if changes != self.settled:
            root.wrote(key, self.writes)
            changes += bool(self.writes)
        # Another thread may have written between the two looks.
        # Where somebody else wrote meanwhile, the next run looks again.
        self.settled = changes if root.changes == changes else -1


#: Kernels are compiled by one thread at a time.
PREPARING = threading.RLock()
#: Forms of one program that are kept for one set of places.
MOST = 64
#: Program -> its version, and the types of what lives between its steps.
_LASTING: WeakKeyDictionary[Program, tuple[int, dict[str, TensorType]]] = WeakKeyDictionary()


def version_of(program: Program) -> int:
    """Return a number that is another one after every change of a program."""
    return getattr(program, "version", len(program.global_block().ops))


def prepare(program: Program, root: Scope, setting: Setting, fed: frozenset[str], levels: feeding.Levels) -> Prepared:
    """Return a program ready to run; made on first need.

    Args:
        program: not changed.
        root: scope.
        setting: devices and strategies.
        fed: names of what it is fed.
        levels: of the sequences among these.
    """
    version = version_of(program)
    known = _LASTING.get(program)
    if known is None or known[0] != version:
        block = program.global_block()
        # Types of variables that ops have not settled yet would make a store that no later program fits.
        types = {v.name: v.type for v in block.vars.values() if lasts(v) and v.type.known and _used(v)}
        known = _LASTING[program] = version, types
    types = known[1]
    store: Store = root.store(setting.key, types)
    kept = store.executors.setdefault(program, {})
    # Everything that changes a plan: the program, how it is run, what is fed, the seed, and the flag that checks for NaN.
    key = (version, setting, fed, levels, program.random_seed, _check_nan_inf())
    if key not in kept:
        # Random ops go on where another form of the program was: a new feed must not repeat the first step's draws.
        steps = max((p.steps for p in kept.values()), default=0)
        kept[key] = _made(program, store, setting, fed, levels, types)
        kept[key].steps = steps
        while len(kept) > MOST:
            del kept[next(iter(kept))]
    found: Prepared = kept[key]
    return found


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
        # A persistable variable that is fed counts as data in this form.
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
        # Read before any op writes it: only then its value has to be there already.
        reads.update({n: keeps[n] for n in op.input_names() if n in keeps and n not in written})
        written.update(op.output_names())
    writes = [n for n in keeps if n in written]
    return Prepared(copy, executor, reads, keeps, writes, initialises=set(writes) == written)


def _check_nan_inf() -> bool:
    return bool(get_flags("FLAGS_check_nan_inf")["FLAGS_check_nan_inf"])
