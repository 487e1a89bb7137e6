"""The section `sweep`: what it becomes, and every kind of mistake with its place and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from pe_cli.config.error_collector import Mistakes
from pe_cli.config.load import load_run
from pe_cli.config.nodes import find, to_data
from pe_cli.config.sweep_domain import Choices, Range
from pe_cli.core.errors import PeError
from pe_cli.session.sweep.trials import check_trials, combinations_of, key_of, trials_of, variant

MODEL = """\
args: {width: 4}
feeds: {x: {shape: [3]}, y: {shape: [1]}}
layers:
  hidden: {type: fc, input: x, size: "${width}", act: relu}
  guess: {type: fc, input: hidden, size: 1}
  error: {type: square_error_cost, input: guess, label: y}
  loss:  {type: mean, x: error}
fetches: [loss]
"""
CONFIG = """\
model: m.yaml
data:
  train: {reader: npz, file: d.npz}
  eval: {reader: npz, file: d.npz}
feeds: {x: x, y: y}
train: {loss: loss, epochs: 9, batch_size: 4, optimizer: {type: SGD, learning_rate: 0.1}}
sweep:
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.yaml").write_text(MODEL)


def write(sweep: str) -> None:
    """Write the config; the section begins in line 8."""
    Path("c.yaml").write_text(CONFIG + "".join(f"  {line}\n" for line in sweep.splitlines()))


def test_the_section_is_read() -> None:
    write("by: eval/loss\nmode: min\nmethod: random\ntrials: 4\nover: {model.args.width: [4, 8], train.batch_size: {int: [1, 3]}}")
    found = load_run("c.yaml").sweep
    assert found is not None
    assert (found.method, found.trials, found.seed) == ("random", 4, 0)
    assert found.over == {"model.args.width": Choices((4, 8)), "train.batch_size": Range("int", 1, 3)}


@pytest.mark.parametrize(
    ("sweep", "place", "message", "hint"),
    [
        pytest.param("by: eval/loss\nmode: min\nover: {}", "10:9", "sweep.over must not be empty", None, id="nothing to try"),
        pytest.param("by: eval/loss\nmode: min", "7:1", "sweep needs over", "add over: ...", id="no values"),
        pytest.param(
            "by: eval/loss\nmode: min\nmethod: cma\nover: {train.batch_size: [1]}", "10:11",
            "sweep.method must be grid, random or tpe, got 'cma'", None, id="a method that is not there",
        ),
        pytest.param(
            "by: eval/loss\nmode: min\nmethod: tpe\nover: {train.batch_size: [1]}", "10:11", "method tpe needs trials", "add trials",
            id="tpe without trials",
        ),
        pytest.param(
            "by: eval/loss\nmode: min\ntogether: 2\nover: {train.batch_size: [1]}", "10:13", "sweep.together says nothing with method grid",
            "leave together out", id="draws of a grid",
        ),
        pytest.param(
            "by: eval/loss\nmode: min\nmethod: random\ntrials: 3\nover: {executor.seed: {uniform: [0, 1]}}", "12:25",
            "sweep.over.executor.seed is averaged over", "list values", id="a range of seeds",
        ),
        pytest.param(
            "by: eval/loss\nmode: min\nover: {train.batch_size: {exp: [1, 2]}}", "10:28", "must be a list of values, or a range",
            "for example [64, 128]", id="an unknown range",
        ),
        pytest.param(
            "by: eval/loss\nmode: min\nover: {train.batch_size: [1, 1]}", "10:28", "has the value 1 twice", "every value once", id="twice"
        ),
        pytest.param(
            "by: eval/loss\nmode: min\nmethod: random\nover: {train.batch_size: [1]}", "10:11", "method random needs trials", "add trials",
            id="random without trials",
        ),
        pytest.param(
            "by: eval/loss\nmode: min\nseed: 3\nover: {train.batch_size: [1]}", "10:9", "sweep.seed says nothing with method grid",
            "leave seed out", id="a seed of a grid",
        ),
        pytest.param(
            "by: eval/loss\nmode: min\nover: {train.optimizer.learning_rate: {log: [0.1, 1]}}", "10:41", "range of numbers without steps",
            "method: random", id="a grid of a range",
        ),
        pytest.param(
            "by: eval/loss\nmode: min\nover: {args: [{}]}", "10:10", "'args' names all constants at once", "args.width",
            id="args",
        ),
        pytest.param(
            "by: eval/loss\nmode: min\nover: {trian.epochs: [1]}", "10:10", "no section 'trian'", "'train'",
            id="misspelled section",
        ),
        pytest.param(
            "by: eval/loss\nmode: min\nover: {output.dir: [a]}", "10:10", "output.dir is the folder of a trial", "leave",
            id="folder",
        ),
        pytest.param(
            "by: eval/loss\nmode: min\nover: {train.optimizer: [{type: Adam}], train.optimizer.learning_rate: [1]}", "10:43",
            "sweep.over sets train.optimizer, which train.optimizer.learning_rate is a part of", "keep one", id="a key and a part of it",
        ),
        pytest.param("by: eval/loss\nmode: min\nover: {'a=b': [1]}", "10:10", "'a=b' is no path of keys", "dots", id="no key"),
        pytest.param(
            "by: eval/loss\nmode: min\nhalving: {first: 9 epochs}\nover: {train.batch_size: [1]}", "10:20",
            "sweep.halving.first is 9 epochs, and train.epochs is 9", "write less", id="nothing to halve",
        ),
        pytest.param(
            "by: eval/loss\nmode: min\nhalving: {first: 10 steps}\nover: {train.batch_size: [1]}", "10:20",
            "sweep.halving.first counts steps", "write first: N epochs", id="halving in another unit",
        ),
        pytest.param(
            "by: eval/loss\nmode: min\nhalving: {first: 1 epoch}\nover: {train.epochs: [1]}", "11:10",
            "halving says how long a trial is trained", "leave", id="halving and epochs",
        ),
    ],
)  # fmt: skip
def test_a_mistake_has_place_and_remedy(sweep: str, place: str, message: str, hint: str | None) -> None:
    write(sweep)
    with pytest.raises(PeError) as caught:
        load_run("c.yaml")
    said = caught.value.render()
    assert f"c.yaml:{place}: error:" in said
    assert message in said
    assert hint is None or hint in said


