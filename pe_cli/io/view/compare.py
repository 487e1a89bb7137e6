"""Compares runs side by side: configs, environments and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pe_cli.io.history import Run, flatten

#: Keys that differ between any two runs and explain nothing.
NOISE = ("output.dir", "output.name")


def differences(found: Sequence[Mapping[str, Any]]) -> dict[str, list[object]]:
    """Return dotted key -> the value of each, for keys that are not the same in all; None where a key is absent.

    >>> differences([{"a": {"b": 1}, "c": 2}, {"a": {"b": 3}, "c": 2}])
    {'a.b': [1, 3]}
    """
    flat = [flatten(dict(one)) for one in found]
    keys = dict.fromkeys(key for one in flat for key in one)
    rows = {key: [one.get(key) for one in flat] for key in keys}
    return {key: values for key, values in rows.items() if any(v != values[0] for v in values[1:]) and key not in NOISE}


def results(runs: Sequence[Run]) -> dict[str, list[float | None]]:
    """Return metric -> the newest value of each run, gradients of single parameters left out; with `best ...` before them."""
    out: dict[str, list[float | None]] = {}
    bests = [run.best for run in runs]
    for by in dict.fromkeys(f"{b.mode} {b.by}" for b in bests if b):
        out[by] = [b.value if b and f"{b.mode} {b.by}" == by else None for b in bests]
    lasts = [run.last() for run in runs]
    for name in dict.fromkeys(name for last in lasts for name in last):
        if "/gradient_norm/" not in name:
            out[name] = [last.get(name) for last in lasts]
    out["steps"] = [run.step for run in runs]
    out["seconds"] = [run.seconds for run in runs]
    return out
