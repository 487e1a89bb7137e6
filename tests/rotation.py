"""What is too much for every run of the tests: a part of it each day, and all of it where PE_WHOLE is set (`make check-deep`)."""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from typing import TypeVar

import pytest

T = TypeVar("T")


def part_of_today(parts: int) -> int:
    """Return which of some parts is today's; days that follow one another have different ones."""
    return datetime.date.today().toordinal() % parts


def on_its_day(day: int, of: int) -> pytest.MarkDecorator:
    """Mark a test that takes long: it runs on one day of so many, on the same one as others that are given the same number below `of`."""
    skipped = not os.environ.get("PE_WHOLE") and part_of_today(of) != day
    return pytest.mark.skipif(skipped, reason=f"runs on one day of {of}; PE_WHOLE=1 runs it")


def of_today(items: Sequence[T], parts: int) -> list[T]:
    """Return every item where all are wanted, else each `parts`-th one, beginning with another one each day."""
    return list(items) if os.environ.get("PE_WHOLE") else list(items[part_of_today(min(parts, max(1, len(items)))) :: parts])
