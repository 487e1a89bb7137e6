"""Pictures beside masks, from pe init to predicted masks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Pe
from tests.rotation import on_its_day

PIL = pytest.importorskip("PIL.Image")


NAMES = ("images/{}.png", "masks/{}.png")


def scenes(folder: Path, count: int, *, soft: bool = False, names: tuple[str, str] = NAMES, seed: int = 0) -> None:
    """Write gray noise with bright squares and dark discs, and a mask of each: 0, 128 and 255, or squares alone with smooth edges."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:32, :48]
    for i in range(count):
        picture, mask = rng.normal(110, 8, (32, 48)), np.zeros((32, 48), np.uint8)
        for square in (True, False):
            cy, cx, r = rng.uniform(8, 24), rng.uniform(8, 40), rng.uniform(4, 8)
            inside = (abs(y - cy) < r) & (abs(x - cx) < r) if square else (y - cy) ** 2 + (x - cx) ** 2 < r * r
            picture[inside] = rng.normal(200 if square else 30, 8, inside.sum())
            mask[inside] = 128 if square and not soft else 255 if square or not soft else 0
        for name, array in zip(names, (picture, mask), strict=True):
            path = folder / name.format(i)
            path.parent.mkdir(parents=True, exist_ok=True)
            PIL.fromarray(array.clip(0, 255).astype(np.uint8)).save(path)


def test_masks_are_said_to_be_masks_and_never_a_class(pe: Pe, tmp_path):
    scenes(tmp_path / "a", 12)
    made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "a")
    assert made.code == 0, made.err
    assert "12 pictures of 32 x 48 pixels (height x width), without colours, each with a mask of 3 classes: 0, 128, 255" in made.out
    written = (tmp_path / "c.yaml").read_text()
    assert 'masks: "a/masks"' in written or "masks: a/masks" in written
    assert "mean_iou" in written
    assert pe("check", tmp_path / "c.yaml").code == 0


@pytest.mark.parametrize(("names", "soft", "said"), [
    pytest.param(("{}.png", "{}_mask.png"), False, "mask of 3 classes", id="beside their pictures"),
    pytest.param(("images/{}.png", "masks/{}_m.jpg"), True, "masks have soft edges", id="JPEG"),
])  # fmt: skip
def test_other_names_and_soft_edges(pe: Pe, tmp_path, names, soft, said):
    scenes(tmp_path / "a", 12, names=names, soft=soft)
    made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "a")
    assert made.code == 0, made.err
    assert said in made.out
    assert pe("check", tmp_path / "c.yaml").code == 0


def test_folders_of_classes_with_the_same_names_stay_classes(pe: Pe, tmp_path):
    rng = np.random.default_rng(0)
    for label in ("cat", "dog"):
        (tmp_path / "a" / label).mkdir(parents=True)
        for i in range(10):
            PIL.fromarray(rng.integers(0, 256, (16, 16, 3)).astype(np.uint8)).save(tmp_path / f"a/{label}/{i}.png")
    made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "a")
    assert made.code == 0, made.err
    assert "classes: cat, dog" in made.out
    said = pe("init", tmp_path / "d.yaml", "--from", tmp_path / "a/cat", "--task", "masks")
    assert said.code == 3
    assert "has no masks" in said.err


def test_what_is_missing_or_wrong_ends_with_code_3_or_is_counted(pe: Pe, tmp_path):
    scenes(tmp_path / "a", 12)
    (tmp_path / "a/masks/3.png").unlink()
    made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "a")
    assert made.code == 0, made.err
    assert "pictures and masks that stand alone are left out" in made.out
    assert "11 pictures" in made.out
    PIL.new("L", (5, 5)).save(tmp_path / "a/masks/4.png")
    said = pe("init", tmp_path / "d.yaml", "--from", tmp_path / "a")
    assert said.code == 3
    assert "4.png is 5 x 5 (height x width), and its picture" in said.err


@on_its_day(1, 4)
def test_a_u_net_finds_squares_and_discs(pe: Pe, tmp_path):
    scenes(tmp_path / "a", 40)
    assert pe("init", tmp_path / "c.yaml", "--from", tmp_path / "a").code == 0
    rate = ("-o", "train.epochs=15", "-o", "train.optimizer.learning_rate.total_steps=15 epochs")
    short = (*rate, "-o", "train.early_stopping=null", "-o", "executor.devices=1", "-o", f"output.dir={tmp_path}/runs")
    trained = pe("train", tmp_path / "c.yaml", "--quiet", *short)
    assert trained.code == 0, trained.err
    (run,) = (tmp_path / "runs").iterdir()
    scenes(tmp_path / "b", 10, seed=1)
    told = pe("eval", run, tmp_path / "b")
    assert told.code == 0, told.err
    iou = float(told.out.partition("iou")[2].split()[0])
    assert iou > 0.6, "0.26 where all is ground"
    said = pe("predict", run, tmp_path / "b/images", "--out", tmp_path / "drawn")
    assert said.code == 0, said.err
    right = [np.array(PIL.open(tmp_path / f"drawn/{i}.png")) == np.array(PIL.open(tmp_path / f"b/masks/{i}.png")) for i in range(10)]
    assert np.mean(right) > 0.9
    rows = pe("predict", run, tmp_path / "b/images")
    assert rows.out.splitlines()[0] == "file,share_0,share_128,share_255"


def test_pairs_of_photos_are_no_masks(pe: Pe, tmp_path):
    rng = np.random.default_rng(0)
    for label in ("gt3", "gt4"):  # parts of the names of masks
        (tmp_path / "a" / label).mkdir(parents=True)
        for i in range(10):
            for side in ("", "_L"):
                PIL.fromarray(rng.integers(0, 256, (16, 16, 3)).astype(np.uint8)).save(tmp_path / f"a/{label}/{i}{side}.png")
    made = pe("init", tmp_path / "c.yaml", "--from", tmp_path / "a")
    assert made.code == 0, made.err
    assert "classes: gt3, gt4" in made.out
    said = pe("init", tmp_path / "d.yaml", "--from", tmp_path / "a/gt3")
    assert said.code == 3
    assert "no folders of classes" in said.err