@pytest.mark.parametrize(
    ("over", "place", "message", "hint"),
    [
        pytest.param("train.batch_siz: [1]", "10:16", "train has no key 'batch_siz'", "did you mean 'batch_size'?", id="key"),
        pytest.param("model.args.widht: [1]", "10:", "widht", "did you mean 'width'?", id="argument of the model"),
        pytest.param("args.widht: [1]", "10:10", "has a constant 'widht'", "did you mean 'width'?", id="a constant of nobody"),
        pytest.param("train.batch_size: [4, 0]", "10:32", "train.batch_size must be at least 1, got 0", "", id="the second value"),
        pytest.param("train.optimizer.learning_rat: [1]", "10:", "learning_rat", "did you mean 'learning_rate'?", id="of the optimizer"),
    ],
)
def test_the_config_of_every_trial_is_checked_where_its_values_are_written(over: str, place: str, message: str, hint: str) -> None:
    write(f"by: eval/loss\nmode: min\nover: {{{over}}}")
    run = load_run("c.yaml")
    assert run.sweep is not None
    with pytest.raises(PeError) as caught:
        check_trials(run, trials_of(run.sweep, combinations_of(run.sweep)))
    said = caught.value.render()
    assert f"c.yaml:{place}" in said
    assert message in said
    assert hint in said


def test_what_a_value_breaks_elsewhere_is_told_with_the_value() -> None:
    write("by: eval/loss\nmode: min\nover: {model.args.width: [4, 0]}")
    run = load_run("c.yaml")
    assert run.sweep is not None
    with pytest.raises(PeError) as caught:
        check_trials(run, trials_of(run.sweep, combinations_of(run.sweep)))
    said = caught.value.render()
    assert "c.yaml:10:" in said
    assert "m.yaml:4:" in said


def test_args_names_a_constant_of_the_config_or_else_of_the_model() -> None:
    write("by: eval/loss\nmode: min\nover: {args.width: [4, 8], args.rate: [0.5]}")
    path = Path("c.yaml")
    path.write_text("args: {rate: 0.1}\n" + path.read_text().replace("learning_rate: 0.1", 'learning_rate: "${rate}"'))
    run = load_run("c.yaml")
    assert [key_of(run, key) for key in ("args.width", "args.rate")] == ["model.args.width", "args.rate"]
    mistakes = Mistakes()
    made = variant(run, {"args.width": 8, "args.rate": 0.5}, mistakes)
    mistakes.raise_all()
    assert made is not None
    assert to_data(made.model.args["width"]) == 8
    assert find(made.tree, ("train", "optimizer", "learning_rate")).value == 0.5  # type: ignore[union-attr]


def test_repeats_of_a_combination_stand_side_by_side() -> None:
    write("by: eval/loss\nmode: min\nover: {executor.seed: [1, 2], train.batch_size: [4, 8]}")
    section = load_run("c.yaml").sweep
    assert section is not None
    made = trials_of(section, combinations_of(section))
    assert made == [{"executor.seed": seed, "train.batch_size": size} for size in (4, 8) for seed in (1, 2)]
