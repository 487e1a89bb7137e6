"""incubate: fleet, and generators of lines of slots."""

from __future__ import annotations

from pe_cli.paddle.fluid.incubate import data_generator, fleet

__all__ = ["data_generator", "fleet"]
