"""Kernels of the sum of two tensors and a pointwise function of it in one pass, and of their gradients; made for every pointwise op."""

from __future__ import annotations

import functools
import types
from typing import Any

from pe_cli.kernels.language import Helper, Kernel, T, address, kernel_code, make_kernel
from pe_cli.ops.define.strided_copy import place_of

_HEAD = "from __future__ import annotations\n"
#: As `broadcast` walks two tensors, with the activation of the sum; each loop over one pointer too, for calls in place.
_FORWARD = """
def loop(x: Ptr, y: Ptr, out: Ptr, {saved}geometry: PtrI64, rank: Int, blocks: Int, rows: Int, n: Int, xr: Int, yr: Int, mode: Int{params}):
    for b in range(blocks):
        xb = place_of(b, rank, geometry, 1)
        yb = place_of(b, rank, geometry, 2)
        ob = b * rows * n
        for r in range(rows):
            o = ob + r * n
            p = xb + r * xr
            q = yb + r * yr
            if mode == 0:
                if address(x) == address(out):
                    for i in range(n):
                        s = T(out[o + i] + y[q + i])
                        {keep}out[o + i] = f(s{args})
                else:
                    for i in range(n):
                        s = T(x[p + i] + y[q + i])
                        {keep}out[o + i] = f(s{args})
            elif mode == 1:
                still = y[q]
                for i in range(n):
                    s = T(x[p + i] + still)
                    {keep}out[o + i] = f(s{args})
            else:
                still = x[p]
                for i in range(n):
                    s = T(still + y[q + i])
                    {keep}out[o + i] = f(s{args})
"""
#: Both gradients of operands of one shape.
_BACK_TWO = """
def loop(g: Ptr, value: Ptr, dx: Ptr, dy: Ptr, n: Int{params}):
    if address(g) == address(dx):
        for i in range(n):
            d = f(dx[i], value[i]{args})
            dx[i] = d
            dy[i] = d
    else:
        for i in range(n):
            d = f(g[i], value[i]{args})
            dx[i] = d
            dy[i] = d
"""
#: The gradient of X, and of a Y that is one row, summed as `reduction.sum_rows` sums: eight rows are in cache for both. Rows of n
#: lie step apart.
_BACK_ROWS = """
def loop(g: Ptr, value: Ptr, dx: Ptr, out: Ptr, total: PtrF64, rows: Int, n: Int, step: Int{params}):
    same = address(g) == address(dx)
    for i in range(n):
        total[i] = 0.0
    for r in range(0, rows, 8):
        last = min(rows, r + 8)
        b = r * step
        if same:
            for k in range(r, last):
                for i in range(n):
                    dx[k * step + i] = f(dx[k * step + i], value[k * step + i]{args})
        else:
            for k in range(r, last):
                for i in range(n):
                    dx[k * step + i] = f(g[k * step + i], value[k * step + i]{args})
        if last - r == 8:
            for i in range(n):
                low = (dx[b + i] + dx[b + step + i]) + (dx[b + 2 * step + i] + dx[b + 3 * step + i])
                high = (dx[b + 4 * step + i] + dx[b + 5 * step + i]) + (dx[b + 6 * step + i] + dx[b + 7 * step + i])
                total[i] += low + high
        else:
            for k in range(r, last):
                for i in range(n):
                    total[i] += dx[k * step + i]
    for i in range(n):
        out[i] = T(total[i])
"""


@functools.cache
def _loop(template: str, attributes: int) -> types.FunctionType:
    names = [f"a{k}" for k in range(attributes)]
    params, args = "".join(f", {n}: Real" for n in names), "".join(f", {n}" for n in names)
    space: dict[str, Any] = {}
    text = _HEAD + template.replace("{params}", params).replace("{args}", args)
    exec(kernel_code(text), space)  # our own text: nothing comes from outside
    made: types.FunctionType = space["loop"]
    return made


def _kernel(template: str, name: str, f: Helper) -> Kernel:
    assert f.fn is not None
    own = 2 if template in (_BACK_TWO, _BACK_ROWS) else 1  # arguments of f that are no attributes
    shape = _loop(template, f.fn.__code__.co_argcount - own)
    space = {**shape.__globals__, "f": f, "T": T, "address": address, "place_of": place_of}
    loop = types.FunctionType(shape.__code__, space, shape.__name__)
    loop.__annotations__ = shape.__annotations__
    # Exact, so that the sum is rounded as elementwise_add rounds it: fusing the two ops changes no bit.
    return make_kernel(loop, name, exact=True)


class SumKernels:
    """Kernels of the sum with one pointwise function.

    Args:
        name: `module:function` that their names start with; the module makes them again when it is imported.
        f: the function `(x, *attributes)`.
        f_back: its gradient `(g, value, *attributes)`.

    Attributes:
        forward, forward_saved: without and with the sum as a second result.
        back_two, back_rows: see their text.
    """

    def __init__(self, name: str, f: Helper, f_back: Helper) -> None:
        self.forward = _kernel(_FORWARD.replace("{saved}", "").replace("{keep}", ""), f"{name}_of_sum", f)
        saved = _FORWARD.replace("{saved}", "saved: Ptr, ").replace("{keep}", "saved[o + i] = s; ")
        self.forward_saved = _kernel(saved, f"{name}_of_sum_saved", f)
        self.back_two = _kernel(_BACK_TWO, f"{name}_of_sum_two", f_back)
        self.back_rows = _kernel(_BACK_ROWS, f"{name}_of_sum_rows", f_back)
