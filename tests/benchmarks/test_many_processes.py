"""What a step costs one process among very many, with peers that are made up."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "many_processes.py"


def found(kind: str, size: int) -> dict[str, float]:
    done = subprocess.run([sys.executable, SCRIPT, "--one", f"{kind},{size}", "--steps", "24"], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(("kind", "scans"), [("dense", 0), ("sequences", 1)])
def test_messages_of_a_step_grow_as_the_levels_of_a_tree_and_keep_their_length(kind: str, scans: int) -> None:
    few, many = found(kind, 4), found(kind, 1024)
    assert (few["messages"], many["messages"]) == (2 * (1 + scans), 10 * (1 + scans))
    assert many["bytes"] / many["messages"] == few["bytes"] / few["messages"]
