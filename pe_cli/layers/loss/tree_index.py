"""Tree-based deep models for recommendation (TDM): tdm_child, tdm_sampler."""

from __future__ import annotations

from itertools import accumulate, pairwise

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.initializer import Constant
from pe_cli.program.ir import Variable
from pe_cli.program.param_attr import ParamAttr

_WHOLE = ("int32", "int64")


def _check_whole(helper: LayerHelper, what: str, dtype: str) -> None:
    if dtype not in _WHOLE:
        raise helper.error(f"{helper.layer_type}: {what} is {dtype}", hint="int32 or int64")


def _table(helper: LayerHelper, attr: ParamAttr | None, shape: tuple[int, ...], dtype: str) -> Variable:
    """Return a parameter of whole numbers, which no gradient moves."""
    table = helper.parameter(attr, shape, dtype, default=Constant(0.0))
    table.stop_gradient = True
    return table


def _as(helper: LayerHelper, x: Variable, dtype: str) -> Variable:
    return x if x.dtype == dtype else helper.one("cast", {"X": x}, {"out_dtype": dtype})


@layer
def tdm_child(
    x: Variable, node_nums: int, child_nums: int, param_attr: ParamAttr | None = None, dtype: str = "int32"
) -> tuple[Variable, Variable]:
    """Find the children of nodes of a tree, and which of them are leaves.

    Args:
        x: [batch, 1] int32 or int64 numbers of nodes.
        node_nums: nodes of the tree.
        child_nums: children of a node at most.
        param_attr: of the tree, [node_nums, 3 + child_nums]: item (0 for no leaf), layer, parent, children (0 for none); 0 by default.
        dtype: of the tree and of the results, int32 or int64.

    Returns:
        [batch, 1, child_nums] children: 0 where there is none, and for node 0, as in the original.
        [batch, 1, child_nums]: 1 for a leaf, else 0.

    Raises:
        PeError: another dtype, or sizes below 1; in a step, a node that there is not.

    Source:
        fluid.contrib.layers.tdm_child.
    """
    helper = LayerHelper("tdm_child")
    _check_whole(helper, "dtype", dtype)
    if node_nums < 1 or child_nums < 1:
        raise helper.error(f"tdm_child: {node_nums} nodes of up to {child_nums} children", hint="at least 1 of each")
    # A row of the table: item, layer, parent, then the children, 0 for none.
    tree = _table(helper, param_attr, (node_nums, 3 + child_nums), dtype)
    node = helper.one("reshape", {"X": _as(helper, x, "int64")}, {"shape": [-1]})

    def columns(begin: int, end: int) -> Variable:
        return helper.one("slice", {"Input": tree}, {"axes": [1], "starts": [begin], "ends": [end]})

    def there(v: Variable) -> Variable:
        # Any number other than 0 becomes 1: a cast to bool and back.
        return _as(helper, _as(helper, v, "bool"), dtype)

    below = helper.one("gather", {"X": columns(3, 3 + child_nums), "Index": node})
    # Node 0 is no node: whatever its row says, it has no children.
    known = helper.one("elementwise_mul", {"X": below, "Y": there(node)}, {"axis": 0})
    children = helper.one("reshape", {"X": known}, {"shape": [-1]})
    found = helper.one("gather", {"X": columns(0, 1), "Index": _as(helper, children, "int64")})
    items = helper.one("reshape", {"X": found}, {"shape": [-1]})
    leaf = helper.one("elementwise_mul", {"X": there(items), "Y": there(children)})
    shape = [-1, *x.shape[1:-1], child_nums] if len(x.shape) > 2 else [-1, x.shape[-1], child_nums]
    made = [helper.one("reshape", {"X": v}, {"shape": shape}) for v in (children, leaf)]
    for v in made:
        v.stop_gradient = True
    return made[0], made[1]


