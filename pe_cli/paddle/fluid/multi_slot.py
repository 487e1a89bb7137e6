"""MultiSlot text: one instance a line, for every slot in order `<n> <v1> ... <vn>`, separated by single spaces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.fluid.data_feed_desc import Slot
from pe_cli.paddle.fluid.lod_tensor import LoDTensor

_DTYPES = {"uint64": "int64", "float": "float32"}


def read_line(line: str, slots: Sequence[Slot], where: str) -> list[np.ndarray[Any, Any]]:
    """Return the values of every slot of one instance.

    Args:
        line: without its newline.
        slots: declared, used or not.
        where: file and line, for errors.

    Raises:
        FluidValueError: a count that is not above 0, values that are missing or left over, or no number; a ValueError.
    """
    words = line.strip().split(" ")
    out = []
    position = 0
    for slot in slots:
        count = words[position] if position < len(words) else ""
        if not count.isdigit() or int(count) < 1:
            raise FluidValueError(f"{where}: slot '{slot.name}' needs a number of values of at least 1, got '{count}'")
        values = words[position + 1 : position + 1 + int(count)]
        if len(values) < int(count):
            raise FluidValueError(f"{where}: slot '{slot.name}' should have {count} values, got {len(values)}")
        try:
            number = np.uint64 if slot.type == "uint64" else np.float32
            out.append(np.array(values).astype(number).astype(_DTYPES[slot.type]))
        except (ValueError, OverflowError):
            raise FluidValueError(f"{where}: slot '{slot.name}' is {slot.type}, got {' '.join(values)!r:.60}") from None
        position += 1 + int(count)
    if position != len(words):
        raise FluidValueError(f"{where}: {len(words) - position} words are left after the last slot '{slots[-1].name}'")
    return out


def read_instances(file: Any, slots: Sequence[Slot]) -> Iterator[list[np.ndarray[Any, Any]]]:
    """Yield the instances of a file.

    Raises:
        FluidValueError: it cannot be read, or see `read_line`; a ValueError.
    """
    try:
        with Path(file).open(encoding="utf-8") as stream:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    yield read_line(line, slots, f"{file}:{number}")
    except OSError as error:
        raise FluidValueError(f"{file}: {error.strerror}") from None


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
        shape = [len(values), *(s for s in slot.shape if s != -1)] if slot.shape else [len(values), -1]
        try:
            out[slot.name] = flat.reshape(shape)
        except ValueError:
            raise FluidValueError(
                f"dense slot '{slot.name}' is {shape[1:]}, got {flat.size} values in {len(values)}"
            ) from None
    return out


def batches(files: Sequence[Any], slots: Sequence[Slot], batch_size: int) -> Iterator[dict[str, Any]]:
    """Yield batches of files one after the other; a file's last batch may be smaller."""
    for file in files:
        waiting = []
        for instance in read_instances(file, slots):
            waiting.append(instance)
            if len(waiting) == batch_size:
                yield to_batch(waiting, slots)
                waiting = []
        if waiting:
            yield to_batch(waiting, slots)
