"""Compile many kernels at once in child processes: numba's front end is Python, so threads would not help."""

from __future__ import annotations

import importlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.kernels import cache
from pe_cli.kernels.cache import Instance
from pe_cli.kernels.digest import extent
from pe_cli.kernels.lang import KERNELS, MAKERS, Kernel

Progress = Callable[[int, int, str], None]


def compile_all(instances: list[Instance], progress: Progress | None = None) -> dict[str, bytes]:
    """Compile instances, in this process when they are few, else in one child a core.

    Returns:
        Object code by key.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    workers = min(cores, len(instances) // 4)
    if workers < 2:
        objects = {}
        for i, instance in enumerate(instances):
            if progress:
                progress(i, len(instances), instance.kernel.name)
            objects[instance.key] = cache.compile_instance(instance)
        return objects
    return _in_children(instances, workers, progress)


def _in_children(instances: list[Instance], workers: int, progress: Progress | None) -> dict[str, bytes]:
    todo: queue.SimpleQueue[Instance] = queue.SimpleQueue()
    for instance in sorted(instances, key=lambda i: -extent(i.kernel, i.dtype)):  # long ones first, so that all end at once
        todo.put(instance)
    objects: dict[str, bytes] = {}
    failures: list[str] = []
    threads = [
        threading.Thread(target=_feed, args=(todo, objects, failures, len(instances), progress), daemon=True)
        for _ in range(workers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for instance in instances:
        if instance.key not in objects:  # a child died: say why by doing it here
            objects[instance.key] = cache.compile_instance(instance)
    return objects


def _feed(
    todo: queue.SimpleQueue[Instance],
    objects: dict[str, bytes],
    failures: list[str],
    total: int,
    progress: Progress | None,
) -> None:
    command = [sys.executable, "-m", "pe_cli.kernels.workers"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as child:
        assert child.stdin
        assert child.stdout
        while True:
            try:
                instance = todo.get_nowait()
            except queue.Empty:
                break
            if progress:
                progress(len(objects), total, instance.kernel.name)
            try:
                child.stdin.write(f"{instance.line}\n".encode())
                child.stdin.flush()
                header = child.stdout.readline()
                body = child.stdout.read(int(header)) if header else b""
            except (OSError, ValueError):
                body = b""
            if not body:
                failures.append(instance.kernel.name)
                break
            objects[instance.key] = body
            cache.store(instance.key, body)
        child.stdin.close()


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
    for line in sys.stdin:
        instance = find(line)
        body = compile_kernel(instance.kernel, instance.dtype, instance.second, cache.symbol(instance))
        sys.stdout.buffer.write(f"{len(body)}\n".encode() + body)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
