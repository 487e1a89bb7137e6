"""Trains once per place where the system could stop it or refuse a write, resumes, and says what became of it.

Run as a program: kill_while_training.py BASE kill|saving|full|readonly|failing|files|short|memory INSTANTS, with BASE holding run.yaml,
its model and data.
Children are forked from one process that has loaded the kernels; each counts its calls that change the disk. At the k-th
it is killed (saving: at the k-th of the thread that writes checkpoints), or from then on the disk is full, read-only or failing, no file
can be opened to write, or every write takes only half. Of memory, one request is refused, or three or thirty.
Then another child resumes without harm, until the run is done.
Prints one JSON line per child; k is spread evenly over all calls of a run.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from pe_cli.cli.main import run

CALLS = ("open", "write", "fsync", "mkdir", "rename", "replace", "unlink", "rmdir", "truncate", "ftruncate")
ERRORS = {"full": errno.ENOSPC, "readonly": errno.EROFS, "failing": errno.EIO, "files": errno.EMFILE}
#: A full disk lets go and shortens; and whoever has too many files open still may do all with those.
HARMLESS = {
    "full": ("unlink", "rmdir", "truncate", "ftruncate"),
    "readonly": ("fsync",),
    "failing": (),
    "files": tuple(name for name in CALLS if name != "open"),
    "short": tuple(name for name in CALLS if name != "write"),
}
#: Requests for memory that a run of this size makes at least.
REQUESTS = 400_000
done = 0
say = os.write


def half(write: Callable[..., object], descriptor: object, data: object) -> object:
    """Write half of it, and at least a byte; return how many."""
    view = memoryview(data)  # type: ignore[arg-type]
    return write(descriptor, view[: max(1, len(view) // 2)])


def harm(how: str, k: int) -> None:
    """Replace the system calls: from the k-th on they do harm; 0 only counts."""

    def replaced(name: str, call: Callable[..., object]) -> Callable[..., object]:
        def counted(*args: object, **kwargs: object) -> object:
            global done
            if name == "open" and not int(args[1]) & (os.O_WRONLY | os.O_RDWR):  # type: ignore[call-overload]
                return call(*args, **kwargs)
            if how == "saving" and not threading.current_thread().name.startswith("checkpoint of step"):
                return call(*args, **kwargs)
            done += 1
            if k == 0 or done < k or name in HARMLESS.get(how, ()):
                return call(*args, **kwargs)
            if how in ("kill", "saving"):
                if name == "write":
                    half(call, *args)
                say(1, f"killed at {name} by {threading.current_thread().name}".encode())
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "short":
                return half(call, *args)
            raise OSError(ERRORS[how], os.strerror(ERRORS[how]))

        return counted

    for name in CALLS:
        setattr(os, name, replaced(name, getattr(os, name)))


def refuse_memory(k: int) -> None:
    """Have one, three or thirty requests for memory refused, from about the k-th on."""
    import _testcapi

    begin = 5_000 + k  # behind what this file needs itself
    _testcapi.set_nomemory(begin, begin + (1, 3, 30)[k % 3])


def child(into: Path, log: Path, harmed: tuple[str, int] | None, *arguments: str, quiet: bool = True) -> tuple[int, str]:
    """Run `pe train` in a child, harmed in a way at a call; return its exit code (negative: the signal) and what it said."""
    pid = os.fork()
    if pid == 0:
        stream = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(stream, 1)
        os.dup2(stream, 2)
        counted = log.with_suffix(".count")
        if harmed and harmed[0] == "memory":
            refuse_memory(harmed[1])
        elif harmed:
            harm(*harmed)
        base = log.parent
        code = run(["train", str(base / "run.yaml"), *["--quiet"] * quiet, "-o", f"output.dir={into}", *arguments])
        sys.stdout.flush()
        sys.stderr.flush()
        if harmed and harmed[1] == 0:
            count = done
            counted.write_text(str(count))
        os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), log.read_text()


def finals(into: Path) -> list[str]:
    """Return the names in a run's folders that nothing finished should have."""
    from pe_cli.core.errors import PeError
    from pe_cli.io import checkpoint, strict_json
    from pe_cli.io.tensors import read_npz

    wrong = []
    for path in into.rglob("*"):
        relative = path.relative_to(into)
        if any(part.startswith(".") for part in relative.parts):
            continue
        try:
            if path.is_dir() and path.parent.name == "checkpoints":
                checkpoint.load(path)
            elif path.suffix == ".json":
                strict_json.loads(path.read_bytes())
            elif path.suffix == ".npz":
                read_npz(path)
        except (PeError, ValueError) as error:
            wrong.append(f"{relative}: {error}")
    return wrong


def main(base: Path, how: str, instants: int) -> None:
    """Do harm at instants that are spread over a whole run."""
    log = base / "log"
    code, said = child(base / "whole", log, ("saving" if how == "saving" else "kill", 0))
    assert code == 0, said
    total = REQUESTS if how == "memory" else int(log.with_suffix(".count").read_text())
    for i in range(instants):
        k = 1 + (total - 1) * i // max(1, instants - 1)
        into = base / "runs"
        code, said = child(into, log, (how, k))
        wrong = finals(into) if into.exists() else []
        again, text = child(into, log, None, "--resume")
        last = sorted(into.glob("*/status.json"), key=lambda path: path.stat().st_mtime)[-1].parent
        result = {"k": k, "of": total, "code": code, "said": said, "wrong": wrong, "again": again, "text": text}
        shutil.rmtree(base / f"run-{k}", ignore_errors=True)
        last.rename(base / f"run-{k}")
        shutil.rmtree(into)
        print(json.dumps({**result, "folder": str(base / f"run-{k}")}), flush=True)  # noqa: T201 - this is its output


if __name__ == "__main__":
    # loads the kernels and all modules; children begin with them
    assert run(["train", f"{sys.argv[1]}/run.yaml", "--quiet", "-o", f"output.dir={sys.argv[1]}/first"]) == 0
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
