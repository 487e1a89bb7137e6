"""train.phases: several losses with optimizers of their own, one after the other in every step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode
from pe_cli.io import checkpoint
from pe_cli.io.view.model_facts import Facts
from pe_cli.io.view.timeline import timeline
from pe_cli.session.benchmarks.plan_facts import Planned
from pe_cli.session.job import Job
from pe_cli.session.live_report import Live
from pe_cli.session.observer import Observer
from pe_cli.session.training.loop import Trainer
from tests.needs import torch
from tests.session.conftest import Bench

#: A critic that tells real points from made ones; both uses of it share its parameters. The noise is data here, so that others can have it.
MODEL = """\
name: tiny_gan
feeds:
  real:  {shape: [2]}
  noise: {shape: [3]}
blocks:
  judge:
    args: {input: ~}
    layers:
      hidden: {type: fc, input: input, size: 6, act: tanh, param_attr: {name: critic/hidden.w}, bias_attr: {name: critic/hidden.b}}
      score:  {type: fc, size: 1, param_attr: {name: critic/score.w}, bias_attr: {name: critic/score.b}}
    output: score
  generate:
    args: {input: ~}
    layers:
      hidden: {type: fc, input: input, size: 5, act: tanh}
      point:  {type: fc, size: 2}
    output: point
layers:
  generator: {block: generate, input: noise}
  of_real:   {block: judge, input: real}
  of_fake:   {block: judge, input: generator}
  ones:      {type: fill_constant_batch_size_like, input: noise, shape: [-1, 1], dtype: float32, value: 1.0}
  zeros:     {type: fill_constant_batch_size_like, input: noise, shape: [-1, 1], dtype: float32, value: 0.0}
  miss_real: {type: sigmoid_cross_entropy_with_logits, x: of_real, label: ones}
  miss_fake: {type: sigmoid_cross_entropy_with_logits, x: of_fake, label: zeros}
  misses:    {type: elementwise_add, x: miss_real, y: miss_fake}
  d_loss:    {type: mean, x: misses}
  fooled:    {type: sigmoid_cross_entropy_with_logits, x: of_fake, label: ones}
  g_loss:    {type: mean, x: fooled}
fetches: [d_loss, g_loss]
"""
CRITIC = "{name: critic, loss: d_loss, parameters: 'critic/*', optimizer: {type: Adam, learning_rate: 0.02}, repeat: 2}"
GENERATOR = (
    "{name: generator, loss: g_loss, parameters: generator/*,"
    " optimizer: {type: Momentum, momentum: 0.9,"
    " learning_rate: {type: exponential_decay, learning_rate: 0.1, decay_steps: 5, decay_rate: 0.7}}}"
)
CONFIG = f"""\
model: model.yaml
data: {{train: {{reader: npz, file: data.npz}}}}
train:
  phases:
    - {CRITIC}
    - {GENERATOR}
  epochs: 2
  batch_size: 12
