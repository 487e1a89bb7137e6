"""paddle.dataset.image: what scripts cut, turn and flip; OpenCV, which reads and resizes, is stood in for."""

from __future__ import annotations

import io
import pickle
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.paddle.dataset import image

PICTURE = np.arange(6 * 8 * 3, dtype="uint8").reshape(6, 8, 3)


@pytest.fixture
def opencv(monkeypatch):
    """Let pictures be arrays that NumPy wrote, and resizing repeat the nearest element."""

    def resize(im, sizes, interpolation):
        assert interpolation == 2
        rows, columns = (np.arange(size) * old // size for size, old in zip(sizes[::-1], im.shape, strict=False))
        return im[rows][:, columns]

    def decode(content, flag):
        try:
            found = np.load(io.BytesIO(content.tobytes()))
        except ValueError:
            return None
        return found if flag else found[..., 0]

    def read(file, flag):
        return decode(np.frombuffer(Path(file).read_bytes(), np.uint8), flag) if Path(file).exists() else None

    monkeypatch.setitem(sys.modules, "cv2", SimpleNamespace(resize=resize, imdecode=decode, imread=read, INTER_CUBIC=2))


def _written(picture):
    file = io.BytesIO()
    np.save(file, picture)
    return file.getvalue()


def test_pictures_are_read_in_color_or_in_grey(opencv, tmp_path):
    (tmp_path / "a.jpg").write_bytes(_written(PICTURE))
    np.testing.assert_array_equal(image.load_image(str(tmp_path / "a.jpg")), PICTURE)
    np.testing.assert_array_equal(image.load_image_bytes(_written(PICTURE), is_color=False), PICTURE[..., 0])
    with pytest.raises(ValueError, match=r"b\.jpg: no picture, or none that OpenCV reads"):
        image.load_image(str(tmp_path / "b.jpg"))
    for content in (b"x", b""):
        with pytest.raises(ValueError, match="load_image_bytes: no picture"):
            image.load_image_bytes(content)


def test_without_opencv_its_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(PeError, match="which is not installed") as caught:
        image.load_image("a.jpg")
    assert caught.value.hint == "pip install opencv-python-headless"


def test_the_shorter_side_gets_the_size(opencv):
    assert image.resize_short(PICTURE, 12).shape == (12, 16, 3)
    assert image.resize_short(PICTURE.transpose(1, 0, 2), 9).shape == (12, 9, 3)


def test_pictures_are_cut_turned_and_flipped():
    np.testing.assert_array_equal(image.center_crop(PICTURE, 4), PICTURE[1:5, 2:6])
    np.testing.assert_array_equal(image.left_right_flip(PICTURE)[2, 1], PICTURE[2, 6])
    np.testing.assert_array_equal(image.to_chw(PICTURE)[2], PICTURE[..., 2])
    np.random.seed(3)  # noqa: NPY002 - as scripts do
    top, left = np.random.randint(0, 3), np.random.randint(0, 5)  # noqa: NPY002
    np.random.seed(3)  # noqa: NPY002
    np.testing.assert_array_equal(image.random_crop(PICTURE, 4), PICTURE[top : top + 4, left : left + 4])
    with pytest.raises(ValueError, match="a picture of 2 axes has no order"):
        image.to_chw(PICTURE[..., 0])


def test_a_picture_for_a_network(opencv, tmp_path):
    (tmp_path / "a.jpg").write_bytes(_written(PICTURE))
    found = image.load_and_transform(str(tmp_path / "a.jpg"), 6, 4, is_train=False, mean=[1, 2, 3])
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, PICTURE[1:5, 2:6].transpose(2, 0, 1).astype("float32") - [[[1]], [[2]], [[3]]])
    drawn = {image.simple_transform(PICTURE, 6, 4, is_train=True)[0, 0, 0] for _ in range(60)}
    assert len(drawn) > 8, "places and sides are drawn"
    assert image.simple_transform(PICTURE[..., 0], 6, 4, is_train=False, is_color=False, mean=np.ones((4, 4))).shape == (4, 4)


def test_files_of_several_pictures_are_written_once(tmp_path):
    path = tmp_path / "jpg.tgz"
    with tarfile.open(path, "w:gz") as archive:
        for name in ("a", "b", "c", "other"):
            member = tarfile.TarInfo(name)
            member.size = 1
            archive.addfile(member, io.BytesIO(name[:1].encode()))
    for _ in range(2):
        listed = Path(image.batch_images_from_tar(str(path), "train", {"a": 3, "b": 4, "c": 5}, num_per_batch=2))
        found = [pickle.loads(Path(line).read_bytes()) for line in listed.read_text().splitlines()]
        assert found == [{"label": [3, 4], "data": [b"a", b"b"]}, {"label": [5], "data": [b"c"]}]
