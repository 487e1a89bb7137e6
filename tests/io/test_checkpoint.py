"""What is saved comes back bit by bit; what is damaged is refused with a way out."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.io import checkpoint, checkpoint_folder, tensors

ARRAYS = {
    "w": np.array([[0.1, -0.0], [np.inf, 3e-45]], np.float32),
    "double": np.array([np.pi, np.nan]),
    "step": np.array(12, np.int64),
    "index": np.arange(-3, 3, dtype=np.int32),
    "bytes": np.arange(7, dtype=np.uint8),
    "mask": np.array([True, False, True]),
    "empty": np.zeros((0, 3), np.float32),
    "stage1/0/a.w_0": np.arange(24.0).reshape(2, 3, 4)[:, ::2].transpose(2, 0, 1),
}
META = {"epoch": 3, "metrics": {"loss": 0.25, "bad": float("nan")}, "seed": 7, "at": np.float32(0.5)}


def saved(root: Path, step: int, arrays: Mapping[str, np.ndarray], meta: Mapping[str, object]) -> Path:
    """Write a checkpoint, and return its folder."""
    checkpoint.write(root, step, arrays, meta)
    return root / f"step-{step}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Give a folder with checkpoints of the steps 10 and 20; last is 20, best is 10."""
    root = tmp_path / "run" / "checkpoints"
    for step in (10, 20):
        checkpoint.write(root, step, {"w": np.full(5, step, np.float32)}, {})
    checkpoint.mark(root, "last", 20)
    checkpoint.mark(root, "best", 10)
    return root


def test_arrays_come_back_bit_by_bit(tmp_path: Path) -> None:
    folder = saved(tmp_path / "c", 12, ARRAYS, META)
    arrays, meta = checkpoint.load(folder)
    assert folder == tmp_path / "c" / "step-12"
    assert list(arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert arrays[name].shape == array.shape
        assert arrays[name].tobytes() == array.tobytes()
        assert arrays[name].flags.writeable
    assert meta["step"] == 12
    assert meta["epoch"] == 3
    assert meta["metrics"] == {"loss": 0.25, "bad": "nan"}
    assert meta["at"] == 0.5


def test_the_library_reads_what_we_write(tmp_path: Path) -> None:
    folder = saved(tmp_path, 1, ARRAYS, {})
    for name, array in safetensors.numpy.load_file(folder / "params.safetensors").items():
        assert array.tobytes() == ARRAYS[name].tobytes()
        assert array.shape == ARRAYS[name].shape


def test_we_read_what_the_library_writes(tmp_path: Path) -> None:
    file = tmp_path / "init.safetensors"
    safetensors.numpy.save_file({"w": np.eye(3), "b": np.ones(2, np.int64)}, file)
    arrays, meta = checkpoint.load(file)
    assert meta == {}
    assert set(arrays) == {"w", "b"}
    assert np.array_equal(arrays["w"], np.eye(3))


def test_big_endian_arrays_keep_their_values(tmp_path: Path) -> None:
    folder = saved(tmp_path, 1, {"w": np.array([1.5, 2.5], ">f4")}, {})
    assert np.array_equal(checkpoint.load(folder)[0]["w"], np.array([1.5, 2.5], np.float32))


def test_no_arrays_is_a_checkpoint_too(tmp_path: Path) -> None:
    assert checkpoint.load(saved(tmp_path, 0, {}, {}))[0] == {}


def test_meta_is_strict_json(tmp_path: Path) -> None:
    folder = saved(tmp_path, 1, ARRAYS, META)

    def refuse(name: str) -> None:
        raise AssertionError(name)

    json.loads((folder / "meta.json").read_text(), parse_constant=refuse)


@pytest.mark.parametrize(
    ("path", "step"),
    [
        pytest.param(".", 20, id="the run folder means last"),
        pytest.param("checkpoints", 20, id="the checkpoints folder means last"),
        pytest.param("checkpoints/last", 20, id="last"),
        pytest.param("checkpoints/best", 10, id="best"),
        pytest.param("checkpoints/step-10", 10, id="a step"),
    ],
)
def test_a_path_finds_its_checkpoint(root: Path, path: str, step: int) -> None:
    assert checkpoint.load(root.parent / path)[1]["step"] == step
    assert checkpoint.load_arrays(root.parent / path)["w"][0] == step


def test_a_copied_checkpoint_loads_under_any_name(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / "step-10", tmp_path / "mine")
    assert checkpoint.load(tmp_path / "mine")[1]["step"] == 10


def test_without_a_mark_the_highest_step_counts(root: Path) -> None:
    (root / "last").unlink()
    assert checkpoint.load(root.parent)[1]["step"] == 20


def test_a_symbolic_link_works_as_a_mark(root: Path) -> None:
    (root / "last").unlink()
    (root / "last").symlink_to("step-10")
    assert checkpoint.load(root / "last")[1]["step"] == 10


def test_npz_initialises_without_pickle(tmp_path: Path) -> None:
    np.savez(tmp_path / "init.npz", w=np.eye(2, dtype=np.float32), b=np.array([1, 2]))
    arrays = checkpoint.load_arrays(tmp_path / "init.npz")
    assert np.array_equal(arrays["w"], np.eye(2))
    assert arrays["b"].dtype == np.int64


class Evil:
    """Would run code if anybody unpickled it."""

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return (pytest.fail, ("unpickled",))


def test_an_npz_with_a_pickle_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "evil.npz", w=np.array([Evil()], dtype=object))
    with pytest.raises(PeError, match=r"evil\.npz") as caught:
        checkpoint.load_arrays(tmp_path / "evil.npz")
    assert caught.value.code == ExitCode.DATA


