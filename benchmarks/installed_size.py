"""Prints how many MB packages take on the disk, with all that they need: `python installed_size.py NAME[EXTRA]...`."""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path


def needed(names: list[str]) -> dict[str, metadata.Distribution]:
    """Return the installed distributions that packages consist of and need, by name; `NAME[EXTRA]` with those of an extra."""
    found: dict[str, metadata.Distribution] = {}
    waiting = list(names)
    while waiting:
        name, extra = re.fullmatch(r"([A-Za-z0-9._-]+)(?:\[([^]]*)\])?.*", waiting.pop()).groups()  # type: ignore[union-attr]
        key = re.sub(r"[-_.]+", "-", name).lower()
        try:
            found.setdefault(key, metadata.distribution(name))
        except metadata.PackageNotFoundError:  # for another platform
            continue
        for line in found[key].requires or ():
            need, _, marker = line.partition(";")
            wanted = re.search(r"extra\s*==\s*['\"]([^'\"]+)", marker)
            if (wanted is None or (extra and wanted[1] in extra.split(","))) and re.match(r"[A-Za-z0-9._-]+", need)[0].lower() not in found:  # type: ignore[index]
                waiting.append(need.strip())
    return found


def size(distribution: metadata.Distribution) -> int:
    """Return the bytes of a distribution's files; of one that lies elsewhere, as in development, those of its package."""
    files = [Path(str(distribution.locate_file(file))) for file in distribution.files or ()]
    total = sum(file.stat().st_size for file in files if file.is_file())
    if distribution.metadata["Name"] == "pe-cli" and not any(file.suffix == ".py" and "pe_cli" in file.parts for file in files):
        import pe_cli

        total += sum(file.stat().st_size for file in Path(pe_cli.__file__).parent.rglob("*") if file.is_file() and file.suffix != ".pyc")
    return total


if __name__ == "__main__":
    sys.stdout.write(f"{sum(map(size, needed(' '.join(sys.argv[1:]).split()).values())) / 1e6:.1f}\n")
