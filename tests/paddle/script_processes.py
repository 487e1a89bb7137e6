"""Scripts that are run as `pe run` runs them, each in a copy of one process: to import takes longer than they do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Ended:
    """How a script has ended, and what it has said."""

    code: int
    out: str
    err: str


def run_scripts(folder: Path, lines: Sequence[Sequence[str]]) -> list[Ended]:
    """Run scripts one after the other, with a folder as the current one.

    Args:
        folder: where they are; it gets a file for what each says.
        lines: of each, the arguments of `pe_cli.paddle.run_script`.

    Returns:
        How each has ended.
    """
    given = json.dumps([str(folder), list(map(list, lines))])
    subprocess.run(
        [sys.executable, "-P", "-m", "tests.paddle.script_processes"], env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=folder,
        input=given, text=True, check=True,
    )  # fmt: skip
    codes = json.loads((folder / "codes").read_text())
    said = [[(folder / f"{name}{i}").read_text() for name in ("out", "err")] for i in range(len(lines))]
    return [Ended(code, *texts) for code, texts in zip(codes, said, strict=True)]


def main() -> None:
    """Import, run a copy for each line, and write down how they have ended; a copy returns from here as the script does."""
    from pe_cli.paddle import run_script

    folder, lines = json.load(sys.stdin)
    codes = []
    for i, line in enumerate(lines):
        copy = os.fork()
        if not copy:
            for name, file in (("out", 1), ("err", 2)):
                os.dup2(os.open(Path(folder) / f"{name}{i}", os.O_WRONLY | os.O_CREAT), file)
            run_script.start(line)
            return
        codes.append(os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]))
    (Path(folder) / "codes").write_text(json.dumps(codes))


if __name__ == "__main__":
    main()
