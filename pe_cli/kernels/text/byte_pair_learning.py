"""Learns the merges of a byte-pair encoding: which pairs of symbols, and in which order."""

from __future__ import annotations

from pe_cli.kernels.language import PtrI64, helper, kernel, pointer_i32, pointer_i64
from pe_cli.kernels.text.byte_pair_merging import slot_of
from pe_cli.kernels.text.characters import copy_bytes
from pe_cli.kernels.text.distinct_texts import BYTES, COUNT, ENTRIES, ENTRY, LENGTH, MOST, START, USED, code_of

(
    # words of the pieces: symbols of all, their first symbol, their number, how often each piece occurs; and the number of pieces
    SYMBOLS, FIRST, SIZE, TIMES, PIECES,
    # pairs: hash slots (index + 1), slots - 1; key, count, list of pieces, the merge that touched it last, how many there are and may be
    PAIR_SLOTS, PAIR_MASK, PAIR_KEY, PAIR_COUNT, PAIR_HEAD, PAIR_TOUCHED, PAIRS, MOST_PAIRS,
    # nodes of the lists: piece and next node, how many are in use, first of those that are free again
    NODE_PIECE, NODE_NEXT, NODES, FREE,
    # heap of (count, pair): the largest count is on top, of equal ones the smallest pair; entries, and how many there may be
    HEAP_COUNT, HEAP_PAIR, HEAP, MOST_HEAP,
    # pairs that the merge at hand makes more frequent, and their number
    TOUCHED, TOUCHES,
    # table of the symbols' bytes, whose entries are symbols 1, 2, ...; bytes that it has room for
    SYMBOL_TABLE, SYMBOL_ROOM,
    # merges: left, right and new symbol; their number, and how many there may be; the pair that is being merged, + 1
    MERGES, MERGED, MOST_MERGES, ACTIVE,
    # ends: symbols that are wanted (padding included), and the count below which a pair is not merged
    WANTED, LEAST,
    # progress of the first pass over the pieces; why a call ended
    PIECE, WHY,
    LEARNING,
) = range(34)  # fmt: skip
#: Why a call ended: all is done, or there is no room for more pairs, entries of the heap, or symbols.
DONE, PAIRS_FULL, HEAP_FULL, SYMBOLS_FULL = range(4)


@helper
def _pair(f, a, b):
    """Return the index of a pair, which is new where it was not seen before."""
    slots, keys = pointer_i32(f[PAIR_SLOTS]), pointer_i64(f[PAIR_KEY])
    key = a << 32 | b
    slot = slot_of(key, f[PAIR_MASK])
    while slots[slot] != 0:
        if keys[slots[slot] - 1] == key:
            return slots[slot] - 1
        slot = (slot + 1) & f[PAIR_MASK]
    p = f[PAIRS]
    f[PAIRS] += 1
    slots[slot] = p + 1
    keys[p] = key
    pointer_i64(f[PAIR_COUNT])[p] = 0
    pointer_i32(f[PAIR_HEAD])[p] = -1
    pointer_i32(f[PAIR_TOUCHED])[p] = -1
    return p


@helper
def _occurs(f, p, piece):
    """Note that a pair occurs in a piece, unless that was noted last."""
    heads, pieces, following = pointer_i32(f[PAIR_HEAD]), pointer_i32(f[NODE_PIECE]), pointer_i32(f[NODE_NEXT])
    if heads[p] >= 0 and pieces[heads[p]] == piece:
        return
    node = f[FREE]
    if node >= 0:
        f[FREE] = following[node]
    else:
        node = f[NODES]
        f[NODES] += 1
    pieces[node] = piece
    following[node] = heads[p]
    heads[p] = node


@helper
def _before(f, count, key, other_count, other_key):
    """Return whether an entry of the heap is merged before another."""
    return count > other_count or (count == other_count and key < other_key)


@helper
def _push(f, p, count):
    """Put a pair into the heap."""
    counts, pairs, keys = pointer_i64(f[HEAP_COUNT]), pointer_i32(f[HEAP_PAIR]), pointer_i64(f[PAIR_KEY])
    i = f[HEAP]
    f[HEAP] += 1
    key = keys[p]
    while i > 0:
        up = (i - 1) >> 1
        if not _before(f, count, key, counts[up], keys[pairs[up]]):
            break
        counts[i] = counts[up]
        pairs[i] = pairs[up]
        i = up
    counts[i] = count
    pairs[i] = p


@helper
def _pop(f):
    """Take the top off the heap."""
    counts, pairs, keys = pointer_i64(f[HEAP_COUNT]), pointer_i32(f[HEAP_PAIR]), pointer_i64(f[PAIR_KEY])
    f[HEAP] -= 1
    n = f[HEAP]
    if n == 0:
        return
    count, p = counts[n], pairs[n]
    key = keys[p]
    i = 0
    while True:
        k = 2 * i + 1
        if k >= n:
            break
        if k + 1 < n and _before(f, counts[k + 1], keys[pairs[k + 1]], counts[k], keys[pairs[k]]):
            k += 1
        if not _before(f, counts[k], keys[pairs[k]], count, key):
            break
        counts[i] = counts[k]
        pairs[i] = pairs[k]
        i = k
    counts[i] = count
    pairs[i] = p


