"""incubate: hapi, as 1.8 has it."""

from __future__ import annotations

from pe_cli.paddle.incubate import hapi
from pe_cli.paddle.reference_names import missing

__all__ = ["hapi"]
__getattr__ = missing("paddle.incubate", lambda: globals())
