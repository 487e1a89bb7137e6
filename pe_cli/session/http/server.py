"""The server: one thread accepts a bounded number of connections, and closes slow ones to make room for new ones."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import socket
from collections.abc import Callable, Iterable

from pe_cli.session.http.connection import App, Connection, Phase
from pe_cli.session.http.limits import Limits
from pe_cli.session.http.memory import Memory
from pe_cli.session.http.replies import Reply

#: Seconds between two looks at who is slow, and for which requests that are on their way are waited for at the end.
TICK, LAST = 0.25, 0.2
#: Connections that the system keeps for us, and those that are let in at a time.
BACKLOG, ACCEPTED = 512, 32
#: Connections that were answered and whose client has yet to take the answer.
MOST_LEAVING = 64
#: Seconds for which a silent connection is no worse than one that speaks slowly: what it says may be on its way.
YOUNG = 1.0
#: Bytes that are read at a time.
PIECE = 32 << 10


class Server:
    """Listens from the start, and answers while it runs.

    Args:
        address: host and port; port 0 takes a free one.
        app: what answers.
        limits: what strangers may take.

    Attributes:
        address: host and port.
        most: connections at a time: those of the limits, or as many as there may be open files for.

    Raises:
        OSError: the port is taken, or the host is not this machine's.
    """

    def __init__(self, address: tuple[str, int], app: App, limits: Limits) -> None:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.socket = socket.create_server(address, family=family, backlog=BACKLOG)
        host, port = self.socket.getsockname()[:2]
        self.address = str(host), int(port)
        self.app, self.limits = app, limits
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        # those that leave, and those that are let in or ended just now, are open files, too
        # A limit on open files is shared with data, logs and the model's files.
        self.most = limits.connections if files < 0 else min(limits.connections, max(1, files // 4))
        self.memory = Memory(limits.memory)
        self.scratch = memoryview(bytearray(PIECE))
        self.open: dict[Connection, None] = {}
        self.leaving: dict[Connection, None] = {}
        self.stopping = self._at_once = False
        self.loop: asyncio.AbstractEventLoop = asyncio.SelectorEventLoop()
        # The loop would print a traceback for each client that closes early.
        self.loop.set_exception_handler(lambda *_: None)  # a browser that went away is no error of ours
        self._ticking = False
        self._ended: asyncio.Event | None = None

    def run(self, signals: Iterable[int] = ()) -> None:
        """Answer until `stop`, or one of some signals; what is being asked then is answered. The second signal ends it at once."""
        before = {number: signal.getsignal(number) for number in signals}
        for number in before:
            self.loop.add_signal_handler(number, self.stop)
        # Handlers of before come back, so that a server inside of a test leaves nothing behind.
        try:
            self.loop.run_until_complete(self._run())
        finally:
            for number, handler in before.items():
                self.loop.remove_signal_handler(number)
                signal.signal(number, handler)
            self.close()

    def close(self) -> None:
        """Give the port back, of a server that does not run."""
        for connection in (*self.open, *self.leaving):
            connection.abort()
        self.socket.close()
        if not self.loop.is_closed():
            self.loop.run_until_complete(asyncio.sleep(0))  # connections are closed by the loop
            self.loop.close()

    async def _run(self) -> None:
        self._ended = asyncio.Event()
        # A signal may have come before the loop began.
        if self.stopping:
            return
        # a limited number is accepted at a time, so that a flood of connections cannot starve the open ones
        listener = await self.loop.create_server(lambda: Connection(self), sock=self.socket, backlog=min(ACCEPTED, max(1, self.most // 4)))
        self.socket.listen(BACKLOG)
        await self._ended.wait()
        await asyncio.sleep(LAST)  # who has connected already is heard
        listener.close()
        begin, grace = self.loop.time(), self.limits.grace
        while (self.open or self.leaving) and self.loop.time() < begin + grace and not self._at_once:
            # Requests that have begun get a part of the time; then they are told to come again.
            late = self.loop.time() > begin + grace / 6
            for connection in list(self.open):
                if connection.phase is Phase.IDLE:
                    connection.leave()
                elif connection.phase is Phase.READING and late:
                    connection.refuse(Reply(503, b'{"error": "the server ends"}', fields={"Retry-After": "5"}))
            await asyncio.sleep(TICK / 10)

    def stop(self) -> None:
        """End when all requests are answered, and at once when it is called again; from the server's thread."""
        # A second request to stop ends at once.
        self._at_once, self.stopping = self.stopping, True
        if self._ended is not None:
            self._ended.set()

    def call(self, function: Callable[..., object], *given: object) -> None:
        """Have something called by the server's thread, from any thread; nothing happens where the server has ended."""
        # The loop may have closed since: then nobody is there to be answered.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(function, *given)

    # --- who is there -------------------------------------------------------------------------------------------------

    def came(self, connection: Connection) -> bool:
        """Count a connection that has come; one that is slow makes room for it. Tell whether there is room."""
        if len(self.open) >= self.most and not self.make_room():
            return False
        self.open[connection] = None
        if not self._ticking:
            self._ticking = True
            self.loop.call_later(TICK, self._tick)
        return True

    def gone(self, connection: Connection) -> None:
        """Forget a connection."""
        self.open.pop(connection, None)
        self.leaving.pop(connection, None)

    def leaves(self, connection: Connection) -> None:
        """Wait no longer for requests of a connection that has its last answer, but for its client to take that."""
        self.open.pop(connection, None)
        self.leaving[connection] = None
        # Who never takes the last answer would keep an open file: the oldest of too many is cut off.
        if len(self.leaving) > min(MOST_LEAVING, self.most):
            oldest = next(iter(self.leaving))
            del self.leaving[oldest]
            oldest.abort()

    def make_room(self, spared: Connection | None = None, by_memory: bool = False) -> bool:
        """End the connection that has been silent for the longest time, else the one whose request has come for the longest time.

        Args:
            spared: one that stays.
            by_memory: end the one that holds most of a body instead, if it holds more than the one that is spared.
        """
        if by_memory:
            # Who holds most gives way, but only if that is more than what the other one has.
            most = max((one for one in self.open if one.phase is Phase.READING), key=lambda one: one.held, default=None)
            if most is None or most is spared or (spared is not None and most.held <= spared.held):
                return False
            most.refuse(Reply(503, b'{"error": "others need the memory: try again later"}', fields={"Retry-After": "2"}))
            return True
        slow = [one for one in self.open if one is not spared and one.phase in (Phase.IDLE, Phase.READING)]
        if not slow:
            return False
        young = self.loop.time() - YOUNG
        # Silent ones go first, then those that speak slowly; but what a young connection says may still be on its way.
        victim = min(slow, key=lambda one: (one.phase is not Phase.IDLE or one.since > young, one.since))
        if victim.phase is Phase.IDLE:
            victim.leave()
        else:
            victim.refuse(Reply(503, b'{"error": "others have waited: send your request sooner"}', fields={"Retry-After": "1"}))
        return True

    def _tick(self) -> None:
        now = self.loop.time()
        for connection in (*self.open, *self.leaving):
            connection.look(now)
        self._ticking = bool(self.open or self.leaving)
        if self._ticking:  # nobody is woken while nobody is there
            self.loop.call_later(TICK, self._tick)
