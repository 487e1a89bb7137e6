"""Layers of fluid.contrib that are made of the catalogue's: parts of rows, pooled embeddings, shuffled batches, children in a tree."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle.errors import FluidValueError, raised_as
from pe_cli.paddle.fluid.framework import as_dtype, ensure_defaults
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.program.initializer import Constant
from pe_cli.program.ir import Variable

_UNARY = ("scale", "relu", "tanh")
_BINARY = ("elementwise_add", "elementwise_mul")


def fused_elemwise_activation(
    x: Variable, y: Variable, functor_list: Any, axis: int = -1, scale: float = 0.0, save_intermediate_out: bool = True
) -> Any:
    """Combine two tensors and a function of one number.

    [unary, binary] gives unary(binary(x, y)), and [binary, unary] gives binary(x, unary(y)). Passes join the ops by themselves.

    Args:
        x: any shape.
        y: sizes of x from axis on.
        functor_list: `scale`, `relu` or `tanh`, and `elementwise_add` or `elementwise_mul`, in one of both orders.
        axis: of x, where y begins.
        scale: factor of `scale`.
        save_intermediate_out: no values change.

    Raises:
        FluidValueError: other functions; a ValueError.
    """
    del save_intermediate_out
    names = functor_list.split(",") if isinstance(functor_list, str) else list(functor_list)
    if len(names) != 2 or {names[0] in _UNARY, names[1] in _UNARY} != {True, False} or not {*names} & {*_BINARY}:
        hint = f"one of {', '.join(_UNARY)} and one of {', '.join(_BINARY)}"
        raise FluidValueError(f"fused_elemwise_activation: functor_list is {functor_list}", hint=hint)

    def unary(name: str, of: Variable) -> Any:
        return call("scale", of, float(scale)) if name == "scale" else call(name, of)

    first, second = names
    return unary(first, call(second, x, y, axis)) if first in _UNARY else call(first, x, unary(second, y), axis)


def _parts(name: str, input: Any, start_index: int, length: int) -> list[Any]:
    """Return the same columns of several matrices.

    Raises:
        FluidValueError: no matrices of one width, or columns that they do not have; a ValueError.
    """
    if not isinstance(input, (list, tuple)):
        warnings.warn(f"{name} takes a list of variables", stacklevel=3)
        input = [input]
    widths = {v.shape[1] if len(v.shape) == 2 else -1 for v in input}
    width = widths.pop() if len(widths) == 1 else -1
    begin = start_index + width if start_index < 0 else start_index
    end = width if length < 0 else begin + length
    if width < 0 or not 0 <= begin < end <= width:
        got = ", ".join(str(v.type) for v in input)
        raise FluidValueError(f"{name} needs matrices of one width with columns {begin} to {end}, got {got}")
    return [call("slice", v, [1], [begin], [end]) for v in input]


def partial_concat(input: Any, start_index: int = 0, length: int = -1) -> Any:
    """Put columns of matrices side by side: of each, `length` from start_index on, which counts from the end below 0; -1 takes all."""
    return call("concat", _parts("partial_concat", input, start_index, length), 1)


def partial_sum(input: Any, start_index: int = 0, length: int = -1) -> Any:
    """Add up columns of matrices: of each, `length` from start_index on, which counts from the end below 0; -1 takes all."""
    return call("sums", _parts("partial_sum", input, start_index, length))


def fused_embedding_seq_pool(
    input: Variable,
    size: Sequence[int],
    is_sparse: bool = False,
    padding_idx: int | None = None,
    combiner: str = "sum",
    param_attr: Any = None,
    dtype: Any = "float32",
) -> Any:
    """Look up the rows of ids, and add them up for each sequence.

    Args:
        input: [ids, 1] or [ids, n] int64 with sequences.
        size: [rows, width] of the table.
        is_sparse: the table's gradient is row-sparse.
        padding_idx: id whose row counts as 0; from the end below 0.
        combiner: sum.
        param_attr, dtype: of the table.

    Returns:
        [sequences, n width].

    Raises:
        FluidValueError: another combiner; a ValueError.
    """
    if combiner != "sum":
        raise FluidValueError(f"fused_embedding_seq_pool: combiner is {combiner!r}", hint="sum")
    ensure_defaults()
    helper = LayerHelper("fused_embedding_seq_pool")
    with raised_as(FluidValueError):
        table = helper.parameter(param_attr, tuple(size), as_dtype(dtype))
        pad = -1 if padding_idx is None else padding_idx if padding_idx >= 0 else size[0] + padding_idx
        rows = helper.one("lookup_table_v2", {"W": table, "Ids": input}, {"is_sparse": is_sparse, "padding_idx": pad})
    return call("sequence_pool", call("reshape", rows, [-1, input.shape[-1] * size[1]]), "sum")


def multiclass_nms2(  # noqa: PLR0913, PLR0917 (fluid's arguments)
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float = 0.3,
    normalized: bool = True,
    nms_eta: float = 1.0,
    background_label: int = 0,
    return_index: bool = False,
    name: str | None = None,
) -> Any:
    """Keep of every class the boxes that overlap no better one much, and with return_index their places among the boxes of all images."""
    ensure_defaults()
    attrs = {
        "score_threshold": float(score_threshold), "nms_top_k": nms_top_k, "keep_top_k": keep_top_k, "nms_threshold": float(nms_threshold),
        "normalized": normalized, "nms_eta": float(nms_eta), "background_label": background_label, "return_index": return_index,
    }  # fmt: skip
    with raised_as(FluidValueError):
        found = LayerHelper("multiclass_nms2", name).op("multiclass_nms", {"BBoxes": bboxes, "Scores": scores}, attrs, ("Out", "Index"))
    for v in found:
        v.stop_gradient = True
    return tuple(found) if return_index else found[0]


def shuffle_batch(x: Variable, seed: Any = None) -> Any:
    """Put the rows of a tensor, all axes but the last taken together, into a random order, another in every step.

    Args:
        x: [..., width].
        seed: of the order; that of the program by default.

    Raises:
        FluidValueError: seed is a variable; a ValueError.
    """
    if isinstance(seed, Variable):
        raise FluidValueError("shuffle_batch: seed is a variable", hint="give a number")
    ensure_defaults()
    flat = call("reshape", x, [-1, x.shape[-1]]) if len(x.shape) != 2 else x
    drawn = LayerHelper("shuffle_batch").one(
        "uniform_random_batch_size_like",
        {"Input": flat},
        {"shape": [-1, 1], "min": 0.0, "max": 1.0, "seed": seed or 0, "dtype": "float32"},
    )
    drawn.stop_gradient = True
    _, order = call("argsort", drawn, 0)
    made = call("gather", flat, call("reshape", order, [-1]))
    return made if flat is x else call("reshape", made, [-1, *x.shape[1:]])


def tdm_child(x: Variable, node_nums: int, child_nums: int, param_attr: Any = None, dtype: Any = "int32") -> tuple[Any, Any]:
    """Find the children of nodes of a tree, and which of them are leaves.

    Args:
        x: [batch, 1] int32 or int64 numbers of nodes.
        node_nums: nodes of the tree.
        child_nums: children of a node at most.
        param_attr: of the tree, [node_nums, 3 + child_nums] int: item (0 for no leaf), layer, parent, children (0 for none).
        dtype: of the results, int32 or int64.

    Returns:
        children: [batch, 1, child_nums], 0 where there is none, and for node 0, as in the original.
        leaf_mask: [batch, 1, child_nums]: 1 for a leaf.

    Raises:
        FluidValueError: another dtype; a ValueError.
    """
    ensure_defaults()
    kind = as_dtype(dtype)
    if kind not in ("int32", "int64"):
        raise FluidValueError(f"tdm_child: dtype is {dtype}", hint="int32 or int64")
    helper = LayerHelper("tdm_child")
    with raised_as(FluidValueError):
        tree = helper.parameter(param_attr, (node_nums, 3 + child_nums), kind, default=Constant(0.0))
    tree.stop_gradient = True
    node = call("reshape", x if x.dtype == "int64" else call("cast", x, "int64"), [-1])
    below = call("slice", call("gather", tree, node), [1], [3], [3 + child_nums])
    known = call("cast", call("cast", node, "bool"), kind)
    children = call("reshape", call("elementwise_mul", below, known, 0), [-1])
    items = call("reshape", call("gather", call("slice", tree, [1], [0], [1]), call("cast", children, "int64")), [-1])

    def there(v: Variable) -> Any:
        return call("cast", call("cast", v, "bool"), kind)

    leaf = call("elementwise_mul", there(items), there(children))
    shape = [-1, *x.shape[1:-1], child_nums] if len(x.shape) > 2 else [-1, x.shape[-1], child_nums]
    made = [call("reshape", v, shape) for v in (children, leaf)]
    for v in made:
        v.stop_gradient = True
    return made[0], made[1]


__all__ = [
    "fused_elemwise_activation", "fused_embedding_seq_pool", "multiclass_nms2", "partial_concat", "partial_sum", "shuffle_batch",
    "tdm_child",
]  # fmt: skip
