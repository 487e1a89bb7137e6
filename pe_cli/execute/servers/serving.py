"""A parameter server: takes gradients, runs the blocks that they are for, gives parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from pe_cli.collectives.servers.frames import FrameError, Message
from pe_cli.collectives.servers.hub import Hub
from pe_cli.collectives.servers.service import Answer, Request, Service
from pe_cli.core.errors import PeError
from pe_cli.execute.servers.host import Host
from pe_cli.execute.servers.training import SLACK
from pe_cli.graph.servers.blocks import does
from pe_cli.graph.servers.modes import DistributedMode
from pe_cli.graph.servers.server import ROWS, backup, program_of
from pe_cli.program.ir import Operator, Program, Role

Array = np.ndarray[Any, Any]
DONE = Message("done")


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
    sizes = [v.type.nbytes for v in program.global_block().vars.values() if v.type.known]
    most = 2 * sum(sizes) + SLACK + more
    kind = Sync if listen.attrs["distributed_mode"] == DistributedMode.SYNC else Async
    service = Service(listen.attrs["endpoint"], listen.attrs["Fanin"], seconds, most, **given)
    server = kind(program, listen, host, service, also or {})
    service.run(server.answer, server.left)


def listen_of(program: Program) -> Operator:
    """Return the op of a server's program that serves."""
    return next(op for op in program.global_block().ops if does(op) == "serve")


