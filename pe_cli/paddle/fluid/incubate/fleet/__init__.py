"""fleet: one script for trainers and parameter servers."""

from __future__ import annotations

from pe_cli.paddle.fluid.incubate.fleet import base, parameter_server

__all__ = ["base", "parameter_server"]
