"""Native changes of pictures against NumPy, Pillow, SciPy and calculations by hand."""

from __future__ import annotations

import colorsys

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from pe_cli.data.pictures.field import byte_table
from pe_cli.data.pictures.transform_programs import Program, Shape, count_bytes, instruction, only, render
from pe_cli.kernels.images import transforms as code

RNG = np.random.default_rng(3)
SHAPE = Shape(37, 53, 3)
PICTURE = RNG.integers(0, 256, (37, 53, 3), dtype=np.uint8)


def run(*steps, picture=PICTURE, table=None, last=True):
    """Return what steps, each of them an instruction and the shape after it, make of a picture."""
    shapes = [Shape(*picture.shape), *(Shape(*shape, picture.shape[2]) for _, shape in steps)]
    program = Program([step for step, _ in steps], shapes)
    end = program.shape
    size = (end.height, end.width, end.channels) if last else (end.channels, end.height, end.width)
    out = np.zeros((1, *size), np.uint8 if table is None else np.float32)
    render([np.ascontiguousarray(picture)], program, 0, table, out, last)
    return out[0]


def crop(top, left, height, width, *fill):
    return instruction(code.CROP, 1, top, left, height, width, *fill), (height, width)


def flip(vertical, horizontal, shape=(37, 53)):
    return instruction(code.FLIP, 1, vertical, horizontal), shape


def resize(box, height, width):
    return instruction(code.RESIZE, 1, *box, height, width), (height, width)


def color(picture, brightness=1.0, contrast=1.0, saturation=1.0, hue=0.0):
    step = instruction(code.COLOR, 1, brightness, contrast, saturation, hue)
    return run((step, picture.shape[:2]), picture=picture)


# --- parts, turned over -----------------------------------------------------------------------------------------------


def test_nothing_is_done_by_an_empty_program():
    assert np.array_equal(run(), PICTURE)


def test_a_crop_is_a_slice():
    assert np.array_equal(run(crop(3, 5, 20, 30)), PICTURE[3:23, 5:35])


@pytest.mark.parametrize(
    ("vertical", "horizontal"),
    [
        pytest.param(0, 1, id="left and right"),
        pytest.param(1, 0, id="up and down"),
        pytest.param(1, 1, id="both"),
    ],
)
def test_flips_turn_axes_over_and_twice_nothing(vertical, horizontal):
    axes = [axis for axis, on in enumerate((vertical, horizontal)) if on]
    assert np.array_equal(run(flip(vertical, horizontal)), np.flip(PICTURE, axes))
    assert np.array_equal(run(flip(vertical, horizontal), flip(vertical, horizontal)), PICTURE)


def test_what_lies_outside_a_picture_is_filled():
    padded = np.pad(PICTURE, ((2, 0), (3, 4), (0, 0)), constant_values=0)
    padded[:2], padded[:, :3], padded[:, -4:] = (7, 8, 9), (7, 8, 9), (7, 8, 9)
    assert np.array_equal(run(crop(-2, -3, 30, 60, 7, 8, 9)), padded[:30, :60])


def test_a_box_that_misses_the_picture_is_all_fill():
    assert (run(crop(100, 0, 4, 4, 5, 5, 5)) == 5).all()


def test_crops_and_flips_follow_each_other():
    padded = np.pad(PICTURE, ((2, 2), (3, 5), (0, 0)))
    found = run(crop(-2, -3, 41, 61), flip(1, 1, (41, 61)), crop(2, 3, 20, 50), flip(0, 1, (20, 50)))
    assert np.array_equal(found, padded[::-1, ::-1][2:22, 3:53][:, ::-1])


def test_what_was_cut_off_does_not_come_back():
    found = run(crop(5, 5, 20, 20), crop(-3, -3, 26, 26, 1, 2, 3))
    expected = np.broadcast_to(np.array([1, 2, 3], np.uint8), (26, 26, 3)).copy()
    expected[3:23, 3:23] = PICTURE[5:25, 5:25]
    assert np.array_equal(found, expected)