class Server(ABC):
    """What servers of all modes do.

    Args:
        program: the server's.
        listen: its `listen_and_serv`.
        host: values of parameters and optimizers, and what computes.
        service: knows which trainers are there.
        also: answers further kinds of messages.
    """

    def __init__(self, program: Program, listen: Operator, host: Host, service: Service, also: Mapping[str, Answer]) -> None:
        self._also = also
        self._program, self._host, self._service = program, host, service
        self._hub = Hub(service)
        self._trainers = int(listen.attrs["Fanin"])
        self._known = program.global_block().vars
        pairs = [text.rpartition(":") for text in listen.attrs["grad_to_block_id"]]
        self._blocks = {name: int(number) for name, _, number in pairs}
        self._sparse = {text.rpartition(":")[0] for text in listen.attrs["sparse_grad_to_param"]}
        self._schedule = int(listen.attrs["lr_decay_block_id"])
        self._parameters = {n for block in program.blocks[1:] for n in _updated(block)}

    def answer(self, request: Request) -> None:
        """Answer a trainer.

        Raises:
            FrameError: it asks for something else.
        """
        kind = request.message.kind
        takes = {
            "push": self.push, "barrier": self.barrier, "pull": self._pull, "rows": self._rows, "count": self.count,
            "gather": self._hub.gather, "post": self._hub.post, "fail": self._hub.fail, "state": self._state, "load": self._load,
            **self._also,
        }  # fmt: skip
        if kind not in takes:
            raise FrameError(f"trainer {request.trainer} sent message {kind}, which servers do not answer")
        takes[kind](request)

    @abstractmethod
    def push(self, request: Request) -> None:
        """Take gradients."""

    @abstractmethod
    def barrier(self, request: Request) -> None:
        """A trainer has given all gradients of a step."""

    @abstractmethod
    def count(self, request: Request) -> None:
        """A trainer has done a step, for schedules."""

    def left(self) -> None:
        """A trainer has left."""
        self._hub.look()

    def took(self, name: str, trainer: int, value: Array) -> None:  # noqa: B027 (only some look at it)
        """A trainer has taken a parameter."""

    def _is_gradient(self, name: str) -> bool:
        return any(name == g or name.startswith((f"{g}.trainer_", f"{g}{ROWS}", f"{g}@NEWGRAD@")) for g in self._blocks)

    def part(self, numbers: list[int]) -> Program:
        """Return some blocks as one program."""
        made = type(self._program)("update")
        made.random_seed = self._program.random_seed
        for number in numbers:
            other = program_of(self._program, self._program.blocks[number], lambda n: not self._is_gradient(n))
            made.global_block().vars.update(
                {n: v.for_block(made.global_block()) for n, v in other.global_block().vars.items() if n not in made.global_block().vars}
            )
            made.global_block().ops += other.global_block().ops
        return made

    def run(self, program: Program, fed: Mapping[str, Array]) -> None:
        """Run blocks."""
        if not program.global_block().ops:
            return
        used = {n for op in program.global_block().ops for n in op.input_names()}
        self._host.run(program, {n: a for n, a in fed.items() if n in used}, [])

    def checked(self, message: Message, trainer: int) -> dict[str, Array]:
        """Return the gradients of a message, each of its declared type; rows are padded to a power of two.

        Raises:
            FrameError: an unknown name, or another type.
        """
        found = {}
        for name, value in message.arrays.items():
            variable = self._known.get(name)
            if variable is None or not self._is_gradient(name):
                raise FrameError(f"trainer {trainer} sent '{name}', which is no gradient of this server")
            kind = variable.type
            fits = len(value.shape) == len(kind.shape) and all(s in (-1, n) for s, n in zip(kind.shape, value.shape, strict=True))
            if not fits or value.dtype != kind.numpy:
                got = f"{value.dtype}{list(value.shape)}"
                raise FrameError(f"trainer {trainer} sent {got} for '{name}', which is {kind}")
            found[name] = value
        for name in [n for n in found if n + ROWS in self._known]:
            if name + ROWS not in found or len(found[name + ROWS]) != len(found[name]):
                raise FrameError(f"trainer {trainer} sent '{name}' without the numbers of its rows")
            parameter = self._height(name)
            rows = found[name + ROWS]
            if rows.size and not 0 <= rows.min() <= rows.max() < parameter:
                raise FrameError(f"trainer {trainer} sent a row of '{name}' that is not in [0, {parameter})")
            found[name], found[name + ROWS] = padded(found[name], rows, self._filler(name))
        return found

    def _height(self, gradient: str) -> int:
        """Return the rows of the parameter that a row-sparse gradient is for."""
        number = self._blocks[gradient.partition(".trainer_")[0]]
        names = [n for n in _updated(self._program.blocks[number]) if n in self._known]
        return int(self._known[names[0]].type.shape[0])

    def _filler(self, gradient: str) -> int:
        """Return the row number of rows that are filled up: none, or one that gets 0 added."""
        return -1 if gradient.partition(".trainer_")[0] in self._sparse else 0

    def _pull(self, request: Request) -> None:
        found = {}
        for name in request.message.names("names"):
            self._check_parameter(name, request.trainer)
            found[name] = self._host.read(name)
            self.took(name, request.trainer, found[name])
        request.reply(Message("values", {}, found))

    def _rows(self, request: Request) -> None:
        found = {}
        for name, rows in request.message.arrays.items():
            self._check_parameter(name, request.trainer)
            height = self._known[name].type.shape[0]
            if rows.dtype != np.int64 or rows.ndim != 1 or (rows.size and not 0 <= rows.min() <= rows.max() < height):
                raise FrameError(f"trainer {request.trainer} asked for rows of '{name}' that are not in [0, {height})")
            found[name] = self._host.rows(name, rows)
        request.reply(Message("values", {}, found))

    def _state(self, request: Request) -> None:
        """Give rows of what lives between steps, of optimizers too: all where none are named."""
        found = {}
        for name, span in request.message.arrays.items():
            self._check_kept(name, request.trainer)
            rows = self._span(name, span, request.trainer)
            found[name] = self._host.read(name) if rows is None else self._host.rows(name, np.arange(*rows))
        request.reply(Message("values", {}, found))

    def _load(self, request: Request) -> None:
        """Take values: whole ones, or rows from the number in `facts` on."""
        for name, value in request.message.arrays.items():
            self._check_kept(name, request.trainer)
            kind, begin = self._known[name].type, request.message.facts.get(name)
            rows = len(value) if begin is not None and value.ndim else 0
            shape = kind.shape if begin is None else (rows, *kind.shape[1:])
            fits = value.shape == shape and value.dtype == kind.numpy
            if begin is not None:
                fits = fits and isinstance(begin, int) and 0 <= begin <= kind.shape[0] - rows
            if not fits:
                raise FrameError(f"trainer {request.trainer} loads {value.dtype}{list(value.shape)} as '{name}', which is {kind}")
            if begin is None:
                self._host.write(name, value)
            else:
                self._host.put(name, begin, value)
            self.loaded(name, value)
        request.reply(DONE)

    def loaded(self, name: str, value: Array) -> None:  # noqa: B027 (only some look at it)
        """A value was loaded."""

    def _check_kept(self, name: str, trainer: int) -> None:
        variable = self._known.get(name)
        if variable is None or not variable.persistable or self._is_gradient(name) or not self._host.has_value(name):
            raise FrameError(f"trainer {trainer} asked for '{name}', which this server does not keep")

    def _span(self, name: str, span: Array, trainer: int) -> tuple[int, int] | None:
        """Return the first row that is asked for and the one behind the last; None for all."""
        if not span.size:
            return None
        height = (self._known[name].type.shape or (0,))[0]
        if span.dtype != np.int64 or span.shape != (2,) or not 0 <= span[0] <= span[1] <= height:
            raise FrameError(f"trainer {trainer} asked for rows of '{name}' that are not in [0, {height}]")
        return int(span[0]), int(span[1])

    def _check_parameter(self, name: str, trainer: int) -> None:
        if name not in self._parameters:
            raise FrameError(f"trainer {trainer} asked for '{name}', which is no parameter of this server")


