"""vision: pictures of data sets, and what is done with them before they are fed."""

from __future__ import annotations

from pe_cli.paddle.names import missing
from pe_cli.paddle.vision import datasets, transforms

__all__ = ["datasets", "transforms"]
__getattr__ = missing("paddle.vision", lambda: globals())
