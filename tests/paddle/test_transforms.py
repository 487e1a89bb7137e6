"""Transforms of pictures: against PyTorch, against Pillow, and against what NumPy says by hand."""

from __future__ import annotations

import colorsys
import copy
import random
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pe_cli.paddle.vision import transforms as T
from tests.needs import torch

RNG = np.random.default_rng(5)
PICTURE = RNG.integers(0, 256, (7, 5, 3), np.uint8)
FLOATS = RNG.random((9, 6, 3), "float32")


@pytest.fixture(autouse=True)
def seeded():
    random.seed(4)


SIZES = [(4, 3), (18, 12), (9, 6), (5, 11)]


@pytest.mark.parametrize(
    ("mode", "size"), [*((mode, size) for mode in ("bilinear", "bicubic", "nearest") for size in SIZES), ("area", (3, 2)), ("area", (9, 3))]
)
def test_resize_is_that_of_torch(mode, size):
    given = torch.from_numpy(FLOATS.transpose(2, 0, 1)[None].astype("float64"))
    more = {"align_corners": False} if mode in ("bilinear", "bicubic") else {}
    expected = torch.nn.functional.interpolate(given, size, mode=mode, **more)[0].numpy().transpose(1, 2, 0)
    found = T.resize(FLOATS.astype("float64"), size, mode)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_area_takes_parts_of_pixels():
    assert T.resize(np.array([[1.0, 4.0, 7.0]]), (1, 2), "area").tolist() == [[2.0, 6.0]]


def test_lanczos_keeps_what_is_even_and_bytes_stay_bytes():
    even = np.full((6, 6, 3), 200, np.uint8)
    assert np.array_equal(T.resize(even, (11, 4), "lanczos"), np.full((11, 4, 3), 200, np.uint8))


def test_one_size_is_that_of_the_shorter_side():
    assert T.resize(PICTURE, 10).shape == (14, 10, 3)
    assert T.resize(PICTURE.transpose(1, 0, 2), 10).shape == (10, 14, 3)
    assert T.resize(PICTURE, 5) is PICTURE
    assert T.resize(PICTURE[..., 0], (2, 3)).shape == (2, 3)


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_quarter_turns_are_those_of_numpy(turns, mode):
    assert np.array_equal(T.rotate(PICTURE, 90 * turns, mode, expand=True), np.rot90(PICTURE, turns))
    square = PICTURE[:5]
    assert np.array_equal(T.rotate(square, 90 * turns, mode), np.rot90(square, turns))


def test_a_turn_about_a_point_and_its_border():
    spot = np.zeros((5, 5), np.uint8)
    spot[0, 0] = 255
    found = T.rotate(spot, 90, center=(1, 1), fill=7)
    assert found[1, 0] == 255
    assert (found == 7).sum() == 15
    assert T.rotate(PICTURE, 45, fill=(1, 2, 3))[0, 0].tolist() == [1, 2, 3]


def test_flips_crops_and_borders():
    assert np.array_equal(T.hflip(PICTURE), PICTURE[:, ::-1])
    assert np.array_equal(T.vflip(PICTURE), PICTURE[::-1])
    assert np.array_equal(T.crop(PICTURE, 2, 1, 3, 4), PICTURE[2:5, 1:5])
    assert np.array_equal(T.center_crop(PICTURE, 3), PICTURE[2:5, 1:4])
    bordered = T.pad(PICTURE, (1, 2, 3, 4), fill=9)
    assert bordered.shape == (13, 9, 3)
    assert np.array_equal(bordered[2:9, 1:6], PICTURE)
    assert (bordered[0] == 9).all()
    for mode in ("edge", "reflect", "symmetric"):
        assert np.array_equal(T.pad(PICTURE, [1, 2], padding_mode=mode), np.pad(PICTURE, ((2, 2), (1, 1), (0, 0)), mode=mode))


def test_factors_of_brightness_contrast_and_saturation():
    assert np.array_equal(T.adjust_brightness(PICTURE, 1), PICTURE)
    assert not T.adjust_brightness(PICTURE, 0).any()
    assert np.array_equal(T.adjust_brightness(PICTURE, 2), np.minimum(PICTURE.astype(int) * 2, 255))
    level = round(float((PICTURE @ [0.299, 0.587, 0.114]).mean()))
    assert (T.adjust_contrast(PICTURE, 0) == level).all()
    grey = T.to_grayscale(PICTURE, 3)
    assert np.array_equal(T.adjust_saturation(PICTURE, 0), grey)
    assert np.array_equal(grey[..., 0], np.rint(PICTURE @ [0.299, 0.587, 0.114]))
    np.testing.assert_allclose(T.adjust_saturation(FLOATS, 1), FLOATS, atol=1e-7)


