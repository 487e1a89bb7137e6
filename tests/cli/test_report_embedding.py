"""pe report --embedding: rows along the principal axes of a layer."""

from __future__ import annotations

import re

import numpy as np
import pytest
from sklearn.decomposition import PCA

from pe_cli.metrics.principal_axes import principal_axes
from tests.cli.conftest import Pe


@pytest.mark.parametrize("shape", [(200, 5), (3, 40), (50, 2)], ids=["many rows", "many numbers", "two numbers"])
def test_the_axes_are_those_of_scikit_learn(rng, shape):
    values = rng.normal(size=shape) * np.linspace(1, 3, shape[1]) + 7
    places, shares = principal_axes(values)
    theirs = PCA(2).fit(values)
    np.testing.assert_allclose(np.abs(places), np.abs(theirs.transform(values)), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(shares, theirs.explained_variance_ratio_, rtol=1e-8)


def test_one_number_and_equal_rows(rng):
    places, shares = principal_axes(rng.normal(size=(9, 1)))
    assert (places[:, 1].tolist(), shares) == ([0.0] * 9, (1.0, 0.0))
    assert principal_axes(np.ones((4, 3)))[1] == (0.0, 0.0)


def trained(pe: Pe, folder, task: str):
    rng = np.random.default_rng(2)
    kinds = rng.integers(0, 3, 300)
    numbers = rng.normal(size=(300, 3)) + np.stack([2 * (kinds == 0), 2 * (kinds == 1), 0 * kinds], axis=1)
    rows = [f"{x:.3f},{y:.3f},{z:.3f},{'abc'[k]}" for k, (x, y, z) in zip(kinds, numbers, strict=True)]
    (folder / "t.csv").write_text("u,v,w,kind\n" + "\n".join(rows) + "\n")
    what = ("--task", "anomaly") if task == "anomaly" else ("--target", "w" if task == "number" else "kind")
    made = pe("init", folder / "c.yaml", "--from", folder / "t.csv", *what)
    assert made.code == 0, made.err
    run = pe("train", folder / "c.yaml", "--quiet", "-o", "train.epochs=3", "-o", f"output.dir={folder}/runs")
    assert run.code == 0, run.err
    return next((folder / "runs").iterdir())


@pytest.mark.parametrize(("task", "layer", "said"), [
    pytest.param("classes", "hidden2", "colours are those of &#x27;kind&#x27;", id="classes"),
    pytest.param("number", "hidden2", "colours are those of &#x27;w&#x27;", id="ranges of a number"),
    pytest.param("anomaly", "code", "1 number along the two axes", id="no target"),
])  # fmt: skip
def test_a_picture(pe: Pe, tmp_path, task, layer, said):
    run = trained(pe, tmp_path, task)
    assert pe("report", run, "--embedding", layer).code == 0
    page = (run / "report.html").read_text()
    section = page[page.index("plot-embedding") : page.index("</figure>", page.index("plot-embedding"))]
    assert said in page.replace("&#39;", "&#x27;")
    drawn = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', section[section.index('aria-label="embedding"') :])
    rows = int(re.search(r"of (\d+) rows of data\.eval", page)[1])  # type: ignore[index]
    assert len(drawn) == rows > 20
    if task == "classes":
        assert all(f">{name}</span>" in section for name in "abc")


def test_layers_without_numbers_for_every_row(pe: Pe, tmp_path):
    run = trained(pe, tmp_path, "classes")
    wrong = pe("report", run, "--embedding", "loss")
    assert (wrong.code, "has not the same numbers for every row" in wrong.err) == (2, True), wrong.err
    wrong = pe("report", run, "--embedding", "hiden2")
    assert (wrong.code, "there is no variable 'hiden2'" in wrong.err) == (2, True), wrong.err
