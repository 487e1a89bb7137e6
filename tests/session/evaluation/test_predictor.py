"""What a trained model says of rows: the examples of its schema, in any batch, of every type of column; and of pictures."""

from __future__ import annotations

import base64
import io
import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pe_cli.cli.common import open_trained
from pe_cli.core.errors import PeError
from pe_cli.session.evaluation.predictor import Predictor
from pe_cli.session.http.replies import Refusal
from pe_cli.session.serving.request_rows import read_rows, with_pixels
from tests.session.conftest import Bench

MODEL = """\
feeds:
  x: {shape: [WIDTH]}
  ids: {shape: [1], dtype: int64, lod_level: 1}
  words: {shape: [1], dtype: int64, lod_level: 1}
  y: {shape: [1]}
layers:
  a: {type: embedding, input: ids, size: [20, 3]}
  b: {type: sequence_pool, input: a, pool_type: sum}
  c: {type: embedding, input: words, size: [60, 3]}
  d: {type: sequence_pool, input: c, pool_type: sum}
  e: {type: concat, input: [x, b, d], axis: 1}
  guess: {type: fc, input: e, size: 1}
  error: {type: square_error_cost, input: guess, label: y}
  loss: {type: mean, x: error}
fetches: [loss]
"""
CONFIG = """\
model: model.yaml
data:
  source: {reader: table, files: t.csv}
  columns:
    n: {type: number, scale: standard, missing: mean}
    k: {type: category, encode: one_hot}
    s: {type: category, encode: one_hot, missing: error, unknown: error}
    t: {type: bool, yes: ["si"], no: ["no"]}
    d: {type: date, format: "%d.%m.%Y"}
    i: {type: date, parts: [timestamp, hour]}
    v: {type: vector, of: [v1, v2]}
    g: {type: bag, separator: ";"}
    ids: {type: sequence, items: category, separator: "/"}
    words: {type: text, tokens: words}
    y: {type: number, scale: standard}
feeds: {x: [n, k, s, t, d, i, v, g], ids: ids, words: words}
train: {loss: loss, epochs: 3, batch_size: 10, optimizer: {type: Adam, learning_rate: 0.05}}
executor: {devices: 1, seed: 1}
output: {dir: RUNS}
"""
ROW = {
    "n": 3, "k": "odd", "s": "b", "t": "si", "d": "07.03.2021", "i": "2021-03-07T01:02:03", "v1": 1, "v2": "2", "g": "p;q", "ids": "u/v",
    "words": "one two",
}  # fmt: skip


