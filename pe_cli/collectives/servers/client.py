"""A trainer's end of connections to parameter servers: every request has an answer within a time limit."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Iterable, Mapping, Sequence

from pe_cli.collectives.protocol import Failure, PeerError
from pe_cli.collectives.servers import frames
from pe_cli.collectives.servers.frames import FrameError, Message
from pe_cli.collectives.servers.handshake import introduce
from pe_cli.collectives.servers.secret import addresses
from pe_cli.core.errors import ExitCode
from pe_cli.core.threads import Thread

#: Seconds between two signs of life, at most, and between two attempts to connect.
LIFE, AGAIN = 1.0, 0.05
#: Seconds of an attempt to connect, how many attempts without an answer are as short, and seconds of later ones: a system that has no room
#: drops what comes, and says nothing, while one that is far away needs longer. Who is connected waits a while to be let in, and twice as
#: long the next time, up to the longest: the system may have let it wait for nothing.
FIRST, TIMES, LONGEST, WHILE = 0.1, 12, 2.0, 0.5
WAITING = "FLAGS_rpc_deadline is how long trainers wait, in milliseconds"


def often(seconds: float) -> float:
    """Return the seconds between two heartbeats, given the seconds of silence after which a peer counts as lost."""
    return min(LIFE, seconds / 4)


def reach(endpoint: str, until: float, remedy: str = WAITING, key: bytes | None = None) -> socket.socket:
    """Connect to a server, which may still be starting, or have no room at the moment.

    Args:
        endpoint: host:port.
        until: by `time.monotonic`.
        remedy: how to give it more time.
        key: of the group, which this process and the server show each other; None only looks whether something listens.

    Raises:
        PeError: USAGE, its host is not known.
        PeerError: it does not listen or answer in time; USAGE, what listens there is no server of this group.
    """
    begun, where, unanswered, patience = time.monotonic(), addresses(endpoint, until), 0, WHILE
    for again in itertools.count():
        made, what = None, "does not listen"
        try:
            left = max(until - time.monotonic(), AGAIN)
            made = socket.create_connection(where[again % len(where)][1:], min(FIRST if unanswered < TIMES else LONGEST, left))
            # Linux lets a connection to a free port of this machine meet itself.
            if made.getsockname() == made.getpeername():  # a port that nobody has was given to this very connection
                raise ConnectionRefusedError("nobody listens")
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            what = "listens, and lets nobody in"
            if key is not None:
                introduce(made, key, endpoint, time.monotonic() + min(patience, left))
        except FrameError as error:
            _close(made)
            raise PeerError(f"server {endpoint}: {error.message}", hint=error.hint, code=ExitCode.USAGE) from None
        except (OSError, EOFError) as error:
            unanswered += made is None and isinstance(error, TimeoutError)
            patience = min(2 * patience, LONGEST) if made is not None and isinstance(error, TimeoutError) else patience
            _close(made)
            if time.monotonic() + AGAIN > until:
                text = f"server {endpoint} {what} after {time.monotonic() - begun:.0f} s: {error}"
                raise PeerError(text, hint=f"start it, or look at where servers are; {remedy}") from None
            time.sleep(AGAIN)
        else:
            return made
    raise AssertionError("somebody is let in, or time is over")


def _close(made: socket.socket | None) -> None:
    if made is not None:
        made.close()


def failure_of(message: Message) -> Failure:
    """Return why a process ends, as a message says.

    Raises:
        FrameError: it does not.
    """
    code = message.number("code")
    known = ExitCode(code) if code in [c.value for c in ExitCode] else ExitCode.PEER_LOST
    return Failure(message.text("message"), known, local=bool(message.facts.get("local")))


def wait_for_servers(endpoints: Iterable[str], seconds: float, key: bytes | None = None) -> None:
    """Wait until all servers listen, and where the key of a group is given, until they let this process in.

    Raises:
        PeerError: one does not in time, or is of another group.
    """
    until = time.monotonic() + seconds
    for endpoint in endpoints:
        reach(endpoint, until, key=key).close()


class Servers:
    """The servers, as a trainer sees them.

    Args:
        endpoints: host:port of each.
        trainer: number of this trainer.
        seconds: that a server may be silent, and that it may take to start.
        most: bytes of an answer, at most.
        key: of the group; see `group_key`.
        agrees: what servers have to say, too; see `Service`.
        remedy: how to give servers more time.

    Attributes:
        advice: hint of errors; empty where there is none for all.

    Raises:
        PeerError: a server does not listen, or does not want this trainer.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        trainer: int,
        seconds: float,
        most: int,
        *,
        key: bytes,
        agrees: Mapping[str, str] | None = None,
        remedy: str = WAITING,
    ) -> None:
        self._trainer, self._seconds, self._most = trainer, seconds, most
        self._sockets: dict[str, socket.socket] = {}
        # Two locks: signs of life are written while another thread waits for an answer.
        self._writing, self._asking = threading.Lock(), threading.Lock()
        self._ended = threading.Event()
        self._met = False
        self._told: dict[str, tuple[int, Failure]] = {}  # by each server: which trainer was the first to tell it why it ends
        self.advice = ""
        until = time.monotonic() + seconds
        try:
            for endpoint in endpoints:
                self._sockets[endpoint] = reach(endpoint, until, remedy, key)
                self._sockets[endpoint].settimeout(seconds)
            hello = Message("hello", {"trainer": trainer, "agrees": dict(agrees or {})})
            self.ask(dict.fromkeys(endpoints, hello), "at the start")
            self._met = True
        except BaseException:
            self._drop()
            raise
        Thread(target=self._live, name="signs of life", daemon=True).start()

    def allow(self, most: int) -> None:
        """Raise the limit on the size of answers."""
        self._most = max(self._most, most)

    def ask(self, messages: Mapping[str, Message], doing: str) -> dict[str, Message]:
        """Send a message to each of some servers, then wait for all answers; one thread at a time.

        Args:
            messages: by host:port.
            doing: for the message of an error.

        Raises:
            PeerError: a server is lost, or has ended with an error of its own.
        """
        try:
            with self._asking:
                for endpoint, message in messages.items():
                    self._send(endpoint, message, doing)
                return {endpoint: self._answer(endpoint, doing) for endpoint in messages}
        except PeerError as error:
            error.hint = self.advice or error.hint
            raise

    def _send(self, endpoint: str, message: Message, doing: str) -> None:
        if self._ended.is_set() or endpoint not in self._sockets:
            raise PeerError(f"server {endpoint}: the connection is closed", hint="an executor that was closed trains no more")
        try:
            with self._writing:
                frames.write(self._sockets[endpoint], message)
        except OSError as error:
            self._last_words(endpoint, 1.0)
            raise self._lost(endpoint, doing, error) from None

    def _last_words(self, endpoint: str, seconds: float) -> None:
        """Raise what a server says before it closes the connection; wait for it so many seconds at most."""
        until = time.monotonic() + seconds
        with contextlib.suppress(OSError, EOFError, FrameError):
            while (left := until - time.monotonic()) > 0:
                self._sockets[endpoint].settimeout(left)
                self._raise_error(endpoint, frames.read(self._sockets[endpoint], self._most))

    def _answer(self, endpoint: str, doing: str) -> Message:
        while True:
            try:
                found = frames.read(self._sockets[endpoint], self._most)
            except FrameError as error:
                code = ExitCode.PEER_LOST if self._met else ExitCode.USAGE  # something else listens there
                raise PeerError(f"server {endpoint}: {error.message}", hint=error.hint, code=code) from None
            except (OSError, EOFError) as error:
                raise self._lost(endpoint, doing, error) from None
            self._raise_error(endpoint, found)
            if found.kind != "wait":
                return found

    def _raise_error(self, endpoint: str, found: Message) -> None:
        if found.kind != "error":
            return
        failure = failure_of(found)
        if "by" in found.facts:  # a trainer
            self._told[endpoint] = found.number("by"), failure
            raise PeerError.ended(*self._told[endpoint])
        text = failure.message
        raise PeerError(text if endpoint in text else f"server {endpoint}: {text}", code=failure.alone)

    def _lost(self, endpoint: str, doing: str, error: BaseException) -> PeerError:
        why = f"it said nothing for {self._seconds:.0f} s" if isinstance(error, TimeoutError) else "the connection broke"
        return PeerError(f"trainer {self._trainer} {doing}: server {endpoint} is lost, {why}", hint="look at the server's own message")

    def _live(self) -> None:
        while not self._ended.wait(often(self._seconds)):
            with contextlib.suppress(OSError), self._writing:
                for each in self._sockets.values():
                    frames.write(each, Message("alive"))

    def fail(self, failure: Failure, decides: str) -> tuple[int, Failure] | None:
        """Tell all servers why this trainer ends, as its last message.

        Args:
            failure: why.
            decides: host:port of the server whose word counts where several trainers have errors at once.

        Returns:
            Number and failure of the trainer that was the first to tell; None where no server says so in time.
        """
        message = Message("fail", {"message": failure.message, "code": int(failure.code), "local": int(failure.local)})
        for each in self._sockets.values():
            with contextlib.suppress(OSError), self._writing:
                each.settimeout(1.0)
                frames.write(each, message)
        if self._asking.acquire(timeout=self._seconds):
            with contextlib.suppress(PeerError):
                if decides in self._sockets and decides not in self._told:
                    self._last_words(decides, self._seconds)
            self._asking.release()
        self._drop()
        return self._told.get(decides) or next(iter(self._told.values()), None)

    def leave(self) -> None:
        """Tell all servers that this trainer needs them no more.

        Raises:
            PeerError: one of them is lost.
        """
        if self._ended.is_set():
            return
        try:
            self.ask({e: Message("leave") for e in self._sockets}, "at the end")
        finally:
            self._drop()

    def _drop(self) -> None:
        self._ended.set()
        for each in self._sockets.values():
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # who writes or reads ends
        with self._writing:  # its number may be another file's as soon as it is closed
            for each in self._sockets.values():
                each.close()
