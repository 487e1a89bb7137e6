"""A parameter server: takes gradients, runs the blocks that they are for, gives parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pe_cli.collectives.servers.frames import FrameError, Message
from pe_cli.collectives.servers.service import Answer, Request, Service
from pe_cli.core.errors import PeError
from pe_cli.execute.servers.host import Host
from pe_cli.execute.servers.requests import DONE, Server
from pe_cli.execute.servers.trainer import SLACK
from pe_cli.graph.servers.blocks import does
from pe_cli.graph.servers.modes import DistributedMode
from pe_cli.graph.servers.server_program import ROWS, backup
from pe_cli.program.ir import Operator, Program

Array = np.ndarray[Any, Any]


def serve(
    program: Program, host: Host, seconds: float, *, more: int = 0, also: Mapping[str, Answer] | None = None, **given: Any
) -> None:
    """Serve until the last trainer leaves.

    Args:
        program: a server's.
        host: values of parameters and optimizers, and what computes.
        seconds: that a trainer may be silent, and that it may take to start.
        more: bytes of a message beside the values that are served, at most.
        also: answers further kinds of messages.
        given: see `Service`.

    Raises:
        PeerError: a trainer is lost, or never comes.
        PeError: the port is in use, or an update fails.
    """
    listen = listen_of(program)
    # No message can be larger than all variables together, values and rows; a larger one is refused before it is read.
    sizes = [v.type.nbytes for v in program.vars.values() if v.type.known]
    most = 2 * sum(sizes) + SLACK + more
    kind = Sync if listen.attrs["distributed_mode"] == DistributedMode.SYNC else Async
    service = Service(listen.attrs["endpoint"], listen.attrs["Fanin"], seconds, most, **given)
    server = kind(program, listen, host, service, also or {})
    service.run(server.answer, server.left)


def listen_of(program: Program) -> Operator:
    """Return the op of a server's program that serves."""
    return next(op for op in program.top_ops if does(op) == "serve")


