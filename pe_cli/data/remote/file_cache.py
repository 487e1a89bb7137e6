"""A bounded cache on the disk for files of stores: the least recently used go first, and none that a process is reading.

Each address has a folder, which is locked by the process that fetches its file. What a process is reading stands in a file of its own,
which it keeps locked as long as it lives; so a process that was killed holds nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.data.remote.store_choice import store_of
from pe_cli.data.remote.stores import Content, RemoteError, Store, is_pattern

Answer = TypeVar("Answer")
#: Bytes that the cache holds where the config says nothing.
MOST = 10 * 10**9
#: How often a store is asked before its fault counts, and seconds before the second time, which double each time.
TRIES, PAUSE = 6, 0.5
#: Bytes after which the next fault is the first again.
PROGRESS = 1 << 20
#: Seconds that another process may take to fetch a file without a byte.
PATIENCE = 600.0
_FACTS, _PARTIAL, _USERS, _LOCK = "facts.json", "partial", "users", "lock"
_KEY = re.compile(r"[0-9a-f]{32}")
_UNSAFE = re.compile(r"[^\w.-]+", re.ASCII)


@dataclass(frozen=True)
class Facts:
    """What is known of a file in the cache.

    Args:
        name: of it.
        tag: of its content, as the store says it.
        size: in bytes.
    """

    name: str
    tag: str
    size: int


def cache_folder() -> Path:
    """Return the folder of the cache: `$PE_DATA_CACHE_DIR`, else `$XDG_CACHE_HOME/pe/data`."""
    given, general = os.environ.get("PE_DATA_CACHE_DIR"), Path(os.environ.get("XDG_CACHE_HOME") or "")
    return Path(given).absolute() if given else (general if general.is_absolute() else Path.home() / ".cache") / "pe" / "data"


class RemoteFiles:
    """Files of stores, as files on this disk.

    Args:
        most: bytes that the cache may hold.
        folder: of the cache; made when it is needed.
    """

    def __init__(self, most: int = MOST, folder: Path | None = None) -> None:
        self._most, self._folder = most, folder
        self._used: Counter[str] = Counter()
        self._seen: dict[str, Facts] = {}
        self._lock = threading.RLock()
        self._user: int | None = None

    @property
    def folder(self) -> Path:
        """Folder of the cache."""
        if self._folder is None:
            self._folder = cache_folder()
        return self._folder

    def match(self, name: str) -> list[str]:
        """Return the addresses of the files that one stands for, in order.

        Raises:
            RemoteError: there is none, or the store does not say.
        """
        store = store_of(name)
        if not is_pattern(name):
            return [name]
        found = _patient(lambda: store.match(name))
        if not found:
            raise RemoteError("matches no file", "check the bucket and the pattern")
        return found

    def get(self, url: str) -> Path:
        """Return the file of an address, which stays there until this process ends.

        Raises:
            RemoteError: the store does not give it, or the cache has no room for it.
            OSError: the disk of the cache fails or is full.
        """
        key = _key(url)
        # One thread at a time in this process, one process at a time for each file.
        with self._lock, self._entry(key) as entry:
            facts = self._fetched(url, key, entry)
            self._used[key] += 1
            # What is used is written down under the lock of the folder, before anybody can decide to make room.
            with self._alone():
                self._tell()
                os.utime(entry)
        return entry / facts.name

    @contextlib.contextmanager
    def borrowed(self, url: str) -> Iterator[Path]:
        """Lend the file of an address; it may be gone afterwards. For errors see `get`."""
        path = self.get(url)
        try:
            yield path
        finally:
            with self._lock:
                self._used -= Counter([_key(url)])
                self._tell()

    # --- one file -----------------------------------------------------------------------------------------------------

    def _fetched(self, url: str, key: str, entry: Path) -> Facts:
        """Return the facts of the file in an entry, fetched where it is not there, or no longer the one of the store."""
        facts = _facts(entry)
        before = self._seen.get(key)
        if before is not None and facts == before:
            # Asking again could give a newer file in the middle of a run.
            return before  # the store was asked in this process
        store = store_of(url)
        known = facts.tag if facts is not None else ""
        content = _patient(lambda: store.open(url, known=known))
        if content is None:
            assert facts is not None
        else:
            with contextlib.closing(content):
                if before is not None and (content.tag, content.size) != (before.tag, before.size):
                    raise RemoteError("was changed while it is read", "write files of data under new names, and start again")
                facts = self._fetch(store, url, entry, content)
        self._seen[key] = facts
        return facts

    def _fetch(self, store: Store, url: str, entry: Path, content: Content) -> Facts:
        """Write a file into its entry; what a connection has broken off goes on where it was."""
        # What a killed process left is no part of this file.
        for path in entry.iterdir():
            path.unlink()
        with self._alone():
            self._make_room(content.size, entry.name)
        partial, left = entry / _PARTIAL, TRIES
        found: Content | None = content
        with partial.open("wb") as file:
            while True:
                before = file.tell()
                try:
                    found = found or store.open(url, start=before, tag=content.tag)
                    assert found is not None
                    with contextlib.closing(found):
                        # Parts of two versions of a file would be put together to none.
                        if (found.tag, found.size) != (content.tag, content.size):
                            raise RemoteError("was changed while it is read", "write files of data under new names, and start again")
                        file.seek(found.start)
                        file.truncate()
                        for data in found.chunks:
                            file.write(data)
                    break
                except RemoteError as error:
                    # Progress gives all tries back: a slow network is no broken store.
                    left = TRIES - 1 if file.tell() >= before + PROGRESS else left - 1
                    if not error.again or not left:
                        raise
                    _pause(TRIES - left, error.wait)
                    found = None
            if file.tell() != content.size:
                raise RemoteError(f"has {content.size:,} bytes, and {file.tell():,} came", "try again later", again=True)
        facts = Facts(_name(url), content.tag, content.size)
        # Renamed in this order: facts name a file that is there.
        partial.rename(entry / facts.name)
        (entry / "new").write_text(json.dumps(asdict(facts)), "utf-8")
        (entry / "new").rename(entry / _FACTS)
        return facts

    # --- the folder ---------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _entry(self, key: str) -> Iterator[Path]:
        """Give the folder of an entry, which no other process changes meanwhile."""
        entry = self.folder / key
        while True:
            entry.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                descriptor = os.open(entry, os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:
                # The folder was removed between two calls.
                continue  # another process has made room
            try:
                self._wait_for(descriptor, entry)
                with contextlib.suppress(FileNotFoundError):
                    # The folder may have been removed and made again while this process waited for its lock.
                    if os.path.samestat(os.fstat(descriptor), entry.stat()):
                        yield entry
                        return
            finally:
                os.close(descriptor)

    @staticmethod
    def _wait_for(descriptor: int, entry: Path) -> None:
        """Wait until another process has fetched the file of an entry.

        Raises:
            RemoteError: it does not get any further.
        """
        since, size = time.monotonic(), -1
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                with contextlib.suppress(OSError):
                    now = (entry / _PARTIAL).stat().st_size
                    # A byte that came since says that the other process is alive.
                    since, size = (time.monotonic() if now != size else since), now
                if time.monotonic() - since > PATIENCE:
                    raise RemoteError(f"is fetched by another process, which stands still for {PATIENCE:g} s", "end that process") from None
                time.sleep(0.05)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other processes from making room, and from saying what they read."""
        descriptor = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _tell(self) -> None:
        """Say what this process reads."""
        if self._user is None:
            users = self.folder / _USERS
            users.mkdir(mode=0o700, exist_ok=True)
            self._in_use()
            path = users / f"{os.getpid()}-{os.urandom(6).hex()}"
            self._user = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._user, fcntl.LOCK_EX)
        data = "".join(f"{key}\n" for key in self._used).encode()
        os.pwrite(self._user, data, 0)
        os.ftruncate(self._user, len(data))

    def _in_use(self) -> set[str]:
        """Return the entries that processes read which live; files of others are removed."""
        found = set(self._used)
        for path in (self.folder / _USERS).glob("*"):
            with contextlib.suppress(OSError):
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                # A file that can be locked belongs to a process that has ended.
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
                except BlockingIOError:
                    found |= set(path.read_text("ascii", "replace").split())
                finally:
                    os.close(descriptor)
        return found

    def _make_room(self, size: int, mine: str) -> None:
        """Remove files until one of a size fits.

        Raises:
            RemoteError: those that are being read leave no room.
        """
        if size > self._most:
            raise RemoteError(f"has {size:,} bytes, and the cache holds {self._most:,}", "set data.cache to a larger size")
        entries = [path for path in self.folder.iterdir() if _KEY.fullmatch(path.name) and path.name != mine]
        held = {path: sum(_size(file) for file in path.iterdir()) for path in entries if path.is_dir()}
        total, used = sum(held.values()) + size, self._in_use()
        for path in sorted(held, key=lambda path: path.stat().st_mtime_ns):
            if total <= self._most:
                return
            # The least recently used goes first; those that are open stay.
            if path.name not in used and _remove(path):
                total -= held[path]
        if total > self._most:
            left = max(0, self._most - total + size)
            said = f"has {size:,} bytes, and files that are being read leave {left:,} of the cache's {self._most:,}"
            raise RemoteError(said, "set data.cache to a larger size, or read the table with stream: true")


