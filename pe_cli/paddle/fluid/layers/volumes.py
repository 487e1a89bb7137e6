"""conv3d, conv3d_transpose and pool3d with the original's forms of padding; data_norm with its table of first values."""

from __future__ import annotations

from typing import Any

from pe_cli.layers.define.registry import find
from pe_cli.paddle.errors import FluidValueError, NotThereYet
from pe_cli.paddle.fluid.layers.catalogue import adapt
from pe_cli.paddle.fluid.layers.padding import flat
from pe_cli.program.ir import Variable

#: The share of the statistics that the original's servers keep from step to step.
KEPT = 0.9999999


def _first(data_format: str) -> int:
    return 1 if data_format == "NDHWC" else 2


def conv3d(  # noqa: PLR0913, PLR0917 (fluid's arguments)
    input: Variable,
    num_filters: int,
    filter_size: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCDHW",
) -> Any:
    """Convolve volumes; see the core's layer. Padding may have a pair for every axis."""
    # Pairs for batch and channels are dropped: they are 0 in every script, and the core knows none.
    found = flat(padding, _first(data_format))
    facts = {"param_attr": param_attr, "bias_attr": bias_attr, "act": act, "name": name, "data_format": data_format}
    return adapt(find("conv3d"))(input, num_filters, filter_size, stride, found, dilation, groups, **facts)


def conv3d_transpose(  # noqa: PLR0913, PLR0917 (fluid's arguments)
    input: Variable,
    num_filters: int,
    output_size: Any = None,
    filter_size: Any = None,
    padding: Any = 0,
    stride: Any = 1,
    dilation: Any = 1,
    groups: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCDHW",
) -> Any:
    """Convolve volumes the other way round; see the core's layer. Padding may have a pair for every axis."""
    found = flat(padding, _first(data_format))
    facts = {"groups": groups, "param_attr": param_attr, "bias_attr": bias_attr, "act": act, "name": name, "data_format": data_format}
    return adapt(find("conv3d_transpose"))(input, num_filters, output_size, filter_size, found, stride, dilation, **facts)


def pool3d(  # noqa: PLR0913, PLR0917 (fluid's arguments)
    input: Variable,
    pool_size: Any = -1,
    pool_type: str = "max",
    pool_stride: Any = 1,
    pool_padding: Any = 0,
    global_pooling: bool = False,
    use_cudnn: bool = True,
    ceil_mode: bool = False,
    name: str | None = None,
    exclusive: bool = True,
    data_format: str = "NCDHW",
) -> Any:
    """Pool volumes; see the core's layer. Padding may have a pair for every axis."""
    found = flat(pool_padding, _first(data_format))
    facts = {"ceil_mode": ceil_mode, "name": name, "exclusive": exclusive, "data_format": data_format}
    return adapt(find("pool3d"))(input, pool_size, pool_type, pool_stride, found, global_pooling, **facts)


def data_norm(  # noqa: PLR0913, PLR0917 (fluid's arguments)
    input: Variable,
    act: str | None = None,
    epsilon: float = 1e-05,
    param_attr: Any = None,
    data_layout: str = "NCHW",
    in_place: bool = False,
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
    slot_dim: int = -1,
    sync_stats: bool = False,
    summary_decay_rate: float = KEPT,
    enable_scale_and_shift: bool = False,
) -> Any:
    """Normalise by statistics of the data; see the core's layer.

    Args:
        input: [batch, channels], or images.
        act: name of an activation.
        epsilon: without effect on the output, as in the original.
        param_attr: first values by name: batch_size, batch_sum, batch_square, scale_w, bias.
        data_layout: NCHW or NHWC.
        in_place: without effect.
        name: prefix of the names of the parameters; dn by default, so that calls without a name share them, as in the original.
        moving_mean_name: without effect, as in the original.
        moving_variance_name: without effect, as in the original.
        do_model_average_for_mean_and_var: without effect, as in the original.
        slot_dim: channels in a slot.
        sync_stats: False; statistics stay as they are set.
        summary_decay_rate: the default; statistics stay as they are set.
        enable_scale_and_shift: learn a scale and a bias.

    Raises:
        NotThereYet: statistics that training would move.
        FluidValueError: param_attr is no table of numbers.
    """
    if sync_stats or summary_decay_rate != KEPT:
        raise NotThereYet("data_norm: training leaves the statistics as they are", hint="leave sync_stats and summary_decay_rate out")
    if param_attr is not None and not isinstance(param_attr, dict):
        raise FluidValueError(f"data_norm: param_attr is {param_attr!r}", hint="a dict of first values, such as {'batch_size': 1e4}")
    names = ("batch_size", "batch_sum", "batch_square", "scale_w", "bias")
    values = {key: float(value) for key, value in (param_attr or {}).items() if key in names}
    facts = {"data_layout": data_layout, "slot_dim": slot_dim, "enable_scale_and_shift": enable_scale_and_shift}
    return adapt(find("data_norm"))(input, act=act, name=name or "dn", **facts, **values)


__all__ = ["conv3d", "conv3d_transpose", "data_norm", "pool3d"]
