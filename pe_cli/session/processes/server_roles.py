"""Roles of processes with parameter servers: whether this one is a trainer or a server, and the addresses of the servers."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.collectives import hydra
from pe_cli.collectives.launcher_environment import GROUP, RANK, SERVERS, SIZE, started_by
from pe_cli.collectives.process_supervisor import BEGUN, leave_launcher, tell
from pe_cli.collectives.protocol import Communicator, Failure, PeerError
from pe_cli.collectives.servers.client import Servers
from pe_cli.collectives.servers.frames import Message
from pe_cli.collectives.servers.secret import group_key
from pe_cli.collectives.servers.service import listen
from pe_cli.collectives.servers.trainer_exchange import HubPeers
from pe_cli.config.resolved import resolved_yaml
from pe_cli.config.spec import RunSpec
from pe_cli.core.errors import ExitCode, PeError, system_error
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.limits import usable_cores
from pe_cli.execute.batch import StepResult
from pe_cli.execute.plan.thread_layout import Layout
from pe_cli.io import strict_json
from pe_cli.session.device_choice import Resources, resolve_places
from pe_cli.session.processes.agreement import machine_facts
from pe_cli.session.processes.peer_group import LINGER, PeerGroup
from pe_cli.session.processes.process_group import ProcessGroup
from pe_cli.session.training.hogwild_files import training_files, with_files

Array = np.ndarray[Any, Any]
#: How to give processes more time.
REMEDY = "executor.peer_timeout more seconds"
#: Bytes of the first answers of a server, at most.
FIRST = 1 << 28


@dataclass(frozen=True)
class ServerRole:
    """A place among the processes.

    Args:
        rank: of this process.
        size: processes.
        endpoints: host:port of every server; those are the last processes.
        listener: of a server that has its port already.
        agrees: what all have to have alike, by what it is.
        group: a word that no other start has; empty where the launcher says none.
        key: see `group_key`.
        launcher: the processes as MPI has started them; None where it has not.
    """

    rank: int
    size: int
    endpoints: list[str]
    listener: socket.socket | None = field(default=None, compare=False)
    agrees: Mapping[str, str] = field(default_factory=dict)
    group: str = ""
    key: bytes = field(default=b"", repr=False)
    launcher: Communicator | None = field(default=None, compare=False)

    @property
    def trainers(self) -> int:
        """How many processes train."""
        return self.size - len(self.endpoints)

    @property
    def server(self) -> int:
        """Number of the server that this process is; negative for a trainer."""
        return self.rank - self.trainers


class ServerGroup(ProcessGroup):
    """This process is a parameter server.

    Args:
        role: which.
    """

    def __init__(self, role: ServerRole) -> None:
        super().__init__()
        self.role = role
        self.rank, self.size = role.rank, role.size

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """End when the trainers do; where one is lost, all that MPI has started end. What is told to trainers is `Service`'s affair.

        Raises:
            SystemExit: a trainer says why all end.
        """
        launcher = self.role.launcher
        try:
            yield
        except (PeError, MemoryError, OSError) as raised:
            error = raised if isinstance(raised, PeError) else system_error(raised)
            if error is None:
                raise
            # What others failed by has no exit code of its own here.
            error.code = Failure.of(error).alone
            if launcher is not None and isinstance(error, PeerError) and error.code == ExitCode.PEER_LOST:
                # Trainers stand in a collective of MPI that this process will never join.
                atexit.register(launcher.abort, int(error.code))
                atexit.register(time.sleep, LINGER)
            elif launcher is not None:
                launcher.take_leave()
            # The one who failed has told why; this one ends quietly.
            if isinstance(error, PeerError) and error.told is not None:
                raise SystemExit(int(error.code)) from None
            raise error from None
        if launcher is not None:
            launcher.close()
        else:
            leave_launcher()

    def resources(self, run: RunSpec, best: Callable[[int], Layout] | None = None) -> Resources:
        """Return one device of the CPU."""
        del best
        return resolve_places("cpu", 1)


class TrainerGroup(PeerGroup):
    """This process is a trainer among others, with parameter servers.

    Args:
        role: which.
        run: what is trained.

    Raises:
        PeerError: a server does not listen in time, or wants another config.
    """

    shares = False

    def __init__(self, role: ServerRole, run: RunSpec) -> None:
        self.role = role
        seconds = run.executor.peer_timeout
        wait = f"executor.peer_timeout is how long trainers wait, {seconds:g} seconds"
        self.servers = Servers(role.endpoints, role.rank, seconds, FIRST, key=role.key, agrees=role.agrees, remedy=wait)
        # Trainers talk by way of the first server: they need no connection to each other.
        self._hub = HubPeers(self.servers, role.endpoints[0], role.rank, role.trainers, role.launcher)
        super().__init__(self._hub, None)
        self._waits = run.distributed is not None and run.distributed.sync is True
        self._done = 0

    def resources(self, run: RunSpec, best: Callable[[int], Layout] | None = None) -> Resources:
        """Return one device, with the cores of the machine divided by its processes as threads."""
        del best
        found, threads = resolve_places("cpu", 1), self.cores()
        if run.executor.devices != "auto" or run.executor.type == "async":
            return replace(found, text=self._text(1))
        return replace(found, threads=threads, text=self._text(threads))

    def cores(self) -> int:
        """Return this process's part of the cores of its machine; see `ProcessGroup`."""
        hosts = [facts["host"] for facts in self.texts({"host": socket.gethostname()})]
        # Processes of a machine share its cores.
        return max(1, usable_cores() // hosts.count(socket.gethostname()))

    def dealt(self, run: RunSpec) -> RunSpec:
        """Return a run with the training files that this process is dealt; see `ProcessGroup`.

        Raises:
            PeError: DATA, there are fewer files than processes.
        """
        spec = run.data.get("train")
        if run.executor.type != "async" or spec is None:
            return run
        files = training_files(run)
        if len(files) < self.size:
            text = f"data.train has {len(files)} files for {self.size} processes that train: some would never have any"
            raise PeError(text, at=spec.at, hint="start fewer processes, or cut the files into more", code=ExitCode.DATA)
        # Every n-th file, so that files of different sizes spread evenly.
        return with_files(run, files[self.rank :: self.size])

    def begin_step(self, step: int) -> None:
        """Say which step begins, from 0."""
        super().begin_step(step)
        self._done = step + 1

    def whole(self, mine: Mapping[str, Array]) -> dict[str, Array]:
        """Return samples of all processes, which each is given."""
        return dict(mine)

    def joined(self, mine: StepResult, means: Sequence[str] = ()) -> StepResult:
        """Return what a step gave on all trainers; see `ProcessGroup`."""
        del means
        message: dict[str, Array] = {f"value/{d}/{n}": a for d, part in enumerate(mine.values) for n, a in part.items()}
        message |= {f"share/{n}": np.asarray(mine.shares[n], np.int64) for n in dict.fromkeys(n for v in mine.values for n in v)}
        message["sizes"] = np.asarray(mine.sizes, np.int64)
        # One message for values, shares and wishes: each one is a round trip by way of the server.
        message["asked"] = np.asarray([self._stop.here, self.leads and self._period_over()], np.int64)
        values: list[Mapping[str, Array]] = []
        sizes: list[int] = []
        shares: dict[str, list[int]] = {}
        for arrays in self.arrays(message):
            asked, due = arrays["asked"].tolist()
            self._stop.agreed |= bool(asked)
            self._save_due = self._save_due or bool(due)
            sizes += arrays["sizes"].tolist()
            parts: list[dict[str, Array]] = [{} for _ in arrays["sizes"]]
            for key, array in arrays.items():
                kind, _, rest = key.partition("/")
                if kind == "share":
                    shares.setdefault(rest, []).extend(array.tolist())
                elif kind == "value":
                    device, _, name = rest.partition("/")
                    parts[int(device)][name] = array
            values += parts
        return StepResult(values, sizes, shares)

    def stepped(self, mine: StepResult, means: Sequence[str] = ()) -> StepResult:
        """Return what a step gave on all devices; where nobody waits for the others, on this one, and ask what all do after which step."""
        # Trainers that do not wait for each other agree on a step by what they have posted.
        if self._waits:
            return self.joined(mine, means)
        wishes = [name for name, wanted in (("stop", self._stop.here), ("save", self.leads and self._period_over())) if wanted]
        due = self._hub.post(self._done, wishes)
        # The step that all have agreed on: a stop that some take earlier would leave the others waiting.
        self._stop.agreed |= due.get("stop") == self._done
        self._save_due = self._save_due or due.get("save") == self._done
        return mine

    def heard(self, step: int) -> None:
        """Say how many steps this process has done, and hear whether one is asked to stop; see `ProcessGroup`."""
        self._stop.agreed |= "stop" in self._hub.post(step, ["stop"] if self._stop.here else [])

    def added(self, count: int) -> int:
        """Return the sum of a number over all trainers; see `ProcessGroup`."""
        found = self.texts({"count": count, "stop": self._stop.asked})
        self._stop.agreed |= any(bool(each["stop"]) for each in found)
        return sum(int(each["count"]) for each in found)

    def trains_in(self, folder: Path) -> None:
        """Tell overseer and first server where the run is: who kills the launcher kills all trainers; see `ProcessGroup`."""
        super().trains_in(folder)
        if self.leads:
            self.servers.ask({self.role.endpoints[0]: Message("run", {"folder": str(folder)})}, "says where the run is")

    def averaged(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Return metrics of training, the means over all trainers where each has its own."""
        if self._waits:
            return dict(numbers)
        found = self.texts(dict(numbers))
        names = dict.fromkeys([*numbers, *(name for each in found for name in each)])
        return {name: float(np.mean([float(each[name]) for each in found if name in each])) for name in names}

    def _end_all(self, code: ExitCode, says: bool) -> None:
        """End all that MPI has started; without it servers tell the others, and `pe launch` ends what is left."""
        if self.role.launcher is not None:
            super()._end_all(code, says)

    def again(self, folder: Path) -> str:
        """Return the command that goes on with a run."""
        return f"pe launch -n {self.role.size} --resume {folder}"

    def _text(self, threads: int) -> str:
        servers = len(self.role.endpoints)
        many = f"{threads} threads" if threads > 1 else "1 thread"
        return f"{many} in each of {self.size} trainer{'s'[: self.size > 1]}, with {servers} server{'s'[: servers > 1]}"


def choose_role(run: RunSpec) -> ProcessGroup:
    """Return the place of this process: that which `pe launch` gave it, or the one that its number in MPI means.

    Raises:
        PeError: there are too few processes, no MPI, no secret for servers that others can reach, or a server cannot be reached.
    """
    assert run.distributed is not None, "there are servers"
    servers = run.distributed.servers or len(run.distributed.endpoints or ())
    given = _launched(run, servers) or _met(run, servers)
    digest = hashlib.sha256(resolved_yaml(run, standalone=True).encode()).hexdigest()
    machine = {name: str(value) for name, value in machine_facts().items()}
    key = given.key or _key(run, given)
    role = replace(given, key=key, agrees={"number of processes": str(given.size), "config": digest, **machine})
    return ServerGroup(role) if role.server >= 0 else TrainerGroup(role, run)


def _key(run: RunSpec, role: ServerRole) -> bytes:
    """Return the key of a group whose secret the variable or the config says, or the user's file; see `group_key`."""
    assert run.distributed is not None
    named = run.distributed.secret
    file = None if named is None else run.path.parent / os.path.expanduser(named)  # noqa: PTH111 - Path's raises for no such user
    # An own key, or one that all processes derive from what they know together.
    try:
        return group_key(role.endpoints, role.group, file)
    except PeError as error:
        error.at = run.at_of("distributed", "secret" if named is not None else "endpoints")
        raise


def _check(size: int, servers: int, run: RunSpec) -> None:
    at = run.at_of("distributed", "servers")
    command = f"pe launch -n {servers + 2} {run.path}, or mpiexec -n {servers + 2} pe train {run.path}"
    if size == 1:
        raise PeError("distributed.mode: parameter_server needs several processes, and there is 1", at=at, hint=command)
    if size <= servers:
        many = f"{servers} servers" if servers > 1 else "1 server"
        raise PeError(f"of {size} processes {many} leave no trainer", at=at, hint=command)


def _launched(run: RunSpec, servers: int) -> ServerRole | None:
    """Return the seat that the environment says, without MPI; None where it does not."""
    assert run.distributed is not None
    # What a launcher has set counts before what MPI says.
    facts = os.environ
    if facts.get(RANK, "").isdigit() and facts.get(SIZE, "").isdigit():
        _check(int(facts[SIZE]), servers, run)
        endpoints = run.distributed.endpoints or facts.get(SERVERS, "").split(",")
        return ServerRole(int(facts[RANK]), int(facts[SIZE]), list(endpoints), group=facts.get(GROUP, ""))
    launcher = started_by(facts)
    if launcher is None or run.distributed.endpoints is None:
        return None
    _check(launcher.size, servers, run)
    tell(BEGUN, f"{run.executor.peer_timeout:g}")
    return ServerRole(launcher.rank, launcher.size, list(run.distributed.endpoints), group=launcher.group or hydra.job())


def _met(run: RunSpec, servers: int) -> ServerRole:
    """Return the seat by the number in MPI; servers tell all where they listen."""
    from pe_cli.collectives.mpi import MpiPeers

    peers = MpiPeers(run.executor.peer_timeout)
    _check(peers.size, servers, run)
    mine = peers.rank - (peers.size - servers)
    listener = None
    said: Mapping[str, object] = {"host": socket.gethostname(), "secret": secrets.token_hex(32)}
    found = _texts(peers, said)
    together = len({facts["host"] for facts in found}) == 1
    # The key is for connections over the network.
    key = hashlib.sha256(str(found[0]["secret"]).encode()).digest()  # MPI says it to nobody else
    if mine >= 0:
        host = "127.0.0.1" if together else _address()
        listener = listen(f"{host}:0")
        said = {"endpoint": f"{host}:{listener.getsockname()[1]}"}
    endpoints = [str(facts["endpoint"]) for facts in _texts(peers, said)[-servers:]]
    return ServerRole(peers.rank, peers.size, endpoints, listener, key=key, launcher=peers)


def _texts(peers: Communicator, said: Mapping[str, object]) -> list[Mapping[str, Any]]:
    found = [strict_json.loads(text) for text in peers.gather(strict_json.dumps(said).encode())]
    return [facts if isinstance(facts, Mapping) else {} for facts in found]


def _address() -> str:
    """Return the address by which other machines reach this one.

    Raises:
        PeError: the name of this machine has none.
    """
    name = socket.gethostname()
    hint = "give distributed.endpoints: host:port of every server, or use pe launch --hosts"
    try:
        found = socket.gethostbyname(name)
    except OSError as error:
        raise PeError(f"host {name} is not known: {error.strerror or error}", hint=hint) from None
    # Other machines would connect to themselves.
    if found.startswith("127."):
        raise PeError(f"host {name} is {found}, which other machines do not reach", hint=hint)
    return found
