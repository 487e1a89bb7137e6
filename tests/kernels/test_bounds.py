"""Kernels that look at their addresses: what lies outside of a call's arguments is told, what lies inside computes as ever."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pe_cli.kernels.bounds import checking, nearest

ROOT = Path(__file__).parents[2]
#: A copy of one element too many, or one too early.
BEYOND = """
import sys
import numpy as np
from pe_cli.ops.define.lowering import Offset
from pe_cli.ops.define.moves import copy
from pe_cli.ops.define.registry import find
from tests.ops.support import run_op

def lower(o):
    x, out = o.input("X"), o.output("Out")
    where = {"behind": (x, out, x.size + 1), "before": (x, Offset(out, -2), x.size), "inside": (x, out, x.size)}[sys.argv[1]]
    o.call(copy, *where)

find("assign").lowerings["cpu"] = lower
print(run_op("assign", {"X": np.arange(5, dtype="float32")}).tolist())
"""


def checked(*command: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PE_CHECK_BOUNDS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("behind", "pe_cli.ops.define.moves:copy (float32) touched 4 bytes 0 bytes behind 20 that it may touch"),
        ("before", "pe_cli.ops.define.moves:copy (float32) touched 4 bytes 4 bytes before 20 that it may touch, 2 times in all"),
    ],
)
def test_a_kernel_that_leaves_its_arguments_is_named(where, said):
    done = checked("-c", BEYOND, where)
    assert done.returncode != 0
    assert said in done.stderr


def test_a_kernel_that_stays_inside_computes_as_ever():
    done = checked("-c", BEYOND, "inside")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[0.0, 1.0, 2.0, 3.0, 4.0]\n"


def test_ops_pass_their_tests_with_every_address_looked_at():
    done = checked("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/ops/test_lstm_unit.py", "tests/ops/test_softmax.py")
    assert done.returncode == 0, done.stdout[-3000:]


TEXT = """\
define internal i32 @body(ptr %retptr, ptr %x, i64 %n) {
  %own = alloca i64, align 8
  %inside = getelementptr i64, ptr %own, i64 0
  store i64 %n, ptr %inside, align 8
  %p = getelementptr float, ptr %x, i64 %n
  %v = load float, ptr %p, align 4
  %w = load <8 x double>, ptr %x
  store <4 x float> %q, ptr %p, align 16
  store ptr null, ptr %retptr, align 8
  %g = load i64, ptr @global, align 8
}
define void @entry(ptr %record) {
  %w0 = load i64, ptr %record, align 8
}
"""
CHECKED = """\
define internal i32 @body(ptr %retptr, ptr %x, i64 %n) {
  %own = alloca i64, align 8
  %inside = getelementptr i64, ptr %own, i64 0
  store i64 %n, ptr %inside, align 8
  %p = getelementptr float, ptr %x, i64 %n
  %pe.checked.1 = call ptr @pe_checked(ptr %p, i64 4)
  %v = load float, ptr %pe.checked.1, align 4
  %pe.checked.2 = call ptr @pe_checked(ptr %x, i64 64)
  %w = load <8 x double>, ptr %pe.checked.2
  %pe.checked.3 = call ptr @pe_checked(ptr %p, i64 16)
  store <4 x float> %q, ptr %pe.checked.3, align 16
  store ptr null, ptr %retptr, align 8
  %g = load i64, ptr @global, align 8
}
define void @entry(ptr %record) {
  %w0 = load i64, ptr %record, align 8
}
declare ptr @pe_checked(ptr, i64)
"""


def test_loads_and_stores_of_a_kernel_go_through_the_check():
    assert checking(TEXT, "entry") == CHECKED


def test_where_an_address_lies():
    assert nearest(90, [(100, 120), (200, 300)]) == "10 bytes before 20 that it may touch"
    assert nearest(125, [(100, 120), (200, 300)]) == "5 bytes behind 20 that it may touch"
