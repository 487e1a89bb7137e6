"""Models that PaddlePaddle 1.8.5 wrote are imported: they compute its outputs, train, and are exported; what has no layer is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.execute.executor import Executor
from pe_cli.io.checkpoint import load_arrays
from pe_cli.io.fluid import program_desc
from pe_cli.io.fluid.program_desc import BlockDesc, OpDesc, VarDesc
from pe_cli.io.fluid.tensors import of_tensor, of_tensors
from pe_cli.ops.define.lod import offsets_name
from pe_cli.session.importing.define import ImportedModel, ImportWish, read_model
from pe_cli.session.importing.training import for_training
from pe_cli.session.importing.write import write
from pe_cli.session.job import Job
from tests.paddle.recordings.models import IMAGES, LENGTHS, WORDS

RECORDED = Path(__file__).parents[2] / "paddle" / "recordings" / "models"
OFFSETS = np.concatenate([[0], np.cumsum(LENGTHS[0])]).astype(np.int64)
FEEDS = {"images": {"image": IMAGES}, "words": {"words": WORDS, offsets_name("words", 0): OFFSETS}}


def computed(model: ImportedModel, folder: Path, feeds: dict[str, Any]) -> list[np.ndarray]:
    """Return what a model computes, opened as a user's."""
    write(model, folder, replace=True)
    job = Job.open(folder / "config.yaml", ["executor.devices=1"])
    job.allocate()
    job.values.load(load_arrays(folder / "params.safetensors"))
    found = Executor(job.built.eval, job.scope, seed=1).run([feeds], list(model.fetches)).values[0]
    return [found[name] for name in model.fetches]


@pytest.mark.parametrize("name", sorted(FEEDS))
def test_a_folder_of_1_8_5_computes_its_outputs(name: str, tmp_path: Path) -> None:
    model = read_model(ImportWish(RECORDED / name))
    wanted = np.load(RECORDED / name / "outputs.npz")
    found = computed(model, tmp_path, FEEDS[name])
    assert len(found) == len(wanted.files)
    for value, key in zip(found, wanted.files, strict=True):
        np.testing.assert_allclose(value, wanted[key], rtol=1e-5, atol=1e-6)


def test_layers_are_those_that_the_program_was_written_with() -> None:
    model = read_model(ImportWish(RECORDED / "images"))
    types = {name: layer["type"] for name, layer in model.layers.items()}
    assert types == {
        "conv2d_0": "conv2d", "batch_norm_0": "batch_norm", "pool2d_0": "pool2d", "conv2d_1": "conv2d", "conv2d_1_leaky_relu": "leaky_relu",
        "pool2d_1": "pool2d", "reshape2_0": "reshape", "dropout_0": "dropout", "fc_0": "fc", "fc_0_softmax": "softmax",
    }  # fmt: skip
    assert model.layers["batch_norm_0"]["act"] == "relu"
    assert model.layers["fc_0"] == {"type": "fc", "input": "dropout_0", "size": 3, "param_attr": "fc_0.w_0", "bias_attr": "fc_0.b_0"}
    assert set(model.arrays) == {path.name for path in (RECORDED / "images").iterdir()} - {"__model__", "outputs.npz"}
