"""`meta.json` of a checkpoint: reading it, and checking the tensor file against it."""

from __future__ import annotations

from pathlib import Path

from pe_cli.io import strict_json
from pe_cli.io.regular_files import open_regular
from pe_cli.io.tensors import data_error, sha256

#: What is written: the second where tables lie in files of rows beside the tensors; both are read.
FORMAT, FORMAT_ROWS = 1, 2
META_LIMIT = 16 * 2**20
#: Bytes of one file beside the arrays.
FILES_LIMIT = 1 << 30
PARAMS = "params.safetensors"
META = "meta.json"
Meta = dict[str, object]


def read_meta(folder: Path) -> tuple[Meta, dict[str, object]]:
    """Return what meta.json of a checkpoint holds, and the description of its tensors.

    Raises:
        PeError: DATA; the file is missing, damaged, or of a format that this version does not read.
    """
    path = folder / META
    try:
        with open_regular(path) as stream:
            text = stream.read(META_LIMIT + 1)
        meta = strict_json.loads(text) if len(text) <= META_LIMIT else None
    except OSError as error:
        raise data_error(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except ValueError as error:
        raise data_error(f"{path}: not whole JSON: {error}") from None
    if len(text) > META_LIMIT:
        raise data_error(f"{path}: more than {META_LIMIT} bytes, which no checkpoint of ours has")
    if not isinstance(meta, dict) or "format" not in meta:
        raise data_error(f"{path}: not the description of a checkpoint")
    if meta["format"] not in (FORMAT, FORMAT_ROWS) or isinstance(meta["format"], bool):
        raise data_error(
            f"{path}: format {meta['format']!r}, this version reads {FORMAT} and {FORMAT_ROWS}", "use the version of pe that wrote it"
        )
    tensors = meta.get("tensors")
    if not isinstance(tensors, dict) or not isinstance(meta.get("step"), int):
        raise data_error(f"{path}: not the description of a checkpoint")
    return meta, tensors


def check_file(path: Path, meta: Meta) -> None:
    """Compare size and hash, so that a torn or swapped file is named as such, before anything in it is believed.

    Raises:
        PeError: DATA; the file is missing, has another size or hash, or cannot be read.
    """
    if not path.is_file():
        raise data_error(f"{path}: no such file")
    try:
        size, digest = path.stat().st_size, sha256(path)
    except OSError as error:
        raise data_error(f"{path}: {(error.strerror or str(error)).lower()}") from None
    if size != meta.get("bytes"):
        raise data_error(f"{path}: {size} bytes, but {META} says {meta.get('bytes')}")
    if digest != meta.get("sha256"):
        raise data_error(
            f"{path}: changed since it was written: its sha256 is {digest}, {META} says {meta.get('sha256')}"
        )
