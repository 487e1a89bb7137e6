"""The base of fleet: which process is a trainer, which a server."""

from __future__ import annotations

from pe_cli.paddle.fluid.incubate.fleet.base import role_maker

__all__ = ["role_maker"]
