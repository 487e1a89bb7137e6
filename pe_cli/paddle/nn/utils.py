"""nn.utils: what 2.x does with the parameters of a layer that runs, which is refused; the errors say what stands for it."""

from __future__ import annotations

from pe_cli.paddle.reference_names import missing

__all__: list[str] = []
__getattr__ = missing("paddle.nn.utils", lambda: globals())
