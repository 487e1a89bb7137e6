"""fleet with parameter servers."""

from __future__ import annotations

from pe_cli.paddle.fluid.incubate.fleet.parameter_server import distribute_transpiler

__all__ = ["distribute_transpiler"]
