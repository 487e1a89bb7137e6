"""What the real cuDNN takes of our graphs, where it is installed; no card is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests import needs
from tests.rotation import on_its_day


@on_its_day(1, of=4)
def test_cudnn_makes_plans_of_each_call_and_reads_them_again(tmp_path: Path):
    """In a process of its own: a stand-in for the driver must not be found by other tests."""
    found = subprocess.run([sys.executable, "-m", "tests.cuda.libraries.cudnn_plans", tmp_path],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if found.returncode == 2:
        needs.skip("cuDNN", f"pip install '.[cuda-libraries]' ({found.stdout.strip()})")
    assert found.returncode == 0, found.stdout + found.stderr
    plans = [int(line.split()[-1]) for line in found.stdout.splitlines()]
    assert min(plans) > 0, found.stdout