@pytest.mark.parametrize(
    "array", [np.ones(2, np.int8), np.ones(2, complex), np.array(["a"])], ids=["int8", "complex", "text"]
)
def test_a_type_that_no_variable_has_is_refused(tmp_path: Path, array: np.ndarray) -> None:
    np.savez(tmp_path / "a.npz", w=array)
    with pytest.raises(PeError, match="'w' is") as caught:
        checkpoint.load_arrays(tmp_path / "a.npz")
    assert caught.value.code == ExitCode.DATA
    with pytest.raises(PeError, match="'w' is"):
        checkpoint.write(tmp_path / "c", 1, {"w": array}, {})
    assert not list((tmp_path / "c").iterdir())


def test_int8_in_safetensors_is_refused_by_name(tmp_path: Path) -> None:
    safetensors.numpy.save_file({"w": np.ones(2, np.int8)}, tmp_path / "a.safetensors")
    with pytest.raises(PeError, match="'w' has the type I8"):
        checkpoint.load(tmp_path / "a.safetensors")


def header(text: str, body: bytes = b"") -> bytes:
    """Return a safetensors file with this header."""
    return len(text).to_bytes(8, "little") + text.encode() + body


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\x08\x00\x00", id="shorter than its length field"),
        pytest.param((2**62).to_bytes(8, "little") + b"{}", id="header longer than the file"),
        pytest.param(header("not json"), id="header is no JSON"),
        pytest.param(header('{"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}', bytes(8)), id="data cut short"),
        pytest.param(header('{"w":{"dtype":"F32","shape":[9],"data_offsets":[0,16]}}', bytes(16)), id="shape lies"),
        pytest.param(header('{"w":{"dtype":"F32","shape":[4],"data_offsets":[8,24]}}', bytes(24)), id="hole in front"),
        pytest.param(
            header('{"w":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}'), id="sizes overflow"
        ),
        pytest.param(header("[" * 100_000), id="deeply nested"),
    ],
)
def test_a_hostile_tensor_file_is_one_clear_error(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "evil.safetensors"
    file.write_bytes(data)
    with pytest.raises(PeError, match=r"evil\.safetensors") as caught:
        checkpoint.load(file)
    assert caught.value.code == ExitCode.DATA
    assert "\n" not in caught.value.message


def test_every_truncated_npz_is_one_clear_error(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "whole.npz", w=np.arange(200.0), b=np.ones(3))
    whole = (tmp_path / "whole.npz").read_bytes()
    for size in range(0, len(whole), 7):
        (tmp_path / "a.npz").write_bytes(whole[:size])
        with pytest.raises(PeError) as caught:
            checkpoint.load_arrays(tmp_path / "a.npz")
        assert caught.value.code == ExitCode.DATA


def test_a_damaged_npz_is_one_clear_error_or_unharmed(tmp_path: Path, rng: np.random.Generator) -> None:
    np.savez_compressed(tmp_path / "whole.npz", w=np.arange(200.0), b=np.ones(3))
    whole = (tmp_path / "whole.npz").read_bytes()
    for place in range(0, len(whole), 5):
        data = bytearray(whole)
        data[place] ^= int(rng.integers(1, 256))
        (tmp_path / "a.npz").write_bytes(data)
        with contextlib.suppress(PeError):
            checkpoint.load_arrays(tmp_path / "a.npz")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def edit(**changes: object) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


@pytest.mark.parametrize(
    ("file", "damage", "message"),
    [
        pytest.param("params.safetensors", cut, "but meta.json says", id="tensors cut short"),
        pytest.param("params.safetensors", flip, "changed since it was written", id="one bit flipped"),
        pytest.param("params.safetensors", Path.unlink, "no such file", id="tensors missing"),
        pytest.param("meta.json", Path.unlink, "no such file", id="meta missing"),
        pytest.param("meta.json", cut, "not whole JSON", id="meta cut short"),
        pytest.param("meta.json", lambda p: p.write_text("[" * 100_000), "not whole JSON", id="meta deeply nested"),
        pytest.param("meta.json", lambda p: p.write_text("[]"), "not the description", id="meta a list"),
        pytest.param("meta.json", lambda p: p.write_bytes(b"\xff\xfe"), "not whole JSON", id="meta no UTF-8"),
        pytest.param("meta.json", lambda p: p.write_bytes(b" " * (16 * 2**20 + 1)), "more than", id="meta too long"),
        pytest.param("meta.json", edit(format=99), "format 99", id="unknown version"),
        pytest.param("meta.json", edit(tensors={}), "disagree", id="meta denies the tensors"),
        pytest.param("meta.json", edit(tensors={"w": {"dtype": "float64"}}), "disagree", id="meta lies about a type"),
        pytest.param("meta.json", edit(tensors=[1]), "not the description", id="tensors a list"),
        pytest.param("meta.json", edit(sha256=None), "changed since", id="no hash"),
    ],
)
def test_a_damaged_checkpoint_names_the_file_and_the_one_before(
    root: Path, file: str, damage: Callable[[Path], object], message: str
) -> None:
    damage(root / "step-20" / file)
    with pytest.raises(PeError, match=message) as caught:
        checkpoint.load(root.parent)
    assert caught.value.code == ExitCode.DATA
    assert "step-20" in caught.value.message
    assert "\n" not in caught.value.message
    if message != "format 99":
        assert f"{root / 'step-10'} is whole" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "does not name a checkpoint", id="empty"),
        pytest.param("../../etc", "does not name a checkpoint", id="a path elsewhere"),
        pytest.param("step-99", "no checkpoint of step 99", id="a step that is gone"),
        pytest.param("step-" + "9" * 60, "does not name a checkpoint", id="an endless number"),
    ],
)
def test_a_damaged_mark_is_refused(root: Path, text: str, message: str) -> None:
    (root / "last").write_text(text)
    with pytest.raises(PeError, match=message) as caught:
        checkpoint.load(root.parent)
    assert caught.value.code == ExitCode.DATA
    assert "step-20 is whole" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        pytest.param("nowhere", "no such file or folder", id="missing"),
        pytest.param("run/checkpoints/step-15", "no checkpoint of step 15", id="missing step"),
        pytest.param("empty", "no checkpoint in it", id="empty folder"),
        pytest.param("empty/best", "no checkpoint is marked as 'best'", id="missing mark"),
        pytest.param("note.txt", "neither", id="another file"),
        pytest.param("note.txt/last", "no such file", id="a file in place of a folder"),
        pytest.param("n" * 300, "too long", id="a name too long"),
    ],
)
def test_a_path_without_a_checkpoint_is_refused(root: Path, tmp_path: Path, path: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "note.txt").write_text("hello")
    with pytest.raises(PeError, match=message) as caught:
        checkpoint.load(tmp_path / path)
    assert caught.value.code == ExitCode.DATA


