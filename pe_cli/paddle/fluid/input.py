"""data, embedding and one_hot of the later interface: shapes as written, ids without a last axis of 1."""

from __future__ import annotations

from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import find
from pe_cli.paddle.errors import FluidValueError, raised_as
from pe_cli.paddle.fluid.framework import as_dtype, as_sizes, default_main_program, ensure_defaults
from pe_cli.paddle.fluid.layers.dynamic_sizes import one_hot as of_columns
from pe_cli.paddle.fluid.naming import Naming, appended
from pe_cli.program.ir import Variable


def data(name: str, shape: Any, dtype: Any = "float32", lod_level: int = 0) -> Any:
    """Declare a variable that is fed; None or -1 stand for a size that is not known.

    Args:
        name: of the feed.
        shape: all sizes, the batch axis too.
        dtype: element type.
        lod_level: levels of sequences.
    """
    block = default_main_program().global_block()
    facts = {"is_data": True, "stop_gradient": True, "lod_level": lod_level}
    return block.create_var(name=name, shape=as_sizes(shape), dtype=as_dtype(dtype), **facts)


@raised_as(FluidValueError)
def embedding(
    input: Variable,
    size: Any,
    is_sparse: bool = False,
    is_distributed: bool = False,
    padding_idx: int | None = None,
    param_attr: Any = None,
    dtype: Any = "float32",
) -> Variable:
    """Look up a learned row for every id of [...] and return [..., width]; arguments of `layers.embedding`."""
    ensure_defaults()
    helper = LayerHelper("embedding")
    table = helper.parameter(param_attr, list(size), as_dtype(dtype))
    # -1 is "no padding id" in the op; negative ids count from the end, as Python's do.
    index = -1 if padding_idx is None else padding_idx % size[0]
    return helper.one("lookup_table_v2", {"W": table, "Ids": input}, {"is_sparse": is_sparse, "padding_idx": index})


def one_hot(input: Variable, depth: Any, allow_out_of_range: bool = False) -> Variable:
    """Write a 1 at every id of [...] and return [..., depth]; depth is a number or an integer variable."""
    ensure_defaults()


    def made() -> Any:
        return of_columns(find("unsqueeze").fn(input, [len(input.shape)]), depth, allow_out_of_range)

    found: Variable = appended(made, Naming("one_hot_v2"))
    return found
