"""Fetched values read back with the tools that people use: numpy, csv and json."""

from __future__ import annotations

import csv
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.io.fetches import open_writer

LOSS = np.float32(0.1)


def rows(path: Path) -> list[list[str]]:
    with path.open(newline="") as stream:
        return list(csv.reader(stream))


def objects(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_npz_stacks_along_the_sample_axis(tmp_path: Path) -> None:
    with open_writer(tmp_path / "new" / "p.npz") as writer:
        writer.write(1, {"prob": np.eye(2, dtype=np.float32), "loss": np.array(LOSS), "file": np.array([1])})
        writer.write(2, {"prob": np.zeros((3, 2), np.float32), "loss": np.array(LOSS), "file": np.array([2])})
    with np.load(tmp_path / "new" / "p.npz", allow_pickle=False) as found:
        assert found["prob"].shape == (5, 2)
        assert found["prob"].dtype == np.float32
        assert np.array_equal(found["prob"][:2], np.eye(2))
        assert found["loss"].tolist() == [LOSS, LOSS]
        assert found["file"].tolist() == [1, 2]
        assert found["step"].tolist() == [1, 2]


def test_npz_copies_what_it_is_given(tmp_path: Path) -> None:
    buffer = np.ones(2)
    with open_writer(tmp_path / "p.npz") as writer:
        writer.write(1, {"x": buffer})
        buffer[:] = 7
    with np.load(tmp_path / "p.npz") as found:
        assert found["x"].tolist() == [1, 1]


def test_csv_has_a_row_per_sample_and_a_column_per_element(tmp_path: Path) -> None:
    with open_writer(tmp_path / "p.csv") as writer:
        writer.write(
            3,
            {
                "prob": np.array([[0.1, 1e-8], [np.nan, -np.inf]], np.float32),
                "label": np.array([[4], [5]]),
                "hit": np.array([True, False]),
                "box": np.arange(8).reshape(2, 2, 2),
                "loss": np.array(LOSS),
            },
        )
    assert rows(tmp_path / "p.csv") == [
        ["step", "prob[0]", "prob[1]", "label", "hit", "box[0][0]", "box[0][1]", "box[1][0]", "box[1][1]", "loss"],
        ["3", "0.1", "1e-08", "4", "1", "0", "1", "2", "3", "0.1"],
        ["3", "nan", "-inf", "5", "0", "4", "5", "6", "7", "0.1"],
    ]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_every_float_reads_back_to_the_same_bits(
    tmp_path: Path, rng: np.random.Generator, suffix: str, dtype: type
) -> None:
    limits = np.finfo(dtype)
    values = (rng.normal(size=500) * 10.0 ** rng.integers(-30, 30, 500)).astype(dtype)
    values = np.concatenate([values, np.array([limits.max, limits.min, limits.tiny, limits.smallest_subnormal], dtype)])
    path = tmp_path / f"p.{suffix}"
    with open_writer(path) as writer:
        writer.write(0, {"x": values})
    found = [row[1] for row in rows(path)[1:]] if suffix == "csv" else [line["x"] for line in objects(path)]
    assert np.array(found, np.float64).astype(dtype).tobytes() == values.tobytes()


def test_jsonl_has_an_object_per_sample(tmp_path: Path) -> None:
    with open_writer(tmp_path / "p.jsonl") as writer:
        writer.write(1, {"prob": np.array([[0.1, np.nan]], np.float32), "label": np.array([[4]])})
        writer.write(2, {"prob": np.array([[1.0], [2.0]]), "hit": np.array([True, False]), "loss": np.array(LOSS)})
    assert objects(tmp_path / "p.jsonl") == [
        {"step": 1, "prob": [0.1, "nan"], "label": 4},
        {"step": 2, "prob": 1.0, "hit": True, "loss": 0.1},
        {"step": 2, "prob": 2.0, "hit": False, "loss": 0.1},
    ]


def test_names_with_commas_and_quotes_stay_one_column(tmp_path: Path) -> None:
    with open_writer(tmp_path / "p.csv") as writer:
        writer.write(1, {'a,"b"': np.array([1])})
        writer.write(2, {'a,"b"': np.array([2])})
    assert rows(tmp_path / "p.csv") == [["step", 'a,"b"'], ["1", "1"], ["2", "2"]]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "npz"])
def test_an_empty_batch_adds_no_rows(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"p.{suffix}"
    with open_writer(path) as writer:
        writer.write(1, {"x": np.zeros((0, 2)), "loss": np.array(LOSS)})
        writer.write(2, {"x": np.ones((1, 2)), "loss": np.array(LOSS)})
    if suffix == "npz":
        with np.load(path) as found:
            assert found["x"].shape == (1, 2)
    else:
        assert len(path.read_text().splitlines()) == (2 if suffix == "csv" else 1)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "npz"])
def test_nothing_appears_before_the_writer_is_closed(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"p.{suffix}"
    writer = open_writer(path)
    writer.write(1, {"x": np.ones(2)})
    assert not path.exists()
    writer.close()
    writer.close()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "npz"])
