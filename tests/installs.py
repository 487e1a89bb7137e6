"""Install the wheel, the packed sources, and pe with each extra, into environments of their own: `python -m tests.installs [EXTRA ...]`.

Part of `make check-deep`, for it takes minutes and gigabytes. What an extra is used by is a command of pe where it has one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
#: What is done with an extra: arguments of pe, or code of Python where no short command uses it.
USES: dict[str, Sequence[str] | str] = {
    "cuda": ("check", "configs/digits.yaml", "-o", "executor.place=cuda", "--arch", "sm_90"),
    "cuda-libraries": "from pe_cli.devices.cuda_libraries.loaded_libraries import installed; assert len(installed()) >= 2, installed()",
    "mpi": ("launch", "-n", "2", "configs/digits.yaml", "--smoke", "-o", "output.dir={}"),
    "graphviz": ("graph", "configs/digits.yaml", "--svg", "{}/graph.svg"),
    "onnx": "import onnx",
    "tables": "import pyarrow.parquet",
    "remote": "import s3fs",
    "images": ("train", "configs/shapes.yaml", "--smoke", "-o", "output.dir={}"),
    "text": "import tokenizers",
    "tensorboard": ("train", "configs/digits.yaml", "--smoke", "-o", "output.dir={}", "-o", "output.log=[jsonl, tensorboard]"),
    "holidays": "import holidays",
    "search": "import optuna",
    "mlflow": "import mlflow",
    "wandb": "import wandb",
    "plot": "import matplotlib.pyplot",
    "docs": "import material, mkdocs",
    "test": "import pytest, onnxruntime, sklearn",
    "dev": "import torch",
    "peers": "import tensorboard, torch",
}


def run(*command: str | Path, cwd: Path) -> None:
    """Run a command; what it says is shown only where it fails.

    Raises:
        SystemExit: it has failed.
    """
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout[-4000:]}\nended with {done.returncode}")


def environment(folder: Path, *packages: str) -> Path:
    """Make an environment with packages; return the folder of its commands."""
    run(sys.executable, "-m", "venv", folder, cwd=ROOT)
    run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages, cwd=ROOT)
    return folder / "bin"


def use(commands: Path, how: Sequence[str] | str, into: Path) -> None:
    """Do what an extra is for."""
    if isinstance(how, str):
        run(commands / "python", "-c", how, cwd=into)
    else:
        run(commands / "pe", *(part.replace("{}", str(into)) for part in how), cwd=ROOT)


def main(names: Sequence[str]) -> None:
    """Try what `make dist` has left in dist/, where it is there, then extras; all of them where none is named."""
    assert set(USES) == set(EXTRAS), "an extra is not tried, or is gone"
    packed = [path for path in sorted((ROOT / "dist").glob("*")) if path.suffix in (".whl", ".gz")]
    for archive in packed if not names else ():
        with tempfile.TemporaryDirectory() as made:
            commands = environment(Path(made) / "made", str(archive))
            use(commands, ("train", str(ROOT / "configs" / "digits.yaml"), "-o", f"output.dir={made}"), Path(made))
            sys.stdout.write(f"{archive.name}: installed and used\n")
            sys.stdout.flush()
    for name in names or USES:
        with tempfile.TemporaryDirectory() as made:
            use(environment(Path(made) / "made", f".[{name}]"), USES[name], Path(made))
            sys.stdout.write(f"[{name}]: installed and used\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
