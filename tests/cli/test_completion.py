"""Completion: what a shell offers, asked as click's scripts ask."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Pe

CONFIG = "model: m.yaml\n"


def offered(shell: str, words: str, cursor: int, folder: Path) -> list[str]:
    """Return what pe offers for the word at an index of a command line."""
    environment = {**os.environ, "COMP_WORDS": words, "COMP_CWORD": str(cursor), "_PE_COMPLETE": f"{shell}_complete"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    command = [sys.executable, "-m", "pe_cli.cli.main"]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=True)
    assert not done.stderr
    return [line for line in done.stdout.splitlines() if line]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "configs").mkdir()
    (tmp_path / "a.yaml").write_text(CONFIG)
    (tmp_path / "configs" / "b.yaml").write_text(CONFIG)
    (tmp_path / "configs" / "c.yaml").write_text("extends: b.yaml\n")
    (tmp_path / "m.yaml").write_text("layers: {}\n")
    (tmp_path / "other.yaml").write_text("x: 1\n")
    for i, name in enumerate(("old", "new")):
        run = tmp_path / "runs" / name
        run.mkdir(parents=True)
        (run / "status.json").write_text("{}")
        os.utime(run, (i, i))
    (tmp_path / "runs" / "no run").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("words", "cursor", "expected"),
    [
        pytest.param("pe tr", 1, ["plain,train"], id="a command"),
        pytest.param("pe train ", 2, ["plain,a.yaml", "plain,configs/b.yaml", "plain,configs/c.yaml"], id="configs, but nothing else"),
        pytest.param("pe check m", 2, ["plain,m.yaml"], id="a model where one is taken"),
        pytest.param("pe train nosuch", 2, ["file,nosuch"], id="any file where no config begins so"),
        pytest.param("pe eval ", 2, ["plain,runs/new", "plain,runs/old"], id="runs, the newest first"),
        pytest.param("pe plot runs/o", 2, ["plain,runs/old"], id="a run"),
        pytest.param("pe plot x/", 2, ["dir,x/"], id="any folder where there is no run"),
        pytest.param("pe train a.yaml -o train.ep", 4, ["plain,train.epochs="], id="a key"),
        pytest.param("pe ops layer_n", 2, ["plain,layer_norm", "plain,layer_norm_grad"], id="a layer"),
        pytest.param("pe train a.yaml -o executor.place = cu", 6, ["plain,cuda"], id="a value, after the words of bash"),
        pytest.param(
            "pe train a.yaml -o build_strategy.memory_optimize =", 5, ["plain,true", "plain,false"], id="true or false"
        ),
        pytest.param("pe train a.yaml -o nosuch.key = x", 6, [], id="nothing for a key that is none"),
    ],
)
def test_bash_is_offered(place: Path, words: str, cursor: int, expected: list[str]) -> None:
    assert offered("bash", words, cursor, place) == expected


def test_zsh_is_told_what_a_key_means(place: Path) -> None:
    said = offered("zsh", "pe train a.yaml -o train.batch_s", 4, place)
    assert said == ["plain", "train.batch_size=", "samples per step, over all devices"]


def test_every_key_that_is_offered_is_one_of_the_config(place: Path) -> None:
    """The checks of the config know them: none is refused as unknown."""
    from pe_cli.config.sections.run_file import RunFile

    keys = [line.removeprefix("plain,").removesuffix("=") for line in offered("bash", "pe train a.yaml -o ", 4, place)]
    assert {"train.epochs", "output.checkpoint.best.by", "exec_strategy.num_threads", "model.file"} <= set(keys)
    assert {key.partition(".")[0] for key in keys} == set(RunFile.model_fields) - {"extends"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_that_its_shell_can_read(pe: Pe, shell: str, tmp_path: Path) -> None:
    said = pe("completion", shell)
    assert said.code == 0
    assert f"_PE_COMPLETE={shell}_complete" in said.out
    if shutil.which(shell):
        (tmp_path / "script").write_text(said.out)
        subprocess.run([shell, "-n", tmp_path / "script"], check=True)
