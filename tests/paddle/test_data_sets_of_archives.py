"""Data sets of texts and ratings: what PaddlePaddle 1.8.5 reads of small archives (`TOLD`, recorded there), and what damages them."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pe_cli.paddle import dataset, dataset_files, text
from pe_cli.paddle.errors import FluidValueError
from tests.paddle.support import pack

#: Brackets of roles for each word, behind the verbs of the sentence.
ROLES = """\
-	*
-	(A0*)
sit	(V*)

-	(A0*	(A1*
-	*)	*
run	(V*)	*)
-	*	(A0*)
see	(A2*)	(V*)

"""
MARKS = "<s>\n<e>\n<unk>\n"
TARS = {
    "imdb/imdb%2FaclImdb_v1.tar.gz": {
        "aclImdb/test/neg/0_1.txt": "Bad, bad film.\n",
        "aclImdb/test/pos/0_9.txt": "A good one!",
        "aclImdb/train/neg/1_2.txt": "bad; the worst film - the end",
        "aclImdb/train/pos/1_10.txt": "The best film, the GOOD film\r\n",
        "aclImdb/train/unsup/2_0.txt": "unseen words",
        "aclImdb/README": "no review",
    },
    "imikolov/imikolov%2Fsimple-examples.tgz": {
        "./simple-examples/data/ptb.train.txt": " a cat sat \n the cat <unk> \n the dog sat here \n",
        "./simple-examples/data/ptb.valid.txt": " the cat sat \n",
        "./simple-examples/data/ptb.test.txt": " a dog here \n",
    },
    "conll05st/conll05st-tests.tar.gz": {
        "conll05st-release/test.wsj/words/test.wsj.words.gz": gzip.compress(
            b"The\ncat\nsat\n\nA\ndog\nand\ncat\nran\n\n"
        ),
        "conll05st-release/test.wsj/props/test.wsj.props.gz": gzip.compress(ROLES.encode()),
    },
    "wmt14/wmt14.tgz": {
        "wmt14/src.dict": f"{MARKS}the\ncat\nsits\ndog\n",
        "wmt14/trg.dict": f"{MARKS}le\nchat\nchien\n",
        "wmt14/train/train": f"the cat sits\tle chat assis\nno tab\n{'the ' * 90}\tle\nthe dog\tle chien\n",
        "wmt14/test/test": "the cat\tle chat\n",
        "wmt14/gen/gen": "dog\tchien\n",
    },
    "wmt16/wmt16.tar.gz": {
        "wmt16/train": "a man a dog\tein Mann ein Hund\na b\tein B\nbad line\n",
        "wmt16/test": "a man\tein Mann\n",
        "wmt16/val": "dog x\tHund X\n",
    },
}
FILES = {
    "conll05st/conll05st%2FwordDict.txt": "unk\nThe\ncat\nsat\ndog\nbos\neos\n",
    "conll05st/conll05st%2FverbDict.txt": "sit\nrun\nsee\n",
    "conll05st/conll05st%2FtargetDict.txt": "B-A0\nI-A0\nB-A1\nI-A1\nB-A2\nI-A2\nB-V\nI-V\nO\n",
    "conll05st/conll05st%2Femb": "x",
}
FILMS = {
    "movies": "1::Toy Story (1995)::Animation|Comedy\n2::Caf\xe9 Story (1996)::Drama\n",
    "users": "1::F::1::10::48067\n2::M::56::16::70072\n",
    "ratings": "".join(f"{1 + i % 2}::{1 + i % 3 % 2}::{1 + i % 5}::97830{i}\n" for i in range(30)),
}
TEXTS = re.compile(r"aclImdb/((train)|(test))/((pos)|(neg))/.*\.txt$")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder where the original keeps its files, with small ones."""
    monkeypatch.setattr(dataset_files, "HOME", str(tmp_path))
    dataset.movielens._known.cache_clear()
    for name, files in TARS.items():
        pack(tmp_path / name, files)
    for name, contents in FILES.items():
        (tmp_path / name).write_text(contents)
    (tmp_path / "movielens").mkdir()
    with zipfile.ZipFile(tmp_path / "movielens" / "movielens%2Fml-1m.zip", "w") as package:
        for name, contents in FILMS.items():
            package.writestr(f"ml-1m/{name}.dat", contents.encode("latin-1"))
    return tmp_path


