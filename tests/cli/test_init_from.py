"""pe init --from: whatever the data is like, the files that are written are checked without a mistake and train."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from pe_cli.cli.main import run as run_command_line
from pe_cli.config.load import load_run
from pe_cli.config.nodes import to_data
from tests.cli.conftest import ROOT, Pe
from tests.rotation import of_today

DATA = ROOT / "configs/data"


def table(path: Path, columns: Mapping[str, Sequence[object]], delimiter: str = ",") -> Path:
    """Write a CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, delimiter=delimiter)
        out.writerow(list(columns))
        out.writerows(zip(*columns.values(), strict=True))
    return path


@pytest.fixture
def begin(pe: Pe, tmp_path: Path) -> Callable[..., Path]:
    """Return what writes a starter, checks it, and trains it for two steps; the config is returned."""

    def call(source: Path, *options: object) -> Path:
        config = tmp_path / "made/run.yaml"
        said = pe("init", config, "--from", source, *options, "--force")
        assert said.code == 0, said.err
        checked = pe("check", config)
        assert checked.code == 0, checked.err
        assert "error" not in checked.err
        trained = pe("train", config, "--quiet", "-o", "train.steps=2", "-o", f"output.dir={tmp_path / 'runs'}")
        assert trained.code == 0, trained.err
        looked = pe("data", config, "--rows", 2)
        assert looked.code == 0, looked.err
        return config

    return call


def columns_of(config: Path) -> dict[str, dict[str, object]]:
    """Return the columns that a config declares."""
    return {name: to_data(spec.value) for name, spec in load_run(config).preparation.columns.items()}


@pytest.mark.parametrize(
    ("source", "options"),
    of_today([
        pytest.param("people.csv", ["--target", "income"], id="a table into classes"),
        pytest.param("flats.csv", ["--target", "price_eur"], id="a table into a number"),
        pytest.param("visitors.csv", ["--target", "visitors"], id="series"),
        pytest.param("ratings.csv", ["--target", "rating"], id="ratings as classes"),
        pytest.param("ratings.csv", ["--target", "rating", "--task", "number"], id="ratings as a number"),
        pytest.param("reviews.csv", ["--target", "opinion"], id="texts into classes"),
        pytest.param("iris.csv", ["--target", "species"], id="numbers into classes"),
        pytest.param("shapes", [], id="a folder of pictures per class"),
        pytest.param("tales.txt", [], id="a text"),
    ], 3),
)  # fmt: skip
def test_data_that_ships_trains(begin, source, options):
    if source == "shapes":
        pytest.importorskip("PIL")
    begin(DATA / source, *options)


def test_a_trained_starter_is_good(pe, tmp_path):
    config = tmp_path / "iris.yaml"
    assert pe("init", config, "--from", DATA / "iris.csv", "--target", "species").code == 0
    said = pe("train", config, "--quiet", "-o", f"output.dir={tmp_path / 'runs'}")
    assert said.code == 0, said.err
    # three classes of flowers, of which a nearest neighbour finds about 0.95
    assert float(said.out.split("eval/acc ")[1].split()[0]) > 0.9


# --- columns of all sorts ---------------------------------------------------------------------------------------------


def messy(rows: int, rng: np.random.Generator) -> dict[str, list[object]]:
    """Return columns as they are found in the wild."""
    first = np.datetime64("2021-03-01")
    days = [str(first + int(day)) for day in rng.integers(0, 900, rows)]
    return {
        "Unnamed: 0": list(range(rows)),
        "customer id": [f"C-{i:05}" for i in rng.permutation(rows)],
        "größe (cm)": [f"{value:.1f}" for value in rng.normal(170, 10, rows)],
        "yes": [["yes", "no"][i % 2] for i in range(rows)],
        "null": ["" if rng.random() < 0.1 else f"{value:.3f}" for value in rng.normal(size=rows)],
        "a: b, {c}": [["north, east", 'the "old" town', "süd", "nil", "3"][int(i)] for i in rng.integers(0, 5, rows)],
        "日本": [["い", "ろ", "は"][int(i)] for i in rng.integers(0, 3, rows)],
        "loss": [f"{value:.2f}" for value in rng.exponential(3, rows)],
        "date": ["" if rng.random() < 0.05 else day for day in days],
        "german date": [f"{day[8:]}.{day[5:7]}.{day[:4]}" for day in days],
        "constant": ["x"] * rows,
        "empty": [""] * rows,
        "tags": [
            "|".join(rng.choice(["a", "b", "c", "d"], int(rng.integers(0, 4)), replace=False)) for _ in range(rows)
        ],
        "income": [["?", f"{value:.0f}"][int(rng.random() > 0.1)] for value in rng.normal(4e4, 1e4, rows)],
        "outlier": [1e9 if i == 5 else float(i % 7) for i in range(rows)],
        "amount": [
            f"{int(i):,}.50".replace(",", "") if i % 2 else f"1,{int(i):03}.5" for i in rng.integers(0, 900, rows)
        ],
        "note": [
            f"the {'good' if i % 3 else 'bad'} one, seen {i} times in {int(rng.integers(99))} days" for i in range(rows)
        ],
        "${x}": [float(i % 5) for i in range(rows)],
        "#hash ": [float(i % 11) for i in range(rows)],
        "x": [i % 2 for i in range(rows)],
        "label": [["low", "high", "Mittel: ja"][i % 3] for i in range(rows)],
    }


