"""What a card, its driver and its data can do to a training: each has its message, its exit code, and leaves the last checkpoint."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pe_cli.cli.main import run as command
from pe_cli.core.errors import ExitCode
from pe_cli.devices import cuda_driver, cuda_driver_library
from pe_cli.io import checkpoint
from tests.cuda.ptx.device import needs_compiler
from tests.cuda.ptx.library import LearningDriver, Library
from tests.rotation import on_its_day

MODEL = """
name: line
feeds:
  x: {shape: [3], dtype: float32}
  label: {shape: [1], dtype: int64}
layers:
  above:  {type: relu, x: x}
  ids:    {type: cast, x: above, dtype: int64}
  column: {type: unsqueeze, input: ids, axes: [2]}
  word:   {type: embedding, input: column, size: [9, 3]}
  logits: {type: reduce_sum, input: word, dim: [1]}
  xent:   {type: softmax_with_cross_entropy, logits: logits, label: label}
  loss:   {type: mean, x: xent}
fetches: [loss]
"""
RUN = """
model: model.yaml
data: {train: {reader: npz, file: data.npz}}
feeds: {x: x, label: label}
train: {loss: loss, epochs: 3, batch_size: 4, optimizer: {type: SGD, learning_rate: 0.1}}
executor: {place: cuda, seed: 1}
output: {dir: runs, checkpoint: {every: 2 steps, keep: 2}}
"""
Train = Callable[..., tuple[int, str]]
UNAVAILABLE = 46


@pytest.fixture
def train(monkeypatch, tmp_path: Path, capsys) -> Train:
    """Return what trains for six steps with a library, and gives the exit code and the messages."""
    needs_compiler()
    rng = np.random.default_rng(0)
    data = {"x": rng.standard_normal((8, 3)).astype("float32"), "label": rng.integers(0, 3, (8, 1))}
    monkeypatch.chdir(tmp_path)
    Path("model.yaml").write_text(MODEL)
    Path("run.yaml").write_text(RUN)

    def run(library: Library, *arguments: str, word: float | None = None) -> tuple[int, str]:
        if word is not None:
            data["x"][6, 1] = word
        np.savez("data.npz", **data)
        held: list[LearningDriver] = []

        def only_driver() -> LearningDriver:
            if not held:
                held.append(LearningDriver(library))
            return held[0]

        monkeypatch.setattr(cuda_driver, "only_driver", only_driver)
        monkeypatch.setattr(cuda_driver, "library", lambda: (library, ""))
        code = command(["train", "run.yaml", "--quiet", *arguments])
        return code, capsys.readouterr().err

    return run


def kept() -> list[int]:
    """Return the steps that have checkpoints."""
    (folder,) = Path("runs").iterdir()
    return checkpoint.steps(folder / "checkpoints")


@on_its_day(0, of=3)
def test_a_card_that_is_lost_while_training_leaves_the_last_checkpoint(train: Train):
    lost = Library([])
    lost.failing["cuGraphLaunch"] = lambda count: UNAVAILABLE if count >= 4 else 0
    for name in ("cuStreamSynchronize", "cuEventSynchronize"):
        lost.failing[name] = lambda _: UNAVAILABLE if lost.calls.get("cuGraphLaunch", 0) >= 4 else 0
    code, said = train(lost)
    assert code == ExitCode.DEVICE, said
    assert "error: the CUDA device failed: cuGraphLaunch: CUDA_ERROR_DEVICE_UNAVAILABLE" in said
    assert said.count("error:") == 1
    assert kept()[-1] == 4
    code, said = train(Library([]), "--resume")
    assert (code, kept()[-1]) == (ExitCode.DONE, 6), said


def test_a_kernel_that_faults_ends_a_training_with_one_message(train: Train):
    card = Library([])

    def launched(count: int) -> int:
        card.fault = 700 if count >= 4 else 0
        return 0

    card.failing["cuGraphLaunch"] = launched
    code, said = train(card)
    assert (code, said.count("error:"), kept()[-1]) == (ExitCode.DEVICE, 1, 4), said
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in said


def test_a_card_that_hangs_is_not_waited_for_again(train: Train):
    card = Library([])

    def launched(count: int) -> int:
        card.hung = count >= 3
        return 0

    card.failing["cuGraphLaunch"] = launched
    code, said = train(card, "-o", "executor.watchdog=0.2")
    assert (code, said.count("error:")) == (ExitCode.STALLED, 1), said
    gc.collect()  # memory that is given back would be waited for
    assert card.hung


def test_bad_data_is_an_error_of_data_and_leaves_the_last_checkpoint(train: Train):
    code, said = train(Library([]), "-o", "output.checkpoint.every=1 step", word=12)
    assert code == ExitCode.DATA
    assert "model.yaml:10:12: error: lookup_table: value 12 at row 2 is out of range [0, 9), at step 1" in said
    assert kept() == [1], said


def test_memory_that_does_not_suffice_is_told_with_what_there_is(train: Train):
    code, said = train(Library([], memory=600))
    assert code == ExitCode.DEVICE
    assert "cannot allocate" in said
    assert "on the CUDA device, which has" in said
    assert "hint: use a smaller batch_size" in said


def test_a_batch_that_does_not_fit_is_told_with_one_that_would(train: Train):
    code, said = train(Library([], memory=2600))
    assert code == ExitCode.DEVICE
    assert "hint: use a smaller batch_size: 4 samples take 0.0 MiB, 3 would fit" in said


@pytest.mark.parametrize(
    ("capability", "text"),
    [
        pytest.param((6, 0), "the CUDA device has the compute capability 6.0, and kernels need 7.5 or later", id="older than all"),
        pytest.param((99, 0), "the compiler does not take sm_990", id="newer than the compiler"),
    ],
)
def test_a_card_of_another_kind_is_refused(train: Train, capability: tuple[int, int], text: str):
    code, said = train(Library([], capability=capability))
    assert code == ExitCode.DEVICE
    assert text in said
    assert "hint:" in said


def test_more_devices_than_there_are_is_told_at_its_place(train: Train):
    code, said = train(Library([]), "-o", "executor.devices=3")
    assert code == ExitCode.DEVICE
    assert "3 CUDA devices wanted, 1 visible" in said


def functions(version: int = 13000, init: int = 0) -> Any:
    """Return a library whose functions give what is said."""

    def get_version(place: Any) -> int:
        place._obj.value = version
        return 0

    def name_of(result: int, place: Any) -> int:
        place._obj.value = b"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
        return 0

    own = {"cuDriverGetVersion": get_version, "cuInit": lambda _: init, "cuGetErrorName": name_of}
    return SimpleNamespace(**{name: own.get(name, lambda *_: 0) for name in cuda_driver_library.FUNCTIONS})


@pytest.mark.parametrize(
    ("library", "why"),
    [
        pytest.param(functions(12040), "the CUDA driver is one of CUDA 12.4, too old: update it to one of CUDA 13.0 or later", id="old"),
        pytest.param(
            SimpleNamespace(cuInit=lambda _: 0),
            "the CUDA driver is too old, it has no cuDriverGetVersion: update it to one of CUDA 13.0 or later",
            id="ancient",
        ),
        pytest.param(functions(init=100), "no CUDA device is visible", id="no device"),
        pytest.param(functions(init=803), "the CUDA driver cannot be used: cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", id="two drivers"),
    ],
)
def test_a_driver_that_is_of_no_use_says_why(library: Any, why: str):
    assert cuda_driver_library.prepared(library) == (None, why)
