"""Files of buckets, through the interface of fsspec, and by s3fs of moto's server."""

from __future__ import annotations

import fnmatch
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data import open_reader
from pe_cli.data.array_dataset import is_table
from pe_cli.data.remote.file_cache import RemoteFiles
from tests.needs import package


class Bucket:
    """What is asked of a file system of fsspec."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files, self.calls = files, 0
        self.fault: Exception | None = None

    def info(self, url: str) -> dict[str, Any]:
        self.calls += 1
        if self.fault is not None:
            raise self.fault
        data = self.files[url.removeprefix("s3://")]
        return {"type": "file", "size": len(data), "ETag": str(hash(data))}

    def glob(self, pattern: str, detail: bool) -> dict[str, dict[str, Any]]:
        found = fnmatch.filter(self.files, pattern.removeprefix("s3://"))
        return {name: {"type": "file"} for name in found}

    def cat_file(self, url: str, start: int, end: int) -> bytes:
        return self.files[url.removeprefix("s3://")][start:end]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A store under s3://."""
    found = Bucket({})
    module = types.ModuleType("fsspec")
    module.filesystem = lambda *args, **options: found  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fsspec", module)
    return found


def test_a_pattern_of_a_bucket_stands_for_its_files_in_order(bucket: Bucket, tmp_path: Path) -> None:
    bucket.files = {f"bucket/{name}.csv": f"a\n{value}\n".encode() for name, value in (("part-2", 2), ("part-1", 1), ("other", 9))}
    table = open_reader("table", {"files": "s3://bucket/part-*.csv"}, tmp_path, remote=RemoteFiles(10_000, tmp_path / "cache"))
    assert is_table(table)
    assert table.cells("a").numbers().values.tolist() == [1, 2]


def test_a_file_that_changes_while_its_parts_come_is_told(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.files = {"bucket/a.csv": b"a\n1\n"}

    def cat(url: str, start: int, end: int) -> bytes:
        bucket.files["bucket/a.csv"] = b"a\n2\n"
        return b"a\n2\n"

    monkeypatch.setattr(bucket, "cat_file", cat)
    with pytest.raises(PeError, match="was changed while it is read"):
        open_reader("table", {"files": "s3://bucket/a.csv"}, tmp_path, remote=RemoteFiles(10_000, tmp_path / "cache"))


@pytest.mark.parametrize(
    ("error", "said", "asked"),
    [
        pytest.param(PermissionError("Forbidden"), "may not be read", 1, id="forbidden"),
        pytest.param(FileNotFoundError("x"), "no such file", 1, id="not there"),
        pytest.param(OSError("SlowDown: reduce your request rate"), "SlowDown", 6, id="too busy, six times"),
    ],
)
def test_faults_of_a_bucket_are_told(bucket: Bucket, tmp_path: Path, error: Exception, said: str, asked: int) -> None:
    bucket.fault = error
    with pytest.raises(PeError, match=said) as found:
        open_reader("table", {"files": "s3://bucket/a.csv"}, tmp_path, remote=RemoteFiles(10_000, tmp_path / "cache"))
    assert (found.value.code, bucket.calls) == (ExitCode.DATA, asked)


def test_without_the_package_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(PeError, match="needs s3fs") as found:
        open_reader("table", {"files": "s3://bucket/a.csv"}, tmp_path)
    assert found.value.hint == "pip install 'pe-cli[remote]'"


#: Reads the bucket; a process of its own, as fsspec keeps a thread.
READ = """
import sys
from pathlib import Path
from pe_cli.core.errors import PeError
from pe_cli.data import open_reader
from pe_cli.data.remote.file_cache import RemoteFiles

files = RemoteFiles(10_000, Path(sys.argv[1]))
print(open_reader("table", {"files": "s3://bucket/part-*.csv"}, Path(), remote=files).cells("a").numbers().values.tolist())
try:
    open_reader("table", {"files": "s3://bucket/part-3.csv"}, Path(), remote=files)
except PeError as error:
    print(error.message)
"""


def test_a_server_of_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package("s3fs")
    package("moto")
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        address = "http://{}:{}".format(*server.get_host_and_port())
        for name, value in (("ENDPOINT_URL", address), ("ACCESS_KEY_ID", "x"), ("SECRET_ACCESS_KEY", "x"), ("DEFAULT_REGION", "us-east-1")):
            monkeypatch.setenv(f"AWS_{name}", value)
        client = boto3.client("s3")
        client.create_bucket(Bucket="bucket")
        for i in (1, 2):
            client.put_object(Bucket="bucket", Key=f"part-{i}.csv", Body=f"a\n{i}\n".encode())
        done = subprocess.run([sys.executable, "-c", READ, str(tmp_path / "cache")], capture_output=True, text=True, check=True)
    finally:
        server.stop()
    assert done.stdout.splitlines() == ["[1.0, 2.0]", "s3://bucket/part-3.csv: there is no such file"]
