"""hsigmoid: hierarchical sigmoid loss, the cost of a class by its path through a binary tree."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import find, layer
from pe_cli.ops.loss.hierarchical_sigmoid import LIMIT
from pe_cli.program.ir import Variable
from pe_cli.program.param_attr import ParamAttr


@layer
def hsigmoid(
    input: Variable,
    label: Variable,
    num_classes: int,
    param_attr: ParamAttr | None = None,
    bias_attr: ParamAttr | bool | None = None,
    name: str | None = None,
    path_table: Variable | None = None,
    path_code: Variable | None = None,
    is_custom: bool = False,
    is_sparse: bool = False,
) -> Variable:
    """Measure classes by the yes-or-no questions on the way to them in a binary tree.

    Args:
        input: [batch, width].
        label: [batch, 1] int64.
        num_classes: classes of the complete tree; with is_custom, nodes of one's own.
        param_attr: of the questions, [num_classes - 1, width], or [num_classes, width] with is_custom; Xavier by default.
        bias_attr: of their bias, one per question; 0 by default; False for none.
        name: prefix of the names of the parameters.
        path_table: [batch, depth] int64: with is_custom, the nodes from the root on, -1 after the end.
        path_code: [batch, depth] int64: the answers.
        is_custom: paths are given.
        is_sparse: with is_custom, the gradient of the questions has only the rows of nodes on the paths; no value changes. That of the
            complete tree is whole, as in the original.

    Returns:
        [batch, 1], in nats.

    Raises:
        PeError: shapes that do not fit, or paths without is_custom, or the other way round.

    Source:
        fluid.layers.hsigmoid.
    """
    helper = LayerHelper("hierarchical_sigmoid", name)
    if is_custom != (path_table is not None) or is_custom != (path_code is not None):
        raise helper.error("hsigmoid: path_table and path_code go with is_custom, and only with it")
    # A complete binary tree of n leaves has n - 1 inner nodes, one question each.
    nodes = num_classes if is_custom else num_classes - 1
    if nodes < 1:
        raise helper.error(f"hsigmoid: num_classes must be at least {2 - is_custom}, got {num_classes}")
    w = helper.parameter(param_attr, (nodes, input.shape[-1]), input.dtype)
    bias = None if bias_attr is False else helper.parameter(bias_attr, (nodes, 1), input.dtype, is_bias=True)
    return path_costs(helper, input, label, w, bias, num_classes, (path_table, path_code), is_sparse=is_sparse)


def path_costs(
    helper: LayerHelper,
    x: Variable,
    label: Variable,
    w: Variable,
    bias: Variable | None,
    classes: int,
    given: tuple[Variable | None, Variable | None],
    *,
    is_sparse: bool,
) -> Variable:
    """Append the costs of a batch of classes, [batch, 1], in nats.

    Args:
        helper: of the layer.
        x: [batch, width].
        label: [batch, 1] int64.
        w: [nodes, width].
        bias: [nodes, 1], or None.
        classes: of the complete tree.
        given: table and code of paths, both or neither.
        is_sparse: rows of given paths are looked up, so that gradients are row-sparse; else one op does all.
    """
    table, code = given
    # Without row-sparse gradients one op does everything; with them the rows of the path have to be looked up by an op that has such
    # gradients.
    if not is_sparse or table is None or code is None:
        inputs = {"X": x, "W": w, "Label": label, "PathTable": table, "PathCode": code, "Bias": bias}
        return helper.op("hierarchical_sigmoid", inputs, {"num_classes": max(2, classes)}, ("Out", "PreOut"))[0]
    depth = table.shape[1]
    zero = find("scale").fn(table, 0.0)
    # 1 for the nodes of the path, 0 where the table has a negative number.
    there = find("scale").fn(find("elementwise_min").fn(table, zero), 1.0, 1.0)
    begin = find("expand").fn(find("slice").fn(table, [1], [0], [1]), [1, depth])  # a node of the path stands for what it lacks
    index = find("elementwise_add").fn(
        find("elementwise_mul").fn(table, there), find("elementwise_mul").fn(begin, find("scale").fn(there, -1.0, 1.0))
    )
    rows = helper.one("lookup_table_v2", {"W": w, "Ids": index}, {"is_sparse": True, "padding_idx": -1})
    answers = find("matmul").fn(rows, find("unsqueeze").fn(x, [2]))
    if bias is not None:
        shift = helper.one("lookup_table_v2", {"W": bias, "Ids": index}, {"padding_idx": -1})
        answers = find("elementwise_add").fn(answers, shift)
    # Answers are cut as in the op, beyond which a float32 sigmoid is 0 or 1 anyway.
    answers = find("clip").fn(find("reshape").fn(answers, [-1, depth]), -LIMIT, LIMIT)
    kind = x.dtype
    costs = find("sigmoid_cross_entropy_with_logits").fn(answers, find("cast").fn(code, kind))
    costs = find("elementwise_mul").fn(costs, find("cast").fn(there, kind))
    return find("reduce_sum").fn(costs, [1], True)  # type: ignore[no-any-return]

