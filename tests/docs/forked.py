"""A program that is imported once and forked for every command: what a page types is run as ever, without seconds of imports.

`started` starts the process that has everything imported. A command's client hands it its files, folder, variables and arguments,
and gets an exit code; the command runs in a fork whose standard files are the client's.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

#: Folders whose modules commands import; not the compiler of kernels, whose presence decides where kernels are compiled.
FOLDERS = ("cli", "session", "build", "layers", "ops", "data", "io", "execute", "graph", "metrics", "optim", "program", "config")
_ROOT = Path(__file__).parents[2]
_CLIENT = """\
import array, json, os, socket, sys
with socket.socket(socket.AF_UNIX) as s:
    s.connect({address!r})
    s.sendmsg([b"f"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
    s.sendall(json.dumps([os.getcwd(), dict(os.environ), sys.argv[1:]]).encode())
    s.shutdown(socket.SHUT_WR)
    code = s.makefile().read()
sys.exit(int(code))
"""


@contextlib.contextmanager
def started(folder: Path) -> Iterator[str]:
    """Start it, with its socket in a folder whose path is short; give the line of a shell that runs `pe` with the arguments "$@"."""
    address, client = folder / "pe.socket", folder / "client.py"
    client.write_text(_CLIENT.format(address=str(address)), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    command = [sys.executable, "-m", "tests.docs.forked", str(address)]
    with subprocess.Popen(command, cwd=_ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        yield f'exec "{sys.executable}" -S -E "{client}" "$@"'
        process.stdin.close()  # the end of its input is the end of it


def main(address: str) -> None:
    """Serve until the standard input ends; a fork returns from here as `pe` would, with the exit of its command."""
    for folder in FOLDERS:
        package = importlib.import_module(f"pe_cli.{folder}")
        for module in pkgutil.walk_packages(package.__path__, f"pe_cli.{folder}."):
            importlib.import_module(module.name)
    assert "numba" not in sys.modules
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        os.write(1, b"ready\n")
        while listening in select.select([listening, sys.stdin], [], [])[0]:
            client, _ = listening.accept()
            if not os.fork():
                break
            client.close()
            with contextlib.suppress(ChildProcessError):  # the times of processes that are waited for count as this one's
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
        else:
            return
    _serve(client)


def _serve(client: socket.socket) -> None:
    """Run a command in a process of its own and tell how it ended: by a signal, it is told as a shell does."""
    with client:
        _, files, _, _ = socket.recv_fds(client, 1, 3)
        with client.makefile(encoding="utf-8") as asked:
            folder, variables, arguments = json.load(asked)
        command = os.fork()
        if command:
            for file in files:
                os.close(file)
            _, status = os.waitpid(command, 0)
            code = os.waitstatus_to_exitcode(status)
            client.sendall(str(code if code >= 0 else 128 - code).encode())
            os._exit(0)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    sys.argv = ["pe", *arguments]
    from pe_cli.cli.main import main as pe

    pe()


if __name__ == "__main__":
    main(*sys.argv[1:])
