"""bfloat16 in memory: conversions bit for bit, and ops that compute in float32 between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.core.types import BFLOAT16, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.kernels.compiler.target import PAIRS
from pe_cli.ops.define import bfloat16_storage as rounded_ops
from pe_cli.ops.define.tile_products import with_tiles
from pe_cli.program.ir import Program
from tests.ops.support import PLACE, op_runner

Array = np.ndarray[Any, Any]


def fed(inputs: Mapping[str, Array]) -> Program:
    program = Program("p")
    for name, value in inputs.items():
        program.global_block().create_var(name, TensorType(value.shape, str(value.dtype)), persistable=True)
    return program


def run(program: Program, inputs: Mapping[str, Array], fetches: list[str]) -> dict[str, Array]:
    scope = Scope([PLACE])
    executor = Executor(program, scope)
    for name, value in inputs.items():
        scope.set(name, value)
    return executor.run({}, fetches, 0).values[0]


def cast(program: Program, name: str, dtype: str) -> str:
    program.global_block().append_op("cast", {"X": name}, {"Out": f"{name}.{dtype}"}, {"out_dtype": dtype})
    return f"{name}.{dtype}"


def rounded(x: Array) -> Array:
    """Return the numbers of float32 that ml_dtypes rounds to."""
    with np.errstate(invalid="ignore"):
        return x.astype(ml_dtypes.bfloat16).astype("float32")


def use_tiles(monkeypatch: pytest.MonkeyPatch, yes: bool) -> None:
    """Let products be made by matrix tiles or not, whatever this machine has: without them, kernels do on vectors what tiles do."""
    monkeypatch.setattr("pe_cli.ops.define.tile_products.bfloat16_unit", lambda: "tiles" if yes else "")


def test_every_kind_of_number_is_rounded_as_by_ml_dtypes(rng):
    """Ties, the largest, denormal numbers, infinities, NaN with any bits, and what no rule picks."""
    special = [0x7F800000, 0xFF800000, 0x7F800001, 0xFFC00001, 0x7FFFFFFF, 0x7F7FFFFF, 0x7F7F8000, 0x7F7F7FFF, 1, 0x80000001,
               0x8000, 0x18000, 0x3F808000, 0x3F818000, 0x3F808001, 0, 0x80000000]  # fmt: skip
    ties = (rng.integers(0, 1 << 16, 500, dtype=np.uint32) << 16) | 0x8000
    x = np.concatenate([np.array(special, np.uint32), ties, rng.integers(0, 1 << 32, 4000, dtype=np.uint32)]).view("float32")
    program = fed({"x": x})
    names = [cast(program, "x", BFLOAT16)]
    names.append(cast(program, names[0], "float32"))
    found = run(program, {"x": x}, names)
    with np.errstate(invalid="ignore"):
        bits = x.astype(ml_dtypes.bfloat16).view(np.uint16)
    for name in names:  # what is fetched of bfloat16 is float32
        assert found[name].dtype == np.float32
        np.testing.assert_array_equal(found[name].view(np.uint32), bits.astype(np.uint32) << 16, name)


def test_all_other_types_go_by_float32(rng):
    x = {"f": rng.standard_normal(9), "i": rng.integers(-99, 99, 9), "b": rng.integers(0, 2, 9) == 1}
    program = fed(x)
    there = [cast(program, name, BFLOAT16) for name in x]
    back = {kind: cast(program, there[0], kind) for kind in ("float64", "int64", "int32", "bool")}
    found = run(program, x, [*there, *back.values()])
    for name, value in zip(there, x.values(), strict=True):
        np.testing.assert_array_equal(found[name], rounded(value.astype("float32")))
    for kind, name in back.items():
        np.testing.assert_array_equal(found[name], found[there[0]].astype(kind))


@pytest.mark.parametrize(
    ("op", "shapes", "attrs"),
    [
        pytest.param("relu", {"X": (5, 7)}, {}, id="a pointwise op, whose kernel loads and stores bfloat16"),
        pytest.param("elementwise_add", {"X": (5, 7), "Y": (7,)}, {}, id="a row for all rows"),
        pytest.param("transpose", {"X": (5, 7)}, {"axis": [1, 0]}, id="an op that moves numbers"),
        pytest.param("mul", {"X": (5, 7), "Y": (7, 3)}, {}, id="a product"),
        pytest.param("layer_norm", {"X": (5, 7), "Scale": (7,)}, {}, id="statistics that stay float32"),
        pytest.param("concat", {"X": [(5, 7), (5, 2)]}, {"axis": 1}, id="a list of tensors"),
    ],
)
@pytest.mark.parametrize("mixed", [False, True], ids=["all narrow", "one input is float32"])
def test_an_op_computes_in_float32_and_rounds_once(rng, op, shapes, attrs, mixed):
    x = {s: [rounded(rng.standard_normal(k).astype("float32")) for k in (v if isinstance(v, list) else [v])] for s, v in shapes.items()}
    wanted = op_runner(op, x, attrs)(x)
    out = "Y" if isinstance(wanted, dict) else "Out"
    exact = wanted["Y"] if isinstance(wanted, dict) else wanted
    flat = {f"{s}_{i}": v for s, row in x.items() for i, v in enumerate(row)}
    program = fed(flat)
    block = program.global_block()
    wide = list(flat)[-1] if mixed and len(flat) > 1 else None
    names = {s: [f"{s}_{i}" if f"{s}_{i}" == wide else cast(program, f"{s}_{i}", BFLOAT16) for i in range(len(v))] for s, v in x.items()}
    block.create_var("out", TensorType(exact.shape, BFLOAT16))
    block.append_op(op, names, {out: "out", **({"Mean": "m", "Variance": "v"} if out == "Y" else {})}, attrs)
    np.testing.assert_array_equal(run(program, flat, ["out"])["out"], rounded(exact))


@pytest.mark.parametrize(("mixed", "count"), [(False, 0), (True, 2)], ids=["all narrow: as they are loaded and stored", "one wide"])
def test_an_elementwise_op_of_narrow_numbers_needs_no_wide_copies(rng, monkeypatch, mixed, count):
    """Copies are what `lower_rounded` makes of the narrow input and output otherwise."""
    made = []
    convert = rounded_ops._convert
    monkeypatch.setattr(rounded_ops, "_convert", lambda low, x, out: (made.append((x.dtype, out.dtype)), convert(low, x, out)))
    x = {name: rng.standard_normal((5, 7)).astype("float32") for name in "xy"}
    program = fed(x)
    block = program.global_block()
    given = {"X": cast(program, "x", BFLOAT16), "Y": "y" if mixed else cast(program, "y", BFLOAT16)}
    block.create_var("out", TensorType((5, 7), BFLOAT16))
    block.append_op("elementwise_add", given, {"Out": "out"})
    run(program, x, ["out"])
    assert len(made) == count, made


@pytest.mark.parametrize(
    ("op", "shapes", "attrs"),
    [
        pytest.param("mul", {"X": (40, 70), "Y": (70, 35)}, {}, id="matrices"),
        pytest.param("matmul", {"X": (3, 20, 37), "Y": (3, 41, 37)}, {"transpose_Y": True, "alpha": 0.5}, id="a batch of them"),
        pytest.param("fused_gemm_epilogue", {"X": (33, 600), "Y": (600, 17), "Bias": (17,)}, {"activation": "relu"}, id="with a bias"),
    ],
)
def test_a_product_by_matrix_tiles_reads_what_is_stored(rng, monkeypatch, op, shapes, attrs):
    made = []
    convert = rounded_ops._convert
    monkeypatch.setattr(rounded_ops, "_convert", lambda low, x, out: (made.append((x.dtype, out.dtype)), convert(low, x, out)))
    x = {name: rounded(rng.standard_normal(shape).astype("float32")) for name, shape in shapes.items()}
    wanted = op_runner(op, {name: [value] for name, value in x.items()}, attrs)({name: [value] for name, value in x.items()})
    for tiles, copies in ((False, 2), (True, 0)):
        made.clear()
        use_tiles(monkeypatch, tiles)
        program = fed(x)
        block = program.global_block()
        block.create_var("out", TensorType(wanted.shape, "float32"))
        block.append_op(op, {name: name if name == "Bias" else cast(program, name, BFLOAT16) for name in x}, {"Out": "out"}, attrs)
        np.testing.assert_allclose(run(program, x, ["out"])["out"], wanted, rtol=1e-4, atol=1e-4)
        assert made.count((BFLOAT16, "float32")) == copies, made


def test_gradients_of_a_product_by_matrix_tiles_are_those_of_its_factors(rng, monkeypatch):
    from pe_cli.program.backward import gradients

    use_tiles(monkeypatch, True)
    x = {"x": rng.standard_normal((30, 50)).astype("float32"), "y": rng.standard_normal((50, 20)).astype("float32")}
    program = fed(x)
    block = program.global_block()
    block.append_op("mul", {"X": cast(program, "x", BFLOAT16), "Y": cast(program, "y", BFLOAT16)}, {"Out": "out"})
    block.append_op("reduce_sum", {"X": "out"}, {"Out": "s"}, {"reduce_all": True})
    names = [g.name for g in gradients([block.var("s")], [block.var("x"), block.var("y")])]
    found = run(program, x, names)
    np.testing.assert_allclose(found[names[0]], np.broadcast_to(rounded(x["y"]).sum(1), (30, 50)), rtol=1e-2, atol=1e-2)
    np.testing.assert_allclose(found[names[1]], np.broadcast_to(rounded(x["x"]).sum(0)[:, None], (50, 20)), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("op", ["conv2d", "conv2d_fusion", "fused_conv2d_moments"])
@pytest.mark.parametrize("strides", [[1, 1], [2, 2]])
def test_a_convolution_of_single_pixels_by_matrix_tiles_is_the_same(rng, monkeypatch, op, strides):
    """And so are its gradients."""
    from pe_cli.program.backward import gradients

    x = {"Input": rng.standard_normal((2, 6, 8, 24)), "Filter": rng.standard_normal((40, 24, 1, 1)), "Bias": rng.standard_normal(40)}
    x = {name: rounded(value.astype("float32")) for name, value in x.items() if name != "Bias" or op == "conv2d_fusion"}
    found, used = [], []
    monkeypatch.setattr(rounded_ops, "with_tiles", lambda call, stored: (used.append(with_tiles(call, stored)), used[-1])[1])
    for tiles in (False, True):
        use_tiles(monkeypatch, tiles)
        used.clear()
        program = fed(x)
        block = program.global_block()
        given = {name: name if name == "Bias" else cast(program, name, BFLOAT16) for name in x}
        outputs = {"Output": "out", **({"Moments": "m"} if op == "fused_conv2d_moments" else {})}
        block.append_op(op, given, outputs, {"strides": strides, "data_format": "NHWC"})
        names = ["out"]
        if op == "conv2d":
            block.append_op("square", {"X": "out"}, {"Out": "q"})
            block.append_op("reduce_sum", {"X": "q"}, {"Out": "s"}, {"reduce_all": True})
            names += [g.name for g in gradients([block.var("s")], [block.var("Input"), block.var("Filter")])]
        found.append(run(program, x, names))
        assert any("tile_" in call.kernel.name for call, _ in used) is tiles or strides != [1, 1]
    for name, value in found[0].items():
        np.testing.assert_allclose(found[1][name], value, rtol=2e-2, atol=2e-2 * np.abs(value).max(), err_msg=name)


@pytest.mark.parametrize("op", ["conv2d", "conv2d_fusion", "fused_conv2d_moments"])
@pytest.mark.parametrize(
    ("image", "filters", "taps", "attrs"),
    [
        pytest.param((9, 7, 3), 5, (3, 3), {"paddings": [1, 1]}, id="few channels"),
        pytest.param((8, 8, 32), 33, (3, 3), {"paddings": [1, 1]}, id="as Winograd's way takes them"),
        pytest.param((11, 10, 17), 40, (5, 2), {"paddings": [2, 0]}, id="filters that are not square"),
        pytest.param((9, 9, 8), 16, (3, 3), {"paddings": [1, 1], "strides": [2, 2]}, id="with holes"),
        pytest.param((9, 12, 8), 16, (2, 3), {"paddings": [3, 4], "strides": [1, 2]}, id="more zeros than taps"),
        pytest.param((40, 130, 24), 8, (3, 3), {}, id="more rows than stand between zeros at a time"),
        pytest.param((7, 7, 8), 8, (3, 3), {"dilations": [2, 2]}, id="taps that are apart, by vectors"),
        pytest.param((7, 7, 8), 8, (3, 3), {"groups": 2}, id="groups, by vectors"),
    ],
)
def test_a_convolution_by_matrix_tiles_is_the_same(rng, monkeypatch, op, image, filters, taps, attrs):
    """And so are its gradients; sums of bfloat16 differ by how they are rounded."""
    from pe_cli.program.backward import gradients

    x = {"Input": rng.standard_normal((2, *image)), "Filter": rng.standard_normal((filters, image[2] // attrs.get("groups", 1), *taps))}
    x |= {"Bias": rng.standard_normal(filters)} if op == "conv2d_fusion" else {}
    x = {name: rounded(value.astype("float32")) for name, value in x.items()}
    found = []
    for tiles in (False, True):
        use_tiles(monkeypatch, tiles)
        program = fed(x)
        block = program.global_block()
        given = {name: name if name == "Bias" else cast(program, name, BFLOAT16) for name in x}
        outputs = {"Output": "out", **({"Moments": "m"} if op == "fused_conv2d_moments" else {})}
        block.append_op(op, given, outputs, {**attrs, "data_format": "NHWC"})
        names = ["out"]
        if op == "conv2d":
            block.append_op("square", {"X": "out"}, {"Out": "q"})
            block.append_op("reduce_sum", {"X": "q"}, {"Out": "s"}, {"reduce_all": True})
            names += [g.name for g in gradients([block.var("s")], [block.var("Input"), block.var("Filter")])]
        found.append(run(program, x, names))
    for name, value in found[0].items():
        size = np.sqrt((value**2).mean())
        np.testing.assert_allclose(found[1][name], value, rtol=1e-2, atol=2e-2 * size, err_msg=name)


@pytest.mark.parametrize(
    ("image", "filters", "taps", "attrs", "pays"),
    [
        pytest.param((28, 28, 32), 32, (5, 5), {}, True, id="filters that fill tiles"),
        pytest.param((28, 28, 3), 16, (3, 3), {}, False, id="few channels"),
        pytest.param((16, 16, 32), 32, (3, 3), {"paddings": [1, 1]}, True, id="instead of Winograd's way"),
        pytest.param((8, 8, 64), 64, (3, 3), {"paddings": [1, 1]}, False, id="by Winograd's way, as images are small"),
        pytest.param((8, 8, 64), 64, (1, 1), {}, True, id="single pixels"),
    ],
)
def test_a_convolution_is_by_pairs_where_they_take_less_time(rng, monkeypatch, image, filters, taps, attrs, pays):
    monkeypatch.setattr("pe_cli.ops.define.tile_products.bfloat16_unit", lambda: PAIRS)
    monkeypatch.setattr("pe_cli.ops.nn.conv_tile_kernels.terms", lambda: 8)
    used = []
    monkeypatch.setattr(rounded_ops, "with_tiles", lambda call, stored: (used.append(with_tiles(call, stored)), used[-1])[1])
    x = {"Input": rng.standard_normal((2, *image)), "Filter": rng.standard_normal((filters, image[2], *taps))}
    x = {name: rounded(value.astype("float32")) for name, value in x.items()}
    program = fed(x)
    program.global_block().append_op(
        "conv2d", {name: cast(program, name, BFLOAT16) for name in x}, {"Output": "out"}, {**attrs, "data_format": "NHWC"}
    )
    run(program, x, ["out"])
    assert any("tile_" in call.kernel.name for call, _ in used) is pays


def test_what_stays_from_step_to_step_cannot_be_narrow():
    block = Program("p").global_block()
    with pytest.raises(PeError, match=r"'w' is kept from step to step, and cannot be bfloat16") as found:
        block.create_parameter("w", TensorType((2,), BFLOAT16))
    assert "cast" in found.value.hint
    with pytest.raises(PeError, match=r"'x' is fed, and cannot be bfloat16"):
        block.create_var("x", TensorType((-1, 2), BFLOAT16), is_data=True)


def test_gradients_flow_through_a_rounding(rng):
    """d(sum(y^2))/dx = 2 rounded(x), each factor as it is stored."""
    from pe_cli.program.backward import gradients

    x = rng.standard_normal((3, 4)).astype("float32")
    program = fed({"x": x})
    block = program.global_block()
    block.append_op("square", {"X": cast(program, "x", BFLOAT16)}, {"Out": "y"})
    block.append_op("reduce_sum", {"X": "y"}, {"Out": "s"}, {"reduce_all": True})
    (gradient,) = gradients([block.var("s")], [block.var("x")])
    np.testing.assert_array_equal(run(program, {"x": x}, [gradient.name])[gradient.name], 2 * rounded(x))
