"""Columns of pictures: sizes, scales, what is broken, and what the model sees."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image, ImageOps

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.data.array_dataset import DatasetTable
from pe_cli.data.column import Context, discover
from pe_cli.data.dataset import ArrayDataset
from pe_cli.data.fields import FieldDataset
from pe_cli.data.pictures import decode_threads, sources
from pe_cli.data.pictures.cache import Cache
from pe_cli.data.raw_cells import ListTable
from pe_cli.data.reader_context import Origin
from tests.collectives.simulated import Network

KIND = discover()["image"]
RNG = np.random.default_rng(6)


@pytest.fixture
def folder(tmp_path):
    """Pictures p0.png to p4.png of 6 x 8 pixels."""
    for i in range(5):
        Image.fromarray(RNG.integers(0, 256, (6, 8, 3), dtype=np.uint8)).save(tmp_path / f"p{i}.png")
    return tmp_path


def context(base, cells):
    return Context(ListTable({"image": cells}, Origin(base)), "image", base=base)


def options(**given):
    return KIND.options.model_validate(given)


def fields(base, cells, rows=None, **given):
    """Return the field, the state and the notes of a column."""
    at, checked = context(base, cells), options(**given)
    state = KIND.fit(checked, at, rows)
    assert KIND.learned.model_validate(state)
    return KIND.encode(checked, state, at), state, at.notes


def pixels(folder, name):
    with Image.open(folder / name) as image:
        return np.asarray(image.convert("RGB"))


def raised(base, cells, rows=None, **given):
    with pytest.raises(PeError) as found:
        fields(base, cells, rows, **given)
    return found.value


# --- values -----------------------------------------------------------------------------------------------------------


def test_a_sample_is_the_picture_from_0_to_1_with_its_channels_first(folder):
    field, state, notes = fields(folder, ["p1.png", "p0.png"])
    assert state["size"] == [6, 8]
    assert field.type == TensorType((3, 6, 8))
    found, offsets = field.take(np.array([1, 0, 1]))
    assert offsets is None
    expected = [(pixels(folder, name) / 255).astype(np.float32).transpose(2, 0, 1) for name in ("p0.png", "p1.png", "p0.png")]
    assert np.array_equal(found, expected)
    assert found.flags.c_contiguous
    assert notes == []


def test_the_scale_is_measured_on_the_training_pixels(folder):
    cells = [f"p{i}.png" for i in range(5)]
    field, state, _ = fields(folder, cells, np.array([0, 3]), scale="standard")
    training = np.concatenate([pixels(folder, name).reshape(-1, 3) for name in ("p0.png", "p3.png")]) / 255
    np.testing.assert_allclose(state["mean"], training.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(state["std"], training.std(axis=0), rtol=1e-12)
    found = field.take(np.array([0, 3]))[0]
    np.testing.assert_allclose(found.mean(axis=(0, 2, 3)), 0, atol=1e-6)
    np.testing.assert_allclose(found.std(axis=(0, 2, 3)), 1, atol=1e-6)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_what_is_learned_does_not_depend_on_the_number_of_threads(folder, monkeypatch, threads):
    monkeypatch.setattr(decode_threads, "usable_cores", lambda: threads)
    cells = [f"p{i}.png" for i in (3, 1, 4, 1, 0, 2)]
    found = fields(folder, cells, scale="standard")[1]
    monkeypatch.setattr(decode_threads, "usable_cores", lambda: 1)
    assert found == fields(folder, cells, scale="standard")[1]


def test_mean_and_deviation_may_be_given(folder):
    mean, deviation = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    field, _, _ = fields(folder, ["p0.png"], scale="standard", mean=mean, std=deviation)
    expected = ((pixels(folder, "p0.png") / 255 - mean) / deviation).transpose(2, 0, 1)
    np.testing.assert_allclose(field.take(np.array([0]))[0][0], expected, rtol=1e-6, atol=1e-6)


def test_bytes_stay_bytes_and_channels_may_be_last(folder):
    field, state, _ = fields(folder, ["p0.png"], scale="none", layout="hwc")
    assert field.type == TensorType((6, 8, 3), "uint8")
    assert (state["mean"], state["std"]) == ([], [])
    assert np.array_equal(field.take(np.array([0]))[0][0], pixels(folder, "p0.png"))


def test_gray_has_one_channel(folder):
    field, _, notes = fields(folder, ["p0.png", "p1.png"], mode="gray", scale="none")
    assert field.type == TensorType((1, 6, 8), "uint8")
    with Image.open(folder / "p1.png") as image:
        assert np.array_equal(field.take(np.array([1]))[0][0, 0], np.asarray(image.convert("L")))
    assert notes == ["column 'image': 2 pictures have colours, of which the brightness is kept (mode: gray)"]


def test_pictures_of_several_sizes_are_brought_to_one(folder):
    Image.fromarray(RNG.integers(0, 256, (20, 9, 3), dtype=np.uint8)).save(folder / "other.png")
    field, _, _ = fields(folder, ["p0.png", "other.png"], size=[5, 5], resize="cover", scale="none", layout="hwc")
    expected = np.asarray(ImageOps.fit(Image.fromarray(pixels(folder, "other.png")), (5, 5), Image.Resampling.BILINEAR))
    assert np.array_equal(field.take(np.array([1]))[0][0], expected)


def test_without_augmentation_the_middle_is_cut_out(folder):
    field, state, _ = fields(folder, ["p0.png"], size=[3, 4], crop_from=[6, 8], scale="none", layout="hwc")
    assert state["size"] == [3, 4]
    assert np.array_equal(field.take(np.array([0]))[0][0], pixels(folder, "p0.png")[1:4, 2:6])
    assert field.pictures(np.array([0]))[0].shape == (6, 8, 3)


# --- arrays -----------------------------------------------------------------------------------------------------------


def of_array(array, rows=None, **given):
    table = DatasetTable(ArrayDataset({"image": array}, Origin(os.curdir)), Origin(os.curdir))
    at, checked = Context(table, "image"), options(**given)
    return KIND.encode(checked, KIND.fit(checked, at, rows), at)


@pytest.mark.parametrize(
    ("axes", "mode"),
    [
        pytest.param((0, 1, 2, 3), "rgb", id="channels last"),
        pytest.param((0, 3, 1, 2), "rgb", id="channels first"),
    ],
)
def test_arrays_of_pictures_have_their_channels_first_or_last(axes, mode):
    array = RNG.integers(0, 256, (4, 6, 8, 3), dtype=np.uint8)
    field = of_array(array.transpose(axes), mode=mode)
    assert np.array_equal(field.take(np.arange(4))[0], (array / 255).astype(np.float32).transpose(0, 3, 1, 2))


def test_of_arrays_as_well_the_scale_is_measured_on_training_rows():
    array = RNG.integers(0, 256, (6, 6, 8, 3), dtype=np.uint8)
    found = of_array(array, np.array([1, 4]), scale="standard", layout="hwc").take(np.array([1, 4]))[0]
    np.testing.assert_allclose(found.mean(axis=(0, 1, 2)), 0, atol=1e-6)
    np.testing.assert_allclose(found.std(axis=(0, 1, 2)), 1, atol=1e-6)


def test_arrays_without_channels_are_gray_and_may_get_more():
    array = RNG.integers(0, 256, (4, 6, 8), dtype=np.uint8)
    assert np.array_equal(of_array(array, mode="gray", scale="none").take(np.arange(4))[0], array[:, None])
    assert np.array_equal(of_array(array, scale="none").take(np.arange(4))[0], np.stack([array] * 3, 1))


def test_arrays_are_resized_as_pillow_does():
    array = RNG.integers(0, 256, (1, 6, 8), dtype=np.uint8)
    expected = np.asarray(Image.fromarray(array[0]).resize((16, 3), Image.Resampling.BILINEAR))
    assert np.array_equal(of_array(array, mode="gray", scale="none", size=[3, 16]).take(np.array([0]))[0][0, 0], expected)


@pytest.mark.parametrize(
    ("array", "given", "message"),
    [
        pytest.param(np.zeros((2, 6, 8), np.float32), {}, "pictures are uint8, from 0 to 255, and this array is float32", id="floats"),
        pytest.param(np.zeros((2, 64), np.uint8), {}, r"samples of shape \[64\] are no pictures", id="rows"),
        pytest.param(np.zeros((2, 3, 9, 4), np.uint8), {}, r"which axis of \[3, 9, 4\] is that of channels is not clear", id="unclear"),
        pytest.param(np.zeros((2, 5, 9, 2), np.uint8), {}, r"samples of shape \[5, 9, 2\] are no pictures", id="two channels"),
        pytest.param(np.zeros((2, 3, 9, 9), np.uint8), {"stored": "hwc"}, "with channels as hwc", id="not as it says"),
    ],
)
def test_arrays_that_hold_no_pictures(array, given, message):
    with pytest.raises(PeError, match=message) as found:
        of_array(array, **given)
    assert found.value.code == ExitCode.DATA
    assert found.value.hint


def test_the_axis_of_channels_can_be_said():
    array = RNG.integers(0, 256, (2, 3, 9, 4), dtype=np.uint8)
    assert of_array(array, stored="chw", scale="none").type == TensorType((3, 9, 4), "uint8")
    assert of_array(array, stored="hwc", mode="rgba", scale="none").type == TensorType((4, 3, 9), "uint8")


# --- what is wrong ----------------------------------------------------------------------------------------------------


def test_training_pictures_of_several_sizes_need_a_size(folder):
    Image.new("RGB", (10, 6)).save(folder / "wide.png")
    error = raised(folder, ["p0.png", "wide.png", "p1.png"])
    assert error.code == ExitCode.DATA
    assert error.message.startswith("row 2, column 'image': ")
    assert "wide.png is [6, 10] (height, width), and the one of row 1 [6, 8]" in error.message
    assert error.hint == "set size: [6, 8] on the column, so that pictures are resized"


def test_later_pictures_have_the_size_of_training(folder):
    Image.new("RGB", (10, 6)).save(folder / "wide.png")
    error = raised(folder, ["p0.png", "wide.png", "p1.png"], np.array([0, 2]))
    assert "wide.png is [6, 10] (height, width), and those of training [6, 8]" in error.message


def test_a_broken_picture_is_named_with_its_row_and_the_number_of_others(folder):
    (folder / "notes.jpg").write_text("these are no pixels")
    error = raised(folder, ["p0.png", "notes.jpg", "absent.png", None])
    assert error.code == ExitCode.DATA
    assert "row 2, column 'image'" in error.message
    assert "notes.jpg is no picture but text: it starts with 'these are no pix'; 2 more rows have no picture" in error.message
    assert "broken: skip" in error.hint


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        pytest.param("../outside.png", "leads out of the folder", id="up"),
        pytest.param("link.png", "leads out of the folder", id="a link"),
        pytest.param("away/outside.png", "leads out of the folder", id="a link to a folder"),
        pytest.param("{outside}", "leads out of the folder", id="an absolute path"),
    ],
)
def test_paths_stay_in_the_folder(folder, cell, said):
    inside = folder / "inside"
    inside.mkdir()
    outside = folder / "outside.png"
    Image.new("RGB", (8, 6)).save(outside)
    (inside / "link.png").symlink_to(outside)
    (inside / "away").symlink_to(folder)
    error = raised(inside, [cell.format(outside=outside)])
    assert said in error.message
    assert error.hint == "copy the pictures into the folder, or name one that holds them all: folder: PATH"


def test_a_folder_may_be_named_that_holds_them_all(folder):
    inside = folder / "inside"
    inside.mkdir()
    (inside / "link.png").symlink_to(folder / "p0.png")
    found = [fields(inside, [name], folder="..", scale="none")[0] for name in ("inside/link.png", "p0.png", str(folder / "p0.png"))]
    assert all(np.array_equal(field.take(np.array([0]))[0], found[0].take(np.array([0]))[0]) for field in found)


def test_links_that_stay_in_the_folder_are_followed(folder):
    (folder / "link.png").symlink_to("p0.png")
    field, _, _ = fields(folder, ["link.png"], scale="none", layout="hwc")
    assert np.array_equal(field.take(np.array([0]))[0][0], pixels(folder, "p0.png"))


@pytest.mark.parametrize("threads", [1, 3])
def test_rows_that_cannot_be_read_are_left_out_and_counted(folder, monkeypatch, threads):
    monkeypatch.setattr(decode_threads, "usable_cores", lambda: threads)
    data = (folder / "p1.png").read_bytes()
    (folder / "cut.png").write_bytes(data[: len(data) // 2])
    (folder / "text.png").write_text("none")
    cells = ["p0.png", "cut.png", "p1.png", "text.png", "p2.png", None]
    field, state, notes = fields(folder, cells, broken="skip", scale="standard")
    assert notes == [
        "column 'image': 3 rows have no picture that can be read and are left out, 1 of them cut off or damaged behind their header"
    ]
    good = np.concatenate([pixels(folder, f"p{i}.png").reshape(-1, 3) for i in range(3)]) / 255
    np.testing.assert_allclose(state["mean"], good.mean(axis=0), rtol=1e-12)
    dataset = FieldDataset({"image": field}, np.array([0, 1, 2, 3]))
    assert len(dataset) == 2
    assert dataset.rows.tolist() == [0, 2]
    assert FieldDataset({"image": field}).rows.tolist() == [0, 2, 4]
    with pytest.raises(PeError, match="no row has a picture that can be read"):
        FieldDataset({"image": field}, np.array([1, 3]))


def test_a_picture_that_is_damaged_behind_its_header_is_an_error_when_it_is_taken(folder):
    data = (folder / "p1.png").read_bytes()
    (folder / "cut.png").write_bytes(data[: len(data) // 2])
    field, _, _ = fields(folder, ["p0.png", "cut.png"])
    with pytest.raises(PeError, match=r"row 2, column 'image': .*cut\.png is cut off or damaged") as found:
        field.take(np.array([0, 1, 0]))
    assert found.value.code == ExitCode.DATA


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param({"mean": [0.5]}, "mean and std are given together", id="a mean alone"),
        pytest.param({"mean": [0.5], "std": [1.0]}, "mean and std are for scale: standard", id="a mean without a scale"),
        pytest.param({"scale": "standard", "mean": [0.5], "std": [1.0]}, "mean has 1 numbers, and mode rgb has 3", id="channels"),
        pytest.param({"crop_from": [9, 9]}, "crop_from needs size", id="a crop of nothing"),
        pytest.param({"crop_from": [9, 9], "size": [10, 9]}, "crop_from must be at least as large", id="a crop that is larger"),
    ],
)
def test_options_that_contradict_each_other(given, message):
    with pytest.raises(ValueError, match=message):
        options(**given)


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_pictures_are_decoded_once_until_their_file_changes(folder, monkeypatch):
    monkeypatch.setattr(sources, "PICTURES", Cache(1 << 20))
    decoded = []
    read = sources.read
    monkeypatch.setattr(sources, "read", lambda path, recipe: decoded.append(os.path.basename(path)) or read(path, recipe))  # noqa: PTH119
    field, _, _ = fields(folder, ["p0.png", "p1.png"], scale="none", layout="hwc")
    for _ in range(2):
        field.take(np.array([0, 1]))
    assert sorted(decoded) == ["p0.png", "p1.png"]
    Image.new("RGB", (8, 6), (1, 2, 3)).save(folder / "p0.png")
    os.utime(folder / "p0.png", ns=(1, 1))
    assert (field.take(np.array([0]))[0] == (1, 2, 3)).all()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_samples_do_not_depend_on_the_number_of_threads(folder, threads):
    field, _, _ = fields(folder, [f"p{i}.png" for i in range(5)])
    rows = RNG.integers(0, 5, 50)
    expected = np.stack([field.take(np.array([row]))[0][0] for row in rows])
    field.threads = threads
    assert np.array_equal(field.take(rows)[0], expected)


def test_processes_decode_a_share_each_and_learn_what_one_learns(folder, monkeypatch):
    """Three processes and a damaged picture: mean and deviation have the same bits, and no picture is decoded by two of them."""
    (folder / "p2.png").write_bytes((folder / "p2.png").read_bytes()[:60])  # the header is there
    cells, checked = [f"p{i}.png" for i in range(5)], options(scale="standard", broken="skip", size=[6, 8])
    alone = KIND.fit(checked, context(folder, cells), None)
    decoded: list[str] = []
    read = sources.read
    monkeypatch.setattr(sources, "read", lambda path, recipe: decoded.append(os.path.basename(path)) or read(path, recipe))  # noqa: PTH119
    monkeypatch.setattr(sources, "PICTURES", Cache(0))
    found = Network(3).run(lambda peers: KIND.fit(checked, replace(context(folder, cells), peers=peers), None))
    assert found == [alone] * 3
    assert sorted(decoded) == sorted([*cells, *(c for c in cells if c != "p2.png")]), "once to see whether it is whole, once to count"
