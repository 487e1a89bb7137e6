"""pyramid_hash: vectors of the n-grams of sequences, made of parts of one table. It runs on the host: only values tell how many."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.ops.define.lod import HostRun, Leveled, offsets_of
from pe_cli.ops.define.onnx import ON_HOST, not_in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.sequence.ngram_hashes import murmur3, rand_r, xxh32

Array = NDArray[Any]

#: First number of a Bloom filter's bytes: it is one.
MAGIC = 17070416
#: Bytes before a Bloom filter's bits: MAGIC, how many bits, how many hashes, how many entries.
HEAD = 32


@op(
    "pyramid_hash",
    inputs="X W WhiteList? BlackList?",
    outputs="Out DropPos",
    differentiable="W",
    attrs={
        "num_emb": Attr(1, "width of a vector"),
        "space_len": Attr(1, "places where a part of a vector may begin"),
        "pyramid_layer": Attr(2, "ids of the longest n-gram"),
        "rand_len": Attr(1, "width of a part"),
        "drop_out_percent": Attr(0.0, "part of the n-grams that is left out in training; in a test, what vectors are multiplied by"),
        "is_training": Attr(False, "n-grams are left out"),
        "seed": Attr(0, "of those draws, the same in every step"),
    },
    samples=[
        Sample(
            {"X": lambda rng: np.array([[1], [2], [3], [1], [2]], "int32"), "W": (34, 1)},
            {"num_emb": 8, "space_len": 30, "rand_len": 4, "pyramid_layer": 3, "drop_out_percent": 1.0}, "five ids",
        ),
    ],
)
def pyramid_hash(
    x: TensorType,
    w: TensorType,
    white: TensorType | None,
    black: TensorType | None,
    *,
    num_emb: int,
    space_len: int,
    pyramid_layer: int,
    rand_len: int,
    drop_out_percent: float,
    is_training: bool,
    seed: int,
) -> tuple[TensorType, TensorType]:
    """Look up vectors of all n-grams of 2 to pyramid_layer ids, whose parts begin in W where hashes of the ids say.

    Part j of a vector is W[p : p + rand_len], p = XXH32(ids as float32, seed j rand_len) mod space_len

    Args:
        X: [rows, 1] int32 ids, in sequences; plain rows are one.
        W: [space_len + rand_len, 1] float32 or float64.
        WhiteList: bytes of a Bloom filter, as float32: only n-grams in it count.
        BlackList: the same of n-grams that do not count.
        num_emb, space_len, pyramid_layer, rand_len, drop_out_percent, is_training, seed: see the attributes.

    Returns:
        Out: [n-grams, num_emb] element type of W with a sequence for each of X: its n-grams, the shortest first; zeros for none.
        DropPos: [n-grams, 1] int32: 1 for each that Out has, 0 for one that is left out.

    Raises:
        PeError: types or sizes that do not fit; while running, X with several levels of sequences, or a list that is no Bloom filter.

    Source:
        fluid.contrib.layers.search_pyramid_hash.
    """
    del drop_out_percent, is_training, seed
    if len(x.shape) != 2 or x.shape[1] not in (1, -1) or x.dtype != "int32":
        raise PeError(f"search_pyramid_hash needs int32 ids [rows, 1] in sequences, got {x}", hint="cast it")
    if min(num_emb, space_len, rand_len) < 1 or num_emb % rand_len or pyramid_layer < 2:
        sizes = f"num_emb {num_emb}, space_len {space_len}, rand_len {rand_len}, pyramid_layer {pyramid_layer}"
        hint = "num_emb is a multiple of rand_len, pyramid_layer is at least 2, all others are at least 1"
        raise PeError(f"search_pyramid_hash: {sizes}", hint=hint)
    if w.shape != (space_len + rand_len, 1) or w.dtype not in FLOATS or any(v is not None and v.dtype != "float32" for v in (white, black)):
        wanted = f"a table [{space_len + rand_len}, 1] of real numbers and lists of float32"
        raise PeError(f"search_pyramid_hash needs {wanted}, got {w}, {white}, {black}")
    return w.with_shape(-1, num_emb), TensorType((-1, 1), "int32")


def _sequences(run: HostRun) -> list[Array]:
    """Return the ids of each sequence, as float32.

    Raises:
        PeError: several levels of sequences (exit code 3).
    """
    # The whole table of parts is one column, so a vector is num_emb / rand_len slices of it, each found by a hash with a seed of its own.
    (x,) = run.values["X"]
    if len(x.lod) > 1:
        message = f"{run.op}: X has {len(x.lod)} levels of sequences"
        raise PeError(message, hint="feed it with lod_level: 1", code=ExitCode.DATA)
    # The original hashes the bits of ids as float32.
    ids = x.array.reshape(-1).astype(np.float32)
    return [ids[a:b] for a, b in pairwise(x.lod[0])] if x.lod else [ids]


def _grams(run: HostRun, ids: Array) -> Iterator[Array]:
    """Yield the n-grams of a sequence, [n-grams, length] for each length."""
    for length in range(2, min(run.attrs["pyramid_layer"], len(ids)) + 1):
        yield np.lib.stride_tricks.sliding_window_view(ids, length)


def _elements(run: HostRun, grams: Array) -> Array:
    """Return the places in W of n-grams' vectors, [n-grams, num_emb]."""
    wide = run.attrs["rand_len"]
    seeds = np.arange(0, run.attrs["num_emb"], wide, dtype=np.uint32)
    # Unsigned 32-bit arithmetic that wraps around: the places are those of the original.
    begins = xxh32(np.ascontiguousarray(grams).view(np.uint32), seeds) % np.uint32(run.attrs["space_len"])
    return (begins.astype(np.int64)[..., None] + np.arange(wide)).reshape(len(grams), run.attrs["num_emb"])


