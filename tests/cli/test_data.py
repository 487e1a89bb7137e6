"""pe data: what it prints, as text, JSON and a page; and what pe report tells of the columns of a run."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from pe_cli.cli.data import _facts
from pe_cli.core.survey_figures import ClassShare, ColumnFacts, Figures
from tests.cli.conftest import ROOT, Pe

CONFIGS = ROOT / "configs"
PEOPLE = pd.read_csv(CONFIGS / "data/people.csv")


class Page(HTMLParser):
    """Collects the tags of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def told(pe: Pe, config: Path, *options: object) -> dict:
    said = pe("data", config, "--json", *options)
    assert said.code == 0, said.err
    return json.loads(said.out)


def test_a_table_is_told_as_pandas_has_it(pe):
    found = told(pe, CONFIGS / "people.yaml", "--rows", 3)
    parts = {part["name"]: part["rows"] for part in found["parts"]}
    assert parts == {"train": 4800, "eval": 600, "test": 600}
    columns = {column["name"]: column for column in found["columns"]}
    assert set(columns) == set(PEOPLE.columns)
    assert sum(columns["age"]["missing"].values()) == PEOPLE["age"].isna().sum()
    shares = {
        share["name"]: share["rows"]
        for part in found["parts"]
        for share in part["classes"]["income"]
        if part["name"] == "eval"
    }
    assert shares == {name: round(count / 10) for name, count in PEOPLE["income"].value_counts().items()}
    assert columns["income"]["target"]
    assert columns["job"]["feeds"] == ["job"]
    assert len(found["rows"]) == 3
    for row in found["rows"]:
        cells = PEOPLE.iloc[row["row"]]
        assert row["cells"]["job"] == ("" if pd.isna(cells["job"]) else cells["job"])
        assert row["feeds"]["label"] == f"{['<=50K', '>50K'].index(cells['income'])} ({cells['income']})"


@pytest.mark.parametrize(
    ("unit", "classes", "told"),
    [
        ("value", (), ["0 to 9, mean 4, deviation 2"]),
        ("value", (ClassShare("3", 5),), []),
        ("tokens", (ClassShare("the", 5),), ["0 to 9 tokens per row, mean 4, deviation 2"]),
    ],
    ids=["numbers", "numbers that are classes", "lengths of texts"],
)
def test_figures_are_told_but_of_numbers_that_are_classes(unit: str, classes: tuple[ClassShare, ...], told: list[str]):
    column = ColumnFacts("c", "category", figures=Figures(0, 9, 4, 2), unit=unit, classes=classes)
    assert list(_facts(column, {})) == told


@pytest.mark.parametrize(("unit", "what"), [("value", "unknown"), ("tokens", "unknown tokens")])
def test_what_training_never_saw_is_told(unit: str, what: str):
    assert list(_facts(ColumnFacts("c", "category", unknown={"eval": 1200}, unit=unit), {})) == [f"{what}: 1,200 in eval"]


def test_the_text_has_bars_and_shares(pe):
    said = pe("data", CONFIGS / "people.yaml", "--rows", 1)
    assert said.code == 0, said.err
    married = PEOPLE["married"]
    assert re.search(r"yes  #{30}  \d\d\.\d%  [\d,]+\n", said.out)
    assert f"17 to {PEOPLE['age'].max():.0f}, mean" in said.out
    assert "row 1" in said.out
    assert set(married) == {"yes", "no"}


@pytest.mark.parametrize(
    ("name", "column", "kind"),
    [
        pytest.param("digits.yaml", "image", "uint8[8, 8]", id="npz"),
        pytest.param("topics.yaml", "words", "int64[1] in sequences", id="multi_slot"),
        pytest.param("resnet20_synthetic.yaml", "image", "float32[3, 32, 32]", id="synthetic"),
        pytest.param("iris.yaml", "petal_width", "float32[4]", id="csv"),
        pytest.param("char_lm.yaml", "tokens", "int64[128]", id="blocks of a text"),
        pytest.param("reviews.yaml", "review", "int64[1] in sequences", id="texts of a table"),
    ],
)
def test_every_reader_is_told(pe, name, column, kind):
    found = told(pe, CONFIGS / name, "--rows", 2)
    assert {c["name"]: c["kind"] for c in found["columns"]}[column] == kind
    assert len(found["rows"]) == 2


def test_idx_files_are_told(pe, tmp_path, rng):
    pixels = rng.integers(0, 256, (30, 4, 4), dtype="uint8")
    (tmp_path / "x").write_bytes(
        b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in pixels.shape) + pixels.tobytes()
    )
    labels = (rng.permutation(30) % 3).astype("uint8")
    (tmp_path / "y").write_bytes(b"\0\0\x08\x01" + (30).to_bytes(4, "big") + labels.tobytes())
    (tmp_path / "model.yaml").write_text(
        "name: m\nfeeds: {x: {shape: [4, 4]}, y: {shape: [1], dtype: int64}}\nlayers:\n"
        "  logits: {type: fc, input: x, size: 3}\n  xent: {type: softmax_with_cross_entropy, logits: logits, label: y}\n"
        "  loss: {type: mean, x: xent}\nfetches: [loss]\n"
    )
    (tmp_path / "run.yaml").write_text("model: model.yaml\ndata: {train: {reader: idx, files: {x: x, y: y}}}\n")
    found = told(pe, tmp_path / "run.yaml")
    columns = {column["name"]: column for column in found["columns"]}
    assert columns["x"]["figures"]["mean"] == pytest.approx(pixels.mean())
    assert {share["name"]: share["rows"] for share in columns["y"]["classes"]} == {"0": 10, "1": 10, "2": 10}


