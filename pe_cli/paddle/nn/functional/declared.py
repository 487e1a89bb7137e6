"""Functions of 2.x that only call a layer, made of what the ops declare as their faces."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from pe_cli.ops.define.faces import Functional, words
from pe_cli.ops.define.registry import discover
from pe_cli.paddle.fluid.layers.composed import call

_KIND = inspect.Parameter.POSITIONAL_OR_KEYWORD


def forwarded(name: str, layer: str, takes: str, says: str = "") -> Callable[..., Any]:
    """Return a function that hands its arguments to a layer.

    Args:
        name: of the function.
        layer: what is called.
        takes: the arguments in order, see `pe_cli.ops.define.faces`; one without a target goes to the layer by its place, a name nowhere.
        says: first line of its doc.

    Raises:
        TypeError: when called: an argument that it does not take, or one that is missing.
    """
    listed = words(takes)
    parameters = []
    for word in listed:
        default = word.default if word.given else None if word.name == "name" else inspect.Parameter.empty
        parameters.append(inspect.Parameter(word.name, _KIND, default=default))
    signature = inspect.Signature(parameters)
    placed = [w.name for w in listed if not w.target and w.name != "name"]
    named = {w.name: w.target for w in listed if w.target}

    def made(*args: Any, **given: Any) -> Any:
        try:
            bound = signature.bind(*args, **given)
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from None
        bound.apply_defaults()
        values = bound.arguments
        return call(layer, *(values[n] for n in placed), **{target: values[n] for n, target in named.items()})

    made.__name__ = made.__qualname__ = name
    made.__doc__ = says or f"Append `{layer}` of every element."
    made.__signature__ = signature  # type: ignore[attr-defined]
    return made


def faces() -> dict[str, tuple[str, Functional]]:
    """Return the functions that ops declare: name -> op and face."""
    found = [(op, face) for op, definition in discover().items() for face in definition.faces if isinstance(face, Functional)]
    return {face.name or op: (op, face) for op, face in found}


def functions() -> dict[str, Callable[..., Any]]:
    """Return the functions that ops declare, by name."""
    return {name: forwarded(name, op, face.takes, face.says) for name, (op, face) in faces().items()}


def modules() -> dict[str, str]:
    """Return the classes that ops declare: name -> name of the function that each is made of."""
    return {face.module: name for name, (_, face) in faces().items() if face.module}
