"""All-reduce between devices of one process: sums in device order, every element once."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np
import pytest

from pe_cli.collectives.local import all_reduce_shards
from pe_cli.core.types import TensorType
from pe_cli.kernels.addresses import addresses
from pe_cli.kernels.calls import Buffer
from pe_cli.kernels.instance import Instance


@pytest.mark.parametrize("elements", [1, 15, 4096, 20001])
@pytest.mark.parametrize("devices", [2, 3, 5])
@pytest.mark.parametrize("idle", [0, 1])
def test_every_device_gets_the_sum_in_device_order(rng, elements, devices, idle):
    arrays = [rng.standard_normal(elements).astype("float32") for _ in range(devices)]
    expected = arrays[idle].copy()
    for a in arrays[idle + 1 :]:
        expected += a
    buffers = [Buffer(str(d), TensorType((elements,))) for d in range(devices)]
    address = {b: a.ctypes.data for b, a in zip(buffers, arrays, strict=True)}
    for call in all_reduce_shards(buffers[idle:], buffers, elements, shards=devices):
        tables = [np.array([address[b] for b in arg.buffers], np.int64) for arg in (call.args[0], call.args[2])]
        record = np.array([tables[0].ctypes.data, call.args[1], tables[1].ctypes.data, *call.args[3:]], np.int64)
        instance = Instance(call.kernel, call.dtype)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(addresses([instance])[instance])(record.ctypes.data)
    for a in arrays:
        assert np.array_equal(a, expected)


def test_shards_cover_all_elements_once_and_meet_on_cache_lines():
    buffers = [Buffer("a", TensorType((50001,))), Buffer("b", TensorType((50001,)))]
    ranges = [call.args[4:] for call in all_reduce_shards(buffers, buffers, 50001, shards=4)]
    assert ranges[0][0] == 0
    assert ranges[-1][1] == 50001
    assert all(a[1] == b[0] and a[1] % 16 == 0 for a, b in itertools.pairwise(ranges))
