"""Models of PaddlePaddle 1.8.5 with loops over steps are imported as scans, and compute its outputs; other loops are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.execute.executor import Executor
from pe_cli.io.fluid import program_desc
from pe_cli.session.importing.define import ImportWish, read_model
from pe_cli.session.importing.write import write
from pe_cli.session.job import Job
from tests.paddle.recordings import write_here
from tests.paddle.recordings.loops import STEPS
from tests.session.importing.test_paddle import computed

RECORDED = Path(__file__).parents[2] / "paddle" / "recordings"
BATCH_FIRST = np.ascontiguousarray(STEPS.transpose(1, 0, 2))


def of_the_original(name: str) -> list[np.ndarray]:
    path = RECORDED / "loops" / name / "outputs.npz"
    with np.load(path if path.exists() else RECORDED / "written" / f"{name}.npz") as file:
        return [file[key] for key in sorted(file.files) if key.startswith("output_")]


def agree(folder: Path, name: str, into: Path, feeds: dict[str, Any]) -> Any:
    """Import a model and check what it computes."""
    model = read_model(ImportWish(folder))
    found = computed(model, into, feeds)
    for value, wanted in zip(found, of_the_original(name), strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=1e-6)
    return model


def test_a_static_rnn_of_the_original_is_a_scan(tmp_path: Path) -> None:
    model = agree(RECORDED / "loops" / "static_rnn", "static_rnn", tmp_path, {"x": STEPS})
    assert model.layers["static_rnn_0"] == {
        "scan": "step", "input": "x", "start": {"state": "static_rnn_0_memory_boot_0"}, "time_major": True,
    }  # fmt: skip
    assert [layer["type"] for layer in model.blocks["step"]["layers"].values()][:2] == ["fc", "fc"]


@pytest.mark.parametrize(("name", "feeds"), [("two_inputs", {"x": STEPS}), ("last_states", {"x": BATCH_FIRST})])
def test_a_model_with_loops_that_is_written_here_is_imported(
    name: str, feeds: dict[str, Any], tmp_path: Path
) -> None:
    programs = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()), fluid.program_guard(*programs):
        write_here.write(tmp_path / "saved", name)
    agree(tmp_path / "saved", name, tmp_path / "imported", feeds)


def test_an_imported_scan_trains(tmp_path: Path) -> None:
    model = read_model(ImportWish(RECORDED / "loops" / "static_rnn"))
    write(model, tmp_path)
    text = (tmp_path / "model.yaml").read_text().replace("fetches: [", "  loss: {type: mean, x: reduce_sum_0}\nfetches: [loss, ")
    (tmp_path / "model.yaml").write_text(text)
    np.savez(tmp_path / "train.npz", x=STEPS)
    (tmp_path / "config.yaml").write_text(
        "model: model.yaml\ndata: {train: {reader: npz, file: train.npz}}\nfeeds: {x: x}\n"
        "train: {loss: loss, epochs: 3, batch_size: 4, init: {from: params.safetensors}, optimizer: {type: SGD, learning_rate: 0.1}}\n"
    )
    job = Job.open(tmp_path / "config.yaml", ["executor.devices=1"])
    job.initialise()
    executor = Executor(job.built.train, job.scope, seed=1)
    losses = [executor.run([{"x": STEPS}], ["loss"]).values[0]["loss"].item() for _ in range(3)]
    assert losses[0] > losses[1] > losses[2]


@pytest.mark.parametrize(
    ("name", "type_"), [("while_arrays", "while"), ("branches", "conditional_block"), ("dynamic_rnn", "lod_rank_table")]
)
def test_loops_and_branches_that_are_none_over_steps_are_named_with_their_blocks(name: str, type_: str) -> None:
    with pytest.raises(PeError, match=rf"not read: .*{type_} \(\d+, operator \d+ of block 0\)") as error:
        read_model(ImportWish(RECORDED / "loops" / name))
    assert error.value.code == ExitCode.DATA
    assert "load_inference_model" in str(error.value.hint)


def rename(blocks: list[Any], _op: Any) -> None:
    blocks[1].ops[4].type = "warp_drive"


def run_nothing(_blocks: list[Any], op: Any) -> None:
    op.attrs["sub_block"] = program_desc.BlockNumber(7)


def run_the_main_block(_blocks: list[Any], op: Any) -> None:
    op.attrs["sub_block"] = program_desc.BlockNumber(0)


def lose_a_state(_blocks: list[Any], op: Any) -> None:
    op.attrs["states"] = program_desc.EmptyList(5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (rename, r"warp_drive \(1, operator 4 of block 1\)"),
        (run_nothing, r"recurrent, .*it runs block 7, and there are 2"),
        (run_the_main_block, r"recurrent, .*it runs block 0, and there are 2"),
        (lose_a_state, r"recurrent, .*which are 1 and 0 names inside"),
    ],
)
def test_a_loop_that_cannot_be_read_is_an_error_that_names_it(change: Any, message: str, tmp_path: Path) -> None:
    source = RECORDED / "loops" / "static_rnn"
    blocks = program_desc.read((source / "__model__").read_bytes())
    change(blocks, next(op for op in blocks[0].ops if op.type == "recurrent"))
    (tmp_path / "__model__").write_bytes(program_desc.write(blocks))
    (tmp_path / "params").write_bytes((source / "params").read_bytes())
    with pytest.raises(PeError, match=message) as error:
        read_model(ImportWish(tmp_path))
    assert error.value.code == ExitCode.DATA


