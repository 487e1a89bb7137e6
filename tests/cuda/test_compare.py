"""A config on a CPU beside itself on a card: of a card that computes one op wrongly, that op is named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pe_cli.cli.main import run as command
from pe_cli.core.errors import ExitCode
from pe_cli.devices import cuda_driver
from pe_cli.kernels.cuda.language import Built
from tests.cuda.ptx.device import PtxDriver, needs_compiler

MODEL = """
name: small
feeds:
  x: {shape: [3], dtype: float32}
  y: {shape: [1], dtype: float32}
layers:
  shifted: {type: scale, x: x, scale: 2.0, bias: 1.0}
  above:   {type: relu, x: shifted}
  out:     {type: fc, input: above, size: 1}
  cost:    {type: square_error_cost, input: out, label: y}
  loss:    {type: mean, x: cost}
"""
RUN = """
model: model.yaml
data: {train: {reader: npz, file: data.npz}}
feeds: {x: x, y: y}
train: {loss: loss, epochs: 1, batch_size: 4, optimizer: {type: SGD, learning_rate: 0.1}}
executor: {seed: 1}
build_strategy: {enable_auto_fusion: false}
"""


def at_most(built: Built, text: str) -> str:
    """Return the PTX of a kernel; of relu's one that takes the smaller number."""
    return text.replace("setp.le.f32", "setp.gt.f32") if "relu" in built.kernel.name else text


@pytest.mark.parametrize("change", [None, at_most], ids=["a card that computes the same", "a card whose relu is wrong"])
def test_the_first_op_that_differs_between_places_is_named(monkeypatch, tmp_path: Path, capsys, change):
    needs_compiler()
    driver = PtxDriver(change=change)
    monkeypatch.setattr(cuda_driver, "only_driver", lambda: driver)
    monkeypatch.setattr(cuda_driver, "device_count", lambda: 1)
    monkeypatch.chdir(tmp_path)
    Path("model.yaml").write_text(MODEL)
    Path("run.yaml").write_text(RUN)
    rng = np.random.default_rng(0)
    np.savez("data.npz", x=rng.standard_normal((4, 3)).astype("float32"), y=rng.standard_normal((4, 1)).astype("float32"))
    code = command(["compare", "run.yaml", "--places", "cpu,cuda", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert code == (ExitCode.DIFFERENT if change else ExitCode.DONE)
    assert found["compared"] > 8
    assert [d["op"] for d in found["differing"][:1]] == (["relu"] if change else [])
    assert any("'cpu' -> 'cuda'" in text for text in found["given"])


@pytest.mark.parametrize("given", [["--places", "cpu,gpu"], ["--places", "cpu"], ["other.yaml", "--places", "cpu,cuda"]])
def test_places_that_cannot_be_compared_are_refused(tmp_path: Path, capsys, given: list[str]):
    for name in ("run.yaml", "other.yaml"):
        (tmp_path / name).write_text(RUN)
    given = [str(tmp_path / word) if word.endswith(".yaml") else word for word in given]
    assert command(["compare", str(tmp_path / "run.yaml"), *given]) == ExitCode.USAGE
    assert "--places" in capsys.readouterr().err
