"""Warped pictures, beside those of PaddlePaddle 2.6.2: `recordings/later/warps.json`."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from pe_cli.paddle.vision import transforms
from tests.paddle.later.warps import PICTURE, WARPS

RECORDED = json.loads((Path(__file__).parent / "recordings" / "later" / "warps.json").read_text())
GRADIENT = np.add.outer(np.arange(40), np.arange(50)).astype("uint8")


@pytest.mark.parametrize("name", list(WARPS))
def test_an_array_is_warped_as_the_original_warps_a_picture(name):
    function, given = WARPS[name]
    found = getattr(transforms, function)(PICTURE, *given)
    # Between pixels Pillow rounds to whole numbers in another way, and does not go on beyond the picture's outer pixels.
    smooth = "bilinear" in given
    near = np.abs(found.astype(int) - np.reshape(RECORDED[name], found.shape)) <= (2 if smooth else 0)
    assert near.mean() > (0.8 if smooth else 0.95)


@pytest.mark.parametrize("name", list(WARPS))
def test_a_picture_of_pillow_is_warped_as_by_the_original(name):
    image = pytest.importorskip("PIL.Image")
    function, given = WARPS[name]
    found = np.asarray(getattr(transforms, function)(image.fromarray(PICTURE), *given))
    np.testing.assert_allclose(found.astype(int).ravel(), RECORDED[name], atol=1)


def test_what_lies_outside_has_a_colour_of_its_own():
    image = pytest.importorskip("PIL.Image")
    for picture in (PICTURE, image.fromarray(PICTURE)):
        found = np.asarray(transforms.affine(picture, 0.0, (2, -1), 1.0, 0.0, fill=(7, 8, 9)))
        assert found[0, 0].tolist() == found[6, 8].tolist() == [7, 8, 9]
        np.testing.assert_array_equal(found[:6, 2:], PICTURE[1:, :7])


def test_random_warps_stay_within_their_limits():
    random.seed(5)
    boxes = [transforms.RandomErasing(1.0, (0.1, 0.2), (0.5, 2.0), 255)(GRADIENT) for _ in range(20)]
    shares = [(box == 255).mean() for box in boxes]
    assert 0.08 < min(shares) <= max(shares) < 0.22
    assert (GRADIENT != 255).all()
    drawn = transforms.RandomErasing(1.0, value="random")(GRADIENT.astype("float32"))
    assert (drawn != GRADIENT).any()
    assert transforms.RandomErasing(0.0)(GRADIENT) is GRADIENT
    moved = transforms.RandomAffine(0, translate=(0.2, 0.0), fill=250)(GRADIENT)
    assert 0 <= (moved == 250).any(0).sum() <= 10
    turned = transforms.RandomAffine((90, 90), scale=(1.0, 1.0), shear=(0.0, 0.0, 0.0, 0.0))(GRADIENT)
    np.testing.assert_array_equal(turned[:, 5:45], np.rot90(GRADIENT, -1)[5:45])
    seen = transforms.RandomPerspective(1.0, 0.4, fill=255)(GRADIENT)
    assert 0 < (seen == 255).mean() < 0.7
    assert transforms.RandomPerspective(0.0)(GRADIENT) is GRADIENT


@pytest.mark.parametrize(("call", "says"), [
    pytest.param(lambda t: t.affine(PICTURE, 0, (0, 0), 0.0, 0.0), "scale 0.0", id="no size"),
    pytest.param(lambda t: t.affine(PICTURE, 0, (0, 0), 1.0, 0.0, "bicubic"), "interpolation is 'bicubic'", id="another interpolation"),
    pytest.param(lambda t: t.perspective(PICTURE, [[0, 0]], [[0, 0]]), "1 points", id="one point"),
    pytest.param(lambda t: t.RandomAffine(10, translate=(2, 0)), "translate", id="further than the picture"),
    pytest.param(lambda t: t.RandomAffine(-10), "degrees: -10", id="a negative angle"),
    pytest.param(lambda t: t.RandomErasing(value="noise"), "'noise'", id="another word"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call(transforms)
