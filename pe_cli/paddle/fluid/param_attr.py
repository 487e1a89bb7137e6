"""ParamAttr."""

from __future__ import annotations

from pe_cli.program.param_attr import ParamAttr

__all__ = ["ParamAttr"]
