"""Converts nodes of a config to the values that a layer, an initializer or an optimizer takes, and says what is wrong with others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pe_cli.config.nodes import ListNode, Node, ScalarNode, describe, origin_notes
from pe_cli.core.errors import PeError, did_you_mean
from pe_cli.program.epoch_attributes import Epochs

#: What a value of a kind is called in messages.
WORDS = {
    "int": "a whole number",
    "size": "a whole number, or the name of an integer variable of one element",
    "sizes": "a list of whole numbers and names of integer variables, or the name of one variable of them all",
    "int_or_sizes": "a whole number, a list of them and of names of integer variables, or the name of one variable of them all",
    "number": "a number, or the name of a variable of one element",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "ints": "a list of whole numbers",
    "floats": "a list of numbers",
    "float_lists": "a list of numbers, or of lists of them",
    "strs": "a list of texts",
    "int_or_ints": "a whole number or a list of them",
    "int_or_ints_or_str": "a whole number, a list of them, or text",
}
#: A number of steps that is not a number alone.
_STEPS = re.compile(r"([1-9][0-9]{0,11}) +(step|epoch)s?")
_YES_NO = ("yes", "no", "on", "off")


class Wrong(Exception):
    """A value is not of its kind."""

    def __init__(self, node: Node) -> None:
        self.node = node


def convert(kind: str, node: Node, what: str) -> Any:
    """Return the value of a node of a simple kind.

    Args:
        kind: a key of `WORDS`.
        node: as written.
        what: begins the message: `layer 'fc': size`.

    Raises:
        PeError: it is something else.
    """
    try:
        return _CONVERT[kind](node)
    except Wrong as wrong:
        inner = wrong.node
        value = inner.value if isinstance(inner, ScalarNode) else None
        hint = None
        # yes and on are booleans for YAML 1.1 and text for YAML 1.2, which is read here.
        if kind == "bool" and str(value).lower() in _YES_NO:
            hint = f"write true or false; in YAML 1.2 {value} is text"
        elif isinstance(value, float) and value.is_integer() and ("int" in kind or "size" in kind):
            hint = f"write {int(value)}"
        raise PeError(
            f"{what} must be {WORDS[kind]}, got {describe(node)}", at=inner.at, hint=hint, notes=origin_notes(inner)
        ) from None


def steps_of(node: Node, what: str, *, several: bool = False) -> Any:
    """Return a number of steps, or epochs, whose steps are counted later; with several, a list of them.

    Args:
        node: a whole number, `50 steps` or `10 epochs`.
        what: begins the message.
        several: whether the node is a list.

    Raises:
        PeError: it is something else.
    """
    if several:
        if not isinstance(node, ListNode):
            text = f"{what} must be a list of numbers of steps, got {describe(node)}"
            raise PeError(text, at=node.at, hint="for example [500, 10 epochs]", notes=origin_notes(node))
        return [steps_of(item, what) for item in node.items]
    value = node.value if isinstance(node, ScalarNode) else None
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = _STEPS.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        text = f"{what} must be a whole number of steps, or like '50 steps' or '10 epochs', got {describe(node)}"
        hint = f"write {int(value)}" if isinstance(value, float) and value.is_integer() else None
        raise PeError(text, at=node.at, hint=hint, notes=origin_notes(node))
    return Epochs(int(found[1]), node.at) if found[2] == "epoch" else int(found[1])


def argument_of(error: PeError, given: Mapping[str, Node]) -> Node | None:
    """Return the argument that an error names, as its value may be written elsewhere, or on the command line; None for none.

    Args:
        error: its message begins with what it is about, and a colon.
        given: arguments as written.
    """
    # Errors of ops begin with the op's name, which may be that of an argument too.
    said = re.findall(r"\w+", error.message.partition(":")[2] or error.message)
    return next((given[word] for word in said if word in given), None)


def meant(written: Iterable[str], known: Iterable[str]) -> set[str]:
    """Return the known names that misspelled ones probably stand for, so that those are not reported as missing too."""
    names = list(known)
    hints = {did_you_mean(name, names) for name in written if name not in names}
    return {name for name in names if f"did you mean '{name}'?" in hints}


def _int(node: Node) -> int:
    if isinstance(node, ScalarNode) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    raise Wrong(node)


def _float(node: Node) -> float:
    if isinstance(node, ScalarNode) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
        return float(node.value)
    raise Wrong(node)


def _bool(node: Node) -> bool:
    if isinstance(node, ScalarNode) and isinstance(node.value, bool):
        return node.value
    raise Wrong(node)


def _str(node: Node) -> str:
    if isinstance(node, ScalarNode) and isinstance(node.value, str):
        return node.value
    raise Wrong(node)


def _list(item: Callable[[Node], Any]) -> Callable[[Node], list[Any]]:
    def convert_list(node: Node) -> list[Any]:
        if not isinstance(node, ListNode):
            raise Wrong(node)
        return [item(inner) for inner in node.items]

    return convert_list


def _ints_or_int(node: Node) -> Any:
    return _list(_int)(node) if isinstance(node, ListNode) else _int(node)


_CONVERT: dict[str, Callable[[Node], Any]] = {
    "int": _int,
    "size": _int,
    "sizes": _list(_int),
    "int_or_sizes": _ints_or_int,
    "number": _float,
    "float": _float,
    "bool": _bool,
    "str": _str,
    "ints": _list(_int),
    "floats": _list(_float),
    "float_lists": _list(lambda node: _list(_float)(node) if isinstance(node, ListNode) else [_float(node)]),
    "strs": _list(_str),
    "int_or_ints": _ints_or_int,
    "int_or_ints_or_str": lambda node: _str(node) if isinstance(node, ScalarNode) and isinstance(node.value, str) else _ints_or_int(node),
}