def test_a_failure_leaves_the_earlier_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"p.{suffix}"
    path.write_text("old")

    def fail() -> None:
        with open_writer(path) as writer:
            writer.write(1, {"x": np.ones(2)})
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "npz"])
def test_appending_goes_on_behind_what_is_there(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"p.{suffix}"
    for step in (1, 2):
        with open_writer(path, append=True) as writer:
            writer.write(step, {"x": np.array([step, step])})
            if suffix != "npz":
                assert path.read_text().endswith("\n")
    if suffix == "csv":
        assert rows(path) == [["step", "x"], ["1", "1"], ["1", "1"], ["2", "2"], ["2", "2"]]
    elif suffix == "jsonl":
        assert [line["step"] for line in objects(path)] == [1, 1, 2, 2]
    else:
        with np.load(path) as found:
            assert found["x"].tolist() == [1, 1, 2, 2]
            assert found["step"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("step,x\n1,5\n1,", "step,x\n1,5\n2,7\n", id="a torn row goes"),
        pytest.param("step,", "step,x\n2,7\n", id="a torn header goes"),
        pytest.param("", "step,x\n2,7\n", id="an empty file gets a header"),
        pytest.param("step,x\n1,5\n" + "y" * 200_000, "step,x\n1,5\n2,7\n", id="a long torn row"),
    ],
)
def test_appending_removes_what_a_killed_writer_tore(tmp_path: Path, before: str, after: str) -> None:
    path = tmp_path / "p.csv"
    path.write_text(before)
    with open_writer(path, append=True) as writer:
        writer.write(2, {"x": np.array([7])})
    assert path.read_text() == after


def test_appending_other_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("step,x\n1,5\n")
    with open_writer(path, append=True) as writer, pytest.raises(PeError, match="its columns are step,x") as caught:
        writer.write(2, {"y": np.array([7])})
    assert caught.value.code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        pytest.param("p.csv", {"step": np.ones(1)}, "can't be called 'step'", id="a variable called step"),
        pytest.param("p.csv", {"a": np.ones(2), "b": np.ones(3)}, "'a' has 2, 'b' has 3", id="counts differ"),
        pytest.param("p.jsonl", {"a": np.ones(2), "b": np.ones(0)}, "'a' has 2, 'b' has 0", id="one of them empty"),
    ],
)
def test_values_that_make_no_table_are_refused(
    tmp_path: Path, name: str, values: dict[str, np.ndarray], message: str
) -> None:
    with open_writer(tmp_path / name) as writer, pytest.raises(PeError, match=message) as caught:
        writer.write(1, values)
    assert caught.value.code == ExitCode.USAGE


@pytest.mark.parametrize("now", [np.ones((1, 3)), np.ones((1, 2), np.float32)], ids=["another width", "another type"])
def test_npz_refuses_samples_of_another_kind(tmp_path: Path, now: np.ndarray) -> None:
    with open_writer(tmp_path / "p.npz") as writer:
        writer.write(1, {"x": np.ones((4, 2))})
        with pytest.raises(PeError, match=r"'x' was float64 \[2\] a sample"):
            writer.write(2, {"x": now})


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        pytest.param("p.jsnl", "did you mean '.jsonl'?", id="a slip of the key"),
        pytest.param("p", "one of .npz, .csv, .jsonl", id="no suffix"),
    ],
)
def test_an_unknown_suffix_is_refused(tmp_path: Path, name: str, hint: str) -> None:
    with pytest.raises(PeError, match="unknown suffix") as caught:
        open_writer(tmp_path / name)
    assert caught.value.hint == hint
    assert caught.value.code == ExitCode.USAGE


def test_a_table_keeps_nothing_in_memory(tmp_path: Path) -> None:
    batch = {"x": np.ones((100, 10))}
    with open_writer(tmp_path / "p.csv") as writer:
        writer.write(0, batch)
        tracemalloc.start()
        for step in range(50):
            writer.write(step, batch)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    size = (tmp_path / "p.csv").stat().st_size
    # One batch of 1000 texts of up to 32 characters of 4 bytes, as array, list and lines; fifty would be over 5 MB.
    assert peak < 1_500_000
    assert size > 50 * 100 * 10 * 4


def sequences() -> np.ndarray:
    """Return the rows of two samples, as predictions of sequences are."""
    found = np.empty(2, object)
    found[0], found[1] = np.array([[LOSS], [2]], np.float32), np.array([[3]], np.float32)
    return found


def test_sequences_are_rows_with_lengths_in_an_npz_and_lists_in_lines(tmp_path: Path) -> None:
    for name in ("s.npz", "s.jsonl"):
        with open_writer(tmp_path / name) as writer:
            writer.write(0, {"x": sequences(), "y": np.array([[7], [8]])})
            writer.write(1, {"x": sequences()[1:], "y": np.array([[9]])})
    with np.load(tmp_path / "s.npz", allow_pickle=False) as found:
        assert found["x"].tolist() == [[LOSS], [2], [3], [3]]
        assert found["x.lengths"].tolist() == [2, 1, 1]
        assert found["y"].tolist() == [[7], [8], [9]]
    assert [line["x"] for line in objects(tmp_path / "s.jsonl")] == [[0.1, 2], [3], [3]]


def test_a_csv_takes_no_sequences(tmp_path: Path) -> None:
    said = "'x' has sequences, and samples of a .csv have one length"
    with pytest.raises(PeError, match=said) as raised, open_writer(tmp_path / "s.csv") as writer:
        writer.write(0, {"x": sequences()})
    assert raised.value.hint == "write a .jsonl, whose lines may differ, or an .npz"
