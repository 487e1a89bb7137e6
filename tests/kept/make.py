"""Keep runs of this version for all later ones: `python -m tests.kept.make`, once per release.

Each folder of sources/ has a config, its model and its data. Its run is stopped half way and kept in VERSION/NAME/run; expected.json has
what the training reaches at its end, and what the kept checkpoint gives. What is kept is never made again: a later version has to read it
as it is.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from pe_cli import __version__

HERE = Path(__file__).resolve().parent
#: Steps after which the kept runs are stopped: in the middle of an epoch.
STOP = {"images": 20, "table": 18, "texts": 14, "phases": 14, "servers": 14}
#: Started by each process of Python: parameter servers write files of rows for tables of any size, which they do from 64 MiB on.
SMALL = "import pe_cli.session.processes.server_training\n\npe_cli.session.processes.server_training.MAPPED = 64\n"


def pe(*arguments: str | Path, at: Path) -> str:
    """Run a command; return what it prints.

    Raises:
        SystemExit: it ends with another code than 0, or 75 where it was to stop.
    """
    environment = os.environ | {"PYTHONPATH": f"{at.parent}:{HERE.parents[1]}"}
    command = [sys.executable, "-m", "pe_cli", *map(str, arguments)]
    done = subprocess.run(command, cwd=at, env=environment, capture_output=True, text=True)
    if done.returncode not in (0, 75):
        raise SystemExit(f"pe {' '.join(map(str, arguments))}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def last(run: Path) -> dict[str, float]:
    """Return the newest metrics of a run."""
    found: dict[str, float] = {}
    for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        found |= {f"{row['split']}/{name}": value for name, value in row.items() if name not in ("split", "step", "epoch", "batch", "time")}
    return found


def keep(name: str, into: Path) -> None:
    """Train, stop and keep one run."""
    with tempfile.TemporaryDirectory() as made:
        work = Path(made) / name
        shutil.copytree(HERE / "sources" / name, work)
        if name == "servers":
            (work.parent / "sitecustomize.py").write_text(SMALL)
        train = ("launch", "-n", "3") if name == "servers" else ("train",)
        pe(*train, "config.yaml", "--quiet", "-o", "output.name=whole", at=work)
        pe(*train, "config.yaml", "--quiet", "--max-steps", str(STOP[name]), at=work)
        (whole,), (run,) = (work / "runs").glob("whole-*"), (work / "runs").glob(f"{name}-*")
        apart = ("-o", "distributed=null") if name == "servers" else ()
        expected = {"version": __version__, "end": last(whole), "eval": json.loads(pe("eval", run, "--json", *apart, at=work))}
        expected["eval"]["checkpoint"] = Path(expected["eval"]["checkpoint"]).name
        listed = json.loads(pe("runs", work / "runs", "--json", at=work))
        expected["runs"] = sorted({key for row in listed for key in row})
        if (work / "new.csv").exists():
            expected["predict"] = pe("predict", run, "new.csv", at=work).splitlines()
        target = into / name
        shutil.copytree(run, target / "run")
        for part in work.iterdir():
            if part.is_file():
                shutil.copy(part, target)
        for empty in ("graphs", "fetches"):
            if (folder := target / "run" / empty).is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        (target / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Keep the runs of this version."""
    into = HERE / __version__
    if into.exists():
        raise SystemExit(f"{into} is there, and kept runs stay as they are; hint: raise the version in pe_cli/__init__.py")
    for name in sorted(STOP):
        keep(name, into)
        sys.stdout.write(f"{name}: kept\n")


if __name__ == "__main__":
    main()
