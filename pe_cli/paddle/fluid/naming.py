"""Names that layers give to their outputs: those of the original, whatever ops a layer is made of here.

A layer of `original_names.py` has one prefix for everything that it makes, `reshape2_0` for example. Parameters are called
`<prefix>.w_0` and `<prefix>.b_0` when they are made. Outputs get their names when the layer is done, all other variables end with
`.at_<number>`.

Later names follow from how many names of each key the original's layer uses up. Layers that call functions of the script, such as `rnn`,
append what is their own `apart`, call those functions `plainly`, and use up the original's names with `use`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from typing import Any

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.ops.define.traits import AlongChannels
from pe_cli.paddle.fluid import unique_name
from pe_cli.program import defaults
from pe_cli.program.ir import Block, Parameter, Variable

#: Where an output's name comes from: its number behind `.tmp_`; PREFIX: it is the prefix; or another key of `unique_name`, where one that
#: ends with `.tmp_0` is that of a layer whose first variable it is.
Output = int | str
PREFIX = -1


@dataclass(frozen=True)
class Naming:
    """How the original names what a layer makes.

    Args:
        key: the prefix is `<key>_<number>`, unless a name is given.
        outputs: of each output; those beyond the last go on with its number.
        before: keys of further prefixes that are used up before, with how many.
        behind: prefixes of its own key that are used up after its own.
        made: how many names of a key in `outputs` are used up; the output has the last of them.
        exact: neither a bias nor an activation changes the numbers of outputs.
        temporaries: numbers that are used up before those of a bias and an activation; default: up to the last output's.
    """

    key: str
    outputs: tuple[Output, ...] = (0,)
    before: Mapping[str, int] = field(default_factory=dict)
    behind: int = 0
    made: int = 1
    temporaries: int = 0
    exact: bool = False

    @property
    def count(self) -> int:
        """Numbers that are used up before those of a bias and an activation."""
        return self.temporaries or max([o for o in self.outputs if isinstance(o, int)], default=-1) + 1


@dataclass
class Call:
    """A layer that is being appended.

    Attributes:
        prefix: of all its names.
        made: variables so far.
    """

    prefix: str
    made: int = 0

    def name_of(self, key: str) -> str:
        """Return the next name of a key: of a variable that may be no output, of state, or of something else."""
        # Temporaries are numbered apart (`at_`), as the layer may need more or fewer of them than the original.
        # The rate of a schedule is a result of Python's operators in the original.
        if key.endswith(".tmp") or key == "learning_rate":
            self.made += 1
            return f"{self.prefix}.at_{self.made - 1}"
        return unique_name.generate("_generated_var" if key == f"{self.prefix}.stat" else key)


#: The layer that is being appended, where its names are the original's.
CALL: ContextVar[Call | None] = ContextVar("CALL", default=None)


def use(counts: Mapping[str, int]) -> None:
    """Use up names, as the original's layer does.

    Args:
        counts: key -> how many; 0 and less use up none.
    """
    for key, count in counts.items():
        for _ in range(count):
            unique_name.generate(key)


def use_outside(counts: Mapping[str, int]) -> None:
    """Use up names, unless a layer that has names is being appended, which uses up all of its own; see `use`."""
    if CALL.get() is None:
        use(counts)


@contextmanager
def apart(key: str) -> Iterator[None]:
    """Append inside what has no name in the original, and uses up none; inside of another layer that has names, it is a part of that."""
    if CALL.get() is not None:
        yield
        return
    token = CALL.set(Call(unique_name.generate(f"{key}.at")))
    try:
        yield
    finally:
        CALL.reset(token)


@contextmanager
def plainly() -> Iterator[None]:
    """Append inside what a script's own function makes, with the names that it has outside of all layers."""
    token = CALL.set(None)
    try:
        yield
    finally:
        CALL.reset(token)


def temporary(prefix: str, number: int = 0) -> str:
    """Return the name of a variable of a layer: a prefix that `unique_name.guard` gives stands in front of the layer's, too."""
    return f"{unique_name.generator.prefix}{prefix}.tmp_{number}"


