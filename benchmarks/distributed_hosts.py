"""Several hosts on one machine: network namespaces of Linux on a bridge, each with a limit on what it sends. Needs root."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

#: Names of the namespaces and of interfaces, and the network: the process's number keeps two runs apart.
TAG = f"d{os.getpid() % 100000}"
NETWORK = "10.91.0."
FIRST = 10
#: How TCP finds its rate: Linux's own default. BBR, which some machines have, leaves such a link idle where flows come and go.
CONTROL, AVAILABLE = "cubic", Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
#: What stands for ssh: the last byte of an address is that of the host's number.
SSH = """#!/bin/bash
while [[ $1 == -* ]]; do shift; done
h=$1; shift; i=$((${{h##*.}}-{first}))
exec ip netns exec {tag}h$i unshare -u bash -c "hostname {tag}h$i; $*"
"""


@dataclass(frozen=True)
class Hosts:
    """Hosts that are up.

    Args:
        count: how many.
        ssh: file of what stands for ssh.
    """

    count: int
    ssh: Path

    @property
    def addresses(self) -> list[str]:
        """Their addresses."""
        return [f"{NETWORK}{FIRST + i}" for i in range(self.count)]

    def inside(self, i: int) -> list[str]:
        """Return what runs a command on a host."""
        return ["ip", "netns", "exec", f"{TAG}h{i}", "unshare", "-u", "sh", "-c", f'hostname {TAG}h{i}; exec "$@"', "sh"]

    def limit(self, mbit: float | None) -> None:
        """Let every host send so much in a second; None takes the limit away."""
        for i in range(self.count):
            show = ["ip", "netns", "exec", f"{TAG}h{i}", "tc", "qdisc"]
            if mbit is None:
                subprocess.run([*show, "del", "dev", "eth0", "root"], check=False, capture_output=True)
            else:
                run([*show, "replace", "dev", "eth0", "root", "tbf", "rate", f"{mbit:g}mbit", "burst", "64k", "latency", "400ms"])


def can() -> str:
    """Return why there can be no hosts here; empty where there can."""
    if sys.platform != "linux":
        return "network namespaces are of Linux"
    if os.geteuid() != 0:
        return "network namespaces need root"
    for name in ("ip", "tc", "unshare"):
        if not any((Path(folder) / name).exists() for folder in (*os.environ["PATH"].split(":"), "/sbin", "/usr/sbin")):
            return f"{name} is not installed (packages iproute2 and util-linux)"
    return ""


@contextlib.contextmanager
def hosts(count: int) -> Iterator[Hosts]:
    """Have so many hosts inside."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ssh = folder / "ssh"
        ssh.write_text(SSH.format(first=FIRST, tag=TAG))
        ssh.chmod(0o755)
        bridge = f"{TAG}b"
        _namespace(stack, bridge)
        run(["ip", "-n", bridge, "link", "add", "name", "br0", "type", "bridge"])
        run(["ip", "-n", bridge, "link", "set", "br0", "up"])
        for i in range(count):
            name = f"{TAG}h{i}"
            _namespace(stack, name)
            run(["ip", "link", "add", "name", "eth0", "netns", name, "type", "veth", "peer", "name", f"port{i}", "netns", bridge])
            run(["ip", "-n", bridge, "link", "set", f"port{i}", "master", "br0", "up"])
            run(["ip", "-n", name, "addr", "add", f"{NETWORK}{FIRST + i}/24", "dev", "eth0"])
            for device in ("eth0", "lo"):
                run(["ip", "-n", name, "link", "set", device, "up"])
            if CONTROL in AVAILABLE.read_text().split():
                run(["ip", "-n", name, "route", "change", f"{NETWORK}0/24", "dev", "eth0", "congctl", CONTROL])
        yield Hosts(count, ssh)


def _namespace(stack: contextlib.ExitStack, name: str) -> None:
    run(["ip", "netns", "add", name])
    stack.callback(subprocess.run, ["ip", "netns", "del", name], check=False)


def run(command: Sequence[str]) -> None:
    """Run a command; what it says of an error is raised."""
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode:
        raise RuntimeError(f"{' '.join(command)}: {found.stderr.strip()}")
