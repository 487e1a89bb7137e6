"""Runs one step of a program on places of a scope: what every executor of fluid comes down to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from pe_cli.core.errors import did_you_mean
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.execute.plan.distributed import Told
from pe_cli.execute.plan.dynamic_programs import DynamicProgram
from pe_cli.execute.plan.program_parts import is_dynamic
from pe_cli.graph.lod_resolution import awaited
from pe_cli.ops.define.lod import Leveled
from pe_cli.ops.define.region import StateVaries
from pe_cli.ops.define.traits import HasRegions, Runs
from pe_cli.paddle.errors import EnforceNotMet, FluidTypeError, FluidValueError
from pe_cli.paddle.fluid import feeding
from pe_cli.paddle.fluid.lod_tensor import LoDTensor, to_lengths
from pe_cli.paddle.fluid.prepared import PREPARING, Prepared, Setting, prepare, version_of
from pe_cli.paddle.fluid.profiler import RECORDER
from pe_cli.paddle.fluid.py_func_results import freed
from pe_cli.paddle.fluid.scope import Scope
from pe_cli.program.ir import Program, Role, Variable

Array = np.ndarray[Any, Any]


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
            # An array that a loop has written stands for as many variables as it has entries.
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
    program: Program,
    scope: Scope,
    setting: Setting,
    parts: Sequence[Mapping[str, LoDTensor]],
    fetches: Sequence[str],
    *,
    plain: bool = False,
) -> list[dict[str, LoDTensor]]:
    """Run one step.

    Args:
        program: not changed.
        scope: values that live between steps.
        setting: devices and strategies.
        parts: per device: what it is fed, checked.
        fetches: names.
        plain: what is fetched must be without sequences.

    Returns:
        Per device: name -> value with its sequences.

    Raises:
        EnforceNotMet: a variable without a value, sequences that an op misses, or a failing kernel, or, before anything runs, sequences
            in what is fetched plain; a RuntimeError.
    """
    root = scope.root()
    shown = [p for p in getattr(program, "prints", ()) if p.first_n < 0 or p.count < p.first_n]
    # What `Print` layers show is fetched with the rest, and dropped from the result below; each name once.
    wanted, fetches = fetches, list(dict.fromkeys([*fetches, *(n for p in shown for n in p.names)]))
    # A startup program without parameters has nothing to run.
    if not program.global_block().ops and not fetches:
        return [{} for _ in parts]
    given = [{name: leveled(t) for name, t in part.items()} for part in parts]
    step = Step([feeding.samples_of(program, part) for part in parts], plain=frozenset(wanted if plain else ()))
    levels = feeding.levels_of(given)
    cut = _cut(program, levels)
    open_ = [] if cut else _kept_open(program)
    fetches = list(dict.fromkeys([*fetches, *open_]))
    try:
        found = _run_parts(cut, root, setting, given, fetches, step) if cut else _run_once(program, root, setting, given, fetches, step)
    except StateVaries:
        # Told while the step is planned: nothing has run yet. Sizes that are fed may grow from round to round, such as a feed without rows.
        cut = None if cut else _cut_at_loops(program, levels)
        if cut is None:
            raise
        found = _run_parts(cut, root, setting, given, fetches, step)
    values = [{name: tensor_of(v) for name, v in each.items()} for each in found]
    for name in open_:
        root.write(name, values[0][name].array)
    for each in shown:
        each.count += 1
        each.look([merged([np.asarray(v[name]) for v in values]) for name in each.names])
    return [{name: v[name] for name in wanted} for v in values]


#: Program -> its version, and the results that live on with sizes that follow from the batch.
_OPEN: WeakKeyDictionary[Program, tuple[int, list[str]]] = WeakKeyDictionary()


def _kept_open(program: Program) -> list[str]:
    """Return the results that a script has made persistable, as `last_hidden.persistable = True` does, whose sizes a step tells.

    They have no place in the store, which is laid out before; the scope has those of the first device.
    """
    version = version_of(program)
    if program not in _OPEN or _OPEN[program][0] != version:
        block = program.global_block()
        written = dict.fromkeys(name for op in block.ops for name in op.output_names())
        found = [name for name in written if name in block.vars and block.vars[name].persistable and not block.vars[name].type.known]
        _OPEN[program] = version, found
    return _OPEN[program][1]


@dataclass(frozen=True)
class Step:
    """What a part of a program does not know by itself.

    Args:
        sizes: samples of each device.
        number: that random ops depend on; None for the number of runs before.
        plain: what must have no sequences.
    """

    sizes: Sequence[int]
    number: int | None = None
    plain: frozenset[str] = frozenset()


#: Program -> its version, and by levels of its feeds its parts where sizes or sequences that only values tell cut it.
_CUT: WeakKeyDictionary[Program, tuple[int, dict[feeding.Levels, DynamicProgram | None]]] = WeakKeyDictionary()


def _cut(program: Program, levels: feeding.Levels) -> DynamicProgram | None:
    """Return the parts of a program, None for one that runs as a whole."""
    version = version_of(program)
    # Weak, and by version: the parts are made again when a script has appended something.
    if program not in _CUT or _CUT[program][0] != version:
        _CUT[program] = version, {}
    known = _CUT[program][1]
    if levels not in known:
        free = freed(program) or program
        first = awaited(free, dict(levels))
        made = DynamicProgram(free.clone(), first) if first or is_dynamic(free) else None
        if made is not None:
            # Draws go on where the parts for other levels are: they do not begin again.
            made.steps = max((each.steps for each in known.values() if each is not None), default=0)
        known[levels] = made
    return known[levels]


def _cut_at_loops(program: Program, levels: feeding.Levels) -> DynamicProgram | None:
    """Return the parts of a program whose loops go round on the host, as states change sizes; None where gradients need their rounds."""
    made = (freed(program) or program).clone()
    regions = [(op, op.definition.get(HasRegions)) for op in made.global_block().ops]
    loops = [op for op, trait in regions if trait is not None and trait.runs is Runs.WHILE]
    if not loops or any(op.outputs.get("Out") for op in loops):
        return None
    for op in loops:
        op.attrs = {**op.attrs, "varying": True}
    cut = _CUT[program][1][levels] = DynamicProgram(made, awaited(made, dict(levels)))
    return cut


def _run_parts(
    cut: DynamicProgram, root: Scope, setting: Setting, parts: Sequence[Mapping[str, Any]], fetches: Sequence[str], step: Step
) -> list[dict[str, Any]]:
    """Run one step of a program that is cut."""

    def once(part: Program, feeds: list[dict[str, Any]], names: list[str], number: int) -> list[dict[str, Any]]:
        return _run_once(part, root, setting, feeds, names, Step(step.sizes, number, step.plain))

    def kept(name: str) -> Array:
        found = root.find_var(name)
        if found is None:
            raise EnforceNotMet(f"variable '{name}' has no value yet", hint="run the startup program in this scope first")
        return np.asarray(found.get_tensor())

    return cut.run(parts, fetches, once, kept, root.write)


def leveled(tensor: LoDTensor) -> Any:
    """Return a tensor as parts of a program hand it on."""
    return Leveled(tensor.array, tuple(tensor.lod())) if tensor.lod() else tensor.array


def tensor_of(value: Any) -> LoDTensor:
    """Return what parts of a program hand on as a tensor."""
    return LoDTensor(value.array, to_lengths(value.lod)) if isinstance(value, Leveled) else LoDTensor(value)


def _run_once(
    program: Program, root: Scope, setting: Setting, parts: Sequence[Mapping[str, Any]], fetches: Sequence[str], step: Step
) -> list[dict[str, Any]]:
    """Run a program, or a part of one, as one plan; values as parts of a program hand them on."""
    # Preparing changes what all threads share: plans and stores. Steps themselves run side by side.
    with PREPARING:
        ready = prepare(program, root, setting, frozenset(parts[0]), feeding.levels_of(parts))
    changes = ready.settle(root, setting.key)
    sequences, read = ready.executor.sequences, ready.executor.read
    for name in fetches if step.plain else ():
        # Told before the step: a training that is run again with return_numpy=False has not moved its parameters.
        if name in step.plain and sequences.lods.get(name):
            raise _with_sequences(name)
    told = Told(setting.peers) if setting.peers else None
    mine = [feeding.arrays_of(part) for part in parts]
    # Shapes that depend on the longest sequence must agree over all trainers, who therefore tell each other.
    whole = sequences.complete(mine, told.longest) if told else sequences.complete(mine)
    # Offsets that nothing reads stay on the host.
    arrays = [{name: a for name, a in part.items() if name in read or name in fetches} for part in whole]
    with PREPARING:
        batch = ready.executor.batch_of(arrays, step.sizes, fetches, told)
    number = _number(ready, program) if step.number is None else step.number
    with RECORDER.step(program.name or "program"):
        values = ready.executor.step(batch, number).values
    ready.count(root, setting.key, changes)
    every = setting.execution.num_iteration_per_drop_scope
    if every > 0 and ready.steps % every == 0:
        ready.executor.drop_unused()
    lods = {name: lod for name in fetches if (lod := sequences.lods.get(name))}
    if not lods:
        return [dict(v) for v in values]
    return [
        {n: Leveled(v[n], tuple(part[o].tolist() for o in lods[n])) if n in lods else v[n] for n in fetches}
        for v, part in zip(values, whole, strict=False)
    ]


def _number(ready: Prepared, program: Program) -> int:
    """Return the number that random ops depend on; a program that only initialises draws the same every time."""
    # A startup program with a seed gives the same first values every time that it is run, as in the original.
    return 0 if program.random_seed and ready.initialises else ready.steps


def has_backward(program: Program) -> bool:
    """Return whether a program has gradient ops."""
    return any(op.role in (Role.BACKWARD, Role.LOSS) for op in program.global_block().ops)


def merged(values: Sequence[Array]) -> Array:
    """Join per-device values along axis 0; a scalar counts as [1]."""
    # A number of each device becomes a row of its own.
    return values[0] if len(values) == 1 else np.concatenate([np.atleast_1d(v) for v in values])


class Fetched(np.ndarray[Any, Any]):
    """A fetched array, of which a part of one element counts as a number: scripts print it with %f, as early NumPy let them.

    What is computed of it is one, too; pickles of it are those of a plain array.
    """

    def __array_wrap__(self, array: Array, context: Any = None, return_scalar: bool = False) -> Any:
        return array[()] if return_scalar else array.view(Fetched)

    def __reduce__(self) -> Any:
        return np.asarray(self).__reduce__()

    def __repr__(self) -> str:
        return repr(np.asarray(self))

    def __float__(self) -> float:
        return float(self.item()) if self.size == 1 else super().__float__()

    def __int__(self) -> int:
        return int(self.item()) if self.size == 1 else super().__int__()


def _with_sequences(name: str) -> EnforceNotMet:
    return EnforceNotMet(f"'{name}' has sequences, which no array can show", hint="use return_numpy=False")


def as_fetched(name: str, value: LoDTensor, return_numpy: bool) -> Any:
    """Return a fetched value as an array, or as it is.

    Raises:
        EnforceNotMet: sequences, which an array would lose; a RuntimeError.
    """
    if not return_numpy:
        return value
    if value.lod():
        raise _with_sequences(name)
    return value.array.view(Fetched)
