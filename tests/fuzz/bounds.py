"""What every input must keep to, whatever its bytes: its folder, its memory, its time, and that nothing in it is run."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

#: Bytes that handling an input of a few kilobytes may take at its peak.
MOST_BYTES = 64 << 20
#: Processor seconds of this thread; a slow machine needs a hundredth of it.
MOST_SECONDS = 20.0
#: Whether the memory is what the process grows by beyond its earlier peak, and not what Python was asked for: a fifth of the time.
ROUGHLY = False

_RUNS_CODE = ("exec", "pickle.find_class", "marshal.loads", "os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess.Popen",
              "socket.connect", "ctypes.dlopen")  # fmt: skip
#: The process in which the package onnx writes functions out: nothing of an input is in its command.
_EXPANDS = [sys.executable, "-m", "pe_cli.session.importing.onnx.expansion"]
#: They write kernels of their own names and numbers, and run these; and annotations of classes are looked at on first use.
_GENERATORS = ("pe_cli.ops.fused.fusion_kernel", "pe_cli.ops.math.pointwise_sum", "typing")
#: They run code and keep it in a cache: that of the program, whatever is read.
_COMPILERS = ("dataclasses", "pe_cli.core.lazy_dataclass", "pe_cli.kernels.compiler.cache", "pe_cli.kernels.compiler.worker_processes")
_CHANGES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.truncate", "shutil.rmtree")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class _Watch:
    """An audit hook stays for the life of the process, so there is one, and it looks only inside `kept`."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.broken: list[str] = []
        self.hooked = False

    def hook(self, event: str, args: tuple[object, ...]) -> None:
        if self.folder is None:
            return
        if event == "subprocess.Popen" and args[1] == _EXPANDS:
            return
        if event in _RUNS_CODE and not _ours() and sys._getframe(1).f_globals.get("__name__") not in _GENERATORS:
            self.broken.append(f"{event} {args!r:.200}, called by {_callers()}")
        changes = event in _CHANGES or (event == "open" and isinstance(args[2], int) and args[2] & _WRITING)
        if changes and isinstance(args[0], str | bytes | os.PathLike) and not _ours():
            path = Path(_beside(event, args), os.fsdecode(args[0])).absolute()
            if path != Path(os.devnull) and not path.is_relative_to(self.folder):
                self.broken.append(f"{event} {path}")


def _beside(event: str, args: tuple[object, ...]) -> Path:
    """Return the folder that a path begins at: a file descriptor may say it."""
    descriptor = args[-1]
    if event in ("os.remove", "os.rmdir", "os.mkdir") and isinstance(descriptor, int) and descriptor >= 0:
        return Path(f"/proc/self/fd/{descriptor}").resolve()
    return Path.cwd()


def _ours() -> bool:
    """Return whether Python imports a module, whose code is run and kept as bytecode, or makes a dataclass, or pe compiles a kernel."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib") or frame.f_globals.get("__name__") in _COMPILERS:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _callers() -> str:
    frame, out = sys._getframe(2), []
    while frame is not None and len(out) < 5:
        out.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
        frame = frame.f_back  # type: ignore[assignment]
    return " < ".join(out)


_WATCH = _Watch()


def _peak() -> int:
    """Return the most bytes that this process ever had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


@contextlib.contextmanager
def kept(folder: Path, most: int = MOST_BYTES) -> Iterator[None]:
    """Fail where what is done inside leaves `folder`, runs code, or takes more than `most` bytes or too much time."""
    if not _WATCH.hooked:
        sys.addaudithook(_WATCH.hook)
        _WATCH.hooked = True
    _WATCH.broken = []
    before = _peak() if ROUGHLY else 0
    if not ROUGHLY:
        tracemalloc.start()
    begin = time.thread_time()
    _WATCH.folder = folder
    try:
        yield
    finally:
        _WATCH.folder = None
        seconds, peak = time.thread_time() - begin, _peak() - before if ROUGHLY else tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert not _WATCH.broken, str(_WATCH.broken)
    assert peak <= most, f"{peak} bytes at the peak"
    assert seconds <= MOST_SECONDS, f"{seconds} seconds"
