"""movielens: readers of ratings: person, sex, group of ages, occupation, film, categories, words of the title, [rating]."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from pe_cli.paddle.text.movielens import AGES, Known, MovieInfo, UserInfo, archive, known, ratings

age_table = AGES


@functools.lru_cache(2)
def _known(path: str) -> Known:
    return known(archive(path))


def _told() -> Known:
    return _known(str(archive()))


def train() -> Callable[[], Iterator[Any]]:
    """Return the reader of nine tenths of the ratings."""
    return lambda: ratings(archive(), _told(), False)


def test() -> Callable[[], Iterator[Any]]:
    """Return the reader of the other tenth."""
    return lambda: ratings(archive(), _told(), True)


def get_movie_title_dict() -> dict[str, int]:
    """Return the number of every word of titles."""
    return _told().words


def movie_categories() -> dict[str, int]:
    """Return the number of every kind of films."""
    return _told().categories


def max_movie_id() -> int:
    """Return the largest number of a film."""
    return max(_told().movies)


def max_user_id() -> int:
    """Return the largest number of a person."""
    return max(_told().users)


def max_job_id() -> int:
    """Return the largest number of an occupation."""
    return max(user.job_id for user in _told().users.values())


def user_info() -> dict[int, UserInfo]:
    """Return number -> person."""
    return _told().users


def movie_info() -> dict[int, MovieInfo]:
    """Return number -> film."""
    return _told().movies


__all__ = [
    "age_table", "get_movie_title_dict", "max_job_id", "max_movie_id", "max_user_id", "movie_categories", "movie_info", "test", "train",
    "user_info",
]  # fmt: skip
