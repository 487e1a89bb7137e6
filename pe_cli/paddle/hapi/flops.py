"""flops: how many operations one call of a network takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pe_cli.core.types import product
from pe_cli.paddle.errors import FluidTypeError
from pe_cli.paddle.hapi.traced import Call, own_parameters, specs, table, trace
from pe_cli.paddle.nn.parametric import _Transposed

Count = Callable[[Call], int]


def _convolution(call: Call) -> int:
    """Every element of the result takes a multiplication for each element of its filter, and one addition of a bias."""
    weight = call.layer.weight.shape
    inner = weight[1]
    if isinstance(call.layer, _Transposed):
        # a weight is [in, out / groups, ...], where others are [out, in / groups, ...]
        channels = -1 if str(getattr(call.layer, "_layout", "")).endswith("C") else 1
        inner = weight[0] * weight[1] // call.outputs[0][channels]
    bias = int(getattr(call.layer, "bias", None) is not None)
    return product(call.outputs[0]) * (int(inner) * product(weight[2:]) + bias)


def _linear(call: Call) -> int:
    return int(call.layer.weight.shape[0]) * product(call.outputs[0])


def _norm(call: Call) -> int:
    return 2 * product(call.inputs[0])


def _elements(call: Call) -> int:
    return product(call.outputs[0])


def _adaptive(call: Call) -> int:
    """Every element of the result takes the additions of its window and one division."""
    window = product(call.inputs[0][2:]) // max(product(call.outputs[0][2:]), 1)
    return (window + 1) * product(call.outputs[0])


def _none(call: Call) -> int:
    return 0


#: Name of a class of `paddle.nn` -> what its calls take.
COUNTS: dict[str, Count] = {
    **dict.fromkeys(("Conv1D", "Conv2D", "Conv3D", "Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose"), _convolution),
    **dict.fromkeys(("BatchNorm", "BatchNorm1D", "BatchNorm2D", "BatchNorm3D", "SyncBatchNorm"), _norm),
    **dict.fromkeys(("AvgPool1D", "AvgPool2D", "AvgPool3D", "LeakyReLU"), _elements),
    **dict.fromkeys(("AdaptiveAvgPool1D", "AdaptiveAvgPool2D", "AdaptiveAvgPool3D"), _adaptive),
    **dict.fromkeys(("ReLU", "ReLU6", "Dropout"), _none),
    "Linear": _linear,
}


class Counted:
    """What a function of `custom_ops` is given as its layer: attributes of the layer, and `total_ops`, which it adds to."""

    def __init__(self, layer: Any) -> None:
        self._layer, self.total_ops = layer, 0

    def __getattr__(self, name: str) -> Any:
        # There is no layer yet in what copy and pickle make.
        if name == "_layer":
            raise AttributeError(name)
        return getattr(self._layer, name)


def flops(net: Any, input_size: Any, custom_ops: Mapping[type, Callable[..., None]] | None = None, print_detail: bool = False) -> int:
    """Count the operations of one call of a network, as a test calls it; a multiplication with its addition is one.

    Args:
        net: a `paddle.nn.Layer`.
        input_size: shape of what it is fed, with its batch.
        custom_ops: class of a layer -> function (layer, shapes of its inputs, shape of its output) that adds to `layer.total_ops`.
        print_detail: print a row for every call.

    Returns:
        Operations of all layers that are counted: convolutions, Linear, batch normalisation, average pooling, LeakyReLU, and those of
        custom_ops. Others count as 0 and are named.

    Raises:
        FluidTypeError: net is no layer, or custom_ops maps no classes; a TypeError.
    """
    own = dict(custom_ops or {})
    if not all(isinstance(kind, type) and callable(count) for kind, count in own.items()):
        raise FluidTypeError("custom_ops must map classes of layers to functions", hint="{nn.Softmax: count}")
    total, rows, left_out = 0, [], set()
    for call in trace(net, specs(input_size)):
        # What only holds other layers is counted by those, unless a function was given for it.
        if call.layer.sublayers() and type(call.layer) not in own:
            continue
        found = _count(call, own)
        if found is None:
            left_out.add(type(call.layer).__name__)
        parameters = sum(product(p.shape) for p in own_parameters(call.layer))
        shapes = [", ".join(str(list(s)) for s in part) for part in (call.inputs, call.outputs)]
        rows.append((call.path or "(itself)", type(call.layer).__name__, *shapes, f"{parameters:,}", f"{found or 0:,}"))
        total += found or 0
    if print_detail:
        print(table(("layer", "type", "input", "output", "parameters", "operations"), rows))  # noqa: T201 (asked for)
    if left_out:
        print(f"counted as 0: {', '.join(sorted(left_out))}")  # noqa: T201 (as the original does)
    parameters = sum(product(p.shape) for p in net.parameters())
    print(f"operations: {total:,}, parameters: {parameters:,}")  # noqa: T201 (as the original does)
    return total


def _count(call: Call, own: Mapping[type, Callable[..., None]]) -> int | None:
    """Return the operations of a call; None where nothing says how many."""
    if type(call.layer) in own:
        counted = Counted(call.layer)
        own[type(call.layer)](counted, call.inputs, call.outputs[0])
        return int(counted.total_ops)
    count = COUNTS.get(type(call.layer).__name__)
    return None if count is None else count(call)