def films(samples: Any) -> list[Any]:
    """Return samples with how many categories and words a film has: the original numbers them anew in every process."""
    return [(row[:5], len(row[5]), len(row[6]), row[7]) for row in samples]


#: By PaddlePaddle 1.8.5 of these archives.
TOLD: dict[str, Any] = {
    "words": {
        b"film": 0,
        b"the": 1,
        b"bad": 2,
        b"good": 3,
        b"a": 4,
        b"best": 5,
        b"end": 6,
        b"one": 7,
        b"worst": 8,
        "<unk>": 9,
    },
    "frequent": {b"film": 0, b"the": 1, b"bad": 2, b"good": 3, "<unk>": 4},
    "opinions": {
        "train": [([1, 5, 0, 1, 3, 0], 0), ([2, 1, 8, 0, 1, 6], 1)],
        "test": [([4, 3, 7], 0), ([2, 2, 0], 1)],
    },
    "ptb": {
        "<e>": 0,
        "<s>": 1,
        b"cat": 2,
        b"sat": 3,
        b"the": 4,
        b"<unk>": 5,
        b"a": 6,
        b"dog": 7,
        b"here": 8,
        "<unk>": 9,
    },
    "windows": [(3, 5), (5, 0), (0, 1), (1, 4), (3, 2), (2, 0), (0, 5), (5, 4), (3, 2), (2, 5), (5, 1), (1, 5), (5, 4)],
    "validation": [(3, 2), (2, 0), (0, 1), (1, 4)],
    "sentences": [([3, 5, 0, 1], [5, 0, 1, 4]), ([3, 2, 0, 5], [2, 0, 5, 4])],
    "ratings": [
        ([1, 1, 0, 10, 1], 2, 2, [-3.0]),
        ([2, 0, 6, 16, 2], 1, 2, [-1.0]),
        ([1, 1, 0, 10, 1], 2, 2, [1.0]),
        ([2, 0, 6, 16, 1], 2, 2, [3.0]),
        ([1, 1, 0, 10, 2], 1, 2, [5.0]),
        ([2, 0, 6, 16, 1], 2, 2, [-3.0]),
        ([1, 1, 0, 10, 1], 2, 2, [-1.0]),
        ([2, 0, 6, 16, 2], 1, 2, [1.0]),
        ([1, 1, 0, 10, 1], 2, 2, [3.0]),
        ([2, 0, 6, 16, 1], 2, 2, [5.0]),
        ([1, 1, 0, 10, 2], 1, 2, [-3.0]),
        ([2, 0, 6, 16, 1], 2, 2, [-1.0]),
        ([1, 1, 0, 10, 1], 2, 2, [1.0]),
        ([2, 0, 6, 16, 2], 1, 2, [3.0]),
        ([2, 0, 6, 16, 1], 2, 2, [1.0]),
        ([1, 1, 0, 10, 1], 2, 2, [3.0]),
        ([2, 0, 6, 16, 2], 1, 2, [5.0]),
        ([1, 1, 0, 10, 1], 2, 2, [-3.0]),
        ([2, 0, 6, 16, 1], 2, 2, [-1.0]),
        ([1, 1, 0, 10, 2], 1, 2, [1.0]),
        ([2, 0, 6, 16, 1], 2, 2, [3.0]),
        ([1, 1, 0, 10, 1], 2, 2, [5.0]),
        ([2, 0, 6, 16, 2], 1, 2, [-3.0]),
        ([1, 1, 0, 10, 1], 2, 2, [-1.0]),
        ([2, 0, 6, 16, 1], 2, 2, [1.0]),
        ([1, 1, 0, 10, 2], 1, 2, [3.0]),
        ([2, 0, 6, 16, 1], 2, 2, [5.0]),
    ],
    "other ratings": [
        ([1, 1, 0, 10, 1], 2, 2, [5.0]),
        ([2, 0, 6, 16, 1], 2, 2, [-3.0]),
        ([1, 1, 0, 10, 2], 1, 2, [-1.0]),
    ],
    "films": (
        ["café", "story", "toy"],
        ["Animation", "Comedy", "Drama"],
        2,
        2,
        16,
        [1, 18, 25, 35, 45, 50, 56],
        "Café Story ",
        6,
        ["Animation", "Comedy"],
    ),
    "roles": [
        (
            ([1, 2, 3], [1, 1, 1], [2, 2, 2], [3, 3, 3], [6, 6, 6], [6, 6, 6], [0, 0, 0], [1, 1, 1]),
            ["O", "B-A0", "B-V"],
        ),
        (
            (
                [0, 4, 0, 2, 0],
                [0, 0, 0, 0, 0],
                [4, 4, 4, 4, 4],
                [0, 0, 0, 0, 0],
                [2, 2, 2, 2, 2],
                [0, 0, 0, 0, 0],
                [1, 1, 1, 1, 1],
                [1, 1, 1, 1, 1],
            ),
            ["B-A0", "I-A0", "B-V", "O", "B-A2"],
        ),
        (
            (
                [0, 4, 0, 2, 0],
                [0, 0, 0, 0, 0],
                [2, 2, 2, 2, 2],
                [0, 0, 0, 0, 0],
                [6, 6, 6, 6, 6],
                [6, 6, 6, 6, 6],
                [2, 2, 2, 2, 2],
                [0, 0, 1, 1, 1],
            ),
            ["B-A1", "I-A1", "I-A1", "B-A0", "B-V"],
        ),
    ],
    "wmt14": (
        [([0, 3, 4, 2, 1], [0, 3, 4, 2], [3, 4, 2, 1]), ([0, 3, 2, 1], [0, 3, 2], [3, 2, 1])],
        [([0, 3, 4, 1], [0, 3, 4], [3, 4, 1])],
        [([0, 2, 1], [0, 2], [2, 1])],
        ({0: "<s>", 1: "<e>", 2: "<unk>", 3: "the", 4: "cat"}, {0: "<s>", 1: "<e>", 2: "<unk>", 3: "le", 4: "chat"}),
        ({"<s>": 0, "<e>": 1, "<unk>": 2, "the": 3, "cat": 4}, {"<s>": 0, "<e>": 1, "<unk>": 2, "le": 3, "chat": 4}),
    ),
    "wmt16": (
        [([0, 3, 4, 3, 5, 1], [0, 3, 4, 3, 2], [3, 4, 3, 2, 1]), ([0, 3, 2, 1], [0, 3, 2], [3, 2, 1])],
        [([0, 3, 4, 1], [0, 3, 4], [3, 4, 1])],
        [([0, 5, 2, 1], [0, 2, 2], [2, 2, 1])],
        {"<s>": 0, "<e>": 1, "<unk>": 2, "a": 3, "man": 4, "dog": 5},
        {0: "<s>", 1: "<e>", 2: "<unk>", 3: "ein", 4: "Mann"},
    ),
    "wmt16 from German": (
        [([0, 3, 4, 3, 5, 1], [0, 3, 4, 3, 5], [3, 4, 3, 5, 1]), ([0, 3, 6, 1], [0, 3, 6], [3, 6, 1])],
        [([0, 3, 4, 1], [0, 3, 4], [3, 4, 1])],
        [([0, 5, 2, 1], [0, 5, 2], [5, 2, 1])],
        {"<s>": 0, "<e>": 1, "<unk>": 2, "a": 3, "man": 4, "dog": 5, "b": 6},
        {0: "<s>", 1: "<e>", 2: "<unk>", 3: "ein", 4: "Mann", 5: "Hund", 6: "B"},
    ),
}


