"""The secret of a group of trainers and servers: given by whoever starts them, or kept in a file of the user for one machine."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import ipaddress
import os
import secrets
import socket
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from pe_cli.collectives.launcher_environment import SECRET
from pe_cli.core.errors import PeError

#: Characters of a secret, at least, and bytes of the file that holds one, at most.
LEAST, MOST = 16, 4096
#: Seconds in which the name of a host has to be known, and those between two looks.
NAMED, AGAIN = 20.0, 0.25
#: How a user makes a secret.
MAKES = "(umask 077; head -c 32 /dev/urandom | base64 > FILE)"
SHARE = f"give all processes the same one: as the variable {SECRET}, or in a file that distributed.secret names; {MAKES} makes one"
#: Permissions of others than the owner, and the name of the file that a user's processes of one machine share.
_OTHERS, _NAME = 0o077, "group-secret"


def group_key(endpoints: Iterable[str], group: str = "", file: Path | None = None) -> bytes:
    """Return the key with which processes of a group know each other.

    The secret is that of the variable `PE_GROUP_SECRET`, which `pe launch` sets; or else that of the file; or else, where servers listen on
    this machine alone, one that is kept in a file that only this user can read.

    Args:
        endpoints: host:port of servers.
        group: a word that no other start of the same secret has, as far as one is known.
        file: that holds the secret.

    Returns:
        32 bytes.

    Raises:
        PeError: USAGE; there is no secret, or it is short, or others can read its file; or a host is not known.
    """
    given = os.environ.get(SECRET, "").strip()
    if given:
        secret = _long_enough(os.fsencode(given), SECRET)
    elif file is not None:
        secret = _read(file, f"distributed.secret {file}")
    else:
        for endpoint in endpoints:
            _check_here(endpoint)
        secret = _of_user()
    return hmac.digest(hashlib.sha256(secret).digest(), b"group " + group.encode("utf-8", "surrogateescape"), "sha256")


def addresses(endpoint: str, until: float = 0.0) -> list[tuple[socket.AddressFamily, str, int]]:
    """Return kind, address and port of a text `host:port`, those of the internet's fourth version first.

    Args:
        endpoint: host:port.
        until: by `time.monotonic`; so long, and no longer than `NAMED`, a name may take to be known: that of a pod is when it has begun.

    Raises:
        PeError: USAGE, the host is not known.
    """
    host, _, port = endpoint.rpartition(":")
    until = min(until, time.monotonic() + NAMED)
    while True:
        try:
            found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
            break
        except (socket.gaierror, UnicodeError) as error:
            if isinstance(error, UnicodeError) or time.monotonic() + AGAIN > until:
                why = getattr(error, "strerror", None) or str(error)
                raise PeError(f"server {endpoint}: host is not known: {why}", hint="look at where servers are") from None
            time.sleep(AGAIN)
    return sorted(((kind, str(where[0]), int(where[1])) for kind, _, _, _, where in found), key=lambda one: one[0] != socket.AF_INET)


def _check_here(endpoint: str) -> None:
    """Raise PeError where another machine could reach a server."""
    for _, where, _ in addresses(endpoint):
        if not ipaddress.ip_address(where.partition("%")[0]).is_loopback:
            text = f"server {endpoint} can be reached from other machines, and its group has no secret"
            raise PeError(text, hint=SHARE)


def _long_enough(text: bytes, what: str) -> bytes:
    if len(text) < LEAST:
        raise PeError(f"{what} holds {len(text)} characters, and a secret has {LEAST} at least", hint=f"{MAKES} makes one")
    return text


def _read(path: Path, what: str) -> bytes:
    """Return the secret of a file, which belongs to this user or to root, and which nobody else can read.

    Raises:
        PeError: there is none, or others can read it.
    """
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:  # a pipe is not waited for
            facts, text = os.fstat(file.fileno()), b""
            if stat.S_ISREG(facts.st_mode):
                text = file.read(MOST).strip()
    except OSError as error:
        raise PeError(f"{what}: {(error.strerror or str(error)).lower()}", hint=SHARE) from error
    if not stat.S_ISREG(facts.st_mode) or facts.st_uid not in (os.geteuid(), 0) or facts.st_mode & _OTHERS:
        mode = f"{stat.S_IMODE(facts.st_mode):03o}"
        raise PeError(f"{what}: it must be a file of this user that nobody else can read, and has mode {mode}", hint=f"chmod 600 {path}")
    return _long_enough(text, what)


def _of_user() -> bytes:
    """Return the secret of this user's processes on this machine, made by the first one that needs it.

    Raises:
        PeError: it can be kept nowhere where nobody else can read it.
    """
    for folder in _folders():
        path = folder / _NAME
        with contextlib.suppress(OSError, PeError):  # another user's, as in a folder that several have in common, does not count
            # A link may lead to a file of somebody else, or one that others will write.
            if not path.is_symlink() and not path.exists():
                _make(path)
            return _read(path, str(path))
    raise PeError("the secret that processes of this machine share can be kept nowhere", hint=f"set {SECRET}; {MAKES} makes one")


def _make(path: Path) -> None:
    """Write a new secret where there is none: of several processes that come at once, the first one's counts."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=".secret-")  # for nobody else to read
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        # A link is made whole or not at all, and never over another: nobody reads half a secret.
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        Path(draft).unlink()


def _folders() -> Iterator[Path]:
    """Yield where a user's secret may be: in the folder of caches, or where there is no home, among files that are there for a while."""
    general = Path(os.environ.get("XDG_CACHE_HOME") or "")
    with contextlib.suppress(RuntimeError):
        yield (general if general.is_absolute() else Path.home() / ".cache") / "pe"
    own = Path(tempfile.gettempdir()) / f"pe-{os.geteuid()}"
    with contextlib.suppress(OSError):
        own.mkdir(mode=0o700, exist_ok=True)
        found = own.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & _OTHERS:
            yield own