def rename(block: Block, v: Variable, name: str) -> None:
    """Give an output of a layer its name, unless a variable has it."""
    if name not in block.vars:
        block.rename_vars({v.name: name})


def named(fn: Callable[..., Any], naming: Callable[[Mapping[str, Any]], Naming | None]) -> Callable[..., Any]:
    """Return a layer that names its outputs as the original does.

    Args:
        fn: the layer.
        naming: how it names them, of the arguments that are given; None leaves all names as they are.
    """
    order = list(inspect.signature(fn).parameters)

    @functools.wraps(fn)
    def layer(*args: Any, **given: Any) -> Any:
        values = {**dict(zip(order, args, strict=False)), **given}
        # Layers that a layer calls are part of it, and name nothing by themselves.
        how = naming(values) if CALL.get() is None else None
        made = functools.partial(fn, *args, **given)
        return made() if how is None else appended(made, how, values.get("name"), acts=values.get("act") is not None)

    return layer


def appended(make: Callable[[], Any], how: Naming, name: Any = None, *, acts: bool = False) -> Any:
    """Return what a function makes in the default main program, with the original's names.

    Args:
        make: appends ops.
        how: it is named; inside of another layer that has names, nothing is renamed.
        name: prefix; default: the next of the key.
        acts: an activation is appended, too.
    """
    if CALL.get() is not None:
        return make()
    with _call(how, name) as call:
        block = defaults.default_main_program().global_block()
        before = len(block.ops), len(block.vars)
        out = make()
    _rename(out, how, call, block, before, acts=acts)
    return out


@contextmanager
def _call(how: Naming, name: Any) -> Iterator[Call]:
    # The original's layer uses up names of other layers that it is made of; these are counted as well, so that later layers have its names.
    use(how.before)
    call = Call(str(name) if name else unique_name.generate(how.key))
    use({how.key: how.behind})
    token = CALL.set(call)
    try:
        yield call
    finally:
        CALL.reset(token)


def _flat(out: Any) -> list[Variable]:
    if isinstance(out, (list, tuple)):
        return [v for part in out for v in _flat(part)]
    return [out] if isinstance(out, Variable) else []


def _rename(out: Any, how: Naming, call: Call, block: Block, before: tuple[int, int], *, acts: bool) -> None:
    """Give the outputs that the call made their names."""
    first, known = before
    fresh = {name for name in list(block.vars)[known:] if name.startswith(f"{call.prefix}.at_")}
    outputs = [v for v in dict.fromkeys(_flat(out)) if v.name in fresh]
    # A bias and an activation come last in the original and use up a number each; where they are there, the layer's output has the last
    # one.
    added = 0 if how.exact else int(acts) + sum(
        op.definition.has(AlongChannels) and any(isinstance(block.vars.get(n), Parameter) for n in op.inputs.get("Y", ()))
        for op in block.ops[first:]
    )
    # Several layers may have one name by the script's choice; numbers then go on.
    start = unique_name.generator.ids[f"{call.prefix}.tmp"]
    names: dict[str, str] = {}
    last = start + how.count + added - 1
    for i, v in enumerate(outputs):
        spec = how.outputs[i] if i < len(how.outputs) else how.outputs[-1]
        if isinstance(spec, str):
            whole, _, rest = spec.partition(".")
            made = [unique_name.generate(whole) for _ in range(how.made)][-1]
            made = temporary(made) if rest else made
            names[v.name] = made if not acts else temporary(call.prefix, start)
            continue
        if spec == PREFIX:
            names[v.name] = call.prefix
            continue
        number = start + (how.count + added - 1 if added and i == 0 else spec + max(0, i - len(how.outputs) + 1))
        last = max(last, number)
        names[v.name] = temporary(call.prefix, number)
    # Where a script uses such a name already, the layer's own names stay, instead of two variables with one.
    if not any(name in block.vars for name in names.values()):
        block.rename_vars(names, first)
        unique_name.generator.ids[f"{call.prefix}.tmp"] = last + 1
