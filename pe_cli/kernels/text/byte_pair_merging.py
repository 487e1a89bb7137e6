"""Byte-pair encoding: merging pairs of symbols in the pieces of a text, with the merges that `byte_pair_learning` found.

A merge is a pair of symbols that becomes one; its rank is its number in the order in which merges were learned. In a piece the merge
of the lowest rank is made first, the leftmost of equal ones, until no pair of neighbours has a merge.
"""

from __future__ import annotations

from pe_cli.kernels.language import Addr, Int, PtrI32, PtrI64, helper, kernel, pointer_i32, pointer_i64
from pe_cli.kernels.text.characters import byte, shift_right
from pe_cli.kernels.text.distinct_texts import COUNT, MOST, USED, code_of
from pe_cli.kernels.text.tokens import BYTES_OF_PAIRS, PADDING, index_of, next_piece

#: No merge.
NEVER = 0x7FFFFFFF
_MIX = 0x9E3779B97F4A7C15
#: Symbols of a piece up to which the next merge is looked for among all pairs; a heap finds it in longer ones.
FEW = 48


@helper
def slot_of(key, mask):
    """Return the slot of a hash table that a pair is looked for in first."""
    return shift_right(key * _MIX, 20) & mask


@kernel
def spread_pairs(keys: PtrI64, count: Int, slots: PtrI32, mask: Int):
    """Enter so many pairs into slots that are all 0."""
    for k in range(count):
        slot = slot_of(keys[k], mask)
        while slots[slot] != 0:
            slot = (slot + 1) & mask
        slots[slot] = k + 1


@helper
def _rank(a, b, keys, slots, mask):
    """Return the rank of a pair; NEVER where it is not merged."""
    key = a << 32 | b
    slot = slot_of(key, mask)
    while slots[slot] != 0:
        if keys[slots[slot] - 1] == key:
            return slots[slot] - 1
        slot = (slot + 1) & mask
    return NEVER


@helper
def _merge_few(s, ranks, size, news, keys, slots, mask):
    """Merge the pairs of a short piece in place; return how many symbols are left."""
    for k in range(size - 1):
        ranks[k] = _rank(s[k], s[k + 1], keys, slots, mask)
    while size > 1:
        best = 0
        for k in range(1, size - 1):
            if ranks[k] < ranks[best]:
                best = k
        if ranks[best] == NEVER:
            break
        s[best] = news[ranks[best]]
        size -= 1
        for k in range(best + 1, size):
            s[k] = s[k + 1]
        for k in range(best + 1, size - 1):
            ranks[k] = ranks[k + 1]
        if best > 0:
            ranks[best - 1] = _rank(s[best - 1], s[best], keys, slots, mask)
        if best + 1 < size:
            ranks[best] = _rank(s[best], s[best + 1], keys, slots, mask)
    return size


@helper
def _sift(heap, n, value):
    """Put a value into a heap of n values, the smallest on top."""
    i = n
    while i > 0 and heap[(i - 1) >> 1] > value:
        heap[i] = heap[(i - 1) >> 1]
        i = (i - 1) >> 1
    heap[i] = value


@helper
def _drop(heap, n):
    """Take the top off a heap of n values."""
    value = heap[n - 1]
    n -= 1
    i = 0
    while 2 * i + 1 < n:
        k = 2 * i + 1
        if k + 1 < n and heap[k + 1] < heap[k]:
            k += 1
        if heap[k] >= value:
            break
        heap[i] = heap[k]
        i = k
    heap[i] = value


