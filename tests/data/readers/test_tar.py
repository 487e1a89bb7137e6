"""Samples in tar files: the same pictures and labels as in files of their own, and a sentence for what is no such archive."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data import open_reader
from pe_cli.data.array_dataset import is_table
from pe_cli.data.pictures.decode import Recipe, read


def picture(seed: int) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (6, 5, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def archive(path: Path, members: Mapping[str, bytes]) -> None:
    with tarfile.open(path, "w") as file:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))


def test_samples_of_several_archives_are_rows(tmp_path: Path) -> None:
    members = {f"a/{i}.png": picture(i) for i in range(4)}
    first = {"a/0.png": members["a/0.png"], "a/0.cls": b"3\n", "a/1.png": members["a/1.png"], "a/1.cls": b"7", "README": b"x"}
    second = {"a/2.cls": b"3", "a/2.png": members["a/2.png"], "a/2.json": b'{"size": 4, "tags": ["x"]}'}
    second |= {"a/3.png": members["a/3.png"], "a/3.cls": b"1"}
    archive(tmp_path / "s-0.tar", first)
    archive(tmp_path / "s-1.tar", second)
    table = open_reader("tar", {"files": "s-*.tar", "skip": 1}, tmp_path)
    assert is_table(table)
    assert table.implied["image"] == {"type": "image"}
    assert [table.cells("file").text(row) for row in range(3)] == ["a/1", "a/2", "a/3"]
    assert [table.cells("label").text(row) for row in range(3)] == ["7", "3", "1"]
    assert [table.cells("size").text(row) for row in range(3)] == ["", "4", ""]
    for row in range(3):
        path = tmp_path / "alone.png"
        path.write_bytes(members[f"a/{row + 1}.png"])
        found = read(f"{tmp_path}/{table.cells('image').text(row)}", Recipe(None))
        assert found.tolist() == read(str(path), Recipe(None)).tolist()


def test_a_path_in_a_table_may_not_lead_out_by_a_link(tmp_path: Path) -> None:
    from pe_cli.data.pictures.archive_members import archive_of

    assert archive_of("x/link.tar@0+10") == "x/link.tar", "so that the link itself is looked at"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        pytest.param(lambda data: data[:700], "cut off|no readable tar file", id="cut in a picture"),
        pytest.param(lambda data: b"x" * 2000, "no readable tar file", id="no archive"),
        pytest.param(lambda data: b"\x1f\x8b" + data, "no readable tar file", id="packed"),
        pytest.param(lambda data: bytes(2048), "has no sample", id="empty"),
    ],
)
def test_a_damaged_archive_is_told(tmp_path: Path, spoil, said: str) -> None:
    archive(tmp_path / "s.tar", {"0.png": picture(0) * 20, "0.cls": b"1"})
    (tmp_path / "s.tar").write_bytes(spoil((tmp_path / "s.tar").read_bytes()))
    with pytest.raises(PeError, match=said) as found:
        open_reader("tar", {"files": "s.tar"}, tmp_path)
    assert found.value.code == ExitCode.DATA
    assert found.value.hint


@pytest.mark.parametrize(
    ("members", "said"),
    [
        pytest.param({"0.png": b"", "0.jpg": b""}, "has 'image' twice", id="two pictures"),
        pytest.param({"0.json": b"[1]"}, "is no JSON object", id="a list"),
        pytest.param({"0.json": b"{"}, "is no JSON", id="no JSON"),
        pytest.param({"0.cls": b"\xff"}, "is no UTF-8 text", id="no text"),
        pytest.param({"0.txt": bytes((1 << 20) + 1)}, "1,048,577 bytes", id="a long text"),
    ],
)
def test_a_sample_that_is_none_is_told(tmp_path: Path, members: dict[str, bytes], said: str) -> None:
    archive(tmp_path / "s.tar", members)
    with pytest.raises(PeError, match=said) as found:
        open_reader("tar", {"files": "s.tar"}, tmp_path)
    assert found.value.code == ExitCode.DATA


def test_an_archive_that_is_listed_twice_is_told(tmp_path: Path) -> None:
    archive(tmp_path / "s.tar", {"0.cls": b"1"})
    with pytest.raises(PeError, match="is read twice"):
        open_reader("tar", {"files": ["s.tar", "*.tar"]}, tmp_path)
