"""Connections of trainers: one for each set of servers, shared by the executors of a process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from pe_cli.collectives.servers.client import Servers
from pe_cli.collectives.servers.secret import group_key

#: Servers and the trainer's number.
Key = tuple[tuple[str, ...], int]
_LOCK = threading.Lock()
_OPEN: dict[Key, Servers] = {}
_USED: dict[int, set[Key]] = {}


def link(endpoints: Sequence[str], trainer: int, most: int, owner: Any, seconds: float) -> Servers:
    """Return the connection of a trainer to servers, or one to more of them; made on first need.

    Args:
        endpoints: host:port of all servers.
        trainer: its number.
        most: bytes of an answer, at most.
        owner: the executor that uses it.
        seconds: that a server may be silent.

    Raises:
        PeError: a server cannot be reached, or there is no secret for one that is on another machine; see `group_key`.
    """
    with _LOCK:
        wanted = (tuple(endpoints), trainer)
        # A connection to more servers serves for some of them as well, so that a trainer is one trainer to each server.
        key = next((k for k in _OPEN if k[1] == trainer and set(endpoints) <= set(k[0])), wanted)
        if key not in _OPEN:
            _OPEN[key] = Servers(endpoints, trainer, seconds, most, key=group_key(endpoints))
        # Executors share it: the largest answer that one of them expects must be allowed for all.
        _OPEN[key].allow(most)
        _USED.setdefault(id(owner), set()).add(key)
        return _OPEN[key]


def close(owner: Any) -> None:
    """Leave the servers that an executor has used.

    Raises:
        PeerError: one of them is lost.
    """
    with _LOCK:
        keys = _USED.pop(id(owner), set())
        # Left outside of the lock: a server that does not answer must not stop others from opening theirs.
        found = [_OPEN.pop(key) for key in keys if key in _OPEN]
    for each in found:
        each.leave()


def leave(endpoints: Sequence[str], trainer: int) -> None:
    """Leave servers, whichever executor has used them.

    Raises:
        PeerError: one of them is lost.
    """
    with _LOCK:
        keys = [k for k in _OPEN if k[1] == trainer and set(k[0]) <= set(endpoints)]
        found = [_OPEN.pop(key) for key in keys]
    for each in found:
        each.leave()
