"""Columns of masks: values become classes, sizes are those of the pictures, and what is done to pictures is done to masks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data.array_dataset import is_table
from pe_cli.data.augment.random_draws import Draws
from pe_cli.data.augment.registry import discover as augmentations
from pe_cli.data.column import Context, discover
from pe_cli.data.pictures.moved import moved_boxes, moved_mask
from pe_cli.data.pictures.transform_programs import Program, Shape, instruction, render
from pe_cli.data.raw_cells import Table
from pe_cli.data.registry import open_reader
from pe_cli.kernels.images.transforms import AFFINE, COLOR, CROP, FLIP, RESIZE

PIL = pytest.importorskip("PIL.Image")


def folder(base: Path, masks: list[PIL.Image], size: tuple[int, int] = (6, 4), ending: str = "png") -> Table:
    """Write a gray picture for each mask, and return the table of both."""
    for name in ("img", "msk"):
        (base / name).mkdir()
    for i, mask in enumerate(masks):
        PIL.new("L", size, 10 * i).save(base / f"img/{i}.png")
        mask.save(base / f"msk/{i}.{ending}")
    found = open_reader("images", {"folder": "img", "masks": "msk"}, base)
    assert is_table(found)
    return found


def gray(*rows: list[int]) -> PIL.Image:
    return PIL.fromarray(np.array(rows, np.uint8))


def colored(index: int, color: int) -> PIL.Image:
    """Return a mask with a palette: a row of 0, which is black, and a row of the index, in a colour."""
    image = PIL.fromarray(np.array([[0, 0, 0], [index] * 3], np.uint8)).convert("P")
    palette = bytearray(768)
    palette[3 * index : 3 * index + 3] = color.to_bytes(3, "big")
    image.putdata([0, 0, 0, index, index, index])
    image.putpalette(bytes(palette))
    return image


def column(table: Table, base: Path, **options: object) -> tuple[dict[str, object], np.ndarray]:
    """Return what a column of masks learns, and its samples."""
    kind = discover()["mask"]
    checked = kind.options.model_validate({"over": "image", **options})
    context = Context(table, "mask", base=base)
    state = kind.fit(checked, context, None)
    return state, kind.encode(checked, state, context).take(np.arange(len(table)))[0]


def test_values_are_classes_in_their_order(tmp_path):
    state, seen = column(folder(tmp_path, [gray([0, 255, 255], [7, 0, 0])], (3, 2)), tmp_path)
    assert state["names"] == ["0", "7", "255"]
    assert seen[0, :, :, 0].tolist() == [[0, 2, 2], [1, 0, 0]]


def test_named_classes_and_pixels_that_do_not_count(tmp_path):
    table = folder(tmp_path, [gray([0, 255, 3], [7, 0, 0])], (3, 2))
    state, seen = column(table, tmp_path, classes={"thing": [7, 3], "ground": 0}, ignore=[255])
    assert state["names"] == ["thing", "ground"]
    assert seen[0, :, :, 0].tolist() == [[1, 255, 0], [0, 1, 1]]


def test_palettes_count_by_their_indices_and_colours_by_themselves(tmp_path):
    table = folder(tmp_path, [colored(2, 0xFF0000), colored(1, 0x00FF00)], (3, 2))
    state, seen = column(table, tmp_path)
    assert state["names"] == ["0", "1", "2"]
    state, seen = column(table, tmp_path, palette="color")
    assert state["names"] == ["#000000", "#00ff00", "#ff0000"]
    assert seen[:, 1, 0, 0].tolist() == [2, 1]


def test_an_index_of_two_colours_is_refused(tmp_path):
    with pytest.raises(PeError, match=r"palette in which 1 is #00ff00, and it is #ff0000 in .*0\.png") as told:
        column(folder(tmp_path, [colored(1, 0xFF0000), colored(1, 0x00FF00)], (3, 2)), tmp_path)
    assert "palette: color" in str(told.value.hint)


def test_soft_edges_have_a_threshold(tmp_path):
    rng = np.random.default_rng(0)
    gray_ones = np.where(rng.random((40, 40)) < 0.5, rng.integers(0, 100, (40, 40)), rng.integers(156, 256, (40, 40))).astype(np.uint8)
    table = folder(tmp_path, [PIL.fromarray(gray_ones).convert("RGB").rotate(90 * i).resize((61, 47)) for i in range(3)], (61, 47))
    state, seen = column(table, tmp_path, threshold=128)
    assert state["names"] == ["0", "1"]
    assert 0.3 < seen.mean() < 0.7


def test_too_many_values_are_no_classes(tmp_path):
    many = PIL.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40, 3)).astype(np.uint8))
    with pytest.raises(PeError, match="more than 256 different values") as told:
        column(folder(tmp_path, [many], (40, 40)), tmp_path)
    assert "threshold: 128" in str(told.value.hint)


@pytest.mark.parametrize(("mask", "options", "said"), [
    pytest.param(gray([0, 1], [1, 0]), {}, r"0.png is 2 x 2 \(height x width\), and its picture .*0.png 4 x 6", id="another size"),
    pytest.param(gray(*[[0, 1, 2, 0, 0, 9]] * 4), {"classes": {"a": 0, "b": 1}},
                 "has the value 2 in 4 pixels, which is no class: those are 0, 1", id="a value that is no class"),
    pytest.param(gray(*[[4] * 6] * 4), {}, "all pixels of all training masks are 4", id="one value alone"),
])  # fmt: skip
def test_what_is_wrong_with_a_mask_is_said(tmp_path, mask, options, said):
    with pytest.raises(PeError, match=said) as told:
        column(folder(tmp_path, [mask]), tmp_path, **options)
    assert told.value.code == ExitCode.DATA
    assert told.value.hint


def test_a_resized_mask_has_no_new_values(tmp_path):
    mask = PIL.fromarray(np.kron([[0, 200], [90, 0]], np.ones((8, 8))).astype(np.uint8))
    for how in ("stretch", "cover", "contain"):
        base = tmp_path / how
        base.mkdir()
        _, seen = column(folder(base, [mask], (16, 16)), base, size=[6, 10], resize=how)
        assert seen.shape == (1, 6, 10, 1)
        assert set(np.unique(seen)) == {0, 1, 2} | ({255} if how == "contain" else set())


def steps(shape: Shape) -> list[np.ndarray]:
    """Return instructions whose results have values of the picture alone."""
    return [
        instruction(FLIP, 1, 1, 0), instruction(FLIP, 1, 0, 1), instruction(CROP, 1, 2, -1, 5, 4, 255),
        instruction(RESIZE, 1, 0, 0, 5, 4, 10, 8), instruction(AFFINE, 1, 0, 1, 0, -1, 0, 7, 255), instruction(COLOR, 1, 1, 1, 1, 0),
    ]  # fmt: skip


def test_masks_move_as_pictures_do():
    rng = np.random.default_rng(1)
    picture = rng.integers(0, 200, (9, 7, 1)).astype(np.uint8)
    flip, mirror, crop, *_ = steps(Shape(9, 7, 1))
    program = Program((flip, crop, mirror), (Shape(9, 7, 1), Shape(9, 7, 1), Shape(5, 4, 1), Shape(5, 4, 1)))
    out = np.empty((1, 5, 4, 1), np.uint8)
    render([picture], program, 0, None, out, True)
    assert np.array_equal(moved_mask(picture[:, :, 0], program, 0, 255), out[0, :, :, 0])


def test_boxes_move_as_what_is_in_them():
    picture = np.zeros((20, 30, 1), np.uint8)
    picture[4:10, 6:18] = 255
    whole = Shape(20, 30, 1)
    for name, options in (("flip", {"p": 1.0}), ("rotate", {"degrees": 20.0}), ("affine", {"translate": (0.2, 0.1), "scale": (0.8, 1.2)})):
        kind = augmentations()[name]
        draws = Draws(3, 0, np.arange(1), None).at(name)
        program = Program((kind.draw(kind.options.model_validate(options), whole, draws),), (whole, whole))
        out = np.empty((1, 20, 30, 1), np.uint8)
        render([picture], program, 0, None, out, True)
        rows, columns = np.nonzero(out[0, :, :, 0] > 127)
        (box,) = moved_boxes(np.array([[6 / 30, 4 / 20, 18 / 30, 10 / 20]]), program, 0) * [30, 20, 30, 20]
        assert np.abs(box - [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]).max() <= 1.5, name


def test_a_box_of_which_little_is_left_is_gone():
    whole, cut = Shape(10, 10, 3), Shape(4, 4, 3)
    program = Program((instruction(CROP, 1, 0, 0, 4, 4),), (whole, cut))
    boxes = moved_boxes(np.array([[0.0, 0, 0.2, 0.2], [0.3, 0.3, 0.9, 0.9]]), program, 0)
    assert boxes.tolist() == [[0, 0, 0.5, 0.5], [0, 0, 0, 0]]


# --- the reader -------------------------------------------------------------------------------------------------------


def test_masks_beside_pictures_by_their_names(tmp_path):
    for name in ("a.png", "a_mask.png", "sub/b.jpg", "sub/b_mask.png", "c.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        PIL.new("L", (3, 2)).save(tmp_path / name)
    with pytest.raises(PeError, match=r"c\.png has no mask: there is no .*c_mask\.png"):
        open_reader("images", {"folder": ".", "mask_name": "*_mask"}, tmp_path)
    table = open_reader("images", {"folder": ".", "mask_name": "*_mask", "unmasked": "skip"}, tmp_path)
    assert [table.cells("mask").text(i) for i in range(len(table))] == ["a_mask.png", "sub/b_mask.png"]
    assert len(open_reader("images", {"folder": ".", "mask_name": "*_mask", "unmasked": "keep"}, tmp_path)) == 3


def test_a_mask_without_a_picture_and_two_masks(tmp_path):
    for name in ("i/a.png", "i/b.png", "m/a.png", "m/b.png", "m/z.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        PIL.new("L", (3, 2)).save(tmp_path / name)
    with pytest.raises(PeError, match=r"z.png is the mask of no picture in .*i"):
        open_reader("images", {"folder": "i", "masks": "m"}, tmp_path)
    PIL.new("L", (3, 2)).save(tmp_path / "m/a.bmp")
    with pytest.raises(PeError, match="are masks of one picture"):
        open_reader("images", {"folder": "i", "masks": "m", "unmasked": "skip"}, tmp_path)
