"""Hashes of the files that a run read, by which a rerun tells whether it is given the same."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.threads import Thread
from pe_cli.io import atomic, strict_json
from pe_cli.io.regular_files import read_regular
from pe_cli.io.run_folder import RunFolder
from pe_cli.kernels.compiler import cache

#: Bytes that are hashed at a time, and files whose hashes are remembered.
CHUNK, MOST = 1 << 20, 10_000
Facts = dict[str, Any]


class Hashes:
    """SHA-256 of files, remembered beside the kernels by their size and time: a file that has neither changed is not read again."""

    def __init__(self) -> None:
        self._path = cache.folder() / "data-hashes.json"
        self._known: dict[str, list[Any]] = {}
        self._new = False
        with contextlib.suppress(OSError, ValueError):
            found = strict_json.loads(read_regular(self._path)) if cache.trusted() else {}
            self._known = found if isinstance(found, dict) else {}

    def of(self, path: Path) -> Facts:
        """Return the facts of a file: bytes and sha256. Of a folder: files and the sha256 of their names and sizes.

        Raises:
            OSError: it cannot be read.
        """
        if path.is_dir():
            return _of_folder(path)
        facts = path.stat()
        key, stamp = str(path.absolute()), [facts.st_size, facts.st_mtime_ns]
        known = self._known.get(key)
        if not (isinstance(known, list) and known[:2] == stamp and len(known) == 3 and isinstance(known[2], str)):
            digest = hashlib.sha256()
            with path.open("rb") as file:
                while chunk := file.read(CHUNK):
                    digest.update(chunk)
            self._known.pop(key, None)
            self._known[key] = known = [*stamp, digest.hexdigest()]
            self._new = True
        return {"bytes": facts.st_size, "sha256": known[2]}

    def keep(self) -> None:
        """Remember what is new; a cache that cannot be written is no error."""
        if self._new and cache.trusted():
            with contextlib.suppress(PeError, OSError):
                atomic.write_text(self._path, strict_json.dumps(dict(list(self._known.items())[-MOST:])), sync=False)


def _of_folder(path: Path) -> Facts:
    digest, count = hashlib.sha256(), 0
    for base, folders, files in os.walk(path):
        folders.sort()
        for name in sorted(files):
            where = Path(base) / name
            digest.update(f"{where.relative_to(path)}\0{where.stat().st_size}\n".encode("utf-8", "surrogateescape"))
            count += 1
    return {"files": count, "sha256": digest.hexdigest()}


def path_of(folder: RunFolder) -> Path:
    """Return the file of a run that has the hashes."""
    return folder.path / "inputs.json"


def read_inputs(folder: RunFolder) -> Mapping[str, Facts]:
    """Return what a run says that it read: path -> facts; nothing where it does not say."""
    with contextlib.suppress(OSError, ValueError):
        found = strict_json.loads(read_regular(path_of(folder)))
        files = found.get("files") if isinstance(found, dict) else None
        if isinstance(files, dict):
            return {name: facts for name, facts in files.items() if isinstance(facts, dict)}
    return {}


class Inputs:
    """Hashes what a run reads, in a thread, and writes it into the run's folder.

    Args:
        folder: of the run; what it says of earlier files stays.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._files: dict[str, Facts] = dict(read_inputs(folder))
        self._done: set[Path] = set()
        self._thread: threading.Thread | None = None

    def begin(self, paths: Iterable[Path]) -> None:
        """Hash files beside the training."""
        self._thread = Thread(target=self._begun, args=(list(paths),), name="inputs", daemon=True)
        self._thread.start()

    def _begun(self, paths: Sequence[Path]) -> None:
        try:
            self._hash(paths, {})
        except MemoryError:
            self._done.clear()  # `finish` does it again, or says why not

    def finish(self, paths: Iterable[Path], kernels: Mapping[str, str]) -> None:
        """Hash what was read since, and write all, with the kernels that ran: name -> hash of what it was compiled from."""
        if self._thread is not None:
            self._thread.join()
        self._hash([p for p in paths if p not in self._done], kernels)

    def _hash(self, paths: Sequence[Path], kernels: Mapping[str, str]) -> None:
        hashes = Hashes()
        for path in dict.fromkeys(paths):
            self._done.add(path)
            with contextlib.suppress(OSError):
                self._files.setdefault(str(path.absolute()), hashes.of(path))
        hashes.keep()
        text = strict_json.dumps({"files": self._files, **({"kernels": dict(kernels)} if kernels else {})}, indent=1)
        with contextlib.suppress(PeError):  # the run counts, not what is said of it
            atomic.write_text(path_of(self._folder), text + "\n")


def changed(folder: RunFolder, paths: Iterable[Path]) -> list[str]:
    """Return which files are otherwise than when a run read them; a sentence each.

    Args:
        folder: of the run. What it names and nobody reads is not looked at: it may come from anywhere.
        paths: files and folders that are read now.
    """
    hashes, before, found = Hashes(), read_inputs(folder), []
    for path in dict.fromkeys(paths):
        recorded = before.get(str(path.absolute()))
        with contextlib.suppress(OSError):  # whoever reads it says so
            if recorded is not None and hashes.of(path).get("sha256") != recorded.get("sha256"):
                found.append(f"{path} has other content than it had")
    hashes.keep()
    return found
