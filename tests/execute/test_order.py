"""Which tasks wait for which, by the bytes that they read and write, against a history of every single byte."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.execute.order import _Bytes

BYTES = 24


class History:
    """Who last wrote every byte of two spaces, and who has read it since."""

    def __init__(self):
        self.writers = {(space, at): set() for space in (0, 1) for at in range(BYTES)}
        self.readers = {place: set() for place in self.writers}

    def access(self, task, reads, writes, kin):
        found = set()
        for place in (p for r in reads for p in places(r)):
            found |= self.writers[place]
            self.readers[place].add(task)
        for place in (p for w in writes for p in places(w)):
            found |= self.writers[place] | self.readers[place]
            self.writers[place] = (self.writers[place] & set(kin)) | {task}
            self.readers[place] &= set(kin)
        return found - {task} - set(kin)


def places(of):
    space, begin, end = of
    return [(space, at) for at in range(begin, end)]


@pytest.mark.parametrize("seed", range(30))
def test_a_task_waits_for_whom_its_bytes_name(seed):
    rng = np.random.default_rng(seed)

    def some(most):
        return [(int(rng.integers(2)), *map(int, sorted(rng.integers(0, BYTES + 1, 2)))) for _ in range(rng.integers(most))]

    bytes_, history, kin = _Bytes(), History(), range(0)
    for task in range(60):
        kin = range(kin.start if rng.random() < 0.3 else task, task)  # a task beside those before it, or not
        reads, writes = some(4), some(3)
        assert bytes_.access(task, reads, writes, kin) == history.access(task, reads, writes, kin), task
