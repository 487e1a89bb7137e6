"""The recipe of benchmarks/fine_tuning.py: its pictures, and how much packages take on the disk. Nothing here is timed."""

from __future__ import annotations

import importlib
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import ImageFont

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(name="sizes")
def _sizes(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("installed_size")


def test_a_package_takes_what_its_files_take(sizes: ModuleType) -> None:
    (found,) = sizes.needed(["numpy"]).values()
    recorded = sum(Path(str(found.locate_file(file))).stat().st_size for file in metadata.distribution("numpy").files or ())
    assert sizes.size(found) == recorded > 10e6


def test_what_a_package_needs_is_counted(sizes: ModuleType) -> None:
    names = sizes.needed(["pe-cli[onnx]"])
    assert {"pe-cli", "numpy", "numba", "llvmlite", "onnx", "protobuf"} <= names.keys()
    assert "torch" not in names
    assert "onnx" not in sizes.needed(["pe-cli"])


def test_the_script_prints_megabytes() -> None:
    said = subprocess.run([sys.executable, str(FOLDER / "installed_size.py"), "numpy"], capture_output=True, text=True, check=True)
    assert float(said.stdout) > 10


def test_pictures_are_the_same_for_both_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    # In the face that Pillow has, whichever is asked for.
    own = {size: ImageFont.load_default(size) for size in range(16, 30)}
    monkeypatch.setattr(ImageFont, "truetype", lambda path, size: own[size])
    monkeypatch.syspath_prepend(str(FOLDER))
    script = importlib.import_module("fine_tuning")
    one, again = (script.pictures(Path(), 1, 2) for _ in range(2))
    np.testing.assert_array_equal(one["x"], again["x"])
    assert one["x"].shape == (2 * len(script.FACES), 3, script.HEIGHT, script.WIDTH)
    assert one["x"].dtype == np.float32
    assert sorted(set(one["label"][:, 0])) == list(range(len(script.FACES)))
    assert not np.array_equal(one["x"], script.pictures(Path(), 2, 2)["x"])


def test_rows_of_made_up_sentences_are_the_same_for_both_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    script = importlib.import_module("language_tuning")
    one, again = (script.rows(2, 5, script.SECOND) for _ in range(2))
    np.testing.assert_array_equal(one["input_ids"], again["input_ids"])
    assert one["input_ids"].shape == one["next"].shape == (5, script.LENGTH)
    np.testing.assert_array_equal(one["input_ids"].ravel()[1:], one["next"].ravel()[:-1])
    first = bytes(one["input_ids"].ravel().astype(np.uint8)).decode()
    assert first.startswith(tuple(script.WORDS["where"]))