fetches: {{d_loss: {{every: 1 steps}}, g_loss: {{every: 1 steps}}}}
executor: {{devices: 1, seed: 3}}
output: {{dir: runs, checkpoint: {{every: 3 steps, keep: 9}}}}
"""
SIZES = {"critic/hidden": (2, 6), "critic/score": (6, 1), "generator/hidden": (3, 5), "generator/point": (5, 2)}


@pytest.fixture
def gan(bench: Bench) -> Bench:
    return of_points(bench)


def of_points(bench: Bench) -> Bench:
    """Write a GAN with first values and 116 samples: four steps of 24 an epoch, and one of 20."""
    rng = np.random.default_rng(4)
    np.savez(bench.base / "data.npz", real=rng.standard_normal((116, 2)).astype(np.float32) + 1, noise=rng.random((116, 3), np.float32))
    values = {}
    for layer, size in SIZES.items():
        ending = "" if layer.startswith("critic") else "_0"
        values[f"{layer}.w{ending}"] = rng.standard_normal(size).astype(np.float32)
        values[f"{layer}.b{ending}"] = rng.standard_normal(size[1]).astype(np.float32)
    np.savez(bench.base / "start.npz", **values)
    (bench.base / "model.yaml").write_text(MODEL)
    (bench.base / "run.yaml").write_text(CONFIG)
    return bench


def metrics(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def by_pytorch(base: Path, accumulate: int = 1) -> tuple[dict[str, np.ndarray], list[tuple[float, float]]]:
    """Return the parameters after two epochs, and the mean of each loss in every step."""
    bce = torch.nn.functional.binary_cross_entropy_with_logits
    with np.load(base / "start.npz") as start, np.load(base / "data.npz") as data:
        p = {name: torch.tensor(start[name], requires_grad=True) for name in start.files}
        real, noise = torch.tensor(data["real"]), torch.tensor(data["noise"])
    critic, generator = ([t for n, t in p.items() if n.startswith(part)] for part in ("critic", "generator"))
    first, second = torch.optim.Adam(critic, 0.02), torch.optim.SGD(generator, 0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.LambdaLR(second, lambda step: 0.7 ** (step / 5))

    def judge(x):
        return torch.tanh(x @ p["critic/hidden.w"] + p["critic/hidden.b"]) @ p["critic/score.w"] + p["critic/score.b"]

    def make(z):
        return torch.tanh(z @ p["generator/hidden.w_0"] + p["generator/hidden.b_0"]) @ p["generator/point.w_0"] + p["generator/point.b_0"]

    losses = []
    size = 24 * accumulate
    for _ in range(2):
        for begin in range(0, len(real), size):
            x, z = real[begin : begin + size], noise[begin : begin + size]
            half, found = len(x) // 2, []
            for part in (slice(0, half), slice(half, None)):
                made = judge(make(z[part]).detach())
                d_loss = (
                    bce(judge(x[part]), torch.ones(len(made), 1)) + bce(made, torch.zeros(len(made), 1))
                )
                first.zero_grad()
                d_loss.backward()
                first.step()
                found.append(d_loss.item())
            g_loss = bce(judge(make(z[half:])), torch.ones(len(z) - half, 1))
            second.zero_grad()
            g_loss.backward()
            second.step()
            schedule.step()
            losses.append((sum(found) / 2, g_loss.item()))
    return {name: t.detach().numpy() for name, t in p.items()}, losses


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_ten_steps_are_those_of_pytorch(gan: Bench, devices: int, accumulate: int) -> None:
    wishes = ("train.init={from: start.npz}", f"executor.devices={devices}", f"train.accumulate={accumulate}")
    folder = gan.train("runs", *(part for wish in wishes for part in ("-o", wish)))
    theirs, losses = by_pytorch(gan.base, accumulate)
    assert len(losses) == 10 // accumulate + (accumulate > 1)
    ours = checkpoint.load(folder)[0]
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, rtol=1e-4, atol=1e-5, err_msg=name)
    lines = metrics(folder)
    np.testing.assert_allclose([(line["d_loss"], line["g_loss"]) for line in lines], losses, rtol=2e-5)
    assert {"critic/learning_rate", "generator/learning_rate"} <= set(lines[0])


def test_a_phase_computes_no_gradient_for_others_and_no_layer_that_it_does_not_need(gan: Bench) -> None:
    assert gan.run("graph", gan.base / "run.yaml", "--phase", "critic") == 0
    critic = gan.out
    assert gan.run("graph", gan.base / "run.yaml", "--phase", "generator") == 0
    assert "generator/point.w_0@GRAD" in gan.out
    assert "generator/point.w_0@GRAD" not in critic
    assert "critic/score.w@GRAD" in critic
    assert "critic/score.w@GRAD" not in gan.out
    assert "of_real" in critic
    assert "of_real" not in gan.out
    assert "g_loss" not in critic


@pytest.mark.parametrize("devices", [1, 2])
def test_a_resumed_run_has_the_same_bits(gan: Bench, devices: int) -> None:
    options = ("-o", f"executor.devices={devices}", "-o", "data.train.shuffle=true", "-o", "train.ema={decay: 0.9}")
    whole = gan.train("whole", *options)
    part = gan.train("part", *options, "--max-steps", "4", code=ExitCode.STOPPED)
    assert gan.run("train", "--resume", part, "--quiet") == 0, gan.err
    assert gan.seen(part) == gan.seen(whole)
    names = set(checkpoint.load(whole)[0])
    assert {"critic/critic/score.w_moment1_0", "generator/generator/point.w_0_velocity_0"} <= names
    assert "critic/generator/point.w_0_moment1_0" not in names


def test_what_was_recorded_is_verified_and_replayed(gan: Bench) -> None:
    folder = gan.train("runs")
    assert gan.run("verify", folder) == 0, gan.err
    assert gan.run("replay", folder, "--step", "4", "--json") == 0, gan.err
    assert {"critic/score.w@GRAD", "generator/point.w_0@UPDATE"} <= set(json.dumps(json.loads(gan.out)).replace('"', " ").split())


ONE = """\
  phases:
    - name: all
      loss: loss
      repeat: REPEAT
      optimizer: {type: Adam, learning_rate: {type: exponential_decay, learning_rate: 0.05, decay_steps: 5, decay_rate: 0.8}}
