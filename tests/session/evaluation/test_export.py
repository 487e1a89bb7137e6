"""A model that is exported with the data's side says in onnxruntime what `pe predict` says, from the raw columns."""

from __future__ import annotations

import functools
import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
from click.testing import CliRunner
from tokenizers import Tokenizer

import pe_cli
from pe_cli.cli.main import cli
from pe_cli.config.nodes import to_data
from pe_cli.core.encoding import TEXT
from pe_cli.core.errors import PeError
from pe_cli.data.array_dataset import is_table
from pe_cli.data.feed_samples import select
from pe_cli.io.onnx.export import export
from pe_cli.ops.define.lod import offsets_name
from pe_cli.session.evaluation.evaluator import Evaluator
from pe_cli.session.evaluation.export import Exporting
from pe_cli.session.evaluation.output_meaning import answers, said
from pe_cli.session.job import Job
from tests.rotation import of_today

ROOT = Path(pe_cli.__file__).parents[1]
CONFIGS = sorted((ROOT / "configs").rglob("*.yaml"))
PICTURES = "{reader: synthetic, samples: 64, fields: {image: {shape: [28, 28]}, label: {shape: [], dtype: int64, classes: 10}}}"
#: Overrides by config: pictures of 224x224 are smaller, and files of a Debian package are made up as they are.
FEWER = {
    "[3, 224, 224]": [
        "model.args.side=64",
        "data.train={reader: synthetic, samples: 16, fields: {x: {shape: [3, 64, 64]}, y: {shape: [1], dtype: int64, classes: 9}}}",
    ],
    "dataset-fashion-mnist": [f"data.train={PICTURES}", f"data.eval={PICTURES}"],
    "reader: windows": ["train.batch_size=8"],
}


def trained(path, overrides=()):
    """Return a job of a config that has been trained for two steps."""
    job = Job.open(path, ["executor.devices=1", *overrides] if "type: async" not in Path(path).read_text() else overrides)
    job.initialise()
    if job.built.train is None:
        return job
    executor = job.executor(job.program)
    for i, feed in zip(range(2), job.data.loader("train", job.program, min(job.batch_size, 32)).epoch(0), strict=False):
        executor.run(feed, [], i)
    return job


def exported(job, targets):
    """Return a model with the data's side in onnxruntime, and that side."""
    held = {v.name: job.scope.get(v.name) for v in job.built.eval.list_vars() if v.persistable}
    around = Exporting(job, targets).around("somewhere")
    data = export(job.built.eval, held, targets, "model", around)
    return onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]), around, data


def given(job, around, use, rows):
    """Return the raw columns of some rows of a use, as somebody would read them from the file."""
    opened = job.data.prepared.sources.opened(use)
    inputs = {}
    before_each = functools.cache(lambda: windows(job, use, rows))
    for feed, fed in around.feeds.items():
        level = job.run.model.feeds[feed].lod_level
        for lane in fed.lanes:
            source = lane.source
            wanted = job.data.sources[feed]
            column = job.data.fitted.columns.get(wanted.field)
            if column is not None and "tokens" in column.state:
                # ids of tokens: who calls the model makes them by the tokenizer in its metadata
                batch = select(job.data.dataset(use), [wanted]).take(np.arange(len(rows)))
                inputs[source.name] = batch[wanted.field]
                if level:
                    inputs[offsets_name(feed, 0)] = batch[offsets_name(wanted.field, 0)]
                continue
            if not is_table(opened) and not job.data.prepared.wishes.columns:
                batch = opened.take(rows)
                inputs[source.name] = batch[source.column]
                if level:
                    inputs[offsets_name(feed, 0)] = batch[offsets_name(source.column, 0)]
                continue
            cells = job.data.prepared.sources.table(use).cells(source.column)
            if column is not None and column.type == "window":
                inputs[source.name] = np.stack([raw(job, source, cells, before) for before in before_each()])
            elif level:
                inputs[source.name], inputs[offsets_name(feed, 0)] = items(job, source, cells, rows)
            else:
                inputs[source.name] = raw(job, source, cells, rows)
    return inputs


