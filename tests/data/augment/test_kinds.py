"""What each augmentation does with the numbers it draws."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage, stats

from pe_cli.core.types import TensorType
from pe_cli.data.augment import Draws
from pe_cli.data.augment.kinds.affine import matrices
from pe_cli.data.augment.registry import Column, discover
from pe_cli.data.pictures.transform_programs import Program, Shape, render
from pe_cli.kernels.images.transforms import NOTHING

RNG = np.random.default_rng(8)
SHAPE = Shape(24, 32, 3)
PICTURE = RNG.integers(0, 256, (24, 32, 3), dtype=np.uint8)
MANY = 4000


def draws(count=MANY, seed=0, epoch=0, **options):
    return Draws(seed, epoch, np.arange(count), **options)


def step(name, count=MANY, shape=SHAPE, **options):
    """Return the instructions of an augmentation for so many samples, and the shape after it."""
    kind = discover()[name]
    checked = kind.options.model_validate(options)
    return kind.draw(checked, shape, draws(count)), kind.plan(checked, shape)


def pictures(name, count=60, **options):
    """Return what an augmentation makes of a picture, for so many samples."""
    found, shape = step(name, count, **options)
    out = np.empty((count, shape.height, shape.width, 3), np.uint8)
    render([PICTURE] * count, Program([found], [SHAPE, shape]), 0, None, out, True)
    return out


# --- draws ------------------------------------------------------------------------------------------------------------


def test_draws_depend_on_seed_epoch_sample_and_place_only():
    whole = draws(10).at("0 flip").uniform("x")
    assert np.array_equal(Draws(0, 0, np.array([7, 2])).at("0 flip").uniform("x"), whole[[7, 2]])
    others = [draws(10, seed=1), draws(10, epoch=1), draws(10)]
    places = ["0 flip", "0 flip", "1 flip"]
    found = [whole, *(one.at(place).uniform("x") for one, place in zip(others, places, strict=True)), draws(10).at("0 flip").uniform("y")]
    assert len({tuple(one) for one in found}) == len(found)


def test_a_sample_that_is_drawn_again_draws_other_numbers():
    samples = np.array([3, 3, 3, 4])
    found = Draws(0, 0, samples, np.array([0, 1, 2, 0])).uniform("x")
    assert len(set(found)) == 4
    assert found[0] == Draws(0, 0, samples[:1]).uniform("x")[0]


def test_each_draws_what_several_draw():
    counts = np.array([3, 0, 2])
    whole = draws(3).several("x", 3)
    assert np.array_equal(draws(3).each("x", counts), [*whole[0], *whole[2, :2]])


def test_numbers_are_distributed_as_they_say():
    assert stats.kstest(draws().uniform("x", 2, 5), "uniform", (2, 3)).pvalue > 1e-3
    assert stats.kstest(draws().normal("x", 2).reshape(-1), "norm").pvalue > 1e-3
    assert np.bincount(draws().whole("x", 3)).tolist() == pytest.approx([MANY / 3] * 3, rel=0.1)


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_beta_numbers_are_distributed_as_scipys(alpha):
    assert stats.kstest(draws().beta("x", alpha), "beta", (alpha, alpha)).pvalue > 1e-3


# --- pictures ---------------------------------------------------------------------------------------------------------


def test_random_crops_are_parts_at_every_place():
    found = pictures("random_crop", 400, size=(22, 29))
    places = set()
    for one in found:
        ((y, x),) = [(y, x) for y in range(3) for x in range(4) if np.array_equal(one, PICTURE[y : y + 22, x : x + 29])]
        places.add((y, x))
    assert len(places) == 12


def test_random_crops_reach_into_the_padding():
    padded = np.pad(PICTURE, ((2, 2), (2, 2), (0, 0)), constant_values=9)
    found = pictures("random_crop", 400, padding=2, fill=9)
    parts = {padded[y : y + 24, x : x + 32].tobytes() for y in range(5) for x in range(5)}
    assert {one.tobytes() for one in found} == parts


def test_flips_happen_by_their_chance():
    found = pictures("flip", 1000, p=0.25)
    flipped = sum(np.array_equal(one, PICTURE[:, ::-1]) for one in found)
    assert flipped + sum(np.array_equal(one, PICTURE) for one in found) == 1000
    assert flipped == pytest.approx(250, abs=60)
    assert np.array_equal(pictures("flip", 1, p=1.0, direction="vertical")[0], PICTURE[::-1])


def test_resized_crops_have_the_areas_and_shapes_that_are_allowed():
    found, shape = step("random_resized_crop", size=(8, 8), scale=(0.2, 0.6), ratio=(0.5, 2.0), shape=Shape(300, 400, 3))
    top, left, height, width = found[:, 1:5].T
    assert shape == Shape(8, 8, 3)
    assert ((top >= 0) & (left >= 0) & (top + height <= 300) & (left + width <= 400)).all()
    share, ratio = height * width / 120_000, width / height
    assert (share > 0.195).all()
    assert (share < 0.605).all()
    assert (ratio > 0.495).all()
    assert (ratio < 2.02).all()
    # boxes that do not fit are drawn again, which makes small ones a little more likely
    assert share.mean() == pytest.approx(0.4, abs=0.02)


def test_a_resized_crop_that_cannot_fit_is_the_greatest_in_the_middle():
    found, _ = step("random_resized_crop", 50, scale=(1.0, 1.0), ratio=(1.0, 1.0), shape=Shape(30, 90, 3))
    assert (found[:, 1:5] == (0, 30, 30, 30)).all()


def test_rotations_are_those_of_scipy():
    angles = draws(20).uniform("angle", -30, 30)
    assert np.abs(angles).max() > 20
    for one, angle in zip(pictures("rotate", 20, degrees=30.0, fill=5), angles, strict=True):
        # SciPy turns from the first axis to the second, which is anticlockwise where rows go down
        expected = ndimage.rotate(PICTURE.astype(float), angle, reshape=False, order=1, mode="grid-constant", cval=5)
        np.testing.assert_allclose(one, expected, atol=0.5 + 1e-6)


def test_a_quarter_turn_is_anticlockwise():
    square = np.ascontiguousarray(PICTURE[:, :24])
    words = matrices(Shape(24, 24, 3), 90.0, 1.0, 0.0, 0.0, 0.0)
    a, b, c, d, e, f = (np.rint(word) for word in words)
    i, j = np.mgrid[:24, :24]
    found = square[(a * i + b * j + c).astype(int), (d * i + e * j + f).astype(int)]
    assert np.array_equal(found, np.rot90(square))


@pytest.mark.parametrize(
    ("options", "where"),
    [
        pytest.param({"scale": 2.0}, lambda y, x: (2 * y, 2 * x), id="twice as large"),
        pytest.param({"down": 3.0, "right": -2.0}, lambda y, x: (y + 3, x - 2), id="moved"),
        pytest.param({"shear": 45.0}, lambda y, x: (y, x + y), id="columns lean to the left at their top"),
    ],
)
def test_matrices_say_from_where_pixels_come(options, where):
    words = {"scale": 1.0, "shear": 0.0, "down": 0.0, "right": 0.0} | options
    a, b, c, d, e, f = matrices(Shape(21, 31, 3), 0.0, words["scale"], words["shear"], words["down"], words["right"])
    for y, x in ((0.0, 0.0), (4.0, -3.0)):  # from the middle
        i, j = where(y, x)
        i, j = i + 10, j + 15
        assert (a * i + b * j + c - 10, d * i + e * j + f - 15) == pytest.approx((y, x))


def test_affine_changes_stay_within_their_limits():
    kind = discover()["affine"]
    options = kind.options.model_validate({"translate": (0.25, 0.0), "scale": (0.5, 2.0)})
    words = kind.draw(options, SHAPE, draws())
    scale = 1 / words[:, 1]
    assert (scale.min(), scale.max()) == pytest.approx((0.5, 2.0), abs=0.01)
    move = (11.5 - words[:, 3]) * scale - 11.5
    assert np.abs(move).max() == pytest.approx(0.25 * 24, abs=0.05)
    assert (words[:, [2, 4]] == 0).all()


def test_colour_factors_stay_within_their_limits():
    found, _ = step("color", brightness=0.4, contrast=1.5, hue=0.1)
    limits = [(0.6, 1.4), (0.0, 2.5), (1.0, 1.0), (-0.1, 0.1)]
    for i, (low, high) in enumerate(limits):
        assert (found[:, i + 1].min(), found[:, i + 1].max()) == pytest.approx((low, high), abs=0.01)


def test_erased_boxes_have_the_areas_that_are_allowed():
    found, _ = step("erase", p=0.5, scale=(0.1, 0.3), ratio=(0.5, 2.0), fill=[1, 2, 3], shape=Shape(200, 200, 3))
    chosen = found[:, 0] != NOTHING
    assert chosen.mean() == pytest.approx(0.5, abs=0.05)
    share = found[chosen, 3] * found[chosen, 4] / 40_000
    assert share.min() > 0.095
    assert share.max() < 0.305
    assert (found[:, 5:8] == (1, 2, 3)).all()


# --- columns ----------------------------------------------------------------------------------------------------------


def test_tokens_are_dropped_by_their_chance_and_some_never():
    kind = discover()["token_dropout"]
    options = kind.options.model_validate({"p": 0.3, "replacement": 1, "keep": [5]})
    values = np.tile(np.arange(2, 10), (2000, 1))
    before = values.copy()
    kind.change(options, values, None, draws(2000))
    changed = values != before
    assert (values[changed] == 1).all()
    assert not changed[:, 3].any()
    assert np.delete(changed, 3, axis=1).mean() == pytest.approx(0.3, abs=0.01)


def test_tokens_of_a_sequence_are_dropped_alike_in_any_batch():
    kind = discover()["token_dropout"]
    options = kind.options.model_validate({"p": 0.5})
    lengths = np.array([3, 0, 7])
    offsets = np.append(0, np.cumsum(lengths))
    whole = np.arange(1, 11)[:, None]
    kind.change(options, whole, offsets, draws(3))
    last = np.arange(4, 11)[:, None]
    kind.change(options, last, np.array([0, 7]), Draws(0, 0, np.array([2])))
    assert np.array_equal(whole[3:], last)


def test_noise_is_normal_with_its_deviation():
    kind = discover()["noise"]
    values = np.full((MANY, 3), 7, np.float32)
    kind.change(kind.options.model_validate({"deviation": 0.5}), values, None, draws())
    assert values.dtype == np.float32
    assert stats.kstest((values.reshape(-1) - 7) / 0.5, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(values.T)[0, 1]) < 0.06


def test_noise_spares_samples_that_were_not_chosen():
    kind = discover()["noise"]
    values = np.zeros((MANY, 2), np.float64)
    kind.change(kind.options.model_validate({"p": 0.2}), values, None, draws())
    assert (values[:, 0] != 0).mean() == pytest.approx(0.2, abs=0.03)
    assert np.array_equal(values[:, 0] != 0, values[:, 1] != 0)


@pytest.mark.parametrize(
    ("name", "column", "fits"),
    [
        pytest.param("noise", Column(TensorType((3,)), False, None), True, id="numbers get noise"),
        pytest.param("noise", Column(TensorType((3,)), False, 3), False, id="rows of 0 and 1 get none"),
        pytest.param("noise", Column(TensorType((3,), "int64"), False, None), False, id="whole numbers get none"),
        pytest.param("token_dropout", Column(TensorType((16,), "int64"), False, None), True, id="tokens may be dropped"),
        pytest.param("token_dropout", Column(TensorType((1,), "int64"), True, 9), True, id="items of a sequence may be dropped"),
        pytest.param("token_dropout", Column(TensorType((1,), "int64"), False, 9), False, id="a label may not"),
    ],
)
def test_what_can_be_changed(name, column, fits):
    assert discover()[name].fits(column) is fits


# --- batches ----------------------------------------------------------------------------------------------------------


def mixed(name, count=200, **options):
    """Return the feeds of a batch, before and after."""
    kind = discover()[name]
    before = {"image": RNG.random((count, 3, 16, 20)).astype(np.float32), "label": np.eye(5, dtype=np.float32)[RNG.integers(0, 5, count)]}
    batch = {feed: values.copy() for feed, values in before.items()}
    kind.mix(kind.options.model_validate(options), batch, "image", draws(count))
    return before, batch


def test_mixup_is_a_convex_combination_of_a_sample_and_the_one_before():
    before, batch = mixed("mixup", alpha=0.4)
    share = draws(200).beta("share", 0.4)
    for name, values in before.items():
        weight = share.reshape(-1, *(1,) * (values.ndim - 1))
        np.testing.assert_allclose(batch[name], weight * values + (1 - weight) * np.roll(values, 1, 0), atol=1e-6)
    np.testing.assert_allclose(batch["label"].sum(axis=1), 1, atol=1e-6)


def test_samples_that_were_not_chosen_are_not_mixed():
    before, batch = mixed("mixup", p=0.0)
    assert all(np.array_equal(batch[name], values) for name, values in before.items())
    before, batch = mixed("cutmix", p=0.0)
    assert all(np.array_equal(batch[name], values) for name, values in before.items())


def test_cutmix_puts_a_box_of_the_picture_before_and_mixes_labels_by_its_area():
    before, batch = mixed("cutmix")
    other = {name: np.roll(values, 1, 0) for name, values in before.items()}
    shares = []
    for i in range(200):
        foreign = (batch["image"][i] == other["image"][i]).all(axis=0)
        own = (batch["image"][i] == before["image"][i]).all(axis=0)
        assert (foreign ^ own).all()
        rows, columns = foreign.any(axis=1), foreign.any(axis=0)
        assert np.array_equal(foreign, rows[:, None] & columns)
        share = own.mean()
        np.testing.assert_allclose(batch["label"][i], share * before["label"][i] + (1 - share) * other["label"][i], atol=1e-6)
        shares.append(share)
    assert min(shares) < 0.4
    assert max(shares) > 0.95
