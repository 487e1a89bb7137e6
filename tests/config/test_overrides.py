"""-o key=value: parsed as YAML, checked like the file, with places in what was typed."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent

import pytest

from pe_cli.config.error_collector import Mistakes
from pe_cli.config.load import load_run
from pe_cli.config.nodes import MapNode, find, to_data
from pe_cli.config.overrides import apply_overrides
from pe_cli.config.parse import parse
from pe_cli.config.source import Source

RUN = """\
model: model.yaml
data: {train: {reader: npz, file: d.npz}}
feeds: {x: image}
train: {loss: y, epochs: 3, batch_size: 8, optimizer: {type: SGD, learning_rate: {type: x, values: [1, 2]}}}
"""
MODEL = """\
args: {n: 4}
feeds: {x: {shape: ["${n}"]}}
layers: {y: {type: relu, x: x}}
"""


def test_values_replace_those_of_the_file(folder: Callable[..., None]) -> None:
    folder(run=RUN, model=MODEL)
    run = load_run(
        "run.yaml",
        [
            "train.epochs=1",
            "executor.devices=2",
            "data.train.file='a=b.npz'",
            "feeds.x.scale=1e-1",
            "model.args.n=7",
            "train.optimizer.learning_rate.values.1=0.5",
            "fetches.y={every: 2 steps}",
            "output.checkpoint=",
        ],
    )
    assert run.train is not None
    assert run.train.epochs == 1
    assert run.executor.devices == 2
    assert to_data(run.data["train"].options) == {"file": "a=b.npz"}
    assert (run.feeds["x"].from_, run.feeds["x"].scale) == ("image", 0.1)
    assert run.model.feeds["x"].shape == (7,)
    assert run.train.optimizer["learning_rate"]["values"] == [1, 0.5]
    assert run.fetches["y"].every.count == 2
    assert run.output.checkpoint is None


def test_more_goes_behind_what_a_list_has(folder: Callable[..., None]) -> None:
    folder(run=RUN, model=MODEL)
    values = "train.optimizer.learning_rate.values"
    run = load_run("run.yaml", [f"{values}+=3", f"{values}+=[4, 5]", "data.augment+={flip: {p: 0.5}}", "data.augment+=crop"])
    assert run.train is not None
    assert run.train.optimizer["learning_rate"]["values"] == [1, 2, 3, 4, 5]
    assert run.preparation.augment is not None
    assert to_data(run.preparation.augment) == [{"flip": {"p": 0.5}}, "crop"]


def test_the_last_of_several_wins(folder: Callable[..., None]) -> None:
    folder(run=RUN, model=MODEL)
    run = load_run("run.yaml", ["train.epochs=1", "train.epochs=2"])
    assert run.train is not None
    assert run.train.epochs == 2


@pytest.mark.parametrize(
    ("override", "rendered"),
    [
        pytest.param(
            "train.epochs=x",
            """\
            -o train.epochs=x:1:14: error: train.epochs must be a whole number, got 'x'
                  train.epochs=x
                               ^""",
            id="a wrong value",
        ),
        pytest.param(
            "train.epoch=1",
            """\
            -o train.epoch=1:1:7: error: train has no key 'epoch'
                  train.epoch=1
                        ^^^^^
            hint: did you mean 'epochs'?""",
            id="an unknown key",
        ),
        pytest.param(
            "trian.epochs=1",
            """\
            -o trian.epochs=1:1:1: error: a config has no section 'trian'
                  trian.epochs=1
                  ^^^^^
            hint: did you mean 'train'?""",
            id="an unknown section",
        ),
        pytest.param(
            "train.epochs.x=1",
            """\
            -o train.epochs.x=1:1:14: error: train.epochs is 3, which has no keys
                  train.epochs.x=1
                               ^
            hint: set train.epochs itself""",
            id="a key below a number",
        ),
        pytest.param(
            "train.optimizer.learning_rate.values.2=1",
            """\
            -o train.optimizer.learning_rate.values.2=1:1:38: error: train.optimizer.learning_rate.values is a list \
of 2, which has no item '2'
                  train.optimizer.learning_rate.values.2=1
                                                       ^
            hint: count from 0""",
            id="an index beyond the end",
        ),
        pytest.param(
            "train.epochs=[1",
            """\
            -o train.epochs=[1:1:16: error: expected ',' or ']' in the list that begins with '['
                  train.epochs=[1
                                 ^
            -o train.epochs=[1:1:14: note: it begins here
                  train.epochs=[1
                               ^
            hint: add what is missing""",
            id="a value that is no YAML",
        ),
        pytest.param(
            "train.epochs+=1",
            """\
            -o train.epochs+=1:1:7: error: train.epochs is 3, and += adds to lists
                  train.epochs+=1
                        ^^^^^^
            hint: set it: -o train.epochs=...""",
            id="more behind a number",
        ),
        pytest.param(
            "train.groups+={match: 3}",
            """\
            -o train.groups+={match: 3}:1:23: error: train.groups.0.match must be a pattern, or a list of patterns, got 3
                  train.groups+={match: 3}
                                        ^
            hint: for example encoder/*""",
            id="a wrong item behind a list that is not there",
        ),
        pytest.param(
            "train..epochs=1",
            """\
            -o train..epochs=1:1:1: error: 'train..epochs' is no path of keys
                  train..epochs=1
                  ^^^^^^^^^^^^^
            hint: write names with dots between them: train.epochs""",
            id="an empty key",
        ),
        pytest.param(
            "train.epochs",
            """\
            error: -o needs key=value, got 'train.epochs'
            hint: for example -o train.epochs=1""",
            id="no value",
        ),
        pytest.param(
            "model.args.m=1",
            """\
            -o model.args.m=1:1:14: error: the model has no argument 'm'
                  model.args.m=1
                               ^
            hint: it has n""",
            id="an argument that the model has not",
        ),
    ],
)
def test_messages(run_errors: Callable[..., list[str]], override: str, rendered: str) -> None:
    assert run_errors(RUN, override, model=MODEL) == [dedent(rendered)]


@pytest.mark.parametrize("written", ["feeds.x.1=petal", "feeds.x+=petal"])
def test_a_list_that_was_changed_is_pointed_at_where_it_was_changed(written: str) -> None:
    mistakes = Mistakes()
    tree = parse(Source("c.yaml", "feeds: {x: [a, b]}"), mistakes)
    assert isinstance(tree, MapNode)
    made = find(apply_overrides(tree, [written], mistakes), ("feeds", "x"))
    assert made is not None
    assert made.at.file == f"-o {written}"
    assert not mistakes