def raw(job, source, cells, rows):
    texts = [cells.text(row) for row in rows]
    if source.part not in ("", "text"):
        return np.array([[moment(text, source.part)] for text in texts], np.float64)
    if source.kind.dtype == "uint8":
        pictures = job.data.prepared.field(job.data.prepared.sources.table("train"), source.column, "train").pictures(rows)
        return np.stack(pictures)
    if cells.array() is not None:
        return np.asarray(cells.array()[rows], source.kind.dtype)
    if source.kind.dtype != TEXT:
        numbers = np.array([[float(text) if text else np.nan] for text in texts], source.kind.dtype)
        options = job.data.fitted.columns[source.column].options if source.column in job.data.fitted.columns else {}
        # a number of the row before has to be there when the model is asked
        return pd.DataFrame(numbers).ffill().fillna(0).to_numpy() if options.get("missing") == "previous" else numbers
    if source.kind.shape == (1,):
        return np.array([[text] for text in texts], object)
    bags = [[part.strip() for part in text.split("|")] for text in texts]
    width = max(map(len, bags))
    return np.array([bag + [""] * (width - len(bag)) for bag in bags], object)


def windows(job, use, rows):
    """Return for every anchor the rows of its input, found by pandas in the table."""
    spec = to_data(job.run.data[use].options)
    table = job.data.prepared.sources.table(use)
    frame = pd.DataFrame({name: [table.cells(name).text(row) for row in range(len(table))] for name in (spec["key"], spec["time"])})
    frame = frame.sort_values([spec["key"], spec["time"]])
    at = {row: place for place, row in enumerate(frame.index)}
    return [frame.index[at[row] - spec["length"] + 1 : at[row] + 1].tolist() for row in rows]


def items(job, source, cells, rows):
    """Return what cells of sequences hold, one below the other, and offsets."""
    lists = [cells.text(row).replace("|", " ").split() or [""] for row in rows]
    flat = [[item] for found in lists for item in found]
    offsets = np.append(0, np.cumsum([len(found) for found in lists])).astype(np.int64)
    if source.kind.dtype == TEXT:
        return np.array(flat, object), offsets
    return np.array([[float(item) if item else np.nan] for (item,) in flat]), offsets


def moment(text, part):
    if not text:
        return np.nan
    found = datetime.fromisoformat(text).replace(tzinfo=UTC)
    return {"timestamp": found.timestamp(), "month": found.month, "weekday": found.weekday(), "year": found.year, "hour": found.hour}[part]


def compare(job, use, targets, rtol=1e-4, atol=1e-5):
    """Compare a batch of predictions with what onnxruntime says for the same rows of the file."""
    session, around, _ = exported(job, targets)
    wanted = next(iter(Evaluator(job).predict(use, targets, limit=1)))
    kept = job.data.sample_rows(use)
    count = min(job.batch_size, len(job.data.dataset(use)))
    rows = np.arange(count) if kept is None else kept[:count]
    inputs = {i.name for i in session.get_inputs()}
    fed = {name: value for name, value in given(job, around, use, rows).items() if name in inputs}
    found = dict(zip((o.name for o in session.get_outputs()), session.run(None, fed), strict=True))
    for answer in answers(job, targets):
        if wanted[answer.variable].dtype == object:  # sequences, whose rows the model gives one below the other
            np.testing.assert_allclose(found[answer.variable], np.concatenate(wanted[answer.variable]), rtol=rtol, atol=atol)
            continue
        if len(job.built.eval.global_block().var(answer.variable).shape) != 2:
            np.testing.assert_allclose(found[answer.variable], wanted[answer.variable], rtol=rtol, atol=atol)
            continue
        told = said([answer], wanted)
        if answer.classes:
            np.testing.assert_allclose(found[answer.variable], wanted[answer.variable], rtol=rtol, atol=atol)
            if answer.several:
                given_tags = [np.array(answer.classes)[row == 1].tolist() for row in found[f"{answer.variable}_tags"]]
                assert [answer.column.join(tags) for tags in given_tags] == told[answer.name]
            else:
                assert found[f"{answer.variable}_label"][:, 0].tolist() == told[answer.name]
        else:
            columns = np.array(list(told.values())).T
            if columns.dtype.kind == "U":  # texts of tokens, of which the model gives the ids
                np.testing.assert_array_equal(found[answer.variable], wanted[answer.variable])
                continue
            scale = np.abs(columns).max() if answer.column else 1.0
            np.testing.assert_allclose(found[answer.variable], columns, rtol=rtol, atol=atol * max(1.0, scale))
    return session, found


