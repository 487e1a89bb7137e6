"""NumPy .npy files, one per field, mapped into memory: they may be larger than it."""

from __future__ import annotations

from pydantic import Field

from pe_cli.data.dataset import Array, ArrayDataset, Dataset, map_array
from pe_cli.data.npy import read_header
from pe_cli.data.reader_context import Origin
from pe_cli.data.registry import ReaderOptions, reader


class NpyOptions(ReaderOptions):
    """Options of the npy reader."""

    files: dict[str, str] = Field(min_length=1, description="field -> .npy file of shape [samples, ...]")


@reader("npy", NpyOptions)
def open_npy(options: NpyOptions, origin: Origin) -> Dataset:
    """Read .npy files, one per field.

    The files are mapped: a batch reads the pages that it needs, so the data may be larger than memory.
    Files that hold Python objects (pickles) are refused.
    """
    return ArrayDataset({field: _map(name, origin) for field, name in options.files.items()}, origin)


def _map(name: str, origin: Origin) -> Array:
    path = origin.find(name)
    with path.open("rb") as file:
        header = read_header(file, path.stat().st_size, str(path), origin)
    return map_array(path, header.dtype, header.shape, header.offset, header.fortran)
