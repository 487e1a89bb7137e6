"""LSTM, GRU and RNN."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.session.importing.onnx.forms.elementwise import floats
from pe_cli.session.importing.onnx.node import Node, form
from pe_cli.session.importing.onnx.values import Array, Unimportable, Value

#: Node -> layer, its activations in ONNX, and the place there of each of the layer's gates. ONNX has the gates of LSTM as i, o, f, c, the
#: layer as i, f, c, o; those of GRU as z, r, h, the layer as r, z, h.
_KINDS: dict[str, tuple[str, list[str], list[int]]] = {
    "LSTM": ("lstm", ["Sigmoid", "Tanh", "Tanh"], [0, 2, 3, 1]),
    "GRU": ("gru", ["Sigmoid", "Tanh"], [1, 0, 2]),
    "RNN": ("simple_rnn", ["Tanh"], [0]),
}


@form("LSTM", "GRU", "RNN")
def recurrent(node: Node) -> list[Value | None]:
    x = floats(node)
    type, usual, order = _KINDS[node.op]
    direction = str(node.attr("direction", "forward"))
    units = int(node.attr("hidden_size", node.const(2, "recurrence").shape[-1]))
    both = direction == "bidirectional"
    args: dict[str, Any] = {"input": x, "hidden_size": units}
    args |= {"is_bidirec": True} if both else {"is_reverse": True} if direction == "reverse" else {}
    args |= _activation(node, usual, both) | _states(node) | _parameters(node, order, units, both)
    if int(node.attr("layout", 0)) == 0:
        args["time_major"] = True
    made = node.outs(type, **args)
    return _outputs(node, made, x, units, 2 if both else 1)


def _activation(node: Node, usual: list[str], both: bool) -> dict[str, Any]:
    """Return the activation of a simple layer, and refuse what no layer has."""
    acts = [str(a) for a in node.attr("activations", usual * (2 if both else 1))]
    if node.op == "RNN" and set(acts) == {"Relu"}:
        return {"activation": "relu"}
    if acts != usual * (2 if both else 1):
        raise Unimportable(f"its activations are {acts}, and the layer has {usual}")
    unusual = [name for name in ("clip", "input_forget") if node.attr(name, 0)]
    if node.has(7):
        unusual.append("peepholes")
    if unusual:
        raise Unimportable(f"the layer has no {', '.join(unusual)}")
    # linear_before_reset 0 is the GRU of the paper of Cho et al., which resets the state before the product; the layer's own default, and
    # cuDNN's, resets the product.
    return {"reset_after": False} if node.op == "GRU" and not node.attr("linear_before_reset", 0) else {}


def _states(node: Node) -> dict[str, Any]:
    """Return lengths and first states."""
    args: dict[str, Any] = {}
    length = node.value(4) if node.has(4) else None
    # Lengths that are all full say nothing; with them, the layer would mask every step.
    if length is not None and not (length.constant is not None and (length.constant == node.shape()[0]).all()):
        lengths = node.var(4)
        args["sequence_length"] = node.mid("cast", "lengths", x=lengths, dtype="int64", dims=lengths.dims)
    for index, name in ((5, "init_h"), (6, "init_c")):
        held = node.value(index) if node.has(index) else None
        zero = held is not None and held.constant is not None and not held.constant.any()
        if held is not None and not zero and (index == 5 or node.op == "LSTM"):
            # A first state of zeros is what the layer begins with.
            if int(node.attr("layout", 0)):
                raise Unimportable("its first states have the batch first")
            args[name] = node.var(index)
    return args


def _parameters(node: Node, order: list[int], units: int, both: bool) -> dict[str, Any]:
    """Keep the parameters; gates are put into the layer's order."""
    gates, given = len(order), {"weight_ih_attr": 1, "weight_hh_attr": 2}

    def turned(array: Array) -> Array:
        # Rows of a gate lie together in ONNX; the layer multiplies by matrices [inputs, gates * units], hence the transposition.
        blocks = array.reshape(gates, units, -1)[order]
        return np.ascontiguousarray(blocks.reshape(gates * units, -1).T)

    args: dict[str, Any] = {}
    endings = ["_l0", "_l0_reverse"] if both else [""]
    for name, index in given.items():
        args[name] = {"name": _kept(node, index, name, [turned(one) for one in node.const(index, name)], endings)}
    if not node.has(3):
        return args | {"bias_ih_attr": False, "bias_hh_attr": False}
    for name, half in (("bias_ih_attr", 0), ("bias_hh_attr", 1)):
        parts = [one[half * gates * units : (half + 1) * gates * units] for one in node.const(3, "bias")]
        args[name] = {"name": _kept(node, 3, name, [turned(part).reshape(-1) for part in parts], endings)}
    return args


def _kept(node: Node, index: int, what: str, arrays: list[Array], endings: list[str]) -> str:
    """Keep a parameter of each direction; return the name that the layer puts its endings behind."""
    said = node.value(index).initializer
    slot = what.removesuffix("_attr")
    wanted = f"{node.key}.{slot}" if said is None or index == 3 else said
    name, tries = wanted, 1
    while any(f"{name}{ending}" in node.emitter.arrays for ending in endings):
        tries += 1
        name = f"{wanted}_{tries}"
    for array, ending in zip(arrays, endings, strict=True):
        node.emitter.arrays[f"{name}{ending}"] = np.ascontiguousarray(array)
    return name


def _outputs(node: Node, made: list[Value], x: Value, units: int, ways: int) -> list[Value | None]:
    """Return Y, Y_h and Y_c as the graph has them: with an axis for the directions."""
    found: list[Value | None] = [None] * 3
    last = bool(int(node.attr("layout", 0)))
    if node.wants(0):
        first, second = x.dims[:2]
        if last:
            found[0] = node.reshaped(made[0], [first, second, ways, units], "ways")
        elif ways == 1:
            found[0] = node.reshaped(made[0], [first, 1, second, units], "ways")
        else:
            cut = node.reshaped(made[0], [first, second, 2, units], "ways")
            found[0] = node.mid("transpose", "turned", x=cut, perm=[0, 2, 1, 3], dims=[first, 2, second, units])
    batch = x.dims[0] if last else x.dims[1]
    for index in (1, 2):
        if node.wants(index):
            state = made[index]
            turned = node.mid("transpose", f"state_{index}", x=state, perm=[1, 0, 2], dims=[batch, ways, units]) if last else state
            found[index] = Value(turned.dtype, variable=turned.variable, dims=(batch, ways, units) if last else (ways, batch, units))
    return found[: len(node.outputs)]
