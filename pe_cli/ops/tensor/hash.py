"""hash: several hashes of every row of whole numbers, for tables that have fewer rows than there are ids."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType, product
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, PtrI64, helper, kernel
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lod import fixed
from pe_cli.ops.define.lowering import Lowering
from pe_cli.ops.define.registry import Attr, Sample, op

#: The primes of XXH64 as signed words.
P1, P2, P3, P4, P5 = -7046029288634856825, -4417276706812531889, 1609587929392839161, -8796714831421723037, 2870177450012600261
#: P1 + P2, wrapped round.
P12 = 6983438078262162902


@helper
def turned(x, bits):
    """Return a word whose bits are moved up, and those that leave at the top come in below."""
    # Words have a sign here: a shift brings copies of it in from above, which the mask takes away again.
    return (x << bits) | ((x >> (64 - bits)) & ((1 << bits) - 1))


@helper
def folded(x, bits):
    """Return x xor x >> bits, of words without a sign."""
    return x ^ ((x >> bits) & ((1 << (64 - bits)) - 1))


@helper
def mixed(total, word):
    """Return one round of XXH64."""
    return turned(total + word * P2, 31) * P1


@helper
def joined(h, total):
    """Return a hash that a total of the four is joined to."""
    return (h ^ mixed(0, total)) * P1 + P4


@helper
def word_at(x, begin, k, wide):
    """Return the k-th eight bytes of a row of numbers of eight bytes, or else of four."""
    if wide:
        return x[begin + k]
    # The mask takes away the copies of a negative number's sign, which would fill the upper half.
    return (x[begin + 2 * k] & 4294967295) | (x[begin + 2 * k + 1] << 32)


@helper
def xxh64(x, begin, width, wide, seed):
    """Return XXH64 of `width` numbers from `begin` on."""
    size = width * (8 if wide else 4)
    words = size >> 3
    k = 0
    h = seed + P5
    if size >= 32:
        a, b, c, d = seed + P12, seed + P2, seed + 0, seed - P1
        while k + 4 <= words:
            a = mixed(a, word_at(x, begin, k, wide))
            b = mixed(b, word_at(x, begin, k + 1, wide))
            c = mixed(c, word_at(x, begin, k + 2, wide))
            d = mixed(d, word_at(x, begin, k + 3, wide))
            k += 4
        h = turned(a, 1) + turned(b, 7) + turned(c, 12) + turned(d, 18)
        h = joined(joined(joined(joined(h, a), b), c), d)
    h += size
    while k < words:
        h = turned(h ^ mixed(0, word_at(x, begin, k, wide)), 27) * P1 + P4
        k += 1
    # An odd number of four bytes each leaves half a word.
    if size & 4:
        h = turned(h ^ ((x[begin + width - 1] & 4294967295) * P1), 23) * P2 + P3
    return folded(folded(folded(h, 33) * P2, 29) * P3, 32)


@kernel
def hash_rows(x: PtrI64, out: PtrI64, n: Int, width: Int, hashes: Int, size: Int, wide: Int):
    """out[i, k] = XXH64(x[i], seed k) mod size, of words without a sign."""
    for i in range(n):
        h = xxh64(x, (i // hashes) * width, width, wide, i % hashes)
        # As a word without a sign, h is twice its upper 63 bits and the lowest one: two steps that need no such words.
        half = (h >> 1) & 9223372036854775807
        out[i] = (2 * (half % size) + (h & 1)) % size


@op(
    "hash",
    inputs="X",
    differentiable="",
    attrs={
        "mod_by": Attr(1, "hashes are 0 to this less 1"),
        "num_hash": Attr(1, "hashes of every row"),
        "wide": Attr(True, "a number has eight bytes; else its lower four count"),
    },
    samples=[
        Sample({"X": fixed([[1, 2], [3, 4]])}, {"mod_by": 10000, "num_hash": 4}, "two rows"),
        Sample({"X": fixed([[[1], [2]], [[3], [-4]]])}, {"mod_by": 7, "wide": False}, "an odd shape"),
        Sample({"X": fixed([[1, 2, 3, 4, 5, 6, 7, 8, 9]])}, {"mod_by": 99, "wide": False}, "a long row"),
    ],
)
def hash_(x: TensorType, *, mod_by: int, num_hash: int, wide: bool) -> TensorType:
    """Hash every row num_hash times.

    Out[i, k, 0] = XXH64(X[i], seed k) mod mod_by

    Args:
        X: [..., width] int64.
        mod_by, num_hash, wide: see the attributes.

    Returns:
        Out: [..., num_hash, 1] int64.

    Raises:
        PeError: another dtype, no last axis, or an attribute below 1.

    Source:
        fluid.layers.hash; XXH64 of Y. Collet.
    """
    del wide
    if x.dtype != "int64" or not x.shape or x.shape[-1] == 0:
        raise PeError(f"hash needs int64 X [..., width], got {x}", hint="cast it")
    if mod_by < 1 or num_hash < 1:
        raise PeError(f"hash: mod_by is {mod_by} and num_hash {num_hash}, must be at least 1")
    return x.with_shape(*x.shape[:-1], num_hash, 1)


@hash_.lower("cpu")
def hash_cpu(o: Lowering) -> None:
    """Hash by hash."""
    x, out = o.input("X"), o.output("Out")
    if out.size:
        o.call(hash_rows, x, out, product(out.shape), x.shape[-1], o.attrs["num_hash"], o.attrs["mod_by"], int(o.attrs["wide"]))


deal(hash_rows)
also_on_cuda(hash_)
