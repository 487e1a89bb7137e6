"""Who is compared with pe: their scripts, the interpreters that have them, and the ways in which each can run a workload."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import workloads

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
#: Pairs NAME=PATH, separated by spaces, as --python takes them.
VARIABLE = "PE_BENCH_PYTHON"
#: Seconds after which a run that has not ended is given up.
PATIENCE = 900


class RunError(Exception):
    """A command that did not give a result; the message says which and what it printed last."""


@dataclass(frozen=True)
class Peer:
    """A library that is compared.

    Attributes:
        key: its name for --peers and --python.
        name: its name in tables.
        script: which runs it, beside this file.
        version: Python that prints its version, and fails where it is not installed.
        single: whether it is run with one thread, too, beside all cores.
    """

    key: str
    name: str
    script: str
    version: str
    single: bool


@dataclass(frozen=True)
class Way:
    """One way of running a peer: with so many threads, and with options of its script.

    Attributes:
        peer: which is run.
        threads: number of threads.
        switches: options of its script, without the two dashes.
    """

    peer: Peer
    threads: int
    switches: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        parts = [self.peer.name, f"{self.threads} thread{'s' * (self.threads > 1)}", *self.switches]
        return ", ".join(parts).replace("-", " ")


PEERS = (
    Peer("torch", "PyTorch", "torch_peer.py", "import torch; print(torch.__version__)", True),
    Peer("jax", "JAX", "jax_peer.py", "import jax; print(jax.__version__)", True),
    Peer(
        "paddle",
        "PaddlePaddle 3",
        "paddle_peer.py",
        "import paddle; assert int(paddle.__version__[0]) > 1; print(paddle.__version__)",
        False,
    ),
    Peer(
        "fluid",
        "PaddlePaddle 1.8",
        "fluid_peer.py",
        "import paddle; assert paddle.__version__[:4] == '1.8.'; print(paddle.__version__)",
        False,
    ),
)


def interpreters(pairs: list[str]) -> dict[str, str]:
    """Return the interpreter of each peer, by its key: those that pairs NAME=PATH tell, else this one."""
    found = dict.fromkeys((p.key for p in PEERS), sys.executable)
    for pair in [*os.environ.get(VARIABLE, "").split(), *pairs]:
        key, equals, path = pair.partition("=")
        if not equals or key not in found:
            sys.exit(f"--python {pair}: expected NAME=PATH, NAME one of {', '.join(found)}")
        if shutil.which(path) is None:
            sys.exit(f"--python {pair}: no program at that path")
        found[key] = path
    return found


def installed(wanted: list[str], pythons: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the versions of the wanted peers that can be imported, by key, and the names of those that cannot."""
    known = {p.key: p for p in PEERS}
    if unknown := [key for key in wanted if key not in known]:
        sys.exit(f"--peers {','.join(unknown)}: expected names out of {', '.join(known)}")
    found, absent = {}, []
    for key in wanted:
        command = [pythons[key], "-c", known[key].version]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=clean(pythons[key]))
        if done.returncode:
            absent.append(known[key].name)
        else:
            found[key] = done.stdout.strip().splitlines()[-1]
    return found, absent


def ways(peer: Peer, name: str, cores: int, compiled: bool) -> list[Way]:
    """Return all ways of running a workload with a peer; none where it cannot."""
    if (peer.key, name) == ("fluid", "lstm"):  # its gradient is wrong there
        return []
    if name in workloads.LARGE and peer.key != "torch":  # nobody has written them
        return []
    options: list[tuple[str, ...]] = [()]
    if peer.key == "torch" and name in ("lenet", "resnet20", *workloads.LARGE):
        options.append(("channels-last",))
    if peer.key in ("torch", "paddle", "fluid") and name == "ctr":
        options.append(("dense",))
    if peer.key == "fluid" and name == "resnet20":
        options.append(("onednn",))
    # of the lstm it unrolls the steps, and had not compiled them in a quarter of an hour
    compiled = compiled and name not in ("lstm", *workloads.LARGE)
    many = {"torch": "compile" * compiled, "paddle": "static", "fluid": "parallel"}.get(peer.key, "")
    if many and not (peer.key == "fluid" and name == "chain"):  # a batch of one cannot be split over devices
        options += [(*o, many) for o in options]
    return [Way(peer, n, o) for n in sorted({1, cores} if peer.single else {cores}) for o in options]


def clean(python: str) -> dict[str, str]:
    """Return the environment for an interpreter; another one must not find this one's packages.

    All may keep their bytecode: what is installed has it, and starts the sooner.
    """
    own = {"PYTHONDONTWRITEBYTECODE"} | ({"PYTHONPATH"} if python != sys.executable else set())
    return {k: v for k, v in os.environ.items() if k not in own}


def run(command: list[str]) -> dict:
    """Run a command in the project's folder and return the JSON of its last line.

    Raises:
        RunError: it failed, printed no JSON, or took longer than `PATIENCE`.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=ROOT, env=clean(command[0]), timeout=PATIENCE
        )
    except subprocess.TimeoutExpired:
        raise RunError(f"{' '.join(command)}\nno end after {PATIENCE} s") from None
    try:
        if done.returncode == 0:
            return json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        pass  # told below, with what was printed instead
    raise RunError(f"{' '.join(command)}\nexit status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def measure(way: Way, python: str, name: str, size: int, steps: int, seconds: float) -> dict:
    """Run a workload in one way and return what its script prints."""
    command = [python, str(HERE / way.peer.script), name, "--batch", str(size), "--threads", str(way.threads)]
    command += ["--steps", str(steps), "--max-seconds", str(seconds), *(f"--{s}" for s in way.switches)]
    return run(command)
