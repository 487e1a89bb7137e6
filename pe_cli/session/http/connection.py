"""One connection: its requests are answered one after the other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol

from pe_cli.session.http.framing import Framing, FramingError, Head
from pe_cli.session.http.limits import Limits
from pe_cli.session.http.memory import Memory
from pe_cli.session.http.replies import CONTINUE, Refusal, Reply

#: Seconds that a client may take to read its last answer, while what it still sends is thrown away.
PARTING = 2.0


class Phase(Enum):
    """What a connection waits for: a request, the rest of one, our answer, that the client takes it, the same of its last one."""

    IDLE = auto()
    READING = auto()
    ANSWERING = auto()
    SENDING = auto()
    STREAMING = auto()
    LEAVING = auto()


class App(Protocol):
    """What answers requests; called by the server's thread."""

    def admit(self, head: Head) -> None:
        """Look at a request before its body is read.

        Raises:
            Refusal: it is not answered.
        """

    def answer(self, head: Head, body: bytearray, connection: Connection) -> None:
        """Have `connection.reply` called by the server's thread, now or later.

        Raises:
            Refusal: it is not answered.
        """

    def refused(self) -> None:
        """Count a request that is refused."""


class Host(Protocol):
    """What a connection knows of its server; all is used by the server's thread.

    Attributes:
        app: what answers.
        limits: what strangers may take.
        memory: that requests hold.
        scratch: bytes that any connection reads into, until it has taken them.
        stopping: whether no further request is answered.
        loop: that calls the connection.
    """

    app: App
    limits: Limits
    memory: Memory
    scratch: memoryview
    stopping: bool
    loop: asyncio.AbstractEventLoop

    def came(self, connection: Connection) -> bool:
        """Count a connection that has come; tell whether there is room."""

    def gone(self, connection: Connection) -> None:
        """Forget a connection."""

    def leaves(self, connection: Connection) -> None:
        """Wait for nothing but that the client takes its last answer."""

    def make_room(self, spared: Connection | None = None, by_memory: bool = False) -> bool:
        """End another connection; tell whether there was one."""


