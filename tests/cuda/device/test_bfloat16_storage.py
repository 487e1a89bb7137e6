"""bfloat16 on CUDA: the bits of the CPU, by kernels that convert as they load and store."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.types import BFLOAT16, Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.program.ir import Program
from tests.cuda.ptx import models
from tests.rotation import on_its_day


def program(size: int) -> Program:
    """Return a program that rounds, and works on what is rounded: element by element, by rows, and as a product."""
    made = Program("p")
    block = made.global_block()
    block.create_var("x", TensorType((size, 7)), persistable=True)
    block.create_var("w", TensorType((7, 3)), persistable=True)
    for name in ("x", "w"):
        block.append_op("cast", {"X": name}, {"Out": f"{name}16"}, {"out_dtype": BFLOAT16})
    for name, shape in (("t", (size, 7)), ("s", (size, 7)), ("m", (size, 3))):
        block.create_var(name, TensorType(shape, BFLOAT16))
    block.append_op("tanh", {"X": "x16"}, {"Out": "t"})
    block.append_op("elementwise_add", {"X": "x16", "Y": "t"}, {"Out": "s"})
    block.append_op("mul", {"X": "s", "Y": "w16"}, {"Out": "m"})
    block.append_op("cast", {"X": "m"}, {"Out": "f"}, {"out_dtype": "float32"})
    return made


@on_its_day(0, of=3)
@pytest.mark.parametrize("size", [pytest.param(33, id="an odd size"), pytest.param(64, id="by fours")])
def test_values_are_rounded_as_on_the_cpu(rng, size):
    x, w = rng.standard_normal((size, 7)).astype("float32"), rng.standard_normal((7, 3)).astype("float32")
    x[0, :3] = np.nan, np.inf, -np.inf
    found = {}
    for kind in ("cpu", "cuda"):
        scope = Scope([Place(kind, 0)])
        executor = Executor(program(size), scope)
        scope.set("x", x)
        scope.set("w", w)
        found[kind] = executor.run({}, ["x16", "t", "s", "m", "f"], 0).values[0]
    np.testing.assert_array_equal(found["cuda"]["x16"], found["cpu"]["x16"])
    for name, value in found["cuda"].items():  # sums and tanh differ by a rounding of float32, so at most by one of bfloat16
        np.testing.assert_allclose(value, found["cpu"][name], rtol=2**-7, atol=2**-8, err_msg=name)


@on_its_day(1, of=4)
def test_a_config_whose_values_are_stored_narrow_learns_as_on_the_cpu():
    """Losses of two steps: those of the CPU in bf16 but for the order of sums."""
    config, more = models.ROOT / "configs/digits.yaml", ("executor.precision=bf16",)
    cpu, cuda = (models.train(config, kind, more=more, steps=2) for kind in ("cpu", "cuda"))
    np.testing.assert_allclose(cuda, cpu, rtol=1e-3)
