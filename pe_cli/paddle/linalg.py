"""linalg: functions of matrices that stand at the top of 2.x, too."""

from __future__ import annotations

from pe_cli.paddle import tensor, v2_matrices
from pe_cli.paddle.errors import FluidValueError, raised_as
from pe_cli.paddle.reference_names import missing

_NAMES = ("cholesky", "cross", "dist", "dot", "inverse", "matmul", "mv", "norm")
globals().update({name: tensor.functions()[name] for name in _NAMES})
globals().update({f.__name__: raised_as(FluidValueError)(f) for f in v2_matrices.FUNCTIONS})
inv = tensor.functions()["inverse"]
__all__ = ["inv", *_NAMES, *(f.__name__ for f in v2_matrices.FUNCTIONS)]
__getattr__ = missing("paddle.linalg", lambda: globals())
