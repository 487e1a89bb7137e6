"""Calls a network once in a program of its own, to see the shapes of what its layers take and give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.paddle.errors import FluidTypeError, FluidValueError
from pe_cli.paddle.fluid import layers, unique_name
from pe_cli.paddle.fluid.framework import Program, as_dtype, program_guard
from pe_cli.paddle.nn.layer import Layer
from pe_cli.paddle.static.serialized import InputSpec
from pe_cli.program.ir import Variable

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """One call of a layer.

    Args:
        path: of the layer in the network; empty for the network itself.
        layer: that was called.
        inputs: shapes of what it got.
        outputs: shapes of what it gave.
    """

    path: str
    layer: Layer
    inputs: list[Shape]
    outputs: list[Shape]


def shapes_of(value: Any) -> Iterator[Shape]:
    """Return the shapes of the variables in a value, its lists and its dicts."""
    if isinstance(value, Variable):
        yield tuple(value.shape)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from shapes_of(part)
    elif isinstance(value, dict):
        yield from shapes_of(list(value.values()))


def specs(input_size: Any, dtypes: Any = None) -> list[InputSpec]:
    """Return what a network is fed, of sizes: one shape, an InputSpec, or a list of them.

    Raises:
        FluidValueError: there is no shape, or a size is neither at least 1 nor unknown; a ValueError.
    """
    one = isinstance(input_size, InputSpec) or all(s is None or isinstance(s, int) for s in input_size)
    given = [input_size] if one else list(input_size)
    types = [dtypes] * len(given) if dtypes is None or isinstance(dtypes, str) else list(dtypes)
    if not given or len(types) != len(given):
        raise FluidValueError(f"input_size is {input_size!r}, dtypes are {dtypes!r}", hint="a shape for each input, and as many types")
    made = [s if isinstance(s, InputSpec) else InputSpec(s, as_dtype(t or "float32")) for s, t in zip(given, types, strict=True)]
    for each in made:
        if not each.shape or any(size < 1 and size != -1 for size in each.shape):
            raise FluidValueError(f"input_size has the shape {tuple(each.shape)}", hint="sizes of at least 1; None or -1 for the batch")
    return made


def trace(net: Any, inputs: Sequence[InputSpec], training: bool = False) -> list[Call]:
    """Call a network once and return the calls of its layers, in the order of their ends.

    Args:
        net: a layer.
        inputs: what it is fed; an unknown batch counts as 1.
        training: whether it is called as in training.

    Raises:
        FluidTypeError: net is no layer; a TypeError.
    """
    if not isinstance(net, Layer):
        raise FluidTypeError(f"a network must be a paddle.nn.Layer, got {type(net).__name__}")
    calls: list[Call] = []
    modes = [(layer, layer.training) for layer in net.sublayers(include_self=True)]
    # Names that this call makes must not move the counters of the caller's programs on.
    with ExitStack() as stack:
        stack.enter_context(unique_name.guard())
        stack.enter_context(program_guard(Program(), Program()))
        for path, layer in net.named_sublayers(include_self=True):
            hook = layer.register_forward_post_hook(_recorder(calls, path))
            stack.callback(hook.remove)
        fed = [
            layers.data(each.name or f"input_{i}", [1 if s == -1 else s for s in each.shape], append_batch_size=False, dtype=each.dtype)
            for i, each in enumerate(inputs)
        ]
        try:
            (net.train if training else net.eval)()
            net(*fed)
        finally:
            for layer, mode in modes:
                layer.training = mode
    return calls


def _recorder(calls: list[Call], path: str) -> Any:
    def record(layer: Layer, inputs: Any, outputs: Any) -> None:
        calls.append(Call(path, layer, list(shapes_of(inputs)), list(shapes_of(outputs))))

    return record


def own_parameters(layer: Layer) -> list[Any]:
    """Return the parameters of a layer itself, without those of layers inside."""
    return layer.parameters(include_sublayers=False)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a text table, columns as wide as they need."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])
