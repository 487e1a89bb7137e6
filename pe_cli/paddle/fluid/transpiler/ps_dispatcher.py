"""Which server gets which block: in turn, or by a hash of its name."""

from __future__ import annotations

from pe_cli.graph.servers import block_dispatch as core
from pe_cli.graph.servers.block_dispatch import PSDispatcher
from pe_cli.paddle.errors import raising


@raising
class HashName(core.HashName, PSDispatcher):
    """The core's."""


@raising
class RoundRobin(core.RoundRobin, PSDispatcher):
    """The core's."""


__all__ = ["HashName", "PSDispatcher", "RoundRobin"]
