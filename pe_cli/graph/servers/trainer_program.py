"""A trainer's programs: gradients go to servers, parameters come from them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType
from pe_cli.graph.servers.blocks import add, changed, control, declare
from pe_cli.graph.servers.slicing import Piece, blocks_of
from pe_cli.graph.servers.update_ops import Updates
from pe_cli.ops.define.traits import Table
from pe_cli.program.ir import Block, Operator, Program, Role


@dataclass(frozen=True)
class Job:
    """What all processes of a training agree about, and which of them this is.

    Args:
        trainer_id: number of this trainer.
        trainers: number of trainers.
        endpoints: host:port of each server.
        sync: servers wait for all trainers.
        cuts_when_sent: gradients are cut when they are sent.
        half_async: a trainer waits for its own queue.
        shares: trainers share every batch, so that a step of each is one step of the training; else each step of any counts.
        rows_alone: a decay is for the rows of a row-sparse gradient alone, as in one process; else for all rows, as in the original.
    """

    trainer_id: int
    trainers: int
    endpoints: list[str]
    sync: bool
    cuts_when_sent: bool = False
    half_async: bool = False
    shares: bool = False
    rows_alone: bool = False

    @property
    def suffix(self) -> str:
        """What the names of gradients end with that this trainer sends."""
        return f".trainer_{self.trainer_id}" if self.sync and self.trainers > 1 else ""


@dataclass
class Cut:
    """The pieces of all parameters, and where they are.

    Args:
        pieces: of each parameter.
        server: of each piece, by its name.
        dealt: pieces in the order they were dealt in.
        remote: parameters of which trainers fetch rows only.
    """

    pieces: dict[str, list[Piece]]
    server: dict[str, str] = field(default_factory=dict)
    dealt: list[Piece] = field(default_factory=list)
    remote: set[str] = field(default_factory=set)

    def at(self, endpoint: str) -> list[Piece]:
        """Return the pieces that a server has."""
        return [p for p in self.dealt if self.server[p.name] == endpoint]

    def servers(self, parameter: str) -> list[str]:
        """Return the server of each piece of a parameter."""
        return [self.server[p.name] for p in self.pieces[parameter]]


def cut(updates: Updates, job: Job, min_block_size: int, slices: bool) -> Cut:
    """Cut the parameters that servers update, for `slices` where rows are updated apart, or for one block each."""
    pieces: dict[str, list[Piece]] = {}
    for u in updates.parameters.values():
        blocks = blocks_of(u.name, u.type.shape, len(job.endpoints) if slices and u.apart else 1, min_block_size)
        width = int(np.prod(u.type.shape[1:], dtype=np.int64))
        found, begin = [], 0
        for b in blocks:
            part = "" if len(blocks) == 1 else f".block{b.offset}"
            rows = b.size // width
            kind = u.type if len(blocks) == 1 else TensorType((rows, *u.type.shape[1:]), u.type.dtype)
            sent = u.gradient + part
            found.append(Piece(u.name, u.name + part, sent, sent + job.suffix, kind, b.offset, begin, not part, u.rows is not None))
            begin += rows
        pieces[u.name] = found
    return Cut(pieces)


def deal(found: Cut, dispatcher: Any, shuffle: int | None) -> None:
    """Give every piece to a server: in the order of names, or shuffled with a seed where parameters are not cut."""
    order = list(found.pieces.items())
    if shuffle is not None:
        # NumPy's legacy shuffle, because the original's order is part of how its checkpoints are laid out.
        np.random.RandomState(shuffle).shuffle(order)  # type: ignore[arg-type]  # the original's order
    dispatcher.reset()
    for _, pieces in order:
        for piece, endpoint in zip(pieces, dispatcher.dispatch(pieces), strict=True):
            found.server[piece.name] = endpoint
            found.dealt.append(piece)


class TrainerEdits:
    """Edits a trainer's main program.

    Args:
        program: edited in place.
        updates: of that program.
        job: see `Job`.
        found: where the pieces are.
    """

    def __init__(self, program: Program, updates: Updates, job: Job, found: Cut) -> None:
        self._program, self._block = program, program.main_block
        self._updates, self._job, self._cut = updates, job, found
        self._added: dict[str, list[Operator]] = {name: [] for name in found.pieces}

    def send(self) -> None:
        """Send every gradient right after the op that makes it, then say so, then receive parameters.

        Gradients that are clipped, or that a decay would have changed in place, are sent at the end, in the order of names.
        """
        block = self._block
        outs = {p: self._send_one(p) for p in dict.fromkeys(piece.parameter for piece in self._cut.dealt)}
        # Decay and clipping come after the gradient: those sends go behind them.
        last = [op for p in sorted(outs) if self._goes_last(p) for op in self._added[p]]
        block.ops[:] = [op for op in block.ops if not any(op is o for o in last)] + last
        waits = list(outs.values())
        if not self._job.sync:
            waits += self._send_counters()
        after = self._barrier(waits)
        self._receive({p: after if self._job.sync else outs[p] for p in outs}, after)

    def _goes_last(self, parameter: str) -> bool:
        u = self._updates.parameters[parameter]
        return (u.decays and not u.rows) or self._updates.is_clipped(u.gradient)

    def _send_one(self, parameter: str) -> str:
        """Send one gradient; return what the op gives."""
        block, job, pieces = self._block, self._job, self._cut.pieces[parameter]
        u = self._updates.parameters[parameter]
        whole = pieces[0].whole
        if whole and job.suffix:
            _rename(block, u.gradient, u.gradient + job.suffix)
        name = u.gradient + (job.suffix if whole else "")
        at = max(i for i, op in enumerate(block.ops) if name in op.output_names()) + 1
        # Sent right behind its maker, so that sending overlaps with the backward pass.
        rows = [u.rows] if u.rows else []
        if not whole:
            for p in pieces:
                declare(block, p.sent, p.type)
            if not job.cuts_when_sent:
                self._added[parameter].append(self._split(name, rows, pieces, at))
                at += 1
        whole_sent = job.cuts_when_sent
        attrs = {
            "epmap": self._cut.servers(parameter),
            "sections": [p.rows for p in pieces] if whole_sent else [],
            "send_varnames": [p.sent for p in pieces] if whole_sent else [],
        }
        out = control(block)
        given = {"X": [name] if whole_sent else [p.sent for p in pieces], "Rows": rows if whole_sent or whole else []}
        self._added[parameter].append(add(block, "send", given, {"Out": [out]}, attrs, role_vars=[parameter, name], index=at))
        return out

    def _split(self, name: str, rows: Sequence[str], pieces: Sequence[Piece], at: int) -> Operator:
        sent, sizes = [p.sent for p in pieces], [p.rows for p in pieces]
        if rows:
            given = {"X": [name], "Rows": rows}
            return add(self._block, "split_selected_rows", given, {"Out": sent}, {"height_sections": sizes}, index=at)
        return add(self._block, "split_byref", {"X": [name]}, {"Out": sent}, {"sections": sizes}, index=at)

    def _send_counters(self) -> list[str]:
        """Tell all servers that a step is done, for schedules; return what the ops give."""
        outs = []
        for counter in self._updates.counters():
            name = f"{counter}.trainer_{self._job.trainer_id}"
            declare(self._block, name, self._updates.facts[counter].type, persistable=True)
            attrs = {
                "epmap": self._job.endpoints,
                "send_varnames": [name] if self._job.cuts_when_sent else [],
                "merge_add": True,
                "use_send_handler": False,
            }
            outs.append(control(self._block))
            add(self._block, "send", {"X": [name]}, {"Out": outs[-1:]}, attrs, role_vars=[name, name])
        return outs

    def _barrier(self, waits: Sequence[str]) -> str:
        out, job = control(self._block), self._job
        half = job.cuts_when_sent and job.half_async
        if job.sync or half:
            attrs = {"endpoints": job.endpoints, "trainer_id": job.trainer_id, "half_async": half and not job.sync}
            add(self._block, "send_barrier", {"X": waits}, {"Out": [out]}, attrs)
        return out

    def _receive(self, after: Mapping[str, str], barrier: str) -> None:
        block, job, taken = self._block, self._job, []
        for parameter, pieces in self._cut.pieces.items():
            name = self._updates.parameters[parameter].gradient + (job.suffix if pieces[0].whole else "")
            for p in pieces:
                declare(block, p.name, p.type)
            if parameter in self._cut.remote:
                look_up_rows(block, parameter, self._cut, job)
                continue
            out = [parameter] if job.cuts_when_sent else [p.name for p in pieces]
            attrs = {
                "epmap": self._cut.servers(parameter),
                "recv_varnames": [p.name for p in pieces] if job.cuts_when_sent else [],
                "trainer_id": job.trainer_id,
            }
            add(block, "recv", {"X": [after[parameter]]}, {"Out": out}, attrs, role_vars=[parameter, name])
            taken += out
        if job.sync:
            attrs = {"endpoints": job.endpoints, "trainer_id": job.trainer_id}
            add(block, "fetch_barrier", {"X": [barrier]}, {"Out": taken}, attrs)
        if not job.cuts_when_sent:
            join(block, self._cut, Role.DIST, self._cut.remote)

    def leave_out(self, keep: Collection[str] = ()) -> None:
        """Remove updates, schedules and their state.

        Args:
            keep: learning rates that trainers make too, to record them.
        """
        block = self._block
        block.ops[:] = [op for op in block.ops if not self._updates.is_moved(op) or (keep and op.role is Role.LR_SCHED)]
        used = {n for op in block.ops for n in (*op.input_names(), *op.output_names())} | set(keep)
        for name in self._updates.left_out():
            if name not in used:
                block.vars.pop(name, None)
        changed(block)


def join(block: Block, found: Cut, role: Role, leave: Collection[str]) -> None:
    """Put the received blocks of each parameter together, but those of some."""
    for parameter, pieces in found.pieces.items():
        if not pieces[0].whole and parameter not in leave:
            add(block, "concat", {"X": [p.name for p in pieces]}, {"Out": [parameter]}, {"axis": 0}, role=role)


def remote_tables(program: Program, updates: Updates) -> set[str]:
    """Return the parameters with row-sparse gradients of which trainers need only the rows that they look up."""
    ops = program.top_ops
    tables = {op.inputs["W"][0] for op in ops if op.definition.has(Table) and op.attrs.get("is_sparse")}
    return {u.name for u in updates.parameters.values() if u.rows and u.name in tables}


def look_up_rows(block: Block, table: str, found: Cut, job: Job) -> None:
    """Replace all lookups of a table by one op that fetches their rows, as soon as the ids are there."""
    ops = [op for op in block.ops if op.definition.has(Table) and op.inputs["W"] == [table]]
    if not ops:
        return
    ids, outs = [op.inputs["Ids"][0] for op in ops], [op.outputs["Out"][0] for op in ops]
    # As soon as the last ids are there, and for all lookups at once: each round trip costs a step's time.
    at = max([0, *(i + 1 for i, op in enumerate(block.ops) if set(op.output_names()) & set(ids))])
    attrs = {
        "table_names": [p.name for p in found.pieces[table]],
        "height_sections": [p.rows for p in found.pieces[table]],
        "endpoints": found.servers(table),
        "trainer_id": job.trainer_id,
        "padding_idx": ops[0].attrs["padding_idx"],
        "lookup_table_version": ops[0].type,
    }
    add(block, "distributed_lookup_table", {"Ids": ids, "W": [table]}, {"Outputs": outs}, attrs, index=at)
    block.ops[:] = [op for op in block.ops if not any(op is o for o in ops)]


def _rename(block: Block, old: str, new: str) -> None:
    """Give a variable another name, in the role variables of ops, too."""
    block.rename_vars({old: new})
    for op in block.ops:
        op.role_vars = [new if n == old else n for n in op.role_vars]


def edit_startup(startup: Program, found: Cut, job: Job, leave: Collection[str]) -> None:
    """Let a trainer's startup program take first values from servers, after its own, but those of some parameters."""
    block = startup.main_block
    for parameter, pieces in found.pieces.items():
        if parameter in leave:
            continue
        for p in pieces:
            declare(block, p.name, p.type)
        attrs = {"epmap": found.servers(parameter), "trainer_id": job.trainer_id}
        add(block, "recv", {}, {"Out": [p.name for p in pieces]}, attrs)
    attrs = {"endpoints": job.endpoints, "trainer_id": job.trainer_id}
    add(block, "fetch_barrier", {}, {"Out": [control(block)]}, attrs)
    join(block, found, Role.FORWARD, leave)


