"""What writes one operator for PaddlePaddle 1.8.5, and the registry of those that are written in a way of their own."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.io.fluid.program_desc import (
    ELEMENT_NUMBERS,
    LOD_TENSOR,
    TENSOR_ARRAY,
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
#: Slots of operators that take whole numbers of 32 bits alone.
_NARROW = {
    "bilinear_interp": ("OutSize",), "crop_tensor": ("Shape", "Offsets"), "expand": ("ExpandTimes",), "nearest_interp": ("OutSize",),
    "pad2d": ("Paddings",), "reshape": ("Shape",), "strided_slice": ("StartsTensor", "EndsTensor", "StridesTensor"), "top_k": ("K",),
    "warpctc": ("Label",),
}  # fmt: skip
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
class Whole:
    """What all blocks of one file share.

    Attributes:
        is_test: the program evaluates.
        is_model: only what it says to fetch is asked for.
        taken: names of variables that no new one may have.
        blocks: in the order of their numbers.
        lost: what the original has no form of, and how often.
    """

    is_test: bool = False
    is_model: bool = True
    taken: set[str] = field(default_factory=set)
    blocks: list[Written] = field(default_factory=list)
    lost: Counter[str] = field(default_factory=Counter)


@dataclass
class Written:
    """Operators of 1.8.5 that were made for one block, and variables that they need.

    Attributes:
        block: of the program, or of a region.
        whole: what all blocks of the file share.
        outer: the block around.
        ops, vars: as they go into the file.
        names: name here -> name in the file, where they differ.
        wanted: names here that are read from outside.
        arrays: names here of arrays of tensors.
        tables: variable in the file with sequences, and level of these -> name of their table.
    """

    block: Block
    whole: Whole = field(default_factory=Whole)
    outer: Written | None = None
    ops: list[OpDesc] = field(default_factory=list)
    vars: dict[str, VarDesc] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    wanted: Collection[str] = ()
    arrays: set[str] = field(default_factory=set)
    tables: dict[tuple[str, int], str] = field(default_factory=dict)

    def name(self, name: str) -> str:
        """Return the name in the file of a variable."""
        return self.names.get(name, name)

    def is_read(self, name: str) -> bool:
        """Return whether an operator of the block reads a variable, or somebody may ask for it."""
        asked = name in self.wanted or (self.outer is None and not self.whole.is_model)
        return asked or self.reads_here(name)

    def reads_here(self, name: str) -> bool:
        """Return whether an operator of the block reads a variable."""
        return any(name in op.input_names() for op in self.block.ops)

    def declare(self, v: Variable, *, array: bool = False) -> None:
        """Add a variable, or an array of tensors; one number has the shape [1]."""
        if v.dtype not in ELEMENT_NUMBERS:
            self.whole.lost[f"elements of {v.dtype}"] += 1
            return
        name, shape = self.name(v.name), tuple(v.shape[1:] if array else v.shape)
        kind = TENSOR_ARRAY if array else LOD_TENSOR
        self.vars[name] = VarDesc(
            name, kind, shape or (1,), v.dtype, v.lod_level, persistable=v.persistable, need_check_feed=v.is_data and self.outer is None
        )

    def beside(self, name: str, dtype: str = "float32", shape: tuple[int, ...] = (-1,), kind: int = LOD_TENSOR) -> str:
        """Return a name for what an operator of 1.8.5 needs beside what it has here."""
        made = self.fresh(name)
        self.vars[made] = VarDesc(made, kind, shape, dtype)
        return made

    def fresh(self, name: str) -> str:
        """Return a name that no variable of the file has."""
        made = name
        while made in self.whole.taken or made in self.vars or made in self.block.vars:
            made += "_"
        self.whole.taken.add(made)
        return made

    def sees(self, name: str) -> bool:
        """Return whether a name is one of this block or one around it."""
        return name in self.vars or name in self.block.vars or (self.outer is not None and self.outer.sees(name))

    def reads(self) -> list[str]:
        """Return the names of the blocks around that the operators read."""
        return [n for n in dict.fromkeys(n for op in self.ops for names in op.inputs.values() for n in names) if n not in self.vars]

    def writes(self) -> list[str]:
        """Return the names of the blocks around that the operators write."""
        return [n for n in dict.fromkeys(n for op in self.ops for names in op.outputs.values() for n in names) if n not in self.vars]

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
        made = {slot: [self.name(n) for n in names if n != EMPTY] for slot, names in outputs.items()}
        for slot, optional in form.outputs.items():
            if not optional and not made.get(slot):
                made[slot] = [self.beside(f"{first}.{slot}")]
        typed = {name: _typed(type_, name, value, form) for name, value in (attrs or {}).items()}
        self.ops.append(OpDesc(type_, {k: [self.name(n) for n in v] for k, v in inputs.items()}, made, {**typed, "op_role": 0}))

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
        inputs = dict(op.inputs)
        for slot in _NARROW.get(type_ or op.type, ()):
            inputs |= {slot: [self.narrow(n) for n in inputs[slot]]} if inputs.get(slot) else {}
        self.emit(type_ or op.type, inputs, op.outputs, {**given, **attrs})

    def narrow(self, name: str) -> str:
        """Return the name of whole numbers with 32 bits, which some operators of the original take alone."""
        kind = self.block.var(name)
        if kind.dtype == "int32":
            return name
        found = self.beside(f"{name}.narrow", "int32", tuple(kind.shape))
        self.emit("cast", {"X": [name]}, {"Out": [found]}, {"in_dtype": kind.dtype, "out_dtype": "int32"})
        return found


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
