"""Contact sheets: which picture lies where, and how numbers are shown."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from pe_cli.data.contact_sheet import GAP, LINE, MOST, SIDE, contact_sheet


def opened(*args, **options):
    return np.asarray(Image.open(io.BytesIO(contact_sheet(*args, **options))))


def middle(sheet, row, column, line=0):
    """Return the colour in the middle of a picture."""
    y, x = GAP + row * (SIDE + line + GAP) + SIDE // 2, GAP + column * (SIDE + GAP) + SIDE // 2
    return sheet[y, x].tolist()


COLOURS = np.array([[250, 0, 0], [0, 250, 0], [0, 0, 250]], np.uint8)


@pytest.mark.parametrize("axes", [pytest.param((0, 1, 2, 3), id="last"), pytest.param((0, 3, 1, 2), id="first")])
def test_pictures_lie_in_rows(axes):
    pictures = np.broadcast_to(COLOURS[:, None, None], (3, 10, 10, 3)).transpose(axes)
    sheet = opened(pictures, columns=2)
    assert [middle(sheet, 0, 0), middle(sheet, 0, 1), middle(sheet, 1, 0)] == COLOURS.tolist()
    assert middle(sheet, 1, 1) == [255, 255, 255]
    assert sheet.shape == (2 * (SIDE + GAP) + GAP, 2 * (SIDE + GAP) + GAP, 3)


def test_labels_are_written_below():
    pictures = np.zeros((1, 8, 8), np.uint8)
    plain, named = opened(pictures), opened(pictures, ["a label that is too long to be written"])
    assert named.shape[0] == plain.shape[0] + LINE
    below = named[GAP + SIDE + 1 : GAP + SIDE + LINE]
    assert (below < 100).any()
    assert (below[:, GAP + SIDE :] == 255).all()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([0.0, 0.5, 1.0], [0, 128, 255], id="shares"),
        pytest.param([-2.0, 0.0, 2.0], [0, 128, 255], id="from least to greatest"),
        pytest.param([7.0, 7.0, 7.0], [0, 0, 0], id="all the same"),
        pytest.param([np.nan, 0.0, 1.0], [0, 0, 255], id="no number"),
    ],
)
def test_floats_are_shown(values, expected):
    picture = np.repeat(np.array(values, np.float32), 4)[None, None].repeat(12, 1)
    sheet = opened(picture)
    found = [int(sheet[GAP + SIDE // 2, GAP + SIDE * (2 * i + 1) // 6, 0]) for i in range(3)]
    assert found == expected


def test_what_is_transparent_is_white():
    picture = np.zeros((1, 4, 4, 4), np.uint8)
    picture[0, :, :2] = (100, 0, 0, 255)
    sheet = opened(picture, last=True)
    assert sheet[GAP + 5, GAP + 5].tolist() == [100, 0, 0]
    assert sheet[GAP + 5, GAP + SIDE - 5].tolist() == [255, 255, 255]


def test_a_sheet_is_bounded():
    many = np.random.default_rng(0).integers(0, 256, (MOST + 50, 40, 40, 3), dtype=np.uint8)
    assert contact_sheet(many) == contact_sheet(many[:MOST])
