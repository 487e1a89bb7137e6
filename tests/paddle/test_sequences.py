"""Networks on sequences against the values of PaddlePaddle 1.8.5."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from tests.paddle import sequence_cases

GOLDENS = np.load(Path(__file__).parent / "goldens" / "sequences.npz")


@pytest.mark.parametrize("name", list(sequence_cases.CASES))
def test_values_lengths_and_gradients(name):
    expected = {key: GOLDENS[key] for key in GOLDENS.files if key.split("|")[0] == name}
    assert expected
    found = sequence_cases.run(fluid, name)
    assert set(found) == set(expected)
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=2e-5, atol=2e-6, err_msg=key)
