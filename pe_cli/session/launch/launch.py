"""pe launch: the processes of a training, started again from the last checkpoint with those that are left."""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pe_cli.collectives.launcher_environment import GROUP, RANK, SERVERS, SIZE
from pe_cli.config.spec import RunSpec
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.io.run_folder import RunFolder, mark_failed
from pe_cli.session.launch.group import Group, Task, python
from pe_cli.session.launch.hosts import Host, divided

#: Port of the first server on another machine, where the config names none.
PORT = 6174
#: How a process says which other one is gone.
_GONE = re.compile(r"process (\d+) of \d+ (?:did not answer|cannot be reached|was ended, as its overseer)")


@dataclass(frozen=True)
class Launch:
    """What is started.

    Args:
        run: the config.
        arguments: of `pe train`, without those that say where to go on.
        count: processes.
        hosts: machines; none for this one.
        hosts_file: where they were read from, for mpiexec.
        ssh: command that runs another on a host.
        mpiexec: launcher of MPI with options of its own; empty for the one beside this Python, or else of the PATH.
        restarts: how often to go on with those that are left.
        resume: arguments of the first start that say where to go on.
    """

    run: RunSpec
    arguments: Sequence[str]
    count: int
    hosts: Sequence[Host] = ()
    hosts_file: Path | None = None
    ssh: Sequence[str] = ("ssh",)
    mpiexec: Sequence[str] = ()
    restarts: int = 0
    resume: Sequence[str] = ()


def launch(wish: Launch, say: Callable[[str, bool], None]) -> int:
    """Start all processes and wait for them; return the exit code of the training.

    Raises:
        PeError: the config is for one process, there are too few, or no launcher of MPI.
    """
    _check(wish)
    for again in range(wish.restarts + 1):
        before = _newest(wish.run)
        said: list[str] = []

        def tell(line: str, wrong: bool, said: list[str] = said) -> None:
            if wrong and len(said) < 1000:
                said.append(line)
            say(line, wrong)

        with contextlib.ExitStack() as held:
            tasks = _served(wish, held) if wish.run.has_servers else _mpi(wish)
            group = Group(tasks, wish.run.executor.peer_timeout, wish.ssh, tell, once=True)
            codes = group.wait()
        code = _code(codes)
        if group.interrupted or (group.asked and _before_training(tasks, codes)):
            return ExitCode.INTERRUPTED
        lost = _lost(wish, tasks, codes, said)
        folder = _newest(wish.run)
        if code == ExitCode.PEER_LOST:
            _mark(folder, lost, codes)
        if code != ExitCode.PEER_LOST or again == wish.restarts or group.asked:
            return code
        begun = folder is not None and (folder.path != getattr(before, "path", None) or bool(wish.resume))
        left = _left(wish, lost)
        where = f"from the last checkpoint of {folder.path}" if begun and folder is not None else "from the beginning"
        say(f"restart {again + 1} of {wish.restarts}: {left.count} processes go on {where}", True)
        wish = replace(left, resume=("--resume", str(folder.path)) if begun and folder is not None else ())
    raise AssertionError("the last start returns")


def _check(wish: Launch) -> None:
    run, servers = wish.run, _servers(wish.run)
    if run.executor.processes != "mpi":
        hint = "distributed: {mode: collective}, or mode: parameter_server with servers; -o distributed={mode: collective} does it, too"
        raise PeError("the config is for one process, so there is nothing to launch", at=run.at, hint=hint)
    if run.has_servers and wish.count <= servers:
        many = f"{servers} servers" if servers > 1 else "1 server"
        text = f"of {wish.count} process{'es'[: 2 * (wish.count > 1)]} {many} leave no trainer"
        raise PeError(text, at=run.at_of("distributed", "servers"), hint=f"-n {servers + 2}, for example")


def _servers(run: RunSpec) -> int:
    return (run.distributed.servers or 0) if run.distributed is not None else 0


def _train(wish: Launch) -> list[str]:
    return [*python(), "-m", "pe_cli", "train", *wish.arguments, *wish.resume]


def _served(wish: Launch, held: contextlib.ExitStack) -> list[Task]:
    """Return trainers and servers; each is told its number and where the servers are. `held` keeps their ports."""
    assert wish.run.distributed is not None
    hosts = divided(wish.hosts, wish.count) if wish.hosts else [""] * wish.count
    trainers = wish.count - _servers(wish.run)
    endpoints = wish.run.distributed.endpoints or _endpoints(hosts[trainers:], held)
    told, secret = {SIZE: str(wish.count), SERVERS: ",".join(endpoints), GROUP: secrets.token_hex(8)}, secrets.token_hex(32)
    names = [str(r) if r < trainers else f"server {r - trainers}" for r in range(wish.count)]
    return [
        Task(names[r], _train(wish), {RANK: str(r), **told}, host, serves=r >= trainers, secret=secret) for r, host in enumerate(hosts)
    ]


