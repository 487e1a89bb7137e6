"""Data variables and readers that belong to a program."""

from __future__ import annotations

from typing import Any

from pe_cli.paddle.fluid.framework import as_dtype, as_sizes, default_main_program
from pe_cli.paddle.fluid.reader import GeneratorLoader


def data(
    name: str,
    shape: Any,
    append_batch_size: bool = True,
    dtype: Any = "float32",
    lod_level: int = 0,
    type: Any = None,
    stop_gradient: bool = True,
) -> Any:
    """Declare a variable that is fed.

    Args:
        name: of the feed.
        shape: sizes; -1 or None is not known, and no batch axis is added then.
        append_batch_size: put the batch axis before shape.
        dtype: element type.
        lod_level: levels of sequences.
        type: without effect.
        stop_gradient: gradients do not flow to it.
    """
    sizes = as_sizes(shape)
    # A shape with -1 has its batch axis already, as the original sees it.
    if append_batch_size and -1 not in sizes:
        sizes = (-1, *sizes)
    facts = {"is_data": True, "stop_gradient": stop_gradient, "lod_level": lod_level, "any_sizes": True}
    return default_main_program().global_block().create_var(name=name, shape=sizes, dtype=as_dtype(dtype), **facts)


def py_reader(
    capacity: int,
    shapes: Any,
    dtypes: Any,
    lod_levels: Any = None,
    name: str | None = None,
    use_double_buffer: bool = True,
) -> GeneratorLoader:
    """Make a reader that feeds new variables of these shapes and types; `read_file` returns them."""
    levels = lod_levels or [0] * len(shapes)
    program = default_main_program()
    made = []
    for shape, dtype, level in zip(shapes, dtypes, levels, strict=True):
        # Without another batch axis: shapes of a py_reader have theirs.
        made.append(data(program.unique(name or "py_reader"), shape, False, dtype, level))
    return GeneratorLoader(made, capacity, use_double_buffer, iterable=False)


def create_py_reader_by_data(
    capacity: int, feed_list: Any, name: str | None = None, use_double_buffer: bool = True
) -> GeneratorLoader:
    """Make a reader that feeds variables."""
    return GeneratorLoader(feed_list, capacity, use_double_buffer, iterable=False)


def double_buffer(reader: Any, place: Any = None, name: str | None = None) -> Any:
    """Return the reader: what it feeds is always prepared ahead."""
    return reader


def read_file(reader: GeneratorLoader) -> Any:
    """Return the variables that a reader feeds."""
    return reader.feed_list[0] if len(reader.feed_list) == 1 else list(reader.feed_list)


__all__ = ["create_py_reader_by_data", "data", "double_buffer", "py_reader", "read_file"]
