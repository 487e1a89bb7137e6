"""A kernel that checks results for NaN and infinity."""

from __future__ import annotations

from pe_cli.kernels.cuda.block_sums import claim
from pe_cli.kernels.cuda.language import on_cuda
from pe_cli.kernels.language import Int, Ptr, Status, T, helper, kernel
from pe_cli.kernels.status_codes import NOT_FINITE

#: What word 2 of its report means; word 1 is the element, word 3 the number of the result.
KINDS = ("nan", "inf", "-inf")
#: Elements that are looked at before the first bad one is searched for.
CHUNK = 4096


@helper
def _report(status, element, value, which):
    """Write an error report, its code last."""
    status[1] = element
    status[2] = 0 if value != value else 1 if value > 0 else 2
    status[3] = which
    status[0] = NOT_FINITE


@kernel
def check_finite(x: Ptr, n: Int, which: Int, status: Status):
    """Report the first element that is NaN or infinite; x - x is 0 for all others."""
    for begin in range(0, n, CHUNK):
        end = min(n, begin + CHUNK)
        bad = 0
        for i in range(begin, end):
            if x[i] - x[i] != T(0):
                bad += 1
        if bad > 0:
            for i in range(begin, end):
                if x[i] - x[i] != T(0):
                    _report(status, i, x[i], which)
                    return


@on_cuda(check_finite)
def check_finite_cuda(x: Ptr, n: Int, which: Int, status: Status):
    """Report one of the elements that are NaN or infinite."""
    for i in range(n):
        if x[i] - x[i] != T(0) and claim(status, NOT_FINITE) == 0:
            _report(status, i, x[i], which)