def leave_out_of_startup(startup: Program, updates: Updates, found: Cut) -> None:
    """Remove first values of what only servers have; tables get a stand-in."""
    block = startup.main_block
    gone = set(updates.left_out()) | found.remote
    block.ops[:] = [op for op in block.ops if not set(op.output_names()) <= gone or not op.output_names()]
    for name in gone - found.remote:
        block.vars.pop(name, None)
    for name in sorted(found.remote):
        kind = updates.parameters[name].type
        add(block, "fake_init", {}, {"Out": [name]}, {"shape": list(kind.shape), "dtype": kind.dtype}, role=Role.FORWARD)
    changed(block)


def count_steps(startup: Program, updates: Updates, job: Job) -> None:
    """Give the counters of steps that trainers send their first values; a server's own begins that much lower."""
    block = startup.main_block
    for counter in updates.counters():
        kind = updates.facts[counter].type
        for op in block.ops:
            if op.outputs.get("Out") == [counter] and "value" in op.attrs:
                # One step of all trainers together brings the sum to the first value of a run without servers.
                op.attrs["value"] = float(-job.trainers)
        for i in range(job.trainers):
            name = f"{counter}.trainer_{i}"
            declare(block, name, kind, persistable=True)
            attrs = {"shape": list(kind.shape), "dtype": kind.dtype, "value": 1.0}
            add(block, "fill_constant", {}, {"Out": [name]}, attrs, role=Role.FORWARD)
