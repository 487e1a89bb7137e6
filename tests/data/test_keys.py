"""Equal samples have equal keys and others have not, whatever their fields are; counted as pandas counts duplicates."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pe_cli.data.dataset import ArrayDataset
from pe_cli.data.fields import ArrayField, FieldDataset, SequenceField
from pe_cli.data.reader_context import Origin
from pe_cli.data.sample_keys import keys_of

ORIGIN = Origin(Path())


def shared(a: np.ndarray, b: np.ndarray) -> int:
    return int(np.isin(b, a).sum())


@pytest.mark.parametrize("width", [1, 2, 3, 5], ids="{} numbers".format)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "bool"])
def test_rows_of_arrays_are_found_as_pandas_finds_them(rng, dtype, width):
    values = rng.integers(0, 2, (400, width)).astype(dtype)
    other = rng.integers(0, 3, (100, 1)).astype("int32")
    whole = np.concatenate([values[:100].astype("float64"), other], axis=1)
    fields = {"x": ArrayField(values[:100], dtype), "y": ArrayField(other, "int32")}
    keys = keys_of(FieldDataset(fields), ["x", "y"])
    assert keys.dtype == np.uint64
    assert len(np.unique(keys)) == len(pd.DataFrame(whole).drop_duplicates())


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32"])
@pytest.mark.parametrize("apart", [False, True], ids=["in one field", "in fields of their own"])
def test_small_whole_numbers_have_keys_of_their_own(dtype, apart):
    grid = np.stack(np.meshgrid(*[np.arange(30)] * 3), axis=-1).reshape(-1, 3).astype(dtype)
    names = ["a", "b", "c"] if apart else ["a"]
    fields = {name: ArrayField(grid[:, [i]] if apart else grid, dtype) for i, name in enumerate(names)}
    assert len(np.unique(keys_of(FieldDataset(fields), names))) == 27_000


def test_array_datasets_and_columns_of_tables_have_the_same_keys(rng):
    x, y = rng.normal(size=(50, 3)).astype("float32"), rng.integers(0, 9, (50, 1))
    arrays = ArrayDataset({"x": x, "y": y}, ORIGIN)
    fields = FieldDataset({"x": ArrayField(x, "float32"), "y": ArrayField(y, "int64")})
    np.testing.assert_array_equal(keys_of(arrays, ["x", "y"]), keys_of(fields, ["x", "y"]))


def test_keys_are_those_of_the_samples_that_a_part_has(rng):
    x = rng.normal(size=(40, 2))
    rows = np.array([3, 7, 39])
    whole, part = FieldDataset({"x": ArrayField(x, "float64")}), FieldDataset({"x": ArrayField(x, "float64")}, rows)
    np.testing.assert_array_equal(keys_of(part, ["x"]), keys_of(whole, ["x"])[rows])


def test_sequences_are_equal_in_every_item_and_their_order():
    texts = [[1, 2, 3], [3, 2, 1], [1, 2], [1, 2, 3], [0], [0, 0], [1, 2, 3, 0]]
    offsets = np.append(0, np.cumsum([len(text) for text in texts]))
    field = SequenceField(np.concatenate([np.array(text)[:, None] for text in texts]), offsets, "int64")
    keys = keys_of(FieldDataset({"t": field}), ["t"])
    assert len(np.unique(keys)) == len(set(map(tuple, texts)))
    assert keys[0] == keys[3]


def test_keys_of_many_columns_take_the_memory_of_a_few():
    """Keys of all columns at once would take more than the table: a container of the table's size would be killed."""
    rows, columns = 200_000, 40
    values = np.arange(rows, dtype="float32")[:, None]
    fields = {f"x{i}": ArrayField(values, "float32") for i in range(columns)}
    dataset = FieldDataset(fields)
    keys_of(FieldDataset({"x0": fields["x0"]}), ["x0"])
    tracemalloc.start()
    try:
        keys = keys_of(dataset, list(fields))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(np.unique(keys)) == rows
    assert most < 8 * rows * 8, most


def test_what_is_too_large_is_left(rng):
    data = ArrayDataset({"x": rng.normal(size=(1000, 4))}, ORIGIN)
    assert keys_of(data, ["x"], most=31_999) is None
    assert keys_of(data, ["x"], most=32_000) is not None


def test_pictures_are_equal_where_their_files_are(tmp_path):
    pil = pytest.importorskip("PIL.Image")
    from pe_cli.session.job import Job

    for i, colour in enumerate([(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 0, 0)]):
        folder = tmp_path / f"class{i % 2}"
        folder.mkdir(exist_ok=True)
        pil.new("RGB", (8, 8), colour).save(folder / f"{i}.bmp")
    (tmp_path / "model.yaml").write_text(
        "name: m\nfeeds: {image: {shape: [3, 8, 8]}}\nlayers: {y: {type: fc, input: image, size: 1}}\n"
    )
    (tmp_path / "run.yaml").write_text("model: model.yaml\ndata: {train: {reader: images, folder: .}}\n")
    for name in ("model.yaml", "run.yaml"):
        (tmp_path / name).rename(tmp_path / f".{name}")
    text = (tmp_path / ".run.yaml").read_text().replace("model.yaml", ".model.yaml")
    (tmp_path / ".run.yaml").write_text(text)
    job = Job.open(tmp_path / ".run.yaml")
    from pe_cli.data.feed_samples import select

    keys = keys_of(select(job.data.dataset("train"), [job.data.sources["image"]]), ["image"])
    assert len(keys) == 4
    assert len(np.unique(keys)) == 3
