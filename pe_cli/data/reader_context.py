"""The context of a reader: the config entry that named it, for finding files and for the places of its errors."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from pe_cli.collectives.launcher_environment import processes_here
from pe_cli.config.paths import is_url
from pe_cli.core.errors import ExitCode, PeError, Span, did_you_mean
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.limits import memory
from pe_cli.data.remote.file_cache import RemoteFiles
from pe_cli.data.remote.stores import RemoteError, shown

if TYPE_CHECKING:
    from pe_cli.data.machine_processes import MachineProcesses

# deflate cannot shrink further than one bit pair per 258 bytes
DEFLATE_RATIO = 1032


@dataclass(frozen=True)
class Look:
    """How far packed files are looked into, where nothing is computed with what they hold.

    Args:
        most: bytes that one is unpacked to.
        cut: files that hold more: of arrays there are the sizes alone, of tables and texts the first rows.
    """

    most: int
    cut: list[Path] = field(default_factory=list)


@dataclass(frozen=True)
class Origin:
    """The config file's folder and the place in it that asked for data.

    Args:
        base: folder that relative paths start from.
        at: place in the config file, where one is known.
        read: files and folders that were found, in order.
        look: how far packed files are looked into; None for all that they hold.
        together: processes that open the same files at the same time, and share the work.
        remote: fetches files of web servers and object stores.
    """

    base: Path
    at: Span | None = None
    read: list[Path] = field(default_factory=list, compare=False, repr=False)
    look: Look | None = None
    together: MachineProcesses | None = field(default=None, compare=False, repr=False)
    remote: RemoteFiles = field(default_factory=RemoteFiles, compare=False, repr=False)

    @property
    def is_cut(self) -> bool:
        """Whether there is a file of which only the beginning was looked at."""
        return self.look is not None and bool(self.look.cut)

    def only_looks(self, size: int, path: Path) -> bool:
        """Return whether a packed file that unpacks to so many bytes holds more than is looked at; it is noted then."""
        if self.look is None or size <= self.look.most:
            return False
        if path not in self.look.cut:
            self.look.cut.append(path)
        return True

    def error(self, message: str, hint: str | None = None) -> PeError:
        """Return a data error at this place; the caller raises it."""
        return PeError(message, at=self.at, hint=hint, code=ExitCode.DATA)

    def find(self, name: str) -> Path:
        """Return the path of a readable file.

        Args:
            name: absolute, or relative to `base`; `~` is the home folder; or the address of a file elsewhere, which is fetched.

        Raises:
            PeError: there is no such file, it is a folder, or it may not be read.
        """
        if is_url(name):
            with self.fetching(name):
                self.read.append(self.remote.get(name))
            return self.read[-1]
        path = self.base / os.path.expanduser(name)  # noqa: PTH111 - Path's raises where there is no such user
        try:
            mode = path.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            raise self.error(f"no such file: {path}", self._remedy(path, name)) from None
        except (OSError, ValueError) as error:
            reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
            raise self.error(f"cannot read {path}: {reason.lower()}", "check the path") from None
        if stat.S_ISDIR(mode):
            raise self.error(f"{path} is a folder, not a file", "name the file in it")
        if not stat.S_ISREG(mode):
            raise self.error(f"no such file: {path}", self._remedy(path, name))
        if not os.access(path, os.R_OK):
            raise self.error(f"may not read {path}: permission denied", f"chmod u+r {path}")
        self.read.append(path)
        return path

    @contextlib.contextmanager
    def fetching(self, url: str) -> Iterator[None]:
        """Turn what goes wrong with a file elsewhere into a data error.

        Raises:
            PeError: DATA; the store does not give it. DEVICE; the disk of the cache fails or is full.
        """
        try:
            yield
        except RemoteError as error:
            # what passes may have spared other processes
            cause = OSError(errno.EIO, error.message) if error.again else error
            raise self.error(f"{shown(url)}: {error.message}", error.hint) from cause
        except OSError as error:
            said = f"{shown(url)}: no room for it in {self.remote.folder}: {(error.strerror or str(error)).lower()}"
            raise PeError(said, at=self.at, hint="set PE_DATA_CACHE_DIR to a folder on a larger disk", code=ExitCode.DEVICE) from None

    def _remedy(self, path: Path, name: str) -> str:
        if path.parent.is_dir():
            close = did_you_mean(path.name, sorted(entry.name for entry in path.parent.iterdir()))
            if close:
                return close
        if Path(name).is_absolute():
            return "check the path, or fetch the file first"
        return f"relative paths start at the config file's folder, {self.base.absolute()}"

    def check_memory(self, size: int, path: Path, remedy: str) -> None:
        """Refuse to load what cannot fit.

        Args:
            size: bytes that would be allocated.
            path: the file that claims them.
            remedy: how to store the data so that it is mapped and not loaded.

        Raises:
            PeError: size is more than the memory that this process may use.
        """
        if size > memory():
            raise self.error(f"{path} unpacks to {size} bytes, and there are {memory()} bytes of memory", remedy)


def memory_of_one() -> int:
    """Return the bytes of memory that this process may use, divided by the processes that a launcher has started here together."""
    return memory() // processes_here(os.environ)