class Sync(Server):
    """Waits for the gradients of all trainers, then updates everything once."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._all = self.part(sorted({*self._blocks.values(), *([self._schedule] if self._schedule > 0 else [])}))
        self._given: dict[int, dict[str, Array]] = {}
        self._names = self._expected()
        self._waiting: dict[int, Request] = {}

    def push(self, request: Request) -> None:
        """Keep gradients until all trainers have given theirs."""
        message = request.message
        if self._trainers == 1:  # an only trainer sends gradients under their own names
            message = Message(message.kind, message.facts, {self._of_first(name): a for name, a in message.arrays.items()})
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
        if not self._waiting or not set(present) <= set(self._waiting):
            return
        fed = self._complete()
        self.run(self._all, fed)
        waiting, self._waiting, self._given = self._waiting, {}, {}
        for each in waiting.values():
            each.reply(DONE)

    def _complete(self) -> dict[str, Array]:
        """Return all gradients; those of trainers that have left are 0, and the others count for more."""
        fed = {n: a for given in self._given.values() for n, a in given.items()}
        missing = self._trainers - len(self._waiting)
        if missing and self._trainers > 1:
            share = self._trainers / len(self._waiting)
            fed = {n: a if n.endswith(ROWS) else (a * a.dtype.type(share)) for n, a in fed.items()}
        for name in self._names:
            if name not in fed:
                trainer = int(name.rpartition(".trainer_")[2].partition("@")[0]) if ".trainer_" in name else 0
                if trainer in self._waiting and "empty" not in self._waiting[trainer].message.facts:
                    raise PeError(f"trainer {trainer} gave no '{name}'", hint="do all run the same script?")
                kind = self._known[name].type
                fed[name] = np.zeros([8 if s == -1 else s for s in kind.shape], kind.numpy)
                if name.endswith(ROWS):
                    fed[name] += self._filler(name)
        return fed

    def _expected(self) -> list[str]:
        made: set[str] = set()
        found: dict[str, None] = {}
        for op in self._all.global_block().ops:
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
        self._parts = {name: self.part([number]) for name, number in self._blocks.items()}
        self._rates = self.part([self._schedule]) if self._schedule > 0 else None
        self._steps: dict[str, int] = {}
        self._taken: dict[str, Array] = {}
        self._locals = {name: self._take_out_reference(part) for name, part in self._parts.items()}

    def _take_out_reference(self, part: Program) -> tuple[str, list[str]] | None:
        """Take the op that chooses a trainer's value out of a program; return what it gives and reads."""
        block = part.global_block()
        found = [op for op in block.ops if does(op) == "choose"]
        block.ops = [op for op in block.ops if does(op) != "choose"]
        return (found[0].outputs["Out"][0], found[0].inputs["X"]) if found else None

    def push(self, request: Request) -> None:
        """Apply gradients, one after the other."""
        if self._rates is not None and not self._steps:
            self.run(self._rates, {})
        given = self.checked(request.message, request.trainer)
        for name in [n for n in given if n in self._blocks]:
            fed = {n: given[n] for n in (name, name + ROWS) if n in given}
            reference = self._locals[name]
            if reference:
                local, backups = reference
                mine = backups[request.trainer]
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
        """Begin to count where a counter was loaded: as if each trainer had done so many steps."""
        for i in range(self._trainers):
            counter = f"{name}.trainer_{i}"
            if counter in self._known and self._host.has_value(counter):
                self._steps[counter] = int(value.ravel()[0])
                self._host.write(counter, np.full_like(self._host.read(counter), self._steps[counter]))

    def took(self, name: str, trainer: int, value: Array) -> None:
        """Keep what a trainer has taken, where gradients are corrected by that."""
        if backup(name, trainer) in self._known:
            self._taken[backup(name, trainer)] = value


def padded(values: Array, rows: Array, filler: int) -> tuple[Array, Array]:
    """Return rows and their numbers with rows of 0 after them, up to a power of two: so there are fewer sizes to plan for."""
    count = len(rows)
    room = 1 << max(3, (count - 1).bit_length())
    more = np.zeros((room - count, *values.shape[1:]), values.dtype)
    return np.concatenate([values, more]), np.concatenate([rows, np.full(room - count, filler, rows.dtype)])


def _updated(block: Any) -> list[str]:
    """Return the parameters that a block updates: those of optimizers, or where it has none, what ops add to."""
    found = [op.outputs["ParamOut"][0] for op in block.ops if "ParamOut" in op.outputs]
    adding = [op for op in block.ops if op.role is not Role.LR_SCHED]
    return found or [n for op in adding for n in op.output_names() if n in op.input_names()]


__all__ = ["Server", "padded", "serve"]
