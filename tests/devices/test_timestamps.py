"""Stamped tapes: the same values as ordinary ones, plausible times on the right threads, and a watchdog over them."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.devices.protocol import Stalled
from pe_cli.devices.stall_inspection import StampedStep
from pe_cli.devices.tape import Chain, Instruction
from pe_cli.devices.timestamps import StampedTape, clock
from pe_cli.devices.watchdog import Guard
from pe_cli.kernels.compiler.instance import Instance
from pe_cli.kernels.compiler.loader import addresses
from pe_cli.kernels.cpu.atomics import atomic_load, pause
from pe_cli.kernels.language import Addr, Int, PtrI64, kernel


@kernel
def spin_until(flag: Addr, runs: PtrI64):
    """Wait until the word at flag is not 0, then count."""
    while atomic_load(flag) == 0:
        pause()
    runs[0] += 1


@kernel
def count_up(out: PtrI64, n: Int):
    """Add 1 to out[0], n times, through memory."""
    for i in range(n):
        out[0] += 1 + i * 0


class Counters:
    """Independent chains of two counters each."""

    def __init__(self, chains: int, threads: int, n: int = 1000) -> None:
        self.out = np.zeros(2 * chains, np.int64)
        instance = Instance(count_up)
        self.parts = (
            [Instruction(instance, (self.out[i:].ctypes.data, n), i, None) for i in range(2 * chains)],
            addresses([instance]),
            [Chain(((2 * i, 2 * i + 2),), i % threads, ()) for i in range(chains)],
            threads,
        )
        self.tape = StampedTape(*self.parts)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_every_instruction_has_a_begin_before_its_end_inside_the_step(threads):
    net = Counters(12, threads)
    for step in range(20):
        failed, line = net.tape.run_timed()
        assert failed is None
        assert (net.out == 1000 * (step + 1)).all()
        assert (line.start <= line.begin).all()
        assert (line.begin <= line.end).all()
        assert (line.end <= line.stop).all()
        assert set(line.thread.tolist()) <= set(range(threads))
        # what one thread does never overlaps
        for t in range(threads):
            mine = np.flatnonzero(line.thread == t)
            order = mine[np.argsort(line.begin[mine], kind="stable")]
            assert (line.end[order][:-1] <= line.begin[order][1:]).all()


def test_times_agree_with_the_clock():
    flag, runs = np.zeros(1, np.int64), np.zeros(1, np.int64)
    instance = Instance(spin_until)
    tape = StampedTape(
        [Instruction(instance, (flag.ctypes.data, runs.ctypes.data), 0, None)], addresses([instance]), (), 1
    )
    timer = threading.Timer(0.2, lambda: flag.__setitem__(0, 1))
    before = time.perf_counter_ns()
    timer.start()
    _, line = tape.run_timed()
    after = time.perf_counter_ns()
    timer.join()
    assert before - 20_000 <= line.begin[0] <= line.end[0] <= after + 20_000
    assert (line.end[0] - line.begin[0]) / 1e9 >= 0.19


def test_the_counter_is_calibrated_to_a_thousandth():
    _, _, scale = clock().scale()

    def moment() -> tuple[int, int]:
        """Return counter and nanoseconds of one moment: of many tries the one between whose readings nothing else ran."""
        tries = []
        for _ in range(100):
            before, count, after = time.perf_counter_ns(), clock().now(), time.perf_counter_ns()
            tries.append((after - before, count, before))
        return min(tries)[1:]

    a, begin = moment()
    time.sleep(0.1)
    b, end = moment()
    assert (b - a) * scale == pytest.approx(end - begin, rel=1e-3)


class Stuck:
    """A spinning kernel, one that waits for it, and one that does not.

    Args:
        threads: of the tape.
        seconds: without progress, after which the step counts as stalled.
        let_go: whether the kernel ends once the step was stopped.
    """

    def __init__(self, threads: int, seconds: float = 0.2, let_go: bool = False) -> None:
        self.flag, self.runs = np.zeros(1, np.int64), np.zeros(3, np.int64)
        spin, count = Instance(spin_until), Instance(count_up)
        instructions = [
            Instruction(count, (self.runs[2:].ctypes.data, 1), 0, None),
            Instruction(spin, (self.flag.ctypes.data, self.runs.ctypes.data), 1, None),
            Instruction(count, (self.runs[1:].ctypes.data, 1), 2, None),
        ]
        chains = [Chain(((0, 1),), 0, ()), Chain(((1, 2),), 1, (2,)), Chain(((2, 3),), 1, ())]
        self.tape = StampedTape(instructions, addresses([spin, count]), chains, threads)
        self.told: list[Stalled] = []
        step = StampedStep(self.tape, [(), (), (1,)], self.tell)
        stop = step.stop

        def stop_and_let_go() -> None:
            stop()
            self.flag[0] = 1

        if let_go:
            step.stop = stop_and_let_go  # type: ignore[method-assign]
        self.guard = Guard(seconds, step)

    def tell(self, found: Stalled) -> PeError:
        self.told.append(found)
        return PeError("hangs", code=ExitCode.STALLED)

    def run(self) -> None:
        self.guard.run(lambda: self.tape.run() and None)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_stalled_step_says_what_runs_and_what_waits_and_the_next_one_runs(threads):
    net = Stuck(threads, let_go=True)
    began = time.monotonic()
    with pytest.raises(PeError, match="hangs") as caught:
        net.run()
    took = time.monotonic() - began
    assert caught.value.code == ExitCode.STALLED == 7
    net.tape.recover()
    (found,) = net.told
    ((work, name, thread, seconds),) = found.running
    assert (work, name) == (1, "spin_until")
    assert thread in range(threads)
    assert 0.1 <= seconds <= took
    assert found.waiting == ((2, (1,)),)
    assert found.done == 1
    assert net.runs.tolist() == [1, 0, 1], "what had not begun must not run any more"
    net.guard.seconds = 60.0
    net.run()  # the flag stays set
    assert net.runs.tolist() == [2, 1, 2]
    assert len(net.told) == 1


def test_a_step_that_gets_on_is_left_alone():
    net = Counters(4, 2, n=60_000_000)
    told: list[Stalled] = []

    def tell(found: Stalled) -> PeError:
        told.append(found)
        return PeError("hangs")

    guard = Guard(5.0, StampedStep(net.tape, [()] * 8, tell))
    for _ in range(3):
        guard.run(lambda: net.tape.run() and None)
    assert not told


def test_a_kernel_that_never_returns_takes_the_process_with_it(tmp_path):
    script = textwrap.dedent("""
        import sys
        sys.path.insert(0, sys.argv[1])
        from tests.devices.test_timestamps import Stuck
        print("before", flush=False)
        Stuck(2, 0.1).run()
        print("never")
    """)
    root = str(__import__("pathlib").Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", script, root], capture_output=True, text=True, timeout=60, cwd=root, check=False
    )
    assert done.returncode == 7, done.stderr
    assert done.stdout == "before\n"
    assert "error: hangs" in done.stderr
    assert "stuck inside that kernel" in done.stderr
