"""A script of the original starts with empty default programs, an empty scope and names from 0."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pe_cli.paddle.fluid as fluid


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Give each test its own default programs, scope and names, whatever ran before it in its process."""
    programs = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()), fluid.program_guard(*programs):
        yield
