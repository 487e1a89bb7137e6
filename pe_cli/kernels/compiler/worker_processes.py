"""Compiles kernels in child processes: llvmlite lets one thread of a process work at a time, so threads would not help."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.limits import usable_cores
from pe_cli.core.threads import IDLE, Thread
from pe_cli.kernels.compiler import cache
from pe_cli.kernels.compiler.digest import extent
from pe_cli.kernels.compiler.instance import Instance, symbol
from pe_cli.kernels.language import KERNELS, MAKERS, Kernel

Progress = Callable[[int, int, str], None]
#: Seconds that children wait for more: a step's kernels are wanted soon after those of the initial values, and starting takes long.
PATIENCE = 10.0
#: Kernels from which on children pay that are still to be started.
FEW = 4
#: Most children that are started before anybody knows how many kernels are missing.
EARLY = 4


def compile_all(instances: list[Instance], progress: Progress | None = None) -> dict[str, bytes]:
    """Compile instances: in children, one per core, unless they are few.

    Returns:
        Object code by key.
    """
    elsewhere = [i for i in instances if not i.kernel.name.startswith("__main__:")]  # a script's own: no child would find them
    count = min(len(elsewhere), _WAITING.count() if len(elsewhere) < FEW else usable_cores())
    objects: dict[str, bytes] = {}
    if count:
        _in_children(elsewhere, count, objects, progress)
    for instance in instances:
        if instance.key not in objects:  # no children, or one died: the same here says why
            if progress:
                progress(len(objects), len(instances), instance.kernel.name)
            objects[instance.key] = _compile_here(instance)
    return objects


def start_early() -> None:
    """Start children where no kernel is kept: a first run needs many, and they start while it reads its config and data."""
    if cache.is_empty():
        _WAITING.put(_WAITING.take(min(EARLY, usable_cores())))


def _compile_here(instance: Instance) -> bytes:
    """Compile in this process, store, and return the object."""
    from pe_cli.kernels.compiler.compiler import compile_kernel

    body = compile_kernel(instance.kernel, instance.dtype, instance.second, symbol(instance))
    cache.store(instance.key, body)
    return body


def _in_children(instances: list[Instance], count: int, objects: dict[str, bytes], progress: Progress | None) -> None:
    todo: queue.SimpleQueue[Instance] = queue.SimpleQueue()
    for instance in sorted(instances, key=lambda i: -extent(i.kernel, i.dtype)):  # long ones first, so that all end at once
        todo.put(instance)
    telling = threading.Lock()  # what is told need not know of threads

    def serve(child: _Child) -> None:
        with contextlib.suppress(queue.Empty):
            while child.alive:
                instance = todo.get_nowait()
                if progress:
                    with telling:
                        progress(len(objects), len(instances), instance.kernel.name)
                if body := child.compile(instance):
                    objects[instance.key] = body
                    cache.store(instance.key, body)

    children = _WAITING.take(count)
    threads = [Thread(target=serve, args=(child,), daemon=True) for child in children]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _WAITING.put(children)


class _Child:
    """A process that compiles what it is told.

    Args:
        environment: its variables.
    """

    def __init__(self, environment: dict[str, str]) -> None:
        command = [sys.executable, "-m", "pe_cli.kernels.compiler.worker_processes"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self.alive = True

    def compile(self, instance: Instance) -> bytes:
        """Return object code; nothing where the child has died, or has found other code under the kernel's name."""
        into, out = self._process.stdin, self._process.stdout
        assert into
        assert out
        try:
            into.write(f"{instance.key} {instance.line}\n".encode())
            into.flush()
            size = int(out.readline())
            body = out.read(size)
            self.alive = len(body) == size
        except (OSError, ValueError):
            self.alive = False
        return body if self.alive else b""

    def close(self, *, wait: bool) -> None:
        """Let the process end.

        Args:
            wait: return only when the process has ended.
        """
        self.alive = False
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe
            with contextlib.suppress(OSError):
                pipe.close()
        if wait:
            self._process.wait()


class _Waiting:
    """Children that have nothing to do, and end if that lasts."""

    def __init__(self) -> None:
        self._forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)  # they are the parent's

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._children: list[_Child] = []
        self._environment: dict[str, str] = {}
        self._timer: threading.Timer | None = None

    def count(self) -> int:
        """Return how many there are that could be taken."""
        with self._lock:
            return len(self._children) if self._environment == _environment() else 0

    def take(self, count: int) -> list[_Child]:
        """Return so many children, new ones where there are not enough that were started alike."""
        environment = _environment()
        with self._lock:
            if self._timer:
                self._timer.cancel()
            if environment != self._environment:
                self._close(wait=True)
            self._environment = environment
            found, self._children = self._children[:count], self._children[count:]
        return found + [_Child({**os.environ, **environment}) for _ in range(count - len(found))]

    def put(self, children: list[_Child]) -> None:
        """Let children wait."""
        with self._lock:
            self._children += [child for child in children if child.alive]
            for child in children:
                if not child.alive:
                    child.close(wait=True)
            self._timer = threading.Timer(PATIENCE, self.close)
            self._timer.daemon = True
            self._timer.name = f"{IDLE}-compilers"
            self._timer.start()

    def close(self, *, wait: bool = True) -> None:
        """Let all processes end.

        Args:
            wait: return only when they have ended.
        """
        with self._lock:
            self._close(wait=wait)

    def _close(self, *, wait: bool) -> None:
        for child in self._children:
            child.close(wait=wait)
        self._children = []


def _environment() -> dict[str, str]:
    """Return the variables that decide what a child compiles."""
    kept = {k: v for k, v in os.environ.items() if k.startswith(("PE_VECTOR", "PE_CHECK", "PYTHON"))}
    return {**kept, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


_WAITING = _Waiting()
atexit.register(_WAITING.close, wait=False)


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
    """Serve: a kernel's key and line in, the object's size and bytes out; none where the key is not what it would have here."""
    from pe_cli.kernels.compiler.compiler import compile_kernel

    # Ctrl-C goes to the whole group of processes: the parent decides, and ends this one by closing its input
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in sys.stdin:
        key, rest = line.split(maxsplit=1)
        instance = find(rest)
        entry = symbol(instance)
        # The source files may have changed since the parent imported them; the parent then compiles what it has in memory.
        body = compile_kernel(instance.kernel, instance.dtype, instance.second, entry) if instance.key == key else b""
        try:
            sys.stdout.buffer.write(f"{len(body)}\n".encode() + body)
            sys.stdout.buffer.flush()
        except BrokenPipeError:  # the parent was killed
            break
    os._exit(0)  # there is nothing to tidy up, and whoever reads this process's errors waits for its end


if __name__ == "__main__":
    main()
