"""Augmentation as a whole: its mistakes, that it repeats, and that it is for training only."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from pe_cli.core.errors import ExitCode, PeError, PeErrors, Span
from pe_cli.core.types import TensorType
from pe_cli.data import Feed, Loader
from pe_cli.data.augment import Augmentation
from pe_cli.data.column import Context, discover
from pe_cli.data.fields import ArrayField, FieldDataset, SequenceField
from pe_cli.data.raw_cells import ListTable
from pe_cli.data.reader_context import Origin

RNG = np.random.default_rng(9)
ROWS = 23
LABELS = np.arange(ROWS) % 5
SOFT = {"image": Feed("image"), "label": Feed("label", one_hot=5)}
TYPES = {"image": TensorType((3, 12, 12)), "label": TensorType((5,))}
EVERYTHING = [
    "flip",
    {"rotate": {"degrees": 20.0}},
    {"color": {"brightness": 0.4, "saturation": 0.3}},
    {"random_resized_crop": {"scale": (0.5, 1.0)}},
    {"random_crop": {"padding": 2}},
    {"erase": {"p": 0.5}},
    {"mixup": {"alpha": 0.5}},
]


@pytest.fixture
def dataset(tmp_path):
    return made(tmp_path)


def made(folder, threads=None, rows=None, **options):
    """Return a data set of pictures, 12 x 12 out of 16 x 16, and labels."""
    for i in range(ROWS):
        path = folder / f"{i}.png"
        if not path.exists():
            Image.fromarray(np.random.default_rng(i).integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(path)
    kind = discover()["image"]
    context = Context(ListTable({"image": [f"{i}.png" for i in range(ROWS)]}, Origin(folder)), "image", base=folder)
    checked = kind.options.model_validate({"size": (12, 12), "crop_from": (16, 16)} | options)
    field = kind.encode(checked, kind.fit(checked, context, None), context)
    field.threads = threads
    return FieldDataset({"image": field, "label": ArrayField(LABELS[:, None], "int64")}, rows, {"label": tuple("abcde")})


def augment(dataset, *entries, feeds=SOFT, types=TYPES, seed=0):
    return Augmentation.make([(entry, None) for entry in entries], dataset, feeds, types, seed)


def batches(dataset, *entries, size=4, epoch=0, start=0, seed=0, **options):
    chosen = augment(dataset, *entries, seed=seed) if entries else None
    load = Loader(dataset, SOFT, TYPES, size, shuffle=True, seed=seed, augment=chosen, **options)
    return list(load.epoch(epoch, start))


def same(one, other):
    return len(one) == len(other) and all(
        np.array_equal(a[name], b[name]) for a, b in zip(one, other, strict=True) for name in ("image", "label")
    )


# --- the same pictures ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [0, 3])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_pictures_do_not_depend_on_threads_or_on_what_is_made_ahead(tmp_path, threads, prefetch):
    expected = batches(made(tmp_path, 1), *EVERYTHING, prefetch=0)
    assert same(batches(made(tmp_path, threads), *EVERYTHING, prefetch=prefetch), expected)


@pytest.mark.parametrize("start", [0, 1, 3, 5])
def test_a_resumed_run_sees_the_pictures_that_were_left(dataset, start):
    assert same(batches(dataset, *EVERYTHING, epoch=2, start=start), batches(dataset, *EVERYTHING, epoch=2)[start:])


def test_epochs_and_seeds_have_pictures_of_their_own(dataset):
    def first(**options):
        found = Loader(dataset, SOFT, TYPES, ROWS, augment=augment(dataset, *EVERYTHING[:6], **options))
        return [next(found.epoch(e))["image"] for e in (0, 1)]

    found = [*first(), *first(seed=1)]
    assert not any(np.array_equal(a, b) for i, a in enumerate(found) for b in found[:i])


def test_a_row_has_the_same_picture_in_any_split(tmp_path):
    whole, part = made(tmp_path), made(tmp_path, rows=np.array([3, 8, 20]))
    taken = [augment(one, *EVERYTHING[:6]).take(one, np.arange(len(one)), 4)[0]["image"] for one in (whole, part)]
    assert np.array_equal(taken[0][[3, 8, 20]], taken[1])


def test_batches_of_any_size_have_the_same_pictures(dataset):
    found = [np.concatenate([batch["image"] for batch in batches(dataset, *EVERYTHING[:6], size=size)]) for size in (3, 7, 23)]
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_without_augmentation_samples_are_as_they_are(dataset):
    plain = np.concatenate([batch["image"] for batch in batches(dataset, epoch=3)])
    middle = np.stack([np.asarray(dataset.columns["image"].pictures(np.array([i]))[0])[2:14, 2:14] for i in range(ROWS)])
    order = Loader(dataset, SOFT, TYPES, 4, shuffle=True).order(3)
    assert np.array_equal(plain, (middle[order] / 255).astype(np.float32).transpose(0, 3, 1, 2))


def test_a_sample_that_is_drawn_twice_in_an_epoch_has_two_pictures(dataset):
    weights = np.zeros(ROWS)
    weights[5] = 1
    (batch,) = batches(dataset, "random_crop", "flip", size=ROWS, weights=weights)
    assert (batch["label"].argmax(axis=1) == 0).all()
    assert len({picture.tobytes() for picture in batch["image"]}) > ROWS // 2


def test_the_last_batch_of_one_sample_is_not_mixed(dataset):
    found = batches(dataset, {"mixup": {"alpha": 1.0}}, size=22)[-1]
    assert len(found["label"]) == 1
    assert sorted(found["label"][0]) == [0, 0, 0, 0, 1]


def test_where_nothing_crops_the_middle_is_cut_after_the_others(dataset):
    whole = np.stack([dataset.columns["image"].pictures(np.array([i]))[0] for i in range(ROWS)])
    chosen = augment(dataset, {"flip": {"p": 1.0}})
    taken, _ = chosen.take(dataset, np.arange(ROWS), 0)
    assert np.array_equal(taken["image"], (whole[:, :, ::-1][:, 2:14, 2:14] / 255).astype(np.float32).transpose(0, 3, 1, 2))


# --- other columns ----------------------------------------------------------------------------------------------------


def numbers(**more):
    fields = {
        "a + b": ArrayField(np.zeros((ROWS, 5), np.float32), "float32", {"a": slice(0, 1), "b": slice(3, 5)}),
        "tokens": SequenceField(np.arange(1, 2 * ROWS + 1)[:, None], 2 * np.arange(ROWS + 1), "int64"),
    }
    return FieldDataset({**fields, **more})


def test_noise_spares_the_classes_that_stand_beside_numbers():
    dataset = numbers()
    taken, _ = augment(dataset, "noise", feeds={}, types={}).take(dataset, np.arange(ROWS), 0)
    changed = (taken["a + b"] != 0).all(axis=0)
    assert changed.tolist() == [True, False, False, True, True]
    assert len(np.unique(taken["a + b"][:, [0, 3, 4]])) == 3 * ROWS


def test_one_column_of_several_that_are_joined_can_be_named():
    dataset = numbers()
    taken, _ = augment(dataset, {"noise": {"column": "a"}}, feeds={}, types={}).take(dataset, np.arange(ROWS), 0)
    assert (taken["a + b"] != 0).any(axis=0).tolist() == [True, False, False, False, False]


def test_tokens_of_sequences_are_dropped():
    dataset = numbers()
    taken, _ = augment(dataset, {"token_dropout": {"p": 1.0, "replacement": 0}}, feeds={}, types={}).take(dataset, np.arange(3), 0)
    assert taken["tokens"].tolist() == [[0]] * 6


# --- mistakes ---------------------------------------------------------------------------------------------------------

HARD = {"image": Feed("image"), "label": Feed("label")}
INDICES = {"image": TensorType((3, 12, 12)), "label": TensorType((1,), "int64")}


@pytest.mark.parametrize(
    ("entry", "message", "hint"),
    [
        pytest.param("flipp", "there is no augmentation 'flipp'", "did you mean 'flip'?", id="a name"),
        pytest.param("normalize", "there is no augmentation 'normalize'", "scale: standard", id="what is the column's"),
        pytest.param(3, "entry 1 is no augmentation with its options", "flip: {p: 0.5}", id="a number"),
        pytest.param({"flip": {}, "erase": {}}, "entry 1 is no augmentation", "one per entry", id="two in one"),
        pytest.param({"flip": {"chance": 1}}, "flip has no option 'chance'", "it has column, direction, p", id="an option"),
        pytest.param({"flip": {"p": 2.0}}, "flip: p must be at most 1.0, got 2.0", None, id="a value"),
        pytest.param("rotate", "rotate needs the option 'degrees'", "add degrees: ...", id="an option that is missing"),
        pytest.param({"affine": {"scale": (2.0, 1.0)}}, "affine: scale: the least must not be above the greatest", None, id="an order"),
        pytest.param("affine", "affine: column 'image': nothing is changed", "translate, scale or shear", id="nothing"),
        pytest.param({"flip": {"column": "label"}}, "column 'label' has no pictures", "type: image", id="another column"),
        pytest.param(
            {"random_crop": {"size": (17, 3)}}, r"size \[17, 3\] does not fit into pictures of \[16, 16\]", "crop_from", id="a crop"
        ),
        pytest.param({"resize": {"size": (9, 9)}}, r"end as \[9, 9\], and a sample is \[12, 12\]", "set size", id="an end"),
        pytest.param({"erase": {"fill": [1, 2]}}, "a colour of 2 numbers, and pictures have 3 channels", "one per channel", id="a colour"),
        pytest.param("noise", "no column holds floats", None, id="nothing to change"),
        pytest.param({"noise": {"column": "image"}}, "column 'image' is float32", None, id="noise of pictures"),
        pytest.param({"token_dropout": {"column": "txt"}}, "no feed takes a column 'txt'", "there are image, label", id="no such column"),
    ],
)
def test_mistakes_are_found_before_training(dataset, entry, message, hint):
    with pytest.raises(PeError, match=message) as found:
        augment(dataset, entry)
    assert found.value.code == ExitCode.USAGE
    assert hint is None or hint in found.value.hint


@pytest.mark.parametrize("name", ["mixup", "cutmix"])
def test_hard_labels_cannot_be_mixed(dataset, name):
    with pytest.raises(PeError, match=f"data.augment: {name}: feed 'label' has class indices, which cannot be mixed") as found:
        augment(dataset, name, feeds=HARD, types=INDICES)
    assert found.value.hint == (
        "feeds: label: {from: label, one_hot: 5}, a float32 feed [5] in the model, and soft_label: true in its loss"
    )
    with pytest.raises(PeError, match="has class indices"):
        augment(dataset, name, feeds=HARD, types={"image": TYPES["image"], "label": TensorType((1,))})


def test_boxes_are_cut_of_pictures_with_channels_first(tmp_path):
    with pytest.raises(PeError, match="cutmix needs pictures as"):
        augment(made(tmp_path, layout="hwc"), "cutmix", types={"image": TensorType((12, 12, 3)), "label": TensorType((5,))})


def test_gray_pictures_have_no_hue(tmp_path):
    with pytest.raises(PeError, match="gray pictures have no saturation and no hue"):
        augment(made(tmp_path, mode="gray"), {"color": {"hue": 0.1}}, types={"image": TensorType((1, 12, 12)), "label": TensorType((5,))})


def test_several_columns_must_be_named():
    one = ArrayField(np.zeros((ROWS, 1), np.float32), "float32")
    dataset = FieldDataset({"x": one, "y": one})
    with pytest.raises(PeError, match="which column is meant is not clear: x, y could be changed") as found:
        augment(dataset, "noise", feeds={}, types={})
    assert found.value.hint == "name it: {noise: {column: x}}"
    assert augment(dataset, {"noise": {"column": "y"}}, feeds={}, types={})


def test_all_mistakes_are_told_with_their_places(dataset):
    at = [Span("run.yaml", line, 3) for line in (4, 5, 6)]
    entries = [("flipp", at[0]), ({"flip": {"p": 7, "q": 1}}, at[1]), ("noise", at[2])]
    with pytest.raises(PeErrors) as found:
        Augmentation.make(entries, dataset, SOFT, TYPES, 0)
    assert [error.at for error in found.value.errors] == [at[0], at[1], at[1], at[2]]
