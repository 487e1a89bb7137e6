"""Assigns blocks to servers: in turn, or by a hash of the name."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

from pe_cli.core.errors import PeError


class PSDispatcher:
    """Deals blocks to servers.

    Args:
        pserver_endpoints: host:port of each server.

    Raises:
        PeError: there is no server.
    """

    def __init__(self, pserver_endpoints: Sequence[str]) -> None:
        self._eps = list(pserver_endpoints)
        if not self._eps:
            raise PeError("there is no server to give blocks to", hint="give pservers as host:port,host:port")
        self._step = 0

    @property
    def eps(self) -> list[str]:
        """host:port of each server."""
        return self._eps

    def reset(self) -> None:
        """Begin again with the first server."""
        self._step = 0

    def dispatch(self, varlist: Sequence[Any]) -> list[str]:
        """Return the server of each block."""
        raise NotImplementedError(f"{type(self).__name__} deals no blocks")


class RoundRobin(PSDispatcher):
    """Deals blocks to servers in turn."""

    def dispatch(self, varlist: Sequence[Any]) -> list[str]:
        """Return the server of each block, going on after the last one's."""
        # The position is kept between calls, so that small parameters do not all land on the first server.
        found = [self._eps[(self._step + i) % len(self._eps)] for i in range(len(varlist))]
        self._step = (self._step + len(varlist)) % len(self._eps)
        return found


class HashName(PSDispatcher):
    """Deals blocks to servers by the CRC-32 of their names, which is the same in every process.

    Blocks of a gradient go where the parameter's go: what follows `@GRAD`, but for the block's number, does not count.
    """

    def dispatch(self, varlist: Sequence[Any]) -> list[str]:
        """Return the server of each block."""
        # Python's own hash of strings differs from process to process.
        return [self._eps[zlib.crc32(_block_name(str(v.name)).encode()) % len(self._eps)] for v in varlist]


def _block_name(name: str) -> str:
    """Return the name of the parameter's block that a name of a parameter's or a gradient's block belongs to."""
    name = name.partition(".trainer_")[0]
    parameter, _, gradient = name.partition("@GRAD")
    number = gradient.rpartition(".block")[2] if ".block" in gradient else ""
    return f"{parameter}.block{number}" if number else parameter


__all__ = ["HashName", "PSDispatcher", "RoundRobin"]
