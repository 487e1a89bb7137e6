"""The layer that declares an input of a program: data."""

from __future__ import annotations

from collections.abc import Sequence

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.layers.define.registry import layer
from pe_cli.program.defaults import default_main_program
from pe_cli.program.ir import Variable


@layer
def data(
    name: str,
    shape: list[int],
    append_batch_size: bool = True,
    dtype: str = "float32",
    lod_level: int = 0,
    stop_gradient: bool = True,
) -> Variable:
    """Declare a variable that is fed at every step.

    Args:
        name: of the feed.
        shape: sizes; a size of -1 or None is not known before a batch arrives, and no batch axis is added then.
        append_batch_size: put the batch axis before shape.
        dtype: element type.
        lod_level: levels of nested sequences that the rows of a batch belong to.
        stop_gradient: gradients do not flow to it.

    Returns:
        [batch, *shape].

    Raises:
        PeError: the name is taken, an unknown dtype, a size of 0 or below -1, or a lod_level below 0.

    Source:
        fluid.layers.data.
    """
    program = default_main_program()
    try:
        kind = TensorType(_sizes(name, shape, append_batch_size), dtype)
        if lod_level < 0:
            raise PeError(f"feed '{name}' has lod_level {lod_level}", hint="0 for plain rows, 1 for sequences")
        facts = {"is_data": True, "stop_gradient": stop_gradient, "lod_level": lod_level}
        return program.main_block.create_var(name, kind, **facts)
    # The type knows what is wrong with a shape, but only the program knows which line of the model is being built.
    except PeError as error:
        error.at = error.at or program.mark.at
        raise


def _sizes(name: str, shape: Sequence[int | None], append_batch_size: bool) -> tuple[int, ...]:
    sizes = tuple(-1 if s is None else s for s in shape)
    # A size of 0 would make every batch empty; how many samples there are is the -1 in front of these.
    if any(s == 0 or s < -1 for s in sizes):
        hint = "sizes are at least 1; -1 stands for one that is not known"
        raise PeError(f"feed '{name}' has shape {list(sizes)}", hint=hint)
    return (-1, *sizes) if append_batch_size and -1 not in sizes else sizes
