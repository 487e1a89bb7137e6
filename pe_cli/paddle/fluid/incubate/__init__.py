"""incubate: fleet."""

from __future__ import annotations

from pe_cli.paddle.fluid.incubate import fleet

__all__ = ["fleet"]
