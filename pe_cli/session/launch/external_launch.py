"""The part of one process in a training whose processes another launcher has started.

With servers each process is told where they are. Without, MPICH's `mpiexec` runs beside the first process and starts nothing: each process
starts the proxy of `mpiexec` for itself, so that MPI runs under any launcher, and a task of Slurm's keeps the cores and cards that it has.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

from pe_cli.collectives.launcher_environment import GROUP, LOCAL, RANK, SECRET, SERVERS, SIZE, one_request
from pe_cli.config.spec import RunSpec
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.threads import Thread
from pe_cli.session.launch.cluster_environment import Member
from pe_cli.session.launch.group import ASKS, LOOK, MERCY, Group, Task, deafened
from pe_cli.session.launch.mpi_launcher import mpiexec_of, reserved
from pe_cli.session.launch.plan import servers_of
from pe_cli.session.launch.rendezvous import Channel, Door, joined, opened
from pe_cli.session.sweep.training_processes import die_with_parent

#: What `mpiexec -launcher manual` says: the command of each proxy, and that these were all.
_LAUNCH, _END = "HYDRA_LAUNCH: ", "HYDRA_LAUNCH_END"
#: What mpiexec says of a signal that it is asked to stop by.
_ASIDE = ("] Sending Ctrl-C to processes as requested", "] Press Ctrl-C again to force abort")
#: Variables of the launcher around this process that MPI would take for its own.
_FOREIGN = ("PMI_", "PMI2_", "PMIX_", "OMPI_", "HYDRA_", "MPIEXEC_", RANK, SIZE)
#: What the options of a proxy look like that are taken from the first process, and how many there are at most.
_OPTIONS = 64
_OPTION = re.compile(r"--[a-z-]{2,40}|[A-Za-z0-9_.:,-]{1,80}")
#: What comes of a training: its exit code from those of its processes.
Judge = Callable[[Sequence[int | None]], int]
Say = Callable[[str, bool], None]


def take_part(run: RunSpec, member: Member, train: Sequence[str], say: Say, judge: Judge) -> int:
    """Meet the others and do this process's part of the training; return its exit code.

    Args:
        run: what is trained.
        member: this process.
        train: command of a process that trains.
        say: takes a line, and whether it is an error.
        judge: see `Judge`.

    Raises:
        PeError: some have not come, a port is in use, there is no secret, or no MPICH.
    """
    folder, seconds = Path(run.output.dir), run.executor.peer_timeout
    # Slurm's usual signal for a warning stops like SIGTERM.
    signal.signal(signal.SIGUSR1, signal.getsignal(signal.SIGTERM))
    if servers_of(run):
        return _serve(run, member, train, folder, seconds)
    mpiexec, proxy = mpiexec_of((), "mpich"), _proxy()
    if member.rank:
        return _Follower(*joined(member, folder, seconds), proxy, member).finished(seconds)
    with opened(member, folder) as door:
        door.wait(seconds)
        return _lead(door, mpiexec, proxy, train, seconds, say, judge)


def _serve(run: RunSpec, member: Member, train: Sequence[str], folder: Path, seconds: float) -> int:
    """Tell all where the servers are, and become a trainer or a server."""
    first = member.size - servers_of(run)
    # Reserved before anybody is told of it, so that no other process takes the port.
    with reserved("") as kept:
        port = kept.getsockname()[1]
        if member.rank:
            channel, _ = joined(member, folder, seconds, port=port)
            given = _answer(channel, seconds).get("environment")
            told = dict(given) if isinstance(given, dict) else {}
        else:
            with opened(member, folder) as door:
                door.wait(seconds)
                ends = [f"{_bracketed(channel.peer)}:{int(said['port'])}" for r, (channel, said) in sorted(door.came.items()) if r >= first]
                told = {SERVERS: ",".join(ends), GROUP: secrets.token_hex(8), SECRET: secrets.token_hex(32)}
                door.tell(environment=told)
                # The messages leave before this process becomes another program.
                time.sleep(LOOK)
        names = {SERVERS, GROUP, SECRET} & set(told)
        environment = _clean() | {RANK: str(member.rank), SIZE: str(member.size)} | {name: str(told[name]) for name in names}
        if member.rank >= first:  # its port is kept until it listens
            # The descriptor survives exec, and with it the reservation.
            os.set_inheritable(kept.fileno(), True)
        os.execve(train[0], list(train), environment)
    raise AssertionError("exec does not return")


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _answer(channel: Channel, seconds: float) -> Mapping[str, object]:
    """Return what the first process says when all have come.

    Raises:
        PeError: it says why there is nothing to do, or is gone.
    """
    try:
        said = channel.hear(time.monotonic() + seconds + MERCY) or {}
    except EOFError:
        said = {}
    if "error" in said:
        raise SystemExit(int(said.get("exit", ExitCode.PEER_LOST)))  # the first process has told why
    if not said:
        raise PeError("the first process is gone before all have come", hint="look at what it says", code=ExitCode.PEER_LOST)
    return said


def _lead(door: Door, mpiexec: str, proxy: str, train: Sequence[str], seconds: float, say: Say, judge: Judge) -> int:
    """Run mpiexec beside this process, hand everyone its proxy, and tell all how it ended."""
    member, mine = door.member, list[subprocess.Popen[bytes]]()
    commands: list[list[str]] = []

    def hear(line: str, wrong: bool) -> None:
        if line.startswith(_LAUNCH):
            commands.append(line.removeprefix(_LAUNCH).split()[1:])
        elif line == _END:
            for rank, (channel, _) in sorted(door.came.items()):
                channel.say(proxy=commands[rank])
            mine.append(_started(proxy, commands[0], "", member))
        elif not line.endswith(_ASIDE):
            say(line, wrong)

    hosts = ",".join(f"process{r}:1" for r in range(member.size))
    # Variables of another launcher would make mpiexec believe that it runs inside of it.
    foreign = [f"-u{name}" for name in os.environ if name.startswith((*_FOREIGN, "SLURM_"))]  # mpiexec would go by them
    line = ["env", *foreign, mpiexec, "-launcher", "manual", "-rmk", "user", "-localhost", "127.0.0.1", "-hosts", hosts, "-genvnone",
            "-disable-auto-cleanup", "-disable-hostname-propagation", "-n", str(member.size), *train]  # fmt: skip
    group = Group([Task("mpiexec", line, launches=True, asks=signal.SIGINT, deaf=True)], seconds, ("ssh",), hear, once=True)
    for channel, _ in door.came.values():
        # A follower that asks to stop is heard while the group trains.
        Thread(target=_listen, args=(channel, group), daemon=True).start()
    codes = group.wait()
    code = ExitCode.INTERRUPTED if group.interrupted else judge(codes)
    door.tell(code=int(code))
    for process in mine:
        _ended(process)
    return int(code)


def _listen(channel: Channel, group: Group) -> None:
    """Stop all once where one of the others was asked to."""
    try:
        while (said := channel.hear(time.monotonic() + 3600)) is None or "stop" not in said:
            pass
    except EOFError:
        return
    if not group.asked:
        # As if it had been asked here, so that one way of stopping serves for both.
        os.kill(os.getpid(), signal.SIGTERM)


class _Follower:
    """A process that is not the first: it runs a proxy, and ends as the first one says.

    Args:
        channel: to the first process.
        host: where that is.
        proxy: program.
        member: this process.
    """

    def __init__(self, channel: Channel, host: str, proxy: str, member: Member) -> None:
        self._channel, self._host, self._proxy, self._member = channel, host, proxy, member
        self._asked, self._until = 0, 0.0

    def finished(self, seconds: float) -> int:
        """Run the proxy until the first process says how it ended; return that exit code."""
        options = _answer(self._channel, seconds)["proxy"]
        process = _started(self._proxy, options, self._host, self._member)
        before = {number: signal.signal(number, self._interrupt) for number in ASKS}
        code, until = None, float("inf")
        try:
            while code is None and time.monotonic() < until and self._asked < 2:
                said = self._channel.hear(time.monotonic() + 4 * LOOK)
                code = None if said is None else said.get("code")
                if process.poll() is not None:
                    # Its proxy has ended, and the first process says how; it is given time for that.
                    until = min(until, time.monotonic() + seconds + 2 * MERCY)
        except EOFError:
            code = int(ExitCode.PEER_LOST)
        finally:
            late = time.monotonic() < self._until  # the rest of one request may still come
            for number, handler in before.items():
                signal.signal(number, signal.SIG_IGN if late else handler)
            _ended(process)
        if self._asked > 1:
            return int(ExitCode.INTERRUPTED)
        return code if isinstance(code, int) and code in list(ExitCode) else int(ExitCode.PEER_LOST)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._asked == 1 and time.monotonic() < self._until:
            return
        self._until = time.monotonic() + one_request(os.environ)
        self._asked += 1
        Thread(target=self._channel.say, kwargs={"stop": True}, daemon=True).start()  # its lock may be held here


def _proxy() -> str:
    found = shutil.which("hydra_pmi_proxy", path=str(Path(sys.executable).parent)) or shutil.which("hydra_pmi_proxy")
    if found is None:
        raise PeError("hydra_pmi_proxy is not installed, which MPICH has beside mpiexec", hint="pip install mpi4py mpich")
    return found


def _started(proxy: str, options: object, host: str, member: Member) -> subprocess.Popen[bytes]:
    """Start the proxy of this process.

    Args:
        proxy: program.
        options: of it, as the first process has them from mpiexec.
        host: of the first process; empty for this one.
        member: this process.
    """
    words = list(options) if isinstance(options, list) else []
    # What the first process says becomes a command line here: nothing but options of the expected form is taken.
    if not 0 < len(words) <= _OPTIONS or not all(isinstance(each, str) and _OPTION.fullmatch(each) for each in words):
        hint = "the same version of pe and MPICH on all"
        raise PeError("the first process says no options of a proxy", hint=hint, code=ExitCode.PEER_LOST)
    if host and "--control-port" in words[:-1]:
        at = words.index("--control-port") + 1
        # Its own port, at the address that this host reaches it by.
        words[at] = f"{host}:{words[at].rpartition(':')[2]}"
    return subprocess.Popen(
        [proxy, *words], env=_clean() | {LOCAL: str(member.here)}, stdin=subprocess.DEVNULL, start_new_session=True,
        preexec_fn=deafened(die_with_parent(signal.SIGKILL)),
    )  # fmt: skip


def _clean() -> dict[str, str]:
    """Return this process's variables without those that MPI would take for its own launcher's."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}


def _ended(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(MERCY)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
