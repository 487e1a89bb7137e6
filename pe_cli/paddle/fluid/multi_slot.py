"""MultiSlot text: one instance per line, for every slot in order `<n> <v1> ... <vn>`, separated by single spaces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pe_cli.data.multi_slot import SLOT_TYPES
from pe_cli.data.multi_slot import read_instances as parsed
from pe_cli.paddle.errors import FluidValueError, raised_as
from pe_cli.paddle.fluid.data_feed_desc import Slot
from pe_cli.paddle.fluid.lod_tensor import LoDTensor


def read_instances(file: Any, slots: Sequence[Slot]) -> Iterator[list[np.ndarray[Any, Any]]]:
    """Yield the values of every slot of a file's instances.

    Raises:
        FluidValueError: the file cannot be read, a count that is not above 0, values that are missing, left over or of
            another type; a ValueError.
    """
    kinds = [(slot.name, slot.type, 0) for slot in slots]
    with raised_as(FluidValueError):
        for instance in parsed(file, kinds):
            yield [np.array(v, SLOT_TYPES[slot.type]) for v, slot in zip(instance, slots, strict=True)]


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
