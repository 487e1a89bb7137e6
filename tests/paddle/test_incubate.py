"""Names at the places where 1.8 has them."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from pe_cli.paddle import io
from pe_cli.paddle.errors import NotThereYet
from pe_cli.paddle.incubate.hapi.distributed import DistributedBatchSampler


@pytest.mark.parametrize(
    ("path", "name", "source"),
    [
        pytest.param("hapi.vision.transforms", "HueTransform", "vision.transforms", id="transforms"),
        pytest.param("hapi.vision", "ColorJitter", "vision.transforms", id="transforms of the package"),
    ],
)
def test_hapi_has_what_later_versions_have_elsewhere(path, name, source):
    here, there = (importlib.import_module(f"pe_cli.paddle.{p}") for p in (f"incubate.{path}", source))
    assert getattr(here, name) is getattr(there, name)


@pytest.mark.parametrize(("drop_last", "sizes"), [pytest.param(False, [3, 2], id="all"), pytest.param(True, [3], id="whole batches")])
def test_trainers_share_the_samples_of_every_batch(drop_last, sizes, monkeypatch):
    rows = range(9)  # of two trainers: the first sample comes twice
    found = [list(io.DistributedBatchSampler(rows, 3, 2, rank, drop_last=drop_last)) for rank in (0, 1)]
    assert [[len(b) for b in each] for each in found] == [sizes, sizes]
    assert [sorted(a + b) for a, b in zip(*found, strict=True)] == [[0, 1, 2, 3, 4, 5], [0, 6, 7, 8]][: len(sizes)]
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    monkeypatch.setenv("PADDLE_TRAINER_ID", "1")
    here = DistributedBatchSampler(rows, 3, False, drop_last)
    assert (list(here), len(here)) == (found[1], len(sizes))
    with pytest.raises(ValueError, match="rank is 2, and there are 2 trainers"):
        io.DistributedBatchSampler(rows, 3, 2, 2)


def test_the_order_of_a_pass_follows_from_its_number():
    made = io.DistributedBatchSampler(range(6), 6, 1, 0, shuffle=True)
    passes = [next(iter(made)) for _ in range(2)]
    assert [p == np.random.RandomState(i).permutation(6).tolist() for i, p in enumerate(passes)] == [True, True]
    made.set_epoch(0)
    assert next(iter(made)) == passes[0]


def test_the_library_of_the_original_has_no_headers_here():
    with pytest.raises(NotThereYet, match="no library with headers"):
        importlib.import_module("pe_cli.paddle.sysconfig").get_include()
