"""Inference models of PaddlePaddle 1.x: a folder with a program, `__model__`, and the values of its variables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.io.fluid import program_desc
from pe_cli.io.fluid.program_desc import MOST_BYTES, BlockDesc
from pe_cli.io.fluid.reading import Loaded, program_of
from pe_cli.io.regular_files import open_regular

Array = np.ndarray[Any, Any]


def read_blocks(data: bytes, what: str) -> list[BlockDesc]:
    """Return the blocks of the bytes of a program.

    Args:
        data: the file's.
        what: name of the file, for errors.

    Raises:
        PeError: it is no program (exit code 3).
    """
    try:
        return program_desc.read(data)
    except ValueError as error:
        hint = "save the model again with PaddlePaddle's fluid.io.save_inference_model"
        raise PeError(f"{what} is no program of PaddlePaddle: {error}", hint=hint, code=ExitCode.DATA) from None


def read_program(data: bytes, what: str) -> Loaded:
    """Return the program of the bytes of a `__model__`; see `loaded`.

    Raises:
        PeError: it is no program, or one with operators that are not read (exit code 3).
    """
    return loaded(read_blocks(data, what), what)


def loaded(blocks: Sequence[BlockDesc], what: str, *, partial: bool = False) -> Loaded:
    """Return the program of a description.

    Args:
        blocks: of the description.
        what: name of the file, for errors.
        partial: see `pe_cli.io.fluid.reading.program_of`.

    Raises:
        PeError: it has operators that are not read (exit code 3).
    """
    try:
        return program_of(blocks, partial=partial)
    except PeError as error:
        error.message = f"{what}: {error.message}"
        error.code = ExitCode.DATA
        raise


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a `__model__`.

    Raises:
        PeError: there is none, or it is larger than one may be (exit code 3).
    """
    if not path.is_file():
        raise PeError(f"there is no model {path}", hint="name the folder that save_inference_model wrote", code=ExitCode.DATA)
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MOST_BYTES:
            raise PeError(f"{path} is larger than {MOST_BYTES} bytes", hint="values belong into files of their own", code=ExitCode.DATA)
        return file.read(size)
