"""Data sets of pictures in archives: photographs with their kinds, and with the class of each pixel."""

from __future__ import annotations

import io
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from pe_cli.data.pictures import picture_checks
from pe_cli.paddle import dataset, dataset_files, vision
from pe_cli.paddle.errors import FluidValueError
from tests.paddle.support import pack


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder where the original keeps its files."""
    monkeypatch.setattr(dataset_files, "HOME", str(tmp_path))
    return tmp_path


def picture(color: int, kind: str, mode: str = "RGB") -> bytes:
    file = io.BytesIO()
    Image.new(mode, (4, 3), color).save(file, kind)
    return file.getvalue()


def test_pictures_with_classes_of_pixels(home: Path) -> None:
    files: dict[str, Any] = {
        f"VOCdevkit/VOC2012/ImageSets/Segmentation/{name}.txt": f"a_{name}\n" for name in ("trainval", "train", "val")
    }
    for i, name in enumerate(("trainval", "train", "val")):
        files[f"VOCdevkit/VOC2012/JPEGImages/a_{name}.jpg"] = picture(0, "JPEG")
        files[f"VOCdevkit/VOC2012/SegmentationClass/a_{name}.png"] = picture(i + 5, "PNG", "L")
    pack(home / "voc2012" / "VOCtrainval_11-May-2012.tar", files)
    for i, (mode, old) in enumerate((("train", "train"), ("test", "test"), ("valid", "val"))):
        ((photograph, classes),) = list(getattr(dataset.voc2012, old)()())
        assert photograph.shape == (3, 4, 3)
        assert (classes == i + 5).all()
        assert vision.datasets.VOC2012(mode=mode, transform=lambda p: p.size)[0][0] == (4, 3)


def test_threads_that_share_an_archive_get_their_own_pictures(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, names = "VOCdevkit/VOC2012", [f"p{i}" for i in range(8)]
    files: dict[str, Any] = {f"{folder}/ImageSets/Segmentation/val.txt": "\n".join(names)}
    for i, name in enumerate(names):
        files[f"{folder}/JPEGImages/{name}.jpg"] = picture(0, "JPEG")
        files[f"{folder}/SegmentationClass/{name}.png"] = picture(i, "PNG", "L")
    pack(home / "voc2012" / "VOCtrainval_11-May-2012.tar", files)
    found = vision.datasets.VOC2012(mode="valid")
    file: Any = found._archive.fileobj
    seek = file.seek

    def slow(*args: Any) -> Any:
        """Give other threads the time to go elsewhere."""
        at = seek(*args)
        time.sleep(0.002)
        return at

    monkeypatch.setattr(found._archive, "fileobj", SimpleNamespace(seek=slow, read=file.read, tell=file.tell, close=file.close))
    with ThreadPoolExecutor(4) as pool:
        masks = [np.asarray(mask) for _, mask in pool.map(found.__getitem__, range(8))]
    assert [set(mask.flat) for mask in masks] == [{i} for i in range(8)]


def test_flowers(home: Path) -> None:
    pack(home / "flowers" / "102flowers.tgz", {f"jpg/image_{i:05}.jpg": picture(0, "JPEG") for i in (1, 2, 3)})
    savemat(home / "flowers" / "imagelabels.mat", {"labels": np.array([[7, 9, 11]], np.uint8)})
    savemat(
        home / "flowers" / "setid.mat",
        {"tstid": np.array([[3, 1]]), "trnid": np.array([[2]]), "valid": np.array([[4]])},
    )
    found = vision.datasets.Flowers(mode="train")
    assert [int(label[0]) for _, label in found] == [11, 7]
    assert found[0][0].size == (4, 3)
    with pytest.raises(FluidValueError, match=r"102flowers.tgz has none of the files"):
        vision.datasets.Flowers(mode="valid")


def test_photographs_without_a_kind_are_told(home: Path) -> None:
    pack(home / "flowers" / "102flowers.tgz", {f"jpg/image_{i:05}.jpg": picture(0, "JPEG") for i in (0, 1, 2)})
    savemat(home / "flowers" / "imagelabels.mat", {"labels": np.array([[7]])})
    savemat(
        home / "flowers" / "setid.mat", {"tstid": np.array([[0]]), "trnid": np.array([[2]]), "valid": np.array([[1]])}
    )
    assert vision.datasets.Flowers(mode="valid")[0][1].tolist() == [7]
    for mode in ("train", "test"):
        with pytest.raises(FluidValueError, match=r"imagelabels.mat has 1 kinds"):
            vision.datasets.Flowers(mode=mode)


def test_a_picture_of_too_many_pixels_is_not_unpacked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack(home / "flowers" / "102flowers.tgz", {"jpg/image_00001.jpg": picture(0, "JPEG")})
    savemat(home / "flowers" / "imagelabels.mat", {"labels": np.array([[7]])})
    savemat(home / "flowers" / "setid.mat", {"valid": np.array([[1]])})
    found = vision.datasets.Flowers(mode="valid")
    monkeypatch.setattr(picture_checks, "MOST_PIXELS", 5)
    with pytest.raises(FluidValueError, match=r"102flowers.tgz: jpg/image_00001.jpg claims .* pixels, more than 5: "):
        found[0]
