"""linalg: functions of matrices that stand at the top of 2.x, too."""

from __future__ import annotations

from pe_cli.paddle import tensor
from pe_cli.paddle.reference_names import missing

_NAMES = ("cholesky", "cross", "dist", "dot", "inverse", "matmul", "mv", "norm")
globals().update({name: tensor.functions()[name] for name in _NAMES})
inv = tensor.functions()["inverse"]
__all__ = ["inv", *_NAMES]
__getattr__ = missing("paddle.linalg", lambda: globals())
