"""All-reduce over the CUDA devices of one process, by kernels that read and write the memory of all of them.

Every device adds up its own part of a bucket: it reads that part of all devices' gradients, adds it in the order of the tree, and writes
the sums to all of them. So each link carries what it must, once there and once back, and no device does more than another. What a thread
adds lies in its registers: the order of additions is the text of the kernel, one for each number of devices.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Sequence

from pe_cli.kernels.calls import Call, Stretch
from pe_cli.kernels.cuda.language import CudaKernel, cuda_kernel
from pe_cli.kernels.language import Int, Ptr, Real, T
from pe_cli.kernels.math.tree_sum import Branch, tree

#: Elements of the smallest part: less is not worth a launch on another device.
LEAST_PART = 1 << 14
#: Elements that begin at a multiple of 16 bytes, whatever their type, lie at a multiple of this.
STEP = 16


@functools.cache
def summing(count: int, active: tuple[int, ...], targets: int) -> CudaKernel:
    """Return the kernel that adds up rows in the order of the tree and writes the sums to all targets.

    Its parameters are the rows of active devices, the targets and the number of elements. A target may be a row.

    Args:
        count: devices.
        active: those that have a row, in ascending order.
        targets: how many there are.
    """
    rows, outs = [f"x{d}" for d in active], [f"out{k}" for k in range(targets)]
    added = _text(tree(count), frozenset(active))
    assert added is not None, "a device has a row"
    name = f"sum_{'_'.join(map(str, active))}_of_{count}_to_{targets}"
    lines = [f"def {name}({', '.join(f'{p}: Ptr' for p in (*rows, *outs))}, n: Int):", "    for i in range(n):", f"        total = {added}"]
    lines += [f"        {out}[i] = total" for out in outs]
    text = "\n".join(lines)
    space = {"Ptr": Ptr, "Int": Int, "__name__": __name__}
    exec(compile(f"from __future__ import annotations\n{text}", __file__, "exec"), space)
    made: CudaKernel = cuda_kernel(space[name], text=text, name=f"{__name__}:{name}")
    return made


def _text(branch: Branch, active: Collection[int]) -> str | None:
    """Return what a branch of the tree adds up, None where no device of it has a row."""
    if not isinstance(branch, tuple):
        return f"x{branch}[i]" if branch in active else None
    left, right = (_text(part, active) for part in branch)
    return f"({left} + {right})" if left and right else left or right


def parts_of(elements: int, devices: int) -> Sequence[tuple[int, int]]:
    """Return the parts of a bucket, from and to, as many as there are devices where that is worth it.

    >>> parts_of(100, 4)
    [(0, 100)]
    """
    count = max(1, min(devices, elements // LEAST_PART))
    cuts = [elements * k // count // STEP * STEP for k in range(count)] + [elements]
    return list(itertools.pairwise(cuts))


@cuda_kernel
def fill_with(out: Ptr, n: Int, value: Real) -> None:
    """Write a number everywhere."""
    for i in range(n):
        out[i] = T(value)


def copy_call(source: Stretch, targets: Sequence[Stretch], dtype: str) -> Call:
    """Return the call that copies a row to targets, each as long."""
    return sum_call(1, (0,), [source], targets, dtype)


def sum_call(count: int, active: Sequence[int], rows: Sequence[Stretch], targets: Sequence[Stretch], dtype: str) -> Call:
    """Return the call that adds up rows into targets; see `summing`."""
    args = (*rows, *targets, rows[0].count)
    return Call(summing(count, tuple(active), len(targets)), args, dtype, dtype)
