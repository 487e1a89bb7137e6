"""The native scheduler: random dataflow graphs give the same values on any number of threads, at every step, and after a failure."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.devices.native_loops import ANYONE
from pe_cli.devices.tape import Chain, Instruction, Tape
from pe_cli.kernels.compiler.instance import Instance
from pe_cli.kernels.compiler.loader import addresses
from pe_cli.kernels.language import Int, PtrF64, PtrI64, Status, kernel, pointer_f64


@kernel
def add_inputs(out: PtrF64, sources: PtrI64, count: Int, n: Int):
    """out = 1 + sum of sources."""
    for i in range(n):
        out[i] = 1.0
    for k in range(count):
        x = pointer_f64(sources[k])
        for i in range(n):
            out[i] += x[i] * 0.5


@kernel
def fail_when(flag: PtrI64, status: Status):
    """Report an error when flag[0] is not 0."""
    if flag[0] != 0:
        status[1] = 17
        status[0] = 1


class Net:
    """A random graph of additions over small buffers."""

    def __init__(self, nodes: int, threads: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.buffers = np.zeros((nodes, 64))
        self.sources = [
            sorted(rng.choice(i, size=min(i, int(rng.integers(1, 4))), replace=False).tolist()) if i > 3 else []
            for i in range(nodes)
        ]
        instance = Instance(add_inputs)
        found = addresses([instance])
        self.keep = [np.array([self.buffers[s].ctypes.data for s in ss] + [0], np.int64) for ss in self.sources]
        instructions = [
            Instruction(instance, (self.buffers[i].ctypes.data, self.keep[i].ctypes.data, len(ss), 64), i, None)
            for i, ss in enumerate(self.sources)
        ]
        followers = [[j for j, ss in enumerate(self.sources) if i in ss] for i in range(nodes)]
        chains = [Chain(((i, i + 1),), int(rng.integers(ANYONE, threads)), tuple(f)) for i, f in enumerate(followers)]
        self.tape = Tape(instructions, found, chains, threads)

    def expected(self) -> np.ndarray:
        out = np.zeros(len(self.sources))
        for i, ss in enumerate(self.sources):
            out[i] = 1.0 + sum(out[s] * 0.5 for s in ss)
        return out


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_a_random_graph_is_right_at_every_step_on_any_number_of_threads(threads):
    net = Net(200, threads, seed=threads)
    expected = net.expected()
    for _ in range(300):
        net.buffers[:] = np.nan
        assert net.tape.run() is None
        np.testing.assert_allclose(net.buffers[:, 0], expected, rtol=1e-12)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_failed_step_names_its_instruction_and_the_next_step_runs(threads):
    flag = np.zeros(1, np.int64)
    instance = Instance(fail_when)
    found = addresses([instance])
    instructions = [Instruction(instance, (flag.ctypes.data, 0), op, 1) for op in range(6)]
    chains = [Chain(((i, i + 1),), i % threads, (i + 1,) if i < 5 else ()) for i in range(6)]
    tape = Tape(instructions, found, chains, threads)
    for _ in range(50):
        flag[0] = 0
        assert tape.run() is None
        flag[0] = 1
        failed = tape.run()
        assert failed is not None
        instruction, report = failed
        assert instruction.op == 0
        assert report[:2] == [1, 17]


def test_nodes_that_threads_kept_in_a_failed_step_are_not_run_in_the_next():
    flag, counts = np.zeros(1, np.int64), np.zeros((9, 8))
    fails, adds = Instance(fail_when), Instance(add_inputs)
    found = addresses([fails, adds])
    none = np.zeros(1, np.int64)
    instructions = [Instruction(adds, (counts[i].ctypes.data, none.ctypes.data, 0, 8), i, None) for i in range(9)]
    instructions[1] = Instruction(fails, (flag.ctypes.data, 0), 1, 1)
    # the first makes all others ready: a thread runs the one that fails, and keeps the last
    chains = [Chain(((0, 1),), ANYONE, tuple(range(1, 9))), *(Chain(((i, i + 1),), ANYONE, ()) for i in range(1, 9))]
    tape = Tape(instructions, found, chains, 2)
    for _ in range(100):
        flag[0] = 1
        assert tape.run() is not None
        flag[0] = 0
        counts[:] = 0
        assert tape.run() is None
        assert (counts[[0, *range(2, 9)]] == 1).all()


def test_two_tapes_take_turns_on_one_pool():
    nets = [Net(60, 2, seed=1), Net(80, 2, seed=2)]
    for _ in range(200):
        for net in nets:
            net.buffers[:] = np.nan
            assert net.tape.run() is None
            np.testing.assert_allclose(net.buffers[:, 0], net.expected(), rtol=1e-12)
