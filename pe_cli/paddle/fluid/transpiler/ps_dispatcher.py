"""Which server gets which block: in turn, or by a hash of its name."""

from __future__ import annotations

from pe_cli.graph.servers.dispatch import HashName, PSDispatcher, RoundRobin

__all__ = ["HashName", "PSDispatcher", "RoundRobin"]
