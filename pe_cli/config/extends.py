"""`extends`: merges a run file with the files that it extends; every value remembers the file that it is from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from pe_cli.config.error_collector import Mistakes, TooLargeError
from pe_cli.config.files import read_text
from pe_cli.config.nodes import MAX_DEPTH, MAX_NODES, Entry, ListNode, MapNode, Node, ScalarNode, describe, is_null
from pe_cli.config.parse import parse
from pe_cli.config.source import Source
from pe_cli.config.substitute import names_in
from pe_cli.core.errors import PeError, Span
from pe_cli.core.lazy_dataclass import dataclass

#: Files that extend one another in a chain, and files that one run file is made of.
MAX_CHAIN = 8
MAX_FILES = 32
#: Keys that say what the keys beside them mean.
_KINDS = ("type", "reader")


@dataclass(frozen=True)
class Composed:
    """A run file with what it extends.

    Args:
        text: the run file's own, as written.
        tree: all files as one, without `extends`.
        folders: file as places name it -> its folder, as seen from the run file's; empty for the same folder.
        names: those of `${...}` anywhere in the files, also in what another file replaces.
    """

    text: str
    tree: MapNode
    folders: Mapping[str, str]
    names: frozenset[str]


def compose(path: Path, mistakes: Mistakes) -> Composed | None:
    """Read a run file and everything that it extends.

    Returns:
        None when it, or a file that it extends, is no mapping that can be read; `mistakes` say why.
    """
    reading = _Reading(path.parent, mistakes)
    try:
        text = read_text(path, "config")
        tree = reading.read(_Step(path, str(path), "", None), text, ())
    except PeError as error:
        mistakes.add(error)
        return None
    return Composed(text, tree, reading.folders, frozenset(reading.names)) if tree is not None else None


@dataclass(frozen=True)
class _Step:
    """A file of a chain: its path, how places name it, its folder as seen from the run file's, and who names it."""

    path: Path
    shown: str
    folder: str
    at: Span | None


@dataclass
class _Reading:
    """One reading of a run file and its bases."""

    top: Path
    mistakes: Mistakes
    folders: dict[str, str] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    files: int = 0

    def read(self, step: _Step, text: str, above: tuple[_Step, ...]) -> MapNode | None:
        """Return the tree of a file, merged over its bases; None after mistakes that leave none."""
        self.folders[step.shown] = step.folder
        before = self.mistakes.total
        tree = parse(Source(step.shown, text), self.mistakes)
        if not isinstance(tree, MapNode):
            if self.mistakes.total == before:
                said = "is empty" if tree is None else f"must be a mapping, got {describe(tree)}"
                at = tree.at if tree else Source(step.shown, text).span(0, 0)
                self.mistakes.say(f"the config {said}", at, "it needs at least model: FILE")
            return None
        if "layers" in tree.entries and "model" not in tree.entries:
            hint = "name a config whose model: is this file"
            self.mistakes.say(f"{step.shown} is a model file, not a config", tree.entries["layers"].at, hint)
            return None
        self.names |= names_in(tree)
        named = tree.entries.get("extends")
        own = tree.without("extends")
        if named is None:
            return own
        bases = self.bases(named, step)
        chain = (*above, step)
        read = [self.base(base, chain) for base in bases]
        whole: MapNode | None = None
        for base_tree in read:
            if base_tree is None:
                return None
            whole = base_tree if whole is None else merge(whole, base_tree)
        return None if whole is None else merge(whole, own)

    def bases(self, named: Entry, step: _Step) -> list[_Step]:
        """Return the files that `extends` names; empty after a mistake."""
        node = named.value
        written = node.items if isinstance(node, ListNode) else (node,)
        found: list[_Step] = []
        for item in written:
            if not isinstance(item, ScalarNode) or not isinstance(item.value, str) or not item.value:
                self.mistakes.say(f"extends must be a file or a list of files, got {describe(item)}", item.at, "for example base.yaml")
                return []
            if item.refers:
                self.mistakes.say("extends takes no ${...}, as it is read before args", item.at, "write the file's name")
                return []
            name = os.path.expanduser(item.value)  # noqa: PTH111 - Path's raises for no such user
            folder = os.path.join(step.folder, os.path.dirname(name))  # noqa: PTH118, PTH120 - Path drops no-ops that mean something
            path = tidy(self.top / folder / os.path.basename(name))  # noqa: PTH119
            found.append(_Step(path, str(path), folder, item.at))
        if not found:
            self.mistakes.say("extends names no file", node.at, "leave extends out")
        return found

    def base(self, step: _Step, chain: tuple[_Step, ...]) -> MapNode | None:
        """Return the tree of a file that another one extends.

        Raises:
            PeError: it cannot be read, is part of its own chain, or there are too many files.
        """
        whole = " -> ".join(one.shown for one in (*chain, step))
        if any(_same(step.path, one.path) for one in chain):
            raise PeError(f"{step.shown} extends itself: {whole}", at=step.at, hint="delete one of these extends")
        self.files += 1
        if len(chain) >= MAX_CHAIN or self.files >= MAX_FILES:
            deep = len(chain) >= MAX_CHAIN
            said = f"more than {MAX_CHAIN} files extend one another" if deep else f"more than {MAX_FILES} files are extended"
            raise TooLargeError(f"{said}: {whole}", at=step.at, hint="put some of them into one file")
        return self.read(step, read_text(step.path, "base config", step.at), chain)


