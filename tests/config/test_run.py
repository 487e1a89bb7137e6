"""Run files: what they become, and every kind of mistake with its sentence, place and remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pe_cli.config.load import load_run
from pe_cli.config.nodes import to_data
from pe_cli.config.period import Period
from pe_cli.config.resolved import resolved_yaml
from pe_cli.core.errors import PeError
from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy

FULL = """\
model: {file: model.yaml, args: {}}
data:
  train: {reader: npz, file: d.npz, shuffle: true, limit: 10}
  eval: {reader: npz, file: e.npz}
feeds:
  x: {from: image, scale: 1e-1, reshape: [-1, 2]}
train:
  loss: y
  epochs: 3
  batch_size: 8
  optimizer: {type: SGD, learning_rate: 0.1}
fetches:
  y: {every: 50 steps, merge: mean}
  x:
executor: {place: cpu, devices: 2, seed: 7}
build_strategy: {reduce_strategy: AllReduce, memory_optimize: false, fuse_all_reduce_ops: true}
exec_strategy: {num_threads: 2}
output: {dir: runs, checkpoint: {every: 2 epochs, keep: 1, best: {by: eval/y, mode: min}}}
"""

Errors = Callable[..., list[str]]
Folder = Callable[..., None]


def test_a_full_file(folder: Folder) -> None:
    folder(run=FULL)
    run = load_run("run.yaml")
    assert run.name == "run"
    assert run.model_path == Path("model.yaml")
    assert [layer.key for layer in run.model.layers] == ["y"]
    assert list(run.data) == ["train", "eval"]
    assert run.data["train"].section.shuffle
    assert to_data(run.data["train"].options) == {"file": "d.npz", "limit": 10}
    feed = run.feeds["x"]
    assert (feed.from_, feed.scale, feed.shift, feed.reshape, feed.one_hot) == ("image", 0.1, 0.0, [-1, 2], None)
    assert run.train is not None
    assert (run.train.epochs, run.train.batch_size, run.train.eval_every) == (3, 8, Period(1, "epoch"))
    assert (run.fetches["y"].every, run.fetches["x"].every) == (Period(50, "step"), Period(1, "epoch"))
    assert (run.executor.devices, run.executor.seed, run.executor.uneven_batch) == (2, 7, "weighted")
    assert run.build_strategy == BuildStrategy(memory_optimize=False)
    assert run.exec_strategy == ExecutionStrategy(num_threads=2)
    assert run.output.checkpoint is not None
    assert run.output.checkpoint.best is not None
    assert run.output.checkpoint.best.mode == "min"


def test_everything_knows_its_place(folder: Folder) -> None:
    folder(run=FULL)
    run = load_run("run.yaml")
    assert run.train is not None
    assert run.output.checkpoint is not None
    assert str(run.train.at_of("epochs")) == "run.yaml:9:11"
    assert str(run.output.checkpoint.at_of("keep")) == "run.yaml:18:57"
    assert str(run.at_of("train", "optimizer", "learning_rate")) == "run.yaml:11:41"
    assert str(run.feeds["x"].at) == "run.yaml:6:6"
    assert str(run.data["eval"].reader_at) == "run.yaml:4:18"
    # what is not written is placed where it would be
    assert str(run.at_of("train", "steps")) == "run.yaml:7:1"


def test_a_model_is_enough(folder: Folder) -> None:
    folder(run="model: model.yaml\n")
    run = load_run("run.yaml")
    assert run.train is None
    assert run.executor.devices == "auto"
    assert run.output.dir == "runs"


def test_a_plain_name_is_the_field_of_a_feed(folder: Folder) -> None:
    folder(run="model: model.yaml\nfeeds: {x: image}\n")
    assert load_run("run.yaml").feeds["x"].from_ == "image"


def test_threads_may_be_given_to_the_executor(folder: Folder) -> None:
    folder(run="model: model.yaml\nexecutor: {num_threads: 3}\n")
    assert load_run("run.yaml").exec_strategy.num_threads == 3


def test_a_model_is_found_from_the_runs_folder(tmp_path: Path, folder: Folder) -> None:
    folder()
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "run.yaml").write_text("model: ../model.yaml\n")
    assert load_run("configs/run.yaml").model_path == Path("model.yaml")


def test_null_switches_checkpoints_off(folder: Folder) -> None:
    folder(run="model: model.yaml\noutput: {checkpoint: ~}\n")
    assert load_run("run.yaml").output.checkpoint is None


@pytest.mark.parametrize("override", ["data.eval=null", "data={train: {reader: npz, file: d.npz}, eval: null}"])
def test_data_that_is_null_is_absent(folder: Folder, override: str) -> None:
    folder(run=FULL)
    run = load_run("run.yaml", [override])
    assert list(run.data) == ["train"]
    folder(run=resolved_yaml(run))
    assert list(load_run("run.yaml").data) == ["train"]


def test_a_train_section_that_is_null_is_absent(folder: Folder) -> None:
    folder(run=FULL)
    run = load_run("run.yaml", ["train=null"])
    assert run.train is None
    assert "train:" not in resolved_yaml(run).replace("  train:", "")


@pytest.mark.parametrize(
    "path", ["graphs/", "pictures/step_", "a..b", "", ".hidden/", "..x/y"], ids=lambda path: path or "nowhere"
)
def test_graphs_may_be_drawn_inside_the_run(folder: Folder, path: str) -> None:
    folder(run=f"model: model.yaml\nbuild_strategy: {{debug_graphviz_path: '{path}'}}\n")
    assert load_run("run.yaml").build_strategy.debug_graphviz_path == path


@pytest.mark.parametrize("path", ["/tmp/x_", "../x_", "graphs/../../x_", "a/..", "..", "~/x_"])
def test_graphs_may_not_be_drawn_elsewhere(folder: Folder, run_errors: Errors, path: str) -> None:
    (said,) = run_errors(f"{HEAD}build_strategy: {{debug_graphviz_path: '{path}'}}\n")
    assert said.startswith("run.yaml:2:39: error: build_strategy.debug_graphviz_path must stay in the run's folder, got '")
    assert said.endswith("hint: a relative path without '..', for example graphs/")


@pytest.mark.parametrize("file", ["a.txt", "../a.npz", "/tmp/a.npz", "sub/a.csv", "..", ".npz", ".a.npz", "a", "a\\b.npz", "12"])
def test_a_fetch_goes_to_a_file_of_the_run(folder: Folder, run_errors: Errors, file: str) -> None:
    (said,) = run_errors(f"{HEAD}fetches: {{y: {{to: {file}}}}}\n")
    assert said.startswith("run.yaml:2:19: error: fetches.y.to must be a file name that ends in .npz, .csv or .jsonl, got ")
    assert said.endswith("hint: for example values.npz: it goes to the run's fetches folder")


def test_what_is_resolved_reads_as_the_same_run(folder: Folder) -> None:
    folder(run=FULL)
    first = load_run("run.yaml", ["executor.seed=9", "train.steps=5"])
    text = resolved_yaml(first)
    folder(run=text)
    second = load_run("run.yaml")
    assert resolved_yaml(second) == text
    assert first.train is not None
    assert second.train is not None
    assert first.train.model_dump() == second.train.model_dump()
    assert second.train.steps == 5
    assert second.executor.seed == 9
    for key in ("feeds", "fetches"):
        before, after = getattr(first, key), getattr(second, key)
        assert {k: v.model_dump() for k, v in before.items()} == {k: v.model_dump() for k, v in after.items()}
    assert (first.build_strategy, first.exec_strategy) == (second.build_strategy, second.exec_strategy)
    options = [{k: to_data(d.options) for k, d in run.data.items()} for run in (first, second)]
    assert options[0] == options[1]


def test_resolved_text_is_quoted_where_it_would_be_a_number(folder: Folder) -> None:
    folder(run="model: model.yaml\noutput: {name: '1e-3', dir: 'on'}\n")
    run = load_run("run.yaml")
    folder(run=resolved_yaml(run))
    again = load_run("run.yaml")
    assert (again.output.name, again.output.dir) == ("1e-3", "on")


HEAD = "model: model.yaml\n"


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        pytest.param(
            "data: {}\n",
            """\
            run.yaml:1:1: error: a config needs a model
                  data: {}
                  ^^^^^^^^
            hint: add model: FILE, relative to this file's folder""",
            id="no model",
        ),
        pytest.param(
            "model: modle.yaml\n",
            """\
            run.yaml:1:8: error: there is no model file modle.yaml
                  model: modle.yaml
                         ^^^^^^^^^^
            hint: did you mean 'model.yaml'?""",
            id="a model that is not there",
        ),
        pytest.param(
            HEAD + "trian: {}\n",
            """\
            run.yaml:2:1: error: a config has no section 'trian'
                  trian: {}
                  ^^^^^
            hint: did you mean 'train'?""",
            id="an unknown section",
        ),
        pytest.param(
            HEAD + "executor: {devcies: 2}\n",
            """\
            run.yaml:2:12: error: executor has no key 'devcies'
                  executor: {devcies: 2}
                             ^^^^^^^
            hint: did you mean 'devices'?""",
            id="an unknown key",
        ),
        pytest.param(
            HEAD + "executor: 2\n",
            """\
            run.yaml:2:11: error: executor must be a mapping, got 2
                  executor: 2
                            ^""",
            id="a section that is a number",
        ),
        pytest.param(
            HEAD + "executor: {devices: 0}\n",
            """\
            run.yaml:2:21: error: executor.devices must be auto or a number of devices, 1 to 256, got 0
                  executor: {devices: 0}
                                      ^""",
            id="no devices",
        ),
        pytest.param(
            HEAD + "executor: {uneven_batch: dorp}\n",
            """\
            run.yaml:2:26: error: executor.uneven_batch must be weighted, drop or error, got 'dorp'
                  executor: {uneven_batch: dorp}
                                           ^^^^
            hint: did you mean 'drop'?""",
            id="a word that is none of the choices",
        ),
        pytest.param(
            HEAD + "executor: {deterministic: false}\n",
            """\
            run.yaml:2:27: error: deterministic: false is for libraries of place: cuda; on the CPU one seed always gives one result
                  executor: {deterministic: false}
                                            ^^^^^
            hint: deterministic: true""",
            id="determinism cannot be switched off on the CPU",
        ),
        pytest.param(
            HEAD + "executor: {place: cuda, libraries: none, deterministic: false}\n",
            """\
            run.yaml:2:57: error: deterministic: false lets libraries choose, and libraries: none leaves them nothing to choose
                  executor: {place: cuda, libraries: none, deterministic: false}
                                                                          ^^^^^
            hint: libraries: auto, or deterministic: true""",
            id="determinism cannot be switched off without libraries",
        ),
        pytest.param(
            HEAD + "executor: {seed: -1}\n",
            """\
            run.yaml:2:18: error: executor.seed must be at least 0, got -1
                  executor: {seed: -1}
                                   ^^""",
            id="a negative seed",
        ),
        pytest.param(
            HEAD + "executor: {num_threads: 2}\nexec_strategy: {num_threads: 3}\n",
            """\
            run.yaml:2:25: error: executor.num_threads is 2, and exec_strategy.num_threads is 3
                  executor: {num_threads: 2}
                                          ^
            run.yaml:3:30: note: the other is here
                  exec_strategy: {num_threads: 3}
                                               ^
            hint: keep one of them""",
            id="two numbers of threads",
        ),
        pytest.param(
            HEAD + "build_strategy: {enable_cuda_graph: true}\n",
            """\
            run.yaml:2:18: error: build_strategy.enable_cuda_graph is not available in this version
                  build_strategy: {enable_cuda_graph: true}
                                   ^^^^^^^^^^^^^^^^^
            hint: remove it""",
            id="an option of fluid's that is not there yet",
        ),
        pytest.param(
            HEAD + "build_strategy: {reduce_strategy: Reduce, fuse_all_reduce_ops: true}\n",
            """\
            run.yaml:2:64: error: fuse_all_reduce_ops is true, but reduce_strategy Reduce updates each parameter at its owner
                  build_strategy: {reduce_strategy: Reduce, fuse_all_reduce_ops: true}
                                                                                 ^^^^
            run.yaml:2:35: note: the strategy is here
                  build_strategy: {reduce_strategy: Reduce, fuse_all_reduce_ops: true}
                                                    ^^^^^^
            hint: leave fuse_all_reduce_ops out""",
            id="two wishes that contradict each other",
        ),
        pytest.param(
            HEAD + "build_strategy: {fuse_broadcast_ops: true}\n",
            """\
            run.yaml:2:38: error: fuse_broadcast_ops is true, but no graph has broadcasts: devices read parameters where they are
                  build_strategy: {fuse_broadcast_ops: true}
                                                       ^^^^
            hint: leave fuse_broadcast_ops out""",
            id="broadcasts where there are none",
        ),
        pytest.param(
            HEAD + "build_strategy: {memory_optimize: yes}\n",
            """\
            run.yaml:2:35: error: build_strategy.memory_optimize must be true or false, got 'yes'
                  build_strategy: {memory_optimize: yes}
                                                    ^^^
            hint: write true or false; in YAML 1.2 yes is text""",
            id="yes is no truth",
        ),
        pytest.param(
            HEAD + "exec_strategy: {use_thread_barrier: true}\n",
            """\
            run.yaml:2:17: error: exec_strategy.use_thread_barrier is not available in this version
                  exec_strategy: {use_thread_barrier: true}
                                  ^^^^^^^^^^^^^^^^^^
            hint: remove it""",
            id="a scheduling option of fluid's that is not there yet",
        ),
        pytest.param(
            HEAD + "train: {loss: y, epochs: 1.5, batch_size: 8, optimizer: {}}\n",
            """\
            run.yaml:2:26: error: train.epochs must be a whole number, got 1.5
                  train: {loss: y, epochs: 1.5, batch_size: 8, optimizer: {}}
                                           ^^^""",
            id="half an epoch",
        ),
        pytest.param(
            HEAD + "train: {loss: y, epochs: '1', batch_size: 8, optimizer: {}}\n",
            """\
            run.yaml:2:26: error: train.epochs must be a whole number, got '1'
                  train: {loss: y, epochs: '1', batch_size: 8, optimizer: {}}
                                           ^^^
            hint: write the number without quotes and underscores""",
            id="a number in quotes",
        ),
        pytest.param(
            HEAD + "train: {loss: y, epochs: 1, optimizer: {}}\n",
            """\
            run.yaml:2:1: error: train needs batch_size
                  train: {loss: y, epochs: 1, optimizer: {}}
                  ^^^^^
            hint: add batch_size: ...   (samples per step, over all devices)""",
            id="no batch size",
        ),
        pytest.param(
            HEAD + "train: {loss: y, epochs: 1, batchsize: 8, optimizer: {}}\n",
            """\
            run.yaml:2:29: error: train has no key 'batchsize'
                  train: {loss: y, epochs: 1, batchsize: 8, optimizer: {}}
                                              ^^^^^^^^^
            hint: did you mean 'batch_size'?""",
            id="a misspelt batch size is not missing too",
        ),
        pytest.param(
            HEAD + "train: {loss: y, batch_size: 1, optimizer: {}}\n",
            """\
            run.yaml:2:1: error: train needs epochs or steps
                  train: {loss: y, batch_size: 1, optimizer: {}}
                  ^^^^^
            hint: add epochs: 10, or steps: 1000""",
            id="neither epochs nor steps",
        ),
        pytest.param(
            HEAD + "train: {loss: y, epochs: ~, batch_size: 8, optimizer: {type: SGD}}\n",
            """\
            run.yaml:2:1: error: train needs epochs or steps
                  train: {loss: y, epochs: ~, batch_size: 8, optimizer: {type: SGD}}
                  ^^^^^
            hint: add epochs: 10, or steps: 1000""",
            id="epochs that are null, and no steps",
        ),
        pytest.param(
            HEAD + "executor: {seed: ~}\n",
            """\
            run.yaml:2:18: error: executor.seed must be a whole number, got null
                  executor: {seed: ~}
                                   ^
            hint: leave seed out for its default, 0""",
            id="null where a key has a default",
        ),
        pytest.param(
            HEAD + "fetches: {y: {every: 5 stps}}\n",
            """\
            run.yaml:2:22: error: fetches.y.every must be like '50 steps' or '1 epoch', got '5 stps'
                  fetches: {y: {every: 5 stps}}
                                       ^^^^^^""",
            id="a period of an unknown unit",
        ),
        pytest.param(
            HEAD + "output: {checkpoint: {best: {by: eval/acc}}}\n",
            """\
            run.yaml:2:23: error: output.checkpoint.best needs mode
                  output: {checkpoint: {best: {by: eval/acc}}}
                                        ^^^^
            hint: add mode: ...   (whether more or less is better)""",
            id="the best without a direction",
        ),
        pytest.param(
            HEAD + "data: {evla: {reader: npz}}\n",
            """\
            run.yaml:2:8: error: data has no key 'evla'
                  data: {evla: {reader: npz}}
                         ^^^^
            hint: did you mean 'eval'?""",
            id="data that nothing would use",
        ),
        pytest.param(
            HEAD + "data: {train: {file: a.npz}}\n",
            """\
            run.yaml:2:8: error: data.train needs reader
                  data: {train: {file: a.npz}}
                         ^^^^^
            hint: add reader: ...   (kind of file: table, images, tar, text, windows, npz, npy, csv, idx, multi_slot, synthetic)""",
            id="data without a reader",
        ),
        pytest.param(
            HEAD + "feeds: {x: {from: image, scale: .nan}}\n",
            """\
            run.yaml:2:33: error: feeds.x.scale must be a finite number, got .nan
                  feeds: {x: {from: image, scale: .nan}}
                                                  ^^^^""",
            id="a scale that is no number",
        ),
        pytest.param(
            HEAD + "feeds: {x: {scale:2, from: a}}\n",
            """\
            run.yaml:2:13: error: feeds.x has no key 'scale:2'
                  feeds: {x: {scale:2, from: a}}
                              ^^^^^^^
            hint: did you mean 'scale'?""",
            id="no blank after a colon",
        ),
        pytest.param(
            "model: {file: model.yaml, args: {n: 1}}\n",
            """\
            run.yaml:1:37: error: the model has no argument 'n'
                  model: {file: model.yaml, args: {n: 1}}
                                                      ^
            hint: it has none""",
            id="an argument that the model has not",
        ),
        pytest.param(
            "- a\n",
            """\
            run.yaml:1:1: error: the config must be a mapping, got ['a']
                  - a
                  ^^^
            hint: it needs at least model: FILE""",
            id="a list",
        ),
        pytest.param(
            "# nothing\n",
            """\
            run.yaml:1:1: error: the config is empty
                  # nothing
                  ^
            hint: it needs at least model: FILE""",
            id="an empty file",
        ),
    ],
)
def test_messages(run_errors: Errors, text: str, rendered: str) -> None:
    assert run_errors(text) == [dedent(rendered)]


