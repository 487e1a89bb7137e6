"""Checks before the first step that processes have the same config, data, versions and values; else a run would be wrong without a sign.

Where all agree, as they nearly always do, no process hears more than two small sums, however many there are.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.collectives.protocol import Communicator
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.io import strict_json
from pe_cli.io.environment import environment
from pe_cli.io.input_hashes import Hashes
from pe_cli.kernels.compiler import target

#: Bytes up to which all of a file is looked at; of a larger one as many places of 1 MiB, evenly spread, with the first and the last.
WHOLE, PLACES, PLACE = 64 << 20, 64, 1 << 20
#: Characters of a value that are shown, at most.
SHOWN = 80
_REMEDIES = {
    **dict.fromkeys(("config", "model", "data"), "give all the same files and options"),
    "processor": "use one kind of processor, or executor.instructions: portable",
}


def agree(peers: Communicator, facts: Mapping[str, Any], code: ExitCode = ExitCode.USAGE) -> None:
    """Compare facts over all processes.

    Args:
        peers: the processes.
        facts: JSON values by what they are: `config`, `numpy`.
        code: of a difference.

    Raises:
        PeError: a process has others than the first; names both and the first difference, the same in all processes.
    """
    told = differing(peers, strict_json.dumps(facts).encode())
    if not told:
        return
    found: dict[int, Any] = {rank: strict_json.loads(message) for rank, message in told.items()}
    other = min(rank for rank in found if rank)
    # The first fact that differs, in the order in which they are likely to explain the others.
    name = next(key for key in facts if found[0].get(key) != found[other].get(key))
    theirs, ours = _difference(found[other].get(name), found[0].get(name))
    hint = _REMEDIES.get(name, "install the same on all machines")
    raise PeError(f"process {other} has another {name} than process 0: {theirs}, not {ours}", hint=hint, code=code)


def differing(peers: Communicator, mine: bytes) -> dict[int, bytes]:
    """Compare bytes over all processes, all of which call this.

    Returns:
        Nothing where all have the same; else what the first process has, and what each has that differs from it, by rank.

    Raises:
        PeerError: another process is lost, or has ended.
    """
    # 16 bits in each number: sums of float64 are exact, and all but the first process add nothing to them.
    digest = np.frombuffer(hashlib.sha256(mine).digest(), "<u2").astype(np.float64)
    first = peers.total(digest if peers.rank == 0 else np.zeros_like(digest))
    differs = not np.array_equal(first, digest)
    if not peers.total(np.array([differs], np.float64)).any():
        return {}
    # What may be long is told by those alone of whom it is to be shown.
    told = peers.gather(mine if differs or peers.rank == 0 else b"")
    return {rank: message for rank, message in enumerate(told) if message}


def _difference(theirs: Any, ours: Any) -> tuple[str, str]:
    """Return how two values are shown: of lines the first that differ, of lists the first entries, of long texts the words of one alone."""
    if isinstance(theirs, str) and isinstance(ours, str) and "\n" in theirs + ours:
        theirs, ours = theirs.split("\n"), ours.split("\n")
    elif isinstance(theirs, str) and isinstance(ours, str) and max(len(theirs), len(ours)) > SHOWN:
        theirs, ours = _own_words(theirs, ours), _own_words(ours, theirs)
    if isinstance(theirs, list) and isinstance(ours, list):
        pairs = itertools.zip_longest(theirs, ours)
        theirs, ours = next(((a, b) for a, b in pairs if a != b), ("nothing", "nothing"))
    return _short(theirs), _short(ours)


def _own_words(text: str, other: str) -> str:
    """Return the words that another text does not have: of the features of two processors those that one lacks."""
    return " ".join(word for word in text.split() if word not in other.split())


def _short(value: Any) -> str:
    text = "nothing" if value is None else str(value).strip() or "nothing"
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def machine_facts() -> dict[str, Any]:
    """Return what decides about bits on this machine: versions, and the instructions that kernels are compiled for."""
    found = environment()
    packages = found["packages"]
    assert isinstance(packages, dict)
    kind = target.chosen()
    processor = kind if kind == "portable" else f"{target.cpu_name()} {' '.join(sorted(target.features().split(',')))}"
    return {"pe": found["pe"], **packages, "processor": processor}


def data_facts(paths: Iterable[Path]) -> dict[str, Any]:
    """Return what files and folders of data hold; of large files, what some places of them do.

    Returns:
        `data`: a line for each: its name, its bytes and a hash.
    """
    hashes = Hashes()
    lines = []
    for path in dict.fromkeys(paths):
        # Name and size, not the path: machines may have the data in different folders.
        try:
            size = path.stat().st_size
            held = _places(path, size) if path.is_file() and size > WHOLE else hashes.of(path)["sha256"]
            lines.append(f"{path.name} ({size:,} bytes, sha256 {held[:12]})")
        except OSError as error:
            lines.append(f"{path.name} ({(error.strerror or str(error)).lower()})")
    hashes.keep()
    return {"data": lines}


def _places(path: Path, size: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for i in range(PLACES):
            # Evenly spread, so that a file that was cut, appended or changed in a large part differs.
            file.seek((size - PLACE) * i // (PLACES - 1))
            digest.update(file.read(PLACE))
    return digest.hexdigest()
