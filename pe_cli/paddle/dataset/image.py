"""image: pictures as arrays [height, width, channels] of bytes, blue first as OpenCV reads them, cut and turned for a network."""

from __future__ import annotations

import importlib
import pickle
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.reference_names import missing

Array = np.ndarray[Any, Any]
_INSTALL = "pip install opencv-python-headless"


def _opencv() -> Any:
    """Return OpenCV.

    Raises:
        PeError: it is not installed.
    """
    try:
        return importlib.import_module("cv2")
    except ImportError:
        raise PeError("paddle.dataset.image reads and resizes by OpenCV, which is not installed", hint=_INSTALL) from None


def _read(found: Any, what: str) -> Array:
    if found is None:
        raise FluidValueError(f"{what}: no picture, or none that OpenCV reads", hint="check the path, and that the file is whole")
    return np.asarray(found)


def load_image_bytes(bytes: bytes, is_color: bool = True) -> Array:
    """Return the picture that a file's content is.

    Args:
        bytes: of the file.
        is_color: whether it has three channels; otherwise it is [height, width], in shades of grey.

    Raises:
        FluidValueError: it is no picture; a ValueError.
    """
    cv2 = _opencv()
    found = cv2.imdecode(np.frombuffer(bytes, np.uint8), int(is_color)) if bytes else None
    return _read(found, "load_image_bytes")


def load_image(file: str, is_color: bool = True) -> Array:
    """Return the picture in a file; arguments and errors of `load_image_bytes`."""
    return _read(_opencv().imread(str(file), int(is_color)), str(file))


def resize_short(im: Array, size: int) -> Array:
    """Return a picture whose shorter side has a size, in pixels, by bicubic interpolation."""
    cv2 = _opencv()
    height, width = im.shape[:2]
    sizes = (size, size * height // width) if height > width else (size * width // height, size)
    return np.asarray(cv2.resize(im, sizes, interpolation=cv2.INTER_CUBIC))


def to_chw(im: Array, order: tuple[int, ...] = (2, 0, 1)) -> Array:
    """Return a picture with its axes in another order: channels first.

    Raises:
        FluidValueError: it has another number of axes than `order`; a ValueError.
    """
    if im.ndim != len(order):
        raise FluidValueError(f"to_chw: a picture of {im.ndim} axes has no order {list(order)}", hint="one number for each axis")
    return im.transpose(order)


def _cut(im: Array, size: int, top: int, left: int) -> Array:
    return im[top : top + size, left : left + size]


def center_crop(im: Array, size: int, is_color: bool = True) -> Array:
    """Return the square in the middle of a picture, of a size in pixels; `is_color` is taken for the original's sake."""
    return _cut(im, size, (im.shape[0] - size) // 2, (im.shape[1] - size) // 2)


def random_crop(im: Array, size: int, is_color: bool = True) -> Array:
    """Return a square of a picture at a place that NumPy's numbers draw; arguments of `center_crop`."""
    top = np.random.randint(0, im.shape[0] - size + 1)  # noqa: NPY002 - what scripts seed
    return _cut(im, size, top, np.random.randint(0, im.shape[1] - size + 1))  # noqa: NPY002


def left_right_flip(im: Array, is_color: bool = True) -> Array:
    """Return a picture with left and right exchanged; `is_color` is taken for the original's sake."""
    return im[:, ::-1]


def simple_transform(
    im: Array, resize_size: int, crop_size: int, is_train: bool, is_color: bool = True, mean: Any = None
) -> Array:
    """Return a picture as a network takes it: float32 [channels, height, width].

    Args:
        im: the picture.
        resize_size: of the shorter side, in pixels.
        crop_size: of the square that is cut from it, in pixels.
        is_train: cut at random and flip every second one, rather than cut from the middle.
        is_color: whether it has channels.
        mean: of each channel, or of each element; it is subtracted.
    """
    im = resize_short(im, resize_size)
    if is_train:
        im = random_crop(im, crop_size)
        if np.random.randint(2) == 0:  # noqa: NPY002
            im = left_right_flip(im)
    else:
        im = center_crop(im, crop_size)
    if im.ndim == 3:
        im = to_chw(im)
    im = im.astype("float32")
    if mean is None:
        return im
    given = np.array(mean, "float32")
    im -= given[:, None, None] if given.ndim == 1 and is_color else given
    return im


def load_and_transform(
    filename: str, resize_size: int, crop_size: int, is_train: bool, is_color: bool = True, mean: Any = None
) -> Array:
    """Return the picture in a file as `simple_transform` makes it."""
    return simple_transform(load_image(filename, is_color), resize_size, crop_size, is_train, is_color, mean)


def batch_images_from_tar(data_file: str, dataset_name: str, img2label: Mapping[str, int], num_per_batch: int = 1024) -> str:
    """Write files with the content of several pictures each beside an archive, once; return the file that lists them.

    Args:
        data_file: the archive.
        dataset_name: of the folder of the files, and of the list.
        img2label: name in the archive -> label; others are left out.
        num_per_batch: pictures of a file, which is a pickled dict of `label` and `data`.
    """
    folder = Path(f"{data_file}_batch") / dataset_name
    listed = folder.with_name(f"{dataset_name}.txt")
    if folder.exists():
        return str(listed)
    folder.mkdir(parents=True)
    with tarfile.open(data_file) as archive:
        for number, (names, data) in enumerate(_groups(archive, img2label, num_per_batch)):
            content = {"label": [img2label[name] for name in names], "data": data}
            (folder / f"batch_{number}").write_bytes(pickle.dumps(content, protocol=2))
    with listed.open("a", encoding="utf-8") as lines:
        lines.writelines(f"{path.absolute()}\n" for path in sorted(folder.iterdir()))
    return str(listed)


def _groups(archive: tarfile.TarFile, wanted: Mapping[str, int], size: int) -> Iterator[tuple[list[str], list[bytes]]]:
    names: list[str] = []
    data: list[bytes] = []
    for member in archive:
        file = archive.extractfile(member) if member.name in wanted else None
        if file is not None:
            names.append(member.name)
            data.append(file.read())
        if len(names) == size:
            yield names, data
            names, data = [], []
    if names:
        yield names, data


__all__ = [
    "batch_images_from_tar", "center_crop", "left_right_flip", "load_and_transform", "load_image", "load_image_bytes", "random_crop",
    "resize_short", "simple_transform", "to_chw",
]  # fmt: skip
__getattr__ = missing("paddle.dataset.image", lambda: globals())
