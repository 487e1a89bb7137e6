"""Checks before the first step that all processes have the same config, data and versions; else a run would be wrong without a sign."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.io import strict_json
from pe_cli.io.environment import environment
from pe_cli.io.input_hashes import Hashes
from pe_cli.kernels.compiler import target

#: Bytes up to which all of a file is looked at; of a larger one as many places of 1 MiB, evenly spread, with the first and the last.
WHOLE, PLACES, PLACE = 64 << 20, 64, 1 << 20
#: Characters of a value that are shown, at most.
SHOWN = 80
#: Gives every process a JSON object of this one, and returns those of all.
Tell = Callable[[Mapping[str, Any]], list[Mapping[str, Any]]]
_REMEDIES = {
    **dict.fromkeys(("config", "model", "data"), "give all the same files and options"),
    "processor": "use one kind of processor, or executor.instructions: portable",
}


def agree(tell: Tell, facts: Mapping[str, Any], code: ExitCode = ExitCode.USAGE) -> None:
    """Compare facts over all processes: a hash of them, and where that differs the facts themselves.

    Args:
        tell: tells all processes what this one has, and returns what each has.
        facts: JSON values by what they are: `config`, `numpy`.
        code: of a difference.

    Raises:
        PeError: a process has others than the first; names both and the first difference, the same in all processes.
    """
    # Hashes first: facts may be long, and mostly agree.
    digest = hashlib.sha256(strict_json.dumps(facts).encode()).hexdigest()
    hashes = [told.get("digest") for told in tell({"digest": digest})]
    if len(set(hashes)) == 1:
        return
    first, other = 0, next(rank for rank, found in enumerate(hashes) if found != hashes[0])
    found = tell(facts)
    # The first fact that differs, in the order in which they are likely to explain the others.
    name = next(key for key in facts if found[first].get(key) != found[other].get(key))
    theirs, ours = _difference(found[other].get(name), found[first].get(name))
    hint = _REMEDIES.get(name, "install the same on all machines")
    raise PeError(f"process {other} has another {name} than process {first}: {theirs}, not {ours}", hint=hint, code=code)


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
