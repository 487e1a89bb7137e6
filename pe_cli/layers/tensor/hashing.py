"""The layer that hashes ids into a fixed number of buckets: hash."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable


@layer
def hash(input: Variable, hash_size: int, num_hash: int = 1, name: str | None = None) -> Variable:
    """Hash every row of ids, so that an embedding of hash_size rows serves any ids.

    Out[i, k, 0] = XXH64(input[i], seed k) mod hash_size

    Args:
        input: [..., width] int32 or int64; a row is hashed as the bytes of its numbers.
        hash_size: hashes are 0 to this less 1.
        num_hash: hashes of every row.
        name: prefix of the output's name.

    Returns:
        [..., num_hash, 1], dtype of input.

    Raises:
        PeError: another dtype, or an argument below 1.

    Source:
        fluid.layers.hash.
    """
    helper = LayerHelper("hash", name)
    if input.dtype not in ("int32", "int64"):
        raise helper.error(f"hash takes int32 or int64, got {input}", hint="cast it")
    # The hash is of bytes, so int32 ids must count with four each: the op reads the lower halves of the int64 that it is given.
    wide = input.dtype == "int64"
    ids = input if wide else helper.one("cast", {"X": input}, {"out_dtype": "int64"})
    made = helper.one("hash", {"X": ids}, {"mod_by": hash_size, "num_hash": num_hash, "wide": wide})
    return made if wide else helper.one("cast", {"X": made}, {"out_dtype": "int32"})
