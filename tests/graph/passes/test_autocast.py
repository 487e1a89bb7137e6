"""Precision bf16: what is stored as bfloat16, what stays float32, and that training comes to the same losses."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.types import BFLOAT16, Place
from pe_cli.graph.compile import Purpose, compile_program
from pe_cli.graph.passes import autocast
from pe_cli.graph.pipeline import Target
from pe_cli.program.ir import Program
from pe_cli.program.verify import verify
from pe_cli.session.job import Job
from pe_cli.session.training.step import Stepper
from tests.graph.passes.support import minimise
from tests.graph.passes.test_text import text

ROOT = Path(__file__).parents[3]
CHAIN = """\
  var x: float32[batch, 4] is_data stop_gradient
  param w: float32[4, 3]
  param v: float32[3, 2]
"""


def test_values_between_products_are_narrow_and_what_they_take_of_float32_is_cast_once():
    before = CHAIN + (
        "  forward mul(X=x, Y=w) -> Out=m: float32[batch, 3]\n"
        "  forward relu(X=m) -> Out=r: float32[batch, 3]\n"
        "  forward mul(X=r, Y=v) -> Out=a: float32[batch, 2]\n"
        "  forward mul(X=m, Y=v) -> Out=b: float32[batch, 2]\n"
        "  forward softmax(X=a) -> Out=p: float32[batch, 2]\n"
    )
    after, said = text(autocast.run, before, ["p", "m"])
    assert after == CHAIN + (
        '  forward cast(X=x) -> Out=x@BF16_0: bfloat16[batch, 4] stop_gradient {"out_dtype": "bfloat16"}\n'
        '  forward cast(X=w) -> Out=w@BF16_0: bfloat16[4, 3] stop_gradient {"out_dtype": "bfloat16"}\n'
        "  forward mul(X=x@BF16_0, Y=w@BF16_0) -> Out=m: bfloat16[batch, 3]\n"
        "  forward relu(X=m) -> Out=r: bfloat16[batch, 3]\n"
        '  forward cast(X=v) -> Out=v@BF16_0: bfloat16[3, 2] stop_gradient {"out_dtype": "bfloat16"}\n'
        "  forward mul(X=r, Y=v@BF16_0) -> Out=a: float32[batch, 2]\n"
        "  forward mul(X=m, Y=v@BF16_0) -> Out=b: float32[batch, 2]\n"
        "  forward softmax(X=a) -> Out=p: float32[batch, 2]\n"
    )
    assert said == "autocast: 5 of 8 temporaries are bfloat16, 3 casts"


@pytest.mark.parametrize(
    ("more", "kind"),
    [("", BFLOAT16), ("  forward relu(X=t) -> Out=r: float32[4, batch]\n", "float32")],
    ids=["for products alone", "for others too"],
)
def test_what_is_copied_for_products_alone_is_rounded_by_the_copy(more: str, kind: str):
    """Others would compute with rounded numbers."""
    before = (
        "  var x: float32[batch, 4] is_data stop_gradient\n  param u: float32[2, 4]\n"
        '  forward transpose(X=x) -> Out=t: float32[4, batch] {"axis": [1, 0]}\n'
        "  forward mul(X=u, Y=t) -> Out=a: float32[2, batch]\n"
    )
    after, _ = text(autocast.run, before + more, ["a"])
    assert f"-> Out=t: {kind}[4, batch]" in after
    assert ("cast(X=t)" in after) == (kind == "float32")
    assert "var x: float32" in after


def test_where_kernels_are_launched_parameters_are_cast_together_but_for_those_that_change_before():
    """One launch does casts that lie side by side."""
    before = CHAIN + (
        "  forward mul(X=x, Y=w) -> Out=m: float32[batch, 3]\n"
        "  forward mul(X=m, Y=v) -> Out=a: float32[batch, 2]\n"
        "  forward scale(X=w) -> Out=w\n"
        "  forward mul(X=x, Y=w) -> Out=b: float32[batch, 3]\n"
    )
    after, _ = text(partial(autocast.run, together=True), before, ["a", "b"])
    made = [line.split("(")[0].split()[-1] + " " + line.split("X=")[1].split(")")[0] for line in after.splitlines() if "forward" in line]
    first, behind = ["cast w", "cast v", "cast x"], ["scale w", "cast w", "mul x@BF16_0, Y=w@BF16_1"]
    assert made == [*first, "mul x@BF16_0, Y=w@BF16_0", "mul m, Y=v@BF16_0", *behind]


@pytest.mark.parametrize(
    ("ops", "wide"),
    [
        pytest.param("  forward mul(X=x, Y=w) -> Out=m: float32[batch, 3]\n  forward square(X=m) -> Out=s: float32[batch, 3]\n", "m s",
                     id="what leads to a loss alone"),
        pytest.param("  forward relu(X=x) -> Out=r: float32[batch, 4]\n  forward mul(X=r, Y=w) -> Out=m: float32[batch, 3]\n", "r m",
                     id="what is made of no product"),
        pytest.param("  forward mul(X=x, Y=w) -> Out=m: float32[batch, 3]\n  forward mul(X=m, Y=v) -> Out=a: float32[batch, 2]\n"
                     "  forward reduce_sum(X=m) -> Out=t: float32[3]\n", "m", id="what a sum reads"),
    ],
)  # fmt: skip
def test_other_values_stay_float32(ops, wide):
    after, _ = text(autocast.run, CHAIN + ops)
    for name in wide.split():
        assert f"={name}: float32" in after


def test_values_that_only_change_their_shape_are_stored_alike():
    """A view is its input's bytes: neither is narrow where one may not be."""
    ops = (
        '  forward mul(X=x, Y=w) -> Out=m: float32[batch, 3]\n  forward reshape(X=m) -> Out=r: float32[batch, 3] {"shape": [0, 3]}\n'
        "  forward mul(X=r, Y=v) -> Out=a: float32[batch, 2]\n"
    )
    assert "Out=r: bfloat16" in text(autocast.run, CHAIN + ops)[0]
    after, _ = text(autocast.run, CHAIN + ops + "  forward reduce_sum(X=m) -> Out=t: float32[3]\n")
    assert "Out=r: float32" in after


