"""A table with several targets of different kinds, from two commands to answers in the units of the file."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Pe
from tests.rotation import on_its_day

NAMES = ["visits", "rate", "price", "level"]


def made(path: Path, rows: int = 300) -> dict[str, np.ndarray]:
    """Write a table whose targets follow from two numbers and a class; return the targets."""
    rng = np.random.default_rng(0)
    a, b, g = rng.normal(size=rows), rng.uniform(-2, 2, rows), rng.choice(["u", "v"], rows)
    line = 0.6 * a + 0.5 * b + 0.5 * (g == "u")
    found = {
        "visits": rng.poisson(np.exp(1 + line)),
        "rate": (100 / (1 + np.exp(-line - rng.normal(0, 0.3, rows)))).round(1),
        "price": np.exp(8 + 2.2 * line + rng.normal(0, 0.3, rows)).round(2),
        "level": np.array(["low", "medium", "high"])[np.digitize(line + rng.normal(0, 0.3, rows), [-0.5, 0.7])],
    }
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["a", "b", "g", *NAMES])
        out.writerows(zip(a.round(3), b.round(3), g, found["visits"], [f"{v}%" for v in found["rate"]], found["price"], found["level"],
                          strict=True))  # fmt: skip
    return found


@on_its_day(0, of=2)
def test_targets_of_four_kinds_at_once(pe: Pe, tmp_path):
    truth = made(tmp_path / "t.csv")
    config = tmp_path / "c.yaml"
    said = pe("init", config, "--from", tmp_path / "t.csv", "--target", ",".join(NAMES))
    assert said.code == 0, said.err
    for words in ("'visits' is taken for a count", "'rate' is taken for a share", "'price' is taken for a number whose logarithm is",
                  "'level' is taken for classes that have an order"):  # fmt: skip
        assert words in said.out
    trained = pe("train", config, "--quiet", "-o", "train.epochs=25", "-o", f"output.dir={tmp_path}/runs")
    assert trained.code == 0, trained.err
    for metric in ("eval/error_visits", "eval/error_rate", "eval/error_price", "eval/acc_level", "eval/kappa_level"):
        assert metric in trained.out
    (run,) = (tmp_path / "runs").iterdir()
    said = pe("predict", run, tmp_path / "t.csv", "--out", tmp_path / "o.csv")
    assert said.code == 0, said.err
    with (tmp_path / "o.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    told = {name: np.array([float(row[name]) for row in rows]) for name in NAMES[:3]}
    assert (told["visits"] > 0).all()
    assert ((told["rate"] > 0) & (told["rate"] < 100)).all()
    assert told["price"].max() <= 2 * truth["price"].max() * 1.001
    for name in NAMES[:3]:
        assert np.corrcoef(np.log(told[name]), np.log(truth[name] + 1))[0, 1] > 0.75, name
        assert 0.7 < np.median(told[name]) / np.median(truth[name]) < 1.4, "in the unit of the file"
    assert np.mean([row["level"] for row in rows] == truth["level"]) > 0.6
    _same_elsewhere(pe, run, tmp_path, rows)
    _reported(pe, run, tmp_path)


def _reported(pe: Pe, run: Path, tmp_path: Path) -> None:
    """Look at the errors by column of the report, whose means are those of the evaluation."""
    judged = pe("eval", run, "--json")
    assert judged.code == 0, judged.err
    figures = json.loads(judged.out)
    said = pe("report", run, "--out", tmp_path / "r.html")
    assert said.code == 0, said.err
    page = (tmp_path / "r.html").read_text()
    assert "Errors by column" in page
    for name in NAMES[:3]:
        found = re.search(rf"'{name}': off by ([0-9.e+]+) in the mean of 60 rows", page.replace("&#x27;", "'"))
        assert found is not None, name
        assert float(found[1]) == pytest.approx(_number(figures, f"error_{name}"), rel=1e-4)
    wrong = re.search(r"'level': ([0-9.]+)% of 60 rows are wrong", page.replace("&#x27;", "'"))
    assert wrong is not None
    assert float(wrong[1]) / 100 == pytest.approx(1 - _number(figures, "acc_level"), abs=1e-4)


def _number(figures: object, name: str) -> float:
    """Return a number of a JSON value, wherever it stands."""
    if isinstance(figures, dict):
        for key, value in figures.items():
            if key.rpartition("/")[2] == name and isinstance(value, float):
                return value
            inner = _number(value, name)
            if inner == inner:
                return inner
    return float("nan")


def _same_elsewhere(pe: Pe, run: Path, tmp_path: Path, rows: list[dict[str, str]]) -> None:
    """Compare the answers with those of the exported model."""
    onnxruntime = pytest.importorskip("onnxruntime")
    exported = pe("export", run, "--onnx", tmp_path / "m.onnx")
    assert exported.code == 0, exported.err
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    with (tmp_path / "t.csv").open(newline="") as file:
        given = list(csv.DictReader(file))
    feeds = {
        one.name: np.array([[row[one.name]] for row in given], object if "string" in one.type else np.float64)
        for one in session.get_inputs()
    }
    outputs = dict(zip([one.name for one in session.get_outputs()], session.run(None, feeds), strict=True))
    for name in NAMES[:3]:
        expected = [float(row[name]) for row in rows]
        np.testing.assert_allclose(outputs[f"estimate_{name}"][:, 0], expected, rtol=1e-3)
    assert outputs["prob_level_label"].reshape(-1).tolist() == [row["level"] for row in rows]
    facts = session.get_modelmeta().custom_metadata_map
    assert set(json.loads(facts["pe.units"])) == {"estimate_rate", "estimate_price"}


def test_what_several_targets_do_not_go_with(pe: Pe, tmp_path):
    made(tmp_path / "t.csv", 60)
    init = ["init", tmp_path / "c.yaml", "--from", tmp_path / "t.csv", "--target"]
    for options, message in (
        (["visits,nope"], "the data has no column 'nope'"),
        (["visits,visits"], "--target names 'visits' twice"),
        (["visits,rate", "--task", "series"], "--task series forecasts one target"),
        (["visits,level", "--positive", "low"], "--positive 'low' is about one target"),
        (["visits,rate", "--drop", "rate"], "'rate' is the target"),
    ):
        said = pe(*init, *options)
        assert said.code in (2, 3)
        assert message in said.err
        assert "hint" in said.err
