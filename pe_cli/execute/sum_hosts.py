"""What joins processes whose devices are CUDA's: sums of gradients and small values of all, by NCCL, on the first device of each."""

from __future__ import annotations

from pe_cli.collectives.cards import copy_call, fill_with
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.devices.memory import aligned
from pe_cli.execute.lowering import GraphLowering
from pe_cli.execute.tasks import Task
from pe_cli.graph.ssa import GatherProcesses, Node, StartSum, WaitSum
from pe_cli.kernels.calls import Buffer, Call, Stretch
from pe_cli.kernels.library_calls import NCCL, AcrossKernel


def start_sum(g: GraphLowering, node: StartSum) -> Task:
    """Return the task that sums the first devices' gradients over all processes, beside what comes after.

    Raises:
        PeError: NCCL may not be used, or numbers shall go as float16.
    """
    check_nccl(g)
    if node.halved:
        raise PeError("fp16_allreduce is not done on place: cuda", hint="leave build_strategy.fp16_allreduce out")
    row = [g.buffer(n, 0) for n in node.names]
    for name in node.names:  # all devices lay a bucket out alike
        for d in range(len(g.graph.places)):
            g.buffer(name, d)
    whole = _stretch(row)
    calls = [] if node.inputs else [Call(fill_with, (whole, whole.count, -0.0), row[0].dtype, row[0].dtype)]
    return Task(node.index, 0, [*calls, _across(g, "all_reduce", whole)], [*row] if node.inputs else [], [*row])


def wait_sum(g: GraphLowering, node: WaitSum) -> Task:
    """Return the task that gives the sums to the other devices."""
    names = node.names
    row, others = [g.buffer(n, 0) for n in names], [d for d in dict.fromkeys(d for _, d in node.outs["Out"]) if d]
    targets = [[g.buffer(n, d) for n in names] for d in others]
    calls = [copy_call(_stretch(row), [_stretch(each) for each in targets], row[0].dtype)] if others else []
    return Task(node.index, 0, calls, row, [*row, *(b for each in targets for b in each)])


def gather_rows(g: GraphLowering, node: GatherProcesses) -> Task:
    """Return the task that gives every process what the devices of all have written: a row for each, zeros where there is none."""
    check_nccl(g)
    out, places = g.buffer(*node.outs["Out"][0]), len(g.graph.places)
    width, first = out.shape[1], g.whole.first
    mine = Stretch(out, first * width, places * width)
    calls = [Call(fill_with, (mine, mine.count, 0.0), out.dtype, out.dtype)]
    for name, d in node.ins["X"]:
        calls.append(copy_call(Stretch(g.buffer(name, d), 0, width), [Stretch(out, (first + d) * width, width)], out.dtype))
    calls.append(_across(g, "all_gather", Stretch(out, 0, out.size)))
    return Task(node.index, 0, calls, [g.buffer(*at) for at in node.ins["X"]], [out])


def refused(g: GraphLowering, node: Node) -> list[Task]:
    """Refuse what processes exchange otherwise.

    Raises:
        PeError: always.
    """
    del g
    what = f"{node.title}: several processes do not do that on place: cuda"
    raise PeError(what, at=node.at, hint="use reduce_strategy: AllReduce, and is_sparse: false", code=ExitCode.DEVICE)


def check_nccl(g: GraphLowering) -> None:
    """Refuse several processes without NCCL.

    Raises:
        PeError: it is not installed, or may not be used (exit code 5).
    """
    if NCCL not in g.libraries:
        hint = "pip install nvidia-nccl-cu13, and leave executor.libraries at auto"
        raise PeError("several processes on place: cuda sum by NCCL, which is not there", hint=hint, code=ExitCode.DEVICE)


def _across(g: GraphLowering, what: str, whole: Stretch) -> Call:
    dtype = whole.buffer.dtype
    own = copy_call(whole, [whole], dtype)
    return Call(AcrossKernel(what, g.whole.peers, own), (whole,), dtype, dtype)


def _stretch(row: list[Buffer]) -> Stretch:
    """Return a bucket whole."""
    size = row[0].type.numpy.itemsize
    return Stretch(row[0], 0, sum(aligned(b.type.nbytes) // size for b in row[:-1]) + row[-1].size)