def _remove(entry: Path) -> bool:
    """Remove an entry that no process is fetching; return whether it is gone."""
    descriptor = os.open(entry, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(entry)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)


def _size(file: Path) -> int:
    try:
        return file.lstat().st_size
    except FileNotFoundError:
        return 0


def _facts(entry: Path) -> Facts | None:
    """Return the facts of an entry whose file is there as a whole."""
    try:
        facts = Facts(**json.loads((entry / _FACTS).read_text("utf-8")))
        whole = _UNSAFE.sub("", facts.name) == facts.name and (entry / facts.name).stat().st_size == facts.size
        return facts if whole and facts.tag else None
    except (OSError, ValueError, TypeError):
        return None


def _key(url: str) -> str:
    return hashlib.sha256(url.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _name(url: str) -> str:
    """Return the last name of an address, for a file: readers tell formats by its end."""
    path = urlsplit(url).path if url.lower().startswith("http") else url
    name = _UNSAFE.sub("-", unquote(path).rstrip("/").rpartition("/")[2])[-100:]
    return name if name.strip(".-") and name not in (_FACTS, _PARTIAL, "new") else f"file-{name.strip('.-')}"


def _pause(number: int, wait: float) -> None:
    time.sleep(max(wait, PAUSE * 2 ** (number - 1)))


def _patient(ask: Callable[[], Answer]) -> Answer:
    """Ask a store until it answers.

    Raises:
        RemoteError: it does not, after `TRIES` times.
    """
    for number in range(1, TRIES + 1):
        try:
            return ask()
        except RemoteError as error:
            if not error.again or number == TRIES:
                raise
            _pause(number, error.wait)
    raise AssertionError
