"""The layout pass: channels last inside, the same values outside."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.strategy import BuildStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.graph.passes import layout
from pe_cli.program.backward import append_backward
from pe_cli.program.ir import Program, Role


def network() -> Program:
    """conv, relu, pool, conv, and a residual sum, flattened into a classifier."""
    program = Program("network")
    block = program.global_block()
    block.create_var("x", TensorType((-1, 3, 8, 8)), is_data=True, stop_gradient=True)
    block.create_var("y", TensorType((-1, 1), "int64"), is_data=True, stop_gradient=True)
    block.create_var("lr", TensorType((1,)), persistable=True, stop_gradient=True)
    for name, shape in (("k1", (6, 3, 3, 3)), ("k2", (6, 6, 3, 3)), ("w", (96, 4))):
        block.create_parameter(name, TensorType(shape))
    block.append_op("conv2d", {"Input": "x", "Filter": "k1"}, {"Output": "c1"}, {"paddings": [1, 1]})
    block.append_op("relu", {"X": "c1"}, {"Out": "r1"})
    block.append_op("pool2d", {"X": "r1"}, {"Out": "p1"}, {"strides": [2, 2]})
    block.append_op("conv2d", {"Input": "p1", "Filter": "k2"}, {"Output": "c2"}, {"paddings": [1, 1]})
    block.append_op("sum", {"X": ["c2", "p1"]}, {"Out": "s"})
    block.append_op("mul", {"X": "s", "Y": "w"}, {"Out": "logits"})
    block.append_op("softmax_with_cross_entropy", {"Logits": "logits", "Label": "y"}, {"Softmax": "q", "Loss": "xent"})
    block.append_op("mean", {"X": "xent"}, {"Out": "loss"})
    for parameter, gradient in append_backward(block.var("loss")):
        with program.role(Role.OPTIMIZE, [parameter.name, gradient.name]):
            ins = {"Param": parameter, "Grad": gradient, "LearningRate": "lr"}
            block.append_op("sgd", ins, {"ParamOut": parameter})
    return program


def train(data_layout: str, fetches: list[str], devices: int = 1) -> tuple[list[dict], dict]:
    scope = Scope([Place("cpu", d) for d in range(devices)])
    executor = Executor(network(), scope, build=BuildStrategy(data_layout=data_layout))
    rng = np.random.default_rng(2)
    for name in ("k1", "k2", "w"):
        scope.set(name, rng.standard_normal(scope.type(name).shape).astype("float32") * 0.3)
    scope.set("lr", np.array([0.05], "float32"))
    seen = []
    for step in range(3):
        feed = {"x": rng.standard_normal((6, 3, 8, 8)).astype("float32"), "y": rng.integers(0, 4, (6, 1))}
        values = executor.run(feed, fetches, step).values
        seen.append({n: np.concatenate([np.atleast_1d(v[n]) for v in values]) for n in fetches})
    return seen, {name: scope.get(name) for name in scope}


@pytest.mark.parametrize("devices", [1, 2])
def test_values_fetches_and_parameters_stay_the_same(devices):
    fetches = ["loss", "c1", "p1", "s", "p1@GRAD", "c2@GRAD", "k1@GRAD"]
    kept, before = train("keep", fetches, devices)
    moved, after = train("auto", fetches, devices)
    for a, b in zip(kept, moved, strict=True):
        for name in fetches:
            assert a[name].shape == b[name].shape
            np.testing.assert_allclose(a[name], b[name], rtol=1e-4, atol=1e-5, err_msg=name)
    for name in before:
        np.testing.assert_allclose(before[name], after[name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_every_image_operator_is_switched_and_transposes_stay_at_the_edges():
    made, sentence = layout.run(network(), [])
    kinds = [op.type for op in made.global_block().ops]
    assert kinds.count("transpose") == 3  # the image in, the flattened sum out, its gradient in
    formats = {op.attrs["data_format"] for op in made.global_block().ops if "data_format" in op.attrs}
    assert formats == {"NHWC"}
    assert sentence == "layout: 12 operators run channels-last, 3 transposes"


def test_a_program_without_images_is_left_alone():
    program = Program()
    program.global_block().create_var("x", TensorType((-1, 4)), is_data=True)
    program.global_block().append_op("relu", {"X": "x"}, {"Out": "y"})
    made, sentence = layout.run(program, [])
    assert made is program
    assert sentence == "layout: no operator on images in NCHW"


def test_the_program_given_is_not_changed():
    program = network()
    before = [(op.type, dict(op.inputs), dict(op.attrs)) for op in program.global_block().ops]
    layout.run(program, ["c1"])
    assert [(op.type, dict(op.inputs), dict(op.attrs)) for op in program.global_block().ops] == before


@pytest.mark.parametrize("size", [4, 1], ids=["as many channels as rows and columns", "one pixel"])
def test_equal_sizes_are_transposed_all_the_same(size):
    """Channels, rows and columns of one size: their order still matters, so the bytes must move."""
    program = Program("square")
    block = program.global_block()
    block.create_var("x", TensorType((-1, 4, size, size)), is_data=True, stop_gradient=True)
    block.append_op("pool2d", {"X": "x"}, {"Out": "p"}, {"ksize": [1, 1]})
    x = np.random.default_rng(1).standard_normal((2, 4, size, size)).astype("float32")
    found = Executor(program, Scope([Place("cpu", 0)])).run({"x": x}, ["p"]).values
    assert np.array_equal(found[0]["p"], x)


def test_an_image_as_high_and_wide_as_it_has_channels_is_transposed():
    program = Program()
    block = program.global_block()
    block.create_var("x", TensorType((-1, 4, 4, 4)), is_data=True, stop_gradient=True)
    block.append_op("pool2d", {"X": "x"}, {"Out": "p"}, {"strides": [2, 2]})
    scope = Scope([Place("cpu", 0)])
    x = np.random.default_rng(0).standard_normal((2, 4, 4, 4)).astype("float32")
    out = Executor(program, scope).run({"x": x}, ["p"]).values
    expected = x.reshape(2, 4, 2, 2, 2, 2).max((3, 5))
    assert np.array_equal(out[0]["p"], expected)


def test_a_gradient_whose_op_is_elsewhere_has_an_image_to_be_like(rng):
    """The image that names the gradient has no value here: the op is given another of the same type."""
    found = {}
    given = {"x": rng.standard_normal((2, 3, 8, 8)), "k": rng.standard_normal((4, 3, 3, 3)), "g": rng.standard_normal((2, 4, 8, 8))}
    for kind in ("keep", "auto"):
        program = Program("gradients")
        block = program.global_block()
        for name, value in given.items():
            block.create_var(name, TensorType(value.shape))
            block.create_var(f"{name}_given", TensorType(value.shape), is_data=True)
        ins = {"Input": "x_given", "Filter": "k_given", "Output@GRAD": "g_given"}
        block.append_op("conv2d_grad", ins, {"Input@GRAD": "x@GRAD", "Filter@GRAD": "k@GRAD"}, {"paddings": [1, 1]})
        executor = Executor(program, Scope([Place("cpu", 0)]), build=BuildStrategy(data_layout=kind))
        feed = {f"{name}_given": value.astype("float32") for name, value in given.items()}
        found[kind] = executor.run(feed, ["x@GRAD", "k@GRAD"], 0).values[0]
    for name, value in found["keep"].items():
        np.testing.assert_allclose(found["auto"][name], value, rtol=1e-5, atol=1e-5)


def test_images_that_are_fetched_get_their_written_order_in_the_order_of_the_fetches():
    """Whatever the process hashes strings with, so that processes which share a batch have one program."""
    names = [op.output_names()[0] for op in network().global_block().ops if op.type in ("conv2d", "relu")]
    for fetches in (names, names[::-1]):
        made, _ = layout.run(network(), fetches)
        last = [op.output_names()[0] for op in made.global_block().ops if op.type == "transpose" and op.output_names()[0] in names]
        assert last == fetches
