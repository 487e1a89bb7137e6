"""Selection by index: multiplex, scatter_nd, shard_index."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper, as_list
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable


@layer
def multiplex(inputs: list[Variable], index: Variable, name: str | None = None) -> Variable:
    """Take every row from the input that a number names.

    Out[i] = inputs[index[i]][i]

    Args:
        inputs: two tensors or more, of one type, [batch, ...].
        index: [batch, 1] int32 or int64, from 0.
        name: prefix of the output's name.

    Returns:
        Type of the inputs.

    Raises:
        PeError: fewer than two inputs, or shapes or dtypes that do not fit; in a step, an input that does not exist.

    Source:
        fluid.layers.multiplex.
    """
    helper, given = LayerHelper("multiplex", name), as_list(inputs)
    if len(given) < 2:
        raise helper.error("multiplex needs two inputs or more")
    helper.check_same(*given)
    helper.check_rank(index, "index", 2, "[batch, 1]")
    # One lookup by (input, row) in the stack of all inputs: no input needs a branch of its own.
    places = helper.one("concat", {"X": [index, _row_numbers(helper, index)]}, {"axis": 1})
    return helper.one("gather_nd", {"X": helper.one("stack", {"X": given}, {"axis": 0}, "Y"), "Index": places})


@layer
def scatter_nd(index: Variable, updates: Variable, shape: list[int], name: str | None = None) -> Variable:
    """Add numbers to parts of a tensor of zeros, by index over its first axes; parts that are named twice get both.

    Args:
        index: [..., axes] int32 or int64, from 0.
        updates: [..., sizes of the other axes].
        shape: sizes of the result.
        name: prefix of the output's name.

    Returns:
        Of that shape, dtype of updates.

    Raises:
        PeError: shapes that do not fit; in a step, a part that does not exist.

    Source:
        fluid.layers.scatter_nd.
    """
    helper = LayerHelper("scatter_nd", name)
    zeros = helper.one("fill_constant", {}, {"shape": shape, "dtype": updates.dtype, "value": 0.0})
    return helper.one("scatter_nd_add", {"X": zeros, "Index": index, "Updates": updates})


@layer
def shard_index(input: Variable, index_num: int, nshards: int, shard_id: int, ignore_value: int = -1) -> Variable:
    """Number ids within one of several shards, which have as many ids each.

    Out = input - shard_id size where floor(input / size) = shard_id, else ignore_value,  size = ceil(index_num / nshards)

    Args:
        input: any shape, int32 or int64 ids from 0.
        index_num: how many ids there are, at least 1.
        nshards: how many shards, at least 1.
        shard_id: which one, from 0.
        ignore_value: for ids of other shards.

    Returns:
        Shape and dtype of input.

    Raises:
        PeError: a number that is out of range.

    Source:
        fluid.layers.shard_index.
    """
    helper = LayerHelper("shard_index")
    if index_num < 1 or nshards < 1 or not 0 <= shard_id < nshards:
        text = f"shard_index: index_num is {index_num}, nshards {nshards}, shard_id {shard_id}"
        raise helper.error(text, hint=f"shard_id must be from 0 to {nshards - 1}, the others at least 1")
    per = (index_num + nshards - 1) // nshards

    def constant(value: int) -> Variable:
        return helper.one("fill_constant", {}, {"shape": [1], "dtype": input.dtype, "value": float(value)})

    # Rounded down, also below 0: a negative id belongs to shard -1, which nobody is, and becomes ignore_value.
    shard = helper.one("elementwise_floordiv", {"X": input, "Y": constant(per)})
    mine = helper.one("equal", {"X": shard, "Y": constant(shard_id)})
    inside = helper.one("scale", {"X": input}, {"bias": float(-shard_id * per)})
    other = helper.one("fill_like", {"X": input}, {"value": float(ignore_value)})
    return helper.one("select", {"Condition": mine, "X": inside, "Y": other})


def _row_numbers(helper: LayerHelper, like: Variable) -> Variable:
    """Return a tensor of whole numbers in which every element is the number of its row, from 0."""
    # An exclusive running sum of ones counts the rows that a step has; a constant could not, as the batch size is not known.
    ones = helper.one("fill_like", {"X": like}, {"value": 1.0})
    return helper.one("cumsum", {"X": ones}, {"axis": 0, "exclusive": True})
