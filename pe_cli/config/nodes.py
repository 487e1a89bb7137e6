"""Nodes: the tree of values that YAML text becomes, each with its place in the file."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Protocol

from pe_cli.config.yaml_scalars import Value, show
from pe_cli.core.errors import Span
from pe_cli.core.lazy_dataclass import dataclass

#: Limits on what a file may hold, after aliases and `${...}` have been put in; no unit but bytes.
MAX_BYTES = 1 << 20
MAX_DEPTH = 64
MAX_NODES = 50_000


class Lookup(Protocol):
    """Where names in a file are looked up."""

    def find(self, name: str) -> str | None:
        """Return the variable that a name stands for, None where there is none."""

    def known(self) -> list[str]:
        """Return every name that could have been written."""

    def written(self, name: str) -> tuple[str, Lookup]:
        """Return the name that is written where an argument of this name is given, and what is visible there."""


@dataclass(frozen=True, eq=False)
class ScalarNode:
    """Text, a number, true, false or null.

    Args:
        value: what it means.
        at: place of the value, without quotes' content being cut.
        text: as written, without quotes.
        via: place of the value that a `${name}` was replaced with.
        scope: where names in it are looked up, when that is not where it stands (see `expand`).
    """

    value: Value
    at: Span
    text: str = ""
    via: Span | None = None
    scope: Lookup | None = None

    @property
    def size(self) -> int:
        """Nodes below and with this one."""
        return 1

    @property
    def height(self) -> int:
        """Levels of collections below this one."""
        return 0

    @property
    def refers(self) -> bool:
        """Whether the text has a `${` in it."""
        return isinstance(self.value, str) and "${" in self.value


@dataclass(frozen=True, eq=False)
class ListNode:
    """Values in order."""

    items: tuple[Node, ...]
    at: Span
    via: Span | None = None
    size: int = field(init=False)
    height: int = field(init=False)
    refers: bool = field(init=False)

    def __post_init__(self) -> None:
        _measure(self, self.items)


@dataclass(frozen=True, eq=False)
class Entry:
    """One key of a mapping with its value."""

    key: str
    at: Span
    value: Node


@dataclass(frozen=True, eq=False)
class MapNode:
    """Names with values, in the order of the file."""

    entries: dict[str, Entry]
    at: Span
    via: Span | None = None
    size: int = field(init=False)
    height: int = field(init=False)
    refers: bool = field(init=False)

    def __post_init__(self) -> None:
        _measure(self, [entry.value for entry in self.entries.values()])

    def get(self, key: str) -> Node | None:
        """Return a value, or None where the key is absent."""
        entry = self.entries.get(key)
        return entry.value if entry else None

    def with_entry(self, entry: Entry) -> MapNode:
        """Return a mapping with one key set; a new key comes last."""
        return MapNode({**self.entries, entry.key: entry}, self.at, self.via)

    def without(self, *keys: str) -> MapNode:
        """Return a mapping that lacks some keys."""
        return MapNode({k: e for k, e in self.entries.items() if k not in keys}, self.at, self.via)


Node = ScalarNode | ListNode | MapNode


def _measure(node: ListNode | MapNode, children: Any) -> None:
    # shared children count every time: the size is that of the tree, not of what is in memory
    object.__setattr__(node, "size", 1 + sum(child.size for child in children))
    object.__setattr__(node, "height", 1 + max((child.height for child in children), default=0))
    object.__setattr__(node, "refers", any(child.refers for child in children))


def to_data(node: Node) -> Any:
    """Return plain Python data: dicts, lists and scalars."""
    if isinstance(node, MapNode):
        return {key: to_data(entry.value) for key, entry in node.entries.items()}
    if isinstance(node, ListNode):
        return [to_data(item) for item in node.items]
    return node.value


def is_null(node: Node | None) -> bool:
    """Return whether a key is absent, or has nothing after it."""
    return node is None or (isinstance(node, ScalarNode) and node.value is None)


def find(node: Node, path: tuple[str | int, ...]) -> Node | None:
    """Return the node under a path of keys and indices, or None."""
    at: Node | None = node
    for part in path:
        if isinstance(at, MapNode):
            at = at.get(str(part))
        elif isinstance(at, ListNode) and isinstance(part, int) and part < len(at.items):
            at = at.items[part]
        else:
            return None
    return at


def key_span(node: Node, path: tuple[str | int, ...]) -> Span:
    """Return the place of a path's last key, or of the nearest thing above it that exists."""
    place = node.at
    here: Node = node
    for part in path:
        if isinstance(here, MapNode) and str(part) in here.entries:
            entry = here.entries[str(part)]
            place, here = entry.at, entry.value
        elif isinstance(here, ListNode) and isinstance(part, int) and part < len(here.items):
            here = here.items[part]
            place = here.at
        else:
            break
    return place


def describe(node: Node) -> str:
    """Return a phrase for a node, for `got ...` in messages."""
    return (
        show(node.value)
        if isinstance(node, ScalarNode)
        else show(to_data(node))
        if isinstance(node, ListNode)
        else "a mapping"
    )


def origin_notes(node: Node) -> tuple[tuple[Span, str], ...]:
    """Return the note that says where a `${name}` got its value."""
    return ((node.via, "the value is written here"),) if node.via else ()
