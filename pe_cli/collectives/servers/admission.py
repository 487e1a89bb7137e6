"""Takes connections, and hands on those that know the group's secret: no other one holds a place for long, or more than a few bytes."""

from __future__ import annotations

import collections
import contextlib
import errno
import selectors
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
#: Connections that are taken one after the other before the others are heard again; seconds between two looks at whether all is over.
BATCH, LOOK = 32, 0.5
#: Seconds after a connection that could not be taken.
PAUSE = 0.01
#: Of a socket: closing it resets the connection (on, seconds to wait).
_RESET = struct.pack("ii", 1, 0)
#: Errors of a system that has room for no more connections.
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass(eq=False)
class _Stranger:
    connection: socket.socket
    host: str
    until: float
    handshake: Handshake


class Admission:
    """Lets in who knows the secret.

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
        self._selector = selectors.DefaultSelector()
        self._strangers: dict[_Stranger, None] = {}  # those that came first stand first
        self._hosts: collections.Counter[str] = collections.Counter()
        self._ended = threading.Event()
        self.turned_away = 0

    def run(self) -> None:
        """Take connections until `close`; strangers that are there then are sent away."""
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        with self._selector:
            while not self._ended.is_set():
                try:
                    self._look()
                except (OSError, MemoryError, RuntimeError):  # whatever the system lacks for one connection, there are others
                    self._ended.wait(PAUSE)
            for each in list(self._strangers):
                self._turn_away(each)

    def close(self) -> None:
        """Take no more connections."""
        self._ended.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._listener.close()

    def _look(self) -> None:
        first = next(iter(self._strangers), None)
        wait = LOOK if first is None else min(LOOK, max(0.0, first.until - time.monotonic()))
        found = [key.data for key, _ in self._selector.select(wait)]
        for stranger in found:
            if stranger in self._strangers:
                self._hear(stranger)
        now = time.monotonic()
        for stranger in [each for each in self._strangers if each.until <= now]:
            self._turn_away(stranger)
        if None in found:
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
            if len(self._strangers) >= STRANGERS:
                self._turn_away(self._last_choice())
            stranger = _Stranger(connection, str(where[0]), time.monotonic() + SECONDS, Handshake(self._key, self._endpoint))
            self._strangers[stranger] = None
            self._hosts[stranger.host] += 1
            try:
                connection.setblocking(False)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._selector.register(connection, selectors.EVENT_READ, stranger)
            except OSError:
                self._turn_away(stranger)
            else:
                self._hear(stranger)  # what a trainer says first is mostly there already

    def _last_choice(self) -> _Stranger:
        """Return who has to make room: one that has said nothing right yet, of the host that has sent the most, the oldest."""
        return min(self._strangers, key=lambda each: (each.handshake.greeted, -self._hosts[each.host]))

    def _hear(self, stranger: _Stranger) -> None:
        """Read what is there, and answer."""
        try:
            while not stranger.handshake.proved:
                data = stranger.connection.recv(stranger.handshake.missing)
                if not data:
                    raise EOFError
                answer = stranger.handshake.take(data)
                if answer and stranger.connection.send(answer) < len(answer):
                    raise EOFError
        except BlockingIOError:
            return
        except (OSError, EOFError, FrameError):
            self._turn_away(stranger)
            return
        stranger.connection.setblocking(True)
        self._forget(stranger)
        if not self._admit(stranger.connection):
            self._turn_away(stranger)

    def _turn_away(self, stranger: _Stranger) -> None:
        """End a connection that is not let in; the one place that does.

        It is reset, so that the system keeps neither its bytes nor its port, which trainers need, too.
        """
        self._forget(stranger)
        with contextlib.suppress(OSError):
            stranger.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        stranger.connection.close()
        self.turned_away += stranger.handshake.heard > 0

    def _forget(self, stranger: _Stranger) -> None:
        if self._strangers.pop(stranger, self) is self:
            return
        self._hosts[stranger.host] -= 1
        if not self._hosts[stranger.host]:
            del self._hosts[stranger.host]
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(stranger.connection)
