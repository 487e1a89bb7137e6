"""autograd: gradients of 2.x's dynamic mode, which is refused; `static.gradients` has those of a program."""

from __future__ import annotations

from pe_cli.paddle.reference_names import missing

__all__: list[str] = []
__getattr__ = missing("paddle.autograd", lambda: globals())
