"""What writes one operator for PaddlePaddle 1.8.5, and the registry of those that are written in a way of their own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.io.fluid.program_desc import (
    ELEMENT_NUMBERS,
    BlockNumber,
    EmptyList,
    Long,
    OpDesc,
    VarDesc,
)
from pe_cli.ops.define.registry import find
from pe_cli.program.ir import EMPTY, Block, Operator, Variable

_LONGS = {9, 11}
_FLOATS = {1, 4}
_LISTS = {3, 4, 5, 7, 10, 11}


@dataclass(frozen=True)
class Form:
    """What an operator of 1.8.5 takes.

    Args:
        inputs, outputs: slots, and whether each may be absent.
        attrs: name -> number of its type, see `program_desc`.
    """

    inputs: dict[str, bool]
    outputs: dict[str, bool]
    attrs: dict[str, int]


@functools.cache
def forms() -> dict[str, Form]:
    """Return the operators of 1.8.5 that have a form here, by type: `original_ops.txt`."""
    found = {}
    for line in (Path(__file__).parent / "original_ops.txt").read_text(encoding="utf-8").splitlines():
        name, ins, outs, attrs = (part.strip() for part in line.split("|"))
        slots = [{word.rstrip("?*"): "?" in word for word in text.split()} for text in (ins, outs)]
        types = {key: int(type_) for key, type_ in (word.rsplit(":", 1) for word in attrs.split())}
        found[name] = Form(slots[0], slots[1], types)
    return found


class NotWritten(PeError):
    """Operators that the original has not."""


@dataclass
class Written:
    """Operators of 1.8.5 that were made for one program, and variables that they need.

    Attributes:
        block: of the program.
        ops, vars: as they go into the file.
    """

    block: Block
    ops: list[OpDesc] = field(default_factory=list)
    vars: dict[str, VarDesc] = field(default_factory=dict)

    def declare(self, v: Variable) -> None:
        """Add a variable; one number has the shape [1]."""
        self.vars[v.name] = VarDesc(
            v.name, shape=tuple(v.shape) or (1,), dtype=v.dtype, lod_level=v.lod_level, persistable=v.persistable, need_check_feed=v.is_data
        )

    def beside(self, name: str, dtype: str = "float32") -> str:
        """Return a name for what an operator of 1.8.5 needs beside what it has here."""
        made = name
        while made in self.vars or made in self.block.vars:
            made += "_"
        self.vars[made] = VarDesc(made, shape=(-1,), dtype=dtype)
        return made

    def emit(self, type_: str, inputs: dict[str, list[str]], outputs: dict[str, list[str]], attrs: dict[str, Any] | None = None) -> None:
        """Append an operator, with the types of attributes that it has in 1.8.5.

        Raises:
            NotWritten: it has a slot or an attribute here that it has not there.
        """
        form = forms()[type_]
        first = next((n for names in outputs.values() for n in names if n != EMPTY), type_)
        for given, known in ((inputs, form.inputs), (outputs, form.outputs)):
            for slot in given:
                if slot not in known:
                    raise NotWritten(f"{type_} has no slot {slot}")
        made = {slot: [n for n in names if n != EMPTY] for slot, names in outputs.items()}
        for slot, optional in form.outputs.items():
            if not optional and not made.get(slot):
                made[slot] = [self.beside(f"{first}.{slot}")]
        typed = {name: _typed(type_, name, value, form) for name, value in (attrs or {}).items()}
        self.ops.append(OpDesc(type_, {k: list(v) for k, v in inputs.items()}, made, {**typed, "op_role": 0}))

    def same(self, op: Operator, type_: str | None = None, *, leave: Sequence[str] = (), **attrs: Any) -> None:
        """Append the operator of the same name, or of another one; see `emit`.

        Raises:
            NotWritten: the operator has a setting that the original's does not have.
        """
        form, known = forms()[type_ or op.type], find(op.type).attrs
        given = {}
        for name, value in op.attrs.items():
            if name in form.attrs:
                given[name] = value
            elif name not in leave and value != known[name].default:
                raise NotWritten(f"{op.type} has no attribute {name}, which is {value!r:.40}")
        self.emit(type_ or op.type, op.inputs, op.outputs, {**given, **attrs})


def _typed(type_: str, name: str, value: Any, form: Form) -> Any:
    kind = form.attrs.get(name)
    if kind is None:
        raise NotWritten(f"{type_} has no attribute {name}")
    if kind == 0 and isinstance(value, str) and name.endswith("dtype"):
        if value not in ELEMENT_NUMBERS:
            raise NotWritten(f"{type_}: {name} is {value!r}")
        return ELEMENT_NUMBERS[value]
    several = kind in _LISTS
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    if kind in _FLOATS:
        values = [float(v) for v in values]
    elif kind in _LONGS:
        values = [Long(v) for v in values]
    elif kind in (8, 10):
        values = [BlockNumber(v) for v in values]
    made = values if several else values[0]
    return made if values else EmptyList(kind)


#: Type of operator here -> what appends operators of 1.8.5 that do the same.
WRITERS: dict[str, Callable[[Written, Operator], None]] = {}


def writes(*types: str) -> Callable[[Callable[[Written, Operator], None]], Callable[[Written, Operator], None]]:
    """Register what writes operators of these types; a decorator."""

    def keep(fn: Callable[[Written, Operator], None]) -> Callable[[Written, Operator], None]:
        for type_ in types:
            assert type_ not in WRITERS, f"{type_} has two writers"
            WRITERS[type_] = fn
        return fn

    return keep