class Sync(Server):
    """Waits for the gradients of all trainers, then updates everything once."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        # The schedule's block comes with the updates, so that a step sees one learning rate for all parameters.
        self._all = self.part(sorted({*self._blocks.values(), *([self._schedule] if self._schedule > 0 else [])}))
        self._given: dict[int, dict[str, Array]] = {}
        self._names = self._expected()
        self._waiting: dict[int, Request] = {}

    @property
    def parts(self) -> list[Program]:
        """What is run."""
        return [self._all]

    def push(self, request: Request) -> None:
        """Keep gradients until all trainers have given theirs."""
        message = request.message
        if self._trainers == 1:  # an only trainer sends gradients under their own names
            message = Message(message.kind, message.facts, {self._of_first(name): a for name, a in message.arrays.items()})
        # Only kept here: to update before all have given would make the result depend on who was first.
        self._given.setdefault(request.trainer, {}).update(self.checked(message, request.trainer))
        request.reply(DONE)

    def _of_first(self, name: str) -> str:
        """Return what a gradient is called that the first trainer gives, or the numbers of its rows."""
        gradient, rows, more = name.partition(ROWS)
        return f"{gradient}.trainer_0{rows}{more}" if gradient in self._blocks else name

    def barrier(self, request: Request) -> None:
        """Update where all trainers have given their gradients."""
        self._waiting[request.trainer] = request
        self._update()

    def left(self) -> None:
        """A trainer has left: the others may have given all."""
        super().left()
        self._update()

    def _update(self) -> None:
        """Update where all trainers that are still there have given their gradients: the mean is over those."""
        present = self._service.present
        # Those that have left are not waited for, and nothing is done while somebody who is there still computes.
        if not self._waiting or not set(present) <= set(self._waiting):
            return
        fed = self._complete()
        self.run(self._all, fed)
        # Emptied before anybody is answered: who has an answer may send the gradients of the next step at once.
        waiting, self._waiting, self._given = self._waiting, {}, {}
        for each in waiting.values():
            each.reply(DONE)

    def _complete(self) -> dict[str, Array]:
        """Return all gradients; those of trainers that have left are 0, and the others count for more."""
        fed = {n: a for given in self._given.values() for n, a in given.items()}
        missing = self._trainers - len(self._waiting)
        if missing and self._trainers > 1:
            # Blocks divide by the number of all trainers, those that have left included.
            share = self._trainers / len(self._waiting)
            fed = {n: a if n.endswith(ROWS) else (a * a.dtype.type(share)) for n, a in fed.items()}
        for name in self._names:
            if name not in fed:
                trainer = int(name.rpartition(".trainer_")[2].partition("@")[0]) if ".trainer_" in name else 0
                if trainer in self._waiting and "empty" not in self._waiting[trainer].message.facts:
                    raise PeError(f"trainer {trainer} gave no '{name}'", hint="do all run the same script?")
                kind = self._known[name].type
                # As few rows as are ever padded to, so that a trainer without samples needs no plan of its own.
                fed[name] = np.zeros([8 if s == -1 else s for s in kind.shape], kind.numpy)
                if name.endswith(ROWS):
                    fed[name] += self._filler(name)
        return fed

    # Gradients that the blocks read but never write are those that trainers have to send.
    def _expected(self) -> list[str]:
        made: set[str] = set()
        found: dict[str, None] = {}
        for op in self._all.top_ops:
            found |= dict.fromkeys(n for n in op.input_names() if n not in made and self._is_gradient(n))
            made |= set(op.output_names())
        return list(found)

    def count(self, request: Request) -> None:
        """Do nothing: every update is a step."""
        request.reply(DONE)


class Async(Server):
    """Applies every gradient as it comes; with geo, what comes is a difference."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        # Each gradient has a program of its own, because gradients arrive one by one and each is applied at once.
        self._parts = {name: self.part([number]) for name, number in self._blocks.items()}
        self._rates = self.part([self._schedule]) if self._schedule > 0 else None
        self._steps: dict[str, int] = {}
        self._taken: dict[str, Array] = {}
        self._locals = {name: self._take_out_reference(part) for name, part in self._parts.items()}

    @property
    def parts(self) -> list[Program]:
        """What is run."""
        return [*self._parts.values(), *([self._rates] if self._rates is not None else [])]

    def _take_out_reference(self, part: Program) -> tuple[str, list[str]] | None:
        """Take the op that chooses a trainer's value out of a program; return what it gives and reads."""
        block = part.main_block
        found = [op for op in block.ops if does(op) == "choose"]
        # The op is left to the host: which value it chooses depends on who asks, which no program can say.
        block.ops = [op for op in block.ops if does(op) != "choose"]
        return (found[0].outputs["Out"][0], found[0].inputs["X"]) if found else None

    def push(self, request: Request) -> None:
        """Apply gradients, one after the other."""
        # Before anybody has counted a step there is no rate yet.
        if self._rates is not None and not self._steps:
            self.run(self._rates, {})
        given = self.checked(request.message, request.trainer)
        for name in [n for n in given if n in self._blocks]:
            fed = {n: given[n] for n in (name, name + ROWS) if n in given}
            reference = self._locals[name]
            if reference:
                local, backups = reference
                mine = backups[request.trainer]
                # Before a trainer has taken anything, the first values are what it computes with.
                fed[local] = self._taken[mine] if mine in self._taken else self._host.read(mine)
            self.run(self._parts[name], fed)
        request.reply(DONE)

    def barrier(self, request: Request) -> None:
        """Do nothing: nobody waits for others."""
        request.reply(DONE)

    def count(self, request: Request) -> None:
        """Note that a trainer has done a step, and make the learning rate of all steps together.

        Raises:
            FrameError: no such counter.
        """
        name = request.message.text("name")
        ending = f".trainer_{request.trainer}"
        if self._rates is None or name not in self._known or not name.endswith(ending):
            raise FrameError(f"trainer {request.trainer} counts '{name}', which is no counter of this server")
        self._steps[name] = self._steps.get(name, 0) + 1
        self._host.write(name, np.full(self._known[name].type.shape, self._steps[name], self._known[name].type.numpy))
        self.run(self._rates, {})
        request.reply(DONE)

    def loaded(self, name: str, value: Array) -> None:
        """Begin to count where a counter was loaded: as if each trainer had done so many steps, or the first one where all steps add up."""
        rates = self._rates.top_ops if self._rates is not None else ()
        # A mean over counters follows their sum: then every counter is the whole count, and not a part of it.
        mean = sum(name in op.output_names() for op in rates) > 1  # what follows the sum
        for i in range(self._trainers):
            counter = f"{name}.trainer_{i}"
            if counter in self._known and self._host.has_value(counter):
                self._steps[counter] = int(value.ravel()[0]) if mean or i == 0 else 0
                self._host.write(counter, np.full_like(self._host.read(counter), self._steps[counter]))

    def took(self, name: str, trainer: int, value: Array) -> None:
        """Keep what a trainer has taken, where gradients are corrected by that."""
        if backup(name, trainer) in self._known:
            self._taken[backup(name, trainer)] = value
