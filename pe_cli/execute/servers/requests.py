"""What parameter servers of all modes share: they answer trainers' requests, and run blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from pe_cli.collectives.servers.frames import FrameError, Message
from pe_cli.collectives.servers.service import Answer, Request, Service
from pe_cli.collectives.servers.trainer_exchange import Hub
from pe_cli.execute.servers.host import Host
from pe_cli.graph.servers.server_program import ROWS, program_of
from pe_cli.program.epoch_attributes import count_epochs
from pe_cli.program.ir import Operator, Program, Role

Array = np.ndarray[Any, Any]
DONE = Message("done")


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
        self._known = program.vars
        pairs = [text.rpartition(":") for text in listen.attrs["grad_to_block_id"]]
        self._blocks = {name: int(number) for name, _, number in pairs}
        self._sparse = {text.rpartition(":")[0] for text in listen.attrs["sparse_grad_to_param"]}
        self._schedule = int(listen.attrs["lr_decay_block_id"])
        # Block 0 is what serves; each further one updates something.
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
            "epoch": self._lengthen,
            **self._also,
        }  # fmt: skip
        # A trainer is trusted no more than a file: everything it names or sends is checked before anything changes.
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

    @property
    @abstractmethod
    def parts(self) -> list[Program]:
        """What is run."""

    def _lengthen(self, request: Request) -> None:
        """Learn how many steps an epoch has, before the first one.

        Raises:
            FrameError: an epoch has no step.
            PeError: schedules that epochs are written in do not go with it.
        """
        steps = request.message.number("steps")
        if steps < 1:
            raise FrameError(f"trainer {request.trainer} has an epoch of {steps} steps")
        for part in self.parts:
            count_epochs(part, steps)
        request.reply(DONE)

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
            block = made.main_block
            # Several blocks share variables: the first declaration counts, and all are alike.
            block.vars.update({n: v.for_block(block) for n, v in other.vars.items() if n not in block.vars})
            block.ops += other.top_ops
        return made

    def run(self, program: Program, fed: Mapping[str, Array]) -> None:
        """Run blocks."""
        if not program.top_ops:
            return
        used = {n for op in program.top_ops for n in op.input_names()}
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
            # Every number of rows would be a batch shape with a plan of its own.
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
            # Values are large: a trainer that asks for its own rows alone keeps the answer below the limit of a message.
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
                fits = fits and len(kind.shape) > 0 and isinstance(begin, int) and 0 <= begin <= kind.shape[0] - rows
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


def padded(values: Array, rows: Array, filler: int) -> tuple[Array, Array]:
    """Return rows and their numbers with rows of 0 after them, up to a power of two: so there are fewer sizes to plan for."""
    # 8 at least, so that the many batches that touch few rows have one plan.
    count = len(rows)
    room = 1 << max(3, (count - 1).bit_length())
    more = np.zeros((room - count, *values.shape[1:]), values.dtype)
    return np.concatenate([values, more]), np.concatenate([rows, np.full(room - count, filler, rows.dtype)])


def _updated(block: Any) -> list[str]:
    """Return the parameters that a block updates: those of optimizers, or where it has none, what ops add to."""
    found = [op.outputs["ParamOut"][0] for op in block.ops if "ParamOut" in op.outputs]
    adding = [op for op in block.ops if op.role is not Role.LR_SCHED]
    return found or [n for op in adding for n in op.output_names() if n in op.input_names()]