def names(root: Path) -> set[str]:
    return {entry.name for entry in root.iterdir()}


def test_pruning_keeps_the_newest_and_the_marked(root: Path) -> None:
    for step in (30, 40, 50):
        checkpoint.write(root, step, {}, {}, keep=2)
    # 10 is the best, 20 still is the last.
    assert names(root) == {"step-10", "step-20", "step-40", "step-50", "last", "best"}
    checkpoint.mark(root, "last", 50)
    checkpoint.prune(root, 1)
    assert names(root) == {"step-10", "step-50", "last", "best"}


def test_a_step_saved_behind_the_others_is_not_pruned(root: Path) -> None:
    checkpoint.write(root, 5, {}, {}, keep=1)
    assert "step-5" in names(root)


def test_step_zero_is_pruned_as_any_other(tmp_path: Path) -> None:
    for step in (0, 1, 2):
        checkpoint.write(tmp_path, step, {}, {}, keep=2)
    assert checkpoint.steps(tmp_path) == [1, 2]


def test_a_damaged_mark_stops_no_training(root: Path) -> None:
    (root / "best").write_text("")
    checkpoint.write(root, 30, {}, {}, keep=1)
    assert checkpoint.steps(root) == [20, 30]


def test_saving_a_step_again_replaces_it(root: Path) -> None:
    checkpoint.write(root, 20, {"w": np.zeros(1)}, {})
    assert checkpoint.load(root / "step-20")[0]["w"].shape == (1,)
    assert names(root) == {"step-10", "step-20", "last", "best"}


