"""The native loops, compiled by numba: one runs a tape in order, the other takes ready chains from queues until a step is done.

A tape is three int64 words per instruction: kernel address, record address, address of its error report (0: it cannot fail).
A schedule (`Schedule` in `tape.py`) is an int64 block whose first words hold the addresses below, in this order. Words that several
threads write lie 64 bytes apart.
"""

from __future__ import annotations

from pe_cli.kernels.cpu.atomics import (
    atomic_add,
    atomic_claim,
    atomic_load,
    atomic_store,
    atomic_swap,
    call,
    call_c,
    pause,
)
from pe_cli.kernels.language import Addr, Int, PtrI64, helper, kernel, pointer_i64, shared

#: Words of a schedule's head.
(
    TAPE,
    BEGIN,
    END,
    HOME,
    COUNT,
    INITIAL,
    FIRST,
    NEXT,
    QUEUE,
    HEADS,
    TAILS,
    NODES,
    THREADS,
    DONE,
    ABORT,
    ROOTS,
    N_ROOTS,
    KEPT,
) = range(18)
#: The home of a node that any thread may run.
ANYONE = -1
#: Words of a pool's block: schedule to run, epoch, threads finished, stop, functions of the C library, pauses; then per thread a line with
#: a parked flag, the core it was on in the last step and the address of its semaphore, and a line that may hold that.
P_SCHEDULE, P_EPOCH, P_FINISHED, P_STOP, P_WAIT, P_POST, P_YIELD, P_SPIN, P_CORE, P_SLOTS = 0, 8, 16, 24, 32, 33, 34, 35, 36, 40
LINE = 64
#: Word of a thread's first line: where its semaphore is.
S_SEMAPHORE = 2


@helper
def run_segment(tape, begin, end):
    """Run instructions begin..end; return 1 when one reported an error, else 0."""
    t = pointer_i64(tape)
    for i in range(begin, end):
        call(t[3 * i], t[3 * i + 1])
        if t[3 * i + 2] != 0 and pointer_i64(t[3 * i + 2])[0] != 0:
            return 1
    return 0


@kernel
def run_tape(tape: Addr, n: Int, failed: PtrI64):
    """Run a tape in order; failed[0] becomes 1 when an instruction reported an error."""
    failed[0] = run_segment(tape, 0, n)


@helper
def _push(s, node, queue):
    # a queue has a slot for every node, and a node is pushed once per step at most: a ticket never meets a slot that is in use
    n = s[NODES]
    ticket = atomic_add(s[TAILS] + LINE * queue, 1)
    atomic_store(s[QUEUE] + 8 * (queue * n + ticket % n), node)


@helper
def _take(s, queue):
    """Return a node from a queue, or -1."""
    n = s[NODES]
    head = atomic_load(s[HEADS] + LINE * queue)
    if head >= atomic_load(s[TAILS] + LINE * queue):
        return -1
    slot = s[QUEUE] + 8 * (queue * n + head % n)
    node = atomic_load(slot)
    # below 0: the pusher has its ticket and has not written the node yet; the claim fails where another thread was faster
    if node < 0 or atomic_claim(s[HEADS] + LINE * queue, head, head + 1) == 0:
        return -1
    atomic_store(slot, -1)
    return node


@helper
def _kept(s, thread):
    """Take the node that a thread keeps for later, or -1."""
    at = s[KEPT] + LINE * thread
    # A look comes first, as it leaves the line in the caches of its owner; a swap takes it away.
    return atomic_swap(at, -1) if atomic_load(at) >= 0 else -1


@helper
def _find(s, me):
    """Return a node: the one that this thread keeps, one of its queue, of the others', or one that another keeps; -1 for none."""
    threads = s[THREADS]
    node = _kept(s, me)
    if node >= 0:
        return node
    for i in range(threads):
        node = _take(s, (me + i) % threads)
        if node >= 0:
            return node
    for i in range(1, threads):
        node = _kept(s, (me + i) % threads)
        if node >= 0:
            return node
    return -1


