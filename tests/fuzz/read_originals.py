"""What reads files of PaddlePaddle 1.8.5."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path

import numpy as np

from pe_cli.build.build import build
from pe_cli.config.load import load_model
from pe_cli.io.fluid import program_desc
from pe_cli.io.fluid.models import read_bytes, read_program
from pe_cli.io.fluid.tensors import of_tensors
from pe_cli.io.fluid.value_files import is_original, read_original
from pe_cli.paddle.fluid.original_blocks.programs import read_program as read_with_loops
from pe_cli.program.verify import verify
from pe_cli.session.importing.define import ImportWish, read_model
from pe_cli.session.importing.write import model_text, report_text
from tests.fuzz.targets import refused, target

#: Bytes that reading may take beyond a small file: a catalogue of operators is made on first use, and a program of every operator.
ROOM = 1 << 26


@target
def original_model(data: bytes, folder: Path) -> None:
    """A `__model__`: a program as protobuf."""
    path = folder / "__model__"
    path.write_bytes(data)
    with refused(folder, ROOM):
        found = read_program(read_bytes(path), str(path))
        verify(found.program)
        for name in found.fetches:
            found.program.var(name)


@target
def original_loops(data: bytes, folder: Path) -> None:
    """A `__model__` whose operators run other blocks."""
    with refused(folder, ROOM):
        found = read_with_loops(data, "model")
        verify(found.program)
        for name in found.fetches:
            found.program.var(name)


@target
def original_import(data: bytes, folder: Path) -> None:
    """A `__model__` with values for its variables, as `pe import` takes it: what is made of it is a model without mistakes."""
    (folder / "__model__").write_bytes(data)
    (folder / "__params__").write_bytes(_values(data))
    with refused(folder, ROOM):
        model = read_model(ImportWish(folder, partial=len(data) % 2 == 0))
        report_text(model).encode()
        (folder / "model.yaml").write_text(model_text(model), encoding="utf-8")
        built = build(load_model(str(folder / "model.yaml")))
        made = {v.name: v.type for v in built.eval.persistables()}
        for name, value in model.arrays.items():
            assert (made[name].shape, made[name].dtype) == (value.shape, value.dtype.name)


def _values(data: bytes) -> bytes:
    """Return a file of values for the variables of a program, where those are few and small."""
    found = {}
    with contextlib.suppress(ValueError):
        for v in program_desc.read(data)[0].vars:
            is_saved = v.persistable and v.kind in (7, 8) and v.dtype in program_desc.ELEMENT_NUMBERS
            if is_saved and -1 not in v.shape and math.prod(v.shape) < 10_000:
                found[v.name] = np.ones(v.shape, v.dtype)
    return of_tensors(found)


@target
def original_values(data: bytes, folder: Path) -> None:
    """A file of tensors, or a pickled dict of arrays."""
    path = folder / "values"
    path.write_bytes(data)
    with refused(folder, ROOM):
        if is_original(path):
            found = read_original(path, [f"v{i}" for i in range(21)])
            assert sum(value.nbytes for value in found.values()) <= len(data)