def trained() -> Program:
    from pe_cli.program.parse import parse_program

    program = parse_program(
        'program "p"\nblock 0\n' + CHAIN + "  var lr: float32[1] persistable stop_gradient\n"
        "  forward mul(X=x, Y=w) -> Out=m: float32[batch, 3]\n  forward tanh(X=m) -> Out=h: float32[batch, 3]\n"
        "  forward mul(X=h, Y=v) -> Out=a: float32[batch, 2]\n  forward mean(X=a) -> Out=loss: float32[1]\n"
    )
    minimise(program, "loss")
    return program


@pytest.mark.parametrize("devices", [1, 2])
def test_gradients_of_parameters_and_updates_are_float32(devices):
    purpose = Purpose([Place("cpu", d) for d in range(devices)], precision="bf16")
    made = compile_program(trained(), purpose, ["loss"]).fused
    verify(made)
    block = made.global_block()
    narrow = {v.name for v in block.vars.values() if v.dtype == BFLOAT16}
    assert {"h", "h@GRAD", "w@BF16_0", "v@BF16_0"} <= narrow
    assert {v.dtype for n, v in block.vars.items() if n in ("w", "v", "w@GRAD", "v@GRAD", "loss", "a", "a@GRAD")} == {"float32"}


def test_without_it_nothing_changes():
    plain = Purpose([Place("cpu", 0)])
    assert not any("autocast" in said for said in compile_program(trained(), plain, ["loss"]).reports)
    assert not Target.of([Place("cpu", 0)], precision="tf32").narrow
    assert Target.of([Place("cpu", 0)], precision="bf16").narrow
    assert Target.of([Place("cuda", 0)], precision="bf16").narrow


# --- training ---------------------------------------------------------------------------------------------------------

#: Config, what makes it small, and how far the mean of the last 20 losses may be from that of float32, relative to the first loss.
TRAINED = [
    pytest.param("configs/digits.yaml", ("train.optimizer.learning_rate=0.02",), 0.01, id="mlp"),
    pytest.param("configs/bench/lenet.yaml", ("train.batch_size=4", "train.optimizer.learning_rate=0.001"), 0.01, id="lenet"),
    pytest.param("configs/series.yaml", (), 0.02, id="lstm"),
    pytest.param("configs/digits_vit.yaml", ("train.batch_size=8",), 0.01, id="transformer"),
]


def losses(config: str, *more: str, steps: int = 200) -> tuple[np.ndarray, Job]:
    job = Job.open(ROOT / config, ["executor.devices=1", "output.checkpoint=null", *more], smoke=True)
    job.initialise()
    stepper = Stepper(job)
    assert job.run.train
    loader = job.data.loader("train", job.programs, job.run.train.batch_size)
    feeds = (feed for epoch in itertools.count() for feed in loader.epoch(epoch))
    (name,) = job.built.losses.values()
    return np.array([np.ravel(stepper.run(f, [name], i).values[0][name])[0] for i, f in enumerate(itertools.islice(feeds, steps))]), job


@pytest.mark.parametrize(("config", "more", "bound"), TRAINED)
def test_losses_of_200_steps_stay_near_those_of_float32(config, more, bound):
    wide, _ = losses(config, *more)
    narrow, _ = losses(config, *more, "executor.precision=bf16")
    assert not np.array_equal(wide, narrow)
    assert abs(narrow[-20:].mean() - wide[-20:].mean()) < bound * abs(wide[0])


def test_two_devices_come_to_what_one_does_and_a_run_repeats_to_the_bit():
    one, again, two = (losses("configs/digits_cnn.yaml", "executor.precision=bf16", "train.batch_size=8", *more, steps=3)
                       for more in ((), (), ("executor.devices=2",)))  # fmt: skip
    for name in one[1].scope:
        np.testing.assert_array_equal(again[1].scope.get(name), one[1].scope.get(name), name)
        np.testing.assert_allclose(two[1].scope.get(name), one[1].scope.get(name), rtol=1e-4, atol=1e-6, err_msg=name)
