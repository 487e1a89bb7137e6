"""Five steps of configs that ship, on the device and on the CPU: the cheapest; `python -m tests.cuda.ptx.models` does all."""

from __future__ import annotations

import pytest

from tests.cuda.ptx.models import LONG, ROOT, SMALLER, compare, shipped


@pytest.mark.parametrize("name", ["digits", "fit_a_line"])
def test_five_steps_are_those_of_the_cpu(name: str):
    found = compare(ROOT / f"configs/{name}.yaml")
    assert found.fine, found


def test_what_is_made_smaller_ships():
    assert set(SMALLER) <= {str(path.relative_to(ROOT)) for path in (*shipped(), *(ROOT / "configs/bench" / name for name in LONG))}
