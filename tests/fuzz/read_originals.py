"""What reads files of PaddlePaddle 1.8.5."""

from __future__ import annotations

from pathlib import Path

from pe_cli.io.fluid.models import read_bytes, read_program
from pe_cli.io.fluid.value_files import is_original, read_original
from pe_cli.program.verify import verify
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
def original_values(data: bytes, folder: Path) -> None:
    """A file of tensors, or a pickled dict of arrays."""
    path = folder / "values"
    path.write_bytes(data)
    with refused(folder, ROOM):
        if is_original(path):
            found = read_original(path, [f"v{i}" for i in range(21)])
            assert sum(value.nbytes for value in found.values()) <= len(data)