def test_two_paddings_have_colours_of_their_own():
    found = run(crop(-1, -1, 39, 55, 1, 1, 1), crop(-1, -1, 41, 57, 2, 2, 2))
    edges = ((1, 1), (1, 1), (0, 0))
    assert np.array_equal(found, np.pad(np.pad(PICTURE, edges, constant_values=1), edges, constant_values=2))


def test_an_instruction_that_was_not_chosen_does_nothing():
    step = only(instruction(code.FLIP, 1, 1, 1), np.array([False]))
    assert np.array_equal(run((step, (37, 53))), PICTURE)


# --- sizes ------------------------------------------------------------------------------------------------------------

SIZES = [
    pytest.param((20, 20), id="smaller"),
    pytest.param((80, 90), id="larger"),
    pytest.param((37, 20), id="narrower"),
    pytest.param((12, 53), id="lower"),
    pytest.param((200, 11), id="higher and narrower"),
    pytest.param((9, 70), id="lower and wider"),
    pytest.param((1, 1), id="a pixel"),
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("channels", [1, 3])
def test_a_resize_is_that_of_pillow(size, channels):
    picture = PICTURE[:, :, :channels]
    image = Image.fromarray(picture[:, :, 0] if channels == 1 else picture)
    expected = np.asarray(image.resize(size[::-1], Image.Resampling.BILINEAR)).reshape(*size, channels)
    # Pillow chooses which axis comes first; between them it rounds
    assert np.abs(run(resize((0, 0, 37, 53), *size), picture=picture).astype(int) - expected).max() <= 1


@pytest.mark.parametrize("size", SIZES)
def test_a_resize_of_a_part_is_that_of_pillow(size):
    box = (2, 3.5, 42, 23.75)
    expected = np.asarray(Image.fromarray(PICTURE).resize(size[::-1], Image.Resampling.BILINEAR, box=box))
    found = run(resize((3.5, 2, 20.25, 40), *size))
    assert np.abs(found.astype(int) - expected).max() <= 1


def test_a_resize_sees_what_was_cut_and_turned_over():
    cut = np.ascontiguousarray(PICTURE[2:32, 3:43][:, ::-1])
    expected = np.asarray(Image.fromarray(cut).resize((20, 20), Image.Resampling.BILINEAR))
    found = run(crop(2, 3, 30, 40), flip(0, 1, (30, 40)), resize((0, 0, 30, 40), 20, 20))
    assert np.array_equal(found, expected)


def test_a_resize_to_the_same_size_changes_nothing():
    assert np.array_equal(run(resize((0, 0, 37, 53), 37, 53)), PICTURE)


def test_a_part_whose_width_stays_is_resized_in_the_other_direction_only():
    cut = np.ascontiguousarray(PICTURE[:, 4:24])
    expected = np.asarray(Image.fromarray(cut).resize((20, 10), Image.Resampling.BILINEAR))
    assert np.array_equal(run(crop(0, 4, 37, 20), resize((0, 0, 37, 20), 10, 20)), expected)


# --- moved pixels -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("matrix", "offset"),
    [
        pytest.param([[1, 0], [0, 1]], [0, 0], id="nothing"),
        pytest.param([[1, 0], [0, 1]], [2.25, -3.5], id="a move"),
        pytest.param([[0.8, 0.1], [-0.2, 1.3]], [4, -2], id="any matrix"),
        pytest.param([[-1, 0], [0, -1]], [36, 52], id="half a turn"),
        pytest.param([[1, 0], [0, 1]], [1e9, 0], id="far away"),
    ],
)
def test_moved_pixels_are_those_of_scipy(matrix, offset):
    words = (*matrix[0], offset[0], *matrix[1], offset[1])
    found = run((instruction(code.AFFINE, 1, *words, 10, 20, 30), (37, 53)))
    for c, fill in enumerate((10, 20, 30)):
        expected = ndimage.affine_transform(
            PICTURE[:, :, c].astype(float), np.array(matrix, float), offset, order=1, mode="grid-constant", cval=fill
        )
        np.testing.assert_allclose(found[:, :, c], expected, atol=0.5 + 1e-6)


def test_moved_pixels_see_what_was_cut():
    moved = instruction(code.AFFINE, 1, 1, 0, 1, 0, 1, 0)
    assert np.array_equal(run(crop(3, 5, 20, 30), (moved, (20, 30)))[:19], PICTURE[4:23, 5:35])


