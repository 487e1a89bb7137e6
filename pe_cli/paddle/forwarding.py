"""Functions that hand their arguments to another one, under other names, in another order or with other defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from pe_cli.ops.define.faces import Functional, words
from pe_cli.ops.define.registry import discover

_KIND = inspect.Parameter.POSITIONAL_OR_KEYWORD


def forwarded(name: str, call: Callable[..., Any], takes: str, says: str) -> Callable[..., Any]:
    """Return a function that hands its arguments to another one.

    Args:
        name: of the function.
        call: the other one.
        takes: the arguments in order, see `pe_cli.ops.define.faces`; one without a target is handed on by its place, a name not at all.
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
        return call(*(values[n] for n in placed), **{target: values[n] for n, target in named.items()})

    made.__name__ = made.__qualname__ = name
    made.__doc__ = says
    made.__signature__ = signature  # type: ignore[attr-defined]
    return made


def table(rows: Mapping[str, tuple[str, str, str]], called: Callable[[str], Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Return the functions of a table, by name.

    Args:
        rows: name -> name of the function that is called, what it takes, first line of its doc.
        called: finds a function by its name.
    """
    return {name: forwarded(name, called(other), takes, says) for name, (other, takes, says) in rows.items()}


def faces(at: str) -> dict[str, tuple[str, Functional]]:
    """Return what ops declare for a module of 2.x: name of the function -> op and face."""
    found = [(op, face) for op, definition in discover().items() for face in definition.faces]
    return {face.name or op: (op, face) for op, face in found if isinstance(face, Functional) and face.at == at}


def declared(at: str) -> dict[str, tuple[str, str, str]]:
    """Return the rows of `table` for what ops declare for a module of 2.x."""
    found = {name: (face.layer or op, face) for name, (op, face) in faces(at).items()}
    return {name: (layer, face.takes, face.says or f"Append `{layer}` of every element.") for name, (layer, face) in found.items()}
