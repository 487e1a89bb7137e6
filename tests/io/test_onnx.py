"""What is exported computes the same in onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from click.testing import CliRunner

import pe_cli
from pe_cli.cli.main import cli
from pe_cli.core.errors import PeError, Span
from pe_cli.core.types import TensorType
from pe_cli.execute.executor import Executor
from pe_cli.io.onnx.export import export
from pe_cli.layers.control.loops import scan
from pe_cli.layers.define.registry import find as find_layer
from pe_cli.ops.define.onnx import FORMS, UNWRITTEN, NoOnnxForm, OnnxForm, onnx_trait
from pe_cli.ops.define.registry import discover, find
from pe_cli.ops.define.traits import Random
from pe_cli.program.defaults import program_guard
from pe_cli.program.ir import Program
from pe_cli.program.prune import prune
from pe_cli.session.job import Job
from tests.ops.support import as_lists, build, execute, sample_arrays
from tests.rotation import of_today

CONFIGS = sorted((Path(pe_cli.__file__).parents[1] / "configs").rglob("*.yaml"))
#: Overrides that make pictures of 224x224 smaller: the same ops in a tenth of the time.
SMALL = [
    "model.args.side=64",
    "data.train={reader: synthetic, samples: 16, fields: {x: {shape: [3, 64, 64]}, y: {shape: [1], dtype: int64, classes: 9}}}",
]
#: What an evaluation program sets that an op's sample may leave at training.
AS_EVALUATED = {"batch_norm": {"is_test": True}, "dropout": {"is_test": True}, "random_crop": {"is_test": True}}
#: Outputs that a model for use has; ops without an entry have all of theirs.
COMPARED = {
    "batch_norm": "Y", "dropout": "Out", "group_norm": "Y", "layer_norm": "Y", "attention": "Out", "sequence_pool": "Out",
    "roi_pool": "Out",
}  # fmt: skip
KEPT = {"padded_lstm": ("Out", "LastH", "LastC"), "lstm": ("Hidden", "Cell"), "gru": ("Hidden",)}
discover()
CASES = [
    pytest.param(name, sample, id=f"{name}: {sample.name or i}")
    for name in sorted(FORMS)
    for i, sample in enumerate(find(name).samples)
    if "empty" not in sample.name  # there is nothing to compare, and onnxruntime is not sure of the shapes
]


def onnx_values(program, arrays, targets):
    """Return what onnxruntime computes for a program whose inputs are all persistable."""
    data = export(program, arrays, targets, "test")
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    return dict(zip(targets, session.run(targets, {}), strict=True))


@pytest.mark.parametrize(("name", "sample"), CASES)
def test_every_form_computes_what_the_op_computes(name, sample):
    definition = find(name)
    attrs = {**sample.attrs, **AS_EVALUATED.get(name, {})}
    inputs = as_lists(sample_arrays(definition, sample, "float32"))
    program, outs = build(name, inputs, attrs, sample.outputs)
    outs = {slot: names for slot, names in outs.items() if slot == COMPARED.get(name, slot) and slot in KEPT.get(name, (slot,))}
    wanted = [n for names in outs.values() for n in names]
    ours = execute(program, inputs, wanted)
    program.global_block().ops[-1].outputs = outs
    theirs = onnx_values(program, {f"{s}_{i}": a for s, v in inputs.items() for i, a in enumerate(v)}, wanted)
    for target in wanted:
        assert theirs[target].dtype == ours[target].dtype
        assert theirs[target].shape == ours[target].shape
        if definition.has(Random) and name not in AS_EVALUATED:  # other draws of the same distribution
            away = abs(theirs[target].sum() - ours[target].sum())
            assert ours[target].size < 2 or away <= 4 * ours[target].std() * ours[target].size
            continue
        np.testing.assert_allclose(theirs[target], ours[target], rtol=2e-5, atol=2e-6)


def trained_a_little(path):
    """Return a job of a config whose model has seen two steps of made-up data, so that running statistics are their own."""
    job = Job.open(path, SMALL if "[3, 224, 224]" in path.read_text() else [], smoke=True)
    job.initialise()
    if job.built.train is None:
        return job
    executor = job.executor(job.program)
    for i, feed in zip(range(2), job.data.loader("train", job.program, job.batch_size).epoch(0), strict=False):
        executor.run(feed, [], i)
    return job


#: Of models that draw noise in evaluation, too, and of one that says something of every word: outputs that are compared.
NO_NOISE = {"dcgan": ["of_real/score"], "digits_vae": ["center"], "roles": ["scores", "best", "right"]}
#: Models of which every output depends on noise.
ALL_NOISE = ("bert",)


@pytest.mark.parametrize("path", of_today([pytest.param(p, id=f"{p.parent.name}/{p.stem}") for p in CONFIGS if p.stem not in ALL_NOISE], 4))
def test_every_shipped_model_gives_equal_outputs(path):
    job = trained_a_little(path)
    names = [v for v in job.built.fetches.values() if job.built.eval.global_block().var(v).shape[:1] == (-1,)]
    names = NO_NOISE.get(path.stem) or names or list(job.built.fetches.values())
    program = prune(job.built.eval, names)
    held = {v.name: job.scope.get(v.name) for v in job.built.eval.list_vars() if v.persistable}
    feed = next(iter(job.data.loader("train" if job.built.train else "eval", program, job.batch_size).epoch(0)))
    session = onnxruntime.InferenceSession(
        export(job.built.eval, held, names, "model"), providers=["CPUExecutionProvider"]
    )
    theirs = dict(zip(names, session.run(names, feed), strict=True))
    values = Executor(program, job.scope, seed=1, constants=job.data.constants()).run([feed] * len(job.places), names).values
    for name in names:
        np.testing.assert_allclose(theirs[name], values[0][name], rtol=1e-4, atol=1e-5)


def test_an_op_without_a_form_is_named_with_its_line():
    program = Program("p")
    block = program.global_block()
    block.create_var("x", TensorType((1,)), is_data=True)
    block.append_op("global_norm_scale", {"X": "x"}, {"Out": "y"}, at=Span("m.yaml", 7, 3))
    with pytest.raises(PeError) as caught:
        export(program, {}, ["y"], "p")
    assert caught.value.at.line == 7
    assert "op 'global_norm_scale' has no form in ONNX: it trains" in str(caught.value)


def test_every_op_has_a_form_or_a_reason_why_it_has_none():
    for name, found in discover().items():
        assert found.has(OnnxForm) or found.get(NoOnnxForm).why != UNWRITTEN, f"{name}: see docs/adding-an-op.md#in-onnx"
    assert onnx_trait("new", "pe_cli.ops.math.new", gradient=False) == NoOnnxForm(UNWRITTEN)


def test_the_command_writes_a_file_with_an_open_batch(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = Path(pe_cli.__file__).parents[1] / "configs" / "digits.yaml"
    runner = CliRunner()
    done = runner.invoke(cli, ["train", str(config), "-o", "train.epochs=1"])
    assert done.exit_code == 0, done.output
    (run,) = (tmp_path / "runs").iterdir()
    done = runner.invoke(cli, ["export", str(run), "--onnx", "digits.onnx", "--raw"])
    assert done.exit_code == 0, done.output
    assert "left out: image (scale 0.0625)" in done.output
    session = onnxruntime.InferenceSession("digits.onnx", providers=["CPUExecutionProvider"])
    (fed,) = session.get_inputs()
    assert fed.shape[0] == "batch"
    for samples in (1, 5):
        (prob,) = session.run(None, {fed.name: np.zeros((samples, *fed.shape[1:]), np.float32)})
        np.testing.assert_allclose(prob.sum(axis=1), np.ones(samples), rtol=1e-5)


@pytest.mark.parametrize("backwards", [False, True])
def test_a_scan_goes_through_its_steps_in_their_order(backwards):
    main, rng = Program("p"), np.random.default_rng(2)
    block, call = main.global_block(), lambda layer, *args: find_layer(layer).fn(*args)
    arrays = {n: rng.standard_normal(s).astype("float32") for n, s in (("x", (3, 2, 4)), ("h", (2, 4)), ("w", (4, 4)))}
    x = block.create_var("x", TensorType((3, -1, 4)), is_data=True)
    h = block.create_var("h", TensorType((-1, 4)), is_data=True)
    w = block.create_parameter("w", TensorType((4, 4)))

    def step(each, states):
        made = call("tanh", call("elementwise_add", call("mul", each[0], w), states[0]))
        return [made], [made]  # a state that is collected

    with program_guard(main, Program("startup")):
        (every,), (last,) = scan(step, [x], [h], backwards=backwards)
    names = [every.name, last.name]
    session = onnxruntime.InferenceSession(export(main, {"w": arrays["w"]}, names, "p"), providers=["CPUExecutionProvider"])
    found = session.run(names, {n: arrays[n] for n in "xh"})
    state, rows = arrays["h"], []
    for row in arrays["x"][::-1] if backwards else arrays["x"]:
        state = np.tanh(row @ arrays["w"] + state)
        rows.append(state)
    np.testing.assert_allclose(found[0], rows[::-1] if backwards else rows, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[1], state, rtol=1e-5, atol=1e-6)
