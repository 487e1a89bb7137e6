"""pe launch: the processes of a training, started again from the last checkpoint with those that are left."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from pathlib import Path

from pe_cli.collectives.launcher_environment import GROUP, RANK, SERVERS, SIZE
from pe_cli.config.spec import RunSpec
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.io.run_folder import RunFolder, mark_failed
from pe_cli.session.launch.cluster_environment import PORT, Allocation, ClusterEnvironment, Member
from pe_cli.session.launch.elastic import Elastic
from pe_cli.session.launch.external_launch import take_part
from pe_cli.session.launch.group import Group, Task, python
from pe_cli.session.launch.hosts import Host, divided
from pe_cli.session.launch.mpi_launcher import library_of, mpiexec_of, reserved
from pe_cli.session.launch.plan import Plan, servers_of
from pe_cli.session.launch.slurm import check_job

#: What a config lacks that says nothing of processes.
_SEVERAL = ("-o", "executor.processes=auto")
#: How a process says which other one is gone.
_GONE = re.compile(r"process (\d+) of \d+ (?:did not answer|cannot be reached|was ended, as its overseer)")


@dataclass(frozen=True)
class Launch:
    """What is started.

    Args:
        run: the config.
        arguments: of `pe train`, without those that say where to go on.
        plan: how many processes, and how.
        around: where this is.
        hosts_file: where the hosts were read from, for mpiexec; None where they were named, or for none.
        ssh: command that runs another on a host.
        mpiexec: launcher of MPI with options of its own; empty for the one beside this Python, or else of the PATH.
        restarts, restarted: how often to go on with those that are left, and how often that was done.
        resume: arguments of the first start that say where to go on.
        elastic: the file that says how many processes there are; None where that does not change.
    """

    run: RunSpec
    arguments: Sequence[str]
    plan: Plan
    around: ClusterEnvironment = field(default_factory=ClusterEnvironment)
    hosts_file: Path | None = None
    ssh: Sequence[str] = ("ssh",)
    mpiexec: Sequence[str] = ()
    restarts: int = 0
    resume: Sequence[str] = ()
    elastic: Elastic | None = None
    restarted: int = 0

    @property
    def count(self) -> int:
        """Processes."""
        return self.plan.count

    @property
    def hosts(self) -> Sequence[Host]:
        """Machines; none for this one."""
        return self.plan.hosts


def launch(wish: Launch, say: Callable[[str, bool], None]) -> int:
    """Start all processes and wait for them; return the exit code of the training.

    Where a process is lost, those that are left go on, as often as is wanted; where the elastic file changes, as many as it says then.

    Raises:
        PeError: there is no launcher of MPI, the allocation has ended, processes do not meet, or somebody else starts them.
    """
    _check(wish)
    if isinstance(wish.around.where, Member) and wish.plan.way == "meeting":
        return take_part(wish.run, wish.around.where, _train(wish), say, _code)
    # Exec and no child: signals and exit codes are then those of the training itself.
    if wish.plan.way in ("alone", "joined") and not wish.restarts and wish.elastic is None:
        sys.stdout.flush()
        os.execv(sys.executable, _train(wish))
    if isinstance(wish.around.where, Allocation) and wish.plan.way == "srun":
        check_job(wish.around.where.job)
    while True:
        before = _newest(wish.run)
        said: list[str] = []

        def tell(line: str, wrong: bool, said: list[str] = said) -> None:
            # Only so much is kept as is needed to find out who is gone.
            if wrong and len(said) < 1000:
                said.append(line)
            say(line, wrong)

        with contextlib.ExitStack() as held:
            tasks = _tasks(wish, held)
            group = Group(tasks, wish.run.executor.peer_timeout, wish.ssh, tell, once=True)
            codes = group.wait(wish.elastic.changed if wish.elastic else None)
        code, early = _code(codes), _before_training(tasks, codes)
        if group.interrupted or (group.asked and early):
            return ExitCode.INTERRUPTED
        lost = _lost(wish, tasks, codes, said)
        folder = _newest(wish.run)
        if code == ExitCode.PEER_LOST:
            # The run says so itself from now on: its status would say "running" for ever.
            _mark(folder, lost, codes)
        following = None if group.asked else _following(wish, code, lost, stopped=group.changed and (early or code == ExitCode.STOPPED))
        if following is None:
            return code
        # Only a run that this launch has begun is gone on with, and never one that happens to be the newest of its name.
        begun = folder is not None and (folder.path != getattr(before, "path", None) or bool(wish.resume))
        where = f"from the last checkpoint of {folder.path}" if begun and folder is not None else "from the beginning"
        wish, why = following
        say(f"{why}{wish.count} process{'es go' if wish.count > 1 else ' goes'} on {where}", True)
        wish = replace(wish, resume=("--resume", str(folder.path)) if begun and folder is not None else ())


def _following(wish: Launch, code: int, lost: Sequence[int], *, stopped: bool) -> tuple[Launch, str] | None:
    """Return what is started after a group has ended, and why; None for nothing.

    Args:
        wish: what was started.
        code: of all together.
        lost: numbers of the processes that are gone.
        stopped: whether the group was stopped for others to go on.
    """
    if stopped and wish.elastic is not None:
        return replace(wish, plan=wish.elastic.plan), f"instead of {wish.count}: "
    if code == ExitCode.PEER_LOST and wish.restarted < wish.restarts:
        left = replace(_left(wish, lost), restarted=wish.restarted + 1)
        return left, f"restart {left.restarted} of {wish.restarts}: "
    return None


def _check(wish: Launch) -> None:
    """Refuse options for processes that are not started from here."""
    member = wish.around.where
    if wish.restarts and isinstance(member, Member):
        hint = "leave it out; --requeue, backoffLimit and the like start all anew, and --resume goes on"
        raise PeError(f"--restarts starts processes again, and {member.by} has started them", hint=hint)
    if wish.elastic is not None and (isinstance(member, Member) or wish.plan.way == "srun"):
        by = member.by if isinstance(member, Member) else "srun"
        raise PeError(f"--elastic starts other processes, and {by} starts them here", hint="leave it out, and resume with another number")
    if wish.elastic is not None and wish.run.output.checkpoint is None:
        hint = "output.checkpoint: {every: 1 epochs}, for example"
        raise PeError("--elastic goes on from a checkpoint, and the config writes none", at=wish.run.at_of("output"), hint=hint)
    if wish.mpiexec and wish.plan.way in ("srun", "meeting", "joined"):
        raise PeError(f"--mpiexec, and no mpiexec starts processes here: {wish.plan.why[1]}", hint="leave it out")


def _tasks(wish: Launch, held: contextlib.ExitStack) -> list[Task]:
    """Return the processes that are started from here; `held` keeps ports of servers."""
    if wish.plan.way == "one by one":
        return _served(wish, held)
    if wish.plan.way == "srun":
        return [Task("srun", _srun(wish), asks=signal.SIGUSR1)]  # it passes that on; at SIGTERM it ends all
    return [Task("mpiexec", _mpi(wish), launches=True)] if wish.plan.way == "mpiexec" else [Task("0", _train(wish))]


def described(wish: Launch) -> list[str]:
    """Return lines that say what would be started, and why.

    Raises:
        PeError: there is no launcher of MPI.
    """
    plan, member = wish.plan, wish.around.where
    lines = [f"# {line}" for line in (*plan.why, plan.crowd) if line]
    if plan.way == "meeting" and isinstance(member, Member):
        at = f"at {member.address}" if member.meet == "address" else f"by a file in {wish.run.output.dir}"
        part = "a server" if servers_of(wish.run) and member.rank >= member.size - servers_of(wish.run) else "its part"
        return [*lines, f"# process {member.rank} of {member.size} meets the others {at}, and runs {part}:", shlex.join(_train(wish))]
    if plan.way != "one by one":
        command = _srun(wish) if plan.way == "srun" else _mpi(wish) if plan.way == "mpiexec" else _train(wish)
        return [*lines, shlex.join(command)]
    with contextlib.ExitStack() as held:
        for task in _served(wish, held):
            told = " ".join(f"{name}={value}" for name, value in task.environment.items() if name != GROUP)
            lines.append(f"{f'{task.host}: ' if task.host else ''}{told} {shlex.join(task.command)}")
    # A group's word differs in every start and would be no use to copy.
    return lines


def _train(wish: Launch) -> list[str]:
    """Return the command of a process that trains: the config is for several, whether it says so or not."""
    several = wish.plan.way != "alone" and wish.run.executor.processes == 1
    return [*python(), "-m", "pe_cli", "train", *wish.arguments, *wish.resume, *(_SEVERAL if several else ())]


def _served(wish: Launch, held: contextlib.ExitStack) -> list[Task]:
    """Return trainers and servers; each is told its number and where the servers are. `held` keeps their ports."""
    assert wish.run.distributed is not None
    hosts = divided(wish.hosts, wish.count) if wish.hosts else [""] * wish.count
    trainers = wish.count - servers_of(wish.run)
    endpoints = wish.run.distributed.endpoints or _endpoints(hosts[trainers:], held)
    told, secret = {SIZE: str(wish.count), SERVERS: ",".join(endpoints), GROUP: secrets.token_hex(8)}, secrets.token_hex(32)
    names = [str(r) if r < trainers else f"server {r - trainers}" for r in range(wish.count)]
    # Servers come last in rank: trainers are numbered from 0.
    return [
        Task(names[r], _train(wish), {RANK: str(r), **told}, host, serves=r >= trainers, secret=secret) for r, host in enumerate(hosts)
    ]


def _endpoints(hosts: Sequence[str], held: contextlib.ExitStack) -> list[str]:
    """Return host:port of each server: free ports of this machine, which `held` keeps, or ports from `PORT` on."""
    if any(hosts):
        return [f"{host}:{PORT + list(hosts[:i]).count(host)}" for i, host in enumerate(hosts)]
    return [f"127.0.0.1:{held.enter_context(reserved('127.0.0.1')).getsockname()[1]}" for _ in hosts]


def _srun(wish: Launch) -> list[str]:
    """Return the command of the tasks of Slurm's, each of which is one of several that meet."""
    again = [*python(), "-m", "pe_cli", "launch", *wish.arguments, *wish.resume]
    return [shutil.which("srun") or "srun", *wish.plan.srun, "--kill-on-bad-exit=0", *again]


