"""Saves a checkpoint once per place where the system could stop it, and dies there.

Run as a program: kill_while_saving.py FOLDER new|again. Each child is forked from the same state, saves step 2 (or
step 1 again), marks it as last, and is killed by its own SIGKILL before its k-th call that changes the disk; k grows
until a child survives. Prints one JSON line per child: what a reader finds afterwards.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.io import checkpoint

CALLS = ("open", "write", "fsync", "mkdir", "rename", "replace", "unlink", "rmdir")


def die_before(k: int) -> None:
    """Replace the system calls: the k-th one kills this process, half a write comes before it."""
    left = k

    def deadly(name: str, call: Callable[..., object]) -> Callable[..., object]:
        def counted(*args: object, **kwargs: object) -> object:
            nonlocal left
            left -= 1
            if left == 0:
                if name == "write":
                    descriptor, data = args
                    call(descriptor, memoryview(data)[: len(data) // 2])  # type: ignore[arg-type]
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return counted

    for name in CALLS:
        setattr(os, name, deadly(name, getattr(os, name)))


def save(root: Path, step: int) -> None:
    """Write and mark one checkpoint whose arrays say their step."""
    checkpoint.write(root, step, {"w": np.full(1000, step, np.float32), "b": np.zeros(3)}, {"again": step == 1}, keep=1)
    checkpoint.mark(root, "last", step)


def seen(root: Path) -> dict[str, object]:
    """Return what a reader finds: every final name must be whole."""
    whole = {}
    for entry in sorted(root.iterdir()):
        if entry.name.startswith("."):
            continue
        arrays, meta = checkpoint.load(entry)
        assert set(arrays["w"].tolist()) == {meta["step"]}, entry
        whole[entry.name] = meta["step"]
    return whole


def main(base: Path, resave: bool) -> None:
    """Kill children until one survives."""
    checkpoint.write(base, 1, {"w": np.full(1000, 1, np.float32), "b": np.zeros(3)}, {})
    checkpoint.mark(base, "last", 1)
    for k in range(1, 1000):
        root = base.with_name(f"{base.name}-{k}")
        shutil.copytree(base, root)
        child = os.fork()
        if child == 0:
            die_before(k)
            save(root, 1 if resave else 2)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        result: dict[str, object] = {"k": k, "survived": status == 0}
        try:
            result["seen"] = seen(root)
            result["loads"] = checkpoint.load(root)[1]["step"]
            save(root, 3)
            result["after"] = sorted(entry.name for entry in root.iterdir())
        except PeError as error:
            result["error"] = error.render()
        print(json.dumps(result), flush=True)  # noqa: T201 - this is its output
        shutil.rmtree(root)
        if status == 0:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] == "again")