def test_opinions(home: Path) -> None:
    numbers = dataset.imdb.build_dict(TEXTS, 0)
    assert (numbers, dataset.imdb.build_dict(TEXTS, 1)) == (TOLD["words"], TOLD["frequent"])
    for mode, expected in TOLD["opinions"].items():
        assert list(getattr(dataset.imdb, mode)(numbers)()) == expected
        found = text.Imdb(mode=mode, cutoff=0)
        assert [(words.tolist(), int(label[0])) for words, label in found] == expected
    assert dataset.imdb.word_dict() == {"<unk>": 0}, "no word occurs 150 times"


def test_sentences(home: Path) -> None:
    assert dataset.imikolov.build_dict(0) == TOLD["ptb"]
    numbers = {b"cat": 0, b"sat": 1, b"the": 2, "<s>": 3, "<e>": 4, "<unk>": 5}
    kinds = dataset.imikolov.DataType
    assert list(dataset.imikolov.train(numbers, 2)()) == TOLD["windows"]
    assert list(dataset.imikolov.test(numbers, 2)()) == TOLD["validation"]
    assert list(dataset.imikolov.train(numbers, 4, kinds.SEQ)()) == TOLD["sentences"]
    with pytest.raises(FluidValueError, match="the size of a window is -1"):
        text.Imikolov()
    (one,) = text.Imikolov(data_type="seq", mode="test", min_word_freq=0)
    words = {number: word for word, number in TOLD["ptb"].items()}
    assert [[words[int(n)] for n in row] for row in one] == [
        ["<s>", b"a", b"dog", b"here"],
        [b"a", b"dog", b"here", "<e>"],
    ]


