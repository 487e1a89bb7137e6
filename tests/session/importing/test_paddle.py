"""Models that PaddlePaddle 1.8.5 wrote are imported: they compute its outputs, train, and are exported; what has no layer is refused."""

from __future__ import annotations

import json
import os
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
from tests.paddle.recordings.whole import STEPS, batches

RECORDED = Path(__file__).parents[2] / "paddle" / "recordings" / "models"
WHOLE = RECORDED.parent / "whole"
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


def test_a_program_with_its_optimizer_trains_with_the_losses_of_1_8_5(tmp_path: Path) -> None:
    model = read_model(ImportWish(WHOLE / "saved.pdmodel"))
    assert (model.loss, model.optimizer) == ("mean_0", {"type": "Momentum", "learning_rate": 0.1, "momentum": 0.9})
    assert set(model.feeds) == {"image", "label"}
    write(model, tmp_path)
    arrays = {name: np.concatenate([batch[name] for batch in batches()]) for name in ("image", "label")}
    np.savez(tmp_path / "train.npz", **arrays)
    job = Job.open(tmp_path / "config.yaml", ["executor.devices=1"])
    job.initialise()
    executor = Executor(job.built.train, job.scope, seed=1)
    steps = [executor.run([batch], list(model.fetches)).values[0] for batch in batches()]
    found = [[float(step[name][0]) for name in model.fetches] for step in steps]
    np.testing.assert_allclose(found, json.loads((WHOLE / "losses.json").read_text()), rtol=1e-4)
    assert len(found) == STEPS


def test_the_config_trains_and_has_no_second_loss(tmp_path: Path) -> None:
    model = read_model(ImportWish(WHOLE))
    with pytest.raises(PeError, match="the model has a loss, 'mean_0'"):
        for_training(model, "classes")
    whole = read_model(ImportWish(RECORDED / "images"))
    trained = for_training(whole, "classes")
    assert trained.layers["fc_0"]["size"] == "${classes}"
    assert trained.args == {"classes": 3}
    assert trained.loss == "loss"
    write(trained, tmp_path)
    job = Job.open(tmp_path / "config.yaml", ["executor.devices=1"])
    assert {v.name for v in job.built.train.parameters()} >= {"fc_0.w_0", "conv2d_0.w_0"}


# --- what is refused ------------------------------------------------------------------------------------------------


