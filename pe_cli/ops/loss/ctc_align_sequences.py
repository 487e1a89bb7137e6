"""ctc_align_sequences: paths of classes, as sequences, become the labels that they stand for. It runs on the host."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.ops.define.lod import HostRun, Leveled, fixed
from pe_cli.ops.define.onnx import ON_HOST, not_in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op


@op(
    "ctc_align_sequences",
    inputs="Input",
    outputs="Output",
    attrs={
        "blank": Attr(0, "class that stands for no label"),
        "merge_repeated": Attr(True, "several of one class in a row are one"),
    },
    differentiable="",
    samples=[Sample({"Input": fixed([[1], [1], [0], [1]])}, name="one path", grad=False)],
)
def ctc_align_sequences(x: TensorType, *, blank: int, merge_repeated: bool) -> TensorType:
    """Make the labels of paths: several of one class in a row become one, and then blanks are left out.

    Args:
        Input: [rows, 1] int64 classes, a sequence for each path; plain rows are one.
        blank, merge_repeated: see the attributes.

    Returns:
        Output: [labels, 1] int64 with a sequence for each path; one row of -1 where no path has a label.

    Raises:
        PeError: another type; in a step, sequences that are not those of all rows.

    Source:
        fluid.layers.ctc_greedy_decoder without input_length.
    """
    del blank, merge_repeated
    if x.dtype != "int64" or len(x.shape) not in (1, 2) or x.shape[1:] not in ((), (1,)):
        raise PeError(f"ctc_align_sequences needs int64 Input [rows, 1], got {x}", hint="cast or reshape it")
    return TensorType((-1, 1), "int64")


@ctc_align_sequences.host_run
def ctc_align_sequences_host(run: HostRun) -> dict[str, list[Leveled]]:
    """Path by path; of several levels of sequences the outermost are the paths.

    Raises:
        PeError: sequences that are not those of all rows (exit code 3).
    """
    (given,) = run.values["Input"]
    path = given.array.ravel()
    ends = np.asarray(given.lod[-1] if given.lod else [0, len(path)], np.int64)
    for outer in reversed(given.lod[:-1]):
        # Offsets of an outer level count the sequences of the next inner one; looked up there, they count rows.
        ends = ends[np.asarray(outer, np.int64)]
    if ends[-1] != len(path):
        raise PeError(f"{run.op}: sequences of {ends[-1]} rows, but there are {len(path)}", code=ExitCode.DATA)
    kept = path != run.attrs["blank"]
    if run.attrs["merge_repeated"] and len(path):
        repeats = np.r_[False, path[1:] == path[:-1]]
        # The first class of a path repeats nothing of the path before it.
        repeats[ends[ends < len(path)]] = False
        kept &= ~repeats
    counts = [int(kept[a:b].sum()) for a, b in pairwise(ends)]
    # Where no path has a label, the original gives a row of -1 that belongs to none.
    labels = path[kept] if kept.any() else np.array([-1])
    return {"Output": [Leveled(labels.astype("int64").reshape(-1, 1), ([0, *np.cumsum(counts).tolist()],))]}
not_in_onnx(ON_HOST, "ctc_align_sequences")
