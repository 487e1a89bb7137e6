"""Arrays of tensors in programs of the original: `write_to_array` and what reads them."""

from __future__ import annotations

from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.paddle.fluid.layers.beams import beam_search_decode
from pe_cli.paddle.fluid.layers.tensor_arrays import (
    TensorArray,
    array_length,
    array_read,
    array_write,
    tensor_array_to_tensor,
)
from pe_cli.paddle.fluid.original_blocks.reading import Inner, reads_block


def array_of(o: Inner, name: str) -> TensorArray:
    """Return the array of a name; an empty one where nothing was written.

    Raises:
        PeError: it is what a DynamicRNN goes through, or has collected.
    """
    found: Any = o.blocks.arrays.get(name)
    if found is None:
        known = o.blocks.described(name)
        found = o.blocks.arrays[name] = TensorArray(known.dtype if known is not None else "float32", open_sizes=True)
    if not isinstance(found, TensorArray):
        raise PeError(f"'{name}' is an array of the steps of sequences, which a DynamicRNN alone reads")
    return found


@reads_block("write_to_array")
def _write(o: Inner) -> None:
    array_write(o.one("X"), o.one("I"), array_of(o, o.raw("Out", outputs=True)))


@reads_block("read_from_array")
def read_from_array(o: Inner) -> None:
    o.give("Out", array_read(array_of(o, o.raw("X")), o.one("I")))


@reads_block("lod_array_length")
def _length(o: Inner) -> None:
    o.give("Out", array_length(array_of(o, o.raw("X"))))


@reads_block("tensor_array_to_tensor")
def _joined(o: Inner) -> None:
    joined, sizes = tensor_array_to_tensor(array_of(o, o.raw("X")), int(o.attr("axis", 0)), use_stack=o.attr("use_stack", False))
    o.give("Out", joined)
    o.give("OutIndex", sizes)


@reads_block("beam_search_decode")
def _decode(o: Inner) -> None:
    ids, scores = array_of(o, o.raw("Ids")), array_of(o, o.raw("Scores"))
    found = beam_search_decode(ids, scores, int(o.attr("beam_size", 1)), int(o.attr("end_id", 0)))
    for slot, v in zip(("SentenceIds", "SentenceScores"), found, strict=True):
        o.give(slot, v)
