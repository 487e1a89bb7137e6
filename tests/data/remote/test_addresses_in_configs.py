"""Addresses in configs are no paths: they stay what they are, wherever the config lies and wherever a run keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from pe_cli.config.byte_size import parse_size
from pe_cli.config.load import load_run
from pe_cli.config.nodes import to_data
from pe_cli.config.resolved import resolved_yaml

MODEL = """
name: m
feeds: {x: {shape: [1]}}
layers: {loss: {type: mean, x: x}}
fetches: [loss]
"""
BASE = """
model: m.yaml
data:
  cache: 50 GB
  memory: 256 MB
  train: {reader: table, files: ['https://host/a.csv', 'b.csv'], shuffle: {window: 500}}
"""


def test_an_address_stays_in_a_base_and_in_a_run(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "m.yaml").write_text(MODEL)
    (tmp_path / "base" / "c.yaml").write_text(BASE)
    (tmp_path / "c.yaml").write_text("extends: base/c.yaml\n")
    run = load_run(tmp_path / "c.yaml")
    assert to_data(run.data["train"].options)["files"] == ["https://host/a.csv", "base/b.csv"]
    found = yaml.safe_load(resolved_yaml(run, standalone=True))["data"]
    assert found["train"]["files"] == ["https://host/a.csv", str(tmp_path / "base" / "b.csv")]
    assert found["train"]["shuffle"] == {"window": 500}
    assert (found["cache"], found["memory"]) == ("50 GB", "256 MB")


@pytest.mark.parametrize("text", ["256", "MB", "0 MB", "-1 GB", "1e3 MB", "5 mb", "1 PB", "", "9999999 GB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a size like"):
        parse_size(text)


@pytest.mark.parametrize("value", [None, 256, 2.5, True, ["1 MB"]])
def test_a_size_is_a_text(value: object) -> None:
    with pytest.raises(ValueError, match="must be a size like"):
        parse_size(value)
