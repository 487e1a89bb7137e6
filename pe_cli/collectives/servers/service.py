"""A parameter server's end of connections: one thread per trainer reads and writes, and a single one answers, so none sees half an update.

Who connects is a stranger until it has shown that it knows the group's secret (`admission.py`); before that no message of it is read.
"""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import field

from pe_cli.collectives.protocol import Failure, PeerError
from pe_cli.collectives.servers import frames
from pe_cli.collectives.servers.admission import Admission
from pe_cli.collectives.servers.client import LIFE, often
from pe_cli.collectives.servers.frames import FrameError, Message
from pe_cli.collectives.servers.secret import addresses
from pe_cli.core.errors import ExitCode, PeError, system_error
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.threads import Thread

#: Seconds in which who is let in has to say who it is, and connections that are let in beside those of trainers.
INTRODUCTION, OTHERS = 10.0, 32
#: Connections that wait to be taken, at most; systems allow fewer.
WAITING = 1 << 16


@dataclass(eq=False)
class Request:
    """A message of a trainer that waits for an answer.

    Args:
        trainer: number of the trainer.
        message: it.
    """

    trainer: int
    message: Message
    _answer: queue.SimpleQueue[Message] = field(default_factory=queue.SimpleQueue)

    def reply(self, message: Message) -> None:
        """Answer the request with a message."""
        self._answer.put(message)

    def wait(self, seconds: float) -> Message | None:
        """Return the answer, None where there is none in time."""
        try:
            return self._answer.get(timeout=seconds)
        except queue.Empty:
            return None


@dataclass(frozen=True)
class _Gone:
    """A trainer's connection has ended.

    Args:
        trainer: its number.
        why: a text for an error; empty where the trainer has left.
        code: of that error.
    """

    trainer: int
    why: str
    code: ExitCode = ExitCode.PEER_LOST


def listen(endpoint: str, until: float = 0.0) -> socket.socket:
    """Return a socket that listens at host:port; port 0 takes one that is free. Until a time by `time.monotonic` the name may be unknown.

    Raises:
        PeError: USAGE, the port is in use, or the host is not known or not of this machine.
    """
    kind, host, port = addresses(endpoint, until)[0]
    try:
        return socket.create_server((host, port), family=kind, backlog=WAITING)
    except OSError as error:
        hint = "another process uses the port" if error.errno == errno.EADDRINUSE else "the host has to be this machine"
        raise PeError(
            f"server {endpoint} cannot listen: {os.strerror(error.errno or 0).lower()}", hint=f"{hint}: look at distributed.endpoints",
            code=ExitCode.USAGE,
        ) from None  # fmt: skip


#: Answers a request now or later; raises PeError to end the server.
Answer = Callable[[Request], None]


