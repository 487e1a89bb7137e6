"""Layers with parameters: products, tables and convolutions."""

from __future__ import annotations

import math
from typing import Any

from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.nn import functional as functions
from pe_cli.paddle.nn.layer import Layer
from pe_cli.program.initializer import Constant, Normal, Uniform


class Linear(Layer):
    """Connect every input to every output: x weight + bias.

    Args:
        in_features: size of the last axis of x.
        out_features: size of the last axis of the result.
        weight_attr: of weight, [in_features, out_features]; Xavier by default.
        bias_attr: of bias, [out_features]; 0 by default; False for none.
        name: prefix of the names of the parameters.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        weight_attr: Any = None,
        bias_attr: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        self.weight = self.create_parameter([in_features, out_features], weight_attr)
        self.bias = self.create_parameter([out_features], bias_attr, is_bias=True)

    def forward(self, input: Any) -> Any:
        """Append the product."""
        return functions.linear(input, self.weight, self.bias)


class Bilinear(Layer):
    """Return x1 W_i x2 + b_i for every output i.

    Args:
        in1_features: size of the last axis of x1.
        in2_features: size of the last axis of x2.
        out_features: number of outputs.
        weight_attr: of weight, [out_features, in1_features, in2_features]; uniform up to in1_features^-1/2 by default.
        bias_attr: of bias, [1, out_features]; False for none.
        name: prefix of the names of the parameters.
    """

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        weight_attr: Any = None,
        bias_attr: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        # As PyTorch initialises it.
        bound = Uniform(-(in1_features**-0.5), in1_features**-0.5)
        shape = [out_features, in1_features, in2_features]
        self.weight = self.create_parameter(shape, weight_attr, default_initializer=bound)
        self.bias = self.create_parameter([1, out_features], bias_attr, is_bias=True, default_initializer=bound)

    def forward(self, x1: Any, x2: Any) -> Any:
        """Append the products."""
        return functions.bilinear(x1, x2, self.weight, self.bias)


class Embedding(Layer):
    """Look up a learned row for every id.

    Args:
        num_embeddings: rows.
        embedding_dim: their width.
        padding_idx: an id whose row counts as 0.
        sparse: the gradient has only the rows that were looked up.
        weight_attr: of weight, [num_embeddings, embedding_dim]; Xavier by default.
        name: prefix of the names of the parameters.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        sparse: bool = False,
        weight_attr: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        self._options = padding_idx, sparse
        self.weight = self.create_parameter([num_embeddings, embedding_dim], weight_attr)

    def forward(self, x: Any) -> Any:
        """Append the look-up."""
        return functions.embedding(x, self.weight, *self._options)