@kernel
def count_pairs(f: PtrI64):
    """Count the pairs of all pieces, and put them into the heap."""
    symbols, first, size, times = pointer_i32(f[SYMBOLS]), pointer_i64(f[FIRST]), pointer_i32(f[SIZE]), pointer_i64(f[TIMES])
    while f[PIECE] < f[PIECES]:
        w = f[PIECE]
        if f[PAIRS] + size[w] > f[MOST_PAIRS]:
            f[WHY] = PAIRS_FULL
            return
        for k in range(first[w], first[w] + size[w] - 1):
            p = _pair(f, symbols[k], symbols[k + 1])
            pointer_i64(f[PAIR_COUNT])[p] += times[w]
            _occurs(f, p, w)
        f[PIECE] += 1
    if f[PAIRS] > f[MOST_HEAP]:
        f[WHY] = HEAP_FULL
        return
    for p in range(f[PAIRS]):
        _push(f, p, pointer_i64(f[PAIR_COUNT])[p])
    f[WHY] = DONE


@helper
def _more(f, a, b, piece, times):
    """Count a pair that a merge has made."""
    p = _pair(f, a, b)
    pointer_i64(f[PAIR_COUNT])[p] += times
    _occurs(f, p, piece)
    stamps = pointer_i32(f[PAIR_TOUCHED])
    if stamps[p] != f[MERGED]:
        stamps[p] = f[MERGED]
        pointer_i32(f[TOUCHED])[f[TOUCHES]] = p
        f[TOUCHES] += 1


@helper
def _less(f, a, b, times):
    """Count a pair that a merge has taken apart."""
    pointer_i64(f[PAIR_COUNT])[_pair(f, a, b)] -= times


@helper
def _merge_piece(f, w, a, b, new):
    """Merge a pair wherever it is in a piece."""
    s = pointer_i32(f[SYMBOLS] + 4 * pointer_i64(f[FIRST])[w])
    sizes = pointer_i32(f[SIZE])
    times = pointer_i64(f[TIMES])[w]
    size = sizes[w]
    i = 0
    o = 0
    while i < size:
        if i + 1 < size and s[i] == a and s[i + 1] == b:
            if o > 0:
                _less(f, s[o - 1], a, times)
                _more(f, s[o - 1], new, w, times)
            if i + 2 < size:
                _less(f, b, s[i + 2], times)
                _more(f, new, s[i + 2], w, times)
            s[o] = new
            i += 2
        else:
            s[o] = s[i]
            i += 1
        o += 1
    sizes[w] = o


@helper
def _new_symbol(f, a, b):
    """Return the symbol of two symbols' bytes together; the same where another merge has made the same bytes."""
    table = pointer_i64(f[SYMBOL_TABLE])
    entries = pointer_i64(table[ENTRIES])
    # the bytes are put together behind those that are in use, where a new symbol's are copied to themselves
    at = table[BYTES] + table[USED]
    left, right = ENTRY * (a - 1), ENTRY * (b - 1)
    copy_bytes(table[BYTES] + entries[left + START], at, entries[left + LENGTH])
    copy_bytes(table[BYTES] + entries[right + START], at + entries[left + LENGTH], entries[right + LENGTH])
    return 1 + code_of(table, at, entries[left + LENGTH] + entries[right + LENGTH], 0)


@kernel
def learn_merges(f: PtrI64):  # noqa: C901 - a loop that goes on where it ended
    """Merge the most frequent pair until there are as many symbols as are wanted; of equally frequent ones, the smallest."""
    table = pointer_i64(f[SYMBOL_TABLE])
    merges = pointer_i32(f[MERGES])
    while True:
        if f[ACTIVE] == 0:
            if f[HEAP] == 0 or table[COUNT] + 1 >= f[WANTED] or f[MERGED] == f[MOST_MERGES]:
                break
            p = pointer_i32(f[HEAP_PAIR])[0]
            count = pointer_i64(f[PAIR_COUNT])[p]
            seen = pointer_i64(f[HEAP_COUNT])[0]
            if seen != count:
                _pop(f)
                # one that has become more frequent has another entry
                if 0 < count < seen:
                    _push(f, p, count)
                continue
            if count < f[LEAST]:
                break
            key = pointer_i64(f[PAIR_KEY])[p]
            a, b = key >> 32, key & 0xFFFFFFFF
            entries = pointer_i64(table[ENTRIES])
            length = entries[ENTRY * (a - 1) + LENGTH] + entries[ENTRY * (b - 1) + LENGTH]
            if table[COUNT] >= table[MOST] or table[USED] + 2 * length + 8 > f[SYMBOL_ROOM]:
                f[WHY] = SYMBOLS_FULL
                return
            _pop(f)
            m = 3 * f[MERGED]
            merges[m], merges[m + 1], merges[m + 2] = a, b, _new_symbol(f, a, b)
            f[ACTIVE] = p + 1
            f[TOUCHES] = 0
        p = f[ACTIVE] - 1
        m = 3 * f[MERGED]
        heads, pieces, following = pointer_i32(f[PAIR_HEAD]), pointer_i32(f[NODE_PIECE]), pointer_i32(f[NODE_NEXT])
        while heads[p] >= 0:
            node = heads[p]
            w = pieces[node]
            if f[PAIRS] + 2 * pointer_i32(f[SIZE])[w] > f[MOST_PAIRS]:
                f[WHY] = PAIRS_FULL
                return
            heads[p] = following[node]
            following[node] = f[FREE]
            f[FREE] = node
            _merge_piece(f, w, merges[m], merges[m + 1], merges[m + 2])
        if f[HEAP] + f[TOUCHES] > f[MOST_HEAP]:
            f[WHY] = HEAP_FULL
            return
        pointer_i64(f[PAIR_COUNT])[p] = 0
        for k in range(f[TOUCHES]):
            q = pointer_i32(f[TOUCHED])[k]
            if pointer_i64(f[PAIR_COUNT])[q] > 0:
                _push(f, q, pointer_i64(f[PAIR_COUNT])[q])
        f[MERGED] += 1
        f[ACTIVE] = 0
    f[WHY] = DONE
