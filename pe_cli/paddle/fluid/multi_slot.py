"""MultiSlot text: one instance per line, for every slot in order `<n> <v1> ... <vn>`, separated by single spaces."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import IO, Any

import numpy as np

from pe_cli.core.errors import ExitCode, PeError, Span
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.data.multi_slot import SLOT_TYPES, parse_line, read_lines
from pe_cli.paddle.errors import FluidValueError, raised_as
from pe_cli.paddle.fluid.data_feed_desc import Slot
from pe_cli.paddle.fluid.lod_tensor import LoDTensor
from pe_cli.paddle.import_alias import shell_command


@dataclass
class Instance:
    """One line of a file.

    Args:
        values: of every slot.
        marks: what stands before the slots, kind -> text.
    """

    values: list[np.ndarray[Any, Any]]
    marks: dict[str, str] = field(default_factory=dict)


def marked(lines: Iterable[tuple[int, str]], file: str, slots: Sequence[Slot], kinds: Sequence[str]) -> Iterator[Instance]:
    """Yield the instances of lines whose slots come after marks of some kinds, each written `1 <text>`.

    Args:
        lines: with their numbers.
        file: where they stand, for errors.
        slots: of a line.
        kinds: of the marks, in order.

    Raises:
        PeError: a line has no such mark, or its slots are wrong (exit code 3).
    """
    wanted = [(slot.name, slot.type, 0) for slot in slots]
    for number, line in lines:
        marks, rest = {}, line
        for kind in kinds:
            # A mark is two words, so what follows is split twice.
            head, _, rest = rest.strip().partition(" ")
            marks[kind], _, rest = rest.partition(" ")
            if head != "1" or not marks[kind]:
                hint = f"each line begins with {' '.join(f'1 <{k}>' for k in kinds)}"
                raise PeError(f"this line has no {kind}", at=Span(file, number, 1, 1), hint=hint, code=ExitCode.DATA)
        found = parse_line(rest, wanted, file, number)
        yield Instance([np.array(v, SLOT_TYPES[slot.type]) for v, slot in zip(found, slots, strict=True)], marks)


def to_batch(instances: Sequence[Sequence[np.ndarray[Any, Any]]], slots: Sequence[Slot]) -> dict[str, Any]:
    """Return what instances feed: dense slots as arrays, sparse ones as LoDTensors [total, 1].

    Raises:
        FluidValueError: values that do not have a dense slot's shape; a ValueError.
    """
    out: dict[str, Any] = {}
    for i, slot in enumerate(slots):
        if not slot.is_used:
            continue
        values = [instance[i] for instance in instances]
        flat = np.concatenate(values)
        if not slot.is_dense:
            out[slot.name] = LoDTensor(flat.reshape(-1, 1), [[len(v) for v in values]])
            continue
        # Sizes that are not known are left out of a dense slot's shape: its values are one row for each instance.
        shape = [len(values), *(s for s in slot.shape if s != -1)] if slot.shape else [len(values), -1]
        try:
            out[slot.name] = flat.reshape(shape)
        except ValueError:
            raise FluidValueError(
                f"dense slot '{slot.name}' is {shape[1:]}, got {flat.size} values in {len(values)}"
            ) from None
    return out


def cut(instances: Iterable[Instance], slots: Sequence[Slot], batch_size: int) -> Iterator[dict[str, Any]]:
    """Yield batches of instances; the last one may be smaller."""
    waiting: list[list[np.ndarray[Any, Any]]] = []
    for one in instances:
        waiting.append(one.values)
        if len(waiting) == batch_size:
            yield to_batch(waiting, slots)
            waiting = []
    if waiting:
        yield to_batch(waiting, slots)


def batches(files: Sequence[Any], slots: Sequence[Slot], batch_size: int) -> Iterator[dict[str, Any]]:
    """Yield batches of files one after the other; a file's last batch may be smaller.

    Raises:
        FluidValueError: a file cannot be read, a count that is not above 0, values that are missing, left over or of
            another type; a ValueError.
    """
    with raised_as(FluidValueError):
        for file in files:
            yield from cut(marked(read_lines(file), str(file), slots, ()), slots, batch_size)


def piped_lines(file: str, pipe_command: str, download_command: str = "") -> Iterator[tuple[int, str]]:
    """Yield the numbers and texts of the lines that commands of a user's script make of a file.

    Args:
        file: its name.
        pipe_command: of a shell; it reads the file and writes lines.
        download_command: of a shell; it is given the file's name and writes its content.

    Raises:
        PeError: a command fails, or there is no such file (exit code 3).
    """
    begun: list[subprocess.Popen[Any]] = []
    with contextlib.ExitStack() as files:
        source: IO[bytes] | None
        if download_command:
            # $0 is the file: its name is an argument and no part of the command, whatever characters it has.
            begun.append(subprocess.Popen(["sh", "-c", shell_command(f'{download_command} "$0"'), file], stdout=subprocess.PIPE))
            source = begun[0].stdout
        else:
            try:
                source = files.enter_context(Path(file).open("rb"))
            except OSError as error:
                raise PeError(f"{file}: {error.strerror}", code=ExitCode.DATA, hint="check the path") from None
        words = ["sh", "-c", shell_command(pipe_command)]
        begun.append(subprocess.Popen(words, stdin=source, stdout=subprocess.PIPE, text=True, errors="replace"))
        written = begun[-1].stdout
        assert written is not None
        # Empty lines are counted, so that numbers in messages are those of the command's output.
        yield from ((number, line) for number, line in enumerate(written, 1) if line.strip())
    for process, command in zip(begun, [download_command, pipe_command][-len(begun) :], strict=True):
        # Only after all lines were read: a command that fails late may have written some.
        process.communicate()
        if process.returncode:
            raise PeError(f"{file}: '{command}' ended with exit code {process.returncode}", code=ExitCode.DATA, hint="run it by hand")
