"""Rendezvous of processes that were started separately: the first one listens, and the others connect and identify themselves.

Who knows the secret of the group is let in, and no one else; see `collectives/servers/handshake.py`. After that each side says objects of
JSON, one on each line.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import re
import secrets
import selectors
import socket
import stat
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from pe_cli.collectives.servers.frames import FrameError
from pe_cli.collectives.servers.handshake import Handshake, introduce
from pe_cli.collectives.servers.secret import group_key
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.threads import Thread
from pe_cli.io import strict_json
from pe_cli.session.launch.cluster_environment import Member

#: Bytes of a message, and of the file of a meeting, at most; connections that have not said who they are, at most.
MOST, STRANGERS = 1 << 16, 256
#: Seconds of one try to come in, and between two.
TRY, AGAIN = 5.0, 0.2
#: What both sides write for the endpoint: the first process is reached by several names.
_HERE = "meeting"


class Channel:
    """A connection of a process that has come in.

    Args:
        connection: after the handshake.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket, self._got, self._lock = connection, b"", threading.Lock()
        connection.settimeout(None)

    def say(self, **facts: object) -> None:
        """Send an object; nothing where the other side is gone."""
        # A message is sent whole or not at all from one thread's view: two threads may speak.
        with self._lock, contextlib.suppress(OSError):
            # A peer that takes nothing would hold everybody up.
            self._socket.settimeout(TRY)
            self._socket.sendall(json.dumps(facts).encode() + b"\n")

    def hear(self, until: float) -> Mapping[str, Any] | None:
        """Return the next object; None where none has come before a time by `time.monotonic`.

        Raises:
            EOFError: the other side is gone, or says something else.
        """
        while b"\n" not in self._got:
            try:
                with selectors.DefaultSelector() as ready:
                    ready.register(self._socket, selectors.EVENT_READ)
                    # Waiting by a selector and not by a time-out of the socket: another thread sends on it meanwhile.
                    if not ready.select(max(0.0, until - time.monotonic())):
                        return None
                more = self._socket.recv(4096)
            except (OSError, ValueError):  # a ValueError where another thread has closed it
                more = b""
            if not more or len(self._got) > MOST:
                raise EOFError("the other side is gone")
            self._got += more
        line, _, self._got = self._got.partition(b"\n")
        try:
            found = strict_json.loads(line)
        except ValueError:
            raise EOFError("no JSON") from None
        if not isinstance(found, Mapping):
            raise EOFError("no object")
        return found

    @property
    def peer(self) -> str:
        """Address of the other side."""
        return str(self._socket.getpeername()[0])

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(OSError):
            self._socket.close()


@dataclass
class Door:
    """The first process's side.

    Args:
        member: that process.
        listener: at which the others come.
        key: of the group, 32 bytes.
    """

    member: Member
    listener: socket.socket
    key: bytes = field(repr=False)
    came: dict[int, tuple[Channel, Mapping[str, Any]]] = field(default_factory=dict)

    def wait(self, seconds: float) -> None:
        """Wait until all have come.

        Raises:
            PeError: USAGE, one has another idea of how many there are, or has come twice; PEER_LOST, some have not come in time.
        """
        until, wrong = time.monotonic() + seconds, list[str]()
        lock, room = threading.Lock(), threading.Semaphore(STRANGERS)
        while len(self.came) < self.member.size - 1 and not wrong:
            self.listener.settimeout(AGAIN)
            try:
                connection = self.listener.accept()[0]
            except OSError:
                if time.monotonic() > until:
                    break
                continue
            # Strangers are bounded: each one is let in by a thread of its own, until it has proved who it is.
            if not room.acquire(blocking=False):
                connection.close()
                continue
            Thread(target=self._admit, args=(connection, lock, room, wrong), daemon=True).start()
        if wrong:
            self.tell(error=wrong[0], exit=int(ExitCode.USAGE))
            raise PeError(wrong[0], hint="start all of them anew, with the same variables but for their number")
        missing = [r for r in range(1, self.member.size) if r not in self.came]
        if missing:
            text = f"process{'es'[: 2 * (len(missing) > 1)]} {', '.join(map(str, missing[:8]))} of {self.member.size} "
            text += f"{'have' if len(missing) > 1 else 'has'} not come for {seconds:g} seconds"
            self.tell(error=text, exit=int(ExitCode.PEER_LOST))
            hint = "look at what they say; executor.peer_timeout is how long they are waited for"
            raise PeError(text, hint=hint, code=ExitCode.PEER_LOST)

    def _admit(self, connection: socket.socket, lock: threading.Lock, room: threading.Semaphore, wrong: list[str]) -> None:
        try:
            _let_in(connection, self.key)
            channel = Channel(connection)
            said = channel.hear(time.monotonic() + TRY) or {}
            rank, size = said.get("rank"), said.get("size")
            with lock:
                # A process that was started again comes with the same number; the dead connection makes room.
                already = self.came.get(rank) if type(rank) is int else None
                if size != self.member.size or type(rank) is not int or not 0 < rank < self.member.size:
                    wrong.append(f"process {rank} of {size} has come, and this is process 0 of {self.member.size}"[:200])
                elif already is not None and _alive(already[0]):
                    wrong.append(f"process {rank} of {size} has come twice")
                else:
                    if already is not None:
                        already[0].close()
                    self.came[rank] = channel, said
                    return
            # The one who came wrongly is told, too, and not only the first process.
            channel.say(error=wrong[-1], exit=int(ExitCode.USAGE))
            channel.close()
        except (FrameError, EOFError, OSError):
            connection.close()
        finally:
            room.release()

    def tell(self, **facts: object) -> None:
        """Say the same to all that have come."""
        for channel, _ in self.came.values():
            channel.say(**facts)

    def close(self) -> None:
        """Close all connections."""
        self.listener.close()
        for channel, _ in self.came.values():
            channel.close()