@layer
def tdm_sampler(
    x: Variable,
    neg_samples_num_list: list[int],
    layer_node_num_list: list[int],
    leaf_node_num: int,
    tree_travel_attr: ParamAttr | None = None,
    tree_layer_attr: ParamAttr | None = None,
    output_positive: bool = True,
    output_list: bool = True,
    seed: int = 0,
    tree_dtype: str = "int32",
    dtype: str = "int32",
) -> list[Variable]:
    """Take the nodes on the way to leaves of a tree, one of each layer, and draw others of the same layers.

    Args:
        x: [batch, 1] int32 or int64 numbers of leaves, from 0.
        neg_samples_num_list: nodes that are drawn of each layer, fewer than it has.
        layer_node_num_list: nodes of each layer, without the root.
        leaf_node_num: leaves.
        tree_travel_attr: of the nodes on the way to each leaf, [leaves, layers]; 0 for none, which they are by default.
        tree_layer_attr: of the nodes of each layer, one layer after the other, [nodes, 1]; 0 by default.
        output_positive: the node on the way stands before those that are drawn.
        output_list: results come for each layer.
        seed: own seed, the same nodes at every step; 0 for new ones at every step.
        tree_dtype: of the tree, int32 or int64.
        dtype: of the results, int32 or int64.

    Returns:
        For each layer the nodes [batch, places, 1], then for each the labels (1 for a node on the way, else 0), then for each the mask
        (0 where the way ends before that layer, else 1). Without output_list nodes, labels and mask of all layers, [batch, places].

    Raises:
        PeError: numbers or dtypes that do not fit; in a step, a leaf that there is not.

    Source:
        fluid.contrib.layers.tdm_sampler; Zhu et al. 2018. Every other node of a layer is as likely as in the original, from other draws.
    """
    helper = LayerHelper("tdm_sampler")
    for what, kind in (("tree_dtype", tree_dtype), ("dtype", dtype)):
        _check_whole(helper, what, kind)
    if len(neg_samples_num_list) != len(layer_node_num_list) or not layer_node_num_list:
        counts = f"{len(neg_samples_num_list)} layers in neg_samples_num_list, {len(layer_node_num_list)} in layer_node_num_list"
        raise helper.error(f"tdm_sampler: {counts}", hint="a number for each layer")
    for i, (drawn, nodes) in enumerate(zip(neg_samples_num_list, layer_node_num_list, strict=True)):
        # Fewer than there are, since the positive of the layer is never drawn.
        if not 0 <= drawn < nodes:
            raise helper.error(f"tdm_sampler: {drawn} nodes cannot be drawn of layer {i}, which has {nodes}", hint="fewer than it has")
    ends = [0, *accumulate(layer_node_num_list)]
    if not 1 <= leaf_node_num <= ends[-1]:
        raise helper.error(f"tdm_sampler: there are {ends[-1]} nodes and {leaf_node_num} leaves", hint="leaves are nodes, too")
    travel = _table(helper, tree_travel_attr, (leaf_node_num, len(layer_node_num_list)), tree_dtype)
    nodes_of = _table(helper, tree_layer_attr, (ends[-1], 1), tree_dtype)
    inputs = {"X": _as(helper, x, "int64"), "Travel": travel, "Layer": nodes_of}
    attrs = {
        "neg_samples_num_list": neg_samples_num_list, "layer_offset_lod": ends, "output_positive": output_positive, "seed": seed,
    }  # fmt: skip
    found = [_as(helper, v, dtype) for v in helper.op("tdm_sampler", inputs, attrs, ("Out", "Labels", "Mask"))]
    made = [part for v in found for part in _by_layer(helper, v, neg_samples_num_list, output_positive)] if output_list else found
    for v in made:
        v.stop_gradient = True
    return made


def _by_layer(helper: LayerHelper, x: Variable, drawn: list[int], output_positive: bool) -> list[Variable]:
    """Return the places of each layer, [batch, places, 1]; none for a layer that has none."""
    # Drawn nodes of a layer come behind its positive, if that is wanted: offsets of layers count both.
    ends = [0, *accumulate(n + output_positive for n in drawn)]
    out = []
    for begin, end in pairwise(ends):
        part = helper.one("slice", {"Input": x}, {"axes": [1], "starts": [begin], "ends": [end]})
        out.append(helper.one("reshape", {"X": part}, {"shape": [-1, end - begin, 1]}))
    return out
