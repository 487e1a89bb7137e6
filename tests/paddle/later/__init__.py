"""Calls of functions that came after 2.0, each run with the original and with this package on the same numbers.

A case is a function of `paddle` and fed variables. Values of all results are kept, and the gradient of the sum of `r * r + r` over its
results `r` by each fed float. `python -m tests.paddle.later FOLDER [GROUP]`, by a Python that has PaddlePaddle 2.6.2, writes a file of
recordings/later per group.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

GROUPS = ("losses", "layers", "matrices", "numbers", "places", "regions", "shapes")


@dataclass
class Case:
    """A call.

    Args:
        make: of `paddle` and the fed variables; returns a variable, or several.
        feeds: name -> values.
        near: how far a number may be off, of the largest one.
        slopes: whether gradients are compared.
    """

    make: Callable[..., Any]
    feeds: dict[str, Any]
    near: float = 2e-6
    slopes: bool = True


def f(*shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0) -> Any:
    """Return float32 numbers without two equal ones."""
    return np.random.RandomState(seed + 1).uniform(low, high, shape).astype("float32")


def i(*shape: int, seed: int = 0, low: int = 0, high: int = 9) -> Any:
    """Return int64 numbers from low on, below high."""
    return np.random.RandomState(seed + 1).randint(low, high, shape).astype("int64")


def cases(group: str) -> dict[str, Case]:
    """Return the cases of a group by name."""
    return dict(importlib.import_module(f"tests.paddle.later.{group}").CASES)


def _kept(value: Any) -> dict[str, Any]:
    value = np.asarray(value)
    numbers = [float(f"{v:.7g}") if value.dtype.kind == "f" else int(v) for v in value.ravel()]
    return {"shape": list(value.shape), "kind": str(value.dtype), "values": numbers}


def run(paddle: Any, case: Case) -> dict[str, Any]:
    """Build a case, run it, and return its results and gradients."""
    static = paddle.static
    with static.program_guard(static.Program(), static.Program()), static.scope_guard(static.Scope()):
        fed = {}
        for name, value in case.feeds.items():
            fed[name] = static.data(name, list(value.shape), str(value.dtype))
            fed[name].stop_gradient = value.dtype.kind != "f"
        made = case.make(paddle, **fed)
        results = list(made) if isinstance(made, (list, tuple)) else [made]
        slopes: dict[str, Any] = {}
        floats = [r for r in results if "FP" in str(r.dtype) or "float" in str(r.dtype)]
        if case.slopes and floats:
            loss = None
            for part in (paddle.sum(paddle.square(r) + r) for r in floats):
                loss = part if loss is None else loss + part
            by = [v for n, v in fed.items() if case.feeds[n].dtype.kind == "f"]
            found = static.gradients([loss], by) if by else []
            slopes = {v.name: g for v, g in zip(by, found, strict=True) if g is not None}
        executor = static.Executor(paddle.CPUPlace())
        executor.run(static.default_startup_program())
        values = executor.run(feed=case.feeds, fetch_list=[*results, *slopes.values()], return_numpy=False)
    kept = [_kept(v) for v in values]
    return {"results": kept[: len(results)], "slopes": dict(zip(slopes, kept[len(results) :], strict=True))}


def main() -> None:
    """Write the recordings."""
    import paddle

    paddle.enable_static()
    wanted = sys.argv[2:] or GROUPS
    for group in wanted:
        found = {}
        for name, case in cases(group).items():
            try:
                found[name] = run(paddle, case)
            except (ValueError, TypeError, RuntimeError) as error:  # what the original cannot do is told, and not recorded
                sys.stderr.write(f"{group}: {name}: {type(error).__name__}: {str(error)[-600:]}\n")
        lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(value, separators=(',', ':'))}" for name, value in found.items())
        (Path(sys.argv[1]) / f"{group}.json").write_text("{\n" + lines + "\n}\n")
