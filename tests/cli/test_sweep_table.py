"""What `pe sweep` prints of a record: numbers end below each other, settings begin below each other, and failures have their reasons."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from pe_cli.cli.sweep import _show


def test_columns_and_failures(capsys):
    trials = [SimpleNamespace(number=0, error=""), SimpleNamespace(number=1, error="run.yaml:3:1: error: no rows\nhint: add some")]
    made = SimpleNamespace(
        rows=lambda: [["trial", "eval/acc", "state", "settings"], [0, 0.5, "done", "a"], [10, 0.25, "failed", "a longer one"]],
        importance=lambda: {"rate": 0.25, "size": 0.75, "kind": None},
        trials=trials,
        best=None,
        folder=Path(),
        repeats=1,
    )
    _show(made)
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "trial  eval/acc   state  settings",
        "    0       0.5    done  a",
        "   10      0.25  failed  a longer one",
        "importance (share of the variance explained): size 0.75, rate 0.25",
    ]
    assert err.splitlines() == ["trial 1 failed: no rows"]