def _alive(channel: Channel) -> bool:
    try:
        channel.hear(time.monotonic())
    except EOFError:
        return False
    return True


def _let_in(connection: socket.socket, key: bytes) -> None:
    """Do the first process's half of the handshake."""
    # One deadline for the whole handshake: a byte every few seconds must not hold the door.
    until, hands = time.monotonic() + TRY, Handshake(key, _HERE)
    while not hands.proved:
        connection.settimeout(max(until - time.monotonic(), 0.001))
        data = connection.recv(hands.missing)
        if not data:
            raise EOFError("gone")
        connection.sendall(hands.take(data))


@contextlib.contextmanager
def opened(member: Member, folder: Path) -> Iterator[Door]:
    """Open the meeting, as the first process.

    Args:
        member: this process.
        folder: where a file tells the others, with meet: file.

    Raises:
        PeError: USAGE; the port is in use, there is no secret, or the file cannot be written.
    """
    told = _file(member, folder) if member.meet == "file" else None
    # The file holds the key: only who may read it may come in.
    key = secrets.token_bytes(32) if told else _key(member.address)
    port = 0 if told else int(member.address.rpartition(":")[2])
    try:
        listener = socket.create_server(("", port), backlog=128)
    except OSError as error:
        text = f"the first process cannot listen at port {port}: {os.strerror(error.errno or 0).lower()}"
        raise PeError(text, hint="set MASTER_PORT to a port that is free, in all processes") from None
    door = Door(member, listener, key)
    # Written when the port is known, and removed in any case, so that a later start finds no old one.
    try:
        if told:
            facts = {"hosts": _names(), "port": listener.getsockname()[1], "key": key.hex()}
            _write(told, json.dumps(facts))
        yield door
    finally:
        door.close()
        if told:
            told.unlink(missing_ok=True)


def joined(member: Member, folder: Path, seconds: float, **facts: object) -> tuple[Channel, str]:
    """Come to the meeting; return the connection to the first process, and the host at which it was found.

    Raises:
        PeError: USAGE, there is no secret; PEER_LOST, the first process has not come in time.
    """
    until, why = time.monotonic() + seconds, "nobody has opened the meeting"
    while time.monotonic() < until:
        try:
            hosts, port, key = _where(member, folder)
            for host in hosts:
                try:
                    channel = Channel(_introduced(host, port, key))
                except (OSError, EOFError, FrameError) as error:
                    # Every try may fail for another reason; the last one is told.
                    why = f"{host}:{port}: {getattr(error, 'strerror', None) or getattr(error, 'message', None) or error}"
                    continue
                channel.say(rank=member.rank, size=member.size, **facts)
                return channel, host
        except OSError:
            why = f"there is no {_file(member, folder)}"
        time.sleep(AGAIN)
    text = f"process {member.rank} of {member.size} has not found the first one for {seconds:g} seconds: {why}"
    hint = "look at what process 0 says; executor.peer_timeout is how long it is waited for"
    raise PeError(text, hint=hint, code=ExitCode.PEER_LOST)


def _introduced(host: str, port: int, key: bytes) -> socket.socket:
    connection = socket.create_connection((host, port), timeout=TRY)
    try:
        introduce(connection, key, _HERE, time.monotonic() + TRY)
    except (OSError, EOFError, FrameError):
        connection.close()
        raise
    return connection


def _where(member: Member, folder: Path) -> tuple[Sequence[str], int, bytes]:
    """Return hosts, port and key of the meeting.

    Raises:
        OSError: the file is not there yet.
    """
    if member.meet == "address":
        host, _, port = member.address.rpartition(":")
        return [host.strip("[]")], int(port), _key(member.address)
    # No links and no pipes: another user could have put them there.
    with os.fdopen(os.open(_file(member, folder), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
        about, text = os.fstat(file.fileno()), file.read(MOST)
    # Owned by this user and closed to others, because the key stands in it.
    if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o077:
        raise FileNotFoundError
    try:
        facts: Any = strict_json.loads(text)
        return [str(host) for host in facts["hosts"]], int(facts["port"]), bytes.fromhex(facts["key"])
    except (ValueError, TypeError, KeyError):
        raise FileNotFoundError from None


def _key(address: str) -> bytes:
    return hmac.digest(group_key([address]), b"meeting", "sha256")


def _file(member: Member, folder: Path) -> Path:
    return folder / f".launch-{re.sub('[^0-9A-Za-z.]', '', member.job)[:80]}"


def _write(path: Path, text: str) -> None:
    """Write a file for nobody else to read, whole or not at all."""
    # Written under another name and renamed, so that nobody reads half of it.
    draft = path.with_name(f"{path.name}-{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        draft.replace(path)
    except OSError as error:
        raise PeError(f"cannot write {path}: {(error.strerror or str(error)).lower()}", hint="all nodes write into output.dir") from None


def _names() -> list[str]:
    """Return names and addresses of this machine, those first by which others are most likely to know it."""
    found = [socket.gethostname()]
    towards = os.environ.get("SLURM_LAUNCH_NODE_IPADDR", "")
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        if towards:
            # A datagram socket that is connected sends nothing, and knows its address on that way.
            probe.connect((towards, 9))  # sends nothing: asks for the address on the way there
            found.append(probe.getsockname()[0])
    return list(dict.fromkeys(found))
