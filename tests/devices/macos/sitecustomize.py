"""What of macOS a program can notice on Linux: its name, functions that are absent, no /proc, and a C library without unnamed semaphores.

Python runs this before a program, where its folder is on the path. Packages that look for their own files by the name of the system are
imported first.
"""

import builtins
import ctypes
import io
import os
import platform
import sys
import sysconfig


def _absent(path):
    return isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(("/proc", "/sys/"))


def _without(function):
    def called(path=".", *args, **given):
        if _absent(path):
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return function(path, *args, **given)

    return called


class _Library(ctypes.CDLL):
    def __getattr__(self, name):
        if name in {"eventfd", "malloc_trim", "mallopt", "prctl", "sched_getcpu", "sem_timedwait", "syscall"}:
            raise AttributeError(f"dlsym(RTLD_DEFAULT, {name}): symbol not found")
        if name == "sem_init":
            return lambda *_: -1
        return super().__getattr__(name)


def pretend():
    """Make this process one on macOS."""
    try:
        sysconfig.get_config_vars()
        import llvmlite.binding  # noqa: F401
        import numpy as np  # noqa: F401
    except ImportError:  # an interpreter that something else uses
        pass

    sys.platform = "darwin"
    platform.system = lambda: "Darwin"
    for name in (
        "copy_file_range", "eventfd", "fdatasync", "memfd_create", "pidfd_open", "pipe2", "posix_fadvise", "posix_fallocate",
        "sched_getaffinity", "sched_setaffinity", "sched_setscheduler",
    ):  # fmt: skip
        if hasattr(os, name):
            delattr(os, name)
    for name in ("open", "stat", "lstat", "listdir", "readlink", "scandir"):
        setattr(os, name, _without(getattr(os, name)))
    io.open = builtins.open = _without(io.open)
    ctypes.CDLL = _Library


if "PRETEND_MACOS" in os.environ:
    pretend()
