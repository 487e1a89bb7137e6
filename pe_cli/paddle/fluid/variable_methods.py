"""Methods of variables: `x.mean(axis=1)` is `paddle.mean(x, axis=1)`, in the program of the variable."""

from __future__ import annotations

import importlib
from typing import Any

from pe_cli.program.defaults import program_guard

#: Functions of 2.x's top level that are methods, too: those whose first argument is a variable.
NAMES = (
    "abs", "abs_", "acos", "acos_", "acosh", "add", "add_n", "addmm", "addmm_", "all", "allclose", "amax", "amin", "any", "argmax",
    "argmin", "argsort", "as_strided", "asin", "asinh", "atan", "atan2", "atan_", "atanh", "atleast_1d", "atleast_2d", "atleast_3d",
    "bincount", "bitwise_and", "bitwise_and_", "bitwise_not", "bitwise_not_", "bitwise_or", "bitwise_or_", "bitwise_xor", "bitwise_xor_",
    "bmm", "broadcast_tensors", "broadcast_to", "bucketize", "cast", "cast_", "cauchy_", "cdist", "ceil", "cholesky", "chunk", "clip",
    "combinations", "concat", "cos", "cos_", "cosh", "count_nonzero", "cross", "cummax", "cummin", "cumprod", "cumprod_", "cumsum",
    "cumsum_", "cumulative_trapezoid", "deg2rad", "diag", "diag_embed", "diagflat", "diagonal", "diagonal_scatter", "diff", "digamma",
    "digamma_", "dist", "divide", "divide_", "dot", "equal", "equal_", "equal_all", "erf", "erfinv", "exp", "expand", "expand_as",
    "expm1", "flatten", "flip", "floor", "floor_divide", "floor_divide_", "floor_mod", "floor_mod_", "fmax", "fmin", "frac", "frac_",
    "frexp", "gather", "gather_nd", "gcd", "gcd_", "geometric_", "greater_equal", "greater_equal_", "greater_than", "greater_than_",
    "heaviside", "histogram", "hypot", "hypot_", "i0", "i0_", "i0e", "i1", "i1e", "increment", "index_add", "index_add_", "index_fill",
    "index_fill_", "index_put", "index_put_", "index_sample", "index_select", "inner", "inverse", "is_complex", "is_empty",
    "is_floating_point", "is_integer", "isclose", "isfinite", "isinf", "isnan", "kron", "kthvalue", "lcm", "lcm_", "ldexp", "ldexp_",
    "lerp", "less_equal", "less_equal_", "less_than", "less_than_", "lgamma", "lgamma_", "log", "log10", "log10_", "log1p", "log2",
    "log2_", "log_", "logaddexp", "logcumsumexp", "logical_and", "logical_and_", "logical_not", "logical_not_", "logical_or",
    "logical_or_", "logical_xor", "logit", "logit_", "logsumexp", "masked_fill", "masked_fill_", "masked_select", "matmul", "max",
    "maximum", "mean", "median", "min", "minimum", "mm", "mod", "mod_", "mode", "moveaxis", "multigammaln", "multigammaln_",
    "multinomial", "multiplex", "multiply", "multiply_", "mv", "nan_to_num", "nan_to_num_", "nanmean", "nanmedian", "nanquantile",
    "nansum", "neg", "neg_", "nonzero", "norm", "normal_", "not_equal", "numel", "outer", "polygamma", "polygamma_", "pow", "pow_",
    "prod", "put_along_axis", "quantile", "rad2deg", "rank", "reciprocal", "remainder", "remainder_", "renorm", "renorm_",
    "repeat_interleave", "reshape", "reshape_", "reverse", "roll", "rot90", "round", "rsqrt", "scale", "scatter", "scatter_",
    "scatter_nd", "scatter_nd_add", "select_scatter", "sgn", "shard_index", "sigmoid", "sign", "sin", "sin_", "sinh", "sinh_", "slice",
    "sort", "split", "sqrt", "square", "squeeze", "squeeze_", "stack", "stanh", "std", "strided_slice", "subtract", "sum", "t", "t_",
    "take", "take_along_axis", "tan", "tan_", "tanh", "tanh_", "tensordot", "tile", "topk", "trace", "transpose", "transpose_",
    "trapezoid", "tril", "tril_", "triu", "triu_", "trunc", "trunc_", "unbind", "unflatten", "unfold", "unique", "unique_consecutive",
    "unsqueeze", "unsqueeze_", "unstack", "vander", "var", "view", "view_as", "vsplit", "where", "where_",
)  # fmt: skip

#: Those that have another one with `_` behind its name as a method alone; it returns a new variable, as in 2.6's static mode.
IN_PLACE = (
    "acosh add asin asinh atanh ceil clip cosh erfinv exp flatten floor lerp log1p logical_xor not_equal put_along_axis reciprocal "
    "round rsqrt scale sigmoid sqrt subtract"
)


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
for _name in IN_PLACE.split():
    setattr(Methods, f"{_name}_", _method(_name))

__all__ = ["Methods"]
