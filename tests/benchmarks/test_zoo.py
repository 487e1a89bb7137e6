"""The script that times networks of the original's API: it builds cases, feeds them and prints a table. Nothing here is timed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "zoo.py"

CASES = """
from paddle import fluid


def pooled():
    import network

    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    return {"loss": network.loss(fluid.layers.sequence_pool(fluid.layers.embedding(words, [10, 4]), "sum")), "batch": 3}


def broken():
    raise ValueError("it cannot be built")


CASES = {name: (build, {"dir": "nets"}) for name, build in (("a/pooled", pooled), ("a/broken", broken))}
"""

FEEDS = """
def one(variable, built, random, step):
    rows = built.get("batch", 4)
    if not variable.lod_level:
        return random.rand(rows, *variable.shape[1:]).astype("float32"), None
    lengths = [int(n) for n in random.randint(2, built.get("maxlen", 4), rows)]
    return random.randint(0, 10, (sum(lengths), 1)).astype("int64"), [lengths]
"""

NETWORK = """
from paddle import fluid


def loss(x):
    return fluid.layers.reduce_mean(fluid.layers.fc(x, 1))
"""


def test_cases_are_built_fed_and_timed_with_lengths_of_their_own_where_they_take_sequences(tmp_path: Path) -> None:
    (tmp_path / "models" / "v1.8.0" / "nets").mkdir(parents=True)
    (tmp_path / "models" / "v1.8.0" / "nets" / "network.py").write_text(NETWORK)
    (tmp_path / "cases.py").write_text(CASES)
    (tmp_path / "feeds.py").write_text(FEEDS)
    (tmp_path / "verdicts.tsv").write_text("case\tverdict\na/pooled\tagrees\n")
    pe = f"{sys.executable} -m pe_cli run"
    command = [*pe.split(), str(SCRIPT), str(tmp_path), "--original", pe, "--steps", "2", "--turns", "2"]
    command += ["--verdicts", str(tmp_path / "verdicts.tsv")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    head, _, pooled, broken = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()]
    assert len(head) == 8
    assert pooled[:2] == ["a/pooled", "agrees"]
    assert all(float(cell) > 0 for cell in pooled[2:])
    assert broken[0] == "a/broken"
    assert "it cannot be built" in broken[2]
