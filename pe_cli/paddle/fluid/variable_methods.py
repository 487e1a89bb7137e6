"""Methods of variables: `x.mean(axis=1)` is `paddle.mean(x, axis=1)`, in the program of the variable."""

from __future__ import annotations

import importlib
from typing import Any

from pe_cli.program.defaults import program_guard

#: Functions of 2.x's top level that are methods, too: those whose first argument is a variable.
NAMES = (
    "abs", "acos", "add", "addmm", "all", "allclose", "any", "argmax", "argmin", "argsort", "asin", "atan", "bmm", "broadcast_to",
    "cast", "ceil", "cholesky", "chunk", "clip", "cos", "cosh", "cross", "cumsum", "dist", "divide", "dot", "equal", "equal_all", "erf",
    "exp", "expand", "expand_as", "flatten", "flip", "floor", "floor_divide", "gather", "gather_nd", "greater_equal", "greater_than",
    "histogram", "increment", "index_sample", "index_select", "inverse", "is_empty", "isfinite", "isinf", "isnan", "kron",
    "less_equal", "less_than", "log", "log10", "log1p", "log2", "logical_and", "logical_not", "logical_or", "logical_xor",
    "logsumexp", "masked_select", "matmul", "max", "maximum", "mean", "median", "min", "minimum", "mm", "mod", "multiply", "mv",
    "nonzero", "norm", "not_equal", "numel", "pow", "prod", "rank", "reciprocal", "reshape", "reshape_", "roll", "round", "rsqrt",
    "scale", "scatter", "scatter_", "scatter_nd_add", "shard_index", "sign", "sin", "sinh", "slice", "sort", "split", "sqrt",
    "square", "squeeze", "squeeze_", "stanh", "std", "strided_slice", "subtract", "sum", "t", "tan", "tanh", "tanh_", "tile", "topk",
    "trace", "transpose", "unbind", "unique", "unsqueeze", "unsqueeze_", "unstack", "var", "where",
)  # fmt: skip


def _function(name: str) -> Any:
    # At the call: that module imports this one.
    return getattr(importlib.import_module("pe_cli.paddle"), name)


def _method(name: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        with program_guard(self.block.program):
            return _function(name)(self, *args, **kwargs)

    method.__name__, method.__doc__ = name, f"Call `paddle.{name}` with this variable."
    return method


def _operator(name: str, *, reflected: bool = False) -> Any:
    """Return the method of an operator that is a function of two variables."""

    def method(self: Any, other: Any) -> Any:
        # A variable, told by what it has: its class is made of this one.
        if not hasattr(other, "block"):
            return NotImplemented
        with program_guard(self.block.program):
            return _function(name)(*((other, self) if reflected else (self, other)))

    return method


class Methods:
    """The functions as a mixin of variables."""

    __matmul__ = _operator("matmul")
    __and__ = _operator("logical_and")
    __or__ = _operator("logical_or")
    __xor__ = _operator("logical_xor")

    def __invert__(self: Any) -> Any:
        return self.logical_not()

    def __abs__(self: Any) -> Any:
        return self.abs()

    @property
    def ndim(self: Any) -> int:
        """How many axes it has."""
        return len(self.shape)

    @property
    def T(self: Any) -> Any:
        """The variable with its axes the other way around."""
        return self.transpose([*reversed(range(self.ndim))])

    def dim(self: Any) -> int:
        """Return how many axes it has."""
        return len(self.shape)

    ndimension = dim

    def clone(self: Any) -> Any:
        """Append a copy, through which gradients flow."""
        with program_guard(self.block.program):
            return _function("assign")(self)

    def detach(self: Any) -> Any:
        """Append a copy, at which gradients stop."""
        copy = self.clone()
        copy.stop_gradient = True
        return copy


for _name in NAMES:
    setattr(Methods, _name, _method(_name))

__all__ = ["Methods"]