# --- colours ----------------------------------------------------------------------------------------------------------

PIXELS = np.array([[[100, 150, 200], [10, 20, 30]]], np.uint8)


def test_brightness_multiplies():
    assert color(PIXELS, brightness=1.5).tolist() == [[[150, 225, 255], [15, 30, 45]]]
    assert color(PIXELS, brightness=0.0).tolist() == [[[0, 0, 0], [0, 0, 0]]]


def test_contrast_is_the_distance_to_the_mean_brightness():
    # 0.299 r + 0.587 g + 0.114 b: 140.75 and 18.15, whose mean is 79.45
    assert color(PIXELS, contrast=0.0).tolist() == [[[79, 79, 79], [79, 79, 79]]]
    assert color(PIXELS, contrast=2.0).tolist() == [[[121, 221, 255], [0, 0, 0]]]


def test_saturation_is_the_distance_to_a_pixels_brightness():
    assert color(PIXELS, saturation=0.0).tolist() == [[[141, 141, 141], [18, 18, 18]]]
    assert color(PIXELS, saturation=2.0).tolist() == [[[59, 159, 255], [2, 22, 42]]]


@pytest.mark.parametrize("turns", [0.5, -0.3, 1 / 3, 0.05])
def test_hue_is_turned_as_colorsys_does(turns):
    picture = RNG.integers(0, 256, (4, 9, 3), dtype=np.uint8)
    picture[0, 0] = 77  # gray has no hue
    expected = np.empty(picture.shape)
    for at in np.ndindex(4, 9):
        h, s, v = colorsys.rgb_to_hsv(*(picture[at] / 255))
        expected[at] = np.array(colorsys.hsv_to_rgb((h + turns) % 1, s, v)) * 255
    np.testing.assert_allclose(color(picture, hue=turns), expected, atol=0.5 + 1e-6)


def test_a_third_of_a_turn_exchanges_the_channels():
    assert color(PIXELS, hue=1 / 3).tolist() == [[[200, 100, 150], [30, 10, 20]]]


def test_gray_pictures_have_brightness_and_contrast():
    gray = np.array([[[100], [200]]], np.uint8)
    assert color(gray, brightness=0.5, contrast=2.0).tolist() == [[[25], [125]]]


def test_alpha_stays():
    picture = np.array([[[100, 150, 200, 77]]], np.uint8)
    assert color(picture, brightness=0.5, saturation=0.0).tolist() == [[[70, 70, 70, 77]]]


def test_erasing_paints_a_box():
    expected = PICTURE.copy()
    expected[4:9, 6:16] = (1, 2, 3)
    assert np.array_equal(run((instruction(code.ERASE, 1, 4, 6, 5, 10, 1, 2, 3), (37, 53))), expected)


def test_the_picture_itself_is_never_changed():
    before = PICTURE.copy()
    run(flip(1, 1), (instruction(code.ERASE, 1, 0, 0, 30, 30), (37, 53)), (instruction(code.COLOR, 1, 0, 1, 1, 0), (37, 53)))
    assert np.array_equal(PICTURE, before)


# --- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("last", [True, False])
def test_bytes_become_numbers(last):
    mean, deviation = np.array([0.1, 0.4, 0.6]), np.array([0.2, 0.5, 1.5])
    padded = np.pad(PICTURE[:, ::-1], ((0, 0), (0, 5), (0, 0)), constant_values=9)
    expected = ((padded / 255 - mean) / deviation).astype(np.float32)
    table = byte_table(mean.tolist(), deviation.tolist())
    found = run(flip(0, 1), crop(0, 0, 37, 58, 9, 9, 9), table=table, last=last)
    assert np.array_equal(found, expected if last else expected.transpose(2, 0, 1))


def test_bytes_may_have_their_channels_first():
    assert np.array_equal(run(last=False), PICTURE.transpose(2, 0, 1))


def test_bytes_are_counted():
    counts = np.zeros((3, 256), np.int64)
    count_bytes(PICTURE, counts)
    assert np.array_equal(counts, [np.bincount(PICTURE[:, :, c].reshape(-1), minlength=256) for c in range(3)])
