"""Kernels that look at their addresses: what lies outside of a call's arguments is told, what lies inside computes as ever."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pe_cli.kernels.compiler.bounds_check import checking, nearest
from tests.rotation import on_its_day, part_of_today

ROOT = Path(__file__).parents[3]
#: A copy of one element too many, or one too early.
BEYOND = """
import sys
import numpy as np
from pe_cli.ops.define.lowering import Offset
from pe_cli.ops.define.copy_kernels import copy
from pe_cli.ops.define.registry import find
from tests.ops.support import run_op

def lower(o):
    x, out = o.input("X"), o.output("Out")
    where = {
        "behind": (x, out, x.size + 1),
        "before": (x, Offset(out, -2), x.size),
        "input": (out, x, x.size),
        "inside": (x, out, x.size),
    }
    o.call(copy, *where[sys.argv[1]])

find("assign").lowerings["cpu"] = lower
print(run_op("assign", {"X": np.arange(5, dtype="float32")}).tolist())
"""


#: Ops whose loops add nothing up, so that it does not matter that checked ones are no vectors; products are made of microkernels.
ALIKE = ("relu", "tanh", "transpose", "lookup_table", "mul")
#: Each day the samples of another part of all ops run with every address looked at; `make check-deep` runs all tests of ops so.
PARTS = 12


#: Copies two arrays that lie one after the other, told or not that they do.
BUCKETS = """
import sys
import numpy as np
from pe_cli.core.types import TensorType
from pe_cli.devices.protocol import Spot, Work, device
from pe_cli.kernels.calls import Buffer, Call
from pe_cli.ops.define.copy_kernels import copy

kind = TensorType((16,), "float32")
x, after_x, y, after_y = buffers = [Buffer(name, kind) for name in ("x", "after x", "y", "after y")]
memory = device("cpu").allocate(0, 4 * kind.nbytes)
for i, b in enumerate(buffers[:2]):
    memory.write(i * kind.nbytes, kind, np.full(16, 1 + i, np.float32))
told = [[x, after_x], [y, after_y]] if sys.argv[1] == "told" else []
work = Work(0, [Call(copy, (x, y, 32), "float32", "float32")], frozenset(), written=frozenset([y, after_y]), buckets=told)
step = device("cpu").compile([work], lambda b: Spot(memory, buffers.index(b) * kind.nbytes, 0), 1, None)
assert step.run(0) is None
print(memory.read(3 * kind.nbytes, kind).tolist()[:2])
"""


def checked(*command: str, checks: str = "1") -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PE_CHECK_BOUNDS": checks, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("behind", "pe_cli.ops.define.copy_kernels:copy (float32) wrote 4 bytes 0 bytes behind 20 that it may touch, 2 times in all"),
        ("before", "pe_cli.ops.define.copy_kernels:copy (float32) wrote 4 bytes 4 bytes before 20 that it may touch, 2 times in all"),
        ("input", "pe_cli.ops.define.copy_kernels:copy (float32) wrote 4 bytes 16 bytes into 20 that it may only read, 5 times in all"),
    ],
)
def test_a_kernel_that_leaves_its_arguments_is_named(where, said):
    done = checked("-c", BEYOND, where)
    assert done.returncode != 0
    assert said in done.stderr


def test_a_call_may_touch_what_lies_behind_its_argument_where_it_is_told_so():
    told, alone = (checked("-c", BUCKETS, how) for how in ("told", "alone"))
    assert told.stdout == "[2.0, 2.0]\n", told.stderr
    assert "wrote 4 bytes 60 bytes behind 64 that it may touch" in alone.stderr


def test_a_kernel_that_stays_inside_computes_as_ever():
    done = checked("-c", BEYOND, "inside")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[0.0, 1.0, 2.0, 3.0, 4.0]\n"


def test_some_ops_keep_to_their_memory_each_day_others():
    part = f"{part_of_today(PARTS)}/{PARTS}"
    done = checked("-m", "tests.kernels.checked_ops", part)
    assert done.returncode == 0, f"part {part}: {done.stderr[-3000:]}"
    assert done.stdout.count("\n") > 20


@on_its_day(0, of=3)
def test_checked_kernels_give_the_same_bits():
    plain, looked_at = (checked("-m", "tests.kernels.checked_ops", *ALIKE, checks=checks) for checks in ("", "1"))
    assert looked_at.returncode == 0, looked_at.stderr
    assert [line.split()[0] for line in plain.stdout.splitlines()] == list(ALIKE)
    assert looked_at.stdout == plain.stdout


TEXT = """\
define internal i32 @body(ptr %x, i64 %n) {
  %own = alloca i64, align 8
  %inside = getelementptr i64, ptr %own, i64 0
  store i64 %n, ptr %inside, align 8
  %p = getelementptr float, ptr %x, i64 %n
  %v = load float, ptr %p, align 4
  %w = load <8 x double>, ptr %x
  store <4 x float> %q, ptr %p, align 16
  %g = load i64, ptr @global, align 8
}
define void @entry(ptr %record) {
  %w0 = load i64, ptr %record, align 8
}
"""
CHECKED = """\
define internal i32 @body(ptr %x, i64 %n) {
  %own = alloca i64, align 8
  %inside = getelementptr i64, ptr %own, i64 0
  store i64 %n, ptr %inside, align 8
  %p = getelementptr float, ptr %x, i64 %n
  %pe.checked.1 = call ptr @pe_checked(ptr %p, i64 4, i64 0)
  %v = load float, ptr %pe.checked.1, align 4
  %pe.checked.2 = call ptr @pe_checked(ptr %x, i64 64, i64 0)
  %w = load <8 x double>, ptr %pe.checked.2
  %pe.checked.3 = call ptr @pe_checked(ptr %p, i64 16, i64 1)
  store <4 x float> %q, ptr %pe.checked.3, align 16
  %g = load i64, ptr @global, align 8
}
define void @entry(ptr %record) {
  %w0 = load i64, ptr %record, align 8
}
declare ptr @pe_checked(ptr, i64, i64)
"""


def test_loads_and_stores_of_a_kernel_go_through_the_check():
    assert checking(TEXT, "entry") == CHECKED


def test_where_an_address_lies():
    assert nearest(90, [(100, 120), (200, 300)]) == "10 bytes before 20 that it may touch"
    assert nearest(125, [(100, 120), (200, 300)]) == "5 bytes behind 20 that it may touch"
