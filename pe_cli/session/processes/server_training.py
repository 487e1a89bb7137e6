"""Training with parameter servers: divides the programs, reads and writes values that servers hold, and runs a server."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.build.build import Built
from pe_cli.collectives.protocol import PeerError
from pe_cli.collectives.servers.client import reach
from pe_cli.collectives.servers.frames import Message
from pe_cli.collectives.servers.service import Request
from pe_cli.config.sections.distributed import Geo
from pe_cli.config.spec import RunSpec
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.signals import deaf
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.execute.servers.local_updates import LocalUpdates, Shared
from pe_cli.execute.servers.requests import DONE
from pe_cli.execute.servers.scope_values import ScopeHost, ServerExecutor
from pe_cli.execute.servers.server import serve
from pe_cli.execute.servers.trainer import SLACK
from pe_cli.execute.startup import run_startup
from pe_cli.graph.servers.block_dispatch import HashName, RoundRobin
from pe_cli.graph.servers.modes import DistributedMode
from pe_cli.graph.servers.program_division import Division, Terms
from pe_cli.graph.servers.server_program import Kept
from pe_cli.graph.servers.trainer_program import Job as Roles
from pe_cli.io.run_folder import mark_failed
from pe_cli.io.table_pieces import Pieces, Table, Value, room
from pe_cli.program.epoch_attributes import count_epochs
from pe_cli.program.ir import Program
from pe_cli.session.processes.peer_group import LINGER
from pe_cli.session.processes.process_group import ProcessGroup
from pe_cli.session.processes.server_roles import FIRST, REMEDY, ServerGroup, ServerRole, TrainerGroup
from pe_cli.session.processes.sharded_tables import Reader, Writer, chunks, fill, read_by_servers, save_pieces
from pe_cli.session.training.variable_values import COPY, Values

Array = np.ndarray[Any, Any]
#: Bytes of a variable from which on a checkpoint's copy of it is in a file.
MAPPED = 1 << 26
_DISPATCHERS = {"RoundRobin": RoundRobin, "HashName": HashName}


def terms_of(run: RunSpec) -> Terms:
    """Return how a run file wants its training divided."""
    section = run.distributed
    assert section is not None, "there are servers"
    modes = {"async": DistributedMode.ASYNC, "half_async": DistributedMode.HALF_ASYNC}
    mode = DistributedMode.GEO if isinstance(section.sync, Geo) else DistributedMode.SYNC if section.sync is True else modes[section.sync]
    return Terms(mode, section.min_block_size, section.slice_var_up or mode == DistributedMode.GEO, _DISPATCHERS[section.split_method])


def divide(built: Built, run: RunSpec, rank: int, trainers: int, endpoints: list[str]) -> Division:
    """Return the programs of trainers and servers.

    Args:
        built: programs of one process.
        run: says how.
        rank: of the trainer.
        trainers: how many there are.
        endpoints: host:port of every server.

    Raises:
        PeError: parameters are released while training goes on, an update belongs to no single parameter, or rows that trainers
            look up are to be averaged.
    """
    assert built.train is not None
    # Servers have divided the parameters before the first step, and a group that joins later would be on none.
    if built.waiting:
        raise PeError("train.groups with until: not with parameter servers", at=run.at_of("train", "groups"), hint="leave until out")
    terms = terms_of(run)
    sync, half = terms.mode == DistributedMode.SYNC, terms.mode == DistributedMode.HALF_ASYNC
    shares = run.executor.type != "async"  # whose threads have batches of their own
    job = Roles(max(0, rank), trainers, endpoints, sync, cuts_when_sent=half, half_async=half, shares=shares, rows_alone=True)
    keep = [n for n in built.recorded.values() if n in built.train.vars]
    made = Division(built.train, built.startup, job, terms, keep)
    if built.average and made.remote:
        what = f"train.ema: table '{min(made.remote)}' has rows on servers alone, of which nobody could look up averages"
        raise PeError(what, at=run.at_of("train", "ema"), hint="is_sparse: false in its layer, or leave ema out")
    return made


def served_of(group: ProcessGroup, built: Built, run: RunSpec) -> ServerTraining | None:
    """Return what stands between a trainer and its servers; None where there are none.

    Raises:
        PeError: see `divide`.
    """
    if not isinstance(group, TrainerGroup) or built.train is None:
        return None
    return ServerTraining(group, built, run)


class ServerTraining:
    """A trainer's programs and values.

    Args:
        group: of trainers.
        built: programs of one process.
        run: what is trained.

    Attributes:
        built: with a startup program for what a trainer holds.
    """

    def __init__(self, group: TrainerGroup, built: Built, run: RunSpec) -> None:
        self.group, self.run = group, run
        role = group.role
        self.division = divide(built, run, role.rank, role.trainers, role.endpoints)
        needed = [v.name for v in built.eval.persistables()]
        self.built = replace(built, startup=self.division.trainer_startup(needed))
        self.kept = {endpoint: self.division.server(endpoint)[1] for endpoint in role.endpoints}
        most = sum(kept.type.nbytes for each in self.kept.values() for kept in each)
        # The largest answer must be allowed before anything is asked for.
        group.servers.allow(2 * most + SLACK + FIRST)
        self._hosts: list[ScopeHost] = []
        self._learned: LocalUpdates | None = None
        self._learning = threading.Lock()

    def values(self, scope: Scope) -> ServerValues:
        """Return the values of the run, here and on servers."""
        return ServerValues(self, scope)

    def executor(self, program: Program, scope: Scope, make: Callable[..., Executor], constants: Mapping[str, Array]) -> ServerExecutor:
        """Return what runs a trainer's share of training or evaluation; a thread of `type: async` trains on batches of its own."""
        # A seed that is the same for all would drop the same units of different samples.
        seed = self.run.executor.seed * self.group.size + self.group.rank  # each trainer draws for its own samples

        def made(part: Program, _: Scope, levels: Mapping[str, int]) -> Executor:
            return make(part, levels or None, seed=seed)

        host = ScopeHost(scope, made)
        trains = program is self.built.train
        mine = self.division.trainer if trains else self.division.evaluation(program)
        learned, ids = (partial(self.learned, host), self.division.lookups()) if trains and terms_of(self.run).is_geo else (None, {})
        own = trains and self.run.executor.type == "async"
        share = (0, 1) if own else (self.group.rank, self.group.size)
        return ServerExecutor(program, mine, host, self.group.servers, *share, constants, learned, ids)

    def count_epochs(self, steps: int) -> None:
        """Turn epochs into steps, here and on servers, before the first step.

        Args:
            steps: of an epoch.

        Raises:
            PeError: see `count_epochs` of programs.
        """
        count_epochs(self.division.trainer, steps)
        if self.group.leads:
            # Only after the answers may gradients come: rates of the first step depend on it.
            message = Message("epoch", {"steps": steps})
            self.group.servers.ask(dict.fromkeys(self.group.role.endpoints, message), "says how long an epoch is")
        self.group.texts({})  # nobody gives gradients before the servers know it

    def learned(self, host: ScopeHost) -> LocalUpdates:
        """With geo: return figures of this trainer's local updates since the first call."""
        section, found = self.run.distributed, self.division.found
        assert section is not None
        assert isinstance(section.sync, Geo)
        # Several threads of one trainer share what it has learned.
        with self._learning:  # no thread trains before the values are known that all begin with
            if self._learned is None:
                shared = [
                    Shared(name, [p.name for p in pieces], [p.rows for p in pieces], found.servers(name), pieces[0].sparse)
                    for name, pieces in found.pieces.items()
                ]
                self._learned = LocalUpdates(shared, self.group.size, int(section.sync), host, self.group.servers)
        return self._learned

    def meet(self) -> None:
        """Send to the servers what trainers have learned since they last did, so that the servers have all of it."""
        if self._learned is not None:
            self._learned.finish()


