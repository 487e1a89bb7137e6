"""Gradients that are added have the bits of a sum on CUDA, too."""

from __future__ import annotations

import pytest

from pe_cli.core.types import Place
from tests.ops import support
from tests.ops.test_addto import CASES
from tests.ops.test_addto import test_an_added_gradient_has_the_bits_of_the_sum as check
from tests.rotation import of_today

#: Every way to add, and one op of those that add piece by piece.
SOME = of_today([c for c in CASES if c.values[0].name in ("conv2d", "mul", "elementwise_add", "tanh")], 4)


@pytest.mark.parametrize(("definition", "sample"), SOME)
def test_an_added_gradient(monkeypatch, definition, sample, rng):
    monkeypatch.setattr(support, "PLACE", Place("cuda", 0))
    check(definition, sample, "float32", rng)
