"""Programs of the original's files: those with loops, branches or sizes that are variables, and all others."""

from __future__ import annotations

from collections.abc import Sequence

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.io.fluid.models import loaded, read_blocks
from pe_cli.io.fluid.program_desc import BlockDesc
from pe_cli.io.fluid.reading import Loaded, check_types
from pe_cli.paddle.fluid import program_strings
from pe_cli.paddle.fluid.original_blocks import arrays, branches, loops, reading, sizes

#: What the modules register: those of a `while` that is a DynamicRNN are read with it.
_KNOWN = {*reading.READERS, "shrink_rnn_memory"}


def read_program(data: bytes, what: str) -> Loaded:
    """Return the program of the bytes of a `__model__`.

    Args:
        data: the file's.
        what: name of the file, for errors.

    Raises:
        PeError: it is no program, or one with operators that are not read (exit code 3).
    """
    blocks = read_blocks(data, what)
    if not _is_further(blocks):
        return loaded(blocks, what)
    try:
        check_types(blocks, _KNOWN)
        return reading.program_of(blocks)
    except PeError as error:
        error.message = f"{what}: {error.message}"
        error.code = ExitCode.DATA
        raise


program_strings.READERS.append(read_program)


def _is_further(blocks: Sequence[BlockDesc]) -> bool:
    """Return whether a program has operators that run blocks or work on arrays, or sizes that are variables."""
    assert all((arrays, branches, loops, sizes))
    for op in (op for desc in blocks for op in desc.ops):
        slots = reading.SIZED.get(op.type, ((),))[0]
        if op.type in _KNOWN or any(op.inputs.get(slot) for slot in slots):
            return True
    return False
