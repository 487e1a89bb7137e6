"""Programs of PaddlePaddle 1.8.5 that are whole messages and say what no program says."""

from __future__ import annotations

import functools
import random
from pathlib import Path
from typing import Any

from pe_cli.io.fluid import program_desc
from pe_cli.io.fluid.operator_writer import forms
from pe_cli.io.fluid.program_desc import BlockDesc, BlockNumber, Long, OpDesc

RECORDED = Path(__file__).parents[1] / "paddle" / "recordings" / "models"
LOOPS = RECORDED.with_name("loops")
VALUES: tuple[Any, ...] = (
    0, 1, -1, 2**31 - 1, -(2**31), Long(2**62), 0.0, 1e30, float("nan"), "", "é", "NCHW", "SAME", True, False, [0], [-1, 2**31 - 1], [1.5],
    ["a"], [True], [Long(2**40)] * 3, [2] * 20, BlockNumber(0), BlockNumber(1), BlockNumber(-5), [3, 3], [1, 2, 3, 4], [0, 0],
)  # fmt: skip


@functools.cache
def _whole(folder: Path) -> tuple[bytes, ...]:
    return tuple(file.read_bytes() for file in sorted(folder.glob("*/__model__")))


def model(draw: random.Random) -> bytes:
    """Return a program after some changes."""
    return _changed(draw, RECORDED)


def loops(draw: random.Random) -> bytes:
    """Return a program with loops and branches after some changes."""
    return _changed(draw, LOOPS)


def _changed(draw: random.Random, folder: Path) -> bytes:
    blocks = program_desc.read(draw.choice(_whole(folder)))
    for _ in range(draw.randint(1, 4)):
        block = draw.choice([block for block in blocks if block.ops and block.vars])
        draw.choice((_attribute, _attribute, _slot, _name, _type, _variable, _operator))(draw, block)
    return program_desc.write(blocks)


def _attribute(draw: random.Random, block: BlockDesc) -> None:
    op = draw.choice(block.ops)
    known = list(op.attrs) + (list(forms()[op.type].attrs) if op.type in forms() else [])
    op.attrs[draw.choice([*known, "x"])] = draw.choice(VALUES)


def _slot(draw: random.Random, block: BlockDesc) -> None:
    op = draw.choice(block.ops)
    slots = draw.choice((op.inputs, op.outputs))
    if slots and draw.random() < 0.5:
        slots.pop(draw.choice(list(slots)))
    elif slots:
        slots[draw.choice(list(slots))] = [draw.choice(block.vars).name for _ in range(draw.randint(0, 3))]


def _name(draw: random.Random, block: BlockDesc) -> None:
    names = draw.choice([names for op in block.ops for slots in (op.inputs, op.outputs) for names in slots.values() if names])
    names[draw.randrange(len(names))] = draw.choice([draw.choice(block.vars).name, "", "@EMPTY@", "operator_1.at_0", "x" * 300])


def _type(draw: random.Random, block: BlockDesc) -> None:
    draw.choice(block.ops).type = draw.choice(sorted(forms()))


def _variable(draw: random.Random, block: BlockDesc) -> None:
    v = draw.choice(block.vars)
    what = draw.randrange(5)
    if what == 0:
        v.shape = tuple(draw.choice((-1, 0, 1, 3, 2**20, 2**39)) for _ in range(draw.randint(0, 6)))
    elif what == 1:
        v.dtype = draw.choice(sorted(program_desc.ELEMENT_NUMBERS))
    elif what == 2:
        v.kind = draw.choice((7, 8, 13, 15, 17, 99))
    elif what == 3:
        v.persistable = not v.persistable
    else:
        v.lod_level = draw.randint(0, 16)


def _operator(draw: random.Random, block: BlockDesc) -> None:
    type_ = draw.choice(sorted(forms()))
    form = forms()[type_]
    names = [v.name for v in block.vars]
    inputs, outputs = ({slot: [draw.choice(names)] for slot in some} for some in (form.inputs, form.outputs))
    attrs = {name: draw.choice(VALUES) for name in form.attrs if draw.random() < 0.5}
    block.ops.insert(draw.randint(1, len(block.ops) - 1), OpDesc(type_, inputs, outputs, attrs))
