"""distributed: `python -m pe_cli.paddle.distributed.launch` and `launch_ps` start the processes of a script."""

from __future__ import annotations

import importlib
from typing import Any

from pe_cli.paddle.reference_names import missing

_MODULES = ("launch", "launch_ps")
_missing = missing("paddle.distributed", lambda: _MODULES)


def __getattr__(name: str) -> Any:
    """Return a launcher, which is imported when it is asked for: run as a program, it is imported once."""
    return importlib.import_module(f"{__name__}.{name}") if name in _MODULES else _missing(name)