class ServerValues(Values):
    """The values of a trainer and of its servers.

    Args:
        served: the trainer.
        scope: of this process.
    """

    def __init__(self, served: ServerTraining, scope: Scope) -> None:
        super().__init__(served.built, scope, served.group)
        self._served = served

    @property
    def _elsewhere(self) -> set[str]:
        """Names of what servers alone have."""
        return {k.whole for each in self._served.kept.values() for k in each} - set(self.scope)

    def state(self) -> dict[str, Array]:
        """Return a copy of every variable of the training state; the first process takes them from the servers."""
        return self._saved(None)[0]

    def save(self, root: Path) -> tuple[dict[str, Array], Pieces | None]:
        """Return what `state` does without large tables, which servers write themselves where they see the folder."""
        return self._saved(root)

    def _saved(self, root: Path | None) -> tuple[dict[str, Array], Pieces | None]:
        pieces = None
        self._served.meet()
        # A barrier before and one behind: values of one moment belong to one checkpoint.
        self._team.texts({})  # nobody goes on before the values are taken
        known = {v.name for v in self._served.division.source.list_vars()}
        # Copies of other phases belong to programs that the servers do not know.
        found = {name: value for name, value in super().state().items() if name.partition(COPY)[0] in known}
        if self._team.leads:
            tables = self._large() if root is not None else {}
            pieces = save_pieces(self._served.group.servers, self._served.kept, tables, root) if root is not None and tables else None
            written = set(tables) if pieces else set()
            found = {name: value for name, value in found.items() if name not in written} | self._taken(but=written)
        self._team.texts({})
        return found, pieces

    def _large(self) -> dict[str, TensorType]:
        """Return the variables that servers have in pieces, and that are large."""
        facts = self._served.division.updates.facts
        names = {k.whole for each in self._served.kept.values() for k in each if k.begin is not None}
        return {name: facts[name].type for name in sorted(names) if facts[name].type.nbytes >= MAPPED}

    @contextlib.contextmanager
    def averaged(self) -> Iterator[None]:
        """Use what all trainers have learned so far inside."""
        self._served.meet()
        mode = terms_of(self._served.run).mode
        # Without waiting, a trainer's own copy is as old as its last answer: an evaluation takes the newest.
        if mode in (DistributedMode.ASYNC, DistributedMode.HALF_ASYNC):
            self._team.texts({})
            for name, value in self._taken(set(self._served.division.updates.parameters) & set(self.scope)).items():
                self.scope.set(name, value)
            self._team.texts({})
        with super().averaged():
            # Threads of this trainer go on with these values.
            yield

    def _averages(self) -> dict[str, Array]:
        """Return the moving averages, which servers have; they change nothing before all trainers give their next gradients."""
        average = self.built.average
        return average.values(self._taken({*average.averages.values(), *average.weights.values()}).__getitem__) if average else {}

    def _taken(self, names: Collection[str] | None = None, but: Collection[str] = ()) -> dict[str, Array]:
        """Return what servers have; of these names, or all but some."""
        found: dict[str, Array] = {}
        for endpoint, kept in self._served.kept.items():
            for each in (k for k in kept if (names is None or k.whole in names) and k.whole not in but):
                if each.begin is None:
                    if each.whole not in found:
                        found[each.whole] = self._asked(endpoint, each, None)
                    continue
                if each.whole not in found:
                    found[each.whole] = room(self._shape(each.whole), each.type.numpy, Path(self._served.run.output.dir), MAPPED)
                whole = found[each.whole]
                for begin, end in chunks(each):
                    # In pieces, because a table may be larger than a message.
                    whole[each.begin + begin : each.begin + end] = self._asked(endpoint, each, (begin, end))
        return found

    def _shape(self, name: str) -> tuple[int, ...]:
        return self._served.division.updates.facts[name].type.shape

    def _asked(self, endpoint: str, kept: Kept, rows: tuple[int, int] | None) -> Array:
        asked = Message("state", {}, {kept.name: np.asarray(rows or (), np.int64)})
        found = self._served.group.servers.ask({endpoint: asked}, "takes values")[endpoint].arrays.get(kept.name)
        # A server is trusted no more than a file.
        shape = kept.type.shape if rows is None else (rows[1] - rows[0], *kept.type.shape[1:])
        if found is None or found.shape != shape or found.dtype != kept.type.numpy:
            raise PeError(f"server {endpoint} gave something else than {kept.type} for '{kept.name}'", code=ExitCode.PEER_LOST)
        return found

    def restore(self, arrays: Mapping[str, Value], *, partial: bool = False) -> None:
        """Write what `state` returned, here and on servers, which read large tables themselves where they see them; see `Values.restore`.

        Raises:
            PeError: DATA; names, shapes or element types that do not fit.
        """
        elsewhere = self._elsewhere
        missing = sorted(n for n in elsewhere if n not in arrays)
        if missing and not partial:
            raise PeError(f"the checkpoint has no value for '{missing[0]}'", code=ExitCode.DATA, hint="it belongs to another model")
        super().restore({n: a for n, a in arrays.items() if n not in elsewhere}, partial=partial)
        if self._team.leads:
            tables = [a for a in arrays.values() if isinstance(a, Table)]
            names = {n for n, a in arrays.items() if isinstance(a, Table)}
            # Tables in files of rows are read by the servers that hold them, where they see the folder.
            done = read_by_servers(self._served.group.servers, self._served.kept, tables[0].folder, names) if tables else {}
            self.give(arrays, done)

    def share(self) -> None:
        """Give servers the values of this process, from which all begin."""
        if self._team.leads:
            # The first values of tables are drawn by one process, so that all begin with the same.
            self.give({name: self.scope.get(name) for name in self.scope})
        self._team.texts({})

    def change(self, name: str, value: Array) -> None:
        """Write a value here, and the first trainer on servers too: where they wait for all, before the next update."""
        super().change(name, value)
        if self._team.leads:
            self.give({name: value})

    def give(self, arrays: Mapping[str, Value], done: Mapping[str, Collection[str]] | None = None) -> None:
        """Write values to servers; each gets its own rows.

        Args:
            arrays: values by name.
            done: host:port -> what the server there has already.

        Raises:
            PeError: DATA; a shape or an element type that does not fit.
        """
        for endpoint, kept in self._served.kept.items():
            have = (done or {}).get(endpoint, ())
            for each in (k for k in kept if k.whole in arrays and k.whole not in have):
                value = arrays[each.whole]
                if value.dtype != each.type.numpy or value.shape != self._shape(each.whole):
                    text = f"'{each.whole}' is {value.dtype}{list(value.shape)} in the checkpoint and another type in the model"
                    raise PeError(text, code=ExitCode.DATA)
                if each.begin is None:
                    self._write(endpoint, each, None, np.asarray(value))
                else:
                    fill(each, value, partial(self._write, endpoint, each))

    def _write(self, endpoint: str, kept: Kept, begin: int | None, value: Array) -> None:
        message = Message("load", {} if begin is None else {kept.name: begin}, {kept.name: value})
        self._served.group.servers.ask({endpoint: message}, "gives values")


