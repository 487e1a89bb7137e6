"""Kernels of `fusion_kernel` for CUDA: a thread computes elements, by fours where every array that is read is of the results' shape."""

from __future__ import annotations

import functools

from pe_cli.kernels.cuda.int32_index import divided, left_over
from pe_cli.kernels.cuda.language import CudaKernel, cuda_kernel
from pe_cli.kernels.language import Int, Ptr, PtrU8, Real
from pe_cli.ops.fused.fusion_kernel import COLUMN, FULL, MASK, ONE, ROW, Text, arrays, computed

_PLACES = {FULL: "[e]", MASK: "[e]", ROW: "[i]", COLUMN: "[r]", ONE: "[0]"}


@functools.cache
def fused_kernel_cuda(text: Text) -> CudaKernel:
    """Return the kernel `(arrays read, arrays written, elements, n, by, shift, numbers)`; by, shift: `reciprocal(n)`, of rows of n."""
    space, steps, numbers = computed(text)
    parameters = [*arrays(text), "count: Int", "n: Int", "by: Int", "shift: Int", *(f"{a}: Real" for a in numbers)]
    body = ["r = divided(e, by, shift)", "i = left_over(e, r, n)"] if {ROW, COLUMN} & {*text.kinds} else []
    body += [f"v{k} = x{k}{_PLACES[kind]}" for k, kind in enumerate(text.kinds)]
    body += [*steps, *(f"y{k}[e] = v{value}" for k, value in enumerate(text.outs))]
    lines = [f"def loop({', '.join(parameters)}):", "    for e in range(count):", *(f"        {line}" for line in body)]
    source = "from __future__ import annotations\n" + "\n".join(lines) + "\n"
    meant = {"divided": divided, "left_over": left_over, "Int": Int, "Ptr": Ptr, "PtrU8": PtrU8, "Real": Real, "__name__": __name__}
    exec(source, space := {**space, **meant})  # our own text: its names are numbers
    made: CudaKernel = cuda_kernel(space["loop"], text=source, name=text.name, exact=True)
    return made
