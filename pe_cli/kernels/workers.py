"""Compile many kernels at once in child processes: numba's front end is Python, so threads would not help."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import queue
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.kernels import cache
from pe_cli.kernels.cache import Instance
from pe_cli.kernels.digest import extent
from pe_cli.kernels.lang import KERNELS, MAKERS, Kernel

Progress = Callable[[int, int, str], None]
#: Kernels for which a child is started.
EACH = 2
#: Seconds that a child waits for another kernel.
PATIENCE = 20.0


def compile_all(instances: list[Instance], progress: Progress | None = None) -> dict[str, bytes]:
    """Compile instances, in one child a core at most.

    Returns:
        Object code by key.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    todo: queue.SimpleQueue[Instance] = queue.SimpleQueue()
    for instance in sorted(instances, key=lambda i: -extent(i.kernel, i.dtype)):  # long ones first, so that all end at once
        todo.put(instance)
    objects: dict[str, bytes] = {}
    threads = [
        threading.Thread(target=_feed, args=(todo, objects, len(instances), progress), daemon=True)
        for _ in range(min(cores, -(-len(instances) // EACH)))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for instance in instances:
        if instance.key not in objects:  # a child died: say why by doing it here
            objects[instance.key] = cache.compile_instance(instance)
    return objects


@dataclass(frozen=True)
class _Child:
    process: subprocess.Popen[bytes]
    environment: dict[str, str]

    def compile(self, instance: Instance) -> bytes:
        """Return the object that it makes; empty where it died."""
        given, made = self.process.stdin, self.process.stdout
        assert given
        assert made
        try:
            given.write(f"{instance.line}\n".encode())
            given.flush()
            header = made.readline()
            return made.read(int(header)) if header else b""
        except (OSError, ValueError):
            return b""

    def end(self) -> None:
        """End it; it is not compiling."""
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
        self.process.kill()
        self.process.wait()


class _Children:
    """Processes that compile. They wait a while for more, because starting one takes longer than most kernels."""

    def __init__(self) -> None:
        self._idle: list[_Child] = []
        self._lock = threading.Lock()

    def take(self) -> _Child:
        """Return one that waits, or a new one."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        with self._lock:
            while self._idle:
                child = self._idle.pop()
                if child.process.poll() is None and child.environment == environment:
                    return child
                child.end()
        command = [sys.executable, "-m", "pe_cli.kernels.workers"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        return _Child(process, environment)

    def give(self, child: _Child) -> None:
        """Let one wait for more."""
        with self._lock:
            self._idle.append(child)

    def end(self) -> None:
        """End those that wait."""
        with self._lock:
            for child in self._idle:
                child.end()
            self._idle.clear()


CHILDREN = _Children()
atexit.register(CHILDREN.end)


def _feed(
    todo: queue.SimpleQueue[Instance], objects: dict[str, bytes], total: int, progress: Progress | None
) -> None:
    try:
        child = CHILDREN.take()
    except OSError:  # no more processes here
        return
    while True:
        try:
            instance = todo.get_nowait()
        except queue.Empty:
            CHILDREN.give(child)
            return
        if progress:
            progress(len(objects), total, instance.kernel.name)
        body = child.compile(instance)
        if not body:
            child.end()
            return
        objects[instance.key] = body
        cache.store(instance.key, body)


def load(name: str) -> Kernel:
    """Return the kernel of a name, importing its module, or making it where it is generated.

    Raises:
        PeError: no such kernel.
    """
    module = name.split(":")[0]
    importlib.import_module(module)
    if name not in KERNELS and module in MAKERS:
        MAKERS[module](name)
    if name not in KERNELS:
        raise PeError(f"no kernel '{name}'", code=ExitCode.BUG)
    return KERNELS[name]


def find(line: str) -> Instance:
    """Return the instance that `Instance.line` names.

    Raises:
        PeError: no such kernel.
    """
    name, dtype, second = line.split()
    return Instance(load(name), dtype, second)


def main() -> None:
    """Serve: a kernel's line in, the object's size and bytes out."""
    from pe_cli.kernels.compiler import compile_kernel

    # Ctrl-C goes to the whole group of processes: the parent decides, and ends this one by closing its input
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while select.select([sys.stdin], [], [], PATIENCE)[0] and (line := sys.stdin.readline()):
        instance = find(line)
        body = compile_kernel(instance.kernel, instance.dtype, instance.second, cache.symbol(instance))
        sys.stdout.buffer.write(f"{len(body)}\n".encode() + body)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
