"""The files of a model of PaddlePaddle 1.x: which of a folder it is, and the values of its variables."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.io.fluid.program_desc import ELEMENT_NUMBERS, VarDesc
from pe_cli.io.fluid.value_files import read_original
from pe_cli.io.regular_files import open_regular

Array = np.ndarray[Any, Any]
#: Files with a program, and files with the values of all variables, by their names in a folder.
MODELS, ALL_VALUES = ("__model__", "model"), ("__params__", "params", "weights")
PROGRAM = ".pdmodel"
#: Bytes of a tensor in a file beside its numbers, at most.
_BESIDE = 1 << 16


@dataclass(frozen=True)
class ModelFiles:
    """Where a model lies.

    Args:
        model: file with the program.
        values: files with all values; none where every variable has a file of its own beside the program.
    """

    model: Path
    values: tuple[Path, ...]


def model_file(source: Path) -> Path | None:
    """Return the file with the program of a folder, or the file itself; None where a path is of another kind."""
    if source.is_dir():
        found = [source / name for name in MODELS if (source / name).is_file()]
        return next(iter(found or sorted(source.glob(f"*{PROGRAM}"))), None)
    return source if source.suffix == PROGRAM or source.name == MODELS[0] else None


def locate(source: Path, names: Sequence[str]) -> ModelFiles:
    """Return where a model lies.

    Args:
        source: the folder, or the file with the program.
        names: variables that are saved.

    Raises:
        PeError: a folder with several programs, or one without values (exit code 3).
    """
    model = model_file(source)
    assert model is not None
    folder = model.parent
    several = sorted(folder.glob(f"*{PROGRAM}")) if source.is_dir() and model.suffix == PROGRAM else [model]
    if len(several) > 1:
        raise _error(f"{source} has {len(several)} programs", f"name one of them: {', '.join(p.name for p in several[:6])}")
    stem = model.name.removesuffix(PROGRAM)
    beside = [folder / f"{stem}{ending}" for ending in (".pdparams", ".pdopt", ".pdiparams")] if model.suffix == PROGRAM else []
    found = [path for path in beside if path.is_file()]
    if not found and names and not all(_is_file(folder / name) for name in names):
        found = [path for path in (folder / name for name in ALL_VALUES) if path.is_file()][:1]
        if not found:
            lost = next(name for name in names if not _is_file(folder / name))
            wanted = " or ".join(path.name for path in beside[::2]) if beside else f"{ALL_VALUES[0]}, or a file for each variable"
            raise _error(f"{folder} has no values of {model.name}: there is no file '{lost}', and none for all", f"put {wanted} beside it")
    return ModelFiles(model, tuple(found))


def read_values(files: ModelFiles, saved: Mapping[str, VarDesc], wanted: Sequence[str]) -> dict[str, Array]:
    """Return the values of variables.

    Args:
        files: where they lie.
        saved: all variables of the program that are saved, by name.
        wanted: those to return.

    Raises:
        PeError: a file is missing, damaged, or leads out of the folder, or a value has another shape or type (exit code 3).
    """
    found: dict[str, Array] = {}
    for path in files.values:
        found |= _read(path, sorted(saved.values(), key=lambda v: v.name))
    if not files.values:
        for name in wanted:
            found |= _read(_inside(files.model.parent, name), [saved[name]])
    for v in (saved[name] for name in wanted):
        if v.name not in found:
            raise _error(f"{files.model.parent} has no value of '{v.name}'", "save the model again with all its variables")
        value = found[v.name]
        found[v.name] = value = value.reshape(v.shape) if {value.shape, v.shape} == {(), (1,)} else value
        if value.shape != v.shape or value.dtype.name != v.dtype:
            text = f"'{v.name}' is {value.dtype}{list(value.shape)} in its file, and {v.dtype}{list(v.shape)} in {files.model.name}"
            raise _error(text, "put the values beside the program that they were saved with")
    return {name: found[name] for name in wanted}


def _read(path: Path, variables: Sequence[VarDesc]) -> dict[str, Array]:
    """Return the values of a file that has these variables, without reading one that is larger than they are."""
    sizes = [math.prod(max(size, 1) for size in v.shape) * np.dtype(_element_type(v)).itemsize for v in variables]
    try:
        with open_regular(path) as file:
            pickled, file_size = file.read(1) == b"\x80", os.fstat(file.fileno()).st_size
    except OSError as error:
        raise _error(f"{path}: {error.strerror or error}", "copy all files of the model into one folder") from None
    most = sum(sizes) * (2 if pickled else 1) + _BESIDE * (len(sizes) + 1)  # pickles may write a byte as a letter of two
    if file_size > most:
        raise _error(f"{path} has {file_size:,} bytes, and its variables have {sum(sizes):,}", "put the values of this program beside it")
    return read_original(path, [v.name for v in variables])


def _element_type(v: VarDesc) -> str:
    """Return the element type of a variable that is saved.

    Raises:
        PeError: no file has such elements.
    """
    if v.dtype not in ELEMENT_NUMBERS:
        raise _error(f"the variable '{v.name:.80}' has elements of {v.dtype}", "save the model with float32 or whole numbers")
    return v.dtype


def _is_file(path: Path) -> bool:
    """Return whether there is a file; a name that no file can have has none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _inside(folder: Path, name: str) -> Path:
    """Return the file of a variable in a folder.

    Raises:
        PeError: there is none, or the name leads out of the folder.
    """
    base = folder.resolve()
    path = base / name
    if "\0" in name or base not in path.resolve().parents:
        raise _error(f"the variable '{name:.80}' would lie outside of {folder}", "save the model with other names")
    return path


def _error(text: str, hint: str) -> PeError:
    return PeError(text, hint=hint, code=ExitCode.DATA)
