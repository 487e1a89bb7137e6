"""Weights that a graph computes of directions and lengths: w = g v / ||v||, as PyTorch's weight_norm writes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pe_cli.session.importing.onnx.node import Node
from pe_cli.session.importing.onnx.values import Array, Value

#: Names that PyTorch gives to lengths and directions, the older and the newer way, with that of the weight as their first group.
_LENGTHS = (re.compile(r"(.+)_g"), re.compile(r"(?:(.+)\.)?parametrizations\.(.+)\.original0"))
#: Nodes between the directions and their norm, one behind the other, at most.
_DEEPEST = 8
#: How far values may be from what directions and lengths make.
_CLOSE = 1e-5


def weight_attr(node: Node, index: int, turn: Callable[[Array], Array] | None = None) -> dict[str, Any]:
    """Keep an input as the weight of a layer; return what the layer is told of it: its name, and whether weight normalisation makes it.

    Args:
        node: that reads the weight.
        index: of the input.
        turn: brings the weight into the form that the layer has.

    Raises:
        NeedsConstant: it is computed of what is fed.
    """
    found = _normalised(node, index, turn)
    return {"name": node.parameter(index, "weight", turn)[1]} if found is None else found


def _normalised(node: Node, index: int, turn: Callable[[Array], Array] | None) -> dict[str, Any] | None:
    """Return what a layer is told of a weight that weight normalisation makes; None where an input is another one."""
    value = node.value(index)
    found = _parts(value) if value.constant is not None and value.made_by is not None else None
    if found is None:
        return None
    directions, lengths = found
    whole = directions.constant, lengths.constant, value.constant
    v, g, w = (a if a is None or turn is None else turn(a.reshape((1,) * value.rank) if a.size == 1 else a) for a in whole)
    assert v is not None, "looked at in _parts"
    assert g is not None, "looked at in _parts"
    assert w is not None, "looked at before"
    g = g.reshape((1,) * v.ndim) if g.size == 1 else g
    axes = [axis for axis, size in enumerate(g.shape) if size > 1]
    if g.ndim != v.ndim or len(axes) > 1 or not _makes(v, g, axes, w):
        return None
    name = node.emitter.normalised(v, g, _weight_name(str(lengths.initializer)) or f"{node.key}.weight")
    if f"{name}_v" != directions.initializer:
        node.emitter.note(f"'{directions.initializer}' and '{lengths.initializer}' are called '{name}_v' and '{name}_g'")
    return {"name": name, "type": "weight_norm", **({"dim": axes[0]} if axes else {})}


def _makes(v: Array, g: Array, axes: list[int], w: Array) -> bool:
    """Tell whether a weight is what directions and lengths make, with norms over all axes but those."""
    if not w.size or v.shape != w.shape:
        return False
    with np.errstate(all="ignore"):
        norms = np.sqrt(np.square(v).sum(axis=tuple(i for i in range(v.ndim) if i not in axes), keepdims=True))
        return bool(np.allclose(g * v / norms, w, rtol=_CLOSE, atol=_CLOSE * np.abs(w).max()))


def _parts(weight: Value) -> tuple[Value, Value] | None:
    """Return directions and lengths of which a weight is made: v * (g / n), (v / n) * g or (v * g) / n, where v alone makes n."""
    op, values = weight.made_by.op, weight.made_by.values
    if op not in ("Mul", "Div") or len(values) != 2:
        return None
    one, other = values
    for left, right in ((one, other), (other, one)) if op == "Mul" else ((one, other),):
        inner = left.made_by
        if inner is None or inner.op != ("Div" if op == "Mul" else "Mul") or len(inner.values) != 2:
            continue
        above, below = inner.values
        # In products the norm stands below, and is known by what it is made of.
        tried = ((above, right, below), (right, above, below)) if op == "Mul" else ((above, below, right), (below, above, right))
        for directions, lengths, norms in tried:
            if _is_parameter(directions) and _is_parameter(lengths) and set(_made_of(norms)) == {directions.initializer}:
                return directions, lengths
    return None


def _is_parameter(value: Value | None) -> bool:
    return value is not None and value.constant is not None and value.trained and value.later is None and value.initializer is not None


def _made_of(value: Value, depth: int = 0) -> Iterator[str | None]:
    """Yield the parameters that a constant is computed of; None where they are too far away."""
    if value.made_by is None:
        if value.trained:
            yield value.initializer
    elif depth > _DEEPEST:
        yield None
    else:
        for each in value.made_by.values:
            if each is not None:
                yield from _made_of(each, depth + 1)


def _weight_name(lengths: str) -> str:
    """Return the name of a weight by that of its lengths; empty where it is none of PyTorch's.

    >>> _weight_name("conv.weight_g"), _weight_name("conv.parametrizations.weight.original0"), _weight_name("scale")
    ('conv.weight', 'conv.weight', '')
    """
    found = next((match for match in (form.fullmatch(lengths) for form in _LENGTHS) if match), None)
    return "" if found is None else ".".join(filter(None, found.groups()))
