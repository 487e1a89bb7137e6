"""All-reduce between devices of one process: sums in the order of the tree, every element once."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np
import pytest

from pe_cli.collectives.shared_memory import all_reduce_shards
from pe_cli.core.types import TensorType
from pe_cli.kernels.calls import Buffer
from pe_cli.kernels.compiler.instance import Instance
from pe_cli.kernels.compiler.loader import addresses
from pe_cli.kernels.math.tree_sum import order_of

#: Sums of single numbers as anyone would write them, for the devices with samples among so many.
WRITTEN = {
    (2, (0, 1)): lambda g: g[0] + g[1],
    (3, (0, 1, 2)): lambda g: (g[0] + g[1]) + g[2],
    (3, (1, 2)): lambda g: g[1] + g[2],
    (3, (2,)): lambda g: g[2],
    (4, (0, 1, 2, 3)): lambda g: (g[0] + g[1]) + (g[2] + g[3]),
    (4, (0, 1, 2)): lambda g: (g[0] + g[1]) + g[2],
    (5, (0, 1, 2, 3, 4)): lambda g: ((g[0] + g[1]) + g[2]) + (g[3] + g[4]),
    (6, (0, 1, 2, 3, 4, 5)): lambda g: ((g[0] + g[1]) + (g[2] + g[3])) + (g[4] + g[5]),
    (8, (0, 2, 3, 5, 6, 7)): lambda g: (g[0] + (g[2] + g[3])) + (g[5] + (g[6] + g[7])),
}


@pytest.mark.parametrize("elements", [1, 4096, 20001])
@pytest.mark.parametrize(("devices", "active"), WRITTEN, ids=str)
def test_every_device_gets_the_sum_in_the_order_of_the_tree(rng, elements, devices, active):
    arrays = [rng.standard_normal(elements).astype("float32") for _ in range(devices)]
    expected = WRITTEN[devices, active](arrays).copy()
    buffers = [Buffer(str(d), TensorType((elements,))) for d in range(devices)]
    address = {b: a.ctypes.data for b, a in zip(buffers, arrays, strict=True)}
    order = order_of(devices, active, in_place=True)
    for call, room in all_reduce_shards([buffers[d] for d in active], buffers, elements, devices, order):
        memory = np.full(max(1, sum(b.size for b in room)), np.nan, np.float32)
        given = [np.array([address[b] for b in arg.buffers], np.int64) for arg in (call.args[0], call.args[3])]
        words = np.array(call.args[2].values, np.int64)
        sources, targets = (a.ctypes.data for a in given)
        head = [sources, call.args[1], words.ctypes.data, targets, call.args[4], memory.ctypes.data]
        record = np.array([*head, *call.args[6:]], np.int64)
        instance = Instance(call.kernel, call.dtype)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(addresses([instance])[instance])(record.ctypes.data)
    for a in arrays:
        assert np.array_equal(a, expected)


def test_shards_cover_all_elements_once_and_meet_on_cache_lines():
    buffers = [Buffer("a", TensorType((50001,))), Buffer("b", TensorType((50001,)))]
    ranges = [call.args[-2:] for call, _ in all_reduce_shards(buffers, buffers, 50001, 4, order_of(2, (0, 1), in_place=True))]
    assert ranges[0][0] == 0
    assert ranges[-1][1] == 50001
    assert all(a[1] == b[0] and a[1] % 16 == 0 for a, b in itertools.pairwise(ranges))