def test_ratings(home: Path) -> None:
    assert films(dataset.movielens.train()()) == TOLD["ratings"]
    assert films(dataset.movielens.test()()) == TOLD["other ratings"]
    words, kinds, *rest = TOLD["films"]
    m = dataset.movielens
    assert (sorted(m.get_movie_title_dict()), sorted(m.movie_categories())) == (words, kinds)
    told = (
        m.max_movie_id(),
        m.max_user_id(),
        m.max_job_id(),
        m.age_table,
        m.movie_info()[2].title,
        m.user_info()[2].age,
    )
    assert (*told, m.movie_info()[1].categories) == tuple(rest)
    found = text.Movielens(mode="test")
    assert len(found) == len(TOLD["other ratings"])
    assert [part.shape for part in found[0]] == [(1,)] * 5 + [(1,) if found[0][4][0] == 2 else (2,), (2,), (1,)]


def test_roles(home: Path) -> None:
    words, verbs, labels = dataset.conll05.get_dict()
    names = {number: label for label, number in labels.items()}
    assert (words["dog"], verbs["see"], labels["O"]) == (4, 2, 8)
    assert [(tuple(s[:8]), [names[i] for i in s[8]]) for s in dataset.conll05.test()()] == TOLD["roles"]
    assert [([part.tolist() for part in s[:8]], [names[int(i)] for i in s[8]]) for s in text.Conll05st()] == [
        (list(rows), said) for rows, said in TOLD["roles"]
    ]
    assert dataset.conll05.get_embedding() == str(home / "conll05st" / "conll05st%2Femb")


def test_translations(home: Path) -> None:
    of = dataset.wmt14
    parts = (list(of.train(5)()), list(of.test(5)()), list(of.gen(5)()))
    assert (*parts, of.get_dict(5), of.get_dict(5, False)) == TOLD["wmt14"]
    assert [tuple(part.tolist() for part in pair) for pair in text.WMT14(mode="train", dict_size=5)] == parts[0]
    new = dataset.wmt16
    for name, first, second, language in (("wmt16", 6, 5, "en"), ("wmt16 from German", 20, 20, "de")):
        given = (first, second, language)
        found = (list(new.train(*given)()), list(new.test(*given)()), list(new.validation(*given)()))
        sizes = (first, second) if language == "en" else (second, first)
        assert (*found, new.get_dict("en", sizes[0]), new.get_dict("de", sizes[1], True)) == TOLD[name]
        pairs = text.WMT16(mode="val", src_dict_size=first, trg_dict_size=second, lang=language)
        assert [tuple(part.tolist() for part in pair) for pair in pairs] == found[2]
    with pytest.raises(FluidValueError, match="src_lang is 'fr'"):
        new.train(5, 5, "fr")


