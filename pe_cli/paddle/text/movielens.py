"""The MovieLens data set: ratings of films, with facts about films and viewers."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.paddle.dataset_files import as_data, lines, local, of_modes
from pe_cli.paddle.io import Dataset

#: Years from which on a group of ages begins.
AGES = [1, 18, 25, 35, 45, 50, 56]


class MovieInfo:
    """A film.

    Args:
        index: its number.
        categories: kinds of films that it is one of.
        title: without the year.
    """

    def __init__(self, index: Any, categories: list[str], title: str) -> None:
        self.index, self.categories, self.title = int(index), categories, title

    def __repr__(self) -> str:
        return f"<MovieInfo id({self.index}), title({self.title}), categories({self.categories})>"


class UserInfo:
    """Somebody who rates films.

    Args:
        index: number of the person.
        gender: M or F.
        age: in years, as the first of a group of `AGES`.
        job_id: number of the occupation.
    """

    def __init__(self, index: Any, gender: str, age: Any, job_id: Any) -> None:
        self.index, self.is_male = int(index), gender == "M"
        self.age, self.job_id = AGES.index(int(age)), int(job_id)

    def value(self) -> list[int]:
        """Return the numbers of person, sex, group of ages and occupation."""
        return [self.index, 0 if self.is_male else 1, self.age, self.job_id]

    def __repr__(self) -> str:
        return f"<UserInfo id({self.index}), gender({'M' if self.is_male else 'F'}), age({AGES[self.age]}), job({self.job_id})>"


@dataclass
class Known:
    """What an archive tells of films and persons.

    Args:
        movies: number -> film.
        users: number -> person.
        categories: kind of films -> number, in the order in which they occur.
        words: word of titles, in small letters -> number, in the order in which they occur.
    """

    movies: dict[int, MovieInfo] = field(default_factory=dict)
    users: dict[int, UserInfo] = field(default_factory=dict)
    categories: dict[str, int] = field(default_factory=dict)
    words: dict[str, int] = field(default_factory=dict)

    def film(self, number: int) -> list[Any]:
        """Return the number of a film and those of its categories and of the words of its title."""
        found = self.movies[number]
        return [number, [self.categories[c] for c in found.categories], [self.words[w] for w in found.title.lower().split()]]


def archive(given: Any = None) -> Path:
    """Return the archive: the given one, or the one where the original keeps it."""
    return local(given, "movielens", "ml-1m.zip", "movielens%2Fml-1m.zip")


def _fields(path: Path, name: str) -> Iterator[list[str]]:
    with as_data(path), zipfile.ZipFile(path) as package, package.open(f"ml-1m/{name}.dat") as file:
        for line in lines(file):
            # The files are older than the habit of UTF-8.
            yield line.decode("latin-1").strip().split("::")


def known(path: Path) -> Known:
    """Return what an archive tells of films and persons.

    Raises:
        FluidValueError: the archive is damaged, or is another one; a ValueError.
    """
    found = Known()
    with as_data(path):
        for number, title, kinds in _fields(path, "movies"):
            year = re.match(r"^(.*)\(\d+\)$", title)
            film = found.movies[int(number)] = MovieInfo(number, kinds.split("|"), year[1] if year else title)
            for kind in film.categories:
                found.categories.setdefault(kind, len(found.categories))
            for word in film.title.lower().split():
                found.words.setdefault(word, len(found.words))
        for number, gender, age, job, _ in _fields(path, "users"):
            found.users[int(number)] = UserInfo(number, gender, age, job)
    return found


def ratings(path: Path, told: Known, test: bool, ratio: float = 0.1, seed: int = 0) -> Iterator[list[Any]]:
    """Yield samples of one of two parts that a seed divides: `UserInfo.value`, `Known.film`, and [[a rating from -3 to 5]].

    Args:
        path: archive.
        told: what it tells of films and persons.
        test: the smaller part.
        ratio: its share.
        seed: of the draws of NumPy's former generator, one for each rating.
    """
    draws = np.random.RandomState(seed)
    with as_data(path):
        for user, film, rating, _ in _fields(path, "ratings"):
            # One draw for each rating, whichever part is wanted: the two parts of one seed have no rating in common.
            if (draws.random_sample() < ratio) == test:
                # One to five stars become -3 to 5, as in the original.
                yield [*told.users[int(user)].value(), *told.film(int(film)), [float(rating) * 2 - 5]]


class Movielens(Dataset):
    """Person, sex, group of ages, occupation, film, int64 [1]; categories and words of the title, int64 [n]; rating, float64 [1].

    Args:
        data_file: archive of a million ratings; default: where the original keeps it.
        mode: train or test.
        test_ratio: share of the ratings that are for test.
        rand_seed: which ratings these are.
        download: taken for the original's sake; nothing is downloaded.

    Attributes:
        movie_info: number -> film.
        user_info: number -> person.
        categories_dict: kind of films -> number; the original has another order in every process.
        movie_title_dict: word of titles -> number, likewise.

    Raises:
        FluidValueError: the file is not there or damaged, or mode is another word; a ValueError.

    Source:
        Harper and Konstan 2015, "The MovieLens datasets: history and context".
    """

    def __init__(
        self, data_file: Any = None, mode: str = "train", test_ratio: float = 0.1, rand_seed: int = 0, download: bool = True
    ) -> None:
        self.mode, self.test_ratio, self.rand_seed = of_modes(mode, "train", "test"), test_ratio, rand_seed
        path = archive(data_file)
        self.data_file = str(path)
        told = known(path)
        self.movie_info, self.user_info = told.movies, told.users
        self.categories_dict, self.movie_title_dict = told.categories, told.words
        self.data = list(ratings(path, told, self.mode == "test", test_ratio, rand_seed))

    def __getitem__(self, idx: int) -> tuple[Any, ...]:
        return tuple(np.atleast_1d(np.array(part)) for part in self.data[idx])

    def __len__(self) -> int:
        return len(self.data)
