"""Programs as `serialize_to_string` gives and `parse_from_string` takes them: the original's messages of protobuf, or text."""

from __future__ import annotations

from collections.abc import Callable

from pe_cli.io.fluid.operator_writer import NotWritten
from pe_cli.io.fluid.reading import Loaded
from pe_cli.io.fluid.writing import of_program
from pe_cli.paddle.errors import FluidValueError, raised_as
from pe_cli.program import text_forms
from pe_cli.program.ir import Program

#: What reads the original's messages. `original_blocks` puts it here: it needs the classes of this API, whose module imports this one.
READERS: list[Callable[[bytes, str], Loaded]] = []


def of_string(data: str | bytes) -> Program:
    """Return the program of a message of the original, of a text or of JSON; only a message has bytes that are 0.

    Raises:
        FluidValueError: a message that is damaged, or has operators that are not read; a ValueError.
        PeError: see `pe_cli.program.text_forms.from_string`.
    """
    # Texts and JSON have no zero byte, and a message of protobuf with lengths and numbers always does.
    if isinstance(data, bytes) and b"\0" in data:
        with raised_as(FluidValueError):
            return READERS[0](data, "the string").program
    return text_forms.from_string(data)


def as_bytes(program: Program) -> bytes:
    """Return a program as the original has it, and one with operators that the original has not as text."""
    try:
        return of_program(program)
    except NotWritten:
        return text_forms.to_string(program, with_details=True).encode()