def test_a_mark_needs_its_checkpoint(root: Path) -> None:
    with pytest.raises(PeError, match="no checkpoint of step 30"):
        checkpoint.mark(root, "best", 30)
    assert checkpoint.marked(root, "best") == 10


@pytest.mark.parametrize("doing", ["save", "mark", "prune"])
def test_a_folder_that_goes_while_it_is_written_to_is_a_failed_write(
    root: Path, monkeypatch: pytest.MonkeyPatch, doing: str
) -> None:
    """Once the folder is locked, a file stands in its place."""
    held = checkpoint_folder.locked

    @contextlib.contextmanager
    def swapped(folder: Path) -> Iterator[None]:
        with held(folder):
            folder.rename(folder.with_name("gone"))
            folder.write_text("a file")
            yield

    for module in (checkpoint_folder, checkpoint):
        monkeypatch.setattr(module, "locked", swapped)
    act: dict[str, Callable[[], object]] = {
        "save": lambda: checkpoint.write(root, 30, ARRAYS, {}, keep=1),
        "mark": lambda: checkpoint.mark(root, "best", 20),
        "prune": lambda: checkpoint.prune(root, 1),
    }
    with pytest.raises(PeError, match=r"cannot write .*not a directory") as caught:
        act[doing]()
    assert caught.value.code == ExitCode.USAGE


def test_leftovers_are_ignored_and_removed_by_the_next_save(root: Path) -> None:
    (root / ".tmp-1-0123abcd").mkdir()
    (root / ".tmp-1-0123abcd" / "params.safetensors").write_bytes(b"half")
    (root / ".tmp-1-89abcdef").write_text("step-")
    (root / "step-20").rename(root / ".old-step-20")
    assert checkpoint.load(root.parent)[1]["step"] == 20
    checkpoint.write(root, 30, {}, {})
    assert names(root) == {"step-10", "step-20", "step-30", "last", "best"}


def test_too_long_a_meta_is_refused_before_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(PeError, match=r"meta\.json would have"):
        checkpoint.write(tmp_path, 1, {}, {"notes": "x" * (17 * 2**20)})
    assert not list(tmp_path.iterdir())


def test_the_hash_is_the_files(tmp_path: Path) -> None:
    folder = saved(tmp_path, 1, ARRAYS, {})
    assert checkpoint.load(folder)[1]["sha256"] == tensors.sha256(folder / "params.safetensors")


def test_a_small_archive_that_unpacks_to_much_is_refused_before_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "a.npz", w=np.zeros(1 << 18, np.float32))
    assert checkpoint.load_arrays(tmp_path / "a.npz")["w"].shape == (1 << 18,)
    monkeypatch.setattr("pe_cli.io.tensors.UNPACKED", 1 << 16)
    with pytest.raises(PeError, match="claim to unpack to 1048704, more than 200 times as many"):
        checkpoint.load_arrays(tmp_path / "a.npz")
