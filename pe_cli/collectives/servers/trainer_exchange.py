"""An exchange between trainers through their first server: each sends one message and receives those of all."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pe_cli.collectives.launcher_environment import RANK
from pe_cli.collectives.process_supervisor import leave_launcher
from pe_cli.collectives.protocol import Communicator, Failure, PeerError
from pe_cli.collectives.servers.client import Servers, failure_of
from pe_cli.collectives.servers.frames import FrameError, Message
from pe_cli.collectives.servers.service import Request, Service
from pe_cli.kernels.math.tree_sum import fold

Array = np.ndarray[Any, Any]


class Hub:
    """The server's end.

    Args:
        service: knows which trainers are there.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._waiting: dict[int, Request] = {}
        self._done: dict[int, int] = {}
        self._due: dict[str, int] = {}

    def gather(self, request: Request) -> None:
        """Keep a message until there is one of every trainer.

        Raises:
            FrameError: there is none in the request.
        """
        message = request.message.arrays.get("message")
        if message is None or message.dtype != np.uint8 or message.ndim != 1:
            raise FrameError(f"trainer {request.trainer} sent no message for the others")
        self._waiting[request.trainer] = request
        self.look()

    def look(self) -> None:
        """Answer where every trainer that is still there has sent one."""
        if self._waiting and set(self._service.present) <= set(self._waiting):
            waiting, self._waiting = self._waiting, {}
            found = {str(trainer): each.message.arrays["message"] for trainer, each in waiting.items()}
            for each in waiting.values():
                each.reply(Message("values", {}, found))

    def post(self, request: Request) -> None:
        """Note how many steps a trainer has done and what it wants, and answer after how many all do it.

        A trainer does one more step than it has told of, at most: so all can still do what is due after one more than any has told of.
        """
        self._done[request.trainer] = request.message.number("done")
        last = max(self._done.values())
        for wish in request.message.names("wishes"):
            if self._due.get(wish, 0) < request.message.number("done"):  # a wish of before has been done
                # No trainer is further than that, so that all can still do it after the same step.
                self._due[wish] = last + 1
        request.reply(Message("values", self._due))

    @staticmethod
    def fail(request: Request) -> None:
        """End, as a trainer has ended.

        Raises:
            PeerError: with what it said.
        """
        raise PeerError.ended(request.trainer, failure_of(request.message))


class HubPeers:
    """A `Communicator` of trainers over their servers, which add gradients up: it is not `Summing`.

    Args:
        servers: connections.
        hub: host:port of the server that answers.
        rank: number of this trainer.
        size: trainers.
        launcher: trainers and servers as MPI has started them; None where it has not.
    """

    def __init__(self, servers: Servers, hub: str, rank: int, size: int, launcher: Communicator | None = None) -> None:
        self._launcher = launcher
        self.rank, self.size = rank, size
        self.doing = "at the start"
        self._servers, self._hub = servers, hub
        self._failed = False
        self._first: tuple[int, Failure] | None = None  # who has told the first server that it ends, before all others

    @property
    def advice(self) -> str:
        """Hint of the message of a lost process."""
        return self._servers.advice

    @advice.setter
    def advice(self, text: str) -> None:
        self._servers.advice = text

    def gather(self, message: bytes) -> list[bytes]:
        """Give every trainer a message; see `Communicator`.

        Raises:
            PeerError: a server is lost, or another trainer has left.
        """
        asked = Message("gather", {}, {"message": np.frombuffer(message, np.uint8)})
        found = self._servers.ask({self._hub: asked}, self.doing)[self._hub].arrays
        missing = [r for r in range(self.size) if str(r) not in found]
        if missing:
            raise PeerError(f"process {missing[0]} of {self.size} has left, {self.doing}", hint=self.advice)
        return [found[str(r)].tobytes() for r in range(self.size)]

    def post(self, done: int, wishes: Sequence[str]) -> Mapping[str, Any]:
        """Tell how many steps this trainer has done, without waiting for others.

        Args:
            done: steps.
            wishes: what all should do together.

        Returns:
            What somebody has wished for -> after how many steps all do it.

        Raises:
            PeerError: a server is lost, or another trainer has ended.
        """
        asked = Message("post", {"done": done, "wishes": list(wishes)})
        return self._servers.ask({self._hub: asked}, self.doing)[self._hub].facts

    def total(self, values: Array) -> Array:
        """Return the sum of a small array over all trainers; see `Communicator`."""
        told = [np.frombuffer(message, values.dtype) for message in self.gather(values.tobytes())]
        return np.asarray(fold(self.size, dict(enumerate(told))))

    def fail(self, failure: Failure) -> None:
        """Tell servers why this process ends, which tell the other trainers; waits for the first server's word on who speaks."""
        if self._failed:
            return
        self._failed = True
        self._first = self._servers.fail(failure, self._hub)

    def take_leave(self) -> bool:
        """Let the others go on when this process ends, as `pe launch` does anyway; see `Communicator`."""
        if self._launcher is not None:
            return self._launcher.take_leave()
        return leave_launcher() or RANK in os.environ

    def abort(self, code: int) -> None:
        """End all that MPI has started; else servers tell the others, and `pe launch` ends what is left."""
        if self._launcher is not None:
            self._launcher.abort(code)

    def failures(self) -> Mapping[int, Failure]:
        """Return why all end: the first server decides, by who has told it first, and each trainer knows no more; see `Communicator`."""
        if self._first is None:
            return {}
        rank, failure = self._first
        return {r: replace(failure, met=r == rank) for r in range(self.size)}

    def close(self) -> None:
        """Wait for all, then leave the servers."""
        self.gather(b"")
        self._servers.leave()
        if self._launcher is not None:
            self._launcher.close()
        else:
            leave_launcher()
