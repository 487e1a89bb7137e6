"""Files of web servers, whole or with a sentence, and the cache that holds them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data import open_reader
from pe_cli.data.array_dataset import is_table
from pe_cli.data.remote import http_store
from pe_cli.data.remote.file_cache import RemoteFiles, _key
from pe_cli.data.remote.stores import RemoteError
from tests.data.remote.file_server import Served

ROWS = b"a,b\n1,x\n2,y\n3,z\n"


@pytest.fixture
def files(tmp_path: Path) -> RemoteFiles:
    return RemoteFiles(10_000, tmp_path / "cache")


def test_a_table_elsewhere_is_read_as_one_that_is_here(served: Served, files: RemoteFiles, tmp_path: Path) -> None:
    served.files = {"/part-1.csv": ROWS, "/part-2.csv": b"b,a\nw,4\n"}
    names = [f"{served.address}/part-{i}.csv" for i in (1, 2)]
    table = open_reader("table", {"files": names}, tmp_path, remote=files)
    assert is_table(table)
    assert table.cells("a").numbers().values.tolist() == [1, 2, 3, 4]


def test_every_reader_takes_an_address(served: Served, files: RemoteFiles, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(6, dtype="float32").reshape(3, 2))
    served.files = {"/x.npy": (tmp_path / "x.npy").read_bytes()}
    found = open_reader("npy", {"files": {"x": f"{served.address}/x.npy"}}, tmp_path, remote=files)
    assert not is_table(found)
    assert found.take(np.array([2]))["x"].tolist() == [[4, 5]]


def test_a_file_that_is_there_is_asked_for_and_not_sent_again(served: Served, tmp_path: Path) -> None:
    served.files = {"/a.csv": ROWS}
    for _ in range(2):
        assert RemoteFiles(10_000, tmp_path).get(f"{served.address}/a.csv").read_bytes() == ROWS
    assert served.asked == [("/a.csv", 200, len(ROWS)), ("/a.csv", 304, 0)]


def test_another_file_under_the_address_takes_its_place(served: Served, tmp_path: Path) -> None:
    served.files = {"/a.csv": ROWS}
    RemoteFiles(10_000, tmp_path).get(f"{served.address}/a.csv")
    served.files = {"/a.csv": b"a\n9\n"}
    assert RemoteFiles(10_000, tmp_path).get(f"{served.address}/a.csv").read_bytes() == b"a\n9\n"


def test_a_file_of_the_cache_that_was_cut_is_fetched_again(served: Served, tmp_path: Path) -> None:
    served.files = {"/a.csv": ROWS}
    path = RemoteFiles(10_000, tmp_path).get(f"{served.address}/a.csv")
    path.write_bytes(ROWS[:5])
    assert RemoteFiles(10_000, tmp_path).get(f"{served.address}/a.csv").read_bytes() == ROWS


@pytest.mark.parametrize(
    ("faults", "asked"),
    [
        pytest.param(["503", "503"], 3, id="busy twice"),
        pytest.param(["half"], 2, id="broken off once"),
        pytest.param(["half", "half", "500"], 4, id="broken off twice, then broken"),
    ],
)
def test_a_passing_fault_is_waited_for(served: Served, files: RemoteFiles, faults: list[str], asked: int) -> None:
    served.files, served.faults = {"/a.csv": ROWS}, faults
    assert files.get(f"{served.address}/a.csv").read_bytes() == ROWS
    assert len(served.asked) == asked
    assert sum(sent for _, _, sent in served.asked) == len(ROWS), "what was there is not sent again"


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        pytest.param("403", "answers 403 Forbidden", id="forbidden"),
        pytest.param("404", "answers 404 Not Found", id="not there"),
        pytest.param("503 for ever", "answers 503 Service Unavailable", id="busy for ever"),
        pytest.param("half for ever", "before the end", id="never whole"),
        pytest.param("silent for ever", "said nothing for 0.05 seconds", id="silent"),
        pytest.param("no length", "does not say how long it is", id="no length"),
        pytest.param("to file:///etc/passwd", "answers 302 Found", id="a redirect into this machine's files"),
    ],
)
def test_a_lasting_fault_ends_with_data_and_a_remedy(
    served: Served, files: RemoteFiles, tmp_path: Path, fault: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault.startswith("silent"):
        monkeypatch.setattr(http_store, "SILENCE", 0.05)
    served.files, served.faults = {"/a.csv": ROWS}, [fault]
    with pytest.raises(PeError, match=said) as found:
        open_reader("table", {"files": f"{served.address}/a.csv?key=secret"}, tmp_path, remote=files)
    assert found.value.code == ExitCode.DATA
    assert found.value.hint
    assert "secret" not in str(found.value)
    assert len(served.asked) <= 8


def test_a_file_that_comes_too_slowly_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 10_000, 40))
    monkeypatch.setattr(http_store.time, "monotonic", lambda: float(next(now)))

    class Answer:
        def read1(self, size: int) -> bytes:
            return b"x"

    with pytest.raises(RemoteError, match="bytes a second") as found:
        list(http_store._read(Answer(), 1000))
    assert found.value.again


@pytest.mark.parametrize(
    ("url", "said"),
    [
        pytest.param("ftp://host/a.csv", "no address that is read", id="another scheme"),
        pytest.param("https://me:password@host/a.csv", "a user or a password", id="a password"),
        pytest.param("https:///a.csv", "no host", id="no host"),
        pytest.param("http://[1/a.csv", "no address", id="no address"),
        pytest.param("http://host/*.csv", "do not list their files", id="a pattern of a web server"),
    ],
)
def test_what_is_no_address_is_refused(files: RemoteFiles, tmp_path: Path, url: str, said: str) -> None:
    with pytest.raises(PeError, match=said) as found:
        open_reader("table", {"files": url}, tmp_path, remote=files)
    assert found.value.code == ExitCode.DATA


def test_the_least_recently_used_files_go_first(served: Served, tmp_path: Path) -> None:
    served.files = {f"/{name}": bytes(400) for name in "abcd"}
    cache, urls = tmp_path / "cache", {name: f"{served.address}/{name}" for name in "abcd"}
    for name in "abac":  # each by a process of its own: what one reads stays
        files = RemoteFiles(1000, cache)
        with files.borrowed(urls[name]):
            pass
    there = [name for name in "abcd" if (cache / _key(urls[name])).exists()]
    assert there == ["a", "c"]


def test_files_that_are_being_read_stay(served: Served, tmp_path: Path) -> None:
    served.files = {f"/{name}": bytes(400) for name in "abc"}
    first = RemoteFiles(1000, tmp_path / "cache")
    path = first.get(f"{served.address}/a")
    other = RemoteFiles(1000, tmp_path / "cache")
    with other.borrowed(f"{served.address}/b"):
        with pytest.raises(RemoteError, match="are being read leave") as found:
            first.get(f"{served.address}/c")
        assert "data.cache" in found.value.hint
    assert first.get(f"{served.address}/c").stat().st_size == 400
    assert path.exists()


def test_a_file_larger_than_the_cache_is_refused_before_it_is_read(served: Served, files: RemoteFiles) -> None:
    served.files = {"/a": bytes(10_001)}
    with pytest.raises(RemoteError, match="10,001 bytes, and the cache holds 10,000"):
        files.get(f"{served.address}/a")


def test_a_file_that_changes_between_two_looks_is_told(served: Served, files: RemoteFiles) -> None:
    url = f"{served.address}/a"
    served.files = {"/a": bytes(9000)}
    with files.borrowed(url):
        pass
    served.files = {"/a": b"x" * 9000, "/b": bytes(9000)}
    with files.borrowed(f"{served.address}/b"):
        pass
    with pytest.raises(RemoteError, match="was changed while it is read"):
        files.get(url)


def test_names_of_the_cache_never_leave_it(served: Served, files: RemoteFiles) -> None:
    served.files = {"/..%2F..%2Fa.csv": ROWS, "/facts.json": ROWS, "/": ROWS}
    for path in served.files:
        found = files.get(f"{served.address}{path}")
        assert found.read_bytes() == ROWS
        assert found.parent.parent == files.folder


