"""dygraph: the dynamic mode, which is refused; what says so, and what a static graph has too."""

from __future__ import annotations

from typing import Any

from pe_cli.paddle.reference_names import missing


def enabled() -> bool:
    """No: graphs are static here."""
    return False


def __getattr__(name: str) -> Any:
    if name == "Layer":
        from pe_cli.paddle.nn import Layer

        return Layer
    if name in ("no_grad", "grad"):
        from pe_cli.paddle import dynamic_mode

        return getattr(dynamic_mode, name)
    return missing("fluid.dygraph", list)(name)


__all__ = ["enabled"]
