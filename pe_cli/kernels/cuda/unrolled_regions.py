"""Kernels for unrolled loops and branches, on devices whose kernels cannot call others.

All rounds that there may be are run, and both branches. Flags say which of them count: what the others did is undone, or overwritten, and
what they reported is forgotten.
"""

from __future__ import annotations

from pe_cli.kernels.cpu.loop_calls import APART, LABEL, ROUND
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI64, PtrU8, Status, T, kernel
from pe_cli.kernels.status_codes import TOO_MANY_ROUNDS

#: Numbers that say whose a report is: label of the op, round from 1, the flag that it depends on or -1, and 1 or 0: how that must be.
REPORTER = 4
#: Words of a report.
WORDS = 8


@kernel
def count_rounds(step: PtrI64, out: PtrI64, rounds: Int):
    """out[k] = what random ops of round k take for the number of the step, as `run_rounds` gives it."""
    for k in range(rounds):
        out[k] = step[0] * APART + k + 1


@kernel
def flag_rounds(count: PtrI64, flags: PtrU8, rounds: Int):
    """flags[k] = whether there is a round k."""
    for k in range(rounds):
        flags[k] = 1 if k < count[0] else 0


@kernel
def flag_next(flag: PtrU8, flags: PtrU8, done: PtrI64, k: Int):
    """flags[k] = whether a condition has held so far, done = for how many rounds."""
    if k == 0:
        done[0] = 0
        flags[0] = flag[0]
    else:
        flags[k] = flag[0] if flags[k - 1] != 0 else 0
    if flags[k] != 0:
        done[0] = k + 1


@kernel
def refuse_more(flags: PtrU8, most: Int, status: Status):
    """Report a loop whose condition still holds after the most rounds that there may be."""
    if flags[most] != 0:
        status[1] = most
        status[3] = most
        status[0] = TOO_MANY_ROUNDS


@kernel
def put_back(flags: PtrU8, at: Int, x: Ptr, out: Ptr, n: Int):
    """out = x where the flag is not set."""
    for i in range(n):
        if flags[at] == 0:
            out[i] = x[i]


@kernel
def blank(flags: PtrU8, at: Int, out: Ptr, n: Int):
    """out = 0 where the flag is not set."""
    for i in range(n):
        if flags[at] == 0:
            out[i] = T(0)


@kernel
def hand_on(reports: PtrI64, reporters: PtrI64, flags: PtrU8, n: Int, status: Status):
    """status = the first report of calls that count; every report is cleared."""
    for i in range(n):
        if reports[WORDS * i] != 0:
            flag = reporters[REPORTER * i + 2]
            counts = flag < 0 or (flags[flag] != 0) == (reporters[REPORTER * i + 3] != 0)
            if counts and status[0] == 0:
                for k in range(WORDS):
                    status[k] = reports[WORDS * i + k]
                if status[LABEL] == 0:
                    status[LABEL] = reporters[REPORTER * i]
                    status[ROUND] = reporters[REPORTER * i + 1]
            reports[WORDS * i] = 0


# `hand_on` is not dealt: it keeps the first report that counts, so its iterations run in order.
deal(count_rounds, flag_rounds, put_back, blank)
