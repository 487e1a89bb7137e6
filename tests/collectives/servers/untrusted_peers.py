"""A crowd of connections that know no secret, in a process of its own: whoever is sent away comes again.

`python -m tests.collectives.servers.untrusted_peers HOST PORT COUNT SEED < words`: the words are what somebody has heard of a right
handshake, each as a line in hexadecimal. Ends with the next line, and prints how many connections it has made.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from pe_cli.collectives.servers.handshake import GREETING, NONCE, PROOF, Handshake, proof

ROOT = Path(__file__).parents[3]
#: The array has no element, and would have more than memory has addresses.
HUGE = b'["hello",{},[["a","float32",[0,549755813888,549755813888]]]]'


def framed(header: bytes, size: int = 0) -> bytes:
    """Return a message of an old server, or of one that everybody may talk to."""
    return struct.pack("<4sIQ", b"PEPS", len(header), size) + header


def kinds(words: list[bytes]) -> list[bytes]:
    """Return what strangers say: with a few pauses between their bytes.

    Args:
        words: of a handshake that went well: greeting and proof of the trainer.
    """
    hello = json.dumps(["hello", {"trainer": 0, "agrees": {}}, []]).encode()
    nested = framed(b"[" * 100_000)
    return [
        b"",
        framed(HUGE),
        framed(hello),
        framed(hello)[:20],
        nested,
        framed(hello, 1 << 60),
        b"GET / HTTP/1.1\r\n\r\n",
        words[0],
        words[0][:20],
        words[0] + words[1],
        words[0] + words[1][:-1],
        GREETING + os.urandom(NONCE) + os.urandom(PROOF),
        GREETING + framed(hello)[:NONCE],
    ]


def heard(key: bytes, endpoint: str) -> list[bytes]:
    """Return what a trainer says in a handshake that goes well."""
    greeting = GREETING + os.urandom(NONCE)
    answer = Handshake(key, endpoint).take(greeting)
    return [greeting, proof(key, b"trainer", endpoint, greeting[len(GREETING) :] + answer[len(GREETING) : -PROOF])]


def crowd(host: str, port: int, count: int, chance: random.Random, words: list[bytes]) -> int:
    """Keep so many connections open until the standard input says more; return how many were made.

    Twice as many come anew in a second, at most.
    """
    says, made, held = kinds(words), 0, {}
    poll = select.epoll()
    poll.register(sys.stdin.fileno(), select.EPOLLIN)
    over, begun = False, time.monotonic()
    while not over:
        for _ in range(min(500, count - len(held), int(count + 2 * count * (time.monotonic() - begun)) - made)):
            one = socket.socket()
            one.setblocking(False)
            with contextlib.suppress(OSError):
                one.connect_ex((host, port))
                poll.register(one.fileno(), select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET)
                held[one.fileno()] = one, chance.choice(says)
                made += 1
                continue
            one.close()
        for number, event in poll.poll(0.05, 1000):
            if number == sys.stdin.fileno():
                over = True
                continue
            one, text = held[number]
            if event & (select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP):
                del held[number]
                one.close()  # leaves the poll, too
            elif event & select.EPOLLOUT and text:
                with contextlib.suppress(OSError):
                    one.send(text)
                held[number] = one, b""
        for number in chance.sample(list(held), min(20, len(held))):  # some drip
            with contextlib.suppress(OSError):
                held[number][0].send(b"P")
    return made


@contextlib.contextmanager
def coming(endpoint: str, count: int, words: list[bytes], seed: int = 1) -> Iterator[list[int]]:
    """Have strangers come to an endpoint inside; afterwards the list holds how many connections they made."""
    host, _, port = endpoint.rpartition(":")
    command = [sys.executable, "-m", "tests.collectives.servers.untrusted_peers", host, port, str(count), str(seed)]
    made: list[int] = []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}
    ) as process:
        assert process.stdin is not None
        process.stdin.write("".join(word.hex() + "\n" for word in words))
        process.stdin.flush()
        try:
            yield made
        finally:
            made.append(int(process.communicate("over\n", timeout=60)[0] or 0))
    assert process.returncode == 0


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    told = [bytes.fromhex(sys.stdin.readline()) for _ in range(2)]
    print(crowd(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), random.Random(int(sys.argv[4])), told))  # noqa: T201
