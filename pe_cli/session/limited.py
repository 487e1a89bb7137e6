"""A server of pages that cannot take what the run beside it needs: few connections at a time, and little time for each request."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from http.server import ThreadingHTTPServer
from typing import Any


class LimitedServer(ThreadingHTTPServer):
    """Answers as many connections at a time as `most`; others are closed at once.

    Attributes:
        most: connections at a time.
        patience: seconds within which a request must be whole, however its bytes come.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128  # of five, whoever comes in a crowd tries again only after a second
    most = 32
    patience = 10.0

    def __init__(self, *args: Any) -> None:
        self._waiting: dict[socket.socket, float] = {}  # connections whose request is not whole yet, since when
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, or close what is too many."""
        with self._guard:
            full = len(self._open) >= self.most
            if not full:
                self._open.add(request)
                self._waiting[request] = time.monotonic()
        if full:
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started
            self.shutdown_request(request)

    def whole(self, request: socket.socket) -> None:
        """Say that a connection's request has come whole."""
        with self._guard:
            self._waiting.pop(request, None)

    def again(self, request: socket.socket) -> None:
        """Say that a connection waits for a further request."""
        with self._guard:
            if request in self._open:
                self._waiting[request] = time.monotonic()

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._guard:
            self._open.discard(request)
            self._waiting.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End connections whose request takes too long; called now and then by the thread that accepts."""
        begun = time.monotonic() - self.patience
        with self._guard:
            slow = [request for request, since in self._waiting.items() if since < begun]
        for request in slow:
            with contextlib.suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a browser that went away is no error of the run."""