def merge(base: MapNode, own: MapNode) -> MapNode:
    """Return a file's tree over that of its base.

    Mappings are merged key by key, other values replaced; a null takes away what the base has, unless null means something there.

    Raises:
        TooLargeError: the result is larger than a file may be.
    """
    made = _merge(base, own, ())
    if made.size > MAX_NODES or made.height > MAX_DEPTH:
        hint = f"at most {MAX_NODES}, {MAX_DEPTH} levels deep"
        raise TooLargeError("too many values, with those of the extended files", at=own.at, hint=hint)
    return made


def _merge(base: MapNode, own: MapNode, path: tuple[str, ...]) -> MapNode:
    # Options of one reader, optimizer or loss mean nothing to another, so another kind starts from nothing.
    if path and path != ("executor",) and any(_differs(base.get(key), own.get(key)) for key in _KINDS):
        return own
    entries = dict(base.entries)
    for key, entry in own.entries.items():
        inner = (*path, key)
        below, value = entries.get(key), entry.value
        if below is None:
            entries[key] = entry
        elif is_null(value) and not _means_null(inner):
            # A null takes away what the base file says; where null is itself a value, it stays.
            del entries[key]
        else:
            under = long_form(below.value, inner) if isinstance(value, MapNode) else below.value
            both = isinstance(under, MapNode) and isinstance(value, MapNode)
            entries[key] = Entry(key, entry.at, _merge(under, value, inner)) if both else entry  # type: ignore[arg-type]
    return MapNode(entries, own.at)


def _differs(base: Node | None, own: Node | None) -> bool:
    """Whether both files write a kind, and not the same."""
    return isinstance(base, ScalarNode) and isinstance(own, ScalarNode) and base.value != own.value


def _means_null(path: tuple[str, ...]) -> bool:
    """Whether a null is a value under this path: no checkpoints, or a constant that is null."""
    return path == ("output", "checkpoint") or (path[0] == "args" and len(path) > 1) or (path[:2] == ("model", "args") and len(path) > 2)


def long_form(node: Node, path: tuple[str, ...]) -> Node:
    """Return the mapping that a short form (`model: path`, `feeds.label: field`) stands for; other nodes as they are."""
    short = "file" if path == ("model",) else "from" if len(path) == 2 and path[0] == "feeds" else None
    if short and isinstance(node, ScalarNode) and isinstance(node.value, str):
        return MapNode({short: Entry(short, node.at, node)}, node.at)
    return node


def tidy(path: Path) -> Path:
    """Return configs/../models/a.yaml as models/a.yaml, unless a symbolic link makes that another file."""
    short = Path(os.path.normpath(path))
    # Only where it is the same file: `..` behind a symbolic link leads elsewhere than the text says.
    try:
        return short if short.resolve() == path.resolve() else path
    except (OSError, RuntimeError, ValueError):
        return path


def _same(one: Path, other: Path) -> bool:
    try:
        return one.resolve() == other.resolve()
    except (OSError, RuntimeError, ValueError):
        return one == other