def refused(folder: Path, **wish: Any) -> PeError:
    with pytest.raises(PeError) as caught:
        read_model(ImportWish(folder, **wish))
    assert caught.value.hint
    assert caught.value.code is ExitCode.DATA
    return caught.value


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a model that can be damaged."""
    return shutil.copytree(RECORDED / "images", tmp_path / "images")


def with_operators(folder: Path, *ops: OpDesc, at: int = 0) -> None:
    """Put operators into a program."""
    blocks = program_desc.read((folder / "__model__").read_bytes())
    blocks[0].ops[at:at] = ops
    (folder / "__model__").write_bytes(program_desc.write(blocks))


def with_variable(folder: Path, change: Any) -> None:
    """Change the variable `fc_0.w_0` of a program and all that names it."""
    blocks = program_desc.read((folder / "__model__").read_bytes())
    change(next(v for v in blocks[0].vars if v.name == "fc_0.w_0"), blocks[0])
    (folder / "__model__").write_bytes(program_desc.write(blocks))


def named_otherwise(name: str) -> Any:
    def change(v: VarDesc, block: BlockDesc) -> None:
        for op in block.ops:
            op.inputs = {slot: [name if n == v.name else n for n in names] for slot, names in op.inputs.items()}
        v.name = name

    return change


def test_an_operator_without_a_layer_is_named_with_the_nearest_one(folder: Path) -> None:
    blocks = program_desc.read((folder / "__model__").read_bytes())
    last = next(i for i, op in enumerate(blocks[0].ops) if op.type == "fetch")
    out = blocks[0].ops[last].inputs["X"][0]
    blocks[0].vars.append(VarDesc("odd.tmp_0", shape=(-1, 3)))
    blocks[0].ops[last].inputs["X"] = ["odd.tmp_0"]
    blocks[0].ops.insert(last, OpDesc("squared_l2_norm", {"X": [out]}, {"Out": ["odd.tmp_0"]}))
    (folder / "__model__").write_bytes(program_desc.write(blocks))
    said = refused(folder)
    assert "squared_l2_norm" in said.message
    assert "odd.tmp_0" in said.message
    assert "--partial" in (said.hint or "")
    with_operators(folder, OpDesc("quantize", {"Input": [out]}, {"Output": ["odd.tmp_0"]}), at=last + 1)
    assert "quantize" in refused(folder).message
    model = read_model(ImportWish(folder, partial=True))
    assert list(model.fetches) == ["fc_0_softmax"]
    assert any("quantize" in note for note in model.notes)


@pytest.mark.parametrize(
    ("name", "operator"),
    [
        ("nested", r"while (2, operator 6 of block 0)"),
        ("branches", r"conditional_block (14, operator 6 of block 0)"),
    ],
)
def test_loops_and_branches_are_named_with_their_blocks_and_what_runs_them(name: str, operator: str) -> None:
    said = refused(RECORDED.with_name("loops") / name)
    assert operator in said.message
    assert "load_inference_model" in (said.hint or "")


def test_ids_without_an_axis_of_their_own_are_looked_up(folder: Path, tmp_path: Path) -> None:
    blocks = program_desc.read((folder / "__model__").read_bytes())
    last = next(i for i, op in enumerate(blocks[0].ops) if op.type == "fetch")
    blocks[0].ops[last].inputs["X"] = ["rows.tmp_0"]
    look = OpDesc("lookup_table_v2", {"W": ["fc_0.w_0"], "Ids": ["ids"]}, {"Out": ["rows.tmp_0"]}, {"padding_idx": 1})
    blocks[0].ops[last:last] = [look]
    blocks[0].vars += [VarDesc("ids", shape=(-1, 3), dtype="int64", need_check_feed=True), VarDesc("rows.tmp_0", shape=(-1, 3, 3))]
    blocks[0].ops.insert(0, OpDesc("feed", {"X": ["feed"]}, {"Out": ["ids"]}, {"col": 1}))
    (folder / "__model__").write_bytes(program_desc.write(blocks))
    model = read_model(ImportWish(folder))
    assert [layer["type"] for layer in model.layers.values()] == ["unsqueeze", "embedding"]
    ids = np.array([[0, 1, 0], [1, 1, 0]])
    (found,) = computed(model, tmp_path / "out", {"ids": ids})
    np.testing.assert_array_equal(found, np.where((ids == 1)[..., None], 0, model.arrays["fc_0.w_0"][ids]))


DAMAGE = {
    "a variable without a file": lambda folder: (folder / "fc_0.w_0").unlink(),
    "a file of another shape": lambda folder: (folder / "fc_0.w_0").write_bytes(of_tensor(np.zeros((3, 3), np.float32))),
    "a file of another type": lambda folder: (folder / "fc_0.w_0").write_bytes(of_tensor(np.zeros((2, 3)))),
    "a file that is cut off": lambda folder: (folder / "fc_0.w_0").write_bytes((folder / "fc_0.b_0").read_bytes()[:20]),
    "a file that is far too large": lambda folder: os.truncate(folder / "fc_0.w_0", 1 << 40),
    "a pipe": lambda folder: ((folder / "fc_0.w_0").unlink(), os.mkfifo(folder / "fc_0.w_0")),
    "no program": lambda folder: (folder / "__model__").write_bytes(b"no program"),
    "a name that leads out of the folder": lambda folder: with_variable(folder, named_otherwise("../fc_0.w_0")),
    "an absolute name": lambda folder: with_variable(folder, named_otherwise("/etc/hostname")),
    "a name with a NUL": lambda folder: with_variable(folder, named_otherwise("a\0b")),
    "sizes that are not known": lambda folder: with_variable(folder, lambda v, block: setattr(v, "shape", (-1, 3))),
    "sizes that no memory holds": lambda folder: with_variable(folder, lambda v, block: setattr(v, "shape", (1 << 39, 3))),
}  # fmt: skip


@pytest.mark.parametrize("damage", sorted(DAMAGE))
def test_a_damaged_folder_is_refused(damage: str, folder: Path) -> None:
    DAMAGE[damage](folder)
    refused(folder)


def test_a_link_out_of_the_folder_is_not_followed(folder: Path, tmp_path: Path) -> None:
    (folder / "fc_0.w_0").rename(tmp_path / "outside")
    (folder / "fc_0.w_0").symlink_to(tmp_path / "outside")
    assert "outside of" in refused(folder).message


def test_values_of_all_variables_in_one_file(folder: Path) -> None:
    model = read_model(ImportWish(folder))
    for name in model.arrays:
        (folder / name).unlink()
    assert "__params__" in (refused(folder).hint or "")
    (folder / "__params__").write_bytes(of_tensors(model.arrays))
    again = read_model(ImportWish(folder))
    assert all((again.arrays[name] == value).all() for name, value in model.arrays.items())
    (folder / "__params__").write_bytes(of_tensors({name: value for name, value in model.arrays.items() if name != "fc_0.b_0"}))
    refused(folder)


def test_a_folder_of_several_programs_asks_for_one(tmp_path: Path) -> None:
    folder = shutil.copytree(WHOLE, tmp_path / "whole")
    shutil.copy(folder / "saved.pdmodel", folder / "other.pdmodel")
    assert "saved.pdmodel" in (refused(folder).hint or "")
    assert "other.pdparams" in (refused(folder / "other.pdmodel").hint or "")
    (folder / "saved.pdparams").write_bytes(b"\x80\x02cposix\nsystem\n(S'true'\ntR.")
    assert "no file of values" in refused(folder / "saved.pdmodel").message