@pytest.mark.parametrize("turn", [-0.5, -0.13, 0.0, 0.3, 0.5])
def test_hue_is_that_of_colorsys(turn):
    expected = np.empty(FLOATS.shape)
    for place in np.ndindex(FLOATS.shape[:2]):
        hue, saturation, value = colorsys.rgb_to_hsv(*map(float, FLOATS[place]))
        expected[place] = colorsys.hsv_to_rgb((hue + turn) % 1.0, saturation, value)
    np.testing.assert_allclose(T.adjust_hue(FLOATS, turn), expected, atol=1e-6)
    assert T.adjust_hue(PICTURE, turn).dtype == np.uint8


def test_pictures_become_feeds():
    found = T.to_tensor(PICTURE)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, PICTURE.transpose(2, 0, 1).astype("float32") / np.float32(255))
    assert T.to_tensor(FLOATS[..., 0], "HWC").shape == (9, 6, 1)
    mean, std = [1.0, 2.0, 3.0], [2.0, 4.0, 8.0]
    np.testing.assert_allclose(T.normalize(PICTURE, mean, std, "HWC"), (PICTURE - np.float32(mean)) / np.float32(std), rtol=1e-6)
    reversed_ = T.Normalize(0.0, 2.0, to_rgb=True)(found)
    np.testing.assert_allclose(reversed_, found[::-1] / 2)
    assert T.Transpose()(PICTURE).shape == (3, 7, 5)
    assert T.Transpose()(PICTURE[..., 0]).shape == (1, 7, 5)


def test_a_chain_of_random_transforms_is_repeated_by_its_seed():
    chain = T.Compose([
        T.RandomResizedCrop(6), T.RandomHorizontalFlip(), T.RandomVerticalFlip(0.3), T.ColorJitter(0.4, 0.4, 0.4, 0.2),
        T.RandomRotation(20), T.Pad(1), T.RandomCrop(6, padding=1), T.Grayscale(3), T.CenterCrop(5), T.Resize((4, 4)), T.ToTensor(),
    ])  # fmt: skip
    made = []
    for seed in (1, 1, 2):
        random.seed(seed)
        made.append(chain(PICTURE))
    assert made[0].shape == (3, 4, 4)
    assert np.array_equal(made[0], made[1])
    assert not np.array_equal(made[0], made[2])


def test_random_boxes_lie_in_the_picture_and_go_everywhere():
    rows = {tuple(T.RandomCrop((3, 2))(PICTURE)[0, 0]) for _ in range(400)}
    assert rows == {tuple(PICTURE[i, j]) for i in range(5) for j in range(4)}
    assert T.RandomCrop(9, pad_if_needed=True)(PICTURE).shape == (9, 9, 3)
    with pytest.raises(ValueError, match=r"is \[7, 5\], the box \[9, 9\]"):
        T.RandomCrop(9)(PICTURE)
    flipped = [np.array_equal(T.RandomHorizontalFlip(0.25)(PICTURE), PICTURE[:, ::-1]) for _ in range(400)]
    assert 0.15 < np.mean(flipped) < 0.35
    thin = np.zeros((2, 40, 1), np.uint8)
    assert T.RandomResizedCrop(4, scale=(1.0, 1.0), ratio=(1.0, 1.0))(thin).shape == (4, 4, 1)


def test_keys_say_what_becomes_of_each_part():
    class Doubles(T.BaseTransform):
        def _apply_image(self, img):
            return img * 2

        def _apply_mask(self, mask):
            return mask + 1

    assert Doubles(keys=("image", None, "mask"))((2, 3, 4, 5)) == (4, 3, 5, 5)
    assert Doubles()(2) == 4
    with pytest.raises(TypeError, match="does not change 'boxes'"):
        Doubles(keys=["boxes"])(1)
    with pytest.raises(NotImplementedError, match="define _apply_image"):
        T.BaseTransform()(1)


ARGUMENTS = {
    **dict.fromkeys(["BrightnessTransform", "ContrastTransform", "SaturationTransform"], (0.5,)),
    "HueTransform": (0.25,), "ColorJitter": (0.5,), "Resize": (3,), "CenterCrop": (3,), "Pad": (1,), "RandomCrop": (3,),
    "Normalize": (9.0, 2.0, "HWC"), "RandomResizedCrop": (3,), "RandomRotation": (40,),
    "RandomHorizontalFlip": (1.0,), "RandomVerticalFlip": (1.0,),
    "RandomAffine": (40,), "RandomErasing": (1.0,), "RandomPerspective": (1.0,),
}  # fmt: skip


