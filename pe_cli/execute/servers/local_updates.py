"""Local updates: a trainer trains by itself, sends its changes to servers every few steps, and receives the sum of all."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import numpy as np

from pe_cli.collectives.servers.client import Servers
from pe_cli.collectives.servers.frames import Message
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.execute.servers.host import Kept
from pe_cli.execute.servers.trainer import Array, array_of
from pe_cli.graph.servers.server_program import ROWS


@dataclass(frozen=True)
class Shared:
    """A parameter that trainers share.

    Args:
        name: of the parameter.
        blocks: names of its blocks.
        sections: rows of each.
        servers: host:port of each.
        sparse: only rows that were looked up are sent.
    """

    name: str
    blocks: Sequence[str]
    sections: Sequence[int]
    servers: Sequence[str]
    sparse: bool


class LocalUpdates:
    """What a trainer has learned since servers were asked last; its threads may share one.

    Args:
        shared: parameters.
        trainers: number of them: each sends that share of what it has learned.
        every: steps between two exchanges.
        host: has the parameters.
        servers: connections.
    """

    def __init__(self, shared: Sequence[Shared], trainers: int, every: int, host: Kept, servers: Servers) -> None:
        self._shared, self._trainers, self._every = shared, trainers, every
        self._host, self._servers = host, servers
        self._old = {p.name: host.read(p.name) for p in shared}
        self._rows: dict[str, set[int]] = {p.name: set() for p in shared if p.sparse}
        self._steps = 0
        self._alone = threading.Lock()

    def adopt(self) -> None:
        """Begin with what servers have of row-sparse tables: startup programs leave that to this."""
        tables = [p for p in self._shared if p.sparse]
        whole = {p.name: np.arange(sum(p.sections)) for p in tables}
        for name, value in self._pull(whole, tables).items():
            self._old[name] = value
            self._host.write(name, value)

    def step(self, ids: Mapping[str, Sequence[Array]]) -> None:
        """Note a step.

        Args:
            ids: of the rows that were looked up, by table.
        """
        with self._alone:
            for table, arrays in ids.items():
                for a in arrays:
                    self._rows[table].update(int(i) for i in np.unique(a))
            # Several threads may train with the same parameters: the exchange counts steps of all of them.
            self._steps += 1
            if self._steps % self._every == 0:
                self.exchange()

    def finish(self) -> None:
        """Exchange what is left."""
        if self._steps % self._every:
            self.exchange()
        self._steps = 0

    def exchange(self) -> None:
        """Send a share of the difference since the last time, and take what servers have now."""
        # Copied at once: what threads change while servers are asked is added to the answer below.
        before = {p.name: self._host.read(p.name) for p in self._shared}
        rows = {p.name: np.array(sorted(self._rows[p.name]), np.int64) for p in self._shared if p.sparse}
        # All trainers send: each its share, so that what they have learned together is the mean.
        share = {p.name: (before[p.name] - self._old[p.name]) / before[p.name].dtype.type(self._trainers) for p in self._shared}
        self._push(share, rows)
        now = self._pull(rows, self._shared)
        for p in self._shared:
            at = rows[p.name] if p.sparse else slice(None)
            value = self._host.read(p.name)  # other threads may have gone on since
            sent = self._old[p.name][at] + share[p.name][at]
            value[at] += now[p.name] - sent
            self._old[p.name][at] = now[p.name]
            self._host.write(p.name, value)
        self._rows = {name: set() for name in self._rows}

    def _push(self, share: Mapping[str, Array], rows: Mapping[str, Array]) -> None:
        pushes: dict[str, dict[str, Array]] = {}
        for p in self._shared:
            for block, end, count, server in zip(p.blocks, np.cumsum(p.sections), p.sections, p.servers, strict=True):
                arrays = pushes.setdefault(server, {})
                if not p.sparse:
                    arrays[f"{block}.delta"] = share[p.name][end - count : end]
                    continue
                mine = _within(rows[p.name], end, count)
                arrays[f"{block}.delta"], arrays[f"{block}.delta{ROWS}"] = share[p.name][mine], mine - (end - count)
        self._servers.ask({e: Message("push", {}, a) for e, a in pushes.items()}, "sends what it has learned")

    def _pull(self, rows: Mapping[str, Array], shared: Sequence[Shared]) -> dict[str, Array]:
        names: dict[str, list[str]] = {}
        wanted: dict[str, dict[str, Array]] = {}
        for p in shared:
            for block, end, count, server in zip(p.blocks, np.cumsum(p.sections), p.sections, p.servers, strict=True):
                if p.sparse:
                    wanted.setdefault(server, {})[block] = _within(rows[p.name], end, count) - (end - count)
                else:
                    names.setdefault(server, []).append(block)
        doing = "takes what all have learned"
        whole = self._servers.ask({e: Message("pull", {"names": n}) for e, n in names.items()}, doing)
        parts = self._servers.ask({e: Message("rows", {}, a) for e, a in wanted.items()}, doing)
        found = {}
        for p in shared:
            blocks = []
            for block, count, server in zip(p.blocks, p.sections, p.servers, strict=True):
                rest = self._old[p.name].shape[1:]
                size = len(wanted[server][block]) if p.sparse else count
                blocks.append(array_of((parts if p.sparse else whole)[server], block, (size, *rest), server))
            found[p.name] = np.concatenate(blocks)
        return found


def _within(rows: Array, end: int, count: int) -> Array:
    """Return the row numbers of a block."""
    return rows[(rows >= end - count) & (rows < end)]
