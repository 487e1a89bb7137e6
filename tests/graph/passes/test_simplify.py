"""simplify: folded constants, repeated ops and ops without effect; text in, text out, and the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.core.strategy import BuildStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.execute.lowering.context import GraphLowering
from pe_cli.execute.lowering.nodes import lower
from pe_cli.execute.lowering.types import concrete_types
from pe_cli.execute.numeric_settings import Numerics
from pe_cli.graph.passes import common_subexpressions, dead_code, fold_constants
from pe_cli.graph.pipeline import apply_passes
from pe_cli.graph.replicate import replicate
from pe_cli.kernels.cpu.python_calls import HostKernel
from pe_cli.ops.define.registry import OpDef, Sample, discover
from pe_cli.ops.define.traits import ReportsData
from pe_cli.program.ir import Program
from pe_cli.program.parse import parse_program
from pe_cli.program.verify import verify
from tests.graph.passes.support import minimise, same, train
from tests.graph.passes.test_equal import fill
from tests.graph.passes.test_text import BIAS, HEAD, text
from tests.ops.support import build, sample_arrays

X = "  var x: float32[batch, 3] is_data stop_gradient\n"


def test_numbers_are_computed_once_with_the_rounding_of_the_element_type():
    made, said = text(
        fold_constants.run,
        X
        + '  forward fill_constant() -> Out=a: float32[1] {"shape": [1], "value": 0.1}\n'
        + '  forward scale(X=a) -> Out=b: float32[1] {"scale": 3.0, "bias": 0.2}\n'
        + "  forward elementwise_mul(X=b, Y=a) -> Out=c: float32[1]\n"
        + "  forward elementwise_add(X=x, Y=c) -> Out=y: float32[batch, 3]\n",
        fetches=["y"],
    )
    a = np.float32(0.1)
    c = (np.float32(3) * a + np.float32(0.2)) * a
    assert f'fill_constant() -> Out=c: float32[1] {{"value": {float(c)}}}' in made
    assert said == "fold_constants: 2 ops became constants"


@pytest.mark.parametrize(
    ("program", "left"),
    [
        pytest.param(
            '  forward fill_constant() -> Out=a: float32[1] {"value": 1.0}\n'
            '  forward fill_constant() -> Out=z: float32[1] {"value": 0.0}\n'
            "  forward elementwise_div(X=a, Y=z) -> Out=b: float32[1]\n",
            "elementwise_div",
            id="what is infinite",
        ),
        pytest.param(
            "  var p: float32[1] persistable\n"
            '  forward fill_constant() -> Out=p {"value": 1.0}\n'
            "  forward scale(X=p) -> Out=b: float32[1]\n",
            "scale",
            id="what is kept between steps",
        ),
        pytest.param(
            '  forward fill_constant() -> Out=a: int64[1] {"dtype": "int64", "value": 1.0}\n'
            "  forward scale(X=a) -> Out=b: int64[1]\n",
            "scale",
            id="integers",
        ),
    ],
)
def test_constants_that_are_not_folded(program, left):
    made, said = text(fold_constants.run, program)
    assert left in made
    assert said == "fold_constants: 0 ops became constants"


def test_the_second_of_two_equal_ops_goes_with_what_follows_from_it():
    made, said = text(
        common_subexpressions.run,
        X
        + "  forward tanh(X=x) -> Out=a: float32[batch, 3]\n"
        + "  forward tanh(X=x) -> Out=b: float32[batch, 3]\n"
        + '  forward scale(X=a) -> Out=c: float32[batch, 3] {"scale": 2.0}\n'
        + '  forward scale(X=b) -> Out=d: float32[batch, 3] {"scale": 2.0}\n'
        + '  forward scale(X=b) -> Out=e: float32[batch, 3] {"scale": 3.0}\n'
        + "  forward sum(X=[c, d, e]) -> Out=s: float32[batch, 3]\n",
    )
    assert made.splitlines()[1:] == [
        "  forward tanh(X=x) -> Out=a: float32[batch, 3]",
        '  forward scale(X=a) -> Out=c: float32[batch, 3] {"scale": 2.0}',
        '  forward scale(X=a) -> Out=e: float32[batch, 3] {"scale": 3.0}',
        "  forward sum(X=[c, c, e]) -> Out=s: float32[batch, 3]",
    ]
    assert said == "common_subexpressions: 2 ops repeated others"


@pytest.mark.parametrize(
    ("lines", "fetches"),
    [
        pytest.param(
            "  forward dropout(X=x) -> Out=a: float32[batch, 3], Mask=m: uint8[batch, 3]\n"
            "  forward dropout(X=x) -> Out=b: float32[batch, 3], Mask=n: uint8[batch, 3]\n",
            [],
            id="random ops",
        ),
        pytest.param(
            "  forward tanh(X=x) -> Out=a: float32[batch, 3]\n  forward tanh(X=x) -> Out=b: float32[batch, 3]\n",
            ["b"],
            id="a fetched one",
        ),
        pytest.param(
            "  var p: float32[1] persistable\n"
            "  forward scale(X=p) -> Out=a: float32[1]\n"
            '  forward scale(X=p) -> Out=p {"scale": 2.0}\n'
            "  forward scale(X=p) -> Out=b: float32[1]\n",
            [],
            id="of another value of the same variable",
        ),
        pytest.param(
            "  var g: float32[1] is_data\n"
            '  backward reduce_sum_grad(Out@GRAD=g) -> X@GRAD=a: float32[4] {"reduce_all": true}\n'
            '  backward reduce_sum_grad(Out@GRAD=g) -> X@GRAD=b: float32[1] {"reduce_all": true}\n',
            [],
            id="gradients of sums of several sizes",
        ),
        pytest.param(
            "  var g: float32[1] is_data\n"
            '  backward reduce_sum_grad(Out@GRAD=g) -> X@GRAD=a: float32[batch, 4] {"reduce_all": true}\n'
            '  backward reduce_sum_grad(Out@GRAD=g) -> X@GRAD=b: float32[batch, 4] {"reduce_all": true}\n',
            [],
            id="gradients of sums of sizes that only the step knows",
        ),
    ],
)
def test_ops_that_only_look_the_same_stay(lines, fetches):
    assert text(common_subexpressions.run, X + lines, fetches)[1] == "common_subexpressions: 0 ops repeated others"


def test_what_no_fetch_and_no_persistable_variable_needs_is_left_out():
    rest = "  forward relu(X=s) -> Out=r: float32[batch, 3]\n  forward tanh(X=s) -> Out=t: float32[batch, 3]\n"
    made, said = text(dead_code.run, BIAS + rest, fetches=["r"])
    assert "tanh" not in made
    assert said == "dead_code: 1 ops left out whose results nobody needs: 1 tanh"
    assert text(dead_code.run, BIAS + rest, fetches=["r", "t"])[1] == "dead_code: every op counts"


def test_an_op_that_checks_its_data_stays():
    program = (
        "  var i: int64[batch, 1] is_data stop_gradient\n  param w: float32[4, 3]\n"
        "  forward lookup_table(W=w, Ids=i) -> Out=e: float32[batch, 3]\n"
        "  forward tanh(X=e) -> Out=t: float32[batch, 3]\n"
    )
    made, _ = text(dead_code.run, program)
    assert "lookup_table" in made
    assert "tanh" not in made
    scope = Scope([Place("cpu", 0)])
    executor = Executor(parse_program(HEAD + program), scope)
    with pytest.raises(PeError, match="7"):
        executor.run({"i": np.array([[1], [7]])}, [])


def reporting(definition: OpDef, sample: Sample) -> bool:
    """Return whether a kernel that the sample is lowered to takes an error report."""
    arrays = sample_arrays(definition, sample, "float32")
    program, _ = build(definition.name, arrays, sample.attrs, sample.outputs)
    graph = replicate(program, [Place("cpu", 0)], BuildStrategy())
    tasks = lower(GraphLowering(graph, [concrete_types(program, {})], [1], Numerics(1)))
    kernels = [call.kernel for task in tasks for call in task.calls]
    return any(isinstance(kernel, HostKernel) or "Status" in kernel.params for kernel in kernels)


def test_ops_say_whether_their_kernels_report_errors():
    known = [d for d in discover().values() if d.samples and "cpu" in d.lowerings]
    assert len(known) > 100
    for definition in known:
        assert any(reporting(definition, s) for s in definition.samples) == definition.has(ReportsData), definition.name


def test_a_program_without_anything_to_do_runs():
    scope = Scope([Place("cpu", 0)])
    executor = Executor(parse_program(HEAD + X + "  forward tanh(X=x) -> Out=a: float32[batch, 3]\n"), scope)
    ran = executor.run({"x": np.zeros((2, 3), "float32")}, [])
    values, sizes = ran.values, ran.sizes
    assert values == [{}]
    assert sizes == [2]


def network(seed: int) -> Program:
    """Return ops of which many repeat others, are constant or dead, and a loss."""
    rng = np.random.default_rng(seed)
    program = Program(f"repeated {seed}")
    block = program.global_block()
    block.create_var("x", TensorType((-1, 6)), is_data=True, stop_gradient=True)
    block.create_var("lr", TensorType((1,)), persistable=True, stop_gradient=True)
    block.create_parameter("w", TensorType((6, 6)))
    block.create_parameter("b", TensorType((6,)))
    made, numbers = ["x"], []

    def append(kind: str, ins: dict[str, Any], attrs: dict[str, Any] | None = None, **more: str) -> str:
        out = program.unique("v")
        block.append_op(kind, ins, {"Out": out, **more}, attrs)
        return out

    for _ in range(16):
        kind = str(rng.choice(["tanh", "mul", "bias", "add", "constant", "scaled", "dropout", "line"]))
        x = str(rng.choice(made[-4:]))
        if kind == "mul":
            made.append(append("mul", {"X": x, "Y": "w"}))
        elif kind in ("bias", "add"):
            made.append(append("elementwise_add", {"X": x, "Y": "b" if kind == "bias" else made[0]}))
        elif kind == "constant":
            numbers.append(append("fill_constant", {}, {"shape": [1], "value": float(rng.integers(1, 3)) / 3}))
        elif kind == "scaled" and numbers:
            numbers.append(append("scale", {"X": str(rng.choice(numbers))}, {"scale": 0.7, "bias": 0.1}))
            made.append(append("elementwise_mul", {"X": x, "Y": numbers[-1]}))
        elif kind == "dropout":
            made.append(append("dropout", {"X": x}, {"dropout_prob": 0.3}, Mask=program.unique("mask")))
        elif kind == "line":
            made.append(append("scale", {"X": x}, {"scale": 0.5}))
        else:
            made.append(append("tanh", {"X": x}))
    end = append("tanh", {"X": append("mul", {"X": append("sum", {"X": made[-5:]}), "Y": "w"})})
    append("mean", {"X": append("elementwise_add", {"X": end, "Y": "b"})})
    block.rename_var(list(block.vars)[-1], "loss")
    minimise(program, "loss")
    verify(program)
    return program


@pytest.mark.parametrize("seed", range(24))
def test_random_programs_train_to_the_same_bits(seed):
    program = network(seed)
    names = [op.output_names()[0] for op in program.global_block().ops]
    fetches = list(
        dict.fromkeys([*(["loss"] * (seed % 2)), *map(str, np.random.default_rng(seed).choice(names, seed % 4))])
    )

    def feed(rng):
        return {"x": rng.standard_normal((5, 6)).astype("float32")}

    off, on = (train(program, fill, feed, fetches, 1 + seed % 2, simplify=on) for on in (False, True))
    same(off, on)
    verify(apply_passes(program, BuildStrategy(), fetches))