KINDS = sorted(n for n, kind in vars(T).items() if isinstance(kind, type) and issubclass(kind, T.BaseTransform))


@pytest.mark.parametrize("name", [n for n in KINDS if n != "BaseTransform"])
def test_every_transform_changes_the_parts_that_are_pictures_alone(name):
    """With other keys, the second part of a sample is changed as a picture alone would be by the same draws."""
    make, given = getattr(T, name), ARGUMENTS.get(name, ())
    random.seed(3)
    alone = make(*given)(PICTURE)
    random.seed(3)
    first, second, third = make(*given, keys=(None, "image"))((PICTURE, PICTURE, PICTURE))
    assert first is PICTURE
    assert third is PICTURE
    np.testing.assert_array_equal(second, alone)
    assert second.shape != PICTURE.shape or not np.array_equal(second, PICTURE)
    with pytest.raises(TypeError, match="keys must be a list"):
        make(*given, keys="image")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda: T.resize(PICTURE, (2, 2), "box"), "interpolation is 'box'", id="an interpolation of Pillow's"),
        pytest.param(lambda: T.resize(PICTURE, (0, 2)), "size is", id="no rows"),
        pytest.param(lambda: T.pad(PICTURE, (1, 2, 3)), "padding is", id="three sides"),
        pytest.param(lambda: T.pad(PICTURE, 1, padding_mode="wrap"), "padding_mode", id="a mode"),
        pytest.param(lambda: T.adjust_hue(PICTURE, 0.6), "hue_factor", id="more than half a turn"),
        pytest.param(lambda: T.adjust_brightness(PICTURE, -1), "factor is -1", id="a negative factor"),
        pytest.param(lambda: T.ColorJitter(brightness=(2, 1)), "BrightnessTransform", id="a range backwards"),
        pytest.param(lambda: T.HueTransform(0.7), "HueTransform", id="a hue too large"),
        pytest.param(lambda: T.RandomVerticalFlip(1.5), "prob is 1.5", id="a chance above 1"),
        pytest.param(lambda: T.to_tensor(PICTURE, "CWH"), "CHW or HWC", id="a format"),
        pytest.param(lambda: T.pad(PICTURE, 1, fill=(1, 2)), "fill has 2 numbers", id="a colour of two channels"),
        pytest.param(lambda: T.to_grayscale(PICTURE, 2), "1 or 3", id="two gray channels"),
    ],
)
def test_mistakes(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_other_things_are_no_pictures():
    with pytest.raises(TypeError, match="got list"):
        T.hflip([1, 2])


def test_pictures_of_pillow_stay_pictures_of_pillow():
    Image = pytest.importorskip("PIL.Image")
    given = Image.fromarray(PICTURE)
    assert np.array_equal(np.asarray(T.rotate(given, 90, expand=True)), np.rot90(PICTURE))
    assert np.array_equal(np.asarray(T.hflip(given)), PICTURE[:, ::-1])
    assert np.array_equal(np.asarray(T.vflip(given)), PICTURE[::-1])
    assert T.resize(given, (3, 4), "hamming").size == (4, 3)
    assert np.array_equal(np.asarray(T.pad(given, 1, padding_mode="edge")), np.pad(PICTURE, ((1, 1), (1, 1), (0, 0)), mode="edge"))
    assert T.pad(given, (1, 2), fill=3).size == (7, 11)
    assert np.array_equal(np.asarray(T.center_crop(given, 3)), PICTURE[2:5, 1:4])
    assert np.array_equal(T.to_tensor(given), T.to_tensor(PICTURE))
    for change in (T.adjust_brightness, T.adjust_contrast, T.adjust_saturation):
        distance = np.abs(np.asarray(change(given, 0.6)).astype(int) - change(PICTURE, 0.6).astype(int))
        assert distance.max() <= 1
    assert np.array_equal(np.asarray(T.to_grayscale(given, 3))[..., 0], np.asarray(given.convert("L")))
    assert np.abs(np.asarray(T.adjust_hue(given, 0.0)).astype(int) - PICTURE).max() <= 8
    assert T.ColorJitter(0.1, 0.1, 0.1, 0.1)(given).size == given.size


class _Slow(T.BaseTransform):
    """Give a part of a sample what was drawn for the sample, a while after."""

    def _get_params(self, inputs):
        return inputs[0]

    def _apply_image(self, img):
        time.sleep(0.005)
        return self.params


def test_threads_that_share_a_transform_have_their_own_draws():
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(_Slow(("image", "image")), [(i, i) for i in range(12)]))
    assert found == [(i, i) for i in range(12)]
    assert copy.deepcopy(_Slow())(3) == 3
