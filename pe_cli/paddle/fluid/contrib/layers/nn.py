"""Layers of fluid.contrib: the catalogue's by the original's signatures, and one whose rows only a step can count."""

from __future__ import annotations

from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import find
from pe_cli.paddle.errors import FluidValueError, raised_as
from pe_cli.paddle.fluid.framework import as_dtype, ensure_defaults
from pe_cli.paddle.fluid.layers.catalogue import adapt
from pe_cli.paddle.fluid.layers.detection_nms import multiclass_nms2
from pe_cli.program.ir import Parameter, Variable

batch_fc = adapt(find("batch_fc"))
bilateral_slice = adapt(find("bilateral_slice"))
correlation = adapt(find("correlation"))
fused_embedding_seq_pool = adapt(find("fused_embedding_seq_pool"))
match_matrix_tensor = adapt(find("match_matrix_tensor"))
partial_concat = adapt(find("partial_concat"))
partial_sum = adapt(find("partial_sum"))
rank_attention = adapt(find("rank_attention"))
sequence_topk_avg_pooling = adapt(find("sequence_topk_avg_pooling"))
tdm_child = adapt(find("tdm_child"))
tree_conv = adapt(find("tree_conv"))
var_conv_2d = adapt(find("var_conv_2d"))
_combine = adapt(find("fused_elemwise_activation"))
_sample = adapt(find("tdm_sampler"))
_shuffle = adapt(find("shuffle_batch"))


def fused_elemwise_activation(
    x: Variable, y: Variable, functor_list: Any, axis: int = -1, scale: float = 0.0, save_intermediate_out: bool = True
) -> Any:
    """Combine two tensors and a function of one number; functor_list may be one text with a comma, too."""
    names = functor_list.split(",") if isinstance(functor_list, str) else list(functor_list)
    return _combine(x, y, names, axis, scale, save_intermediate_out)


def shuffle_batch(x: Variable, seed: Any = None) -> Any:
    """Put the rows of a tensor, all axes but the last taken together, into a random order, another in every step.

    Raises:
        FluidValueError: seed is a variable; a ValueError.
    """
    if isinstance(seed, Variable):
        raise FluidValueError("shuffle_batch: seed is a variable", hint="give a number")
    return _shuffle(x, seed)


def tdm_sampler(  # noqa: PLR0913, PLR0917 (fluid's arguments)
    x: Variable,
    neg_samples_num_list: Any,
    layer_node_num_list: Any,
    leaf_node_num: int,
    tree_travel_attr: Any = None,
    tree_layer_attr: Any = None,
    output_positive: bool = True,
    output_list: bool = True,
    seed: int = 0,
    tree_dtype: Any = "int32",
    dtype: Any = "int32",
) -> tuple[Any, Any, Any]:
    """Take the nodes on the way to leaves of a tree, one of each layer, and draw others of the same layers.

    Returns:
        Nodes, labels and mask: with output_list a list each, of a variable [batch, places, 1] for each layer.
    """
    numbers = (list(neg_samples_num_list), list(layer_node_num_list), leaf_node_num)
    attrs = (tree_travel_attr, tree_layer_attr, output_positive, output_list, seed, as_dtype(tree_dtype), dtype)
    made = _sample(x, *numbers, *attrs)
    if not output_list:
        return made[0], made[1], made[2]
    count = len(made) // 3
    return made[:count], made[count : 2 * count], made[2 * count :]


def search_pyramid_hash(  # noqa: PLR0913, PLR0917 (fluid's arguments)
    input: Variable,
    num_emb: int,
    space_len: int,
    pyramid_layer: int,
    rand_len: int,
    drop_out_percent: float,
    is_training: Any,
    use_filter: bool,
    white_list_len: int,
    black_list_len: int,
    seed: int,
    lr: float,
    param_attr: Any = None,
    param_attr_wl: Any = None,
    param_attr_bl: Any = None,
    name: str | None = None,
    distribute_update_vars: Any = None,
    dtype: Any = "float32",
) -> Any:
    """Look up vectors of the n-grams of sequences, put together from parts of a table that moves by a rate of its own; see the op.

    Args:
        input: int32 ids [rows, 1] with one level of sequences.
        num_emb, space_len, pyramid_layer, rand_len, drop_out_percent, is_training, seed: see the op.
        use_filter: the lists are looked into.
        white_list_len: numbers of the list of n-grams that count; 0 for none.
        black_list_len: numbers of the list of those that do not; 0 for none.
        lr: rate of plain descent of the table, whatever the optimizer is.
        param_attr, param_attr_wl, param_attr_bl: of the table and of the lists, which are Bloom filters.
        name: prefix of the output's name.
        distribute_update_vars: without effect.
        dtype: float32.

    Raises:
        FluidValueError: sizes that do not fit; a ValueError.
    """
    ensure_defaults()
    helper = LayerHelper("search_pyramid_hash", name)
    with raised_as(FluidValueError):
        table = helper.parameter(param_attr, (max(space_len, 0) + max(rand_len, 0), 1), as_dtype(dtype))
        if isinstance(table, Parameter):
            table.own_rate = float(lr)
        slots = {"X": input, "W": table}
        for slot, length, attr in (("WhiteList", white_list_len, param_attr_wl), ("BlackList", black_list_len, param_attr_bl)):
            if length > 0:
                listed = helper.parameter(attr, (length, 1), as_dtype(dtype))
                listed.stop_gradient = True
                slots |= {slot: listed} if use_filter else {}
        attrs = {
            "num_emb": num_emb, "space_len": space_len, "pyramid_layer": pyramid_layer, "rand_len": rand_len,
            "drop_out_percent": float(drop_out_percent), "is_training": bool(is_training), "seed": seed,
        }  # fmt: skip
        return helper.op("pyramid_hash", slots, attrs, ("Out", "DropPos"))[0]


__all__ = [
    "batch_fc", "bilateral_slice", "correlation", "fused_elemwise_activation", "fused_embedding_seq_pool", "match_matrix_tensor",
    "multiclass_nms2", "partial_concat", "partial_sum", "rank_attention", "search_pyramid_hash", "sequence_topk_avg_pooling",
    "shuffle_batch", "tdm_child", "tdm_sampler", "tree_conv", "var_conv_2d",
]  # fmt: skip