def _mpi(wish: Launch) -> list[str]:
    """Return the command of mpiexec, which starts the processes itself."""
    mpiexec = mpiexec_of(wish.mpiexec)
    of_mpich = library_of(mpiexec) == "mpich"
    options: list[str] = []
    if wish.hosts:
        listed = ",".join(f"{host.name}:{host.slots}" if host.slots else host.name for host in wish.hosts)
        names = ("-f", "--hostfile") if wish.hosts_file is not None else ("-hosts", "--host")
        options += [names[0] if of_mpich else names[1], str(wish.hosts_file or listed)]
        if list(wish.ssh) != ["ssh"]:
            options += ["-launcher", "ssh", "-launcher-exec", wish.ssh[0]] if of_mpich else ["--mca", "plm_rsh_agent", " ".join(wish.ssh)]
    elif of_mpich:
        # With automatic clean-up MPICH kills all when one ends with an error, before the others can say what they saw.
        options += ["-disable-auto-cleanup"]  # those that are left end by themselves, and say why
    return [mpiexec, *wish.mpiexec[1:], *options, "-n", str(wish.count), *_train(wish)]


def _code(codes: Sequence[int | None]) -> int:
    """Return the exit code of all: 0 or 75 where all have ended well, what the first one with an error of its own says, else 6."""
    own = [c for c in codes if c is not None and c > 0 and c not in (ExitCode.STOPPED, ExitCode.PEER_LOST) and c < 128]
    own = [c for c in own if c in list(ExitCode)]
    # A training that stopped as it was asked to is no failure, even if some processes ended before they heard of it.
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
    # With fewer processes than servers need there is nothing left to train.
    if count <= servers_of(wish.run) or count < 1 or not lost or wish.plan.way == "srun":
        return wish
    if not wish.hosts:
        return replace(wish, plan=replace(wish.plan, count=count))
    places = divided(wish.hosts, wish.count)
    kept = [host for r, host in enumerate(places) if r not in lost]
    hosts = [Host(name, kept.count(name)) for name in dict.fromkeys(kept)]
    return replace(wish, plan=replace(wish.plan, count=count, hosts=tuple(hosts)), hosts_file=None)


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