class Service:
    """Listens for trainers.

    Args:
        endpoint: host:port of this server.
        trainers: number of them.
        seconds: that a trainer may be silent, and that it may take to start.
        most: bytes of a message, at most.
        key: of the group; see `group_key`.
        agrees: what trainers have to have alike, by what it is, so that it is known that they do the same; empty where nothing is compared.
        remedy: how to give trainers more time.
        listener: is bound already; None opens one at the endpoint.

    Raises:
        PeError: the port is in use, or the host is not of this machine.
    """

    def __init__(
        self,
        endpoint: str,
        trainers: int,
        seconds: float,
        most: int,
        *,
        key: bytes,
        agrees: Mapping[str, str] | None = None,
        remedy: str = "FLAGS_rpc_deadline more milliseconds",
        listener: socket.socket | None = None,
    ) -> None:
        self._agrees, self._remedy = dict(agrees or {}), remedy
        self._endpoint, self._trainers, self._seconds, self._most = endpoint, trainers, seconds, most
        self._events: queue.SimpleQueue[Request | _Gone] = queue.SimpleQueue()
        self._heard: dict[int, float] = {}
        self._left: set[int] = set()
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._admission = Admission(listener or listen(endpoint, time.monotonic() + seconds), endpoint, key, self._admit)

    @property
    def present(self) -> list[int]:
        """Numbers of the trainers that have not left, those that have not come yet too."""
        return [i for i in range(self._trainers) if i not in self._left]

    def run(self, answer: Answer, left: Callable[[], None]) -> None:
        """Serve until the last trainer leaves.

        Args:
            answer: called by this thread, for one request after the other.
            left: called by this thread after a trainer has left.

        Raises:
            PeerError: a trainer is lost, or never comes.
            PeError: what `answer` raises; trainers are told.
        """
        Thread(target=self._admission.run, name="listener", daemon=True).start()
        begun = time.monotonic()
        try:
            while len(self._left) < self._trainers:
                self._watch(begun)
                try:
                    event = self._events.get(timeout=often(self._seconds) / 2)
                except queue.Empty:
                    continue
                if isinstance(event, Request):
                    answer(event)
                # A trainer with other files is told so itself; the server ends too, as the right one may never come.
                elif event.code != ExitCode.PEER_LOST:
                    raise PeerError(event.why, hint="install the same on all machines, and give all the same files", code=event.code)
                elif event.why:
                    raise PeerError(f"server {self._endpoint}: trainer {event.trainer} is lost: {event.why}")
                else:
                    left()
        except BaseException as error:
            self._tell(error)
            raise
        finally:
            self._close()

    def _watch(self, begun: float) -> None:
        """Look for trainers that never came, or say nothing."""
        now = time.monotonic()
        with self._lock:
            heard = dict(self._heard)
        for i in self.present:
            silent = now - heard.get(i, begun)
            if silent > self._seconds:
                what = "says nothing" if i in heard else "has not come"
                hint = f"start it, or give {self._remedy}{'' if i in heard else self._unknown()}"
                raise PeerError(f"server {self._endpoint}: trainer {i} {what} for {silent:.0f} s", hint=hint)

    def _unknown(self) -> str:
        """Return what else may be why a trainer has not come."""
        count = self._admission.turned_away
        return f"; connections that did not show that they know the secret of this group: {count}" if count else ""

    def _tell(self, error: BaseException) -> None:
        """Tell all trainers why this server ends; takes at most a second."""
        said = error if isinstance(error, PeError) else system_error(error)
        failure = Failure.of(said) if said is not None else Failure(f"{type(error).__name__}: {error}", ExitCode.BUG)
        by = said.by if isinstance(said, PeerError) else None  # the trainer that says why all end
        facts = {"message": failure.message, "code": int(failure.code), "local": int(failure.local)}
        message = Message("error", facts if by is None else {**facts, "by": by})
        with self._lock:
            known = list(self._sockets)
        for each in known:
            with contextlib.suppress(OSError):
                each.settimeout(1.0)
                frames.write(each, message)
                each.shutdown(socket.SHUT_WR)
        time.sleep(LIFE / 2)  # what is closed with unread bytes takes its last message with it

    def _close(self) -> None:
        """End all connections; each is closed by its own thread, for its number may be another file's as soon as it is closed."""
        self._admission.close()
        with self._lock:
            for each in self._sockets:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    # --- threads ------------------------------------------------------------------------------------------------------

    def _admit(self, connection: socket.socket) -> bool:
        """Begin to serve a connection that knows the secret."""
        with self._lock:
            # Strangers who know the secret may not take all threads of this process.
            if len(self._sockets) >= self._trainers + OTHERS:
                return False
            self._sockets.add(connection)
        try:
            Thread(target=self._serve, args=(connection,), name="trainer", daemon=True).start()
        except (RuntimeError, MemoryError):
            self._forget(connection)
            return False
        return True

    def _forget(self, connection: socket.socket) -> None:
        with self._lock:
            self._sockets.discard(connection)
        connection.close()

    def _serve(self, connection: socket.socket) -> None:
        """Read and write the messages of a connection; whatever ends it ends here."""
        number, why = None, ""
        try:
            connection.settimeout(INTRODUCTION)
            number = self._introduced(connection)
            if number is not None:
                why = self._talk(connection, number)
        except (OSError, EOFError, PeError):
            pass  # who does not introduce itself is sent away
        except Exception as error:  # noqa: BLE001 - who trains is lost, whatever the error is
            why = f"a message of it met a bug of pe, please report it: {type(error).__name__}: {error}"
        finally:
            if number is not None:
                self._events.put(_Gone(number, why))
            self._forget(connection)

    def _introduced(self, trainer: socket.socket) -> int | None:
        message = frames.read(trainer, 0)
        if message.kind != "hello":
            return None
        number, problem = message.number("trainer"), ""
        with self._lock:
            if other := self._other(message.facts.get("agrees", {})):
                problem = f"trainer {number} has {other}"
                if len(self._heard) < self._trainers:  # else it is none of those that train here
                    self._events.put(_Gone(number, problem, ExitCode.USAGE))  # nobody could train with it
            elif not 0 <= number < self._trainers:
                problem = f"there are {self._trainers} trainers, and none has number {number}"
            elif number in self._heard or number in self._left:
                problem = f"there is a trainer {number} already"
            else:
                self._heard[number] = time.monotonic()
        if problem:
            frames.write(trainer, Message("error", {"message": problem, "code": int(ExitCode.USAGE)}))
            return None
        frames.write(trainer, Message("done"))
        return number

    def _other(self, said: object) -> str:
        """Return what a trainer has that is not as here, empty where there is nothing."""
        theirs = said if isinstance(said, Mapping) else {}
        for name, value in self._agrees.items():
            if theirs.get(name) != value:
                differs = f"{theirs.get(name, 'nothing')!s:.80}, not {value:.80}"
                shown = "give all the same files and options" if name == "config" else differs
                return f"another {name} than server {self._endpoint}: {shown}"
        return ""

    def _talk(self, trainer: socket.socket, number: int) -> str:
        """Answer a trainer until it leaves; return why it is lost, empty where it has left."""
        trainer.settimeout(self._seconds)
        try:
            while True:
                message = frames.read(trainer, self._most)
                self._note(number)
                if message.kind == "alive":
                    continue
                if message.kind == "leave":
                    frames.write(trainer, Message("done"))
                    with self._lock:
                        self._left.add(number)
                    return ""
                request = Request(number, message)
                # One thread answers all trainers: what it changes needs no locks, and requests have one order.
                self._events.put(request)
                # A trainer waits for others here. Signs of life in both directions tell long work from a lost machine.
                while (answer := request.wait(often(self._seconds))) is None:
                    frames.write(trainer, Message("wait"))  # fails where the trainer is gone
                    self._drain(trainer, number)
                frames.write(trainer, answer)
        except FrameError as error:
            return error.message
        except EOFError:
            return "it closed the connection without leaving"
        except TimeoutError:
            return f"it said nothing for {self._seconds:.0f} s"
        except OSError as error:
            return f"the connection broke: {error.strerror or error}"

    def _drain(self, trainer: socket.socket, number: int) -> None:
        """Read the signs of life of a trainer that waits for an answer; EOFError where it has closed the connection."""
        trainer.setblocking(False)
        try:
            # A look at the first byte without taking it: a message that has begun is then read whole, with a timeout.
            while trainer.recv(1, socket.MSG_PEEK):
                trainer.settimeout(self._seconds)
                if frames.read(trainer, 0).kind != "alive":
                    raise FrameError("a trainer asked again before it had an answer")
                self._note(number)
                trainer.setblocking(False)
            raise EOFError
        except BlockingIOError:
            pass
        finally:
            trainer.settimeout(self._seconds)

    def _note(self, number: int) -> None:
        with self._lock:
            self._heard[number] = time.monotonic()