"""
SEQUENCES = """\
name: pooled
feeds:
  x: {shape: [4], dtype: float32, lod_level: 1}
  y: {shape: [1], dtype: float32}
layers:
  hidden: {type: fc, input: x, size: 6, act: tanh}
  one:    {type: sequence_pool, input: hidden, pool_type: sum}
  guess:  {type: fc, size: 1}
  error:  {type: square_error_cost, input: guess, label: y}
  loss:   {type: mean, x: error}
fetches: [loss]
"""


POOL, SCALE = "{type: sequence_pool, input: hidden, pool_type: sum}", "{type: scale, x: hidden, scale: 2.0}"


def phased(text: str, repeat: int = 1) -> str:
    """Return a config with its loss and optimizer in a phase."""
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith(("  loss: loss", "  optimizer:"))]
    return "".join(lines).replace("train:\n", "train:\n" + ONE.replace("REPEAT", str(repeat)), 1)


def values(folder: Path) -> dict[str, np.ndarray]:
    """Return what a run ended with, by names without those of phases."""
    return {name.removeprefix("all/"): value for name, value in checkpoint.load(folder)[0].items()}


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(a[name].tobytes() == b[name].tobytes() for name in a)


@pytest.mark.parametrize("devices", [1, 2])
def test_one_phase_is_ordinary_training(bench: Bench, devices: int) -> None:
    config = bench.base / "run.yaml"
    plain = bench.train("plain", "-o", f"executor.devices={devices}")
    config.write_text(phased(config.read_text()))
    assert same(values(bench.train("phased", "-o", f"executor.devices={devices}")), values(plain))


@pytest.mark.parametrize("model", ["rows", "sequences"])
def test_every_repetition_takes_the_next_batch(bench: Bench, model: str) -> None:
    rows = model == "rows"
    (bench.base / "model.yaml").write_text(SEQUENCES.replace(", lod_level: 1", "").replace(POOL, SCALE) if rows else SEQUENCES)
    x = "{shape: [4]}" if rows else "{shape: [4], lengths: [1, 5]}"
    data = f"{{train: {{reader: synthetic, samples: 32, shuffle: true, fields: {{x: {x}, y: {{shape: [1]}}}}}}}}"
    options = ["-o", f"data={data}", "-o", "train.eval_every=1 epoch", "-o", "fetches={}", "-o", "output.checkpoint={every: 1 epoch}"]
    config = bench.base / "run.yaml"
    plain = bench.train("plain", *options)
    config.write_text(phased(config.read_text(), repeat=2))
    twice = bench.train("twice", *options)
    assert same(values(twice), values(plain))
    assert checkpoint.load(twice)[1]["step"] * 2 == checkpoint.load(plain)[1]["step"] == 12
    rates = [line["all/learning_rate"] for line in metrics(twice) if line["split"] == "train"]
    assert rates == [np.float32(0.05 * 0.8 ** (last / 5)) for last in (3, 7, 11)], "that of the last update, and no mean"


@pytest.mark.parametrize("devices", [1, 2])
def test_the_timeline_has_all_phases_as_often_as_a_step_does_them(gan: Bench, devices: int) -> None:
    folder = gan.train("runs", "-o", "output.trace=2", "-o", "train.epochs=1", "-o", f"executor.devices={devices}")
    made = json.loads((folder / "trace.json").read_text())
    events = [e for e in made["traceEvents"] if e["ph"] == "X"]
    steps = [e for e in events if e["cat"] == "step"]
    assert [e["name"] for e in steps] == [*(f"critic: step {i}" for i in range(4)), "generator: step 0", "generator: step 1"]
    assert all(b["ts"] >= a["ts"] + a["dur"] for a, b in pairwise(steps))
    kernels = [e for e in events if e["cat"] != "step"]
    ends = max(e["ts"] + e["dur"] for e in kernels if e["ts"] < steps[4]["ts"])
    assert ends <= steps[4]["ts"], "phases come one after the other"
    first, second = ({e["args"].get("layer", "") for e in kernels if (e["ts"] >= steps[4]["ts"]) is later} for later in (False, True))
    assert any("of_real" in name for name in first)
    assert not any("of_real" in name for name in second)
    lanes = timeline(made)["lanes"]
    assert len(lanes) == len({lane["name"] for lane in lanes}) >= 1 + devices
    assert sum(len(lane["events"]) for lane in lanes) == len(events)


def test_averages_terms_and_groups_go_with_phases(gan: Bench) -> None:
    """What is frozen until some time, several losses in a phase and moving averages; all of it goes on bit for bit."""
    config = gan.base / "run.yaml"
    text = config.read_text().replace("loss: g_loss", "loss: {g_loss: {weight: 2.0, ramp: 4 steps}, d_loss: -0.5}")
    config.write_text(text.replace("batch_size: 12", "batch_size: 12\n  groups: [{match: generator/hidden, freeze: until 1 epoch}]"))
    wishes = ("executor.devices=2", "train.ema={decay: 0.9}", "data.eval={reader: npz, file: data.npz}", "train.init={from: start.npz}")
    options = [part for wish in (*wishes, "fetches.generator/total_loss={every: 1 steps}") for part in ("-o", wish)]
    whole = gan.train("whole", *options)
    part = gan.train("part", *options, "--max-steps", "6", code=ExitCode.STOPPED)
    assert gan.run("train", "--resume", part, "--quiet") == 0, gan.err
    assert gan.seen(part) == gan.seen(whole)
    lines = [line for line in metrics(whole) if line["split"] == "train"]
    assert [line["generator/weight/g_loss"] for line in lines[:5]] == [0.0, 0.5, 1.0, 1.5, 2.0]
    before, after = (checkpoint.load(whole / "checkpoints" / f"step-{step}")[0] for step in (3, 9))
    with np.load(gan.base / "start.npz") as start:
        assert np.array_equal(before["generator/hidden.w_0"], start["generator/hidden.w_0"])
        assert not np.array_equal(after["generator/hidden.w_0"], start["generator/hidden.w_0"])
    assert {name for name in after if name.endswith("_ema_0")} >= {"critic/critic/score.w_ema_0", "generator/generator/point.w_0_ema_0"}


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["train.recompute={every: 2}"], id="recomputed"),
        pytest.param([f"build_strategy.{key}=false" for key in ("memory_optimize", "fuse_gemm_epilogue", "simplify")], id="without passes"),
        pytest.param(["exec_strategy.num_threads=2"], id="on two threads"),
    ],
)
def test_bits_stay(gan: Bench, options: list[str]) -> None:
    plain = gan.train("plain")
    other = gan.train("other", *(part for option in options for part in ("-o", option)))
    assert same(checkpoint.load(other)[0], checkpoint.load(plain)[0])


def test_a_fetch_is_of_the_phase_that_has_least_to_compute_for_it(gan: Bench) -> None:
    fetches = "{of_real: {every: 1 steps, to: real.npz}, of_fake: {every: 1 steps, to: fake.npz}}"
    folder = gan.train("runs", "-o", f"fetches={fetches}", "-o", "train.epochs=1")
    with np.load(folder / "fetches" / "real.npz") as real, np.load(folder / "fetches" / "fake.npz") as fake:
        assert real["of_real"].shape == (116, 1), "both batches of the critic"
        assert fake["of_fake"].shape == (58, 1), "the batch of the generator"


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        pytest.param(("'critic/*'", "'crtic/*'"), [], "5:48: error: train.phases: no parameter and no layer with parameters", id="typo"),
        pytest.param(("'critic/*'", "generator/*"), [], "error: train.phases: no phase trains 'critic/", id="nobody trains"),
        pytest.param(("generator/*", "'of_real/*'"), [], "no phase trains 'generator/", id="a layer's parameters"),
        pytest.param(("loss: g_loss, ", ""), [], "error: train.phases.1 needs loss", id="no loss"),
        pytest.param(("name: generator", "name: critic"), [], "error: two phases are called 'critic'", id="two of a name"),
        pytest.param(("name: generator", "name: a b"), [], "error: train.phases.1.name must be a name of letters", id="two words"),
        pytest.param(("g_loss", "of_fake"), [], "error: the loss 'of_fake/score' must be one number, it is float32", id="no number"),
        pytest.param(("Momentum", "Momentom"), [], "error: there is no optimizer 'Momentom'", id="no optimizer"),
        pytest.param(("repeat: 2", "repeat: 0"), [], "error: train.phases.0.repeat must be at least 1, got 0", id="never"),
        pytest.param(("epochs: 2", "loss: g_loss\n  epochs: 2"), [], "error: every phase has its own loss", id="two losses"),
        pytest.param(
            ("epochs: 2", "epochs: 2\n  plateau: {by: train/g_loss, mode: min}"), [], "error: train.plateau lowers one", id="a plateau"
        ),
        pytest.param(("", ""), ["exec_strategy.num_iteration_per_run=2"], "num_iteration_per_run repeats a program", id="iterations"),
    ],
)
def test_what_cannot_be_is_told(gan: Bench, change: tuple[str, str], options: list[str], said: str) -> None:
    config = gan.base / "run.yaml"
    config.write_text(config.read_text().replace(*change, 1) if change[0] else config.read_text())
    given = [part for option in options for part in ("-o", option)]
    assert gan.run("check", config, *given) == ExitCode.USAGE
    assert said in gan.err


def test_what_is_trained_is_summed_up(gan: Bench) -> None:
    assert gan.run("summary", gan.base / "run.yaml", "--json") == 0
    critic, generator = json.loads(gan.out)["phases"]
    assert [critic[key] for key in ("phase", "loss", "optimizer", "repeat", "numbers")] == ["critic", "d_loss", "Adam", 2, 25]
    assert generator["parameters"] == ["generator/hidden.w_0", "generator/hidden.b_0", "generator/point.w_0", "generator/point.b_0"]
    assert gan.run("check", gan.base / "run.yaml") == 0
    assert gan.run("bench", gan.base / "run.yaml", "--steps", "4", "--json") == 0
    assert json.loads(gan.out)["batch_size"] == 24
    assert gan.run("graph", gan.base / "run.yaml", "--schedule", "--phase", "generator") == 0
    assert "0.1" in gan.out
    assert gan.run("lr", gan.base / "run.yaml") == ExitCode.USAGE
    assert "every phase has its own" in gan.err


class Watcher(Observer):
    """Looks at every step."""

    def __init__(self) -> None:
        self.seen: list[Sequence[Planned]] = []

    def wants_plan(self) -> bool:
        return True

    def planned(self, found: Sequence[Planned]) -> None:
        self.seen.append(found)


def test_a_live_page_and_the_report_show_every_phase(gan: Bench) -> None:
    """The timeline of a step has the last update of each phase, one after the other; memory is told of each."""
    watcher = Watcher()
    job = Job.open(gan.base / "run.yaml", ["train.steps=2", f"output.dir={gan.base / 'live'}"], watcher)
    job.initialise()
    Trainer(job).train()
    assert [[one.phase for one in found] for found in watcher.seen] == [["critic", "generator"]] * 2
    live = Live(print, Facts())
    live.planned(watcher.seen[1])
    live.close()
    look = json.loads(live.look())
    assert ["critic on cpu:0" in look["memory"], "generator on cpu:0" in look["memory"]] == [True, True]
    names, (lane, *_) = look["timeline"]["names"], look["timeline"]["lanes"]
    whole = [event for name in ("critic: step 2", "generator: step 2") for event in lane["events"] if event[2] == names.index(name)]
    (first, long, *_), (second, *_) = whole
    assert second >= first + long
    (folder,) = (gan.base / "live").iterdir()
    page = gan.base / "page.html"
    assert gan.run("report", folder, "--out", page) == 0, gan.err
    text = page.read_text()
    assert text.count('<div class="graph"') == 2
    assert 0 < text.index("<h4>phase critic</h4>") < text.index("<h4>phase generator</h4>")
    assert "critic on cpu:0" in text
    assert "generator on cpu:0" in text


def test_noise_is_drawn_anew_for_every_update_and_the_same_on_any_devices(gan: Bench) -> None:
    model = MODEL.replace("  noise: {shape: [3]}\n", "").replace(
        "layers:\n  generator:", "layers:\n  noise:     {type: gaussian_random_batch_size_like, input: real, shape: [-1, 3]}\n  generator:"
    )
    (gan.base / "model.yaml").write_text(model.replace("fetches: [d_loss, g_loss]", "fetches: [d_loss, g_loss, noise]"))
    once = gan.train("once", "-o", "fetches={noise: {every: 1 steps, to: noise.npz}, miss_fake: {every: 1 steps, to: fake.npz}}")
    with np.load(once / "fetches" / "noise.npz") as drawn, np.load(once / "fetches" / "fake.npz") as fake:
        assert drawn["noise"].shape == (116, 3)
        assert len(np.unique(drawn["noise"])) == drawn["noise"].size
        assert fake["miss_fake"].shape == (232, 1)
    twice = gan.train("twice", "-o", "executor.devices=2")
    one, two = (checkpoint.load(folder)[0] for folder in (once, twice))
    for name, value in one.items():
        np.testing.assert_allclose(two[name], value, rtol=1e-4, atol=1e-5, err_msg=name)
    out = gan.base / "noise.npz"
    assert gan.run("predict", once, "--split", "train", "--fetch", "noise", "--out", out) == 0, gan.err
    with np.load(out) as drawn:
        assert len(np.unique(drawn["noise"])) == drawn["noise"].size, "batches draw other noise"
    assert gan.run("predict", once, "--split", "train", "--raw", "--fetch", "misses", "--out", out) == 0, gan.err
    assert gan.run("eval", once, "--split", "train", "--json") == 0, gan.err
    with np.load(out) as found:
        np.testing.assert_allclose(json.loads(gan.out)["d_loss"], found["misses"].mean(), rtol=1e-5, err_msg="so they do when measured")


def test_the_dcgan_that_ships_goes_on_bit_for_bit(bench: Bench) -> None:
    (bench.base / "run.yaml").write_text(f"extends: {Path(__file__).parents[3] / 'configs' / 'dcgan.yaml'}\n")
    wishes = ("train.epochs=null", "train.steps=4", "output.checkpoint={every: 2 steps, keep: 2}", "data.eval=null")
    options = [part for wish in wishes for part in ("-o", wish)]
    whole = bench.train("whole", *options)
    part = bench.train("part", *options, "--max-steps", "2", code=ExitCode.STOPPED)
    assert bench.run("train", "--resume", part, "--quiet") == 0, bench.err
    assert bench.seen(part) == bench.seen(whole)
    drawn = bench.base / "drawn.npz"
    assert bench.run("predict", whole, "--split", "train", "--fetch", "generator", "--out", drawn) == 0, bench.err
    with np.load(drawn) as found:
        (pictures,) = (found[name] for name in found.files if found[name].ndim == 4)
    assert pictures.shape[1:] == (1, 8, 8)
    assert np.abs(pictures).max() <= 1