@pytest.fixture(scope="module")
def predictor(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    from pe_cli.cli.main import run as run_command_line

    base = tmp_path_factory.mktemp("every")
    header = "n,k,s,t,d,i,v1,v2,g,ids,words,y"
    lines = [
        f"{i},{'odd' if i % 2 else 'even'},{'ab'[i % 3 > 0]},{'si' if i % 4 else 'no'},{i % 28 + 1:02}.0{i % 9 + 1}.2021,"
        f"2021-0{i % 9 + 1}-11T0{i % 10}:30:00,{i / 7},{i * i},{'p;q' if i % 2 else 'q;r;r'},{'u/v' if i % 3 else 'w'},"
        f"{'one two' if i % 2 else 'three'},{3 * i}"
        for i in range(40)
    ]
    (base / "t.csv").write_text("\n".join([header, *lines]) + "\n")
    width = 24
    (base / "model.yaml").write_text(MODEL.replace("WIDTH", str(width)))
    (base / "c.yaml").write_text(CONFIG.replace("RUNS", str(base / "runs")))
    assert run_command_line(["train", str(base / "c.yaml"), "--quiet"]) == 0
    return Predictor(open_trained(next((base / "runs").iterdir()), (), None)[0])


def test_the_example_of_every_column_is_taken(predictor: Predictor) -> None:
    schema = json.loads(json.dumps(predictor.schema()))
    assert set(schema["columns"]) == set(ROW)
    (answer,) = predictor.rows(read_rows("application/json", json.dumps(schema["example"]).encode(), predictor))
    assert isinstance(answer["y"], float)
    for name, column in schema["columns"].items():
        assert predictor.rows([ROW | {name: column["example"]}]), name


def test_every_value_that_the_schema_tells_is_taken(predictor: Predictor) -> None:
    columns = predictor.schema()["columns"]
    told = [(name, value) for name, column in columns.items() for key in ("classes", "yes", "no") for value in column.get(key, ())]
    told += [(name, column[key]) for name, column in columns.items() for key in ("first", "last", "low", "high") if key in column]
    assert {name for name, _ in told} >= {"n", "k", "s", "t", "d", "i", "v1", "v2", "g", "ids"}
    for name, value in told:
        encoded = predictor.encode([ROW | {name: value}])
        assert not encoded.notes, (name, value)
    assert (columns["d"]["format"], columns["d"]["first"], columns["d"]["last"]) == ("%d.%m.%Y", "01.01.2021", "27.09.2021")
    assert columns["i"]["format"] == "ISO 8601"
    assert columns["v2"]["type"] == "number"
    assert columns["v2"]["unit"] == "that of the training data"
    assert (columns["k"]["unknown"], columns["s"]["unknown"], columns["g"]["separator"]) == ("index", "error", ";")


@pytest.mark.parametrize(
    ("name", "cell", "message"),
    [
        ("s", "c", "'c' is not among the 2 classes"),
        ("d", "2021-03-07", "no date of the form %d.%m.%Y"),
        ("d", None, "the cell is missing"),
        ("n", "much", "no finite number"),
        ("n", 1e308 * 10, "no finite number"),
        ("n", [1], "not a list"),
        ("k", {"a": 1}, "not an object"),
        ("t", "maybe", "neither true nor false"),
    ],
)
def test_what_a_column_does_not_take_is_told_with_its_place(predictor: Predictor, name: str, cell: Any, message: str) -> None:
    with pytest.raises(PeError, match=message) as found:
        predictor.rows([ROW, ROW | {name: cell}], "the request")
    assert "the request, row 2" in found.value.message


def test_a_column_that_is_missing_is_named(predictor: Predictor) -> None:
    with pytest.raises(PeError, match="the request, row 1: there is no column 'k'"):
        predictor.rows([{name: cell for name, cell in ROW.items() if name != "k"}], "the request")


def test_values_that_training_never_saw_are_told_as_predict_tells_them(predictor: Predictor) -> None:
    rows = [ROW, ROW | {"k": "neither", "g": "p;z", "ids": "u/x"}]
    found = predictor.encode(rows).notes
    notes = [note for notes in found.values() for note in notes]
    assert predictor.notes(rows, found) == notes
    assert predictor.notes(rows[:1], found) == []
    assert notes[0] == "1 cell of column 'k' with the index of unknown values: 'neither' in row 2 is no class of the training rows"
    assert any("'z' in row 2" in note for note in notes)
    assert any("'x' is no class" in note for note in notes)


def test_a_row_has_the_same_bits_in_every_batch(predictor: Predictor) -> None:
    rows = [ROW | {"n": i / 7, "k": "odd" if i % 2 else "even", "ids": "u/v/w/u"[: 1 + 2 * (i % 4)]} for i in range(70)]
    alone = [predictor.rows([row])[0] for row in rows]
    for size in (2, 3, 17, 64, 70):
        found = [answer for start in range(0, 70, size) for answer in predictor.rows(rows[start : start + size])]
        assert found == alone
    encoded = predictor.encode(rows)
    assert [answer for i in range(0, 70, 9) for answer in predictor.answers(encoded, i, min(i + 9, 70))] == alone


def test_sequences_that_take_much_memory_are_refused(predictor: Predictor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictor, "memory", 1 << 20)
    assert predictor.rows([ROW])
    with pytest.raises(PeError, match="sequences of 100,000 items together take"):
        predictor.rows([ROW | {"ids": "u/" * 100_000}])
    monkeypatch.setattr(predictor, "memory", None)
    assert predictor.rows([ROW | {"ids": "u/" * 100_000}])


# --- pictures ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def seer(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    """A model of pictures of 4 x 6 pixels."""
    from pe_cli.cli.main import run as run_command_line

    base = tmp_path_factory.mktemp("pictures")
    rows = ["photo,kind"]
    for i in range(4):
        Image.new("RGB", (12, 8), (60 * i, 9, 9)).save(base / f"{i}.png")
        rows.append(f"{i}.png,{'ab'[i % 2]}")
    (base / "t.csv").write_text("\n".join(rows) + "\n")
    (base / "model.yaml").write_text(
        "feeds: {photo: {shape: [3, 4, 6]}, kind: {shape: [1], dtype: int64}}\nlayers:\n  logits: {type: fc, input: photo, size: 2}\n"
        "  xent: {type: softmax_with_cross_entropy, logits: logits, label: kind}\n  loss: {type: mean, x: xent}\nfetches: [loss]\n"
    )
    (base / "c.yaml").write_text(
        "model: model.yaml\ndata:\n  source: {reader: images, table: t.csv, path: photo}\n"
        "  columns: {photo: {type: image, size: [4, 6]}, kind: {type: category}}\n"
        "train: {loss: loss, epochs: 2, batch_size: 4, optimizer: {type: SGD, learning_rate: 0.1}}\n"
        f"executor: {{devices: 1, seed: 1}}\noutput: {{dir: {base / 'runs'}}}\n"
    )
    assert run_command_line(["train", str(base / "c.yaml"), "--quiet"]) == 0
    return Predictor(open_trained(next((base / "runs").iterdir()), (), None)[0])


def file_of(image: Image.Image, kind: str, **options: Any) -> bytes:
    made = io.BytesIO()
    image.save(made, kind, **options)
    return made.getvalue()


def png(width: int, height: int, pixels: bytes = b"") -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")


def seen(seer: Predictor, content: bytes, memory: int = 96 << 20) -> tuple[dict[str, Any], list[str]]:
    rows, notes = with_pixels([{"photo": content}], seer, memory)
    return seer.rows(rows)[0], notes


PHOTO = Image.effect_noise((40, 30), 60).convert("RGB")


@pytest.mark.parametrize("kind", ["png", "jpeg", "webp", "bmp"])
def test_a_picture_is_seen_as_a_file_is_and_one_that_is_cut_off_never(
    seer: Predictor, kind: str, tmp_path: Path, bench: Bench
) -> None:
    content = file_of(PHOTO, kind)
    found, _ = seen(seer, content)
    (tmp_path / f"x.{kind}").write_bytes(content)
    run = seer._job.run.path.parent
    (folder,) = (run / "runs").iterdir() if (run / "runs").is_dir() else (run,)
    assert bench.run("predict", folder, tmp_path / f"x.{kind}", "--out", tmp_path / "said.jsonl") == 0, bench.err
    said = json.loads((tmp_path / "said.jsonl").read_text())
    assert {name: said[name] for name in found} == found
    text = base64.b64encode(content).decode()
    assert seer.rows(with_pixels([{"photo": f"data:image/{kind};base64,{text}"}], seer, 1 << 20)[0])[0] == found
    for size in {*range(0, len(content), max(1, len(content) // 60)), len(content) - 1, len(content) - 2, len(content) - 12}:
        with pytest.raises(Refusal) as refused:
            seen(seer, content[:size])
        assert refused.value.status == 400, size


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: png(1, 80_000_000), id="a column of 80 million pixels"),
        pytest.param(lambda: png(80_000_000, 1), id="a row of 80 million pixels"),
        pytest.param(lambda: png(9000, 9000, bytes(1000)), id="81 million pixels"),
        pytest.param(lambda: file_of(Image.new("L", (6000, 6000)), "jpeg", progressive=True), id="a progressive JPEG"),
        pytest.param(lambda: scans(), id="a JPEG of very many scans"),
    ],
)
def test_a_picture_that_would_take_much_memory_is_not_decoded(
    seer: Predictor, make: Callable[[], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    content = make()
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda self: pytest.fail("it is decoded"))
    with pytest.raises(Refusal) as refused:
        seen(seer, content)
    assert refused.value.status == 413


def scans() -> bytes:
    content = file_of(PHOTO, "jpeg", progressive=True)
    last = content.rfind(b"\xff\xda")
    return content[:-2] + content[last:-2] * 100 + content[-2:]


def test_a_large_photo_is_seen_in_little_memory(seer: Predictor) -> None:
    photo = Image.new("RGB", (4000, 3000), (200, 9, 9))
    assert seen(seer, file_of(photo, "jpeg"), 8 << 20)[0]["kind"] in ("a", "b")


def test_what_happens_to_a_picture_is_told(seer: Predictor) -> None:
    (note,) = seen(seer, file_of(PHOTO.convert("RGBA"), "png"))[1]
    assert note == "1 pictures have an alpha channel, which is left out (mode: rgba keeps it)"


@pytest.mark.parametrize("cell", ["../t.csv", "0.png", "/etc/passwd", 3, None, True, ["x"], "data:image/png;base64,x"])
def test_a_cell_names_no_file(seer: Predictor, cell: Any) -> None:
    with pytest.raises(Refusal, match="base64 text"):
        with_pixels([{"photo": cell}], seer, 1 << 20)


def test_the_example_of_a_picture_is_taken(seer: Predictor) -> None:
    rows = read_rows("application/json", json.dumps(seer.schema()["example"]).encode(), seer)
    assert seer.rows(with_pixels(rows, seer, 1 << 20)[0])[0]["kind"] in ("a", "b")
