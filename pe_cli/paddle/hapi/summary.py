"""summary: the layers of a network, with the shapes that they give and the parameters that they have."""

from __future__ import annotations

from typing import Any

from pe_cli.core.types import product
from pe_cli.paddle.hapi.traced import own_parameters, specs, table, trace


def summary(net: Any, input_size: Any, dtypes: Any = None) -> dict[str, int]:
    """Print the layers of a network in the order of their calls, and count its parameters.

    Args:
        net: a `paddle.nn.Layer`.
        input_size: shape of what it is fed, an InputSpec, or a list of them.
        dtypes: element type of all inputs, or a list; default: float32.

    Returns:
        `total_params` and `trainable_params`, in numbers.

    Raises:
        FluidTypeError: net is no layer; a TypeError.
        FluidValueError: input_size has no shape; a ValueError.
    """
    rows, seen = [], set()
    for call in trace(net, specs(input_size, dtypes)):
        parameters = own_parameters(call.layer)
        if call.layer.sublayers() and not parameters:
            continue  # what only holds other layers
        # A parameter that several layers share is counted with the first of them.
        fresh = [p for p in parameters if p.name not in seen]
        seen |= {p.name for p in fresh}
        count = sum(product(p.shape) for p in fresh)
        rows.append((call.path or "(itself)", type(call.layer).__name__, _text(call.inputs), _text(call.outputs), f"{count:,}"))
    whole = net.parameters()
    total = sum(product(p.shape) for p in whole)
    trainable = sum(product(p.shape) for p in whole if p.trainable)
    text = table(("layer", "type", "input", "output", "parameters"), rows)
    print(f"{text}\n\nparameters: {total:,}, trainable: {trainable:,}")  # noqa: T201 (asked for)
    return {"total_params": total, "trainable_params": trainable}


def _text(shapes: list[tuple[int, ...]]) -> str:
    return ", ".join(str(list(shape)) for shape in shapes)
