"""Data sets of pictures that lie in archives as files."""

from __future__ import annotations

import io
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from pe_cli.paddle.dataset_files import as_data, lines, local, members, of_modes, whole
from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.io import Dataset
from pe_cli.paddle.vision.image_load import loaded
from pe_cli.paddle.vision.matlab import numbers


class VOC2012(Dataset):
    """Photographs with the class of each pixel, both as pictures of Pillow.

    Args:
        data_file: archive; default: where the original keeps it.
        mode: train for all pictures, test and valid for the two parts that they are divided into, as the original has it.
        transform: of the photograph.
        download: taken for the original's sake; nothing is downloaded.

    Raises:
        FluidValueError: the file is not there or damaged, or mode is another word; a ValueError.

    Source:
        Everingham et al. 2010, "The PASCAL visual object classes (VOC) challenge".
    """

    # As in the original, which trains on both lists of the contest and tests on the one for training.
    _PARTS: ClassVar = {"train": "trainval", "test": "train", "valid": "val"}

    def __init__(
        self, data_file: Any = None, mode: str = "train", transform: Callable[[Any], Any] | None = None, download: bool = True
    ) -> None:
        self.flag = self._PARTS[of_modes(mode, *self._PARTS)]
        self._path = local(data_file, "voc2012", "VOCtrainval_11-May-2012.tar")
        self.data_file, self.transform = str(self._path), transform
        # A DataLoader's workers are threads, and the archive has one place where it is read: one must not move another's.
        self._one_reads = threading.Lock()
        with as_data(self._path):
            self._archive = tarfile.open(self._path)  # noqa: SIM115 - pictures are read as they are asked for
            self._members = {member.name: member for member in self._archive if member.isfile()}
            wanted = self._members[f"VOCdevkit/VOC2012/ImageSets/Segmentation/{self.flag}.txt"]
            listed = self._archive.extractfile(wanted)
            assert listed is not None
            names = [line.decode("utf-8").strip() for line in lines(listed)]
        self.data = [f"VOCdevkit/VOC2012/JPEGImages/{name}.jpg" for name in names]
        self.labels = [f"VOCdevkit/VOC2012/SegmentationClass/{name}.png" for name in names]

    def _read(self, name: str) -> Any:
        with as_data(self._path):
            with self._one_reads:
                file = self._archive.extractfile(self._members[name])
                assert file is not None
                held = whole(file)
            return loaded(io.BytesIO(held), f"{self._path}: {name}")

    def __getitem__(self, idx: int) -> tuple[Any, Any]:
        picture = self._read(self.data[idx])
        return (picture if self.transform is None else self.transform(picture)), self._read(self.labels[idx])

    def __len__(self) -> int:
        return len(self.data)


class Flowers(Dataset):
    """Photographs of flowers, as pictures of Pillow, with their kinds, int64 [1] from 1 to 102.

    Args:
        data_file: archive of the photographs; default: where the original keeps it, as for the other files.
        label_file: MATLAB file of the kinds.
        setid_file: MATLAB file that divides the photographs.
        mode: train, valid or test; as in the original, train is the largest part, which its authors have for test.
        transform: of the photograph.
        download: taken for the original's sake; nothing is downloaded.

    Raises:
        FluidValueError: a file is not there or damaged, or mode is another word; a ValueError.

    Source:
        Nilsback and Zisserman 2008, "Automated flower classification over a large number of classes".
    """

    # The published list for tests is by far the longest, so the original trains on it and tests on the one for training.
    _PARTS: ClassVar = {"train": "tstid", "test": "trnid", "valid": "valid"}

    def __init__(
        self,
        data_file: Any = None,
        label_file: Any = None,
        setid_file: Any = None,
        mode: str = "train",
        transform: Callable[[Any], Any] | None = None,
        download: bool = True,
    ) -> None:
        part = self._PARTS[of_modes(mode, *self._PARTS)]
        path = local(data_file, "flowers", "102flowers.tgz")
        self.labels = _matrix(local(label_file, "flowers", "imagelabels.mat"), "labels")
        self.indexes = _matrix(local(setid_file, "flowers", "setid.mat"), part)
        self._path, self.transform = path, transform
        wanted = {f"jpg/image_{index:05}.jpg" for index in self.indexes.tolist()}
        with as_data(path):
            # Read at once: in a packed archive each later access would have to unpack all that lies before the picture.
            self._pictures = {name: whole(file) for name, file in members(path, wanted.__contains__)}
            for name in wanted - self._pictures.keys():
                raise KeyError(name)
        if len(self.indexes) and not 1 <= self.indexes.min() <= self.indexes.max() <= len(self.labels):
            raise FluidValueError(
                f"setid.mat has the photographs {self.indexes.min()} to {self.indexes.max()},"
                f" and imagelabels.mat has {len(self.labels)} kinds"
            )

    def __getitem__(self, idx: int) -> tuple[Any, Any]:
        index = int(self.indexes[idx])
        name = f"jpg/image_{index:05}.jpg"
        picture = loaded(io.BytesIO(self._pictures[name]), f"{self._path}: {name}")
        return (picture if self.transform is None else self.transform(picture)), np.array([self.labels[index - 1]], np.int64)

    def __len__(self) -> int:
        return len(self.indexes)


def _matrix(path: Path, name: str) -> Any:
    with as_data(path), path.open("rb") as file:
        return numbers(whole(file), name)
