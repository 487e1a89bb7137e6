"""Pictures that are kept."""

from __future__ import annotations

import gc

import numpy as np

from pe_cli.data.pictures.cache import Cache


class Owner:
    pass


def test_what_was_kept_first_stays_and_the_limit_holds():
    cache, owner = Cache(100), Owner()
    for i in range(5):
        cache.put(i, np.full(40, i, np.uint8), owner)
    assert [cache.get(i) is not None for i in range(5)] == [True, True, False, False, False]
    assert cache.bytes == 80


def test_what_belongs_to_an_owner_goes_with_it():
    cache, first, second = Cache(100), Owner(), Owner()
    cache.put("a", np.zeros(60, np.uint8), first)
    cache.put("b", np.zeros(40, np.uint8), second)
    del first
    gc.collect()
    assert (len(cache), cache.bytes) == (1, 40)
    cache.put("c", np.zeros(60, np.uint8), second)
    assert cache.get("c") is not None


def test_kept_pictures_cannot_be_changed():
    cache, owner = Cache(100), Owner()
    cache.put("a", np.zeros(10, np.uint8), owner)
    assert not cache.get("a").flags.writeable
