"""extends and args of run files: what is merged, where mistakes point, and what is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pe_cli.config.extends import MAX_CHAIN, MAX_FILES
from pe_cli.config.load import load_run
from pe_cli.config.nodes import to_data
from pe_cli.config.resolved import resolved_yaml
from pe_cli.config.spec import RunSpec
from pe_cli.core.errors import PeError
from tests.config.conftest import list_errors

BASE = """\
model: model.yaml
data:
  train: {reader: npz, file: d.npz, shuffle: true}
  eval: {reader: npz, file: e.npz}
feeds: {x: image}
train: {loss: y, epochs: 3, batch_size: 8, optimizer: {type: SGD, learning_rate: 0.1}}
fetches: {y: {every: 2 steps}}
"""


@pytest.fixture
def run(folder: Callable[..., None]) -> Callable[..., RunSpec]:
    """Read run.yaml beside other files, which are given by name."""

    def read(text: str, *overrides: str, **files: str) -> RunSpec:
        folder(**{"base": BASE, **files, "run": text})
        return load_run("run.yaml", overrides)

    return read


@pytest.fixture
def errors(folder: Callable[..., None]) -> Callable[..., list[PeError]]:
    def read(text: str, *overrides: str, **files: str) -> list[PeError]:
        folder(**{"base": BASE, **files, "run": text})
        with pytest.raises(PeError) as caught:
            load_run("run.yaml", overrides)
        return list_errors(caught.value)

    return read


def said(errors: list[PeError]) -> list[tuple[str, str]]:
    return [(str(error.at), error.message) for error in errors]


def test_mappings_are_merged_and_other_values_replaced(run: Callable[..., RunSpec]) -> None:
    found = run("extends: base.yaml\ntrain: {epochs: 5, optimizer: {learning_rate: 0.2}}\nexecutor: {devices: 2}\n")
    assert found.train is not None
    assert (found.train.epochs, found.train.batch_size) == (5, 8)
    assert found.train.optimizer == {"type": "SGD", "learning_rate": 0.2}
    assert found.executor.devices == 2
    assert found.name == "run"


def test_the_command_line_goes_before_both_files(run: Callable[..., RunSpec]) -> None:
    found = run("extends: base.yaml\ntrain: {epochs: 5}\n", "train.epochs=7", "train.batch_size=1")
    assert found.train is not None
    assert (found.train.epochs, found.train.batch_size) == (7, 1)


def test_of_several_bases_the_last_wins_and_the_file_itself_before_them(run: Callable[..., RunSpec]) -> None:
    files = {"one": "train: {epochs: 10, batch_size: 10}\n", "two": "train: {batch_size: 20, drop_last: true}\n"}
    found = run("extends: [base.yaml, one.yaml, two.yaml]\ntrain: {drop_last: false}\n", **files)
    assert found.train is not None
    assert (found.train.epochs, found.train.batch_size, found.train.drop_last) == (10, 20, False)


@pytest.mark.parametrize(
    ("text", "at", "expected"),
    [
        pytest.param("data: {eval: ~}\n", ("data", "eval"), None, id="a section"),
        pytest.param("train: {epochs: ~, steps: 9}\n", ("train", "epochs"), None, id="a key"),
        pytest.param("fetches: {y: ~}\n", ("fetches",), {}, id="a name"),
        pytest.param("output: {checkpoint: ~}\n", ("output", "checkpoint"), None, id="a key where null means something"),
    ],
)
def test_null_takes_away_what_the_base_has(run: Callable[..., RunSpec], text: str, at: tuple[str, ...], expected: object) -> None:
    found = run("extends: base.yaml\n" + text, base=BASE + "output: {checkpoint: {keep: 7}}\n")
    here = to_data(found.tree)
    for key in at:
        here = here.get(key) if here else None
    assert here == expected
    assert (found.output.checkpoint is None) == text.startswith("output")


def test_a_null_that_means_something_stays(run: Callable[..., RunSpec]) -> None:
    files = {"base": BASE.replace("model: model.yaml", "model: {file: model.yaml, args: {n: 4, act: relu}}")}
    model = 'args: {n: 1, act: tanh}\nfeeds: {x: {shape: ["${n}"]}}\nlayers: {y: {type: fc, input: x, size: 1, act: "${act}"}}\n'
    found = run("extends: base.yaml\nmodel: {args: {act: ~}}\n", model=model, **files)
    assert {key: to_data(node) for key, node in found.model_args.items()} == {"n": 4, "act": None}


def test_short_forms_are_merged_as_what_they_stand_for(run: Callable[..., RunSpec]) -> None:
    model = 'args: {n: 1}\nfeeds: {x: {shape: ["${n}"]}}\nlayers: {y: {type: relu, x: x}}\n'
    found = run("extends: base.yaml\nmodel: {args: {n: 6}}\nfeeds: {x: {scale: 0.5}}\n", model=model)
    assert found.model.feeds["x"].shape == (6,)
    assert (found.feeds["x"].from_, found.feeds["x"].scale) == ("image", 0.5)


def test_arguments_of_another_type_or_reader_are_not_mixed(run: Callable[..., RunSpec]) -> None:
    found = run(
        "extends: base.yaml\n"
        "data: {eval: {reader: csv, files: x.csv}}\n"
        "train: {optimizer: {type: Adam}}\n"
        "executor: {type: parallel}\n",
        base=BASE + "executor: {type: async, seed: 5}\n",
    )
    assert found.train is not None
    assert found.train.optimizer == {"type": "Adam"}
    assert to_data(found.data["eval"].options) == {"files": "x.csv"}
    assert found.executor.seed == 5, "the executor's keys are those of both types"


def test_mistakes_point_into_the_file_that_has_them(errors: Callable[..., list[PeError]]) -> None:
    found = errors(
        "extends: base.yaml\ntrain:\n  batch_size: none\nexekutor: {}\n",
        base=BASE.replace("epochs: 3", "epochs: soon").replace("fetches", "fetch"),
    )
    assert said(found) == [
        ("base.yaml:6:26", "train.epochs must be a whole number, got 'soon'"),
        ("base.yaml:7:1", "a config has no section 'fetch'"),
        ("run.yaml:3:15", "train.batch_size must be a whole number, got 'none'"),
        ("run.yaml:4:1", "a config has no section 'exekutor'"),
    ]
    assert 'train: {loss: y, epochs: soon' in "".join(error.render() for error in found)


@pytest.mark.parametrize(
    ("text", "files", "expected"),
    [
        pytest.param("extends: bas.yaml\n", {}, ("run.yaml:1:10", "there is no base config file bas.yaml"), id="no such file"),
        pytest.param(
            "extends: base.yaml\n", {"base": "extends: run.yaml\n"},
            ("base.yaml:1:10", "run.yaml extends itself: run.yaml -> base.yaml -> run.yaml"), id="a circle of two",
        ),
        pytest.param(
            "extends: ./run.yaml\n", {}, ("run.yaml:1:10", "run.yaml extends itself: run.yaml -> run.yaml"), id="itself",
        ),
        pytest.param("extends: 3\n", {}, ("run.yaml:1:10", "extends must be a file or a list of files, got 3"), id="no name"),
        pytest.param("extends: []\n", {}, ("run.yaml:1:10", "extends names no file"), id="an empty list"),
        pytest.param(
            'args: {a: b}\nextends: "${a}.yaml"\n', {},
            ("run.yaml:2:10", "extends takes no ${...}, as it is read before args"), id="a name of args",
        ),
        pytest.param("extends: model.yaml\n", {}, ("model.yaml:3:1", "model.yaml is a model file, not a config"), id="a model"),
        pytest.param("extends: base.yaml\n", {"base": "- 1\n"}, ("base.yaml:1:1", "the config must be a mapping, got [1]"), id="a list"),
        pytest.param("extends: base.yaml\n", {"base": ""}, ("base.yaml:1:1", "the config is empty"), id="an empty file"),
        pytest.param(
            "extends: base.yaml\n", {"base": "a: 1\na: 2\nb: [\n"}, ("base.yaml:2:1", "key 'a' is written twice"), id="no YAML",
        ),
    ],
)  # fmt: skip
def test_bases_that_cannot_be_read(
    errors: Callable[..., list[PeError]], text: str, files: dict[str, str], expected: tuple[str, str]
) -> None:
    assert said(errors(text, **files))[0] == expected


def test_a_base_that_is_not_there_is_told_with_one_that_is_near(errors: Callable[..., list[PeError]]) -> None:
    (error,) = errors("extends: bas.yaml\n")
    assert error.hint == "did you mean 'base.yaml'?"


def test_a_pipe_is_not_waited_for(errors: Callable[..., list[PeError]]) -> None:
    os.mkfifo("pipe")
    (error,) = errors("extends: pipe\n")
    assert said([error]) == [("run.yaml:1:10", "base config pipe is neither a file nor a folder")]
    assert ("run.yaml:1:8", "model pipe is neither a file nor a folder") in said(errors("model: pipe\n"))


def test_chains_and_numbers_of_files_are_bounded(run: Callable[..., RunSpec], errors: Callable[..., list[PeError]]) -> None:
    chain = {f"b{i}": f"extends: b{i + 1}.yaml\n" for i in range(MAX_CHAIN)}
    chain[f"b{MAX_CHAIN - 2}"] = BASE
    run("extends: b0.yaml\n", **chain)
    chain[f"b{MAX_CHAIN - 2}"] = "extends: base.yaml\n"
    (error,) = errors("extends: b0.yaml\n", **chain)
    assert error.message.startswith(f"more than {MAX_CHAIN} files extend one another: run.yaml -> b0.yaml")
    (error,) = errors(f"extends: [{', '.join(['base.yaml'] * MAX_FILES)}]\n")
    assert error.message.startswith(f"more than {MAX_FILES} files are extended")


def test_a_tree_that_grows_by_its_bases_is_bounded(errors: Callable[..., list[PeError]]) -> None:
    files = {f"b{i}": "data: {columns: {" + ", ".join(f"c{i}_{j}: a" for j in range(20_000)) + "}}\n" for i in range(3)}
    (error,) = errors("extends: [base.yaml, b0.yaml, b1.yaml, b2.yaml]\n", **files)
    assert error.message == "too many values, with those of the extended files"


def test_the_command_line_cannot_set_what_is_read_before_it(errors: Callable[..., list[PeError]]) -> None:
    (error,) = errors("extends: base.yaml\n", "extends=base.yaml")
    assert error.message == "extends is read before -o, which cannot set it"


def test_paths_start_at_the_folder_of_the_file_that_writes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("shared/deep", "mine"):
        (tmp_path / name).mkdir(parents=True)
    model = "feeds: {x: {shape: [4]}}\nlayers: {y: {type: relu, x: x}}\n"
    (tmp_path / "shared/deep/model.yaml").write_text(model)
    text = "args: {file: in_base.npz}\n" + BASE.replace("file: e.npz", 'file: "${file}"')
    text = text.replace("data:\n", "data:\n  columns: {c: {type: image, folder: pictures}, d: {type: category, of: file}}\n")
    text = text.replace("batch_size: 8,", "batch_size: 8, init: {from: ../start.npz},")
    (tmp_path / "shared/deep/base.yaml").write_text(text)
    (tmp_path / "shared/middle.yaml").write_text("extends: deep/base.yaml\ndata: {test: {reader: table, files: [t.csv, ~/u.csv]}}\n")
    (tmp_path / "mine/run.yaml").write_text("extends: ../shared/middle.yaml\ndata: {predict: {reader: npz, file: p.npz}}\n")
    found = load_run("mine/run.yaml", ["data.train.file=o.npz"])
    assert str(found.model_path) == "shared/deep/model.yaml"
    files = {name: to_data(spec.options) for name, spec in found.data.items()}
    assert files == {
        "train": {"file": "o.npz"}, "eval": {"file": "../shared/deep/in_base.npz"}, "predict": {"file": "p.npz"},
        "test": {"files": ["../shared/t.csv", "~/u.csv"]},
    }  # fmt: skip
    assert found.train is not None
    assert found.train.init is not None
    assert found.train.init.from_ == "../shared/deep/../start.npz"
    assert to_data(found.preparation.columns["c"].value)["folder"] == "../shared/deep/pictures"
    assert to_data(found.preparation.columns["d"].value) == {"type": "category", "of": "file"}
    stands = resolved_yaml(found, standalone=True)
    assert str((tmp_path / "shared/deep/in_base.npz").resolve()) in stands
    assert "extends" not in stands


def test_files_of_asynchronous_training_start_there_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/model.yaml").write_text("feeds: {x: {shape: [4]}}\nlayers: {y: {type: relu, x: x}}\n")
    text = BASE.replace("train: {reader: npz, file: d.npz, shuffle: true}", "train: {reader: multi_slot}")
    (tmp_path / "shared/base.yaml").write_text(text + "executor: {type: async, files: [a.txt, /abs.txt]}\n")
    (tmp_path / "run.yaml").write_text("extends: shared/base.yaml\n")
    assert load_run("run.yaml").executor.files == ["shared/a.txt", "/abs.txt"]


def test_a_path_that_args_name_starts_at_the_file_of_the_args(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/model.yaml").write_text("feeds: {x: {shape: [4]}}\nlayers: {y: {type: relu, x: x}}\n")
    text = BASE.replace("d.npz", '"${whole}"').replace("e.npz", '"${part}/e.npz"')
    (tmp_path / "shared/base.yaml").write_text(text + "args: {whole: a.npz, part: b}\n")
    (tmp_path / "run.yaml").write_text("extends: shared/base.yaml\nargs: {whole: mine.npz, part: c}\n")
    found = load_run("run.yaml")
    assert {to_data(spec.options)["file"] for spec in found.data.values()} == {"mine.npz", "shared/c/e.npz"}
    found = load_run("run.yaml", ["args.part=/abs"])
    assert to_data(found.data["eval"].options) == {"file": "/abs/e.npz"}


# --- args -------------------------------------------------------------------------------------------------------------

USING = BASE.replace("batch_size: 8", 'batch_size: "${size}"').replace("d.npz", '"${file}"')
ARGS = "args: {size: 8, name: d, file: '${name}.npz'}\n" + USING


def test_constants_keep_their_type_alone_and_become_text_inside_text(run: Callable[..., RunSpec]) -> None:
    found = run(ARGS, "args.size=16", "fetches.y.every=${size} steps")
    assert found.train is not None
    assert found.train.batch_size == 16
    assert to_data(found.data["train"].options) == {"file": "d.npz"}
    assert found.fetches["y"].every.count == 16
    assert "args" not in resolved_yaml(found)


def test_constants_of_the_run_file_are_given_to_the_model_by_name(run: Callable[..., RunSpec]) -> None:
    model = 'args: {n: 1}\nfeeds: {x: {shape: ["${n}"]}}\nlayers: {y: {type: relu, x: x}}\n'
    text = "args: {n: 6}\n" + BASE.replace("model: model.yaml", 'model: {file: model.yaml, args: {n: "${n}"}}')
    assert run(text, model=model).model.feeds["x"].shape == (6,)
    assert run(text, "args.n=7", model=model).model.feeds["x"].shape == (7,)
    assert run(text, "model.args.n=5", model=model).model.feeds["x"].shape == (5,), "a use that -o replaces is a use"


def test_a_file_gives_its_base_what_has_no_value_there(run: Callable[..., RunSpec], errors: Callable[..., list[PeError]]) -> None:
    base = ARGS.replace("size: 8, name", "size: ~, name")
    found = run("extends: base.yaml\nargs: {size: 3}\n", base=base)
    assert found.train is not None
    assert found.train.batch_size == 3
    (error,) = errors("extends: base.yaml\n", base=base)
    assert said([error]) == [("base.yaml:1:8", "the argument 'size' has no value")]
    assert error.hint == "give it one here, or with -o args.size=..."


@pytest.mark.parametrize(
    ("text", "overrides", "expected"),
    [
        pytest.param(ARGS.replace("${size}", "${sise}"), [], [
            ("run.yaml:1:8", "the argument 'size' is not used"), ("run.yaml:7:41", "there is no argument 'sise'"),
        ], id="an unknown and an unused one"),
        pytest.param(ARGS, ["args.sise=3"], [("-o args.sise=3:1:6", "the argument 'sise' is not used")], id="one of the command line"),
        pytest.param("args: 3\n" + BASE, [], [("run.yaml:1:7", "args must be a mapping, got 3")], id="no mapping"),
        pytest.param(ARGS, ["args.size=x"], [("run.yaml:7:41", "train.batch_size must be a whole number, got 'x'")], id="a wrong value"),
    ],
)  # fmt: skip
def test_mistakes_of_args(
    errors: Callable[..., list[PeError]], text: str, overrides: list[str], expected: list[tuple[str, str]]
) -> None:
    assert said(errors(text, *overrides)) == expected


def test_a_wrong_value_is_shown_where_it_is_written(errors: Callable[..., list[PeError]]) -> None:
    (error,) = errors(ARGS, "args.size=x")
    assert [(str(at), text) for at, text in error.notes] == [("-o args.size=x:1:11", "the value is written here")]


def test_constants_that_grow_are_bounded(errors: Callable[..., list[PeError]]) -> None:
    lines = ["a0: [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    for i in range(7):
        use = f'"${{a{i}}}"'
        lines.append(f"a{i + 1}: [{', '.join([use] * 10)}]")
    text = "args:\n" + "".join(f"  {line}\n" for line in lines) + BASE.replace("loss: y", 'loss: "${a7}"')
    (error,) = errors(text)
    assert error.message == "too many values, with ${...} put in"


def test_what_is_kept_reads_back_as_it_was(run: Callable[..., RunSpec], folder: Callable[..., None]) -> None:
    found = run(BASE.replace("d.npz", "'$${name}.npz'"))
    assert to_data(found.data["train"].options) == {"file": "${name}.npz"}
    folder(again=resolved_yaml(found))
    assert to_data(load_run("again.yaml").data["train"].options) == {"file": "${name}.npz"}
    assert json.dumps(to_data(found.tree))
