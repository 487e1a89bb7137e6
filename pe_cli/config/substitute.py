"""Substitutes `${name}` in a model file or a run file: alone it keeps the value's type, within other text it becomes text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pe_cli.config.error_collector import Mistakes, TooLargeError
from pe_cli.config.nodes import MAX_DEPTH, MAX_NODES, Entry, ListNode, MapNode, Node, ScalarNode
from pe_cli.core.errors import Span, did_you_mean

_WHOLE = re.compile(r"\$\{([^${}]*)\}")
_PART = re.compile(r"\$\$\{|\$\{([^${}]*)\}|\$\{")
#: Characters that one text may grow to.
MAX_TEXT = 10_000
#: Values that a whole model may be made of by substitution.
MAX_MADE = 500_000


def names_in(node: Node) -> set[str]:
    """Return the names of every `${name}` in a node."""
    if not node.refers:
        return set()
    if isinstance(node, MapNode):
        return {name for entry in node.entries.values() for name in names_in(entry.value)}
    if isinstance(node, ListNode):
        return {name for item in node.items for name in names_in(item)}
    return {match[1].strip() for match in _PART.finditer(str(node.value)) if match[1] is not None}


def escaped(data: Any) -> Any:
    """Return plain data whose texts are read as they are: `$${` for every `${`.

    >>> escaped({"a": ["${b}", 1]})
    {'a': ['$${b}', 1]}
    """
    if isinstance(data, dict):
        return {key: escaped(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [escaped(value) for value in data]
    return data.replace("${", "$${") if isinstance(data, str) else data


def literal(node: Node) -> Node:
    """Return a node whose texts are read as they are, as `escaped` does with plain data."""
    if not node.refers:
        return node
    if isinstance(node, MapNode):
        return replace(node, entries={key: Entry(key, e.at, literal(e.value)) for key, e in node.entries.items()})
    if isinstance(node, ListNode):
        return replace(node, items=tuple(literal(item) for item in node.items))
    return replace(node, value=escaped(node.value))


class Substitution:
    """Puts values in for `${name}`.

    Args:
        mistakes: where unknown names go.
        what: is filled, for errors: a model or a config.

    Attributes:
        made: values so far.
        missing: names without a value, which is reported already.
    """

    def __init__(self, mistakes: Mistakes, what: str = "model") -> None:
        self.mistakes = mistakes
        self.what = what
        self.made = 0
        self.missing: set[str] = set()

    def apply(self, node: Node, values: Mapping[str, Node]) -> Node:
        """Return a node with every `${name}` replaced; `$${` stays as `${`.

        Raises:
            TooLargeError: the result would be too large.
        """
        if not node.refers:
            return node
        # Every value made is counted: blocks that use blocks could grow without end from a small file.
        self.count(1, node.at)
        made: Node
        if isinstance(node, MapNode):
            entries = {k: Entry(k, e.at, self.apply(e.value, values)) for k, e in node.entries.items()}
            made = replace(node, entries=entries)
        elif isinstance(node, ListNode):
            made = replace(node, items=tuple(self.apply(item, values) for item in node.items))
        else:
            made = self._scalar(node, values)
        if made.size > MAX_NODES or made.height > MAX_DEPTH:
            raise TooLargeError(
                "too many values, with ${...} put in", at=node.at, hint=f"at most {MAX_NODES}, {MAX_DEPTH} levels deep"
            )
        return made

    def count(self, values: int, at: Span) -> None:
        """Add to the number of values made.

        Raises:
            TooLargeError: they are too many.
        """
        self.made += values
        if self.made > MAX_MADE:
            raise TooLargeError(
                f"the {self.what} grows to more than {MAX_MADE} values by blocks and ${{...}}",
                at=at,
                hint="use fewer repeats",
            )

    def _scalar(self, node: ScalarNode, values: Mapping[str, Node]) -> Node:
        text = str(node.value)
        whole = _WHOLE.fullmatch(text)
        if whole:
            found = self._find(whole[1].strip(), node.at, values)
            # The value's own place is kept as a note, as a mistake in it may have to be mended there.
            return node if found is None else replace(found, at=node.at, via=found.via or found.at)
        parts: list[str] = []
        end = length = 0
        for match in _PART.finditer(text):
            parts.append(text[end : match.start()])
            parts.append("${" if match[0] == "$${" else self._text(match, node.at, values))
            end = match.end()
            length += len(parts[-1])
            if length > MAX_TEXT:
                raise TooLargeError(f"the text grows to more than {MAX_TEXT} characters by ${{...}}", at=node.at)
        result = "".join([*parts, text[end:]])
        return ScalarNode(result, node.at, result, node.via, node.scope)

    def _text(self, match: re.Match[str], at: Span, values: Mapping[str, Node]) -> str:
        if match[1] is None:
            self.mistakes.say("'${' is not closed", at, "write ${name}, or $${ for the characters themselves")
            return ""
        found = self._find(match[1].strip(), at, values)
        if isinstance(found, ScalarNode):
            return found.text if found.value is not None else ""
        if found is not None:
            kind = "a list" if isinstance(found, ListNode) else "a mapping"
            self.mistakes.say(
                f"'{match[1]}' is {kind}, which cannot stand inside text", at, f'write "${{{match[1]}}}" alone'
            )
        return ""

    def _find(self, name: str, at: Span, values: Mapping[str, Node]) -> Node | None:
        if name in values:
            return values[name]
        if name in self.missing:
            # Told once per name: a constant that is missing is usually used often.
            self.mistakes.again()
            return None
        hint = did_you_mean(name, values) or (f"one of {', '.join(values)}" if values else "declare it under args")
        self.mistakes.say(f"there is no argument '{name}'", at, hint)
        return None
