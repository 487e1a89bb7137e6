"""Every fusing pass, every pair and all of them together change no bit: shipped models and random small programs."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from pe_cli.core.strategy import BuildStrategy
from pe_cli.core.types import TensorType
from pe_cli.devices.scope import Scope
from pe_cli.graph.pipeline import apply_passes
from pe_cli.ops.define.registry import discover
from pe_cli.ops.math.pointwise import POINTWISE
from pe_cli.program.ir import Program
from pe_cli.program.verify import verify
from tests.graph.passes.support import MODELS, built, minimise, same, startup, train
from tests.rotation import of_today, on_its_day

discover()
PASSES = [
    "fuse_bn_add_act_ops", "fuse_bn_act_ops", "fuse_relu_depthwise_conv", "fuse_elewise_add_act_ops", "fuse_gemm_epilogue",
    "enable_addto", "enable_auto_fusion", "simplify", "fuse_bn_statistics", "fuse_bn_conv",
]  # fmt: skip
OFF = dict.fromkeys(PASSES, False)
CHOICES = [*([p] for p in PASSES), *(list(c) for c in itertools.combinations(PASSES, 2)), PASSES]
IDS = [" and ".join(c) if len(c) < len(PASSES) else "all passes" for c in CHOICES]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    made: dict[str, Any] = {}

    def get(name: str) -> Any:
        if name not in made:
            made[name] = built(MODELS / f"{name}.yaml", tmp_path_factory.mktemp(name))
        return made[name]

    return get


@pytest.fixture(scope="module")
def plain(model):
    """Trainings without passes, each done once."""
    done: dict[Any, Any] = {}

    def get(name: str, layout: str, devices: int) -> Any:
        key = name, layout, devices
        if key not in done:
            done[key] = trained(model(name), layout, devices)
        return done[key]

    return get


def trained(made: Any, layout: str, devices: int, *passes: str, samples: int = 5, **strategy: str) -> Any:
    shape = made.feeds["image"].shape[1:]

    def feed(rng):
        images = rng.standard_normal((samples, *shape)).astype("float32")
        return {"image": images, "label": rng.integers(0, 10, (samples, 1))}

    on: dict[str, Any] = OFF | dict.fromkeys(passes, True) | strategy
    return train(made.train, startup(made.startup), feed, ["loss", "acc"], devices, data_layout=layout, **on)


WAYS = [(c, layout, devices) for c in CHOICES for layout in ("auto", "keep") for devices in (1, 2)]
#: Every pair in one way, one pass and all of them in every way.
WAYS = [w for w in WAYS if len(w[0]) != 2 or w[1:] == ("auto", 2)]
TODAY = of_today(WAYS, 10)


@pytest.mark.parametrize(
    ("passes", "layout", "devices"), TODAY, ids=[f"{IDS[CHOICES.index(c)]}-{la}-{d}" for c, la, d in TODAY]
)
@pytest.mark.parametrize("name", ["mlp", "lenet", "resnet20"])
def test_shipped_models_train_to_the_same_bits(model, plain, name, passes, layout, devices):
    same(plain(name, layout, devices), trained(model(name), layout, devices, *passes))


#: Passes over the program, and the one over updates: fluid's strategies for a fast step.
EVERY = [*PASSES, "fuse_all_optimizer_ops"]


@pytest.mark.parametrize(("name", "devices", "samples"), of_today(list(itertools.product(["mlp", "resnet20"], [2, 3], [5, 7])), 4))
def test_reduce_with_every_pass_gives_what_all_reduce_gives_without(model, name, devices, samples):
    """Sums over devices have one order whoever takes them, so that owners update to the same bits as everybody; also of uneven shards."""
    off = trained(model(name), "auto", devices, samples=samples)
    plain = trained(model(name), "auto", devices, samples=samples, reduce_strategy="Reduce")
    same(off, plain)
    for passes in (EVERY, ["fuse_all_optimizer_ops"], ["enable_addto"]):
        same(off, trained(model(name), "auto", devices, *passes, samples=samples, reduce_strategy="Reduce"))


@pytest.mark.parametrize("passes", of_today([pytest.param(c, id=i) for c, i in zip(CHOICES, IDS, strict=True)], 4))
def test_the_evaluation_program_gives_the_same_bits(model, passes):
    made = model("resnet20")

    def feed(rng):
        return {"image": rng.standard_normal((3, 3, 32, 32)).astype("float32"), "label": rng.integers(0, 10, (3, 1))}

    off, on = (
        train(made.eval, startup(made.startup), feed, ["loss", "prob"], steps=1, **strategy)
        for strategy in (OFF, OFF | dict.fromkeys(passes, True))
    )
    same(off, on)


def test_every_fetched_variable_of_a_block_keeps_its_value_and_the_rest_is_fused(model):
    made = model("resnet20")
    block = made.train.global_block()
    names = [n for op in block.ops if op.type in ("batch_norm", "relu_grad") for n in op.output_names()][2:40:3]

    def feed(rng):
        return {"image": rng.standard_normal((3, 3, 32, 32)).astype("float32"), "label": rng.integers(0, 10, (3, 1))}

    off, on = (
        train(made.train, startup(made.startup), feed, names, steps=2, **strategy)
        for strategy in (OFF, dict.fromkeys(PASSES, True))
    )
    same(off, on)


# --- random programs --------------------------------------------------------------------------------------------------

ACTIVATIONS = sorted(n for n, p in POINTWISE.items() if p.f_back is not None and "activation" in p.op.module)


def random_program(seed: int) -> Program:
    """Return sums, activations, normalisations, depthwise convolutions and dropouts in a random chain with random short cuts."""
    rng = np.random.default_rng(seed)
    program = Program(f"random {seed}")
    block = program.global_block()
    shape = (-1, 4, 5, 6)
    block.create_var("x", TensorType(shape), is_data=True, stop_gradient=True)
    block.create_var("lr", TensorType((1,)), persistable=True, stop_gradient=True)
    made = ["x"]

    def parameter(*sizes: int, trained: bool = True) -> str:
        name = program.unique("p" if trained else "stat")
        if trained:
            block.create_parameter(name, TensorType(sizes))
        else:
            block.create_var(name, TensorType(sizes), persistable=True, stop_gradient=True)
        return name

    def append(
        kind: str,
        ins: dict[str, Any],
        slot: str,
        attrs: dict[str, Any] | None = None,
        more: dict[str, str] | None = None,
    ) -> None:
        made.append(program.unique("v"))
        block.append_op(kind, ins, {slot: made[-1], **(more or {})}, attrs)

    for _ in range(10):
        x = made[-1]
        kind = rng.choice(["bias", "sum", "norm", "depthwise", "act", "act", "relu", "relu", "dropout"])
        if kind == "bias":
            sizes, axis = [((4,), 1), ((6,), -1), ((4, 5, 6), -1), ((1,), -1), ((4, 5), 1)][int(rng.integers(5))]
            append("elementwise_add", {"X": x, "Y": parameter(*sizes)}, "Out", {"axis": axis})
        elif kind == "sum":
            append("elementwise_add", {"X": x, "Y": str(rng.choice(made))}, "Out")
        elif kind == "norm":
            mean, variance = parameter(4, trained=False), parameter(4, trained=False)
            ins = {"X": x, "Scale": parameter(4), "Bias": parameter(4), "Mean": mean, "Variance": variance}
            stats = {
                "MeanOut": mean,
                "VarianceOut": variance,
                "SavedMean": program.unique("m"),
                "SavedVariance": program.unique("s"),
            }
            append("batch_norm", ins, "Y", more=stats)
        elif kind == "depthwise":
            attrs = {"groups": 4, "paddings": [1, 1]}
            append("depthwise_conv2d", {"Input": x, "Filter": parameter(4, 1, 3, 3)}, "Output", attrs)
        elif kind == "dropout":
            append("dropout", {"X": x}, "Out", {"dropout_prob": 0.3}, {"Mask": program.unique("mask")})
        else:
            append("relu" if kind == "relu" else str(rng.choice(ACTIVATIONS)), {"X": x}, "Out")
    append("elementwise_mul", {"X": made[-1], "Y": parameter(4, 5, 6)}, "Out")
    append("mean", {"X": made[-1]}, "Out")
    block.rename_var(made[-1], "loss")
    minimise(program, "loss")
    verify(program)
    return program


def fill(scope: Scope) -> None:
    rng = np.random.default_rng(5)
    for name in sorted(scope):
        kind = scope.type(name)
        scope.set(name, rng.uniform(0.5, 1.5, kind.shape).astype(kind.dtype) * (0.01 if name == "lr" else 1.0))


@on_its_day(2, of=3)
@pytest.mark.parametrize("seed", range(24))
def test_random_programs_train_to_the_same_bits(seed):
    program = random_program(seed)
    rng = np.random.default_rng(seed)
    variables = [op.output_names()[0] for op in program.global_block().ops]
    fetches = ["loss", *(str(n) for n in rng.choice(variables, int(rng.integers(0, 3))) if n != "loss")]
    fetches = list(dict.fromkeys(fetches))
    devices, layout = 1 + seed % 2, "keep" if seed % 3 else "auto"

    def feed(rng):
        return {"x": rng.standard_normal((5, 4, 5, 6)).astype("float32")}

    off = train(program, fill, feed, fetches, devices, data_layout=layout, **OFF)
    on = train(program, fill, feed, fetches, devices, data_layout=layout, **dict.fromkeys(PASSES, True))
    assert np.isfinite(off[0][-1]["loss"]).all()
    same(off, on)
    for several in (2, 3):
        settings: dict[str, Any] = {"data_layout": layout, "reduce_strategy": "Reduce"}
        every = train(program, fill, feed, ["loss"], several, **settings, **dict.fromkeys(EVERY, True))
        same(train(program, fill, feed, ["loss"], several, data_layout=layout), every)
    made = apply_passes(program, BuildStrategy(data_layout=layout, **dict.fromkeys(PASSES, True)), fetches)
    verify(made)
