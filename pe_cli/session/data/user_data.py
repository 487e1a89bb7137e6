"""Reads data that a user names on the command line as the run's training data was read."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from pe_cli.config.nodes import to_data
from pe_cli.config.spec import RunSpec
from pe_cli.config.substitute import escaped
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data.annotations.kinds import kind_of
from pe_cli.data.tables.file_formats import named_format
from pe_cli.io.run_files import is_run
from pe_cli.session.data.label_feeds import labels, sources

#: Options that say which data is read, and not how.
_WHICH = ("file", "files", "folder", "masks", "table", "skip", "limit")
#: Options of pictures that are about their masks.
_MASKED = ("masks", "mask_name", "unmasked")
#: Options of the csv reader that the table reader does not have.
_CSV = ("features", "label", "classes")
#: Bytes that are taken from standard input.
MOST_INPUT = 1 << 30


def override(run: RunSpec, files: Sequence[Path], use: str, *, unlabelled: bool = False) -> str:
    """Return what sets `data.<use>` to files of the user's: `key=value`, as after `-o`.

    The reader and its options are those of the training data.

    Args:
        run: that was trained.
        files: paths from where the user stands.
        use: eval or predict.
        unlabelled: what the model is asked for is not in the files: series are taken at their ends.

    Raises:
        PeError: USAGE; the run's reader reads no such files. DATA; one is not there.
    """
    absent = next((file for file in files if not file.exists()), None)
    if absent is not None:
        raise PeError(f"no such file or folder: {absent}", hint=f"paths start at {Path.cwd()}", code=ExitCode.DATA)
    run_folder = next((file for file in files if is_run(file)), None)
    if run_folder is not None:
        raise PeError(
            f"{run_folder} is a run, and data is expected behind the first one",
            hint="name one run; a pattern such as runs/* may have stood for several names",
        )
    paths = [str(file.absolute()) for file in files]
    spec = next((run.data[name] for name in ("train", "eval", "test", "predict") if name in run.data), None)
    if spec is None:
        raise PeError("the run's config has no data, so there is no telling how to read a file", at=run.at, hint=_BY_HAND)
    written = {key: value for key, value in to_data(spec.options).items() if key not in _WHICH}
    # Who asks for predictions has no boxes yet: their pictures are read as pictures.
    if spec.reader == "annotations" and unlabelled:
        return f"data.{use}={json.dumps(escaped({'reader': 'images', 'broken': 'skip', **_images(files, paths, {})}), ensure_ascii=False)}"
    make = _KINDS.get(spec.reader)
    if make is None:
        raise PeError(
            f"the run was trained on data of reader '{spec.reader}', and {', '.join(sorted(_KINDS))} can be named by file",
            hint=_BY_HAND,
        )
    value = {"reader": spec.reader, **written, **make(files, paths, to_data(spec.options))}
    # A forecast is asked for behind the last row, where no window of training ends.
    if spec.reader == "windows" and unlabelled:
        value["ends"] = True
    if spec.reader == "images":
        value = _with_masks(value, to_data(spec.options), unlabelled)
    if spec.reader == "csv":
        value = {key: inner for key, inner in value.items() if key not in _CSV} | {"reader": "table"}
    return f"data.{use}={json.dumps(escaped(value), ensure_ascii=False)}"


_BY_HAND = "name the data in the config's form: -o 'data.predict={reader: npy, files: {x: /path/x.npy}}'"


def _files(files: Sequence[Path], paths: list[str], options: Mapping[str, Any]) -> dict[str, Any]:
    return {"files": paths}


def _images(files: Sequence[Path], paths: list[str], options: Mapping[str, Any]) -> dict[str, Any]:
    if all(is_table_file(file) for file in files):
        table = options.get("table")
        inner = {k: v for k, v in table.items() if k not in _WHICH} if isinstance(table, dict) else {}
        return {"table": {**inner, "files": paths}, **_beside(files[0], options)}
    if len(files) == 1 and files[0].is_dir():
        return {"folder": paths[0]}
    if any(file.is_dir() for file in files):
        raise PeError("name one folder of pictures, or pictures by name", hint="not both")
    return {"files": paths}


def _with_masks(value: Mapping[str, Any], trained: Mapping[str, Any], unlabelled: bool) -> dict[str, Any]:
    """Return the options of pictures with those that say where their masks are, as they lay when the model was trained.

    Args:
        value: options for the user's data.
        trained: options of the training data.
        unlabelled: masks are not needed, and need not be there.
    """
    folder = value.get("folder")
    bare = {key: inner for key, inner in value.items() if key not in _MASKED}
    if folder is None:
        return bare
    if "masks" not in trained:  # masks lie beside their pictures, or there are none
        return {**value, "unmasked": "keep"} if unlabelled and "mask_name" in value else dict(value)
    beside = os.path.relpath(trained["masks"], trained["folder"])
    inside = Path(folder) / Path(trained["folder"]).name  # where the user names the folder that holds both
    pictures = inside if inside.is_dir() else Path(folder)
    masks = pictures / beside
    bare["folder"] = str(pictures)
    return bare if unlabelled or not masks.is_dir() else {**value, **bare, "masks": str(masks)}


def _beside(file: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return where paths of a table start: the folder that lies to it as that of the training data lay to its table, where there is one."""
    folder, table = options.get("folder"), options.get("table")
    trained: Any = table.get("files") if isinstance(table, dict) else table
    first = trained[0] if isinstance(trained, list) else trained
    if not isinstance(folder, str) or not isinstance(first, str):
        return {}
    found = file.absolute().parent / os.path.relpath(folder, Path(first).parent)
    return {"folder": str(found)} if found.is_dir() else {}


