"""Runs the samples of some ops, forward and backward, and prints a hash of what they give: `checked_ops.py NAME ...` or `PART/PARTS`.

With `PE_CHECK_BOUNDS=1` every address that their kernels touch is looked at, and a kernel that leaves its memory ends this.
"""

from __future__ import annotations

import hashlib
import re
import sys

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.ops.define.registry import OPS, OpDef, Sample, discover, find
from tests.ops.support import run_gradient, run_op, sample_arrays


def run(definition: OpDef, sample: Sample) -> list[object]:
    """Return the outputs of a sample, and its gradients where there are any; of float32."""
    arrays = sample_arrays(definition, sample, "float32")
    found = [run_op(definition.name, arrays, sample.attrs, sample.outputs)]
    if (definition.grad_op or definition.grad_maker) and sample.grad and definition.differentiable:
        found.append(run_gradient(definition.name, arrays, sample.attrs, outputs=sample.outputs))
    return found


def digest(values: object) -> bytes:
    """Return the bytes of arrays, however they are nested."""
    if isinstance(values, dict):
        values = list(values.values())
    return b"".join(map(digest, values)) if isinstance(values, list) else np.ascontiguousarray(values).tobytes()


def main(names: list[str]) -> int:
    """Print a line for each op; return how many left their memory."""
    wrong = 0
    if part := re.fullmatch(r"(\d+)/(\d+)", names[0]):
        discover()
        every = sorted(name for name, d in OPS.items() if d.is_grad_of is None and d.samples)
        names = every[int(part[1]) :: int(part[2])]
    for name in names:
        bits = hashlib.sha256()
        for sample in find(name).samples:
            try:
                bits.update(digest(run(find(name), sample)))
            except PeError as error:
                wrong += error.code == ExitCode.BUG
                print(name, sample.name, error.message, file=sys.stderr)  # noqa: T201 - this is its output
        print(name, bits.hexdigest())  # noqa: T201
    return wrong


if __name__ == "__main__":
    sys.exit(min(100, main(sys.argv[1:])))
