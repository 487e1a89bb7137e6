"""Layers over trees: tree_conv."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable
from pe_cli.program.param_attr import ParamAttr


@layer
def tree_conv(
    nodes_vector: Variable,
    edge_set: Variable,
    output_size: int,
    num_filters: int = 1,
    max_depth: int = 2,
    act: str | None = "tanh",
    param_attr: ParamAttr | None = None,
    bias_attr: ParamAttr | bool | None = None,
    name: str | None = None,
) -> Variable:
    """Convolve over trees: every node with those below it, by weights for what is left, right and on top.

    Out[u] = act(sum over v of NodesVector[v] (left W[:, 0] + right W[:, 1] + top W[:, 2]) + b), v the nodes 0 to max_depth - 1 edges
    below u; docs/ops/tree_patches.md says how much each of them is left, right and on top.

    Args:
        nodes_vector: [batch, nodes, width].
        edge_set: [batch, edges, 2] whole numbers: parent and child of every edge, nodes counted from 1; 0 and 0 where there are no more.
            Of float32, as the original's example declares it, they are cast.
        output_size: numbers of a node and filter.
        num_filters: filters.
        max_depth: levels of nodes that a filter sees, that of the node itself among them.
        act: name of an activation, or None.
        param_attr: of W, [width, 3, output_size, num_filters]; Xavier by default.
        bias_attr: of b, [nodes, output_size, num_filters], as in the original; 0 by default; False for none.
        name: prefix of the names of W and b.

    Returns:
        [batch, nodes, output_size, num_filters], dtype of nodes_vector.

    Raises:
        PeError: types that do not fit; in a step, edges that make no tree.

    Source:
        fluid.contrib.layers.tree_conv; Mou et al. 2016.
    """
    helper = LayerHelper("tree_conv", name)
    helper.check_rank(nodes_vector, "nodes_vector", 3, "[batch, nodes, width]")
    for what, size in (("output_size", output_size), ("num_filters", num_filters)):
        if size < 1:
            raise helper.error(f"tree_conv: {what} is {size}", hint="at least 1")
    edges = edge_set if edge_set.dtype in ("int32", "int64") else helper.one("cast", {"X": edge_set}, {"out_dtype": "int64"})
    inputs = {"NodesVector": nodes_vector, "EdgeSet": edges}
    patches = helper.one("tree_patches", inputs, {"max_depth": max_depth})
    weight = helper.parameter(param_attr, (nodes_vector.shape[2], 3, output_size, num_filters), nodes_vector.dtype)
    # Width and the three shares left, right and on top are one axis of the product, as the two first axes of W are.
    out = helper.one("mul", {"X": patches, "Y": weight}, {"x_num_col_dims": 2, "y_num_col_dims": 2})
    return helper.activate(helper.add_bias(out, bias_attr, axis=1), act)
