"""Trains once on a disk that is watched, cuts its power at instants spread over the run, and resumes from what is left.

Run as a program: cut_while_training.py BASE INSTANTS SEED, with BASE holding run.yaml, its model and data. At every instant there is one
disk that lost all that was not flushed, one that lost nothing, one that kept names and lost contents, and one by chance.
Prints one JSON line per disk, and keeps it in BASE/cut-N.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sys
from pathlib import Path

from pe_cli.cli.main import run
from tests.session.kill_while_training import child
from tests.session.power import ALWAYS, Disk, Watch, rebuilt


def watch(base: Path, every: int, seed: int) -> None:
    """Train on a watched disk; write what is left after a cut at every so many calls, and what the cuts were; 0 only counts the calls."""
    root = base / "disk"
    root.mkdir()
    disk, seen, chance = Disk(root), [0], random.Random(seed)
    cuts: list[tuple[int, str, str, list[tuple[str, bytes | None]]]] = []

    def cut(call: str) -> None:
        seen[0] += 1
        if every and seen[0] % every == 0:
            cuts.extend((seen[0], call, how, disk.after_the_cut(how, chance)) for how in (*ALWAYS, "chance"))

    Watch(disk, cut)
    assert run(["train", str(base / "run.yaml"), "--quiet", "-o", f"output.dir={root / 'runs'}"]) == 0
    shutil.move(root, base / "whole")
    for i, (*_, left) in enumerate(cuts):
        rebuilt(left, base / f"left-{i}")
    told = [{"call": n, "name": call, "how": how, "newest": newest(left)} for n, call, how, left in cuts]
    (base / "cuts.json").write_text(json.dumps({"calls": seen[0], "cuts": told}))


def watched(base: Path, every: int, seed: int) -> tuple[int, list[dict[str, object]]]:
    """Watch in a child; return how many calls there were, and the cuts."""
    shutil.rmtree(base / "whole", ignore_errors=True)
    pid = os.fork()
    if pid == 0:
        watch(base, every, seed)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    told = json.loads((base / "cuts.json").read_text())
    return told["calls"], told["cuts"]


def newest(left: list[tuple[str, bytes | None]]) -> int:
    """Return the step of the newest checkpoint that is surely there, -1 for none."""
    found = [re.fullmatch(r"runs/[^/]+/checkpoints/step-(\d+)", name) for name, content in left if content is None]
    return max((int(m[1]) for m in found if m), default=-1)


def main(base: Path, instants: int, seed: int) -> None:
    """Cut the power at every instant, in every way."""
    calls, _ = watched(base, 0, seed)
    surely = -1
    for i, cut in enumerate(watched(base, max(1, calls // instants), seed)[1]):
        if cut["how"] == "lost":
            surely = int(cut["newest"])  # type: ignore[call-overload]
        (base / f"left-{i}").rename(base / "disk")
        into = base / "disk" / "runs"
        code, text = child(into, base / "log", None, "--resume", quiet=False)
        began = re.search(r"goes on after step (\d+)", text)
        kept = base / f"cut-{i}"
        max(into.glob("*/status.json"), key=lambda path: path.stat().st_mtime).parent.rename(kept)
        shutil.rmtree(base / "disk")
        facts = {**cut, "surely": surely, "began": int(began[1]) if began else -1, "code": code, "text": text[-2000:], "folder": str(kept)}
        print(json.dumps(facts), flush=True)  # noqa: T201 - its output


if __name__ == "__main__":
    # loads the kernels and all modules; children begin with them
    assert run(["train", f"{sys.argv[1]}/run.yaml", "--quiet", "-o", f"output.dir={sys.argv[1]}/first"]) == 0
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
