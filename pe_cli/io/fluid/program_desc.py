"""Programs as PaddlePaddle 1.x keeps them, `framework.ProgramDesc`: blocks with variables and operators, as messages of protobuf."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.io.fluid import wire

#: Element types by their number, and kinds of variables.
ELEMENTS = {0: "bool", 1: "int16", 2: "int32", 3: "int64", 4: "float16", 5: "float32", 6: "float64", 20: "uint8", 21: "int8"}
ELEMENT_NUMBERS = {name: number for number, name in ELEMENTS.items()}
LOD_TENSOR, SELECTED_ROWS, FEED_MINIBATCH, FETCH_LIST, STEP_SCOPES, RANK_TABLE, TENSOR_ARRAY, READER, RAW = 7, 8, 9, 10, 11, 12, 13, 15, 17
#: Bytes of a file, blocks and axes at most.
MOST_BYTES, MOST_BLOCKS, MOST_AXES = 1 << 28, 4096, 16
#: Version that 1.8.5 writes.
VERSION = 1008005


@dataclass
class VarDesc:
    """A variable: what kind of thing it is, and of a tensor sizes (-1: not known), element type and levels of sequences."""

    name: str
    kind: int = LOD_TENSOR
    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    lod_level: int = 0
    persistable: bool = False
    need_check_feed: bool = False


class EmptyList(list[Any]):
    """An attribute that is a list of nothing, and the number of its type."""

    def __init__(self, kind: int) -> None:
        super().__init__()
        self.kind = kind


class BlockNumber(int):
    """An attribute that names a block."""


class Long(int):
    """A whole number that is kept with 64 bits."""


@dataclass
class OpDesc:
    """An operator: type, slot -> names of variables, and attributes."""

    type: str
    inputs: dict[str, list[str]] = field(default_factory=dict)
    outputs: dict[str, list[str]] = field(default_factory=dict)
    attrs: dict[str, Any] = field(default_factory=dict)


@dataclass
class BlockDesc:
    """Variables and operators; parent is the number of the block around, -1 for none."""

    parent: int = -1
    vars: list[VarDesc] = field(default_factory=list)
    ops: list[OpDesc] = field(default_factory=list)


# --- reading --------------------------------------------------------------------------------------------------------


def read(data: bytes) -> list[BlockDesc]:
    """Return the blocks of a program.

    Raises:
        ValueError: it is cut off or damaged, or no program.
    """
    if len(data) > MOST_BYTES:
        raise ValueError(f"it has {len(data)} bytes, more than {MOST_BYTES}")
    blocks = []
    # Fields of a newer version are refused: what they mean could change everything else.
    for number, kind, value in wire.fields(memoryview(data)):
        if number == 1:
            blocks.append(_block(wire.inside(kind, value)))
        elif number not in (3, 4):
            raise ValueError(f"a program has the field {number}")
    if not 0 < len(blocks) <= MOST_BLOCKS:
        raise ValueError(f"it has {len(blocks)} blocks")
    return blocks


def _block(message: memoryview) -> BlockDesc:
    made = BlockDesc()
    for number, kind, value in wire.fields(message):
        if number == 2:
            made.parent = wire.last_whole(kind, value)
        elif number == 3:
            # Lists grow with the file's bytes, so that the limit on bytes bounds them, too.
            made.vars.append(_variable(wire.inside(kind, value)))
        elif number == 4:
            made.ops.append(_operator(wire.inside(kind, value)))
        elif number not in (1, 5):
            raise ValueError(f"a block has the field {number}")
    return made


def _variable(message: memoryview) -> VarDesc:
    made = VarDesc("")
    for number, kind, value in wire.fields(message):
        if number == 1:
            made.name = wire.text(kind, value)
        elif number == 2:
            _type(wire.inside(kind, value), made)
        elif number == 3:
            made.persistable = bool(wire.last_whole(kind, value))
        elif number == 4:
            made.need_check_feed = bool(wire.last_whole(kind, value))
        else:
            raise ValueError(f"a variable has the field {number}")
    if not made.name:
        raise ValueError("a variable has no name")
    return made


def _type(message: memoryview, made: VarDesc) -> None:
    for number, kind, value in wire.fields(message):
        if number == 1:
            made.kind = wire.last_whole(kind, value)
        elif number == 2:  # rows of a table
            _tensor(wire.inside(kind, value), made)
        elif number in (3, 4):  # a tensor, or an array of them
            for inner, form, what in wire.fields(wire.inside(kind, value)):
                if inner == 1:
                    _tensor(wire.inside(form, what), made)
                elif inner == 2:
                    made.lod_level = wire.last_whole(form, what)
    if not 0 <= made.lod_level <= MOST_AXES:
        raise ValueError(f"a variable has {made.lod_level} levels of sequences")


def _tensor(message: memoryview, made: VarDesc) -> None:
    sizes: list[int] = []
    for number, kind, value in wire.fields(message):
        if number == 1:
            element = wire.last_whole(kind, value)
            made.dtype = ELEMENTS.get(element, f"element type {element}")
        elif number == 2:
            sizes += wire.whole(kind, value)
    # Sizes are multiplied later.
    if len(sizes) > MOST_AXES or any(size >= 1 << 40 for size in sizes):
        raise ValueError(f"a variable has the sizes {sizes[:MOST_AXES]}")
    # -1 alone means unknown here.
    made.shape = tuple(max(size, -1) for size in sizes)  # products of unknown sizes are below -1


def _operator(message: memoryview) -> OpDesc:
    made = OpDesc("")
    for number, kind, value in wire.fields(message):
        if number == 3:
            made.type = wire.text(kind, value)
        elif number in (1, 2):
            slot, names = _slot(wire.inside(kind, value))
            (made.inputs if number == 1 else made.outputs)[slot] = names
        elif number == 4:
            name, held = _attribute(wire.inside(kind, value))
            made.attrs[name] = held
        elif number != 5:
            raise ValueError(f"an operator has the field {number}")
    if not made.type:
        raise ValueError("an operator has no type")
    return made


def _slot(message: memoryview) -> tuple[str, list[str]]:
    slot, names = "", []
    for number, kind, value in wire.fields(message):
        if number == 1:
            slot = wire.text(kind, value)
        elif number == 2:
            names.append(wire.text(kind, value))
    return slot, names


#: How an attribute of each type is kept: the number of its field, what reads it and whether it is a list.
_FORMS: dict[int, tuple[int, Callable[[int, Any], Any], bool]] = {
    0: (3, wire.whole, False), 1: (4, wire.floats, False), 2: (5, wire.text, False), 3: (6, wire.whole, True), 4: (7, wire.floats, True),
    5: (8, wire.text, True), 6: (10, wire.whole, False), 7: (11, wire.whole, True), 8: (12, wire.whole, False), 9: (13, wire.whole, False),
    10: (14, wire.whole, True), 11: (15, wire.whole, True),
}  # fmt: skip
_INT, _FLOAT, _TEXT, _INTS, _FLOATS, _TEXTS, _BOOL, _BOOLS, _BLOCK, _LONG, _BLOCKS, _LONGS = range(12)
_CASTS: dict[int, Callable[[Any], Any]] = {_BOOL: bool, _BOOLS: bool, _BLOCK: BlockNumber, _BLOCKS: BlockNumber, _LONG: Long, _LONGS: Long}


def _attribute(message: memoryview) -> tuple[str, Any]:
    found = list(wire.fields(message))
    name = next((wire.text(kind, value) for number, kind, value in found if number == 1), "")
    type_ = next((wire.last_whole(kind, value) for number, kind, value in found if number == 2), -1)
    if type_ not in _FORMS:
        raise ValueError(f"attribute {name!r:.60} has the type {type_}")
    wanted, read_one, several = _FORMS[type_]
    values: list[Any] = []
    for number, kind, value in found:
        if number == wanted:
            one = read_one(kind, value)
            values += one if isinstance(one, list) else [one]
    values = [_CASTS[type_](v) for v in values] if type_ in _CASTS else values
    if several:
        # An empty list has no element that could tell its type when it is written again.
        return name, values or EmptyList(type_)
    if not values:
        raise ValueError(f"attribute {name!r:.60} has no value")
    return name, values[-1]


# --- writing --------------------------------------------------------------------------------------------------------


def write(blocks: list[BlockDesc]) -> bytes:
    """Return blocks as a program of 1.8.5."""
    made = b"".join(wire.of_bytes(1, _of_block(i, block)) for i, block in enumerate(blocks))
    return made + wire.of_bytes(4, wire.of_whole(1, VERSION))


def _of_block(index: int, block: BlockDesc) -> bytes:
    made = wire.of_whole(1, index) + wire.of_whole(2, block.parent)
    made += b"".join(wire.of_bytes(3, _of_variable(v)) for v in block.vars)
    return made + b"".join(wire.of_bytes(4, _of_operator(op)) for op in block.ops) + wire.of_whole(5, -1)


def _of_variable(v: VarDesc) -> bytes:
    kind = wire.of_whole(1, v.kind)
    if v.kind in (LOD_TENSOR, TENSOR_ARRAY):
        tensor = wire.of_whole(1, ELEMENT_NUMBERS[v.dtype]) + b"".join(wire.of_whole(2, size) for size in v.shape)
        kind += wire.of_bytes(3 if v.kind == LOD_TENSOR else 4, wire.of_bytes(1, tensor) + wire.of_whole(2, v.lod_level))
    made = wire.of_bytes(1, v.name) + wire.of_bytes(2, kind) + wire.of_whole(3, int(v.persistable))
    return made + (wire.of_whole(4, 1) if v.need_check_feed else b"")


def _of_operator(op: OpDesc) -> bytes:
    made = b"".join(wire.of_bytes(1, _of_slot(slot, names)) for slot, names in op.inputs.items())
    made += b"".join(wire.of_bytes(2, _of_slot(slot, names)) for slot, names in op.outputs.items())
    return made + wire.of_bytes(3, op.type) + b"".join(wire.of_bytes(4, of_attribute(k, v)) for k, v in op.attrs.items())


def _of_slot(slot: str, names: list[str]) -> bytes:
    return wire.of_bytes(1, slot) + b"".join(wire.of_bytes(2, name) for name in names)


def attribute_type(value: Any) -> int:
    """Return the number of the type that an attribute has by its value; an empty list is one of whole numbers."""
    if isinstance(value, EmptyList):
        return value.kind
    several = isinstance(value, list)
    one = (value[0] if value else 0) if several else value
    # From the special to the general: a bool is an int in Python.
    for kind, types in ((BlockNumber, (_BLOCK, _BLOCKS)), (Long, (_LONG, _LONGS)), (bool, (_BOOL, _BOOLS)), (str, (_TEXT, _TEXTS))):
        if isinstance(one, kind):
            return types[several]
    mixed = several and any(isinstance(v, float) for v in value)
    if isinstance(one, float) or mixed:
        return (_FLOAT, _FLOATS)[several]
    return (_INT, _INTS)[several]


def of_attribute(name: str, value: Any) -> bytes:
    """Return an attribute as a message, of the type of its value."""
    kind = attribute_type(value)
    number = _FORMS[kind][0]
    made = wire.of_bytes(1, name) + wire.of_whole(2, kind)
    for one in value if isinstance(value, list) else [value]:
        if kind in (_TEXT, _TEXTS):
            made += wire.of_bytes(number, one)
        elif kind in (_FLOAT, _FLOATS):
            made += wire.of_float(number, one)
        else:
            made += wire.of_whole(number, int(one))
    return made