class Connection(asyncio.BufferedProtocol):
    """Reads requests into bounded memory, and answers each before it reads the next.

    Args:
        server: that it belongs to.

    Attributes:
        phase: what it waits for.
        since: when the phase began, seconds of the loop.
        ended: called when a stream ends because its client is gone.
    """

    def __init__(self, server: Host) -> None:
        self._server = server
        self.phase, self.since = Phase.IDLE, 0.0
        self.ended: Callable[[], None] | None = None
        self._framing = Framing(server.limits.body)
        self._transport: asyncio.Transport | None = None
        self._head: Head | None = None
        self._counted = self._sending = 0
        self._half = self._keeps = self._whole_answered = False

    @property
    def held(self) -> int:
        """Bytes of a request that is not whole."""
        return self._framing.held

    # --- what the loop calls ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, where there is room."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        # Memory that a slow client leaves in the system is counted: the server wants to hear of every byte that is not taken.
        transport.set_write_buffer_limits(0)
        self._enter(Phase.IDLE)
        if not self._server.came(self):
            self.refuse(Reply(503, b'{"error": "too many connections: try again later"}', fields={"Retry-After": "1"}))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where bytes are read to: all connections read into one place, one after the other."""
        del sizehint
        return self._server.scratch

    def buffer_updated(self, nbytes: int) -> None:
        """Take bytes."""
        if self.phase in (Phase.LEAVING, Phase.STREAMING):
            # Its bytes are taken off the system all the same, or it would reset the connection, and the answer with it.
            return  # thrown away: the connection has had its last answer
        self._framing.give(self._server.scratch[:nbytes])
        if self.phase in (Phase.ANSWERING, Phase.SENDING):
            assert self._transport is not None
            self._transport.pause_reading()  # the next request waits outside until this one is answered
            return
        if self.phase is Phase.IDLE:
            self._enter(Phase.READING)
        self._advance()

    def eof_received(self) -> bool:
        """Take that the client sends no more; it may still read."""
        # A client may end its side and still wait for the answer.
        self._half = True
        if self.phase in (Phase.IDLE, Phase.READING):
            self.leave()
        elif self.phase is Phase.LEAVING and self._transport is not None:
            self._transport.close()
        return self.phase in (Phase.ANSWERING, Phase.SENDING)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget all."""
        del exc
        self._transport = None
        # Whatever the connection held is given back here, however it ended.
        self._count(0)
        self._server.memory.take(-self._sending)
        self._sending = 0
        self._server.gone(self)
        if self.ended is not None:
            self.ended()

    def pause_writing(self) -> None:
        """Do nothing: `reply` looks at what is left to send."""

    def resume_writing(self) -> None:
        """Go on when the client has taken all."""
        if self.phase is Phase.SENDING:
            self._sent()

    # --- requests -----------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Do what the bytes that are there allow."""
        while self.phase in (Phase.IDLE, Phase.READING) and self._transport is not None:
            try:
                found = self._framing.next()
                if isinstance(found, Head):
                    # One packet may hold several requests: they are answered one after the other.
                    self._begin(found)
                    continue
            except FramingError as error:
                # What cannot be framed cannot be skipped either: where the next request begins is unknown, so the connection ends.
                self._server.app.refused()
                self.refuse(Refusal(error.status, str(error)).reply())
                return
            except Refusal as refusal:
                self._server.app.refused()
                self.refuse(refusal.reply())
                return
            if not self._count(self._framing.held + len(found or b"")):
                self.refuse(Reply(503, b'{"error": "others hold the memory: try again later"}', fields={"Retry-After": "2"}))
                return
            if found is None:
                return
            self._whole(found)

    def _begin(self, head: Head) -> None:
        """Look at a head; its body is read next.

        Raises:
            Refusal: it is not answered.
        """
        self._enter(Phase.READING)
        self._head = head
        self._server.app.admit(head)
        if head.waits and self._transport is not None and not self._framing.held:
            # Only where no body has come yet: a client that did not wait needs no leave to go on.
            self._transport.write(CONTINUE)

    def _whole(self, body: bytearray) -> None:
        assert self._head is not None
        self._enter(Phase.ANSWERING)
        try:
            self._server.app.answer(self._head, body, self)
        except Refusal as refusal:
            self._server.app.refused()
            self.reply(refusal.reply())
        # The class of the error alone: its text could tell the client what it must not know.
        except Exception as error:  # noqa: BLE001 - one request may not end the server
            self._server.app.refused()
            self.reply(Refusal(500, f"this is a bug of pe: {type(error).__name__}; please report it with what was sent").reply())

    def _count(self, held: int) -> bool:
        """Count the bytes that this connection holds; tell whether there was memory for them."""
        memory, more = self._server.memory, held - self._counted
        while more > 0 and not memory.fits(more, self._counted):
            # Who holds most of an unfinished body gives way, so that no stranger keeps the others out by holding memory.
            if not self._server.make_room(self, by_memory=True):
                return False
        memory.take(more)
        self._counted = held
        return True

    # --- answers ------------------------------------------------------------------------------------------------------

    def reply(self, reply: Reply) -> None:
        """Send an answer; nothing happens where the client is gone."""
        # The client may be gone, or have had its answer because time was up.
        if self._transport is None or self.phase is not Phase.ANSWERING:
            return
        assert self._head is not None
        keeps = self._head.keeps and not reply.closes and not self._server.stopping and not self._half
        self._send(reply, keeps)

    def refuse(self, reply: Reply) -> None:
        """Send the last answer while a request is not whole, or none has come."""
        if self._transport is not None and self.phase in (Phase.IDLE, Phase.READING):
            self._send(reply, keeps=False)

    def _send(self, reply: Reply, keeps: bool) -> None:
        assert self._transport is not None
        # A HEAD has the answer's head alone, with the length of the body that it leaves out.
        body = b"" if self._head is not None and self._head.method == "HEAD" else reply.body
        self._keeps, self._whole_answered = keeps, self.phase is Phase.ANSWERING
        self._enter(Phase.SENDING)
        self._transport.write(reply.head(keeps) + body)
        # Writing may find that the client is gone, and end this connection before it returns.
        if self._transport is None or self.phase is not Phase.SENDING:
            return
        left = self._transport.get_write_buffer_size()
        self._sending = left
        self._count(self._framing.held)
        self._server.memory.take(left)
        if not left:
            self._sent()

    # The client has taken all of it: only now does its memory count as free.
    def _sent(self) -> None:
        assert self._transport is not None
        self._server.memory.take(-self._sending)
        self._sending = 0
        if not self._keeps:
            self._end()
            return
        self._head = None
        self._enter(Phase.IDLE)
        self._transport.resume_reading()
        if self._framing.begun:  # others first
            self._server.loop.call_soon(self._advance)

    def _end(self) -> None:
        """Close the connection after its last answer."""
        assert self._transport is not None
        if self._whole_answered and not self._framing.begun:  # nothing is on its way that would make the system reset it
            self._count(0)
            self._server.gone(self)
            self._transport.close()
        else:
            self.leave()

    def stream(self, reply: Reply) -> None:
        """Begin an answer without an end, of `write` and `leave`; the client sends nothing more."""
        assert self._transport is not None
        self._enter(Phase.STREAMING)
        self._transport.write(reply.head(keeps=False, endless=True))
        self._transport.resume_reading()  # to hear that it is gone

    def write(self, data: bytes) -> bool:
        """Send a part of a stream; tell whether the client had taken all before."""
        if self._transport is None or self._transport.get_write_buffer_size():
            # A slow listener misses what comes meanwhile, instead of filling memory.
            return False
        self._transport.write(data)
        return True

    def leave(self) -> None:
        """Close the connection in order: what was sent is taken by the client, who would not get it if it was reset."""
        if self._transport is None or self.phase is Phase.LEAVING:
            return
        self._count(0)
        # What comes from now on is read and thrown away, so that the system has no unread bytes for which it would reset the connection.
        self._framing = Framing(0)
        if self._half:
            self._server.gone(self)
            self._transport.close()
            return
        self._enter(Phase.LEAVING)
        self._server.leaves(self)
        with contextlib.suppress(OSError):
            self._transport.write_eof()
        if self._transport is not None:
            self._transport.resume_reading()

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _enter(self, phase: Phase) -> None:
        # The time of a whole request counts, not that between two of its bytes: who sends a byte a minute is not kept for ever.
        if phase is not self.phase or phase is not Phase.READING:
            self.since = self._server.loop.time()
        self.phase = phase

    def look(self, now: float) -> None:
        """End what has taken too long."""
        limits, waited = self._server.limits, now - self.since
        if self.phase is Phase.READING and waited > limits.request:
            self._server.app.refused()
            self.refuse(Reply(408, b'{"error": "the request has not come in time"}'))
        elif self.phase is Phase.IDLE and waited > limits.idle:
            self.leave()
        elif (self.phase is Phase.SENDING and waited > limits.request) or (self.phase is Phase.LEAVING and waited > PARTING):
            self.abort()
