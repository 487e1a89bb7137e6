"""wmt16: readers of sentences in English and German, as numbers of words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.text.translation import TOTALS, archive_16, numbers_16, other, pairs_16, turned


def _numbers(language: str, size: int) -> dict[str, int]:
    return numbers_16(archive_16(), min(size, TOTALS[language]), language)


def _reader(part: str, source: int, target: int, language: str) -> Callable[[], Iterator[Any]]:
    if language not in TOTALS:
        raise FluidValueError(f"src_lang is {language!r}", hint="en or de")
    return lambda: pairs_16(archive_16(), part, _numbers(language, source), _numbers(other(language), target), language)


def train(src_dict_size: int, trg_dict_size: int, src_lang: str = "en") -> Callable[[], Iterator[Any]]:
    """Return the reader of the training samples, with so many words of the first and of the second language."""
    return _reader("train", src_dict_size, trg_dict_size, src_lang)


def test(src_dict_size: int, trg_dict_size: int, src_lang: str = "en") -> Callable[[], Iterator[Any]]:  # noqa: PT028
    """Return the reader of the test samples."""
    return _reader("test", src_dict_size, trg_dict_size, src_lang)


def validation(src_dict_size: int, trg_dict_size: int, src_lang: str = "en") -> Callable[[], Iterator[Any]]:
    """Return the reader of the validation samples."""
    return _reader("val", src_dict_size, trg_dict_size, src_lang)


def get_dict(lang: str, dict_size: int, reverse: bool = False) -> dict[Any, Any]:
    """Return word -> number of a language, or number -> word."""
    found = _numbers("en" if lang == "en" else "de", dict_size)
    return turned(found) if reverse else found


__all__ = ["get_dict", "test", "train", "validation"]
