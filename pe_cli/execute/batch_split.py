"""Cutting a batch for devices: plain rows along axis 0, sequences between the outermost ones."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.ops.define.lod import Lod

Array = np.ndarray[Any, Any]


class Sizes(tuple[int, ...]):
    """Samples of every device of all processes, and what every step asks of them, found once."""

    @cached_property
    def total(self) -> int:
        """Samples of all devices together."""
        return sum(self)

    @cached_property
    def active(self) -> list[int]:
        """The samples of the devices that have any."""
        return [n for n in self if n]

    @cached_property
    def _ends(self) -> list[int]:
        return list(itertools.accumulate(self, initial=0))

    def before(self, device: int) -> int:
        """Return the samples of the devices before one."""
        return self._ends[device]


@lru_cache(maxsize=64)
def dealt(samples: int, devices: int) -> Sizes:
    """Return the samples of every device, as `split_sizes` deals them: the same object again for the batches of an epoch."""
    return Sizes(split_sizes(samples, devices))


def split_sizes(samples: int, devices: int) -> list[int]:
    """Split evenly; the remainder goes to the later devices (3 over 2 -> 1, 2).

    With fewer samples than devices the first ones get one each: the first device's values stand for all, running statistics too.
    """
    if samples < devices:
        return [int(d < samples) for d in range(devices)]
    least, more = divmod(samples, devices)
    # Which device has one more is the same everywhere: processes split by this without asking each other.
    return [least + (d >= devices - more) for d in range(devices)]


def samples_before(samples: int, devices: int, device: int) -> int:
    """Return how many samples the devices before one have, as `split_sizes` deals them, in a time that does not grow with their number."""
    if samples < devices:
        return min(device, samples)
    least, more = divmod(samples, devices)
    return least * device + max(0, device - (devices - more))


def check_offsets(name: str, levels: Mapping[str, Array], rows: int | None) -> None:
    """Check the offsets of a feed.

    Args:
        name: of the feed.
        levels: name of each level's feed -> its offsets, the outermost first.
        rows: of the feed; None where it is not fed itself.

    Raises:
        PeError: they do not start at 0, fall, or do not end where the next level or the rows do (exit code 3).
    """
    sizes = [len(o) - 1 for o in list(levels.values())[1:]]
    ends: list[int | None] = [*sizes, rows]
    for (level, offsets), end in zip(levels.items(), ends, strict=True):
        if not len(offsets) or offsets[0] != 0 or (np.diff(offsets) < 0).any():
            shown = np.array2string(offsets, threshold=8)
            raise PeError(
                f"feed '{level}' must hold offsets that start at 0 and do not fall, got {shown}", code=ExitCode.DATA
            )
        if end is not None and offsets[-1] != end:
            what = "rows" if level == list(levels)[-1] else "sequences"
            raise PeError(
                f"the sequences of feed '{name}' end at {offsets[-1]}, but there are {end} {what}",
                hint=f"the last offset of '{level}' is their number",
                code=ExitCode.DATA,
            )


def cut_sequences(name: str, levels: Lod, arrays: Mapping[str, Array], begin: int, end: int) -> dict[str, Array]:
    """Return the part of a feed with sequences, and its offsets from 0.

    Args:
        name: of the feed; its own array may be absent.
        levels: the feeds of its offsets, the outermost first.
        arrays: of the batch.
        begin, end: outermost sequences.
    """
    out = {}
    for level in levels:
        part = arrays[level][begin : end + 1]
        begin, end = int(part[0]), int(part[-1])
        # Kernels read offsets from 0, as in a batch of its own.
        out[level] = part - part[0]
    if name in arrays:
        out[name] = arrays[name][begin:end]
    return out


def cut(
    arrays: Mapping[str, Array], feeds: Mapping[str, Lod], batched: set[str], begin: int, end: int
) -> dict[str, Array]:
    """Return some samples of a batch.

    Args:
        arrays: of the batch.
        feeds: feeds with sequences -> their offsets.
        batched: feeds whose first axis is the batch; all others are left whole.
        begin, end: samples.
    """
    out: dict[str, Array] = {}
    offsets = {level for levels in feeds.values() for level in levels}
    for name, levels in feeds.items():
        if all(level in arrays for level in levels):
            out |= cut_sequences(name, levels, arrays, begin, end)
    for name, array in arrays.items():
        if name not in out and name not in offsets:
            out[name] = array[begin:end] if name in batched else array
    return out


def cut_parts(arrays: Mapping[str, Array], sizes: Sequence[int], feeds: Mapping[str, Lod], batched: set[str]) -> list[dict[str, Array]]:
    """Return the parts of a batch, one after the other; where nothing has a batch axis, all of it for each.

    Args:
        arrays, feeds, batched: as of `cut`.
        sizes: samples of each part.
    """
    if not feeds and not batched:
        return [dict(arrays) for _ in sizes]
    begins = itertools.accumulate(sizes, initial=0)
    return [cut(arrays, feeds, batched, begin, begin + n) for begin, n in zip(begins, sizes, strict=False)]
