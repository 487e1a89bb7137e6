"""The registry of readers: modules of `pe_cli/data/readers/`, imported when they are asked for."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pe_cli.config.plugins import is_foreign, offered
from pe_cli.config.pydantic_messages import option_errors
from pe_cli.config.sections.value_types import Count
from pe_cli.core.errors import PeError, Span, as_one, did_you_mean
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.data.array_dataset import is_table
from pe_cli.data.dataset import Dataset, Window
from pe_cli.data.raw_cells import Table
from pe_cli.data.reader_context import Look, Origin
from pe_cli.data.remote.file_cache import RemoteFiles

if TYPE_CHECKING:
    from pe_cli.data.machine_processes import MachineProcesses

Offset = Annotated[int, Field(strict=True, ge=0)]


class ReaderOptions(BaseModel):
    """What every reader understands."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    limit: Count | None = Field(None, description="use only so many samples, counted from the first that is used")
    skip: Offset = Field(0, description="leave out so many samples at the start")


AnyOptions = TypeVar("AnyOptions", bound=ReaderOptions)
Found = TypeVar("Found", bound=Dataset | Table)


@dataclass(frozen=True)
class Reader:
    """A kind of file that data is read from.

    Args:
        name: what a config writes as `reader: name`.
        options: pydantic model of its options, for checks and documentation.
        open: turns checked options into a data set, or into a table, which applies `skip` and `limit` itself.
    """

    name: str
    options: type[ReaderOptions]
    open: Callable[[Any, Origin], Dataset | Table]

    @property
    def doc(self) -> str:
        """What the reader reads, as written at it."""
        return inspect.getdoc(self.open) or ""


_PACKAGE = "pe_cli.data.readers"
#: Readers by name, of the modules that were imported; see `discover`.
READERS: dict[str, Reader] = {}


def reader(
    name: str, options: type[AnyOptions]
) -> Callable[[Callable[[AnyOptions, Origin], Found]], Callable[[AnyOptions, Origin], Found]]:
    """Register a function as the reader of that name.

    Args:
        name: what a config writes as `reader: name`.
        options: the model that its options are checked against.

    Raises:
        PeError: USAGE; a package of others takes a name that there is.
    """

    def register(function: Callable[[AnyOptions, Origin], Found]) -> Callable[[AnyOptions, Origin], Found]:
        if is_foreign(function.__module__):
            known = READERS.get(name)
            if name in _modules() or (known and known.open.__module__ != function.__module__):
                raise PeError(f"there is a reader '{name}' already", hint="give the reader another name")
        else:
            assert name not in READERS, f"two readers are named {name}"
        READERS[name] = Reader(name, options, function)
        return function

    return register


def open_reader(
    type: str,
    options: Mapping[str, Any],
    base: Path,
    at: Span | None = None,
    read: list[Path] | None = None,
    look: Look | None = None,
    together: MachineProcesses | None = None,
    remote: RemoteFiles | None = None,
) -> Dataset | Table:
    """Open a data set or a table.

    Args:
        type: a name of `discover()`.
        options: as written in the config, without `reader` and without the loader's own keys.
        base: the config file's folder, which relative paths start from.
        at: place in the config that asked for the data.
        read: gets the files and folders that are read.
        look: how far packed files are looked into; None for all that they hold.
        together: processes that open the same files at the same time, and share the work.
        remote: fetches files of web servers and object stores; a cache of the usual size when None.

    Returns:
        The samples that `skip` and `limit` leave.

    Raises:
        PeError: no such reader, or an option is wrong (all of them in one `PeErrors`); with `ExitCode.DATA` when a file
            is missing, broken or empty.
    """
    found = find_reader(type, at)
    checked = check_options(found, options, at)
    origin = Origin(base, at, look=look, together=together, remote=remote or RemoteFiles())
    try:
        dataset = found.open(checked, origin)
    except OSError as error:
        raise origin.error(f"reader '{type}' failed: {error}", "check the disk and the file's permissions") from error
    if read is not None:
        read += origin.read
    if is_table(dataset) or (not checked.skip and checked.limit is None) or (origin.is_cut and checked.skip >= len(dataset)):
        return dataset
    if checked.skip >= len(dataset):
        raise origin.error(f"skip: {checked.skip} leaves none of {len(dataset)} samples", "skip fewer")
    left = len(dataset) - checked.skip
    return Window(dataset, checked.skip, left if checked.limit is None else min(left, checked.limit))


def find_reader(type: str, at: Span | None = None) -> Reader:
    """Return a reader by name.

    Raises:
        PeError: there is none.
    """
    ours = _modules()
    names = [*ours, *(name for name in READERS if name not in ours)]
    if type not in names:
        hint = offered("readers", type) or did_you_mean(type, names) or f"one of {', '.join(names)}"
        raise PeError(f"there is no reader '{type}'", at=at, hint=hint)
    if type in ours:
        importlib.import_module(f"{_PACKAGE}.{type}")
    return READERS[type]


def discover() -> dict[str, Reader]:
    """Import every reader and return them by name, with those of packages that are loaded."""
    return dict(sorted((READERS | {name: find_reader(name) for name in _modules()}).items()))


@functools.cache
def _modules() -> list[str]:
    """Return the names of all readers, in order."""
    return sorted(info.name for info in pkgutil.iter_modules(importlib.import_module(_PACKAGE).__path__))


def check_options(found: Reader, options: Mapping[str, Any], at: Span | None = None) -> ReaderOptions:
    """Return a reader's options, checked; opens nothing.

    Raises:
        PeError: an option is unknown, missing or wrong; all of them in one `PeErrors`.
    """
    try:
        return found.options.model_validate(dict(options))
    except ValidationError as failure:
        errors = option_errors(f"reader '{found.name}'", found.options, failure, at)
    raise as_one(errors)
