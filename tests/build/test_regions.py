"""Layers of a model file that run blocks in a step: scan, while and if."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pe_cli.build.build import Built
from pe_cli.core.types import Place
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor

Model = Callable[[str], Built]
Errors = Callable[..., list[str]]

SCAN = """
feeds: {x: {shape: [4, 3]}}
blocks:
  cell:
    args: {input: ~, h: ~, size: ~}
    layers:
      made: {type: fc, input: [input, h], size: "${size}", act: tanh, bias_attr: false}
      half: {type: scale, x: made, scale: 0.5}
    next: {h: made}
    output: half
layers:
  read: {scan: cell, input: x, start: {h: {shape: [5], value: 0.25}}, size: 5}
  loss: {type: mean, x: read.1}
fetches: [read, read.1]
"""


def run(found: Built, feeds: dict[str, Any], fetches: list[str], values: dict[str, Any] | None = None) -> list[Any]:
    scope = Scope([Place("cpu", 0)])
    executor = Executor(found.eval, scope)
    for name in scope:
        scope.set(name, (values or {})[name])
    got = executor.run({n: np.asarray(v) for n, v in feeds.items()}, [found.fetches[n] for n in fetches], 0).values[0]
    return [got[found.fetches[n]] for n in fetches]


@pytest.mark.parametrize(("more", "step"), [("", 1), (", backwards: true", -1)])
def test_a_scan_goes_through_time(built: Model, more: str, step: int) -> None:
    found = built(SCAN.replace(", size: 5}", f", size: 5{more}}}"))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 4, 3)).astype("float32")
    w, u = rng.standard_normal((3, 5)).astype("float32"), rng.standard_normal((5, 5)).astype("float32")
    assert {p.name for p in found.eval.global_block().parameters()} == {"read/made.w_0", "read/made.w_1"}
    rows, last = run(found, {"x": x}, ["read", "read.1"], {"read/made.w_0": w, "read/made.w_1": u})
    h, expected = np.full((2, 5), 0.25), np.zeros((2, 4, 5))
    for t in range(4)[::step]:
        h = np.tanh(x[:, t] @ w + h @ u)
        expected[:, t] = h / 2
    np.testing.assert_allclose(rows, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(last, h, rtol=1e-5, atol=1e-6)


def test_a_scan_of_what_has_time_first(built: Model) -> None:
    found = built(
        """
        feeds: {x: {shape: [4, 3]}, start: {shape: [3]}}
        blocks:
          add: {args: {input: ~, sum: ~}, layers: {more: {type: elementwise_add, x: sum, y: "${input}"}}, next: {sum: more}}
        layers:
          first: {type: transpose, x: x, perm: [1, 0, 2]}
          sums:  {scan: add, start: {sum: start}, time_major: true}
        fetches: [sums]
        """
    )
    x, start = np.random.default_rng(0).standard_normal((2, 4, 3)).astype("float32"), np.ones((2, 3), "float32")
    (got,) = run(found, {"x": x, "start": start}, ["sums"])
    np.testing.assert_allclose(got, (np.cumsum(x, 1) + 1).transpose(1, 0, 2), rtol=1e-5)


WHILE = """
feeds: {x: {shape: [3], replicate: true}}
blocks:
  halve:
    args: {v: ~, n: ~, by: 0.5}
    layers:
      smaller: {type: scale, x: v, scale: "${by}"}
      more:    {type: increment, x: n}
    next: {v: smaller, n: more}
  large:
    args: {v: ~}
    layers:
      size: {type: reduce_sum, input: v}
      test: {type: greater_than, x: size, y: one}
layers:
  one:   {type: fill_constant, shape: [1], dtype: float32, value: 1.0}
  small: {while: halve, condition: large, start: {v: x, n: {shape: [1], dtype: int64}}}
fetches: [small, small.1]
"""


def test_a_while_runs_as_long_as_its_condition_holds(built: Model) -> None:
    found = built(WHILE)
    assert [v.tolist() for v in run(found, {"x": np.full(3, 4, "float32")}, ["small", "small.1"])] == [[0.25] * 3, [4]]
    assert [v.tolist() for v in run(found, {"x": np.zeros(3, "float32")}, ["small", "small.1"])] == [[0] * 3, [0]]


def test_an_if_runs_one_of_two_blocks(built: Model) -> None:
    found = built(
        """
        feeds: {x: {shape: [1], replicate: true}}
        blocks:
          up:   {args: {input: ~}, layers: {a: {type: scale, x: "${input}", scale: 3.0}}}
          down: {args: {input: ~, by: ~}, layers: {a: {type: scale, x: "${input}", scale: "${by}"}, b: {type: scale, x: a, scale: 2.0}}}
        layers:
          zero: {type: fill_constant, shape: [1], dtype: float32, value: 0.0}
          more: {type: greater_than, x: x, y: zero}
          pick: {if: more, then: up, else: down, input: x, by: -1.0}
        fetches: [pick]
        """
    )
    assert [run(found, {"x": np.array([v], "float32")}, ["pick"])[0].tolist() for v in (2, -2)] == [[6], [4]]


@pytest.mark.parametrize(
    ("text", "old", "new", "said"),
    [
        (SCAN, "scan: cell", "scan: cel", "there is no block 'cel'"),
        (SCAN, "start: {h: {shape: [5], value: 0.25}}, ", "", "nothing says what 'h' of block 'cell' is in the first round"),
        (SCAN, "    next: {h: made}\n", "", "block 'cell' needs next"),
        (SCAN, "next: {h: made}", "next: {h: mad}", "next of block 'cell': there is no layer 'mad'"),
        (SCAN, "{h: {shape: [5], value: 0.25}}", "{k: {shape: [5]}}", "block 'cell' has no argument 'k'"),
        (SCAN, "{shape: [5], value: 0.25}", "{shapes: [5]}", "has no key 'shapes'"),
        (SCAN, "{shape: [5], value: 0.25}", "{value: 1.0}", "needs a shape"),
        (SCAN, "{shape: [5], value: 0.25}", "{shape: [4]}", "begins as float32[batch, 4] and becomes float32[batch, 5]"),
        (SCAN, ", size: 5}", ", size: 5, width: 4}", "layer 'read' has no argument 'width'"),
        (SCAN, ", size: 5}", "}", "block 'cell' needs the argument 'size'"),
        (SCAN, "act: tanh", "act: tahn", "there is no activation 'tahn'"),
        (SCAN, "{scan: cell", "{type: fc, scan: cell", "layer 'read' has both type and scan"),
        (SCAN, "input: x, start", "input: y, start", "there is no variable 'y'"),
        (SCAN, "fetches: [read, read.1]", "fetches: [read/made]", "there is no variable 'read/made'"),
        (WHILE, ", condition: large", "", "layer 'small' has while, but no condition"),
        (WHILE, "test: {type: greater_than, x: size, y: one}", "test: {type: scale, x: size}", "while: its condition is float32[1]"),
        (WHILE, "start: {v: x, n: {shape: [1], dtype: int64}}", "start: {v: x}", "nothing says what 'n' of block 'halve'"),
        (WHILE, "start: {v: x, n: {shape: [1], dtype: int64}}", "start: [v]", "start of layer 'small' must be a mapping"),
    ],
)  # fmt: skip
def test_mistakes(errors: Errors, text: str, old: str, new: str, said: str) -> None:
    assert old in text
    found = errors(text.replace(old, new))
    assert any(said in error for error in found), found
    assert all("this is a bug" not in error for error in found)
