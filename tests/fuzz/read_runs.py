"""What reads the files that a run, a launch or somebody else leaves beside checkpoints."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from unittest import mock

import numpy as np

from pe_cli.data.fitted_columns import Fitted
from pe_cli.io.view.timeline import read_timeline
from pe_cli.session.launch.hosts import divided, read_hosts
from tests.fuzz.targets import refused, target

#: Between the files of one input.
NEXT = b"\n=== "


def joined(files: dict[str, bytes]) -> bytes:
    """Return several files as one input: of each its name, and behind it what it holds."""
    return b"".join(NEXT + name.encode() + b"\n" + data for name, data in files.items())


@target
def learned(data: bytes, folder: Path) -> None:
    """What the columns of a run have learned, and the vocabularies beside; what is read decodes, and is written and read again."""
    files = {}
    for part in data.split(NEXT)[1:]:
        name, _, contents = part.partition(b"\n")
        files[name.decode("latin-1")] = contents
    with refused(folder):
        found = Fitted.from_files(files, str(folder))
        again = Fitted.from_files(found.to_files(), str(folder))
        assert list(again.columns) == list(found.columns)
        for column in found.columns.values():
            column.lanes()
            column.labels(max(1, min(len(column.classes), 9)))
            if column.target:
                column.decode(np.zeros((2, 1, max(1, len(column.inner))), np.float32))


@target
def hosts(data: bytes, folder: Path) -> None:
    """A file of hosts, as `pe launch --hosts` takes it; no name is asked for."""
    path = folder / "hosts"
    path.write_bytes(data)
    with refused(folder), mock.patch.object(socket, "getaddrinfo", return_value=[]):
        found = read_hosts(path)
        assert len(divided(found, 3)) == 3


@target
def timeline(data: bytes, folder: Path) -> None:
    """A trace of steps, which the report draws."""
    path = folder / "trace.json"
    path.write_bytes(data)
    drawn, why = read_timeline(path)
    assert (drawn is None) == bool(why)
    json.dumps(drawn, allow_nan=False)

