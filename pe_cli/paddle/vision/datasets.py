"""vision.datasets: data sets of pictures, read from files that are there; nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.data.reader_context import Origin
from pe_cli.data.readers.idx import _read
from pe_cli.io.fluid import pickled
from pe_cli.paddle.dataset_files import as_data, local, members, of_modes, whole
from pe_cli.paddle.errors import FluidTypeError, FluidValueError, raised_as
from pe_cli.paddle.io import Dataset
from pe_cli.paddle.reference_names import missing
from pe_cli.paddle.vision.archives import VOC2012, Flowers
from pe_cli.paddle.vision.image_load import read_picture

#: Endings of pictures, as the original knows them.
EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")

#: Bytes of a part of an archive, at most: the largest has 154 million.
LARGEST_PART = 1 << 28


class _Pictures(Dataset):
    """Pictures with their labels.

    Attributes:
        images: uint8 [samples, height, width, channels].
        labels: int64 [samples, 1].
    """

    images: Any
    labels: Any
    transform: Callable[[Any], Any] | None

    def __getitem__(self, idx: int) -> tuple[Any, Any]:
        picture = self.images[idx]
        return (picture.astype("float32") if self.transform is None else self.transform(picture)), self.labels[idx]

    def __len__(self) -> int:
        return len(self.labels)


class MNIST(_Pictures):
    """Digits of 28 x 28 pixels with their labels, from IDX files.

    Args:
        image_path: of the pictures, packed or not; default: where the original keeps it.
        label_path: of the labels.
        mode: train or test; which files are the default.
        transform: of the picture, uint8 [28, 28, 1]; default: float32 of the same values.
        download: taken for the original's sake; nothing is downloaded.

    Raises:
        FluidValueError: a file is not there or broken, or mode is another word; a ValueError.
    """

    NAME = "mnist"

    def __init__(
        self,
        image_path: Any = None,
        label_path: Any = None,
        mode: str = "train",
        transform: Callable[[Any], Any] | None = None,
        download: bool = True,
    ) -> None:
        first = "train" if of_modes(mode, "train", "test") == "train" else "t10k"
        paths = (
            local(image_path, self.NAME, f"{first}-images-idx3-ubyte.gz"),
            local(label_path, self.NAME, f"{first}-labels-idx1-ubyte.gz"),
        )
        with raised_as(FluidValueError):
            images, labels = (np.asarray(_read(path.name, Origin(path.resolve().parent))) for path in paths)
        if images.ndim != 3 or labels.shape != images.shape[:1]:
            raise FluidValueError(f"{paths[0]} has the shape {list(images.shape)}, {paths[1]} {list(labels.shape)}")
        self.images, self.labels = images[..., None], labels.astype("int64")[:, None]
        self.mode, self.transform = mode, transform


class FashionMNIST(MNIST):
    """Clothes of 28 x 28 pixels with their labels; arguments of `MNIST`."""

    NAME = "fashion-mnist"


class Cifar10(_Pictures):
    """Pictures of 32 x 32 pixels with their labels, from the archive of the Python version.

    Args:
        data_file: archive; default: where the original keeps it.
        mode: train or test.
        transform: of the picture, uint8 [32, 32, 3]; default: float32 of the same values.
        download: taken for the original's sake; nothing is downloaded.

    Raises:
        FluidValueError: the file is not there or broken, or mode is another word; a ValueError.
    """

    FILE, PARTS, LABELS = "cifar-10-python.tar.gz", ("data_batch", "test_batch"), "labels"

    def __init__(
        self, data_file: Any = None, mode: str = "train", transform: Callable[[Any], Any] | None = None, download: bool = True
    ) -> None:
        wanted = self.PARTS[("train", "test").index(of_modes(mode, "train", "test"))]
        path = local(data_file, "cifar", self.FILE)
        with as_data(path):
            # In the order of their names, however they lie in the archive.
            found = sorted((name, whole(file, LARGEST_PART)) for name, file in members(path, lambda at: wanted in at))
        parts = [self._part(data, path) for _, data in found]
        self.images = np.concatenate([images for images, _ in parts])
        self.labels = np.concatenate([labels for _, labels in parts])[:, None]
        self.mode, self.transform = mode, transform

    def _part(self, data: bytes, path: Path) -> tuple[Any, Any]:
        with as_data(path):
            found = pickled.read(data)
            if not isinstance(found, dict):
                raise ValueError("a part is no dict")
            # The archives were pickled by Python 2, so the keys are bytes.
            images, labels = np.asarray(found[b"data"]), np.asarray(found[self.LABELS.encode()])
            if images.dtype != np.uint8 or images.ndim != 2 or images.shape[1] != 3 * 32 * 32:
                raise ValueError(f"a part has pictures of the shape {list(images.shape)} and the type {images.dtype}")
            if labels.dtype.kind not in "iu" or labels.shape != images.shape[:1]:
                raise ValueError(f"a part has labels of the shape {list(labels.shape)} and the type {labels.dtype}")
            return np.ascontiguousarray(images.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), labels.astype(np.int64)


class Cifar100(Cifar10):
    """The same with 100 classes; arguments of `Cifar10`."""

    FILE, PARTS, LABELS = "cifar-100-python.tar.gz", ("train", "test"), "fine_labels"


class ImageFolder(Dataset):
    """All pictures in a folder and those inside, without labels.

    Args:
        root: folder.
        loader: path -> picture; default: `read_picture`.
        extensions: of the files that count.
        transform: of the picture.
        is_valid_file: path -> whether it counts, instead of extensions.

    Raises:
        FluidValueError: there is none; as it is taken, also: it is no picture, or cannot be read; a ValueError.
        FluidTypeError: extensions and is_valid_file are both given; a TypeError.
    """

    def __init__(
        self,
        root: Any,
        loader: Callable[[Any], Any] | None = None,
        extensions: Sequence[str] | None = None,
        transform: Callable[[Any], Any] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
    ) -> None:
        self.loader, self.transform = loader or read_picture, transform
        if extensions is not None and is_valid_file is not None:
            raise FluidTypeError("extensions and is_valid_file exclude each other", hint="give one of them")
        endings = tuple(e.lower() for e in (extensions or EXTENSIONS))
        self._counts = is_valid_file or (lambda path: path.lower().endswith(endings))
        self.samples: list[Any] = self._find(Path(root))
        if not self.samples:
            raise FluidValueError(f"{root} has no such file", hint=f"endings are {', '.join(endings)}")

    def _files(self, folder: Path) -> list[str]:
        return sorted(str(path) for path in folder.rglob("*") if path.is_file() and self._counts(str(path)))

    def _find(self, root: Path) -> list[Any]:
        return self._files(root)

    def _picture(self, path: str) -> Any:
        picture = self.loader(path)
        return picture if self.transform is None else self.transform(picture)

    def __getitem__(self, idx: int) -> Any:
        return [self._picture(self.samples[idx])]

    def __len__(self) -> int:
        return len(self.samples)


class DatasetFolder(ImageFolder):
    """Pictures with the folder that each lies in as its class; arguments of `ImageFolder`.

    Attributes:
        classes: names of the folders, sorted.
        class_to_idx: name -> number of the class.
        samples: (path, number of the class).
    """

    def _find(self, root: Path) -> list[Any]:
        self.classes = sorted(path.name for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}
        return [(path, i) for name, i in self.class_to_idx.items() for path in self._files(root / name)]

    def __getitem__(self, idx: int) -> Any:
        path, label = self.samples[idx]
        return self._picture(path), label


__all__ = ["MNIST", "VOC2012", "Cifar10", "Cifar100", "DatasetFolder", "FashionMNIST", "Flowers", "ImageFolder"]
__getattr__ = missing("paddle.vision.datasets", lambda: globals())