#: Of models that draw noise in evaluation, too: outputs that are compared.
NO_NOISE = {"dcgan": ["of_real/score"], "digits_vae": ["center"]}
#: Models of which every output depends on noise.
ALL_NOISE = ("bert",)


@pytest.mark.parametrize("path", of_today([pytest.param(p, id=f"{p.parent.name}/{p.stem}") for p in CONFIGS if p.stem not in ALL_NOISE], 4))
def test_every_shipped_model_says_what_predict_says(path):
    text = path.read_text()
    job = trained(path, next((given for mark, given in FEWER.items() if mark in text), []))
    outputs = [v for v in job.built.fetches.values() if job.built.eval.global_block().var(v).shape[:1] == (-1,)]
    outputs = NO_NOISE.get(path.stem, outputs)
    compare(job, "eval" if "eval" in job.run.data else "train", outputs or list(job.built.fetches.values()))


MODEL = """\
name: everything
args: {width: 31}
feeds:
  x:    {shape: ["${width}"]}
  job:  {shape: [1], dtype: int64}
  size: {shape: [1], dtype: int64}
  tags: {shape: [1], dtype: int64, lod_level: 1}
  path: {shape: [1], lod_level: 1}
  seen: {shape: [1], dtype: int64, lod_level: 1}
  kind: {shape: [7]}
  bias: {shape: [3], replicate: true}
  y:    {shape: [1], dtype: int64}
  cost: {shape: [1]}
layers:
  job_row:  {type: embedding, input: job, size: [20, 4]}
  size_row: {type: embedding, input: size, size: [9, 4]}
  tag_rows: {type: embedding, input: tags, size: [20, 4]}
  tag_row:  {type: sequence_pool, input: tag_rows, pool_type: sum}
  seen_rows: {type: embedding, input: seen, size: [20, 4]}
  seen_row: {type: sequence_pool, input: seen_rows, pool_type: average}
  path_row: {type: sequence_pool, input: path, pool_type: max}
  all:      {type: concat, input: [x, job_row, size_row, tag_row, seen_row, path_row, kind], axis: 1}
  shown:    {type: scale, x: all, scale: 1.0}
  hidden:   {type: fc, input: all, size: 3, act: tanh}
  logits:   {type: elementwise_add, x: hidden, y: bias}
  prob:     {type: softmax, input: logits}
  wrong:    {type: cross_entropy, input: prob, label: y}
  estimate: {type: fc, input: hidden, size: 1}
  square:   {type: square_error_cost, input: estimate, label: cost}
  loss_a:   {type: mean, x: wrong}
  loss_b:   {type: mean, x: square}
  loss:     {type: elementwise_add, x: loss_a, y: loss_b}
fetches: [loss, prob, estimate, shown]
"""
CONFIG = """\
model: model.yaml
data:
  train: {reader: table, files: train.csv}
  eval:  {reader: table, files: eval.csv}
  columns:
    age:    {type: number, missing: median, scale: standard}
    pay:    {type: number, missing: 3.5, scale: robust, clip: [-10, 20]}
    rate:   {type: number, scale: minmax, dtype: float64}
    grade:  {type: number, of: size, scale: standard}
    size:   {type: number, clip: [0, 8]}
    both:   {type: vector, of: [rate, pay], missing: mean, scale: standard, clip: [-1, 4]}
    job:    {type: category, min_count: 2}
    flag:   {type: bool, missing: false}
    made:   {type: date, parts: [timestamp, year, month, weekday, hour], missing: zero}
    day:    {type: date, of: made, parts: [month], cyclic: false, missing: zero}
    plan:   {type: category, of: size, encode: one_hot, classes: [1, 2, 3]}
    hot:    {type: bag, of: tags}
    counts: {type: bag, of: tags, encode: counts}
    tags:   {type: bag, encode: ids, min_count: 2}
    path:   {type: sequence, separator: "|", scale: standard}
    seen:   {type: sequence, items: category, separator: "|"}
    kind:   {type: number, missing: 0}
    y:      {type: category}
    cost:   {type: number, scale: standard}
feeds:
  x: [age, pay, rate, grade, both, flag, made, day, plan, hot, counts]
  kind: {from: kind, dtype: int64, one_hot: 7, shift: -1}
  bias: {value: [0.1, 0.2, -0.3]}
train: {loss: loss, epochs: 1, batch_size: 16, optimizer: {type: SGD, learning_rate: 0.1}}
executor: {devices: 1, seed: 1}
"""
JOBS = ["cook", "clerk", "smith", "baker"]
TAGS = ["red", "green", "blue", "old"]


