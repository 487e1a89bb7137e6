"""NumPy .npy files, one per field, mapped into memory: they may be larger than it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from pe_cli.data.array_dataset import Shards
from pe_cli.data.dataset import Array, ArrayDataset, Dataset, map_array
from pe_cli.data.npy import read_header
from pe_cli.data.reader_context import Origin
from pe_cli.data.registry import ReaderOptions, reader
from pe_cli.data.tables.file_patterns import find_files

Text = Annotated[str, Field(strict=True)]
Files = Text | Annotated[list[Text], Field(min_length=1)]


class NpyOptions(ReaderOptions):
    """Options of the npy reader."""

    files: dict[str, Files] = Field(
        min_length=1, description="field -> .npy file of shape [samples, ...]; or a pattern or a list of them, one behind the other"
    )


@reader("npy", NpyOptions)
def open_npy(options: NpyOptions, origin: Origin) -> Dataset:
    """Read .npy files, one per field.

    The files are mapped: a batch reads the pages that it needs, so the data may be larger than memory.
    Files that hold Python objects (pickles) are refused. Where a field has several files, each field has as many, with the same samples
    in the first, in the second, ... of them.

    Raises:
        PeError: DATA; a file is missing or damaged, or the files of the fields do not belong together.
    """
    files = {field: find_files(names, origin) for field, names in options.files.items()}
    counts = {field: len(paths) for field, paths in files.items()}
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{field} has {count}" for field, count in counts.items())
        raise origin.error(f"fields differ in their number of files: {said}", "name as many files for every field, in the same order")
    shards = [
        ArrayDataset({field: _map(path, origin) for field, path in zip(files, paths, strict=True)}, origin)
        for paths in zip(*files.values(), strict=True)
    ]
    return shards[0] if len(shards) == 1 else Shards(shards, [str(path) for path in next(iter(files.values()))], origin)


def _map(path: Path, origin: Origin) -> Array:
    with path.open("rb") as file:
        header = read_header(file, path.stat().st_size, str(path), origin)
    return map_array(path, header.dtype, header.shape, header.offset, header.fortran)
