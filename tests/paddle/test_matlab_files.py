"""Files of MATLAB: numbers that SciPy wrote, and what damages them."""

from __future__ import annotations

import io
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from pe_cli.paddle.vision import matlab


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("kind", ["u1", "i2", "u4", "i8", "f4", "f8"])
def test_numbers_of_matlab_files_are_those_that_scipy_wrote(kind: str, compressed: bool) -> None:
    values = np.arange(1, 100, dtype=kind).reshape(1, -1)
    for given in (values, values[:, :1], values[:, :0], values[:, :6].reshape(2, 3)):
        file = io.BytesIO()
        savemat(file, {"before": "a text", "labels": given, "after": np.eye(3)}, do_compression=compressed)
        found = matlab.numbers(file.getvalue(), "labels")
        assert (found.dtype, found.tolist()) == (np.int64, given.reshape(-1, order="F").tolist())
        with pytest.raises(KeyError, match="other"):
            matlab.numbers(file.getvalue(), "other")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param(np.array([[1.5]]), "not whole", id="a fraction"),
        pytest.param(np.array([[np.nan]]), "not whole", id="no number"),
        pytest.param(np.array([[1j]]), "no matrix of real numbers", id="a complex number"),
        pytest.param(np.array([["a"]]), "no matrix of real numbers", id="a text"),
        pytest.param(np.array([[1, "a"]], object), "no matrix of real numbers", id="a cell"),
        pytest.param(np.zeros((1, 1 << 22)), "more than 16777216 bytes", id="a bomb"),
    ],
)
def test_matlab_files_without_whole_numbers_are_told(given: Any, said: str) -> None:
    file = io.BytesIO()
    savemat(file, {"labels": given}, do_compression=True)
    with pytest.raises(ValueError, match=said):
        matlab.numbers(file.getvalue(), "labels")


def test_damaged_matlab_files_are_told_or_read() -> None:
    file = io.BytesIO()
    savemat(file, {"labels": np.arange(9, dtype=np.uint8).reshape(1, -1)})
    data = file.getvalue()
    for at in range(124, len(data)):
        for value in (0, 1, 14, 127, 255):
            with suppress(ValueError, KeyError):
                assert len(matlab.numbers(data[:at] + bytes([value]) + data[at + 1 :], "labels")) < 100
        with pytest.raises((ValueError, KeyError)):
            matlab.numbers(data[:at], "labels")
