"""A model with fewer rows or logits than the data has indices is refused before it trains."""

from __future__ import annotations

from pathlib import Path

import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.session.job import Job

MODEL = """\
name: m
feeds:
  color: {{shape: [1], dtype: int64}}
  words: {{shape: [1], dtype: int64, lod_level: 1}}
  label: {{shape: [1], dtype: int64}}
layers:
  color_row: {{type: embedding, input: color, size: [{colors}, 2]}}
  words_row: {{type: embedding, input: words, size: [{words}, 2]}}
  text: {{type: sequence_pool, pool_type: max}}
  all: {{type: concat, input: [color_row, text], axis: 1}}
  logits: {{type: fc, size: {classes}}}
  xent: {{type: softmax_with_cross_entropy, logits: logits, label: label}}
  loss: {{type: mean, x: xent}}
fetches: [loss]
"""
CONFIG = """\
model: model.yaml
data:
  train: {reader: table, files: rows.csv}
  columns:
    color: {type: category}
    words: {type: text, tokens: words, min_count: 1}
    kind: {type: category}
feeds: {label: kind}
train: {loss: loss, epochs: 1, batch_size: 4, optimizer: {type: SGD, learning_rate: 0.1}}
"""


def opened(folder: Path, colors: int, words: int, classes: int, config: str = CONFIG, model: str = MODEL) -> Job:
    """Make the loader of a model over 3 colours, 4 words and 2 kinds."""
    rows = ["color,words,kind", "red,one two,a", "green,two three,b", "blue,four,a", "red,one,b"]
    (folder / "rows.csv").write_text("\n".join(rows) + "\n")
    (folder / "model.yaml").write_text(model.format(colors=colors, words=words, classes=classes))
    (folder / "run.yaml").write_text(config)
    job = Job.open(folder / "run.yaml")
    job.data.loader("train", job.program, 4)
    return job


@pytest.mark.parametrize(
    "sizes", [pytest.param((5, 6, 2), id="as many as there are"), pytest.param((50, 60, 20), id="more")]
)
def test_a_model_that_is_large_enough_is_taken(tmp_path, sizes):
    opened(tmp_path, *sizes)


@pytest.mark.parametrize(
    ("sizes", "message", "hint"),
    [
        pytest.param(
            (4, 6, 2),
            "the embedding has 4 rows, and column 'color' has 5 indices: 3 classes of the training rows, and unknown and missing values",
            "set size: [5, 2]",
            id="an embedding without a row for missing cells",
        ),
        pytest.param(
            (5, 5, 2),
            "the embedding has 5 rows, and column 'words' has 6 tokens",
            "set size: [6, 2]",
            id="too few words",
        ),
        pytest.param(
            (5, 6, 1),
            "softmax_with_cross_entropy tells 1 classes apart, and column 'kind' has 2 classes of the training rows",
            "set size: 2 on the layer that makes its logits",
            id="too few classes",
        ),
    ],
)
def test_what_is_too_small_is_told_at_its_place(tmp_path, sizes, message, hint):
    with pytest.raises(PeError) as caught:
        opened(tmp_path, *sizes)
    assert (caught.value.message, caught.value.hint, caught.value.code) == (message, hint, ExitCode.USAGE)
    assert "model.yaml" in caught.value.render()


def test_all_that_is_too_small_is_told_at_once(tmp_path):
    with pytest.raises(PeError) as caught:
        opened(tmp_path, 2, 2, 1)
    assert caught.value.render().count("error:") == 3


def test_classes_of_a_one_hot_feed_are_counted(tmp_path):
    model = MODEL.replace("label: {{shape: [1], dtype: int64}}", "label: {{shape: [1]}}").replace(
        "label: label}}", "label: label, soft_label: true}}"
    )
    config = CONFIG.replace("feeds: {label: kind}", "feeds: {label: {from: kind, one_hot: 1}}")
    with pytest.raises(
        PeError, match="feed 'label' has one_hot: 1, and column 'kind' has 2 classes of the training rows"
    ):
        opened(tmp_path, 5, 6, 1, config, model)


def test_columns_that_are_rows_of_numbers_have_no_indices(tmp_path):
    config = CONFIG.replace("color: {type: category}", "color: {type: category, encode: one_hot}")
    model = MODEL.replace("color: {{shape: [1], dtype: int64}}", "color: {{shape: [5]}}").replace(
        "{{type: embedding, input: color, size: [{colors}, 2]}}", "{{type: fc, input: color, size: 2}}"
    )
    opened(tmp_path, 0, 6, 2, config, model)


def test_an_embedding_in_a_condition_is_seen(tmp_path):
    blocks = """blocks:
  up:   {{args: {{of: ~}}, layers: {{row: {{type: embedding, input: "${{of}}", size: [{colors}, 2]}}}}}}
  down: {{args: {{of: ~}}, layers: {{row: {{type: embedding, input: "${{of}}", size: [50, 2]}}}}}}
layers:
  one: {{type: fill_constant, shape: [1], dtype: float32, value: 1.0}}
  two: {{type: fill_constant, shape: [1], dtype: float32, value: 2.0}}
  more: {{type: greater_than, x: two, y: one}}
"""
    row = "  color_row: {{type: embedding, input: color, size: [{colors}, 2]}}\n"
    assert row in MODEL
    model = MODEL.replace("layers:\n", blocks).replace(row, "  color_row: {{if: more, then: up, else: down, of: color}}\n")
    opened(tmp_path, 5, 60, 20, model=model)
    with pytest.raises(PeError, match="the embedding has 4 rows, and column 'color' has 5 indices"):
        opened(tmp_path, 4, 60, 20, model=model)