def table(path, rows, seed, missing, new):
    """Write a table with all kinds of columns; some cells are missing, and some hold what training never saw."""
    draw = np.random.default_rng(seed)
    lines = ["cost,tags,age,pay,rate,size,job,flag,made,path,seen,kind,y"]
    for row in range(rows):
        tags = "|".join(draw.choice(TAGS, draw.integers(1, 6)))
        cells = {
            "cost": f"{draw.normal(500, 90):.3f}", "tags": tags, "age": f"{draw.normal(40, 9):.2f}",
            "pay": f"{draw.normal(5, 12):.3f}", "rate": f"{draw.uniform():.9f}", "size": str(row % 8 + 1),
            "job": str(draw.choice(JOBS)), "flag": ["Yes", "no", "TRUE", "0"][row % 4],
            "made": f"20{draw.integers(10, 26)}-{draw.integers(1, 13):02}-{draw.integers(1, 29):02}T{draw.integers(0, 24):02}:00:00",
            "path": "|".join(f"{value:.2f}" for value in draw.normal(size=draw.integers(1, 5))),
            "seen": "|".join(draw.choice(JOBS, draw.integers(1, 5))), "kind": str(row % 7 + 1), "y": f"class {row % 3}",
        }  # fmt: skip
        if missing and row % 5 == 0:
            cells |= dict.fromkeys(["age", "pay", "job", "flag", "made", "tags", "path", "seen"], "")
        if new and row % 5 == 1:
            cells |= {"job": "pilot", "tags": "red|violet|violet", "seen": "cook|pilot"}
        lines.append(",".join(cells.values()))
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def everything(tmp_path):
    """Return the config of a model that reads a table with all kinds of columns."""
    table(tmp_path / "train.csv", 48, 1, missing=True, new=False)
    table(tmp_path / "eval.csv", 16, 2, missing=True, new=True)
    (tmp_path / "model.yaml").write_text(MODEL)
    (tmp_path / "run.yaml").write_text(CONFIG)
    return tmp_path / "run.yaml"


def test_all_kinds_of_columns_with_missing_and_unknown_cells_become_what_the_model_sees(everything):
    # `shown` is what the model is fed, side by side: it says which column differs
    session, _ = compare(trained(everything), "eval", ["prob", "estimate", "shown"], rtol=1e-6, atol=1e-6)
    types = {i.name: i.type for i in session.get_inputs()}
    assert types["age"] == types["made.month"] == "tensor(double)"
    assert types["job"] == types["flag"] == types["tags"] == "tensor(string)"
    assert (types["size"], types["size.text"]) == ("tensor(double)", "tensor(string)")
    assert "bias" not in types, "a feed with one value in the config is part of the model"
    assert "y" not in types, "labels are not asked for"
    assert [o.name for o in session.get_outputs()] == ["prob", "prob_label", "estimate", "shown"]


def fed(session, cells):
    """Return the inputs of one row: those that are not said have a plain value."""
    plain = {"tensor(double)": 1.0, "tensor(string)": "1"}
    row = {"job": "cook", "flag": "yes", "made.weekday": 3.0, "kind": 1.0, "size": 2.0, "tags": "red", "seen": "cook"} | cells
    found = {}
    for one in session.get_inputs():
        if "@LOD" in one.name:
            found[one.name] = np.array([0, 1])
        else:
            found[one.name] = np.array([[row.get(one.name, plain[one.type])]], np.float64 if "double" in one.type else object)
    return found


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        pytest.param({"rate": np.nan}, "column 'rate': the cell is missing", id="a missing number where missing: error"),
        pytest.param({"flag": "maybe"}, "column 'flag': a cell that is neither true nor false", id="no truth value"),
        pytest.param({"kind": 9.0}, "feed 'kind': an index that one_hot: 7 has no place for", id="an index that one_hot has no place for"),
    ],
)
def test_what_predict_refuses_ends_the_run_with_the_columns_name(everything, cells, said):
    session, _, _ = exported(trained(everything), ["prob"])
    session.run(None, fed(session, {}))
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument) as caught:
        session.run(None, fed(session, cells))
    assert said in str(caught.value)


