"""A model of pictures that a table lists answers for tables, for folders, and for pictures by name."""

from __future__ import annotations

import csv
import io

import pytest
from PIL import Image

MODEL = """\
name: light
feeds:
  photo: {shape: [1, 2, 2]}
  kind:  {shape: [1], dtype: int64}
layers:
  logits: {type: fc, input: photo, size: 2}
  xent:   {type: softmax_with_cross_entropy, logits: logits, label: kind}
  loss:   {type: mean, x: xent}
fetches: [loss]
"""
#: A table that lies elsewhere than its pictures.
APART = """\
model: model.yaml
data:
  source: {reader: table, files: ../tables/photos.csv}
  columns: {photo: {type: image, mode: gray, folder: ..}, kind: {type: category}}
train: {loss: loss, epochs: 1, batch_size: 4, optimizer: {type: SGD, learning_rate: 0.1}}
executor: {devices: 1, seed: 1}
output: {dir: RUNS}
"""
CONFIG = """\
model: model.yaml
data:
  source: {reader: images, table: photos.csv, path: photo}
  columns: {photo: {type: image, mode: gray}, kind: {type: category}}
train: {loss: loss, epochs: 20, batch_size: 4, optimizer: {type: Adam, learning_rate: 0.1}}
executor: {devices: 1, seed: 1}
output: {dir: RUNS}
"""


@pytest.fixture
def run(pe, tmp_path):
    """A run of four pictures, two of them dark."""
    (tmp_path / "photos").mkdir()
    rows = ["photo,kind"]
    for name, shade, kind in (("a", 5, "dark"), ("b", 250, "light"), ("c", 20, "dark"), ("d", 230, "light")):
        Image.new("L", (2, 2), shade).save(tmp_path / f"photos/{name}.png")
        rows.append(f"photos/{name}.png,{kind}")
    (tmp_path / "photos.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "model.yaml").write_text(MODEL)
    (tmp_path / "config.yaml").write_text(CONFIG.replace("RUNS", str(tmp_path / "runs")))
    said = pe("train", tmp_path / "config.yaml", "--quiet")
    assert said.code == 0, said.err
    return next((tmp_path / "runs").iterdir())


@pytest.mark.parametrize(
    ("names", "column", "known", "kinds"),
    [
        pytest.param(["photos/d.png", "photos/c.png"], "file", ["d.png", "c.png"], ["light", "dark"], id="pictures"),
        pytest.param(["photos"], "file", ["a.png", "b.png", "c.png", "d.png"], ["dark", "light"] * 2, id="a folder"),
        pytest.param(["new.csv"], "photo", ["photos/b.png", "photos/a.png"], ["light", "dark"], id="a table"),
    ],
)
def test_pictures_are_known_by_their_paths(run, pe, tmp_path, names, column, known, kinds):
    (tmp_path / "new.csv").write_text("photo\nphotos/b.png\nphotos/a.png\n")
    said = pe("predict", run, *(tmp_path / name for name in names))
    assert said.code == 0, said.err
    rows = list(csv.DictReader(io.StringIO(said.out)))
    assert [row[column] for row in rows] == known
    assert [row["kind"] for row in rows] == kinds


def test_a_folder_of_pictures_is_found_from_a_run(run, pe, tmp_path):
    for name in ("configs", "tables"):
        (tmp_path / name).mkdir()
    (tmp_path / "photos.csv").rename(tmp_path / "tables/photos.csv")
    (tmp_path / "model.yaml").rename(tmp_path / "configs/model.yaml")
    (tmp_path / "configs/run.yaml").write_text(APART.replace("RUNS", str(tmp_path / "others")))
    said = pe("train", tmp_path / "configs/run.yaml", "--quiet")
    assert said.code == 0, said.err
    other = next((tmp_path / "others").iterdir())
    (tmp_path / "new.csv").write_text("photo\nphotos/a.png\n")
    said = pe("predict", other, tmp_path / "new.csv")
    assert said.code == 0, said.err
    assert pe("eval", other, "--split", "train").code == 0
    (tmp_path / "photos").rename(tmp_path / "tables/photos")
    moved = ("-o", f"data.columns.photo.folder={tmp_path / 'tables'}")
    assert pe("predict", other, tmp_path / "new.csv", *moved).out == said.out