def test_all_mistakes_of_both_files_come_at_once_in_order(run_errors: Errors) -> None:
    found = run_errors(
        HEAD + "train: {loss: y, epocs: 3, batch_size: 0, optimizer: {}, epochs: 1}\nexecutor: {place: cup}\n",
        "output.dirr=x",
        model="feeds:\n  x: {shape: [4], dtype: float33}\nlayers:\n  y: {tpe: relu}\n",
    )
    assert [error.splitlines()[0] for error in found] == [
        "run.yaml:2:18: error: train has no key 'epocs'",
        "run.yaml:2:40: error: train.batch_size must be at least 1, got 0",
        "run.yaml:3:19: error: executor.place must be cpu or cuda, got 'cup'",
        "-o output.dirr=x:1:8: error: output has no key 'dirr'",
        "model.yaml:2:26: error: feeds.x.dtype must be float32, float64, int64, int32, uint8 or bool, got 'float33'",
        "model.yaml:4:7: error: layer 'y' has no type",
    ]


def test_a_missing_config_suggests_a_name(folder: Folder) -> None:
    folder(digits="model: model.yaml\n")
    with pytest.raises(PeError) as caught:
        load_run("digit.yaml")
    assert caught.value.render() == "error: there is no config file digit.yaml\nhint: did you mean 'digits.yaml'?"


