"""Kernels that make nested calls without Python: the iterations of a loop, and the branches of a condition.

Nested calls are a tape of their own (see `pe_cli.devices.native_loops`) behind a head of int64 words, below. What moves on from round to
round, such as the place of a step's input, is an address in the record of a nested call; a move is three words: where the address stands,
what it is in round 0, and how many bytes it moves on with every round.
"""

from __future__ import annotations

from pe_cli.kernels.cpu.atomics import call
from pe_cli.kernels.language import Addr, Int, PtrI64, PtrU8, Status, helper, kernel, pointer_i64
from pe_cli.kernels.status_codes import TOO_MANY_ROUNDS

#: Words of the head of nested calls: the tape and its length, moves and their number, labels, the number that nested random ops take for
#: the step's, and the error report of the nested calls.
TAPE, CALLS, MOVES, N_MOVES, LABELS, COUNTER, REPORT = 0, 1, 2, 3, 4, 5, 6
#: Words of a head.
HEAD_WORDS = REPORT + 8
#: Words of an error report that say which nested call it comes from, by its label, and the round of the innermost loop, from 1.
LABEL, ROUND = 4, 5
#: Rounds of a loop that no bound limits: more are taken for a loop that never ends.
MOST_ROUNDS = 1 << 30
#: Random numbers of a round: rounds of one step, and steps, are that far apart at least.
APART = 1 << 31


@helper
def _move(head, at):
    """Write the addresses of a round."""
    moves = pointer_i64(head[MOVES])
    for i in range(head[N_MOVES]):
        pointer_i64(moves[3 * i])[0] = moves[3 * i + 1] + at * moves[3 * i + 2]


@helper
def _run(head, begin, end, at, status):
    """Make the calls begin..end of a round; return 1 when one reported an error, which is handed on, else 0."""
    tape = pointer_i64(head[TAPE])
    for i in range(begin, end):
        call(tape[3 * i], tape[3 * i + 1])
        if tape[3 * i + 2] != 0 and head[REPORT] != 0:
            for k in range(8):
                status[k] = head[REPORT + k]
                head[REPORT + k] = 0
            if status[LABEL] == 0:
                status[LABEL] = pointer_i64(head[LABELS])[i]
                status[ROUND] = at + 1
            return 1
    return 0


@kernel
def run_rounds(head: PtrI64, rounds: Int, count: Addr, backwards: Int, status: Status, step: PtrI64):
    """Run nested calls once for each round.

    Args:
        head: of the nested calls.
        rounds: how many there are at most.
        count: address of how many there are, 0 for `rounds`.
        backwards: 1 for the last round first.
        status: error report.
        step: number of the step.
    """
    n = rounds
    if count != 0:
        n = min(n, pointer_i64(count)[0])
    for k in range(n):
        # The number of the round counts, not its turn: backwards draws the random numbers that the same row gets forwards.
        at = n - 1 - k if backwards != 0 else k
        head[COUNTER] = step[0] * APART + at + 1
        _move(head, at)
        if _run(head, 0, head[CALLS], at, status) != 0:
            return


@kernel
def run_while(test: PtrI64, flag: PtrU8, head: PtrI64, most: Int, done: PtrI64, status: Status, step: PtrI64):
    """Run nested calls as long as a condition holds.

    Args:
        test: head of the nested calls that compute the condition.
        flag: what they compute.
        head: of the nested calls of a round.
        most: rounds.
        done: gets how many rounds there were.
        status: error report.
        step: number of the step.
    """
    done[0] = 0
    k = 0
    while True:
        test[COUNTER] = step[0] * APART + k + 1
        _move(test, k)
        if _run(test, 0, test[CALLS], k, status) != 0:
            return
        if flag[0] == 0:
            done[0] = k
            return
        if k >= most:
            status[1] = k
            status[3] = most
            status[0] = TOO_MANY_ROUNDS
            return
        head[COUNTER] = step[0] * APART + k + 1
        _move(head, k)
        if _run(head, 0, head[CALLS], k, status) != 0:
            return
        k += 1


@kernel
def run_branch(flag: PtrU8, yes: PtrI64, no: PtrI64, status: Status, step: PtrI64):
    """Run the first nested calls where a condition holds, else the others."""
    if flag[0] != 0:
        yes[COUNTER] = step[0]
        _run(yes, 0, yes[CALLS], -1, status)
    else:
        no[COUNTER] = step[0]
        _run(no, 0, no[CALLS], -1, status)