@pytest.fixture
def wild(tmp_path: Path, rng: np.random.Generator) -> Path:
    return table(tmp_path / "wild data.csv", messy(300, rng), ";")


def test_a_messy_table_trains(begin, wild):
    found = columns_of(begin(wild, "--target", "label"))
    kinds = {name: column["type"] for name, column in found.items()}
    assert kinds == {
        "größe (cm)": "number", "yes": "bool", "null": "number", "a: b, {c}": "category", "日本": "category", "loss": "number",
        "date": "date", "german date": "date", "tags": "bag", "income": "number", "outlier": "number", "amount": "number", "note": "text",
        "${x}": "number", "#hash": "number", "x": "bool", "label": "category",
    }  # fmt: skip
    assert found["null"]["missing"] == "median"
    assert found["german date"]["format"] == "%d.%m.%Y"
    assert found["date"]["missing"] == "zero"
    assert found["outlier"]["clip"][1] < 1e9


@pytest.mark.parametrize("target", of_today(["größe (cm)", "loss", "日本", "a: b, {c}", "${x}", "yes"], 3))
def test_any_column_of_it_can_be_the_target(begin, wild, target):
    assert target in columns_of(begin(wild, "--target", target))


def test_what_is_left_out_is_said_with_the_reason(pe, wild, tmp_path):
    said = pe("init", tmp_path / "run.yaml", "--from", wild, "--target", "label")
    text = (tmp_path / "run.yaml").read_text()
    for name, why in {
        "Unnamed: 0": "another whole number in every row: an id",
        "customer id": "300 different texts in 300 rows",
        "constant": "it is 'x' in every row",
        "empty": "every cell is missing",
    }.items():
        assert f"left out: '{name}': {why}" in said.out
        assert f"# Left out: '{name}': {why}" in text


def test_a_mark_for_missing_numbers_is_told_to_the_reader(begin, wild):
    config = begin(wild, "--target", "label")
    assert to_data(load_run(config).data["train"].options)["missing"][-1] == "?"


def test_classes_of_few_rows_are_known_everywhere(begin, tmp_path, rng):
    kinds = ["a"] * 60 + ["b"] * 55 + [f"rare {i}" for i in range(12)]
    path = table(tmp_path / "t.csv", {"x": rng.normal(size=len(kinds)).round(4).tolist(), "kind": kinds})
    found = columns_of(begin(path, "--target", "kind"))
    assert sorted(found["kind"]["classes"]) == sorted(set(kinds))


def test_rows_in_the_order_of_a_date_have_a_hint(begin, tmp_path, rng):
    days = [str(np.datetime64("2024-01-01") + i) for i in range(60)]
    columns = {"day": days, "x": rng.normal(size=60).round(4).tolist(), "y": rng.normal(size=60).round(4).tolist()}
    hint = "# Rows are in the order of 'day'. To evaluate with the latest: {eval: 0.15, time: day, seed: 1}"
    assert hint in begin(table(tmp_path / "t.csv", columns), "--target", "y", "--task", "number").read_text()
    columns["day"] = [days[int(i)] for i in rng.permutation(60)]
    assert "To evaluate with the latest" not in begin(table(tmp_path / "t.csv", columns), "--target", "y", "--task", "number").read_text()


def test_column_names_that_layers_have_do_no_harm(begin, tmp_path, rng):
    names = ["x", "label", "all", "hidden1", "loss", "prob", "value", "estimate", "xent_row", "x_row"]
    columns = {name: [f"{name[0]}{int(i)}" for i in rng.integers(0, 4, 60)] for name in names}
    begin(table(tmp_path / "t.csv", {**columns, "y": rng.normal(size=60).round(4).tolist()}), "--target", "y")


