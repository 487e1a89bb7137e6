"""Tells which values of a run file are paths; relative ones are resolved against the folder of the file that they are from."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from pe_cli.config.nodes import Entry, ListNode, MapNode, Node, ScalarNode
from pe_cli.config.sections.data import USES

#: Keys of readers and column types that hold paths; `table` does where it is no mapping.
PATHS = ("file", "files", "folder", "masks", "table")

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")

_Change = Callable[[Node], Node]


def is_url(name: str) -> bool:
    """Return whether a name is the address of a file elsewhere, and no path.

    >>> is_url("s3://bucket/part-*.csv"), is_url("data/a.csv"), is_url("C:/a.csv")
    (True, False, False)
    """
    return _ADDRESS.match(name) is not None


def from_run_folder(tree: MapNode, folders: Mapping[str, str]) -> MapNode:
    """Return a tree whose relative paths all start at the folder of the run file.

    Args:
        tree: of a run file and its bases; each value knows the file that it was written in.
        folders: file -> its folder as seen from the run file's; values from elsewhere, such as the command line, stay as they are.
    """

    def moved(node: Node) -> Node:
        if isinstance(node, MapNode):
            return _each(node, moved)
        if isinstance(node, ListNode):
            return replace(node, items=tuple(moved(item) for item in node.items))
        folder = folders.get((node.via or node.at).file)
        # the home folder is put in where the path is used
        if not folder or not isinstance(node.value, str) or not node.value or node.value.startswith("~") or is_url(node.value):
            return node
        return replace(node, value=os.path.join(folder, node.value))  # noqa: PTH118 - Path drops a `./` that may mean something

    if not any(folders.values()):
        return tree
    tree = _at(tree, ("model",), lambda node: moved(node) if isinstance(node, ScalarNode) else _at_any(node, ("file",), moved))
    for use in ("source", *USES, "columns"):
        tree = _at(tree, ("data", use), lambda node: _options(node, moved))
    tree = _at(tree, ("train", "init", "from"), moved)
    tree = _at(tree, ("distributed", "secret"), moved)
    return _at(tree, ("executor", "files"), moved)


def _options(node: Node, moved: _Change) -> Node:
    """Move the paths in the options of a reader or a column, at any depth."""
    if not isinstance(node, MapNode):
        return node
    entries = {}
    for key, entry in node.entries.items():
        is_path = key in PATHS and not (key == "table" and isinstance(entry.value, MapNode))
        entries[key] = Entry(key, entry.at, moved(entry.value) if is_path else _options(entry.value, moved))
    return replace(node, entries=entries)


def _each(node: MapNode, change: _Change) -> MapNode:
    return replace(node, entries={key: Entry(key, e.at, change(e.value)) for key, e in node.entries.items()})


def _at_any(node: Node, path: tuple[str, ...], change: _Change) -> Node:
    return _at(node, path, change) if isinstance(node, MapNode) else node


def _at(node: MapNode, path: tuple[str, ...], change: _Change) -> MapNode:
    """Change the value under a path of keys, where there is one."""
    entry = node.entries.get(path[0])
    if entry is None:
        return node
    value = change(entry.value) if len(path) == 1 else _at_any(entry.value, path[1:], change)
    return node.with_entry(Entry(entry.key, entry.at, value))
