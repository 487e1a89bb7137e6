"""A training program divided between trainers and parameter servers."""

from __future__ import annotations

from collections.abc import Collection

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.graph.servers.block_dispatch import PSDispatcher, RoundRobin
from pe_cli.graph.servers.blocks import changed
from pe_cli.graph.servers.geo import geo_server
from pe_cli.graph.servers.modes import DistributedMode
from pe_cli.graph.servers.server_program import Kept, ServerProgram
from pe_cli.graph.servers.startup import server_startup
from pe_cli.graph.servers.trainer_program import Job, TrainerEdits, cut, deal, look_up_rows, remote_tables
from pe_cli.graph.servers.update_ops import Updates
from pe_cli.ops.define.traits import Table
from pe_cli.program.ir import Program
from pe_cli.program.prune import prune

#: Bytes of a parameter up to which its first values are drawn as a whole, so that they are those of a run without servers.
WHOLE = 1 << 26


@dataclass(frozen=True)
class Terms:
    """How a training is divided.

    Args:
        mode: a `DistributedMode`.
        smallest: elements of a block, at least.
        slices: cut parameters into blocks.
        dispatcher: which server gets which block.
    """

    mode: int = DistributedMode.SYNC
    smallest: int = 8192
    slices: bool = True
    dispatcher: type[PSDispatcher] = RoundRobin

    @property
    def is_geo(self) -> bool:
        """Whether trainers update by themselves, and send what they have learned."""
        return self.mode == DistributedMode.GEO


class Division:
    """Divides a training program.

    Args:
        train: with gradients and updates; not changed.
        startup: its startup program; not changed.
        job: trainers and servers.
        terms: see `Terms`.
        keep: learning rates that trainers make too, to record them.

    Attributes:
        source: the program that is divided.
        updates: of it.
        found: which server has what.
        trainer: the program of a trainer; with `geo` the whole one.

    Raises:
        PeError: there are no updates, or one that belongs to no single parameter.
    """

    def __init__(self, train: Program, startup: Program, job: Job, terms: Terms, keep: Collection[str] = ()) -> None:
        self._startup, self._job, self._terms = startup, job, terms
        self.source = train
        self.trainer = train.clone()
        self.updates = Updates(self.trainer)
        if not self.updates.parameters:
            # Pieces follow from what trainers and servers both know, so that no process has to be told.
            raise PeError("the training updates no parameter, so that servers would have nothing to do", hint="train without them")
        self.found = cut(self.updates, job, terms.smallest, terms.slices)
        if not terms.is_geo:
            self.found.remote |= remote_tables(train, self.updates)
        # Whole parameters are shuffled with the program's seed, which all processes know.
        deal(self.found, terms.dispatcher(job.endpoints), None if terms.slices else train.random_seed)
        if not terms.is_geo:
            edits = TrainerEdits(self.trainer, self.updates, job, self.found)
            edits.send()
            # Gradients are taken out of the trainer's program last, when all sends have found theirs.
            edits.leave_out(keep)

    @property
    def remote(self) -> set[str]:
        """Tables that only servers have."""
        return self.found.remote

    def evaluation(self, program: Program) -> Program:
        """Return a program without updates as trainers run it: rows of tables that only servers have are fetched."""
        if not self.remote:
            return program
        made = program.clone()
        for table in sorted(self.remote):
            look_up_rows(made.main_block, table, self.found, self._job)
        changed(made.main_block)
        return made

    def trainer_startup(self, others: Collection[str]) -> Program:
        """Return what gives a trainer its first values.

        Args:
            others: variables that other programs of the trainer need.
        """
        mine = {v.name for v in self.trainer.persistables()} | set(others)
        known = [v.name for v in self._startup.persistables() if v.name in mine - self.remote]
        return prune(self._startup, known)

    def lookups(self) -> dict[str, list[str]]:
        """Return the variables of the ids that rows of each table with row-sparse gradients are looked up by."""
        sparse = {u.name for u in self.updates.parameters.values() if u.rows}
        found: dict[str, list[str]] = {}
        for op in self.source.top_ops:
            if op.definition.has(Table) and op.inputs["W"][0] in sparse:
                ids = found.setdefault(op.inputs["W"][0], [])
                ids += [n for n in op.inputs["Ids"] if n not in ids]
        return found

    def server(self, endpoint: str) -> tuple[Program, list[Kept]]:
        """Return the program of a server, and what it keeps between steps."""
        if self._terms.is_geo:
            return geo_server(self.trainer, self._job, self.found, endpoint)
        seed = self.source.random_seed
        made = ServerProgram(self.updates, self._job, self.found, endpoint, self._terms.mode, False, seed)
        return made.program, made.kept

    def server_startup(self, endpoint: str, main: Program) -> Program:
        """Return what gives a server its first values: those of a run without servers, but of tables above `WHOLE` bytes."""
        return server_startup(self._startup, main, self.server(endpoint)[1], WHOLE)