def test_texts_that_the_reader_takes_for_missing_are_missing(everything):
    session, _, _ = exported(trained(everything), ["shown"])
    (empty,) = session.run(None, fed(session, {"job": ""}))
    (written,) = session.run(None, fed(session, {"job": "N/A"}))
    (unknown,) = session.run(None, fed(session, {"job": "pilot"}))
    np.testing.assert_array_equal(empty, written)
    assert not np.array_equal(empty, unknown)


IDENTITY = """\
name: identity
feeds:
  x: {shape: [2]}
  y: {shape: [2]}
layers:
  same: {type: scale, x: x, scale: 1.0}
  guess: {type: fc, input: same, size: 2}
  error: {type: square_error_cost, input: guess, label: y}
  loss: {type: mean, x: error}
fetches: [loss, same]
"""


def identity(folder, feeds, columns="", model=IDENTITY):
    """Write a config of a model that says what it is fed; x.npz has fields x and y, [4, 2]."""
    np.savez(folder / "x.npz", x=np.array([[0, 1], [2, 3], [4, 5], [6, 7]], np.float32), y=np.zeros((4, 2), np.float32))
    (folder / "model.yaml").write_text(model)
    (folder / "run.yaml").write_text(
        f"model: model.yaml\ndata:\n  train: {{reader: npz, file: x.npz}}\n{columns}feeds: {feeds}\n"
        "train: {loss: loss, epochs: 1, batch_size: 4, optimizer: {type: SGD, learning_rate: 0.1}}\nexecutor: {devices: 1}\n"
    )
    job = Job.open(folder / "run.yaml")
    job.initialise()
    return job


def said_by(job, x):
    session, _, _ = exported(job, ["same"])
    (found,) = session.run(["same"], {"x": x})
    return found


def test_scale_and_shift_of_a_feed_are_in_the_model(tmp_path):
    job = identity(tmp_path, "{x: {from: x, scale: 2.0, shift: -1.0}}")
    found = said_by(job, np.float32([[0, 1], [10, 0.5]]))
    np.testing.assert_array_equal(found, [[-1, 1], [19, 0]])


def test_a_column_of_a_file_of_arrays_is_scaled(tmp_path):
    # means 3 and 4, deviations sqrt(5)
    job = identity(tmp_path, "{}", "  columns: {x: {type: number, scale: standard}}\n")
    found = said_by(job, np.float32([[3, 4], [8, 9]]))
    np.testing.assert_allclose(found, [[0, 0], [5**0.5, 5**0.5]], rtol=1e-6)


@pytest.mark.parametrize("missing", ["mean", "median"])
def test_what_is_missing_in_a_file_of_arrays_is_filled_by_feature(tmp_path, missing):
    job = identity(tmp_path, "{}", f"  columns: {{x: {{type: number, missing: {missing}}}}}\n")
    found = said_by(job, np.float32([[np.nan, 4], [8, np.nan]]))
    np.testing.assert_allclose(found, [[3, 4], [8, 4]], rtol=1e-6)  # of 0 2 4 6, and of 1 3 5 7


def test_arrays_that_are_gone_are_an_error_that_names_raw(tmp_path):
    job = identity(tmp_path, "{x: {from: x, scale: 2.0}}")
    (tmp_path / "x.npz").unlink()
    with pytest.raises(PeError) as caught:
        Exporting(job, ["same"]).around("somewhere")
    assert caught.value.code == 3
    assert "--raw" in caught.value.hint
    assert Exporting(job, ["same"]).left_out() == ["x (scale 2.0)"]


def test_an_output_that_is_called_as_a_column_is_an_error(tmp_path):
    model = IDENTITY.replace("  x: {shape: [2]}", "  fed: {shape: [2]}").replace("x: x, scale", "x: fed, scale").replace("same", "x")
    job = identity(tmp_path, "{fed: x}", model=model)
    with pytest.raises(PeError, match="an output and a column of the data are called 'x'"):
        exported(job, ["x"])