def test_a_folder_is_no_config(tmp_path: Path) -> None:
    with pytest.raises(PeError, match="is a folder, not a file"):
        load_run(tmp_path)


WORDS = [
    "model",
    "data",
    "train",
    "feeds",
    "x",
    "file",
    "args",
    "loss",
    "epochs",
    "every",
    "checkpoint",
    "best",
    "by",
    "from",
]
VALUES = st.recursive(
    st.sampled_from(["1", "-1", "1e-3", "yes", "true", "~", "'${x}'", "model.yaml", "1 epoch", "auto", ".nan", "''"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.dictionaries(st.sampled_from(WORDS), inner, max_size=4).map(
            lambda d: "{" + ", ".join(f"{k}: {v}" for k, v in d.items()) + "}"
        ),
    ),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.dictionaries(st.sampled_from([*WORDS, "executor", "output", "fetches", "build_strategy"]), VALUES), VALUES)
def test_no_config_makes_a_traceback(folder: Folder, sections: dict[str, str], override: str) -> None:
    folder(run="".join(f"{key}: {value}\n" for key, value in {"model": "model.yaml", **sections}.items()))
    try:
        run = load_run("run.yaml", [f"train.{override}", f"model.args={override}", f"data.train={override}"])
        resolved_yaml(run)
    except PeError as error:
        error.render()