def run_server(run: RunSpec, built: Built, group: ServerGroup) -> None:
    """Be a parameter server until the last trainer leaves.

    Raises:
        PeerError: a trainer is lost, or never comes.
        PeError: the port is in use, or an update fails.
    """
    # A server that stops first would fail the last step of every trainer.
    deaf()  # trainers that are asked to stop need it for their last step and checkpoint
    role: ServerRole = group.role
    endpoint, seconds = role.endpoints[role.server], run.executor.peer_timeout
    division = divide(built, run, 0, role.trainers, role.endpoints)
    program, kept = division.server(endpoint)
    scope = Scope([Place("cpu", 0)])
    run_startup(division.server_startup(endpoint, program), scope, run.executor.seed)
    host = ScopeHost(scope, partial(_made, run))
    given: dict[str, Any] = {"key": role.key, "agrees": role.agrees, "remedy": REMEDY, "listener": role.listener}
    last = _Last()
    also = {"save": Writer(host, kept, role.server).save, "read": Reader(host, kept).read, "run": last.run}
    if role.group and role.server > 0:
        wait = f"executor.peer_timeout is how long servers wait for the first one, {seconds:g} seconds"
        # Servers of an earlier start may still hold the other ports: the first one tells whose they are.
        reach(role.endpoints[0], time.monotonic() + seconds, wait, role.key).close()  # of two groups with these ports one has all of them
    try:
        serve(program, host, seconds, more=FIRST, also=also, **given)
    except PeerError as error:
        last.lost(error)
        raise


class _Last:
    """Writes why a run has failed where all trainers are gone, and the launcher with them: those that are there do so themselves."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._launcher = os.getppid()

    def run(self, request: Request) -> None:
        """Note where the run is."""
        self._folder = request.message.folder("folder")
        request.reply(DONE)

    def lost(self, error: PeerError) -> None:
        """Write an error into the status of the run, where it says that it is running and nobody holds it."""
        until = time.monotonic() + LINGER
        # Its launcher has gone with the trainers: nobody else would mark the run as failed.
        while self._folder is not None and os.getppid() != self._launcher and time.monotonic() < until:
            if mark_failed(self._folder, error.message) is not None:
                return
            time.sleep(0.2)


def _made(run: RunSpec, program: Program, scope: Scope, levels: Mapping[str, int]) -> Executor:
    return Executor(program, scope, seed=run.executor.seed, levels=levels or None, execution=run.exec_strategy)