@helper
def _merge_many(s, ranks, size, news, keys, slots, mask, left, right, heap):  # noqa: C901 - a list and a heap
    """Merge the pairs of a long piece in place; return how many symbols are left. A heap holds (rank, position)."""
    n = 0
    for k in range(size):
        left[k], right[k] = k - 1, k + 1
        ranks[k] = NEVER
        if k + 1 < size:
            ranks[k] = _rank(s[k], s[k + 1], keys, slots, mask)
            if ranks[k] != NEVER:
                _sift(heap, n, ranks[k] << 32 | k)
                n += 1
    while n > 0:
        rank, k = heap[0] >> 32, heap[0] & 0xFFFFFFFF
        _drop(heap, n)
        n -= 1
        if ranks[k] != rank:
            continue
        gone = right[k]
        s[k] = news[rank]
        ranks[gone] = NEVER
        right[k] = right[gone]
        if right[k] < size:
            left[right[k]] = k
        ranks[k] = NEVER
        if right[k] < size:
            ranks[k] = _rank(s[k], s[right[k]], keys, slots, mask)
            if ranks[k] != NEVER:
                _sift(heap, n, ranks[k] << 32 | k)
                n += 1
        if left[k] >= 0:
            j = left[k]
            ranks[j] = _rank(s[j], s[k], keys, slots, mask)
            if ranks[j] != NEVER:
                _sift(heap, n, ranks[j] << 32 | j)
                n += 1
    o = 0
    k = 0
    while k < size:
        s[o] = s[k]
        o += 1
        k = right[k]
    return o


#: Words of a cache: address of its table of pieces; bytes that it has room for; addresses of the first token and the number of tokens of
#: every piece, and of all tokens; tokens that are in use, and that there may be.
CACHE_TABLE, CACHE_ROOM, CACHE_FIRST, CACHE_SIZE, CACHE_TOKENS, CACHE_USED, CACHE_MOST, CACHE = range(8)
#: Bytes of a piece that a cache takes in.
CACHED = 64


@kernel
def encode_pairs(  # noqa: C901, PLR0912 - one loop over all pieces
    text: Addr,
    offsets: PtrI64,
    texts: Int,
    classes: PtrI32,
    alphabet: PtrI32,
    keys: PtrI64,
    slots: PtrI32,
    mask: Int,
    news: PtrI32,
    cache: PtrI64,
    scratch: Addr,
    room: Int,
    filled: Int,
    most: Int,
    out: PtrI32,
    ends: PtrI64,
):
    """Cut texts into pieces and merge the pairs of each; see `encode_words` for what is written.

    Args:
        alphabet: symbol of every byte.
        keys, slots, mask: pair of every rank, and its hash table.
        news: symbol that every merge makes.
        scratch: 40 bytes for each byte of a piece, of `room` bytes at most.
    """
    table = pointer_i64(cache[CACHE_TABLE])
    firsts, sizes, kept = pointer_i64(cache[CACHE_FIRST]), pointer_i32(cache[CACHE_SIZE]), pointer_i32(cache[CACHE_TOKENS])
    ranks, left, right = pointer_i32(scratch), pointer_i32(scratch + 4 * room), pointer_i32(scratch + 8 * room)
    s, heap = pointer_i32(scratch + 12 * room), pointer_i64(scratch + 16 * room)
    at = 0
    ends[0] = 0
    for t in range(texts):
        i = offsets[t]
        end = offsets[t + 1]
        begin = at
        while at - begin < most:
            start, stop = next_piece(BYTES_OF_PAIRS, text, i, end, classes)
            n = stop - start
            if n == 0:
                break
            i = stop
            known = table[COUNT]
            code = -1
            if n <= CACHED:
                fits = table[USED] + n <= cache[CACHE_ROOM] and cache[CACHE_USED] + n <= cache[CACHE_MOST]
                fits = fits and known < table[MOST]
                code = code_of(table, text + start, n, 0) if fits else index_of(table, text + start, n)
            if 0 <= code < known:
                for k in range(min(sizes[code], most - (at - begin))):
                    out[at] = kept[firsts[code] + k]
                    at += 1
                continue
            for k in range(n):
                s[k] = alphabet[byte(text + start + k)]
            if n <= FEW:
                n = _merge_few(s, ranks, n, news, keys, slots, mask)
            else:
                n = _merge_many(s, ranks, n, news, keys, slots, mask, left, right, heap)
            if code >= 0:
                firsts[code] = cache[CACHE_USED]
                sizes[code] = n
                for k in range(n):
                    kept[cache[CACHE_USED] + k] = s[k]
                cache[CACHE_USED] += n
            for k in range(min(n, most - (at - begin))):
                out[at] = s[k]
                at += 1
        while at - begin < filled:
            out[at] = PADDING
            at += 1
        ends[t + 1] = at
