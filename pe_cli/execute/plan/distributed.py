"""A plan's place among several processes: its part of the batch, and what processes tell each other of theirs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.collectives.protocol import Summing, left
from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.execute.batch_split import Sizes
from pe_cli.execute.lowering.batch_rows import Asked, ToldRows, ToldWhole, Types, Whole
from pe_cli.execute.lowering.types import Inferred, concrete_types, device_types, joined_types
from pe_cli.execute.request import Request
from pe_cli.graph.ssa import Graph

Array = np.ndarray[Any, Any]


def types_over_processes(
    graph: Graph, request: Request, peers: Summing | None, inferred: Inferred
) -> tuple[list[dict[str, TensorType]], Whole | None]:
    """Return the type of every variable on every device of this process, and the devices of all processes; None for one alone.

    Args:
        graph: of this process.
        request: what the plan is for.
        peers: the processes.
        inferred: what is known of the graph's program from other batches.

    Raises:
        PeError: devices have attributes of their own, which other processes do not know.
    """
    feeds, whole = [dict(given) for given in request.feeds], request.whole
    if whole is None or peers is None:
        return device_types(graph, feeds, (), inferred), None
    if inferred.varies:
        op = next(op for op, _, varies in inferred.ops if varies)
        what = f"{op.type}: a size that a variable gives is not the same on all devices, which have to agree over several processes"
        raise PeError(what, at=op.at, hint="use batches that all devices divide")
    if isinstance(whole, ToldRows):
        own = [dict(of) for of in whole.types]
        types = joined_types(graph, feeds, own, whole.joined, inferred) if graph.gathered else own
        return types, ToldWhole(types, whole.sizes, peers.rank * len(graph.places), len(graph.places), peers, told=whole)
    everyone = [(dict(given), samples) for given, samples in zip(*whole, strict=True)]
    types = device_types(graph, feeds, everyone, inferred)
    return types, whole_of(graph, whole, types, peers, inferred)


def whole_of(
    graph: Graph,
    batch: tuple[Sequence[tuple[tuple[str, TensorType], ...]], Sequence[int]],
    types: Sequence[Mapping[str, TensorType]],
    peers: Summing,
    inferred: Inferred | None = None,
) -> Whole:
    """Return the devices of all processes for a batch of which every process knows what the others are fed.

    Args:
        graph: of this process.
        batch: types of the feeds and samples of every device of all processes.
        types: of every variable, by device of this process.
        peers: the processes, each with as many devices.
        inferred: as for `types_over_processes`.
    """
    feeds, sizes = batch
    first = peers.rank * len(graph.places)
    known = {feeds[first + d]: found for d, found in enumerate(types)}
    for given in feeds:
        # Devices of other processes that are fed the same types have the same types inside: most batches need no inference twice.
        if given not in known:
            known[given] = concrete_types(graph.program, dict(given), None, inferred)
    return Whole([known[given] for given in feeds], Sizes(sizes), first, len(graph.places), peers)


class Told:
    """The exchange of batch facts between processes that each see only their share; all make the same calls in the same order.

    Args:
        peers: the processes.

    Raises:
        PeError: by all methods: one of them has ended instead.
    """

    def __init__(self, peers: Summing) -> None:
        self._peers = peers

    def longest(self, mine: Sequence[Array]) -> Array:
        """Return an array as long as the longest of all devices, of zeros: its size is the value."""
        longest = max(mine, key=len)
        _, most = self._peers.scan(np.array([len(longest)], np.int64), np.maximum)
        return np.zeros(int(most[0]), longest.dtype)

    def request(self, asked: Asked, parts: Sequence[Mapping[str, Array]], sizes: Sizes) -> Request:
        """Return the request of a batch of which this process knows its own part alone.

        Args:
            asked: what is asked of the rows of others.
            parts: per device of this process, what it is fed.
            sizes: samples of every device of all processes.
        """
        feeds = [{name: TensorType(a.shape, str(a.dtype)) for name, a in part.items()} for part in parts]
        rows = self.rows(asked, [concrete_types(asked.program, given) for given in feeds], sizes)
        first = self._peers.rank * len(parts)
        mine = tuple(sizes[first : first + len(parts)])
        return Request(tuple(tuple(sorted(given.items())) for given in feeds), mine, asked.fetches, rows)

    def rows(self, asked: Asked, types: Sequence[Types], sizes: Sizes) -> ToldRows:
        """Tell the others the rows of this process's devices, and hear what follows from those of all.

        Args:
            asked: what is asked of them, the same on all processes.
            types: of every variable, by device of this process; without those that devices make together.
            sizes: samples of every device of all processes.
        """
        first = self._peers.rank * len(types)
        mine = [sum(of[name].shape[0] for of in types) for name in asked.names]
        # Devices without samples have no rows of a row-sparse gradient.
        active = [of for of, samples in zip(types, sizes[first : first + len(types)], strict=True) if samples]
        mine += [sum(of[name].shape[0] for of in active) for name in asked.joined]
        before, totals = self._peers.scan(np.array(mine, np.int64), np.add)
        named = dict(zip(asked.names, totals.tolist(), strict=False))
        return ToldRows(
            sizes,
            named,
            dict(zip(asked.names, before.tolist(), strict=False)),
            dict(zip(asked.joined, totals[len(asked.names) :].tolist(), strict=True)),
            self._uneven(asked.numbers, types, named),
            self._by_device(asked.exchanged, types),
            types,
        )

    def _uneven(self, numbers: Mapping[str, Sequence[str]], types: Sequence[Types], totals: Mapping[str, int]) -> frozenset[str]:
        """Return the numbers whose variables divide the batch in different ways on some device."""
        if not numbers:
            return frozenset()
        # Cross-multiplied, so that shares are compared without rounding.
        mine = [
            any(of[name].shape[0] * totals[names[0]] != of[names[0]].shape[0] * totals[name] for of in types for name in names[1:])
            for names in numbers.values()
        ]
        _, found = self._peers.scan(np.array(mine, np.int64), np.add)
        return frozenset(number for number, count in zip(numbers, found.tolist(), strict=True) if count)

    def _by_device(self, names: Sequence[str], types: Sequence[Types]) -> dict[str, tuple[int, ...]]:
        """Return the rows of variables on every device of all processes: rows that all send to all are as many messages anyway."""
        if not names:
            return {}
        mine = np.array([[of[name].shape[0] for name in names] for of in types], np.int64)
        found = np.frombuffer(b"".join(self._peers.gather(mine.tobytes())), np.int64).reshape(-1, len(names))
        return {name: tuple(found[:, i].tolist()) for i, name in enumerate(names)}

    def sizes(self, mine: Sequence[int]) -> Sizes:
        """Return the samples of every device of all processes.

        Raises:
            PeError: one of them has ended its loop instead.
        """
        told = self._peers.gather(np.array(mine, np.int64).tobytes())
        # An empty message is a process that left its loop; to wait on would hang both until the watchdog ends them.
        if not all(told):
            raise left(next(rank for rank, said in enumerate(told) if not said))
        return Sizes(np.frombuffer(b"".join(told), np.int64).tolist())


def types_of_all(arrays: Mapping[str, Array], sizes: Sequence[int], batched: Collection[str]) -> list[dict[str, TensorType]]:
    """Return the types of what every device of all processes is fed, without sequences.

    Args:
        arrays: of this process.
        sizes: samples of every device.
        batched: feeds whose first axis is the batch.
    """
    known = {name: TensorType(a.shape, str(a.dtype)) for name, a in arrays.items()}
    made = {n: {k: t.with_shape(n, *t.shape[1:]) if k in batched else t for k, t in known.items()} for n in set(sizes)}
    return [made[n] for n in sizes]
