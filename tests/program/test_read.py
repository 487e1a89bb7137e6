"""Programs from text and from files: what their ops write is what they declare, or they are refused before anything is planned."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from pe_cli.core.errors import PeError
from pe_cli.core.types import Place
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.io.fluid import program_desc
from pe_cli.program.parse import parse_program
from pe_cli.program.text_forms import from_string

ROOT = Path(__file__).parents[2]
HEAD = """program "p"
block 0
  var x: float32[batch, 3] is_data
  param w: float32[3, 2]
  param b: float32[2]
  forward mul(X=x, Y=w) -> Out=m: float32[batch, 2]
  forward elementwise_add(X=m, Y=b) -> Out=h: float32[batch, 2]
"""
BACK = """  forward mean(X=h) -> Out=l: float32[1]
  loss fill_like(X=l) -> Out=l@GRAD: float32[1] {"value": 1.0}
  backward mean_grad(X=h, Out@GRAD=l@GRAD) -> X@GRAD=h@GRAD: float32[batch, 2]
  backward elementwise_add_grad(Out@GRAD=h@GRAD) -> X@GRAD=m@GRAD: float32[batch, 2], Y@GRAD=b@GRAD: float32[2]
  backward mul_grad(X=x, Y=w, Out@GRAD=m@GRAD) -> Y@GRAD=w@GRAD: float32[3, 2]
"""


def test_what_is_right_is_read() -> None:
    assert len(from_string(HEAD + BACK).global_block().ops) == 7


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD + '  forward fill_constant() -> Out=b {"shape": [1000]}\n', "writes float32[1000] to 'b', which is float32[2]"),
        (HEAD.replace("Out=h: float32[batch, 2]", "Out=h: float32[batch, 3]"), "writes float32[batch, 2] to 'h'"),
        (HEAD + '  forward fill_constant() -> Out=c: float32[1] {"shape": [1000000000000000000]}\n', "no memory holds"),
        (HEAD + '  forward fill_constant() -> Out=c: float32[1] {"shape": [0.5]}\n', "which is no int"),
        (HEAD + '  forward fill_constant() -> Out=c: float32[1] {"shape": ["a"]}\n', "which is no int"),
        (HEAD.replace("x: float32[batch, 3]", "x: float32[batch, 2000000000000000]"), "no memory holds"),
        (HEAD + BACK.replace("mean_grad(X=h, Out@GRAD=l@GRAD)", "mean_grad(X=x, Out@GRAD=l@GRAD)"), "but its mean has 'h' there"),
        (HEAD + BACK.replace("mul_grad(X=x, Y=w, Out@GRAD=m@GRAD)", "mul_grad(X=x, Y=w, Out@GRAD=l@GRAD)"), "mul_grad"),
        (HEAD + BACK.replace("mul_grad(X=x,", "mul_grad(X=m,"), "mul_grad"),
        (HEAD + BACK.replace("w@GRAD: float32[3, 2]", 'w@GRAD: float32[3, 2] {"x_num_col_dims": 7}'), "other attributes"),
    ],
)
def test_what_would_write_beyond_a_variable_is_refused(text: str, said: str) -> None:
    with pytest.raises(PeError) as caught:
        from_string(text)
    rendered = caught.value.render() if hasattr(caught.value, "render") else str(caught.value)
    assert said in rendered
    assert "program:" in rendered  # the place in the text


def test_a_variable_has_one_size_in_a_step() -> None:
    """Sizes that are not declared are those that ops make, and all that write a variable make the same."""
    text = """program "p"
block 0
  var v: float32[batch]
  forward fill_constant() -> Out=v {"shape": [1000]}
  forward fill_constant() -> Out=v {"shape": [3]}
"""
    program = parse_program(text)
    with pytest.raises(PeError, match=r"writes float32\[3\] to 'v', which is float32\[1000\] elsewhere"):
        Executor(program, Scope([Place("cpu", 0)])).run({}, ["v"], 0)


def test_sizes_in_python_are_checked_too() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        for shape in ([0.1], ["a"], [1 << 60], [1 << 70], [-1]):
            with pytest.raises(PeError, match="fill_constant"):
                fluid.layers.fill_constant(shape, "float32", 1.0)
        assert fluid.layers.fill_constant([np.int64(3)], "float32", 1.0).shape == (3,)


def test_a_damaged_inference_model_is_refused(tmp_path: Path) -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [-1, 3])
        out = fluid.layers.fc(x, 2)
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(fluid.default_startup_program())
        fluid.io.save_inference_model(str(tmp_path), ["x"], [out], executor)
        path = tmp_path / "__model__"
        blocks = program_desc.read(path.read_bytes())
        weight = next(v for v in blocks[0].vars if v.shape == (3, 2))
        weight.shape = (300, 2)
        path.write_bytes(program_desc.write(blocks))
        with pytest.raises(ValueError, match="operator 1, mul"):
            fluid.io.load_inference_model(str(tmp_path), executor)


def test_programs_that_were_changed_at_random_end_in_a_step_or_an_error() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "fuzz" / "programs.py"), "7", "150"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