TEXTS = """\
name: texts
feeds:
  text:  {shape: [1], dtype: int64, lod_level: 1}
  short: {shape: [4, 1], dtype: int64}
  y:     {shape: [1], dtype: int64}
layers:
  rows:  {type: embedding, input: text, size: [300, 4]}
  whole: {type: sequence_pool, input: rows, pool_type: sum}
  parts: {type: embedding, input: short, size: [300, 4]}
  flat:  {type: reshape, x: parts, shape: [-1, 16]}
  all:   {type: concat, input: [whole, flat], axis: 1}
  prob:  {type: fc, input: all, size: 2, act: softmax}
  wrong: {type: cross_entropy, input: prob, label: y}
  loss:  {type: mean, x: wrong}
fetches: [loss, prob]
"""


@pytest.mark.parametrize("tokens", ["words", "characters", "bpe"])
def test_texts_go_through_the_tokenizer_in_the_metadata(tmp_path, tokens):
    (tmp_path / "model.yaml").write_text(TEXTS)
    (tmp_path / "texts.csv").write_text("text,y\nthe cat sat,a\nthe dog sat down,b\na CAT and a dog,a\nno dog,b\n")
    size = "size: 280, " if tokens == "bpe" else ""
    (tmp_path / "run.yaml").write_text(
        "model: model.yaml\ndata:\n  train: {reader: table, files: texts.csv}\n  columns:\n"
        f"    text: {{type: text, tokens: {tokens}, {size}min_count: 1, lower: true}}\n"
        f"    short: {{type: text, of: text, tokens: {tokens}, {size}min_count: 1, length: 4}}\n    y: {{type: category}}\n"
        "train: {loss: loss, epochs: 1, batch_size: 4, optimizer: {type: SGD, learning_rate: 0.1}}\nexecutor: {devices: 1, seed: 1}\n"
    )
    job = trained(tmp_path / "run.yaml")
    session, _, data = exported(job, ["prob"])
    facts = {prop.key: prop.value for prop in onnx.load_from_string(data).metadata_props}
    known = {name: Tokenizer.from_str(json.dumps(value)) for name, value in json.loads(facts["pe.tokenizer"]).items()}
    texts = ["the cat sat", "the dog sat down", "a CAT and a dog", "no dog"]
    whole = [known["text"].encode(text).ids for text in texts]
    short = np.array([(known["short"].encode(text).ids + [0] * 4)[:4] for text in texts])
    names = [i.name for i in session.get_inputs()]
    values = {"text": np.concatenate(whole)[:, None], "text@LOD0": np.append(0, np.cumsum([len(ids) for ids in whole]))}
    fed = {name: values.get(name, short).astype(np.int64) for name in names}
    found = session.run(["prob"], fed)[0]
    wanted = next(iter(Evaluator(job).predict("train", ["prob"])))["prob"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def run(*words):
    done = CliRunner().invoke(cli, list(map(str, words)))
    assert done.exit_code == 0, done.output
    return done.output


def test_the_command_writes_what_the_model_is_given_and_says_what_raw_leaves_out(everything, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("train", everything, "--quiet")
    (folder,) = (tmp_path / "runs").iterdir()
    for name in ("train.csv", "eval.csv"):
        (tmp_path / name).unlink()
    shown = run("export", folder, "--onnx", "m.onnx", "--fetch", "prob", "--fetch", "estimate")
    assert "outputs prob, prob_label, estimate" in shown
    assert "m.onnx.data.json: what is given for made.timestamp" in shown
    facts = {prop.key: prop.value for prop in onnx.load("m.onnx").metadata_props}
    assert facts["pe.version"] == pe_cli.__version__
    assert facts["pe.checkpoint"].endswith("step-3")
    assert json.loads(facts["pe.classes"]) == {"prob": ["class 0", "class 1", "class 2"]}
    assert json.loads(facts["pe.inputs"])["made.month"]["meaning"] == "1 to 12; NaN for a missing cell"
    assert json.loads(facts["pe.columns"])["job"] == {"type": "category", "options": {"min_count": 2}}
    beside = json.loads(Path("m.onnx.data.json").read_text())
    assert beside["columns"]["seen"]["state"]["classes"] == sorted(JOBS)
    raw = run("export", folder, "--onnx", "raw.onnx", "--raw")
    assert "kind (shift -1.0, one_hot 7, dtype int64, number kind)" in raw
    assert "classes of prob; units of estimate" in raw
    session = onnxruntime.InferenceSession("raw.onnx", providers=["CPUExecutionProvider"])
    assert {i.name for i in session.get_inputs()} >= {"x", "job", "kind", "bias"}
