"""A process's share of a batch: the rows of its devices, in every batch of a step and every part of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from pe_cli.data.loader import Share
from pe_cli.execute.batch_split import samples_before, split_sizes
from pe_cli.session.processes.process_group import ProcessGroup


def part_sizes(samples: int, parts: int) -> list[int]:
    """Return the samples of the parts of a batch, in order.

    The largest part comes last: a device without samples in it has had none before, whose gradients would be lost.
    """
    return [n for n in split_sizes(samples, parts) if n]


def cut_sizes(samples: int, parts: Sequence[int]) -> list[int]:
    """Return the samples of the pieces that a batch is cut into: first into `parts[0]` parts, each of them into `parts[1]`, and so on."""
    sizes = [samples]
    for count in parts:
        sizes = [n for size in sizes for n in part_sizes(size, count)]
    return sizes


def share_of(group: ProcessGroup, devices: int, parts: Sequence[int] = (), multiple: int = 1) -> Share | None:
    """Return what says which samples of a batch are this process's; None where it is given all of them.

    Args:
        group: the processes.
        devices: of each.
        parts: that a batch is cut into, as for `cut_sizes`.
        multiple: what is beyond a multiple of so many samples is left out.
    """
    if not group.shares:
        return None

    def share(samples: int) -> Sequence[slice]:
        sizes = cut_sizes(samples - samples % multiple, parts)
        found = []
        for begin, size in zip(accumulate(sizes, initial=0), sizes, strict=False):
            # By the devices of all processes, so that two processes share a batch exactly as two devices of one do.
            first, last = (samples_before(size, devices * group.size, devices * rank) for rank in (group.rank, group.rank + 1))
            found.append(slice(begin + first, begin + last))
        return found

    return share
