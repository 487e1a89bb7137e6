"""static.nn: layers by 2.x's arguments."""

from __future__ import annotations

from typing import Any

from pe_cli.paddle.fluid import layers
from pe_cli.paddle.fluid.naming import named
from pe_cli.paddle.forwarding import forwarded
from pe_cli.paddle.names_v2 import naming
from pe_cli.paddle.reference_names import missing

batch_norm = named(layers.batch_norm, lambda given: naming("batch_norm.4" if given.get("act") else "batch_norm.3"))
bilinear_tensor_product = layers.bilinear_tensor_product
conv2d = layers.conv2d
conv2d_transpose = layers.conv2d_transpose
conv3d = layers.conv3d
conv3d_transpose = layers.conv3d_transpose
data_norm = layers.data_norm
group_norm = layers.group_norm
prelu = layers.prelu
spectral_norm = layers.spectral_norm
layer_norm = layers.layer_norm
#: Names that are fluid's, too.
_SAME = (
    "case", "cond", "continuous_value_model", "crf_decoding", "create_parameter", "multi_box_head", "nce", "py_func",
    "row_conv", "sequence_concat", "sequence_conv", "sequence_enumerate", "sequence_expand", "sequence_expand_as", "sequence_first_step",
    "sequence_last_step", "sequence_pad", "sequence_pool", "sequence_reshape", "sequence_reverse", "sequence_scatter", "sequence_slice",
    "sequence_softmax", "sequence_unpad", "switch_case", "while_loop",
)  # fmt: skip
globals().update({name: getattr(layers, name) for name in _SAME})


fc = forwarded(
    "fc",
    layers.fc,
    "x size num_flatten_dims=1 weight_attr=None bias_attr=None activation=None name:name=None",
    "Connect every input to every output; see `fluid.layers.fc`.",
)


def instance_norm(input: Any, epsilon: float = 1e-05, param_attr: Any = None, bias_attr: Any = None, name: str | None = None) -> Any:
    """Normalise every channel of every sample; scale and shift are learned where both attributes are given, as in 2.6 and later."""
    scale, shift = (param_attr, bias_attr) if param_attr and bias_attr else (False, False)
    return layers.instance_norm(input, epsilon, scale, shift, name)


def embedding(
    input: Any,
    size: Any,
    is_sparse: bool = False,
    is_distributed: bool = False,
    padding_idx: int | None = None,
    param_attr: Any = None,
    dtype: Any = "float32",
) -> Any:
    """Look up a learned row for every id; see `fluid.embedding`."""
    from pe_cli.paddle.fluid.input import embedding as look_up

    return look_up(input, size, is_sparse, is_distributed, padding_idx, param_attr, dtype)


def deform_conv2d(  # noqa: PLR0913, PLR0917 (2.x's arguments)
    x: Any,
    offset: Any,
    mask: Any,
    num_filters: int,
    filter_size: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    deformable_groups: int = 1,
    im2col_step: int = 1,
    weight_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
) -> Any:
    """Convolve images with learned filters whose taps are moved by offsets; see `fluid.layers.deformable_conv`."""
    sizes = (num_filters, filter_size, stride, padding, dilation, groups, deformable_groups, im2col_step)
    return layers.deformable_conv(x, offset, mask, *sizes, weight_attr, bias_attr, mask is not None, name)


__all__ = [
    "batch_norm", "bilinear_tensor_product", "conv2d", "conv2d_transpose", "conv3d", "conv3d_transpose", "data_norm",
    "deform_conv2d", "embedding", "fc", "group_norm", "instance_norm", "layer_norm", "prelu", "spectral_norm",
    *_SAME,
]  # fmt: skip
__getattr__ = missing("paddle.static.nn", lambda: globals())