@helper
def _release(s, node, me):
    """Count a finished node off its successors; return the first that is ready and this thread's to run, and push the others.

    Of those that are anyone's this thread keeps the last, which reads what is in its caches; another takes it where it finds nothing else.
    """
    first = pointer_i64(s[FIRST])
    following = pointer_i64(s[NEXT])
    home = pointer_i64(s[HOME])
    mine = -1
    for e in range(first[node], first[node + 1]):
        successor = following[e]
        if atomic_add(s[COUNT] + LINE * successor, -1) == 1:
            if mine < 0 and (home[successor] == me or home[successor] == ANYONE):
                mine = successor
            elif home[successor] == ANYONE:
                older = atomic_swap(s[KEPT] + LINE * me, successor)
                if older >= 0:
                    _push(s, older, me)
            else:
                _push(s, successor, home[successor])
    return mine


@shared
def work(schedule, me, spin, yield_):
    """Run nodes of a step until none is left or one failed."""
    s = pointer_i64(schedule)
    begin = pointer_i64(s[BEGIN])
    end = pointer_i64(s[END])
    initial = pointer_i64(s[INITIAL])
    nodes = s[NODES]
    node = -1
    idle = 0
    while True:
        if node < 0:
            node = _find(s, me)
        if node < 0:
            if atomic_load(s[DONE]) >= nodes or atomic_load(s[ABORT]) != 0:
                return
            idle += 1
            # Nodes take microseconds, so that spinning is fastest at first; after that who is waited for may need the core.
            if idle < spin:
                pause()
            else:
                call_c(yield_, 0)
            continue
        idle = 0
        if atomic_load(s[ABORT]) != 0:
            return
        if run_segment(s[TAPE], begin[node], end[node]) != 0:
            atomic_store(s[ABORT], 1)
            return
        # reset before successors are released: another thread may finish the step, and the next one must find the full count
        atomic_store(s[COUNT] + LINE * node, initial[node])
        following = _release(s, node, me)
        atomic_add(s[DONE], 1)
        node = following


@kernel
def pool_worker(pool: Addr, me: Int):
    """Serve steps until the pool stops: spin a while for the next epoch, then park on the thread's semaphore."""
    p = pointer_i64(pool)
    slot = pool + 8 * P_SLOTS + 2 * LINE * me
    seen = 0
    while True:
        spins = 0
        while atomic_load(pool + 8 * P_EPOCH) == seen:
            spins += 1
            if spins < p[P_SPIN]:
                pause()
            else:
                # The flag is set before the epoch is read again, and `run_step` raises the epoch before it reads the flag: one of
                # the two sees the other, so no wake-up is lost. If the leader has taken the flag, its post has to be consumed.
                atomic_store(slot, 1)
                if atomic_load(pool + 8 * P_EPOCH) == seen or atomic_swap(slot, 0) == 0:
                    call_c(p[P_WAIT], pointer_i64(slot)[S_SEMAPHORE])
                spins = 0
        seen = atomic_load(pool + 8 * P_EPOCH)
        if atomic_load(pool + 8 * P_STOP) != 0:
            return
        if p[P_CORE] != 0:
            pointer_i64(slot)[1] = call_c(p[P_CORE], 0)
        work(atomic_load(pool + 8 * P_SCHEDULE), me, 2000, p[P_YIELD])
        atomic_add(pool + 8 * P_FINISHED, 1)


@kernel
def run_step(pool: Addr, schedule: Addr, helpers: Int):
    """Lead one step: push the roots, wake the helpers, work, and wait until every helper has left the schedule."""
    p = pointer_i64(pool)
    s = pointer_i64(schedule)
    atomic_store(s[DONE], 0)
    atomic_store(s[ABORT], 0)
    roots = pointer_i64(s[ROOTS])
    home = pointer_i64(s[HOME])
    for i in range(s[N_ROOTS]):
        _push(s, roots[i], max(home[roots[i]], 0))
    atomic_store(pool + 8 * P_SCHEDULE, schedule)
    atomic_store(pool + 8 * P_FINISHED, 0)
    atomic_add(pool + 8 * P_EPOCH, 1)
    for t in range(1, helpers + 1):
        slot = pool + 8 * P_SLOTS + 2 * LINE * t
        if atomic_swap(slot, 0) == 1:
            call_c(p[P_POST], pointer_i64(slot)[S_SEMAPHORE])
    work(schedule, 0, 2000, p[P_YIELD])
    # helpers may still look into the queues: the schedule is the next step's only when all have left it
    spins = 0
    while atomic_load(pool + 8 * P_FINISHED) < helpers:
        spins += 1
        if spins < 2000:
            pause()
        else:
            call_c(p[P_YIELD], 0)
