"""A disk that loses its power: records what a process asks of it, and tells what may be left at any instant.

Contents that were not flushed may be there, not there, or zeros; a name that was made, changed or removed since its folder was last flushed
may be the old one or the new one. That is what POSIX leaves open, and more than most file systems do.
"""

from __future__ import annotations

import fcntl
import functools
import os
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: What becomes of all that was not flushed, beside chance: `lost`, `kept`, or `hollow`, where names are kept and contents are not.
ALWAYS = ("lost", "kept", "hollow")


@dataclass
class Node:
    """A file or folder.

    Args:
        folder: whether it is a folder.
        flushed: contents, or names with numbers of nodes, that survive.
        pending: changes since then: of a file (offset, bytes), or (length, None) where it was cut; of a folder (name, node or None), ...
    """

    folder: bool
    flushed: Any
    pending: list[tuple[Any, ...]] = field(default_factory=list)


class Disk:
    """Contents of a folder and how they came about, told call by call.

    Args:
        root: the folder; it is empty, and itself on the disk.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.nodes: list[Node] = [Node(True, {})]
        self._now: list[dict[str, int]] = [{}]  # names in folders as the process sees them, by node

    def new(self, folder: bool) -> int:
        self.nodes.append(Node(folder, {} if folder else b""))
        self._now.append({})
        return len(self.nodes) - 1

    def place(self, path: object) -> tuple[int, str] | None:
        """Return the node of the folder that holds a path and the path's name there; None outside of the root."""
        try:
            parts = Path(os.fsdecode(path)).absolute().relative_to(self.root).parts  # type: ignore[call-overload]
        except (TypeError, ValueError):
            return None
        node = 0
        for part in parts[:-1]:
            node = self._now[node][part]
        return (node, parts[-1]) if parts else None

    def node(self, path: object) -> int:
        """Return the node of a path; the root's is 0."""
        place = self.place(path)
        return 0 if place is None else self._now[place[0]][place[1]]

    def enter(self, path: object, node: int) -> None:
        """Give a node a name; another node that had the name loses it."""
        place = self.place(path)
        assert place is not None
        folder, name = place
        self._now[folder][name] = node
        self.nodes[folder].pending.append(((name, node),))

    def remove(self, path: object) -> None:
        place = self.place(path)
        assert place is not None
        folder, name = place
        del self._now[folder][name]
        self.nodes[folder].pending.append(((name, None),))

    def rename(self, source: object, target: object) -> None:
        """Move a name within its folder, at once."""
        before, after = self.place(source), self.place(target)
        assert before is not None
        assert after is not None
        assert before[0] == after[0], "names move within their folder"
        folder = before[0]
        node = self._now[folder].pop(before[1])
        self._now[folder][after[1]] = node
        self.nodes[folder].pending.append(((before[1], None), (after[1], node)))

    def flush(self, node: int) -> None:
        self.nodes[node] = Node(self.nodes[node].folder, _applied(self.nodes[node], lambda _: True), [])

    def after_the_cut(self, how: str, chance: random.Random) -> list[tuple[str, bytes | None]]:
        """Return names, relative to the root, and contents (None: a folder) that may be there when the power is back."""

        def kept(content: bool) -> bool:
            if how in ALWAYS:
                return how == "kept" or (how == "hollow" and not content)
            return chance.random() < 0.5

        found: list[tuple[str, bytes | None]] = []

        def walk(node: int, path: str) -> None:
            this = self.nodes[node]
            state = _applied(this, lambda _: kept(not this.folder))
            if not this.folder:
                found.append((path, state))
                return
            if path:
                found.append((path, None))
            for name, child in sorted(state.items()):
                walk(child, f"{path}/{name}" if path else name)

        walk(0, "")
        return found


def _applied(node: Node, kept: Callable[[tuple[Any, ...]], bool]) -> Any:
    state = dict(node.flushed) if node.folder else bytearray(node.flushed)
    for change in node.pending:
        if not kept(change):
            continue
        if node.folder:
            for name, child in change:
                state.pop(name, None)
                if child is not None:
                    state[name] = child
            continue
        offset, data = change
        if data is None:
            del state[offset:]
            state.extend(bytes(offset - len(state)))
        else:
            state.extend(bytes(max(0, offset - len(state))))
            state[offset : offset + len(data)] = data
    return state if node.folder else bytes(state)