def _endpoints(hosts: Sequence[str], held: contextlib.ExitStack) -> list[str]:
    """Return host:port of each server: free ports of this machine, which `held` keeps, or ports from `PORT` on."""
    if any(hosts):
        return [f"{host}:{PORT + list(hosts[:i]).count(host)}" for i, host in enumerate(hosts)]
    return [f"127.0.0.1:{held.enter_context(_reserved()).getsockname()[1]}" for _ in hosts]


def _reserved() -> socket.socket:
    """Return a socket that keeps a free port from everybody but a server that binds it: it is bound, and does not listen."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # both have to allow it, and `create_server` does
    reserved.bind(("127.0.0.1", 0))
    return reserved


def _mpi(wish: Launch) -> list[Task]:
    """Return mpiexec, which starts the processes itself."""
    given = wish.mpiexec[0] if wish.mpiexec else "mpiexec"
    mpiexec = shutil.which(given, path=str(Path(sys.executable).parent)) or shutil.which(given)
    if mpiexec is None:
        raise PeError(f"{given} is not installed", hint="pip install mpi4py mpich, or the MPI library of your site")
    of_mpich = "HYDRA" in subprocess.run([mpiexec, "--version"], capture_output=True, text=True, check=False).stdout
    options: list[str] = []
    if wish.hosts_file is not None:
        options += ["-f" if of_mpich else "--hostfile", str(wish.hosts_file)]
        if list(wish.ssh) != ["ssh"]:
            options += ["-launcher", "ssh", "-launcher-exec", wish.ssh[0]] if of_mpich else ["--mca", "plm_rsh_agent", " ".join(wish.ssh)]
    elif of_mpich:
        options += ["-disable-auto-cleanup"]  # those that are left end by themselves, and say why
    return [Task("mpiexec", [mpiexec, *wish.mpiexec[1:], *options, "-n", str(wish.count), *_train(wish)], launches=True)]


def _code(codes: Sequence[int | None]) -> int:
    """Return the exit code of all: 0 or 75 where all have ended well, what the first one with an error of its own says, else 6."""
    own = [c for c in codes if c is not None and c > 0 and c not in (ExitCode.STOPPED, ExitCode.PEER_LOST) and c < 128]
    own = [c for c in own if c in list(ExitCode)]
    if all(code in (ExitCode.DONE, ExitCode.STOPPED) for code in codes):
        return ExitCode.STOPPED if ExitCode.STOPPED in codes else ExitCode.DONE
    return own[0] if own else ExitCode.PEER_LOST


def _before_training(tasks: Sequence[Task], codes: Sequence[int | None]) -> bool:
    """Whether all that were asked to stop have ended as they do while there is nothing to be resumed.

    That is with 130, or by the signal while Python or MPI starts; mpiexec says the latter with the signal's number.
    """
    ends = (ExitCode.INTERRUPTED, -signal.SIGTERM, signal.SIGTERM, 128 + signal.SIGTERM)
    return all(code in ends for task, code in zip(tasks, codes, strict=True) if not task.serves)


def _lost(wish: Launch, tasks: Sequence[Task], codes: Sequence[int | None], said: Sequence[str]) -> list[int]:
    """Return the numbers of the processes that are gone."""
    if len(tasks) == wish.count:
        known = [*ExitCode]
        return [r for r, code in enumerate(codes) if code is None or code not in known]
    found = [int(m[1]) for line in said for m in _GONE.finditer(line)]
    return sorted({number for number in found if number < wish.count})


def _left(wish: Launch, lost: Sequence[int]) -> Launch:
    """Return the launch with those that are left: without the slots of the lost, or as before where nobody knows who it was."""
    count = wish.count - len(lost)
    if count <= _servers(wish.run) or count < 1 or not lost:
        return wish
    if not wish.hosts:
        return replace(wish, count=count)
    places = divided(wish.hosts, wish.count)
    kept = [host for r, host in enumerate(places) if r not in lost]
    hosts = [Host(name, kept.count(name)) for name in dict.fromkeys(kept)]
    return replace(wish, count=count, hosts=hosts)


def _newest(run: RunSpec) -> RunFolder | None:
    with contextlib.suppress(PeError):
        return RunFolder.latest(Path(run.output.dir), run.name)
    return None


def _mark(folder: RunFolder | None, lost: Sequence[int], codes: Sequence[int | None]) -> None:
    """Write into the status of a run why it has failed, where the process that writes it could not."""
    if folder is None:
        return
    who = f"process {', '.join(map(str, lost))}" if lost else "a process"
    how = next((f"ended by signal {-c}" for c in codes if c is not None and c < 0), "lost")
    mark_failed(folder.path, f"{who} was {how}")
