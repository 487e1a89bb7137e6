"""Accepts connections and hands on those that know the group's secret; others can neither hold a place for long nor send much."""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from pe_cli.collectives.servers.frames import FrameError
from pe_cli.collectives.servers.handshake import Handshake

#: Connections at once that have not shown that they know the secret, and seconds that each has for that.
STRANGERS, SECONDS = 128, 2.0
#: Connections that are accepted in a row before open ones are served again; seconds between two looks at whether all is over.
BATCH, LOOK = 32, 0.5
#: Seconds after a connection that could not be taken.
PAUSE = 0.01
#: Of a socket: closing it resets the connection, and does so no more (on, seconds to wait).
_RESETS, _CLOSES = struct.pack("ii", 1, 0), struct.pack("ii", 0, 0)
#: Errors of a system that has room for no more connections.
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass(eq=False, slots=True)
class _Stranger:
    connection: socket.socket
    host: str
    until: float
    handshake: Handshake


class Admission:
    """Lets in who knows the secret.

    What is not let in is reset, so that the system keeps neither its bytes nor its port, which trainers need, too.

    Args:
        listener: takes connections.
        endpoint: host:port, as trainers write it.
        key: of the group.
        admit: takes a connection that is let in, which belongs to it then; False where it does not want it.

    Attributes:
        turned_away: connections that have said something, and were not let in.
    """

    def __init__(self, listener: socket.socket, endpoint: str, key: bytes, admit: Callable[[socket.socket], bool]) -> None:
        self._listener, self._endpoint, self._key, self._admit = listener, endpoint, key, admit
        self._poll = select.epoll()
        self._strangers: dict[int, _Stranger] = {}  # by descriptor; those that came first stand first
        self._ended = threading.Event()
        self.turned_away = 0
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESETS)  # connections have what their listener has
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._number = listener.fileno()

    def run(self) -> None:
        """Take connections until `close`; strangers that are there then are sent away."""
        with self._poll:
            self._poll.register(self._number, select.EPOLLIN)
            while not self._ended.is_set():
                try:
                    self._look()
                except (OSError, MemoryError, RuntimeError):  # whatever the system lacks for one connection, there are others
                    self._ended.wait(PAUSE)
            for each in list(self._strangers.values()):
                self._turn_away(each)

    def close(self) -> None:
        """Take no more connections."""
        self._ended.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._listener.close()

    def _look(self) -> None:
        first = next(iter(self._strangers.values()), None)
        wait = LOOK if first is None else min(LOOK, max(0.0, first.until - time.monotonic()))
        found = [number for number, _ in self._poll.poll(wait)]
        for number in found:
            stranger = self._strangers.get(number)
            if stranger is not None:
                self._hear(stranger)
        now = time.monotonic()
        while (first := next(iter(self._strangers.values()), None)) is not None and first.until <= now:
            self._turn_away(first)
        if self._number in found:
            self._take()

    def _take(self) -> None:
        """Take the connections that wait, a batch at most."""
        for _ in range(BATCH):
            try:
                connection, where = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # the other end has given up already, or this one has ended, or there are too many
                if error.errno in _FULL and self._strangers:
                    self._turn_away(self._last_choice())
                else:
                    self._ended.wait(PAUSE)
                return
            stranger = _Stranger(connection, str(where[0]), time.monotonic() + SECONDS, Handshake(self._key, self._endpoint))
            if len(self._strangers) >= STRANGERS:
                self._turn_away(self._last_choice())
            self._strangers[connection.fileno()] = stranger
            if self._hear(stranger):  # what a trainer says first is mostly there already
                self._poll.register(connection.fileno(), select.EPOLLIN)

    def _last_choice(self) -> _Stranger:
        """Return who has to make room: one that has said nothing right yet, of the host that has sent the most of those, the oldest."""
        strangers = self._strangers.values()
        silent = [each for each in strangers if not each.handshake.greeted] or list(strangers)
        hosts = [each.host for each in silent]
        return silent[hosts.index(max(dict.fromkeys(hosts), key=hosts.count))]

    def _hear(self, stranger: _Stranger) -> bool:
        """Read what is there, and answer; return whether more has to come."""
        handshake = stranger.handshake
        try:
            while not handshake.proved:
                # No byte more than the word has: what follows belongs to who serves the trainer.
                data = stranger.connection.recv(handshake.missing, socket.MSG_DONTWAIT)
                if not data:
                    raise EOFError
                answer = handshake.take(data)
                # An answer of some dozens of bytes fits into any socket that is read: who lets it not through is no trainer.
                if answer and stranger.connection.send(answer, socket.MSG_DONTWAIT) < len(answer):
                    raise EOFError
        except BlockingIOError:
            return True
        except (OSError, EOFError, FrameError):
            self._turn_away(stranger)
            return False
        number = stranger.connection.fileno()
        del self._strangers[number]
        with contextlib.suppress(OSError):  # where it was not waited for
            self._poll.unregister(number)
        stranger.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _CLOSES)
        stranger.connection.setblocking(True)
        if not self._admit(stranger.connection):
            self._turn_away(stranger)
        return False

    def _turn_away(self, stranger: _Stranger) -> None:
        """End a connection that is not let in; the one place that does."""
        self._strangers.pop(stranger.connection.fileno(), None)
        self.turned_away += stranger.handshake.heard > 0
        stranger.connection.close()  # which ends waiting for it, too