def _annotations(files: Sequence[Path], paths: list[str], options: Mapping[str, Any]) -> dict[str, Any]:
    if all(file.is_dir() or kind_of(file) for file in files):
        folder, trained = options.get("folder"), options.get("files")
        first = trained[0] if isinstance(trained, list) else trained
        if not isinstance(folder, str) or not isinstance(first, str):
            return {"files": paths}
        found = files[0].absolute() / os.path.relpath(folder, first)  # pictures lie to annotations as they did in training
        return {"files": paths, **({"folder": str(found.resolve())} if found.is_dir() else {})}
    raise PeError(f"{files[0]} holds no annotations", hint="name files of annotations, or a folder that has them beside pictures")


def _windows(files: Sequence[Path], paths: list[str], options: Mapping[str, Any]) -> dict[str, Any]:
    table = options.get("table")
    inner = {k: v for k, v in table.items() if k not in _WHICH} if isinstance(table, dict) else {}
    return {"table": {**inner, "files": paths}}


def _text(files: Sequence[Path], paths: list[str], options: Mapping[str, Any]) -> dict[str, Any]:
    if len(files) == 1 and files[0].is_dir():
        return {"folder": paths[0]}
    return {"files": paths}


def _npz(files: Sequence[Path], paths: list[str], options: Mapping[str, Any]) -> dict[str, Any]:
    if len(files) > 1:
        raise PeError("the reader npz takes one file", hint="ask for one after the other")
    return {"file": paths[0]}


#: Reader of the training data -> the options that name files for it.
_KINDS = {
    "annotations": _annotations, "table": _files, "csv": _files, "images": _images, "windows": _windows, "text": _text, "npz": _npz,
    "multi_slot": _files, "tagged": _files,
}  # fmt: skip


def is_table_file(file: Path) -> bool:
    """Return whether a file is a table by the end of its name."""
    return named_format(file.name) != "auto"


def text_column(run: RunSpec) -> str | None:
    """Return the column of tables that a model reads, where it is a text, or a sequence, and the only one."""
    taught = labels(run.model)
    read = {feed: source for feed, source in sources(run).items() if feed not in taught}
    names = list(dict.fromkeys(name for source in read.values() for name in source.names))
    spec = next((run.data[name] for name in ("train", "eval", "test", "predict") if name in run.data), None)
    if len(names) != 1 or spec is None or spec.reader not in ("table", "csv"):
        return None
    declared = run.preparation.columns.get(names[0])
    if declared is None:  # an undeclared column of sequences is a text
        return names[0] if all(run.model.feeds[feed].lod_level for feed in read) else None
    given = to_data(declared.value)
    if not isinstance(given, dict) or given.get("type") not in ("text", "sequence"):
        return None
    return str(given.get("of") or names[0])


def spooled(stream: BinaryIO, folder: Path, column: str | None = None) -> Path:
    """Write standard input to a file: JSON lines where it begins with `{`, a table where its first line has a comma or a tab, else text.

    Args:
        stream: read to its end.
        folder: of the file.
        column: that a table has to have; lines that are no table with it are its texts. None where tables may have any columns.

    Raises:
        PeError: DATA; there is nothing, or more than `MOST_INPUT` bytes.
    """
    data = stream.read(MOST_INPUT + 1)
    if not data.strip():
        raise PeError("standard input is empty", hint="for example: echo 'some text' | pe predict RUN -", code=ExitCode.DATA)
    if len(data) > MOST_INPUT:
        raise PeError(f"standard input has more than {MOST_INPUT} bytes", hint="write it to a file, and name that", code=ExitCode.DATA)
    first = data.lstrip().split(b"\n", 1)[0]
    if column is not None and not first.startswith(b"{") and not _has_column(first, column):
        return _as_rows(data, folder, column)
    suffix = ".jsonl" if first.startswith(b"{") else ".csv" if b"," in first or b"\t" in first else ".txt"
    path = folder / f"input{suffix}"
    path.write_bytes(data)
    return path


def _has_column(header: bytes, column: str) -> bool:
    """Return whether a line names a column of a table."""
    text = header.decode("utf-8-sig", "replace").strip()
    rows = (next(csv.reader([text], delimiter=delimiter), []) for delimiter in ",\t;|")
    return any(column in (cell.strip() for cell in row) for row in rows)


def _as_rows(data: bytes, folder: Path, column: str) -> Path:
    """Write a row per line that is not empty.

    Raises:
        PeError: DATA; a line is no UTF-8.
    """
    path = folder / "input.jsonl"
    with path.open("w", encoding="utf-8") as out:
        for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").splitlines(), 1):
            try:
                text = line.decode("utf-8").strip()
            except UnicodeDecodeError as error:
                raise PeError(
                    f"line {number} of standard input is no UTF-8: byte {error.start + 1} is 0x{line[error.start]:02x}",
                    hint="convert it: iconv -f latin1 -t utf-8",
                    code=ExitCode.DATA,
                ) from None
            if text:
                out.write(json.dumps({column: text}, ensure_ascii=False) + "\n")
    return path