class HSigmoidLoss(Layer):
    """Measure classes by the yes-or-no questions on the way to them in a binary tree; see `functional.hsigmoid_loss`.

    Args:
        feature_size: width of the input.
        num_classes: classes of the complete tree; with is_custom, nodes of one's own.
        weight_attr: of weight, [num_classes - 1, feature_size], or [num_classes, feature_size] with is_custom; Xavier by default.
        bias_attr: of bias, one per question; 0 by default; False for none.
        is_custom: a call is given path_table and path_code.
        is_sparse: only False.
        name: prefix of the names of the parameters.

    Raises:
        FluidValueError: num_classes is below 2, or is_sparse is set.
    """

    def __init__(
        self,
        feature_size: int,
        num_classes: int,
        weight_attr: Any = None,
        bias_attr: Any = None,
        is_custom: bool = False,
        is_sparse: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        if num_classes < 2 and not is_custom:
            raise FluidValueError(f"HSigmoidLoss: num_classes is {num_classes}", hint="at least 2")
        if is_sparse:
            raise FluidValueError("HSigmoidLoss: is_sparse is not available", hint="leave it out")
        nodes = num_classes if is_custom else num_classes - 1
        self._options = num_classes, is_custom
        self.weight = self.create_parameter([nodes, feature_size], weight_attr)
        self.bias = self.create_parameter([nodes, 1], bias_attr, is_bias=True)

    def forward(self, input: Any, label: Any, path_table: Any = None, path_code: Any = None) -> Any:
        """Append the loss.

        Raises:
            FluidValueError: path_table without is_custom, or the other way round.
        """
        classes, custom = self._options
        if custom != (path_table is not None):
            raise FluidValueError("HSigmoidLoss: path_table and path_code go with is_custom, and only with it")
        return functions.hsigmoid_loss(input, label, classes, self.weight, self.bias, path_table, path_code)


class PReLU(Layer):
    """Let x through where it is above 0, else weight x.

    Args:
        num_parameters: 1, or the number of channels.
        init: first value of the weights.
        weight_attr: of weight, [num_parameters].
        data_format: where the channels are.
        name: prefix of the names of the parameters.
    """

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        weight_attr: Any = None,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        self._layout = data_format
        default = Constant(float(init))
        self.weight = self.create_parameter([num_parameters], weight_attr, default_initializer=default)

    def forward(self, x: Any) -> Any:
        """Append the activation."""
        return functions.prelu(x, self.weight, self._layout)


#: How many axes rows, images and volumes have beside batch and channels -> the layout with channels first.
_FIRST = {1: "NCL", 2: "NCHW", 3: "NCDHW"}


class _Convolution(Layer):
    """A convolution of rows, images or volumes with learned filters.

    Args:
        in_channels: channels of x.
        out_channels: filters.
        kernel_size: pixels of a filter.
        stride: pixels between outputs.
        padding: pixels around x.
        dilation: pixels between taps.
        groups: parts that channels are split into.
        padding_mode: zeros, reflect, replicate or circular.
        weight_attr: of weight, [out_channels, in_channels / groups, ...]; normal with variance 2 / inputs by default.
        bias_attr: of bias, [out_channels]; 0 by default; False for none.
        data_format: where the channels are.
    """

    _axes = 2
    _function = "conv2d"

    def __init__(  # noqa: PLR0913, PLR0917 (2.x's arguments)
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        padding_mode: str = "zeros",
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str | None = None,
    ) -> None:
        super().__init__()
        kind = type(self).__name__
        if in_channels % groups or out_channels % groups:
            raise FluidValueError(
                f"{kind}: {groups} groups of {in_channels} and {out_channels} channels", hint="a divisor"
            )
        if padding_mode != "zeros" and isinstance(padding, str):
            raise FluidValueError(
                f"{kind}: padding {padding!r} with padding_mode {padding_mode!r}", hint="give numbers"
            )
        taps = [kernel_size] * self._axes if isinstance(kernel_size, int) else list(kernel_size)
        # As in the original, channels of all groups count; PyTorch counts those of one group.
        inputs = in_channels * math.prod(taps)
        # He et al. 2015, for relu: the variance of the outputs is that of the inputs.
        default = Normal(0.0, math.sqrt(2.0 / inputs))
        self.weight = self.create_parameter(
            [out_channels, in_channels // groups, *taps], weight_attr, default_initializer=default
        )
        self.bias = self.create_parameter([out_channels], bias_attr, is_bias=True)
        self._border = None if padding_mode == "zeros" else (self._around(padding), padding_mode)
        self._layout = data_format or _FIRST[self._axes]
        self._options = (stride, 0 if self._border else padding, dilation, groups, self._layout)

    def _around(self, padding: Any) -> list[int]:
        """Return the numbers of `functional.pad`: the last axis first."""
        # A mode other than zeros is a border of its own before the convolution, which then pads no more.
        sizes = [padding] * self._axes if isinstance(padding, int) else list(padding)
        return [v for size in reversed(sizes) for v in (size, size)]

    def forward(self, x: Any) -> Any:
        """Append the convolution."""
        if self._border:
            x = functions.pad(x, *self._border, data_format=self._layout)
        return getattr(functions, self._function)(x, self.weight, self.bias, *self._options)


class Conv2D(_Convolution):
    __doc__ = _Convolution.__doc__


class Conv1D(_Convolution):
    __doc__ = _Convolution.__doc__
    _axes = 1
    _function = "conv1d"


class Conv3D(_Convolution):
    __doc__ = _Convolution.__doc__
    _axes = 3
    _function = "conv3d"


class _Transposed(Layer):
    """Spread every element over a window of learned filters; see `functional.conv2d_transpose`.

    Args:
        in_channels: channels of x.
        out_channels: channels of the result.
        kernel_size: pixels of a filter.
        stride: pixels between the windows.
        padding: pixels that are cut off every side.
        output_padding: more pixels below and to the right.
        dilation: pixels between taps.
        groups: parts that channels are split into.
        weight_attr: of weight, [in_channels, out_channels / groups, ...]; Xavier by default.
        bias_attr: of bias, [out_channels]; 0 by default; False for none.
        data_format: where the channels are.
    """

    _axes = 2
    _function = "conv2d_transpose"

    def __init__(  # noqa: PLR0913, PLR0917 (2.x's arguments)
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str | None = None,
    ) -> None:
        super().__init__()
        taps = [kernel_size] * self._axes if isinstance(kernel_size, int) else list(kernel_size)
        self.weight = self.create_parameter([in_channels, out_channels // groups, *taps], weight_attr)
        self.bias = self.create_parameter([out_channels], bias_attr, is_bias=True)
        self._options = {"stride": stride, "padding": padding, "output_padding": output_padding, "groups": groups, "dilation": dilation}
        self._layout = data_format or _FIRST[self._axes]

    def forward(self, x: Any, output_size: Any = None) -> Any:
        """Append the convolution; output_size instead of output_padding."""
        where = {"data_format": self._layout, "output_size": output_size}
        return getattr(functions, self._function)(x, self.weight, self.bias, **self._options, **where)


class Conv2DTranspose(_Transposed):
    __doc__ = _Transposed.__doc__


class Conv1DTranspose(_Transposed):
    __doc__ = _Transposed.__doc__
    _axes = 1
    _function = "conv1d_transpose"

    def __init__(  # noqa: PLR0913, PLR0917 (2.x's arguments, in another order than those of images)
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str | None = None,
    ) -> None:
        sizes = (in_channels, out_channels, kernel_size, stride, padding, output_padding, dilation, groups)
        super().__init__(*sizes, weight_attr, bias_attr, data_format)


class Conv3DTranspose(_Transposed):
    __doc__ = _Transposed.__doc__
    _axes = 3
    _function = "conv3d_transpose"


__all__ = [
    "Bilinear", "Conv1D", "Conv1DTranspose", "Conv2D", "Conv2DTranspose", "Conv3D", "Conv3DTranspose", "Embedding", "HSigmoidLoss",
    "Linear", "PReLU",
]  # fmt: skip