def test_a_header_alone_and_names_of_numbers(begin, pe, tmp_path, rng):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n")
    said = pe("init", tmp_path / "run.yaml", "--from", path, "--target", "b")
    assert said.code == 3
    rows = "\n".join(f"{a:.4f},{b:.4f},{int(a > b)}" for a, b in rng.normal(size=(50, 2)))
    path.write_text(rows + "\n")
    assert list(columns_of(begin(path, "--target", "2"))) == ["0", "1", "2"]


def test_several_files_and_other_formats(begin, tmp_path, rng):
    folder = tmp_path / "parts"
    folder.mkdir()
    for i in range(2):
        kinds = ["a", "b"] * 20
        table(folder / f"{i}.csv", {"x": rng.normal(size=40).round(4).tolist(), "kind": kinds})
    begin(folder, "--target", "kind")
    lines = [f'{{"x": {value:.4f}, "kind": "{"ab"[i % 2]}"}}' for i, value in enumerate(rng.normal(size=40))]
    (tmp_path / "t.jsonl").write_text("\n".join(lines) + "\n")
    begin(tmp_path / "t.jsonl", "--target", "kind")


# --- texts and pictures -----------------------------------------------------------------------------------------------


def test_a_folder_of_texts_per_class_trains(begin, tmp_path):
    for kind in ("ham", "spam"):
        folder = tmp_path / "mails" / kind
        folder.mkdir(parents=True)
        for i in range(12):
            (folder / f"{i}.txt").write_text(f"this is {kind} number {i} and has some more words\n" * 2)
    found = columns_of(begin(tmp_path / "mails"))
    assert {name: column["type"] for name, column in found.items()} == {"text": "text", "label": "category"}


def test_pictures_of_several_sizes_and_one_that_is_broken_train(begin, tmp_path, rng):
    pil = pytest.importorskip("PIL.Image")
    for kind in ("day", "night"):
        folder = tmp_path / "photos" / kind
        folder.mkdir(parents=True)
        for i in range(8):
            pixels = rng.integers(0, 255, (40 + i, 50, 3), dtype=np.uint8)
            pil.fromarray(pixels).save(folder / f"{i}.png")
    (tmp_path / "photos/day/readme.txt").write_text("none")
    shutil.copy(tmp_path / "photos/day/readme.txt", tmp_path / "photos/day/broken.png")
    found = columns_of(begin(tmp_path / "photos"))
    assert found["image"] == {"type": "image", "size": [32, 32], "scale": "standard", "broken": "skip"}


def test_a_picture_that_is_cut_off_is_left_out_and_named(pe, tmp_path, rng):
    pil = pytest.importorskip("PIL.Image")
    for kind in ("day", "night"):
        folder = tmp_path / "photos" / kind
        folder.mkdir(parents=True)
        for i in range(8):
            pil.fromarray(rng.integers(0, 255, (32, 32, 3), dtype=np.uint8)).save(folder / f"{i}.png")
    cut = tmp_path / "photos/night/3.png"
    cut.write_bytes(cut.read_bytes()[:500])
    done = pe("init", tmp_path / "run.yaml", "--from", tmp_path / "photos")
    assert "pictures that cannot be read are left out, 1 of 16" in done.out
    assert f"{cut} is cut off or damaged" in done.out


def test_gray_pictures_have_one_channel(begin, tmp_path, rng):
    pil = pytest.importorskip("PIL.Image")
    for kind in ("0", "1"):
        (tmp_path / "digits" / kind).mkdir(parents=True)
        for i in range(8):
            pil.fromarray(rng.integers(0, 255, (28, 28), dtype=np.uint8)).save(tmp_path / "digits" / kind / f"{i}.png")
    assert columns_of(begin(tmp_path / "digits"))["image"]["mode"] == "gray"


# --- what cannot be begun with ----------------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path, rng: np.random.Generator) -> Path:
    kinds = ["a", "b"] * 20
    gaps = ["" if i == 4 else "x" for i in range(40)]
    columns = {
        "x": rng.normal(size=40).round(4).tolist(),
        "kind": kinds,
        "gap": gaps,
        "one": ["z"] * 40,
        "name": [f"n{i}" for i in range(40)],
    }
    return table(tmp_path / "small.csv", columns)


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        pytest.param(
            [],
            2,
            "--target COLUMN, the column that is to be predicted; the columns are: x, kind, gap, one, name",
            id="no target",
        ),
        pytest.param(
            ["--target", "kinds"], 3, "the data has no column 'kinds'; the columns are: x, kind", id="a misspelt target"
        ),
        pytest.param(
            ["--target", "gap"], 3, "small.csv:6:11: error: column 'gap': the target is missing", id="a missing target"
        ),
        pytest.param(
            ["--target", "one"], 3, "the target is 'z' in every row: there is nothing to learn", id="a constant target"
        ),
        pytest.param(["--target", "name"], 3, "the target has 40 different texts in 40 rows", id="an id as target"),
        pytest.param(
            ["--target", "kind", "--task", "number"],
            3,
            "'a' is no number, and --task number predicts numbers",
            id="no number",
        ),
    ],
)
def test_a_table_that_cannot_be_learned_from_is_told(pe, tmp_path, small, options, code, message):
    said = pe("init", tmp_path / "run.yaml", "--from", small, *options)
    assert (said.code, message in said.err) == (code, True), said.err
    assert not (tmp_path / "run.yaml").exists()


