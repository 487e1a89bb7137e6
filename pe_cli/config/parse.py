"""Parses YAML text into nodes: PyYAML gives events with places, and no Python object is ever constructed from a tag."""

from __future__ import annotations

from dataclasses import field
from typing import Any

import yaml

from pe_cli.config.error_collector import Mistakes
from pe_cli.config.nodes import MAX_BYTES, MAX_DEPTH, MAX_NODES, Entry, ListNode, MapNode, Node, ScalarNode, describe
from pe_cli.config.source import BREAK, UNPRINTABLE, Source
from pe_cli.config.yaml_errors import explain_syntax
from pe_cli.config.yaml_scalars import resolve
from pe_cli.core.errors import PeError, Span, did_you_mean
from pe_cli.core.lazy_dataclass import dataclass


def decode(raw: bytes, file: str) -> str:
    """Return a file's text.

    Raises:
        PeError: more than a megabyte, or not UTF-8; the place is the first wrong byte's.
    """
    if len(raw) > MAX_BYTES:
        raise PeError(f"{file} has {len(raw)} bytes, and at most {MAX_BYTES} are read", hint="is this the right file?")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8", "replace")
        line = BREAK.split(raw.decode("utf-8", "replace"))[len(BREAK.split(before)) - 1]
        at = Span(file, len(BREAK.split(before)), len(BREAK.split(before)[-1]) + 1, 1, line)
        raise PeError(
            f"byte {raw[error.start]:#04x} is not UTF-8",
            at=at,
            hint="save the file as UTF-8, for example with iconv -t UTF-8",
        ) from None


def parse(source: Source, mistakes: Mistakes) -> Node | None:
    """Turn YAML text into a tree.

    Duplicate keys, tags, merge keys and keys that are no names go to `mistakes`, and the tree is made without them.

    Args:
        source: one document, at most MAX_BYTES.
        mistakes: where errors go.

    Returns:
        The tree, or None for an empty text and for one that cannot be read.
    """
    wrong = UNPRINTABLE.search(source.text)
    if wrong:
        before = BREAK.split(source.text[: wrong.start()])
        at = source.span(len(before) - 1, len(before[-1]))
        mistakes.say(f"the character U+{ord(wrong[0]):04X} is not allowed", at, "delete it")
        return None
    try:
        return _Reader(source, mistakes).read()
    except yaml.MarkedYAMLError as error:
        mistakes.add(explain_syntax(error, source))
    except PeError as error:
        mistakes.add(error)
    return None


@dataclass
class _Open:
    """A collection whose end has not come yet; key is None between entries."""

    event: yaml.CollectionStartEvent
    items: list[Node] = field(default_factory=list)
    entries: dict[str, Entry] = field(default_factory=dict)
    key: Node | None = None

    @property
    def is_map(self) -> bool:
        return isinstance(self.event, yaml.MappingStartEvent)


class _Reader:
    def __init__(self, source: Source, mistakes: Mistakes) -> None:
        self.source, self.mistakes = source, mistakes
        self.stack: list[_Open] = []
        self.anchors: dict[str, Node | None] = {}
        self.root: Node | None = None
        self.nodes = 0
        self.documents = 0

    def read(self) -> Node | None:
        for event in yaml.parse(self.source.text, Loader=yaml.SafeLoader):
            at = self.source.between(event.start_mark, event.end_mark)
            if isinstance(event, yaml.DocumentStartEvent):
                self.documents += 1
                if self.documents > 1:
                    raise PeError(
                        "a second document starts here", at=at, hint="use one file per document, or delete the ---"
                    )
            elif isinstance(event, yaml.AliasEvent):
                self.put(self.alias(event, at))
            elif isinstance(event, yaml.ScalarEvent):
                self.put(self.keep(event, self.scalar(event, at)))
            elif isinstance(event, yaml.CollectionStartEvent):
                self.open(event, at)
            elif isinstance(event, yaml.CollectionEndEvent):
                done = self.stack.pop()
                self.put(self.keep(done.event, self.close(done, event)))
        return self.root

    def open(self, event: yaml.CollectionStartEvent, at: Span) -> None:
        self.check_depth(len(self.stack) + 1, at)
        self.check_tag(event, at)
        # Known, but not complete: an alias to it from inside would never end.
        if event.anchor:
            self.anchors[event.anchor] = None
        self.stack.append(_Open(event))

    def close(self, done: _Open, end: yaml.CollectionEndEvent) -> Node:
        at = self.source.between(done.event.start_mark, end.end_mark)
        return MapNode(done.entries, at) if done.is_map else ListNode(tuple(done.items), at)

    def keep(self, event: yaml.NodeEvent, node: Node) -> Node:
        if event.anchor:
            self.anchors[event.anchor] = node
        self.count(1, node.at)
        return node

    def count(self, more: int, at: Span) -> None:
        self.nodes += more
        if self.nodes > MAX_NODES:
            raise PeError(
                f"more than {MAX_NODES} values, with aliases written out", at=at, hint="is this the right file?"
            )

    def check_depth(self, depth: int, at: Span) -> None:
        if depth > MAX_DEPTH:
            raise PeError(f"nested more than {MAX_DEPTH} levels deep", at=at, hint="is this the right file?")

    def check_tag(self, event: Any, at: Span) -> None:
        if event.tag is not None:
            self.mistakes.say(f"tags are not supported: {event.tag}", at, "write the plain value")

    def alias(self, event: yaml.AliasEvent, at: Span) -> Node:
        name = str(event.anchor)
        if name not in self.anchors:
            hint = did_you_mean(name, self.anchors)
            raise PeError(f"there is no anchor '{name}' before this line", at=at, hint=hint)
        found = self.anchors[name]
        if found is None:
            raise PeError(f"anchor '{name}' contains itself", at=at, hint="write the value out")
        self.count(found.size, at)
        self.check_depth(len(self.stack) + found.height, at)
        return found

    def scalar(self, event: yaml.ScalarEvent, at: Span) -> ScalarNode:
        self.check_tag(event, at)
        plain = event.style is None
        try:
            return ScalarNode(resolve(event.value) if plain else event.value, at, event.value)
        except PeError as error:
            error.at = at
            self.mistakes.add(error)
            return ScalarNode(0, at, event.value)

    def put(self, node: Node) -> None:
        if not self.stack:
            self.root = node
            return
        top = self.stack[-1]
        if not top.is_map:
            top.items.append(node)
        elif top.key is None:
            top.key = node
        else:
            key, top.key = top.key, None
            self.entry(top.entries, key, node)

    def entry(self, entries: dict[str, Entry], key: Node, value: Node) -> None:
        if not isinstance(key, ScalarNode) or not isinstance(key.value, str):
            hint = f'quote it: "{key.text}"' if isinstance(key, ScalarNode) else None
            self.mistakes.say(f"a key must be a name, got {describe(key)}", key.at, hint)
        elif key.value == "<<":
            self.mistakes.say(
                "merge keys (<<) are not supported", key.at, "write the keys out, or give the whole value an anchor"
            )
        elif key.value in entries:
            first = entries[key.value].at
            self.mistakes.say(
                f"key '{key.value}' is written twice",
                key.at,
                "delete or rename one of them",
                ((first, "the first is here"),),
            )
        else:
            if isinstance(value, ScalarNode) and not value.text and value.value is None:
                # nothing is written after the key, so the key is what can be shown
                value = ScalarNode(None, key.at)
            entries[key.value] = Entry(key.value, key.at, value)
