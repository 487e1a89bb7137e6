"""`pe data --write`: what is read from the shards is what the model was fed before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.session.data.shard_writer import write_shards
from pe_cli.session.job import Job

MODEL = """
name: m
feeds:
  x: {shape: [2]}
  kind: {shape: [3]}
  label: {shape: [1], dtype: int64}
layers:
  all: {type: concat, input: [x, kind], axis: 1}
  logits: {type: fc, size: 2}
  xent: {type: softmax_with_cross_entropy, logits: logits, label: label}
  loss: {type: mean, x: xent}
fetches: [loss]
"""
RUN = """
model: m.yaml
data:
  train: {reader: table, files: rows.csv}
  columns: {kind: {type: category, missing: error}, label: {type: category}, a: {type: number, scale: standard}, b: {type: number}}
feeds: {x: [a, b], kind: {from: kind, one_hot: 3}}
train: {loss: loss, epochs: 1, batch_size: 4, optimizer: {type: SGD, learning_rate: 0.1}}
executor: {devices: 1}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [f"{i},{i * i % 7},{'uv'[i % 2]},{'yes' if i % 3 else 'no'}" for i in range(50)]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,kind,label", *rows]) + "\n")
    (tmp_path / "m.yaml").write_text(MODEL)
    (tmp_path / "c.yaml").write_text(RUN)
    return tmp_path


def fed(config: Path) -> dict[str, np.ndarray]:
    job = Job.open(config, ())
    return job.data.loader("train", job.programs, 50, shuffle=False).first()


def test_shards_feed_the_model_as_the_table_did(folder: Path) -> None:
    expected = fed(folder / "c.yaml")
    lines = write_shards(Job.open(folder / "c.yaml", ()), folder / "out", shard=300)
    assert lines[0].startswith("data.train: 50 samples in ")
    assert len(list((folder / "out").glob("train-*-label.npy"))) > 2
    text = RUN.partition("data:")[0] + "train:" + RUN.partition("\ntrain:")[2]
    (folder / "next.yaml").write_text("extends: out/data.yaml\n" + text)
    found = fed(folder / "next.yaml")
    assert {name: (array.dtype, array.tolist()) for name, array in found.items()} == {
        name: (array.dtype, array.tolist()) for name, array in expected.items()
    }


def test_a_folder_that_is_there_is_left_alone(folder: Path) -> None:
    (folder / "out").mkdir()
    with pytest.raises(PeError) as found:
        write_shards(Job.open(folder / "c.yaml", ()), folder / "out")
    assert found.value.code == ExitCode.USAGE
    assert list((folder / "out").iterdir()) == []


def test_sequences_of_any_length_are_refused_with_a_remedy(folder: Path) -> None:
    (folder / "m.yaml").write_text(
        "name: m\nfeeds:\n  kind: {shape: [1], dtype: int64, lod_level: 1}\nlayers:\n"
        "  row: {type: embedding, input: kind, size: [99, 2]}\n  pool: {type: sequence_pool, pool_type: sum}\n"
        "  loss: {type: mean, x: pool}\nfetches: [loss]\n"
    )
    (folder / "c.yaml").write_text(
        "model: m.yaml\ndata:\n  train: {reader: table, files: rows.csv}\n  columns: {kind: {type: text, tokens: characters}}\n"
        "train: {loss: loss, epochs: 1, batch_size: 4, optimizer: {type: SGD, learning_rate: 0.1}}\nexecutor: {devices: 1}\n"
    )
    with pytest.raises(PeError, match="has sequences of any length") as found:
        write_shards(Job.open(folder / "c.yaml", ()), folder / "out")
    assert found.value.code == ExitCode.DATA
    assert not (folder / "out").exists()
