"""Host files: which machines there are, and how many processes each gets."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from pathlib import Path

from pe_cli.config.files import read_text
from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass

#: Hosts of a file, and processes on one host, at most.
MOST = 4096
_LINE = re.compile(r"(?P<name>[\w.-]+|\[[0-9a-fA-F:]+\])(?::(?P<count>[0-9]{1,9})|\s+slots\s*=\s*(?P<slots>[0-9]{1,9}))?")


@dataclass(frozen=True)
class Host:
    """A machine.

    Args:
        name: or address, as in the file.
        slots: processes on it, at most; 0 where the file does not say.
    """

    name: str
    slots: int = 0


def hosts_of(text: str) -> tuple[list[Host], Path | None]:
    """Return the hosts that a user names, and the file that holds them: a file, or names with commas, as `a,b:2`.

    Raises:
        PeError: see `read_hosts`.
    """
    # A name with a comma can be no file, so that a file called like a host is the only doubt.
    if "," not in text and Path(text).exists():
        return read_hosts(Path(text)), Path(text)
    parts = [part.strip() for part in text.split(",")]
    if "/" in text:
        raise PeError(f"no such file of hosts: {text[:200]}", hint="a file with a host on each line, or names: --hosts a,b:2")
    return _parsed([(f"--hosts {text[:80]}", part) for part in parts if part], f"--hosts {text[:80]}"), None


def read_hosts(path: Path) -> list[Host]:
    """Return the hosts of a file: a line for each, `name`, `name:slots` or `name slots=2`; `#` begins a comment.

    Raises:
        PeError: it can't be read, has no host or a line that is none, or a name that is not known.
    """
    lines = ((f"{path}:{number}", line.partition("#")[0].strip()) for number, line in enumerate(read_text(path, "hosts").splitlines(), 1))
    return _parsed([(at, text) for at, text in lines if text], str(path))


def _parsed(lines: Sequence[tuple[str, str]], source: str) -> list[Host]:
    """Return the hosts of texts, each with its place."""
    found: list[Host] = []
    for at, text in lines:
        parts = _LINE.fullmatch(text)
        slots = int(parts["count"] or parts["slots"] or 0) if parts else 0
        if parts is None or slots > MOST:
            raise PeError(f"{at}: '{text[:80]}' is no host", hint="a name or an address, and perhaps :4 for four processes")
        if len(found) == MOST:
            raise PeError(f"{at}: more than {MOST} hosts", hint="a line for each machine: node1:4 for four processes")
        found.append(Host(parts["name"], slots))
    if not found:
        raise PeError(f"{source}: no host in it", hint="a host on each line")
    _check_known(source, found)
    return found


def _check_known(source: str, hosts: Sequence[Host]) -> None:
    for host in hosts:
        try:
            # Known before anything starts: a wrong name would be noticed after a minute, by a time-out of ssh.
            socket.getaddrinfo(host.name.strip("[]"), None)
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise PeError(f"{source}: host {host.name} is not known: {why}", hint="write its address, or the name of a file") from None


def divided(hosts: Sequence[Host], count: int) -> list[str]:
    """Return the host of each process: hosts in their order, each as many as it has slots, or all alike where the file says none.

    Raises:
        PeError: there are fewer slots than processes.
    """
    if any(host.slots for host in hosts):
        places = [host.name for host in hosts for _ in range(host.slots or 1)]
        if len(places) < count:
            raise PeError(f"the hosts have {len(places)} slots for {count} processes", hint="give them more, as node1:4, or a smaller -n")
        return places[:count]
    return [hosts[i * len(hosts) // count].name if count >= len(hosts) else hosts[i].name for i in range(count)]
