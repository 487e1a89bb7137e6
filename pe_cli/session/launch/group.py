"""A group of child processes: their output is passed on, and when one ends the others are ended soon after."""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import IO

from pe_cli.collectives.launcher_environment import SECRET, one_request
from pe_cli.core.errors import ExitCode
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.signals import SIGNALS
from pe_cli.core.threads import Thread
from pe_cli.session.sweep.training_processes import die_with_parent

#: Seconds between two polls of the processes, and those that remain for a process after the others have noticed a loss.
LOOK, MERCY = 0.05, 5.0
#: What asks for a stop: SIGUSR1 is what scripts of Slurm's often have `--signal` send.
ASKS = (*SIGNALS, signal.SIGUSR1)
#: Environment that processes on other machines get from here.
_PASSED = ("PYTHONPATH", "PE_", "FLAGS_", "OMP_NUM_THREADS", "CPU_NUM", "NUMBA_", "UCX_", "PADDLE_", "TRAINING_ROLE", "POD_IP")


@dataclass(frozen=True)
class Task:
    """A process that is to be started.

    Args:
        name: in front of its lines.
        command: with arguments.
        environment: beside this process's own.
        host: where; empty for here.
        serves: it ends by itself when the others have ended, and is not asked to stop.
        launches: it is mpiexec, which cannot pass on what its processes say when this one is killed, and is killed, too.
        asks: the signal that asks it to stop.
        deaf: SIGTERM and SIGUSR1 do not reach it, which Slurm sends to every process of a task; whatever else asks is one request.
        secret: that processes of the group know each other by; empty where this one's own environment says whether there is one.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    host: str = ""
    serves: bool = False
    launches: bool = False
    asks: signal.Signals = signal.SIGTERM
    deaf: bool = False
    secret: str = field(default="", repr=False)


def remote(task: Task, ssh: Sequence[str]) -> list[str]:
    """Return the command that starts a process on its host: it ends, too, when this end of the connection is closed.

    It reads the secret of the group from there, as a line: command lines can be read by all users of both machines.
    """
    # The secret goes by standard input and never by a command line, which every user of the machine can read.
    passed = {k: v for k, v in os.environ.items() if k.startswith(_PASSED) and k != SECRET} | dict(task.environment)
    line = " ".join([*(f"{k}={shlex.quote(v)}" for k, v in sorted(passed.items())), *map(shlex.quote, task.command)])
    # The remote shell watches its input: when the connection ends, it ends the process that it has started.
    ends = "(cat <&3; kill -TERM $p) >/dev/null 2>&1 & c=$!; wait $p; r=$?; kill $c 2>/dev/null; exit $r"
    reads = f"IFS= read -r {SECRET} <&3; export {SECRET}"
    script = f"exec 3<&0; {reads}; cd {shlex.quote(str(os.getcwd()))} && env {line} </dev/null & p=$!; {ends}"  # noqa: PTH109
    return [*ssh, task.host, f"sh -c {shlex.quote(script)}"]


def deafened(before: Callable[[], None] | None) -> Callable[[], None]:
    """Return what a new process does so that signals that Slurm sends to all of a task do not reach it; `pe` takes them again."""

    def act() -> None:
        if before is not None:
            before()
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGUSR1))

    return act


class Group:
    """Starts processes and waits for all.

    Args:
        tasks: the first one speaks for all.
        seconds: that the others may go on after one has failed.
        ssh: command that runs another on a host.
        say: takes a line, and whether it is an error.
        once: what others than the first say is left out where it was said before.

    Attributes:
        changed: whether all were asked to stop by what `wait` looks at.
    """

    def __init__(
        self, tasks: Sequence[Task], seconds: float, ssh: Sequence[str], say: Callable[[str, bool], None], *, once: bool = False
    ) -> None:
        self._once = once
        self._tasks, self._seconds, self._say = tasks, seconds, say
        self._said: set[str] = set()
        self._lock = threading.Lock()
        self._asked, self._until = 0, 0.0
        self.changed = False
        self.processes: list[subprocess.Popen[bytes]] = []
        self._readers: list[threading.Thread] = []
        try:
            for task in tasks:
                self._start(task, ssh)
        except OSError:
            # A process that is asked by its launcher must not be asked by the terminal, too.
            self._kill()
            raise

    def _start(self, task: Task, ssh: Sequence[str]) -> None:
        command = remote(task, ssh) if task.host else list(task.command)
        told = {SECRET: secret} if (secret := task.secret or os.environ.get(SECRET, "")) else {}
        stdin = subprocess.PIPE if task.host else subprocess.DEVNULL
        # A trainer ends with its launcher; a server stays, because trainers need it for their last step.
        dies = None if task.serves else die_with_parent(signal.SIGKILL if task.launches else signal.SIGTERM)
        dies = deafened(dies) if task.deaf else dies
        process = subprocess.Popen(
            command, env=os.environ | dict(task.environment) | told, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True, preexec_fn=dies,
        )  # fmt: skip
        self.processes.append(process)
        if process.stdin is not None:
            with contextlib.suppress(OSError):  # it has ended already
                process.stdin.write(f"{told.get(SECRET, '')}\n".encode())
                process.stdin.flush()
        first = len(self.processes) == 1
        for pipe, wrong in ((process.stdout, False), (process.stderr, True)):
            assert pipe is not None
            args = (pipe, wrong, "" if first else f"[{task.name}] ")
            self._readers.append(Thread(target=self._read, args=args, name=task.name, daemon=True))
            self._readers[-1].start()

    def _read(self, pipe: IO[bytes], wrong: bool, prefix: str) -> None:
        for raw in pipe:
            line = raw.decode(errors="replace").rstrip("\n")
            with self._lock:
                new = line not in self._said
                # The same line of many processes is said once; what is remembered is bounded.
                if self._once and len(self._said) < 1 << 16:
                    self._said.add(line)
                if not prefix or (new and line):
                    self._say(prefix + line, wrong)

    def wait(self, stops: Callable[[], bool] | None = None) -> list[int | None]:
        """Return the exit code of each, negative for a signal; None of those that had to be ended, as they went on after others had failed.

        The first SIGINT, SIGTERM or SIGUSR1 asks all to stop, the second ends them.

        Args:
            stops: whether to ask all to stop; looked at until it says so.
        """
        before = {number: signal.signal(number, self._interrupt) for number in ASKS}
        until, killed, left = math.inf, False, []
        try:
            while any(p.poll() is None for p in self.processes):
                codes = [p.poll() for p in self.processes]
                # An exit code that is no end of a training ends the others, after the time in which they notice it themselves.
                if any(code not in (None, ExitCode.DONE, ExitCode.STOPPED) for code in codes):
                    noticed = ExitCode.PEER_LOST in codes or self._server_has_failed(codes)
                    until = min(until, time.monotonic() + MERCY + (0 if noticed else self._seconds))
                if (time.monotonic() > until or self._asked > 1) and not killed:
                    killed = True
                    left = [i for i, code in enumerate(codes) if code is None]
                    self._kill()
                if stops is not None and not self.changed and not self._asked and stops():
                    self.changed = True
                    self._ask()
                time.sleep(LOOK)
        finally:
            late = time.monotonic() < self._until  # the rest of one request may still come
            # Signals that belong to the same request still arrive when the handlers are gone.
            for number, handler in before.items():
                signal.signal(number, signal.SIG_IGN if late else handler)
        self._hang_up()
        return [None if killed and i in left else p.returncode for i, p in enumerate(self.processes)]

    def _server_has_failed(self, codes: Sequence[int | None]) -> bool:
        """Whether a server has ended with an error of its own: who waits for it, perhaps from the start, has nothing to tell."""
        own = [code for task, code in zip(self._tasks, codes, strict=True) if task.serves and code is not None]
        return any(0 < code < 128 for code in own)  # above, a signal has ended it

    def _hang_up(self) -> None:
        """Close all connections, once what was said has been read."""
        for process in self.processes:
            if process.stdin is not None:
                with contextlib.suppress(OSError):
                    process.stdin.close()
        for reader in self._readers:
            reader.join(MERCY)
        for process in self.processes:
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()

    @property
    def interrupted(self) -> bool:
        """Whether a second signal has ended all."""
        return self._asked > 1

    @property
    def asked(self) -> bool:
        """Whether a signal has asked all to stop."""
        return self._asked > 0

    def _interrupt(self, number: int, frame: object) -> None:
        del number, frame
        # A terminal and a scheduler may both send one, for one request to stop.
        if self._asked == 1 and time.monotonic() < self._until:
            return
        self._until = time.monotonic() + one_request(os.environ)
        self._asked += 1
        self._ask()

    def _ask(self) -> None:
        """Ask all to stop."""
        for task, process in zip(self._tasks, self.processes, strict=True):
            if process.poll() is None and not task.serves:
                if process.stdin is not None:
                    with contextlib.suppress(OSError):
                        process.stdin.close()  # the other end is told so
                else:
                    process.send_signal(task.asks)

    def _kill(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                # The whole group, so that no child of a process is left over.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def python() -> list[str]:
    """Return the command of this interpreter."""
    return [sys.executable]