@pytest.mark.parametrize(
    ("name", "content", "options", "code", "message"),
    [
        pytest.param(
            "few.csv",
            "a,b\n1,x\n2,y\n",
            ["--target", "b"],
            3,
            "the table has 2 rows, and a model needs at least 10",
            id="few rows",
        ),
        pytest.param("t.npz", "", [], 2, "holds arrays", id="arrays"),
        pytest.param("t.png", "", [], 2, "is one picture", id="one picture"),
        pytest.param(
            "t.txt", "short", [], 3, "has 5 bytes of text, and a model needs 2,000 at least", id="a short text"
        ),
    ],
)
def test_other_data_that_cannot_be_begun_with(pe, tmp_path, name, content, options, code, message):
    (tmp_path / name).write_text(content)
    said = pe("init", tmp_path / "run.yaml", "--from", tmp_path / name, *options)
    assert (said.code, message in said.err) == (code, True), said.err


def test_a_file_that_is_not_there_has_a_close_name(pe, tmp_path, small):
    said = pe("init", tmp_path / "run.yaml", "--from", tmp_path / "smal.csv", "--target", "kind")
    assert said.code == 3
    assert "did you mean 'small.csv'?" in said.err


def test_target_needs_data(pe, tmp_path):
    said = pe("init", tmp_path / "run.yaml", "--target", "kind")
    assert (said.code, "--target goes with --from DATA" in said.err) == (2, True)


def test_paths_start_at_the_config(tmp_path, small, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert run_command_line(["init", "deep/run.yaml", "--from", "../small.csv", "--target", "kind"]) == 0
    assert to_data(load_run(Path("deep/run.yaml")).data["train"].options)["files"] == "../../small.csv"


def dates(step: np.timedelta64, count: int) -> list[str]:
    return [str(np.datetime64("2021-01-01T00:00") + i * step) for i in range(count)]


@pytest.mark.parametrize(
    ("days", "length", "horizon"),
    [
        pytest.param(dates(np.timedelta64(1, "h"), 600), 48, 24, id="hours"),
        pytest.param(dates(np.timedelta64(7, "D"), 200), 26, 4, id="weeks"),
        pytest.param([f"{2000 + i // 12}-{i % 12 + 1:02d}-01" for i in range(240)], 24, 12, id="months"),
        pytest.param(dates(np.timedelta64(1, "D"), 60), 7, 1, id="few days"),
    ],
)
def test_one_series_whose_columns_are_called_as_windows_are(begin, tmp_path, rng, days, length, horizon):
    columns = {"past": days, "next": rng.normal(size=len(days)).tolist(), "before": rng.integers(0, 9, len(days)).tolist()}
    config = begin(table(tmp_path / "t.csv", columns), "--target", "next")
    found = to_data(load_run(config).data["train"].options)
    assert (found["length"], found["horizon"], found.get("key")) == (length, horizon, None)


def test_the_task_decides_whether_it_is_a_series(begin, pe, tmp_path, rng):
    columns = {"day": dates(np.timedelta64(1, "D"), 90), "a": rng.normal(size=90).tolist(), "b": rng.normal(size=90).tolist()}
    assert load_run(begin(table(tmp_path / "t.csv", columns), "--target", "a", "--task", "number")).data["train"].reader == "table"
    columns["day"][5:9] = columns["day"][0:4]
    said = pe("init", tmp_path / "x.yaml", "--from", table(tmp_path / "u.csv", columns), "--target", "a", "--task", "series")
    assert said.code == 3
    assert "holds no series: rows 1 and 6 have the same 'day'" in said.err
    words = pe("init", tmp_path / "x.yaml", "--from", DATA / "people.csv", "--target", "income", "--task", "series")
    assert "holds no series: 'income' is no column of numbers" in words.err