def _listed(run: HostRun, slot: str, grams: Array) -> Array:
    """Return which n-grams a Bloom filter has.

    Raises:
        PeError: it is none (exit code 3).
    """
    raw = run.one(slot).tobytes()
    # A list shorter than a head is filled up with zeros, so that the check below refuses it instead of the parser.
    head = [int(n) for n in np.frombuffer(raw[:HEAD].ljust(HEAD, b"\0"), "<u8")]
    _, bits, hashes, _ = head
    if head[0] != MAGIC or not 0 < bits <= 8 * (len(raw) - HEAD):
        raise PeError(f"{run.op}: {slot} holds no Bloom filter", hint="load one, or use_filter=False", code=ExitCode.DATA)
    vector = np.frombuffer(raw[HEAD:], np.uint8)
    # A Bloom filter has an n-gram if all its bits are set: the two halves of one 128-bit hash give two bits for every seed.
    found = np.ones(len(grams), bool)
    data = np.ascontiguousarray(grams).view(np.uint8)
    for seed in range(hashes):
        for half in murmur3(data, seed):
            # In 64 bits and unsigned, as the original computes it: a signed half could be negative.
            at = half % np.uint64(bits)
            # Bits are counted from the highest of each byte, as the original's filter is written.
            found &= vector[at >> np.uint64(3)] >> (np.uint8(7) - (at & np.uint64(7)).astype(np.uint8)) & 1 == 1
    return found


def _counts(run: HostRun, grams: Array) -> Array:
    """Return which n-grams count by the lists."""
    counts = np.ones(len(grams), bool)
    if run.values.get("WhiteList"):
        counts &= _listed(run, "WhiteList", grams)
    if run.values.get("BlackList"):
        counts &= ~_listed(run, "BlackList", grams)
    return counts


@pyramid_hash.host_run
def pyramid_hash_host(run: HostRun) -> dict[str, list[Leveled]]:
    """Sequence by sequence, and in it length by length.

    Raises:
        PeError: see the op.
    """
    table, draws, least = run.one("W").reshape(-1), rand_r(run.attrs["seed"]), np.float32(run.attrs["drop_out_percent"])
    kept, lengths, flags = [], [], []
    for ids in _sequences(run):
        rows = 0
        for grams in _grams(run, ids):
            here = _counts(run, grams)
            if run.attrs["is_training"]:
                # The draws go on through all sequences of the batch, as in the original, where one generator serves them all.
                # rand_r gives 31 bits.
                drawn = np.array(list(islice(draws, int(here.sum()))), np.float32) / np.float32(2**31 - 1)
                here[here] = drawn >= least
            kept.append(table[_elements(run, grams[here])])
            flags.append(here)
            rows += int(here.sum())
        # A sequence without n-grams keeps one row of zeros, so that sequences and samples stay in step.
        # The grad op walks the same n-grams in the same order, and counts this row as well.
        if not rows:
            kept.append(np.zeros((1, run.attrs["num_emb"]), table.dtype))
        lengths.append(max(rows, 1))
    out = np.concatenate(kept) if kept else np.zeros((0, run.attrs["num_emb"]), table.dtype)
    if not run.attrs["is_training"]:
        # Scaled down at inference as dropout without upscaling is.
        out = out * out.dtype.type(least)
    drop = np.concatenate(flags).astype(np.int32) if flags else np.zeros(0, np.int32)
    return {"Out": [Leveled(out, (offsets_of(lengths).tolist(),))], "DropPos": [Leveled(drop.reshape(-1, 1))]}


@pyramid_hash.grad(uses="X W DropPos").host_run
def pyramid_hash_grad_host(run: HostRun) -> dict[str, list[Leveled]]:
    """The elements of the table that vectors are made of."""
    table, gradient, flags = run.one("W"), run.one("Out@GRAD"), run.one("DropPos").reshape(-1).astype(bool)
    found, row, at = np.zeros(len(table), table.dtype), 0, 0
    for ids in _sequences(run):
        before = row
        for grams in _grams(run, ids):
            # Parts of different n-grams overlap in the table: `add.at` adds where the same place comes twice, `found[places] +=` would
            # write one of them.
            here = flags[at : at + len(grams)]
            places = _elements(run, grams[here])
            np.add.at(found, places, gradient[row : row + len(places)])
            row, at = row + len(places), at + len(grams)
        # The row of zeros has a gradient too, which goes nowhere.
        row = max(row, before + 1)
    return {"W@GRAD": [Leveled(found.reshape(table.shape))]}
not_in_onnx(ON_HOST, "pyramid_hash")
