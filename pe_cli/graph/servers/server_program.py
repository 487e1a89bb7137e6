"""A server's programs: one block updates each piece of a parameter that the server has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType
from pe_cli.graph.servers.blocks import add, declare, inner_block
from pe_cli.graph.servers.slicing import Piece
from pe_cli.graph.servers.trainer_program import Cut, Job
from pe_cli.graph.servers.update_ops import Updated, Updates, copied, counts, renamed
from pe_cli.program.ir import Block, Program, Role

#: Numbers of rows of a row-sparse gradient: this after the gradient's name.
ROWS = "@ROWS"
#: Number of the trainer whose gradient is applied.
TRAINER_ID = "@TRAINER_ID@"


@dataclass(frozen=True)
class Kept:
    """A variable that a server keeps between steps.

    Args:
        name: of it, on the server.
        whole: name of the variable of the undivided program that it is, or is a piece of.
        type: of it, on the server.
        begin: first row, of a piece; None for a variable that every piece has whole, such as a counter.
    """

    name: str
    whole: str
    type: TensorType
    begin: int | None = None


class ServerProgram:
    """Makes the main program of a server.

    Args:
        updates: of the program that is trained.
        job: see `Job`.
        found: where the pieces are.
        endpoint: host:port of this server.
        mode: see `DistributedMode`.
        compensates: gradients are corrected by how far the parameter has moved; async only.
        seed: of random ops.

    Attributes:
        program: it.
        kept: what the server keeps between steps.
    """

    def __init__(
        self, updates: Updates, job: Job, found: Cut, endpoint: str, mode: int, compensates: bool, seed: int
    ) -> None:
        self._updates, self._job, self._compensates = updates, job, compensates
        self._pieces = found.at(endpoint)
        self.program = updates.kind()
        self.program.random_seed = seed
        self._block = self.program.main_block
        self._scratch = 0
        self.kept: list[Kept] = []
        given = self._declare_given()
        schedule = self._schedule() if updates.schedule else -1
        numbers, blocks = self._update_all()
        # A server without any block still serves, for a trainer waits for its answer.
        blocks = [b for b in (schedule,) if b > 0] + blocks or [inner_block(self.program, 0).index]  # one that does nothing
        attrs = {
            "endpoint": endpoint,
            "Fanin": job.trainers,
            "distributed_mode": mode,
            "optimize_blocks": blocks,
            "grad_to_block_id": [f"{name}:{number}" for name, number in numbers.items()],
            "sparse_grad_to_param": [f"{p.gradient}:{p.name}" for p in self._pieces if p.sparse and not self._decays(p)],
            "lr_decay_block_id": schedule,
            "pserver_id": job.endpoints.index(endpoint),
            "dc_asgd": compensates,
        }
        add(self._block, "listen_and_serv", {"X": given}, {}, attrs, role=Role.FORWARD)

    @property
    def _merges(self) -> bool:
        return self._job.sync

    def _decays(self, piece: Piece) -> bool:
        """Whether every row of a row-sparse gradient gets a decay, so that it becomes a whole one."""
        return piece.sparse and not self._job.rows_alone and self._updates.parameters[piece.parameter].decays

    def _declare_given(self) -> list[str]:
        """Declare parameters and gradients; return the names of those that trainers give."""
        for p in self._pieces:
            declare(self._block, p.name, p.type, persistable=True)
        given = []
        # Trainers send under names of their own, so that each one's gradient can be told from the others'.
        for p in self._pieces:
            declare(self._block, p.gradient, p.type, persistable=True)
            names = [f"{p.gradient}.trainer_{i}" for i in range(self._job.trainers)] if self._merges else [p.gradient]
            for name in names:
                declare(self._block, name, p.type)
            if p.sparse:
                for name in dict.fromkeys((p.gradient, *names)):
                    declare(self._block, name + ROWS, TensorType((-1,), "int64"))
                    # The number of rows differs from step to step.
                    self._block.vars[name].type = TensorType((-1, *p.type.shape[1:]), p.type.dtype)
            if self._compensates:
                for i in range(self._job.trainers):
                    declare(self._block, backup(p.name, i), p.type)
            given += names
        return given

    def _schedule(self) -> int:
        """Add the block that makes learning rates; return its number. Without `sync` the steps are those of all trainers together."""
        block = inner_block(self.program, 0)
        for op in self._updates.schedule:
            self._declare_used(op.input_names() + op.output_names(), {})
            made = copied(op)
            # Without sync each trainer counts its own steps, and the schedule follows all of them together.
            if counts(op) and not self._job.sync:
                counter = op.outputs["Out"][0]
                names = [f"{counter}.trainer_{i}" for i in range(self._job.trainers)]
                for name in names:
                    declare(self._block, name, self._updates.facts[counter].type, persistable=True)
                add(block, "sum", {"X": names}, {"Out": [counter]}, role=Role.LR_SCHED)
                if self._job.shares:
                    mean = {"scale": 1.0 / self._job.trainers}
                    add(block, "scale", {"X": [counter]}, {"Out": [counter]}, mean, role=Role.LR_SCHED)
            else:
                block.ops.append(made)
        return block.index

    def _declare_used(self, names: list[str], kinds: Mapping[str, TensorType]) -> None:
        for name in names:
            facts = self._updates.facts.get(name)
            if facts:
                declare(self._block, name, kinds.get(name, facts.type), persistable=True)
                self._keep(name, name, facts.type, None, facts.persistable)

    def _keep(self, name: str, whole: str, kind: TensorType, begin: int | None, lasts: bool = True) -> None:
        if lasts and all(k.name != name for k in self.kept):
            self.kept.append(Kept(name, whole, kind, begin))

    def _update_all(self) -> tuple[dict[str, int], list[int]]:
        """Add a block for each piece, in the order of parameters' names; return gradient -> block, and all blocks."""
        parent = len(self.program.blocks) - 1
        numbers, blocks = {}, []
        for _, u in sorted(self._updates.parameters.items()):
            mine = [p for p in self._pieces if p.parameter == u.name]
            for p in mine:
                block = inner_block(self.program, parent)
                self._update(block, u, p, f".block{p.index}" if len(mine) > 1 else "")
                numbers[p.gradient] = block.index
                blocks.append(block.index)
        return numbers, blocks

    def _update(self, block: Block, u: Updated, piece: Piece, mark: str) -> None:
        """Add what updates a piece: sum and mean over trainers, then the program's own ops.

        Args:
            mark: what the names of an optimizer's state end with, where several pieces of a parameter are here.
        """
        gradient = piece.gradient
        if self._decays(piece):
            gradient = self._spread(block, piece)
        elif self._merges:
            self._merge(block, piece)
        if self._compensates:
            gradient = self._compensate(block, piece)
        names = {u.name: piece.name, u.gradient: gradient}
        self._keep(piece.name, u.name, piece.type, None if piece.whole else piece.begin)
        if u.rows:
            names[u.rows] = piece.gradient + ROWS
        scheduled = {n for op in self._updates.schedule for n in op.output_names()}
        for op in u.ops:
            for name in (*op.input_names(), *op.output_names()):
                if name in names or name not in self._updates.facts:
                    continue
                facts = self._updates.facts[name]
                # State that is common to all parameters, such as the rate, exists once per server.
                shared = name in op.inputs.get("LearningRate", ()) or name in scheduled
                names[name] = name if shared else name + mark
                like = facts.type.shape == u.type.shape and not piece.whole
                # A piece of state where it has the parameter's shape; numbers such as Adam's powers exist for each piece.
                kind = TensorType(piece.type.shape, facts.type.dtype) if like else facts.type
                declare(self._block, names[name], kind, persistable=facts.persistable)
                self._keep(names[name], name, kind, piece.begin if like else None, facts.persistable)
            made = renamed(op, names)
            if self._decays(piece):
                # The gradient is whole by now, and the update reads all rows.
                made.inputs.pop("Rows", None)
            made.role_vars = [u.name, u.gradient + (self._job.suffix if piece.whole else "")]
            block.ops.append(made)

    def _spread(self, block: Block, piece: Piece) -> str:
        """Add mean of what trainers give, for every row of the piece, 0 where they have none; return its name."""
        parts = [f"{piece.gradient}.trainer_{i}" for i in range(self._job.trainers)] if self._merges else [piece.gradient]
        whole, rows = f"{piece.gradient}@NEWGRAD@", [n + ROWS for n in parts]
        zeros, values, numbers = (f"{piece.gradient}{end}" for end in ("@ZEROS", "@VALUES", "@NUMBERS"))
        declare(self._block, whole, piece.type)
        declare(self._block, zeros, piece.type)
        declare(self._block, values, TensorType((-1, *piece.type.shape[1:]), piece.type.dtype))
        declare(self._block, numbers, TensorType((-1,), "int64"))
        attrs = {"shape": list(piece.type.shape), "dtype": piece.type.dtype}
        add(block, "fill_constant", {}, {"Out": [zeros]}, attrs, role=Role.FORWARD)
        add(block, "concat", {"X": parts}, {"Out": [values]}, {"axis": 0}, role=Role.FORWARD)
        add(block, "concat", {"X": rows}, {"Out": [numbers]}, {"axis": 0}, role=Role.FORWARD)
        given = {"X": [zeros], "Ids": [numbers], "Updates": [values]}
        # Added up, not overwritten: several trainers may have touched the same row.
        add(block, "scatter", given, {"Out": [whole]}, {"overwrite": False}, role=Role.FORWARD)
        if self._merges:
            add(block, "scale", {"X": [whole]}, {"Out": [whole]}, {"scale": 1.0 / self._job.trainers}, role=Role.FORWARD)
        return whole

    def _merge(self, block: Block, piece: Piece) -> None:
        """Add sum and mean of what trainers give."""
        parts = [f"{piece.gradient}.trainer_{i}" for i in range(self._job.trainers)]
        if piece.sparse:
            given = {"Ids": [n + ROWS for n in parts], "X": parts}
            made = {"Out": [piece.gradient], "Rows": [piece.gradient + ROWS]}
            add(block, "merge_selected_rows", given, made, {"height": piece.rows}, role=Role.FORWARD)
        else:
            add(block, "sum", {"X": parts}, {"Out": [piece.gradient]}, role=Role.FORWARD)
        share = {"scale": 1.0 / self._job.trainers}
        add(block, "scale", {"X": [piece.gradient]}, {"Out": [piece.gradient]}, share, role=Role.FORWARD)

    def _compensate(self, block: Block, piece: Piece) -> str:
        """Add gradient + gradient^2 (parameter - the parameter as the trainer took it); return its name."""
        if piece.sparse:
            raise PeError(f"enable_dc_asgd corrects whole gradients, and that of '{piece.parameter}' is row-sparse")
        local, name = f"{piece.name}.local_bak", piece.gradient
        declare(block, TRAINER_ID, TensorType((1,), "int64"))
        declare(block, local, piece.type)
        backups = [backup(piece.name, i) for i in range(self._job.trainers)]
        add(block, "ref_by_trainer_id", {"X": backups, "TrainerId": [TRAINER_ID]}, {"Out": [local]}, role=Role.FORWARD)
        steps: list[tuple[str, str, str]] = [("sub", piece.name, local), ("mul", "", name), ("mul", "", name), ("add", name, "")]
        before = ""
        for kind, x, y in steps:
            out = f"tmp_dc_output_{self._scratch}"
            self._scratch += 1
            declare(block, out, piece.type)
            given = {"X": [x or before], "Y": [y or before]}
            add(block, f"elementwise_{kind}", given, {"Out": [out]}, role=Role.FORWARD)
            before = out
        return before


def backup(name: str, trainer: int) -> str:
    """Return the name of a parameter's value as a trainer took it last."""
    return f"{name}.trainer_{trainer}_bak"


def program_of(program: Program, block: Block, lasting: Any) -> Program:
    """Return a block of a server as a program that executors run.

    Args:
        program: the server's.
        block: one of its blocks.
        lasting: `f(name)`: whether a variable lives between steps; gradients do not.
    """
    made = type(program)(f"block {block.index}")
    made.random_seed = program.random_seed
    main = made.main_block
    known = {**program.vars, **block.vars}
    for op in block.ops:
        for name in (*op.input_names(), *op.output_names()):
            if name in known and name not in main.vars:
                declare(main, name, known[name].type, persistable=known[name].persistable and lasting(name))
    main.ops = [copied(op) for op in block.ops]
    return made
