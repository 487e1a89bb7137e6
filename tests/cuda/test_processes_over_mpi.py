"""pe train in several processes with cards, over MPI: what one process with as many cards leaves, bit for bit, and goes on from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.cli.main import run as command
from pe_cli.core.errors import ExitCode
from pe_cli.devices.cuda_libraries import loaded_libraries
from pe_cli.io.checkpoint import load
from tests.cuda.ptx.device import needs_compiler
from tests.cuda.ptx.library import Library
from tests.cuda.test_group import use
from tests.mpi_support import finished, mpiexec, needs_mpi
from tests.rotation import on_its_day

pytestmark = needs_mpi
#: Runs pe where a machine has two cards of the tests.
PROCESS = """
import runpy
from pe_cli.devices import cuda_driver
from pe_cli.devices.cuda_libraries import loaded_libraries as opened
from tests.cuda.ptx.library import LearningDriver, Library

library = Library([], memory=1 << 22, devices=2)
drivers = [LearningDriver(library, i) for i in range(2)]
cuda_driver.library = lambda: (library, "")
cuda_driver.only_driver, cuda_driver._other_driver = lambda: drivers[0], drivers.__getitem__
opened.installed = dict
runpy.run_module("pe_cli.cli.main", None, "__main__", True)
"""
MODEL = """
name: words
feeds:
  ids: {shape: [3, 1], dtype: int64}
  y:   {shape: [2], dtype: float32}
layers:
  each:  {type: embedding, input: ids, size: [20, 4], is_sparse: true}
  all:   {type: reduce_sum, input: each, dim: 1}
  out:   {type: fc, input: all, size: 2}
  cost:  {type: square_error_cost, input: out, label: y}
  loss:  {type: mean, x: cost}
fetches: [loss]
"""
RUN = """
model: model.yaml
data: {train: {reader: npz, file: data.npz}}
feeds: {ids: ids, y: y}
train: {loss: loss, epochs: 1, batch_size: 8, optimizer: {type: Adam, learning_rate: 0.125}}
fetches: {loss: {every: 1 step}}
executor: {place: cuda, seed: 1}
output: {dir: runs, checkpoint: {every: 1 step, keep: 9}}
"""


def left(folder: Path) -> dict[str, Any]:
    """Return what a run leaves: metrics, and every bit of its last checkpoint."""
    (run,) = folder.iterdir()
    arrays, _ = load(run)
    return {"metrics": (run / "metrics.jsonl").read_text(), **{name: value.tobytes() for name, value in arrays.items()}}


@on_its_day(0, of=5)
def test_owners_of_rows_on_cards_stop_go_on_and_leave_what_one_process_leaves(monkeypatch, tmp_path: Path):
    needs_compiler()
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    Path("model.yaml").write_text(MODEL)
    Path("run.yaml").write_text(RUN)
    np.savez("data.npz", ids=rng.integers(0, 20, (28, 3, 1)), y=rng.standard_normal((28, 2)).astype("float32"))
    Path("process.py").write_text(PROCESS)

    def several(*more: str, code: int = ExitCode.DONE) -> None:
        line = ["train", "run.yaml", "--quiet", "-o", "output.dir=several", "-o", "executor.processes=auto", "-o", "executor.devices=1"]
        found, _, err = finished(mpiexec(2, "process.py", *line, "-o", "build_strategy.reduce_strategy=Reduce", *more))
        assert found == code, err

    several("--max-steps", "2", code=ExitCode.STOPPED)
    several("--resume")
    monkeypatch.setattr(loaded_libraries, "installed", dict)
    use(monkeypatch, Library([], memory=1 << 22, devices=2))
    assert command(["train", "run.yaml", "--quiet", "-o", "output.dir=one", "-o", "executor.devices=2"]) == ExitCode.DONE
    assert left(Path("several")) == left(Path("one"))
