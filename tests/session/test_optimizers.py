"""Optimizers from a run file: bit-for-bit resume, two devices, and loops in PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode
from pe_cli.io import checkpoint
from tests.needs import torch
from tests.rotation import of_today
from tests.session.conftest import Bench
from tests.session.training.test_parameter_groups import start, trained

KINDS = {
    "Adafactor": "{type: Adafactor, learning_rate: 0.1}",
    "Muon": "{type: Muon, learning_rate: 0.02}",
    "SAM": "{type: SAM, rho: 0.1, inner: {type: Momentum, momentum: 0.9, learning_rate: 0.02}}",
    "SAM in Lookahead": "{type: Lookahead, k: 4, inner: {type: SAM, inner: {type: AdamW}}}",
}


@pytest.mark.parametrize(
    ("kind", "devices"), of_today([pytest.param(kind, n, id=f"{name}-{n}") for name, kind in KINDS.items() for n in (1, 2)], 3)
)
def test_a_run_goes_on_bit_for_bit_and_is_verified(bench: Bench, kind: str, devices: int) -> None:
    given = ["-o", f"train.optimizer={kind}", "-o", f"executor.devices={devices}"]
    first = bench.train("whole", *given)
    whole = bench.seen(first)
    folder = bench.train("pieces", *given, "--max-steps", 3, code=ExitCode.STOPPED)
    for steps in (1, 7):
        assert bench.run("train", "--resume", folder, "--quiet", "--max-steps", steps) in (0, ExitCode.STOPPED), bench.err
    assert bench.run("train", "--resume", folder, "--quiet") == 0
    assert bench.seen(folder) == whole
    assert bench.run("verify", first, "--quiet") == 0, bench.err


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_two_devices_do_what_one_does(bench: Bench, kind: str) -> None:
    start(bench)
    options = ("train.init={from: start.npz}", f"train.optimizer={kind}")
    one = checkpoint.load(trained(bench, "[]", *options, where="one"))[0]
    two = checkpoint.load(trained(bench, "[]", *options, where="two", devices=2))[0]
    assert set(one) == set(two)
    for name, value in one.items():
        np.testing.assert_allclose(two[name], value, rtol=2e-4, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_passes_change_no_bit(bench: Bench, kind: str) -> None:
    options = ["-o", f"train.optimizer={kind}", "-o", "train.epochs=1"]
    off = [f"build_strategy.{name}=false" for name in ("fuse_all_optimizer_ops", "enable_auto_fusion", "fuse_elewise_add_act_ops")]
    plain = checkpoint.load(bench.train("plain", *options, *(part for word in off for part in ("-o", word))))[0]
    found = checkpoint.load(bench.train("passes", *options))[0]
    assert {n: v.tobytes() for n, v in plain.items()} == {n: v.tobytes() for n, v in found.items()}


@pytest.mark.parametrize("kind", ["SGDW", "NAdam", "RAdam", "Lion"])
def test_resumed_without_passes_and_on_two_devices_it_is_the_same(bench: Bench, kind: str) -> None:
    """Those whose update is one op, whose numbers `tests/optim` compares with PyTorch."""
    start(bench)
    options = ["-o", f"train.optimizer={{type: {kind}, learning_rate: 0.02, weight_decay: 0.1}}", "-o", "train.init={from: start.npz}"]
    whole = trained(bench, "[]", *options[1::2], where="whole")
    arrays = checkpoint.load(whole)[0]
    off = [f"build_strategy.{name}=false" for name in ("fuse_all_optimizer_ops", "enable_auto_fusion", "fuse_elewise_add_act_ops")]
    plain = checkpoint.load(bench.train("plain", *options, *(part for word in off for part in ("-o", word))))[0]
    assert {n: v.tobytes() for n, v in plain.items()} == {n: v.tobytes() for n, v in arrays.items()}
    folder = bench.train("pieces", *options, "--max-steps", 4, code=ExitCode.STOPPED)
    assert bench.run("train", "--resume", folder, "--quiet") == 0, bench.err
    assert bench.seen(folder) == bench.seen(whole)
    two = checkpoint.load(trained(bench, "[]", *options[1::2], where="two", devices=2))[0]
    assert set(two) == set(arrays)
    for name, value in arrays.items():
        np.testing.assert_allclose(two[name], value, rtol=2e-4, atol=2e-4 if kind == "Lion" else 2e-5, err_msg=name)


@pytest.mark.parametrize("devices", [1, 2])
def test_ten_steps_of_sam_are_those_of_a_loop_in_pytorch(bench: Bench, devices: int) -> None:
    values = start(bench)
    options = ("train.init={from: start.npz}", f"train.optimizer={KINDS['SAM']}")
    ours = checkpoint.load(trained(bench, "[{match: encoder/a, freeze: true}]", *options, devices=devices))[0]

    theirs = {name: torch.tensor(value, requires_grad=not name.startswith("encoder/a")) for name, value in values.items()}
    moving = [value for value in theirs.values() if value.requires_grad]
    optimizer = torch.optim.SGD(moving, 0.02, momentum=0.9)
    with np.load(bench.base / "data.npz") as data:
        x, y = torch.tensor(data["x"]), torch.tensor(data["y"])

    def backward() -> None:
        h = torch.tanh(x @ theirs["encoder/a.w_0"] + theirs["encoder/a.b_0"])
        h = torch.tanh(h @ theirs["encoder/b.w_0"] + theirs["encoder/b.b_0"])
        optimizer.zero_grad()
        ((h @ theirs["head.w_0"] + theirs["head.b_0"] - y) ** 2).mean().backward()

    for _ in range(10):
        backward()
        before = [value.detach().clone() for value in moving]
        length = torch.stack([value.grad.norm() for value in moving]).norm()
        with torch.no_grad():
            for value in moving:
                value += 0.1 * value.grad / (length + 1e-12)
        backward()
        with torch.no_grad():
            for value, old in zip(moving, before, strict=True):
                value.copy_(old)
        optimizer.step()
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value.detach().numpy(), rtol=5e-5, atol=2e-6, err_msg=name)


def test_statistics_move_once_a_step(bench: Bench) -> None:
    """After one step the running mean has moved by the first forward pass alone."""
    given = ["-o", "train.steps=1"]
    plain = checkpoint.load(bench.train("plain", *given, "-o", "train.optimizer={type: SGD, learning_rate: 0.02}"))[0]
    sharp = checkpoint.load(bench.train("sharp", *given, "-o", "train.optimizer={type: SAM, inner: {type: SGD, learning_rate: 0.02}}"))[0]
    for name in ("normal.w_1", "normal.w_2"):
        np.testing.assert_array_equal(sharp[name], plain[name])
    assert not np.array_equal(sharp["hidden.w_0"], plain["hidden.w_0"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["train.accumulate=2", "train.batch_size=4"], "train.accumulate does not go with"),
        (["train.recompute=[hidden]"], "train.recompute does not go with"),
        (["build_strategy.reduce_strategy=Reduce", "executor.devices=2"], "reduce_strategy Reduce does not go with"),
        (["train.optimizer.rho=0"], "rho must be > 0"),
    ],
)
def test_what_does_not_go_with_two_gradients_is_refused(bench: Bench, options: list[str], said: str) -> None:
    given = [part for option in (f"train.optimizer={KINDS['SAM']}", *options) for part in ("-o", option)]
    assert bench.run("train", bench.base / "run.yaml", *given) == ExitCode.USAGE
    assert said in bench.err