def test_damage_behind_the_start_of_an_archive_is_told(tmp_path: Path) -> None:
    path, name = tmp_path / "late.tar.xz", "aclImdb/train/pos/0.txt"
    contents = np.random.default_rng(0).integers(97, 123, 1 << 16, np.uint8).tobytes()
    with tarfile.open(path, "w:xz") as archive:
        info = tarfile.TarInfo(name)
        info.size = len(contents)
        archive.addfile(info, io.BytesIO(contents))
    packed = bytearray(path.read_bytes())
    packed[len(packed) // 2] ^= 255
    path.write_bytes(packed)
    with pytest.raises(FluidValueError, match=r"late\.tar\.xz is not what this data set reads"):
        text.Imdb(path, cutoff=0)


@pytest.mark.parametrize("kind", [text.Imdb, text.Imikolov, text.Movielens, text.Conll05st, text.WMT14, text.WMT16])
def test_files_that_are_not_there_or_damaged_are_named(home: Path, kind: Any, tmp_path: Path) -> None:
    sizes = {
        text.WMT14: {"dict_size": 5},
        text.WMT16: {"src_dict_size": 5, "trg_dict_size": 5},
        text.Imikolov: {"window_size": 2},
    }
    bad = tmp_path / "bad"
    with pytest.raises(ValueError, match=f"there is no file {bad}, and nothing is downloaded"):
        kind(data_file=bad, **sizes.get(kind, {}))
    for contents in (b"", b"no archive", gzip.compress(b"x" * 2000)):
        bad.write_bytes(contents)
        with pytest.raises(ValueError, match=str(bad)):
            kind(data_file=bad, **sizes.get(kind, {}))
    if kind is not text.Conll05st:
        with pytest.raises(ValueError, match="mode is 'later'"):
            kind(mode="later", **sizes.get(kind, {}))


def test_what_is_too_large_is_not_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_files, "MOST", 20)
    with pytest.raises(FluidValueError, match="more than 20 bytes"):
        text.Imdb()
    with pytest.raises(FluidValueError, match="more than 20 bytes"):
        text.Movielens()
    monkeypatch.setattr(dataset_files, "MOST", 1 << 20)
    monkeypatch.setattr(dataset_files, "LONGEST_LINE", 10)
    with pytest.raises(FluidValueError, match="a line of more than 10 bytes"):
        text.Imikolov(window_size=2)
    monkeypatch.setattr(dataset_files, "LARGEST", 10)
    with pytest.raises(FluidValueError, match="a document of more than 10 bytes"):
        text.Imdb()


@pytest.mark.parametrize(
    ("roles", "said"),
    [
        pytest.param("-\t?\nsit\t(V*)\n\n", "has the role '?'", id="a role that is none"),
        pytest.param("-\t*\nsit\t(V*)\t*\n\n", "different numbers of columns", id="a column more"),
        pytest.param("be\t*\nsit\t(V*)\n\n", "2 verbs and 1 columns", id="a verb without roles"),
        pytest.param("-\t*\n", "as many of roles", id="lines are missing"),
    ],
)
def test_roles_that_do_not_fit_are_told(home: Path, roles: str, said: str) -> None:
    words, props = TARS["conll05st/conll05st-tests.tar.gz"]
    contents = {words: gzip.compress(b"a\nb\n\n"), props: gzip.compress(roles.encode())}
    pack(home / "conll05st" / "conll05st-tests.tar.gz", contents)
    with pytest.raises(FluidValueError, match=re.escape(said)):
        text.Conll05st()
