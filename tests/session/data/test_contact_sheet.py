"""Which samples a contact sheet of augmented data shows as pictures."""

from __future__ import annotations

import pytest

from pe_cli.core.types import TensorType
from pe_cli.session.data.contact_sheet import SMALLEST, _looks

S = SMALLEST


@pytest.mark.parametrize(
    ("shape", "dtype", "shown"),
    [
        pytest.param((S, S), "uint8", True, id="bytes"),
        pytest.param((S, S - 1), "uint8", False, id="bytes in a narrow table"),
        pytest.param((S, S), "float32", False, id="a matrix"),
        *(pytest.param((c, S, 2 * S), "float32", c in (1, 3, 4), id=f"{c} channels first") for c in (1, 2, 3, 4, 5)),
        *(pytest.param((S, 2 * S, c), "uint8", c in (1, 3, 4), id=f"{c} channels last, bytes") for c in (1, 2, 3, 4, 5)),
        pytest.param((S, 2 * S, 3), "float32", False, id="three numbers for each element"),
        pytest.param((3, S - 1, 2 * S), "float32", False, id="lower than a picture"),
        pytest.param((3, 3, S, S), "float32", False, id="four axes"),
        pytest.param((S * S,), "uint8", False, id="one axis"),
    ],
)
def test_what_looks_like_a_picture(shape, dtype, shown) -> None:
    assert _looks(TensorType(shape, dtype)) is shown