class Watch:
    """Has this process tell a disk of all that it does below its root.

    Args:
        disk: what is told.
        cut: is called with the name of every call before it is made.
    """

    def __init__(self, disk: Disk, cut: Callable[[str], None]) -> None:
        self._disk, self._cut = disk, cut
        self._nodes: dict[int, int] = {}  # by descriptor
        self._unseen: set[int] = set()  # written by Python itself: what is there counts from when it is flushed
        self._opening = False
        names = ("open", "close", "write", "fsync", "mkdir", "unlink", "rmdir", "rename", "replace", "truncate", "ftruncate")
        self._calls: dict[str, Any] = {name: getattr(os, name) for name in names}
        fakes = (self._open, self._close, self._write, self._fsync, self._mkdir, functools.partial(self._gone, "unlink"))
        fakes += (functools.partial(self._gone, "rmdir"), self._rename, self._rename, self._truncate, self._truncate)
        for name, fake in zip(names, fakes, strict=True):
            setattr(os, name, fake)
        sys.addaudithook(self._look)

    def _inside(self, path: Any) -> bool:
        return self._disk.place(path) is not None

    def _open(self, path: Any, flags: int, *args: Any, dir_fd: int | None = None, **given: Any) -> int:
        inside = dir_fd is None and (self._inside(path) or path == self._disk.root)
        fresh = inside and bool(flags & os.O_CREAT) and not os.path.lexists(path)
        cuts = inside and not fresh and bool(flags & os.O_TRUNC)
        if fresh or cuts:
            self._cut("open")
        self._opening = True
        try:
            descriptor: int = self._calls["open"](path, flags, *args, dir_fd=dir_fd, **given)
        finally:
            self._opening = False
        if fresh:
            self._disk.enter(path, self._disk.new(False))
        if inside:
            self._nodes[descriptor] = self._disk.node(path)
        if cuts:
            self._disk.nodes[self._nodes[descriptor]].pending.append((0, None))
        return descriptor

    def _close(self, descriptor: int) -> None:
        self._nodes.pop(descriptor, None)
        self._calls["close"](descriptor)

    def _write(self, descriptor: int, data: Any) -> int:
        if descriptor not in self._nodes:
            return int(self._calls["write"](descriptor, data))
        self._cut("write")
        adds = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND
        begin = os.fstat(descriptor).st_size if adds else os.lseek(descriptor, 0, os.SEEK_CUR)
        count = int(self._calls["write"](descriptor, data))
        self._disk.nodes[self._nodes[descriptor]].pending.append((begin, bytes(memoryview(data).cast("B")[:count])))
        return count

    def _fsync(self, descriptor: int) -> None:
        node = self._nodes.get(descriptor)
        if node is None:
            return
        self._cut("fsync")
        if node in self._unseen:
            self._disk.nodes[node].pending = [(0, Path(f"/proc/self/fd/{descriptor}").read_bytes())]
        self._disk.flush(node)  # nothing here has to reach a real disk

    def _mkdir(self, path: Any, *args: Any, **given: Any) -> None:
        if self._inside(path):
            self._cut("mkdir")
        self._calls["mkdir"](path, *args, **given)
        if self._inside(path):
            self._disk.enter(path, self._disk.new(True))

    def _gone(self, name: str, path: Any, *, dir_fd: int | None = None) -> None:
        if dir_fd is not None:
            path = Path(f"/proc/self/fd/{dir_fd}").readlink() / path
        if self._inside(path):
            self._cut(name)
        self._calls[name](path)
        if self._inside(path):
            self._disk.remove(path)

    def _rename(self, source: Any, target: Any, *args: Any, **given: Any) -> None:
        if self._inside(target):
            self._cut("rename")
        self._calls["rename"](source, target, *args, **given)
        if self._inside(target):
            self._disk.rename(source, target)

    def _truncate(self, what: Any, length: int) -> None:
        node = self._nodes.get(what) if isinstance(what, int) else self._disk.node(what) if self._inside(what) else None
        if node is not None:
            self._cut("truncate")
        self._calls["ftruncate" if isinstance(what, int) else "truncate"](what, length)
        if node is not None:
            self._disk.nodes[node].pending.append((length, None))

    def _look(self, event: str, args: tuple[Any, ...]) -> None:
        if event != "open" or self._opening or not args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            return
        if isinstance(args[0], (str, bytes)) and self._inside(args[0]):
            self._unseen.add(self._disk.node(args[0]))


def rebuilt(found: list[tuple[str, bytes | None]], root: Path) -> None:
    """Make a folder hold what is left."""
    root.mkdir(parents=True)
    for name, content in found:
        if content is None:
            (root / name).mkdir()
        else:
            (root / name).write_bytes(content)
