"""`-o train.epochs=1`: values of the command line are put into the tree and checked like the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pe_cli.config.error_collector import Mistakes
from pe_cli.config.extends import long_form
from pe_cli.config.nodes import Entry, ListNode, MapNode, Node, ScalarNode, describe
from pe_cli.config.parse import parse
from pe_cli.config.source import Source
from pe_cli.core.errors import PeError, Span
from pe_cli.core.lazy_dataclass import dataclass

_MOST_PARTS = 20


@dataclass(frozen=True)
class Override:
    """One value of the command line.

    Args:
        text: `key=value` as written.
        parts: of the key, with their places.
        value: what is set.
        append: whether it goes behind what the list has, as `key+=value` says.
    """

    text: str
    parts: tuple[tuple[str, Span], ...]
    value: Node
    append: bool = False


def read_override(text: str, mistakes: Mistakes) -> Override | None:
    """Return `key=value` or `key+=value` with places in a pseudo-file, or None with its mistakes added."""
    file = f"-o {text.splitlines()[0] if text else ''}"
    key, equals, written = text.partition("=")
    whole = Source(file, text)
    if not equals:
        mistakes.say(f"-o needs key=value, got '{text}'", None, "for example -o train.epochs=1")
        return None
    before_value = f"{key}="
    append = key.endswith("+")
    key = key.removesuffix("+")
    parts: list[tuple[str, Span]] = []
    column = 0
    for part in key.split("."):
        parts.append((part.strip(), whole.span(0, column, len(part))))
        column += len(part) + 1
    if any(not part for part, _ in parts) or len(parts) > _MOST_PARTS:
        mistakes.say(
            f"'{key}' is no path of keys",
            whole.span(0, 0, len(key)),
            "write names with dots between them: train.epochs",
        )
        return None
    before = mistakes.total
    value = parse(Source(file, written, before=before_value), mistakes)
    if value is None:
        if mistakes.total > before:
            return None
        value = ScalarNode(None, whole.span(0, 0, len(text)))
    return Override(text, tuple(parts), value, append)


def apply_overrides(tree: MapNode, texts: Sequence[str], mistakes: Mistakes) -> MapNode:
    """Return the tree with values of the command line; keys that no section knows are found when it is checked."""
    for text in texts:
        override = read_override(text, mistakes)
        if override is None:
            continue
        with mistakes.catch():
            tree = put(tree, override)
    return tree


def put(tree: MapNode, override: Override) -> MapNode:
    """Return the tree with one value set.

    Raises:
        PeError: the key leads into a value that has no keys, or out of a list.
    """
    made = _set(tree, override, 0)
    assert isinstance(made, MapNode)
    return made


def _set(node: Node, override: Override, depth: int) -> Node:
    if depth == len(override.parts):
        return _appended(node, override) if override.append else override.value
    key, at = override.parts[depth]
    above = ".".join(part for part, _ in override.parts[:depth])
    if isinstance(node, ScalarNode):
        node = _long_form(node, override, depth)
    if isinstance(node, MapNode):
        entry = node.entries.get(key)
        inner = entry.value if entry else ScalarNode(None, at)
        return node.with_entry(Entry(key, at, _set(inner, override, depth + 1)))
    if isinstance(node, ListNode):
        if not key.isdecimal() or int(key) >= len(node.items):
            raise PeError(
                f"{above} is a list of {len(node.items)}, which has no item '{key}'", at=at, hint="count from 0"
            )
        items = list(node.items)
        items[int(key)] = _set(items[int(key)], override, depth + 1)
        # what is wrong with the list now is the command line's doing
        return replace(node, items=tuple(items), at=override.value.at if depth + 1 == len(override.parts) else node.at)
    raise PeError(f"{above} is {describe(node)}, which has no keys", at=at, hint=f"set {above} itself")


def _appended(node: Node, override: Override) -> Node:
    """Return a list with the value behind what it has; of a list its items."""
    value = override.value
    added = value.items if isinstance(value, ListNode) else (value,)
    if isinstance(node, ListNode):
        return replace(node, items=(*node.items, *added), at=value.at)
    key = ".".join(part for part, _ in override.parts)
    if isinstance(node, ScalarNode) and node.value is None:
        return ListNode(tuple(added), value.at)
    raise PeError(f"{key} is {describe(node)}, and += adds to lists", at=override.parts[-1][1], hint=f"set it: -o {key}=...")


def _long_form(node: ScalarNode, override: Override, depth: int) -> Node:
    """Return the mapping that a short form (`model: path`, `feeds.label: field`) or null stands for."""
    if node.value is None:
        return MapNode({}, override.parts[max(0, depth - 1)][1])
    return long_form(node, tuple(part for part, _ in override.parts[:depth]))
