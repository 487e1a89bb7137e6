"""Commands with a config that extends another one: they do what they do with one file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Pe


@pytest.fixture
def extending(config: Path) -> Path:
    """The config of the linear regression, extended by one in another folder."""
    (config.parent / "mine").mkdir()
    path = config.parent / "mine/fast.yaml"
    path.write_text('extends: ../line.yaml\nargs: {rate: 0.05}\ntrain: {optimizer: {learning_rate: "${rate}"}}\n')
    return path


def test_check_train_eval_resume_and_verify(pe: Pe, extending: Path) -> None:
    said = pe("check", extending)
    assert said.code == 0, said.err
    said = pe("train", extending, "--quiet", "--max-steps", 3)
    assert said.code == 75, said.err
    (run,) = (extending.parents[1] / "runs").iterdir()
    assert run.name.startswith("fast-")
    said = pe("train", extending, "--quiet", "--resume", run)
    assert said.code == 0, said.err
    resolved = (run / "resolved.yaml").read_text()
    assert "learning_rate: 0.05" in resolved
    assert "extends" not in resolved
    shutil.rmtree(extending.parent)
    (extending.parents[1] / "line.yaml").unlink()
    for command in (["eval", run], ["train", "--resume", run, "--quiet"], ["verify", run]):
        said = pe(*command)
        assert said.code == 0, (command, said.err)


def test_a_constant_of_the_command_line_is_kept_in_the_run(pe: Pe, extending: Path) -> None:
    said = pe("train", extending, "--quiet", "-o", "args.rate=0.01")
    assert said.code == 0, said.err
    (run,) = (extending.parents[1] / "runs").iterdir()
    assert "learning_rate: 0.01" in (run / "resolved.yaml").read_text()


def test_a_mistake_in_the_base_is_told_there(pe: Pe, extending: Path) -> None:
    base = extending.parents[1] / "line.yaml"
    base.write_text(base.read_text().replace("epochs: 2", "epochs: two"))
    said = pe("check", extending)
    assert said.code == 2
    assert f"{base}:8:11: error: train.epochs must be a whole number, got 'two'" in said.err


def test_a_folder_with_a_reference_in_its_name(pe: Pe, config: Path) -> None:
    said = pe("train", config, "--quiet")
    assert said.code == 0, said.err
    (run,) = (config.parent / "runs").iterdir()
    odd = config.parent / "${odd}"
    odd.mkdir()
    shutil.move(config.parent / "data.npz", odd / "data.npz")
    said = pe("eval", run, odd / "data.npz", "--json")
    assert said.code == 0, said.err
    file = json.dumps(str(odd / "data.npz").replace("${", "$${"))
    said = pe("train", config, "--quiet", "-o", f"data.train.file={file}", "-o", "data.eval=")
    assert said.code == 0, said.err
    newest = max((config.parent / "runs").iterdir(), key=lambda path: path.stat().st_mtime)
    assert pe("train", "--resume", newest, "--quiet").code == 0