# --- the page ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["shapes.yaml", "digits.yaml"], ids=["pictures in files", "pictures in an array"])
def test_the_page_needs_nothing_beside_it(pe, tmp_path, name):
    pytest.importorskip("PIL")
    path = tmp_path / "data.html"
    said = pe("data", CONFIGS / name, "--html", path)
    assert said.code == 0, said.err
    tags = Page(path.read_text(encoding="utf-8")).tags
    images = [attrs for tag, attrs in tags if tag == "img"]
    assert [str(image["src"])[:22] for image in images] == ["data:image/png;base64,"]
    links = [value for _, attrs in tags for key, value in attrs.items() if key in ("src", "href")]
    assert all(str(link).startswith("data:") for link in links)


def test_texts_of_the_file_are_no_markup(pe, tmp_path):
    name = "<script>alert(1)</script>"
    rows = [f"{i % 9},{name} {i % 2}" for i in range(20)]
    (tmp_path / "rows.csv").write_text("\n".join([f"<b>x</b>,{name}", *rows]) + "\n")
    config = tmp_path / "run.yaml"
    assert pe("init", config, "--from", tmp_path / "rows.csv", "--target", name).code == 0
    said = pe("data", config, "--html", tmp_path / "data.html")
    assert said.code == 0, said.err
    text = (tmp_path / "data.html").read_text()
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text


# --- data that is wrong -----------------------------------------------------------------------------------------------


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    """A table with a text in a column of numbers."""
    rows = [f"{'much' if i == 7 else i},{'ab'[i % 2]}" for i in range(20)]
    (tmp_path / "rows.csv").write_text("\n".join(["size,kind", *rows]) + "\n")
    (tmp_path / "model.yaml").write_text(
        "name: m\nfeeds: {size: {shape: [1]}, kind: {shape: [1], dtype: int64}}\nlayers:\n"
        "  logits: {type: fc, input: size, size: 2}\n  xent: {type: softmax_with_cross_entropy, logits: logits, label: kind}\n"
        "  loss: {type: mean, x: xent}\nfetches: [loss]\n"
    )
    path = tmp_path / "run.yaml"
    path.write_text(
        "model: model.yaml\ndata:\n  source: {reader: table, files: rows.csv}\n  split: {eval: 0.2}\n"
        "  columns: {size: {type: number}, kind: {type: category}}\n"
    )
    return path


def test_data_that_cannot_be_trained_on_is_told_as_far_as_it_goes(pe, wrong):
    said = pe("data", wrong)
    assert said.code == 3
    assert "1 cell is no number: 'much' in row 8" in said.out
    assert "'much' is no finite number" in said.err
    asked = pe("data", wrong, "--json")
    assert (asked.code, "'much'" in json.loads(asked.out)["error"]) == (3, True)


def test_a_config_without_training_data_says_so(pe, wrong):
    said = pe("data", wrong, "-o", "data={eval: {reader: table, files: rows.csv}}")
    assert (said.code, "no data.train" in said.err) == (3, True)


def test_a_file_that_is_not_there_is_an_error_at_its_place(pe, wrong):
    said = pe("data", wrong, "-o", "data.source.files=row.csv")
    assert said.code == 3
    assert "no such file" in said.err


# --- the report of a run ----------------------------------------------------------------------------------------------


def test_a_report_tells_what_columns_learned(pe, tmp_path):
    config = CONFIGS / "people.yaml"
    said = pe("train", config, "--quiet", "-o", "train.epochs=1", "-o", f"output.dir={tmp_path / 'runs'}")
    assert said.code == 0, said.err
    run = next((tmp_path / "runs").iterdir())
    said = pe("report", run)
    assert said.code == 0, said.err
    page = (run / "report.html").read_text()
    data = page[page.index("<h2>Data</h2>") : page.index("<h2>Graph</h2>")]
    learned = json.loads((next((run / "checkpoints").glob("step-*")) / "data.json").read_text())["columns"]
    for name, column in learned.items():
        assert f"<th>{name}<br>" in data
        for label in column["state"].get("classes", [])[:1]:
            assert label.replace("<", "&lt;").replace(">", "&gt;") in data
    assert "<td>4,800</td>" in data


def test_a_report_of_pictures_has_a_sheet(pe, tmp_path):
    pytest.importorskip("PIL")
    said = pe(
        "train", CONFIGS / "shapes.yaml", "--quiet", "-o", "train.steps=1", "-o", f"output.dir={tmp_path / 'runs'}"
    )
    assert said.code == 0, said.err
    run = next((tmp_path / "runs").iterdir())
    assert pe("report", run).code == 0
    assert '<img alt="pictures of the data" src="data:image/png;base64,' in (run / "report.html").read_text()
