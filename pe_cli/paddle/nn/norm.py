"""Layers that normalise: over a batch, a sample, a channel or a group of channels."""

from __future__ import annotations

from typing import Any

from pe_cli.core.types import product
from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.nn.statistics_norm import append_spectral_norm
from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.names_v2 import named_layer
from pe_cli.paddle.nn import functional as functions
from pe_cli.paddle.nn.layer import Layer
from pe_cli.program.initializer import Constant, Normal
from pe_cli.program.param_attr import ParamAttr


class _BatchNorm(Layer):
    """Normalise every channel, while training by the batch and else by running statistics.

    Args:
        num_features: channels.
        momentum: weight of the old running statistics, no unit.
        epsilon: added to the variance.
        weight_attr: of weight, [num_features]; 1 by default; False for a constant 1.
        bias_attr: of bias, [num_features]; 0 by default; False for a constant 0.
        data_format: where the channels are.
        use_global_stats: use the running statistics in training too.
        name: prefix of the names of the parameters.
    """

    def __init__(
        self,
        num_features: int,
        momentum: float = 0.9,
        epsilon: float = 1e-05,
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str = "NCHW",
        use_global_stats: bool | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        self._options = float(momentum), float(epsilon), data_format, use_global_stats
        self._make(num_features, weight_attr, bias_attr, ParamAttr(trainable=False), ParamAttr(trainable=False))

    def _make(self, channels: int, weight_attr: Any, bias_attr: Any, mean: ParamAttr, variance: ParamAttr) -> None:
        fixed = ParamAttr(trainable=False)
        # Switched off, the scale and the bias are still parameters that no step changes: the op needs both, and so do files of the
        # original.
        gain, shift = (fixed if attr is False else attr for attr in (weight_attr, bias_attr))
        one, zero = Constant(1.0), Constant(0.0)
        self.weight = self.create_parameter([channels], gain, default_initializer=one)
        self.bias = self.create_parameter([channels], shift, is_bias=True)
        self._mean = self.create_parameter([channels], mean, default_initializer=zero)
        self._variance = self.create_parameter([channels], variance, default_initializer=one)

    def forward(self, input: Any) -> Any:
        """Append the normalisation."""
        momentum, epsilon, layout, fixed = self._options
        learned = self._mean, self._variance, self.weight, self.bias
        return functions.batch_norm(input, *learned, self.training, momentum, epsilon, layout, fixed)


class BatchNorm1D(_BatchNorm):
    __doc__ = _BatchNorm.__doc__


class BatchNorm2D(_BatchNorm):
    __doc__ = _BatchNorm.__doc__


class BatchNorm3D(_BatchNorm):
    __doc__ = _BatchNorm.__doc__


class BatchNorm(_BatchNorm):
    """Normalise every channel, then activate; arguments of 1.x.

    Args:
        num_channels: channels.
        act: name of an activation, or None.
        is_test: use the running statistics.
        momentum: weight of the old running statistics, no unit.
        epsilon: added to the variance.
        param_attr: of weight, [num_channels]; 1 by default.
        bias_attr: of bias, [num_channels]; 0 by default.
        dtype: of the parameters.
        data_layout: NCHW or NHWC.
        in_place: without effect.
        moving_mean_name: of the running mean.
        moving_variance_name: of the running variance.
        do_model_average_for_mean_and_var: the running statistics take part in model averaging.
        use_global_stats: use the running statistics in training too.
        trainable_statistics: use the batch's statistics in tests too.
    """

    def __init__(  # noqa: PLR0913, PLR0917 (1.x's arguments)
        self,
        num_channels: int,
        act: str | None = None,
        is_test: bool = False,
        momentum: float = 0.9,
        epsilon: float = 1e-05,
        param_attr: Any = None,
        bias_attr: Any = None,
        dtype: Any = "float32",
        data_layout: str = "NCHW",
        in_place: bool = False,
        moving_mean_name: str | None = None,
        moving_variance_name: str | None = None,
        do_model_average_for_mean_and_var: bool = True,
        use_global_stats: bool = False,
        trainable_statistics: bool = False,
    ) -> None:
        Layer.__init__(self, "batch_norm", dtype)
        self.training = not is_test
        self._options = float(momentum), float(epsilon), data_layout, use_global_stats
        self._act, self._batch_in_tests = act, trainable_statistics
        average = do_model_average_for_mean_and_var
        names = moving_mean_name, moving_variance_name
        moving = [ParamAttr(name=n, trainable=False, do_model_average=average) for n in names]
        self._make(num_channels, param_attr, bias_attr, *moving)

    def forward(self, input: Any) -> Any:
        """Append the normalisation and the activation."""
        momentum, epsilon, layout, fixed = self._options
        learned = self._mean, self._variance, self.weight, self.bias
        by_batch = self.training or self._batch_in_tests

        def made() -> Any:
            out = functions.batch_norm(input, *learned, by_batch, momentum, epsilon, layout, fixed)
            return LayerHelper("batch_norm").activate(out, self._act)

        return named_layer(made, "batch_norm.4" if self._act else "batch_norm.3", self._helper.name)


class LayerNorm(Layer):
    """Normalise every sample over its last axes.

    Args:
        normalized_shape: their sizes, or one.
        epsilon: added to the variance.
        weight_attr: of weight, [sizes multiplied]; 1 by default; False for none.
        bias_attr: of bias, of the same shape; 0 by default; False for none.
        name: prefix of the names of the parameters.
    """

    def __init__(
        self,
        normalized_shape: Any,
        epsilon: float = 1e-05,
        weight_attr: Any = None,
        bias_attr: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        sizes = [normalized_shape] if isinstance(normalized_shape, int) else list(normalized_shape)
        self._options = sizes, float(epsilon)
        self.weight = self.create_parameter([product(sizes)], weight_attr, default_initializer=Constant(1.0))
        self.bias = self.create_parameter([product(sizes)], bias_attr, is_bias=True)

    def forward(self, input: Any) -> Any:
        """Append the normalisation."""
        sizes, epsilon = self._options
        return functions.layer_norm(input, sizes, self.weight, self.bias, epsilon)


class _InstanceNorm(Layer):
    """Normalise every channel of every sample.

    Args:
        num_features: channels.
        epsilon: added to the variance.
        momentum: without effect, as there are no running statistics.
        weight_attr: of scale, [num_features]; 1 by default; False for none.
        bias_attr: of bias, [num_features]; 0 by default; False for none.
        data_format: channels first.
        name: prefix of the names of the parameters.
    """

    def __init__(
        self,
        num_features: int,
        epsilon: float = 1e-05,
        momentum: float = 0.9,
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        self._options = float(epsilon), data_format
        # `scale` and not `weight`, as in the original and therefore in its files.
        self.scale = self.create_parameter([num_features], weight_attr, default_initializer=Constant(1.0))
        self.bias = self.create_parameter([num_features], bias_attr, is_bias=True)

    def forward(self, input: Any) -> Any:
        """Append the normalisation."""
        epsilon, layout = self._options
        return functions.instance_norm(input, weight=self.scale, bias=self.bias, eps=epsilon, data_format=layout)


class InstanceNorm1D(_InstanceNorm):
    __doc__ = _InstanceNorm.__doc__


class InstanceNorm2D(_InstanceNorm):
    __doc__ = _InstanceNorm.__doc__


class InstanceNorm3D(_InstanceNorm):
    __doc__ = _InstanceNorm.__doc__


class GroupNorm(Layer):
    """Normalise every group of channels of every sample.

    Args:
        num_groups: groups, which divide the channels.
        num_channels: channels.
        epsilon: added to the variance.
        weight_attr: of weight, [num_channels]; 1 by default; False for none.
        bias_attr: of bias, [num_channels]; 0 by default; False for none.
        data_format: NCHW or NHWC.
        name: prefix of the names of the parameters.
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        epsilon: float = 1e-05,
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        self._options = num_groups, float(epsilon), data_format
        self.weight = self.create_parameter([num_channels], weight_attr, default_initializer=Constant(1.0))
        self.bias = self.create_parameter([num_channels], bias_attr, is_bias=True)

    def forward(self, input: Any) -> Any:
        """Append the normalisation."""
        groups, epsilon, layout = self._options
        # The op without scale and bias, which are applied after it: either may be absent here.
        axis = 1 if layout == "NCHW" else len(input.shape) - 1

        def made() -> Any:
            out = call("group_norm", input, groups, epsilon, False, False, None, layout)
            out = out if self.weight is None else call("elementwise_mul", out, self.weight, axis)
            return out if self.bias is None else call("elementwise_add", out, self.bias, axis)

        return named_layer(made, "group_norm.2", self._helper.name)


class SpectralNorm(Layer):
    """Divide a weight by its largest singular value; see `fluid.layers.spectral_norm`.

    Args:
        weight_shape: sizes of the weight.
        dim: axis of the rows of the weight as a matrix.
        power_iters: rounds of the power iteration.
        eps: added to lengths.
        dtype: of the weight.
        name: prefix of the names of weight_u, [rows], and weight_v, [columns], which are drawn once and stay.
    """

    def __init__(
        self, weight_shape: Any, dim: int = 0, power_iters: int = 1, eps: float = 1e-12, dtype: str = "float32", name: str | None = None
    ) -> None:
        super().__init__(name, dtype)
        self._shape, self._options = [int(v) for v in weight_shape], (dim, power_iters, float(eps))
        rows = self._shape[dim]
        drawn, fixed = Normal(0.0, 1.0), ParamAttr(trainable=False)
        self.weight_u = self.create_parameter([rows], fixed, default_initializer=drawn)
        self.weight_v = self.create_parameter([product(self._shape) // rows], fixed, default_initializer=drawn)

    def forward(self, weight: Any) -> Any:
        """Append the power iteration and the division.

        Raises:
            FluidValueError: a weight of another shape.
        """
        if list(weight.shape) != self._shape:
            raise FluidValueError(f"SpectralNorm: the weight should be {self._shape}, got {weight}")
        learned = weight, self.weight_u, self.weight_v, *self._options
        return named_layer(lambda: append_spectral_norm(LayerHelper("spectral_norm"), *learned), "spectral_norm", self._helper.name)


__all__ = [
    "BatchNorm", "BatchNorm1D", "BatchNorm2D", "BatchNorm3D", "GroupNorm", "InstanceNorm1D", "InstanceNorm2D",
    "InstanceNorm3D", "LayerNorm", "SpectralNorm",
]  # fmt: skip
