"""MultiSlot text files: sparse slots are sequences of ids, dense ones plain values."""

from __future__ import annotations

import math
from array import array
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from pe_cli.config.sections.value_types import Count
from pe_cli.core.types import TensorType
from pe_cli.data.dataset import Batch, Dataset
from pe_cli.data.multi_slot import SLOT_TYPES, read_instances
from pe_cli.data.reader_context import Origin
from pe_cli.data.registry import ReaderOptions, reader
from pe_cli.ops.define.lod import offsets_name, ranges


class SlotOptions(BaseModel):
    """One slot of the multi_slot reader."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    type: Literal["uint64", "float"] = Field("uint64", description="ids, which become int64, or float32 numbers")
    dense: bool = Field(
        False, strict=True, description="as many values in every line; otherwise a sequence of any length"
    )
    shape: tuple[Count, ...] | None = Field(None, description="sizes of a dense slot's sample; [1] when absent")
    used: bool = Field(True, strict=True, description="whether it is a field; every slot of the file must be named")

    @model_validator(mode="after")
    def _consistent(self) -> SlotOptions:
        if self.shape is not None and not self.dense:
            raise ValueError("shape is for dense slots, a sparse one has as many rows of [1] as its line says")
        return self


class MultiSlotOptions(ReaderOptions):
    """Options of the multi_slot reader."""

    files: list[str] = Field(min_length=1, description="text files, read one after the other")
    slots: dict[str, SlotOptions | None] = Field(
        min_length=1, description="every slot of a line, in order -> what it holds"
    )

    @model_validator(mode="after")
    def _some_used(self) -> MultiSlotOptions:
        if all(slot is not None and not slot.used for slot in self.slots.values()):
            raise ValueError("no slot is used")
        return self


@reader("multi_slot", MultiSlotOptions)
def open_multi_slot(options: MultiSlotOptions, origin: Origin) -> Dataset:
    """Read text with one instance per line: for every slot in order `<n> <v1> ... <vn>`, separated by single spaces.

    A sparse slot is a field of sequences of [1] (the model's feed declares lod_level: 1), a dense one a plain field of its
    shape. n is at least 1. The files are read into memory when they are opened; every mistake in them is told with
    its line and slot.
    """
    return MultiSlot(options, origin)


class MultiSlot:
    """Instances of text files, in memory.

    Args:
        options: files and slots.
        origin: finds the files and gives errors their place.

    Raises:
        PeError: the files have no line (exit code 3).
    """

    def __init__(self, options: MultiSlotOptions, origin: Origin) -> None:
        slots = {name: slot or SlotOptions.model_validate({}) for name, slot in options.slots.items()}
        used = {name: slot for name, slot in slots.items() if slot.used}
        self.fields = {name: TensorType(slot.shape or (1,), SLOT_TYPES[slot.type]) for name, slot in used.items()}
        self.sequences = frozenset(name for name, slot in used.items() if not slot.dense)
        kinds = [(n, s.type, math.prod(s.shape or (1,)) if s.dense else 0) for n, s in slots.items()]
        values = {name: array("q" if slot.type == "uint64" else "f") for name, slot in used.items()}
        lengths = {name: array("q") for name in used}
        columns = [(i, name) for i, name in enumerate(slots) if name in used]
        for path in [origin.find(file) for file in options.files]:
            for instance in read_instances(path, kinds):
                for i, name in columns:
                    values[name].extend(instance[i])  # type: ignore[arg-type]  # the type that the slot says
                    lengths[name].append(len(instance[i]))
        self._values = {name: np.array(found, self.fields[name].numpy) for name, found in values.items()}
        self._offsets = {name: np.concatenate([[0], found]).cumsum() for name, found in lengths.items()}
        if len(self) == 0:
            raise origin.error(f"there is no line in {', '.join(options.files)}", "one instance per line")

    def __len__(self) -> int:
        return len(next(iter(self._offsets.values()))) - 1

    def lengths(self, name: str) -> NDArray[np.int64]:
        """Return the values of every instance in a slot."""
        found: NDArray[np.int64] = np.diff(self._offsets[name])
        return found

    def take(self, indices: NDArray[np.int64]) -> Batch:
        """Return copies of some instances; see `Dataset.take`."""
        batch: Batch = {}
        for name, kind in self.fields.items():
            begins = self._offsets[name][indices]
            lengths = self._offsets[name][indices + 1] - begins
            rows = self._values[name][ranges(begins, lengths)]
            if name in self.sequences:
                batch[offsets_name(name, 0)] = np.concatenate([[0], lengths.cumsum()]).astype(np.int64)
                batch[name] = rows.reshape(-1, 1)
            else:
                batch[name] = rows.reshape(len(indices), *kind.shape)
        return batch
