"""The handshake of a connection: trainer and server prove to each other that they know the group's secret, without sending it.

    trainer  `PEH1`, a nonce (32 bytes)
    server   `PEH1`, its nonce, HMAC-SHA256(key, "server", endpoint, both nonces)
    trainer  HMAC-SHA256(key, "trainer", endpoint, both nonces)
    server   `PEIN`

Every word has its fixed size, and no message is read before the last one. Nonces are new in every connection, so that words that somebody
has heard are worth nothing in another one. The endpoint is that which the trainer means: a server cannot be passed off as another one.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import time

from pe_cli.collectives.servers.frames import FrameError

GREETING, WELCOME = b"PEH1", b"PEIN"
#: Bytes of a key, of a nonce, and of a proof.
KEY, NONCE, PROOF = 32, 32, 32
NO_SERVER = "what came over the network is no message of a trainer or server"
OTHER_GROUP = "it serves another group of processes, or has another secret"
DIFFERENT = "two groups with one port, processes that were given different secrets, or an endpoint that not all write alike: look at both"


def proof(key: bytes, who: bytes, endpoint: str, nonces: bytes) -> bytes:
    """Return what only those who know the key can say in this connection.

    Args:
        key: of the group, 32 bytes.
        who: `server` or `trainer`, so that nobody can be answered with its own words.
        endpoint: host:port of the server.
        nonces: of the trainer and of the server.
    """
    assert len(key) == KEY, "no group is without a secret"
    return hmac.digest(key, b"\0".join((GREETING, who, endpoint.encode("utf-8", "surrogateescape"), nonces)), "sha256")


class Handshake:
    """A server's half, without the socket.

    Args:
        key: of the group.
        endpoint: host:port of the server.

    Attributes:
        heard: bytes that the other end has said.
        greeted: whether it has said its first word.
        proved: whether it knows the secret.
    """

    def __init__(self, key: bytes, endpoint: str) -> None:
        self._key, self._endpoint = key, endpoint
        self._got, self._nonces = b"", b""
        self.heard = 0
        self.greeted = self.proved = False

    @property
    def missing(self) -> int:
        """How many bytes the next word of the other end still has."""
        return (PROOF if self.greeted else len(GREETING) + NONCE) - len(self._got)

    def take(self, data: bytes) -> bytes:
        """Hear some bytes, `missing` at most; return the answer, empty where the word is not whole.

        Raises:
            FrameError: no trainer of this group says that.
        """
        self._got += data
        self.heard += len(data)
        if not self.greeted and not self._got.startswith(GREETING[: len(self._got)]):
            raise FrameError(NO_SERVER)
        if self.missing:
            return b""
        word, self._got = self._got, b""
        if not self.greeted:
            self.greeted = True
            # both nonces are in both proofs: a recorded connection cannot be played back to either side
            mine = secrets.token_bytes(NONCE)
            self._nonces = word[len(GREETING) :] + mine
            return GREETING + mine + proof(self._key, b"server", self._endpoint, self._nonces)
        if not hmac.compare_digest(word, proof(self._key, b"trainer", self._endpoint, self._nonces)):
            raise FrameError("a connection does not know the secret of the group")
        self.proved = True
        return WELCOME


def introduce(connection: socket.socket, key: bytes, endpoint: str, until: float) -> None:
    """Do a trainer's half.

    Args:
        connection: to a server.
        key: of the group.
        endpoint: host:port of the server, as the server writes it, too.
        until: by `time.monotonic`.

    Raises:
        FrameError: no server of this group listens there.
        EOFError, OSError: the other end has closed the connection, or has not answered in time.
    """
    mine = secrets.token_bytes(NONCE)
    connection.settimeout(max(until - time.monotonic(), 0.001))
    connection.sendall(GREETING + mine)
    answer = _word(connection, len(GREETING) + NONCE + PROOF, GREETING, until)
    nonces = mine + answer[len(GREETING) : -PROOF]
    # the trainer checks first, and proves nothing to a server that does not know the secret
    if not hmac.compare_digest(answer[-PROOF:], proof(key, b"server", endpoint, nonces)):
        raise FrameError(OTHER_GROUP, hint=DIFFERENT)
    connection.sendall(proof(key, b"trainer", endpoint, nonces))
    _word(connection, len(WELCOME), WELCOME, until)


def _word(connection: socket.socket, size: int, begins: bytes, until: float) -> bytes:
    """Read an exact number of bytes before the deadline."""
    got = b""
    while len(got) < size:
        connection.settimeout(max(until - time.monotonic(), 0.001))
        more = connection.recv(size - len(got))
        if not more:
            raise EOFError("it closes the connection")
        got += more
        if not got.startswith(begins[: len(got)]):
            raise FrameError(NO_SERVER, hint="look at hosts and ports")
    return got
