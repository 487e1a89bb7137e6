"""hash in ONNX: XXH64 by whole numbers that wrap around, unrolled over the numbers of a row."""

from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.ops.define.onnx import Writer, in_onnx
from pe_cli.ops.tensor.hash import P1, P2, P3, P4, P5, P12

#: Number of uint64 in ONNX's files: the one type whose bits it moves.
_WORD = 13
_LOW = 2**32 - 1


def _two(o: Writer, kind: str, x: str, y: str | int) -> str:
    return o.node(kind, [x, y if isinstance(y, str) else o.const(y)])


def _moved(o: Writer, x: str, bits: int, direction: str) -> str:
    # ONNX shifts words without a sign alone.
    by = o.node("Cast", [o.const(bits)], to_=_WORD)
    made = o.node("BitShift", [o.node("Cast", [x], to_=_WORD), by], direction=direction)
    return o.node("Cast", [made], to_=7)


def _turned(o: Writer, x: str, bits: int) -> str:
    return _two(o, "BitwiseOr", _moved(o, x, bits, "LEFT"), _moved(o, x, 64 - bits, "RIGHT"))


def _folded(o: Writer, x: str, bits: int) -> str:
    return _two(o, "BitwiseXor", x, _moved(o, x, bits, "RIGHT"))


def _mixed(o: Writer, total: str, word: str) -> str:
    return _two(o, "Mul", _turned(o, _two(o, "Add", total, _two(o, "Mul", word, P2)), 31), P1)


def _of_words(o: Writer, h: str, words: list[str]) -> str:
    for word in words:
        h = _two(o, "BitwiseXor", h, _mixed(o, o.const(0), word))
        h = _two(o, "Add", _two(o, "Mul", _turned(o, h, 27), P1), P4)
    return h


def _of_stripes(o: Writer, seed: str, words: list[str]) -> str:
    """Return the hash of words, four at a time."""
    totals = [_two(o, "Add", seed, k) for k in (P12, P2, 0)] + [_two(o, "Sub", seed, P1)]
    for k in range(0, len(words), 4):
        totals = [_mixed(o, total, word) for total, word in zip(totals, words[k : k + 4], strict=True)]
    parts = [_turned(o, total, bits) for total, bits in zip(totals, (1, 7, 12, 18), strict=True)]
    h = _two(o, "Add", _two(o, "Add", parts[0], parts[1]), _two(o, "Add", parts[2], parts[3]))
    for total in totals:
        h = _two(o, "Add", _two(o, "Mul", _two(o, "BitwiseXor", h, _mixed(o, o.const(0), total)), P1), P4)
    return h


@in_onnx("hash")
def hash_onnx(o: Writer) -> None:
    """All seeds side by side: [..., num_hash, 1].

    Raises:
        PeError: a row of unknown width.
    """
    a, width = o.attrs, o.type().shape[-1]
    if width < 0:
        raise PeError(f"hash has an ONNX form for rows of known width alone, got {o.type()}", hint="give the feed's shape")
    numbers = [o.node("Gather", [o.x(), o.const([k])], axis=-1) for k in range(width)]
    numbers = [o.node("Unsqueeze", [n, o.const([-1])]) for n in numbers]
    words, left = numbers, ""
    if not a["wide"]:
        numbers = [_two(o, "BitwiseAnd", n, _LOW) for n in numbers]
        words = [_two(o, "BitwiseOr", n, _moved(o, m, 32, "LEFT")) for n, m in zip(numbers[::2], numbers[1::2], strict=False)]
        left = numbers[-1] if width % 2 else ""
    size, seed = width * (8 if a["wide"] else 4), o.const(np.arange(a["num_hash"]).reshape(-1, 1))
    whole = len(words) // 4 * 4
    h = _of_stripes(o, seed, words[:whole]) if whole else _two(o, "Add", seed, P5)
    h = _of_words(o, _two(o, "Add", h, size), words[whole:])
    if left:
        h = _turned(o, _two(o, "BitwiseXor", h, _two(o, "Mul", left, P1)), 23)
        h = _two(o, "Add", _two(o, "Mul", h, P2), P3)
    h = _folded(o, _two(o, "Mul", _folded(o, _two(o, "Mul", _folded(o, h, 33), P2), 29), P3), 32)
    # The remainder of a word without a sign, as in the kernel: from its upper 63 bits, then with the lowest one.
    half = _two(o, "Mod", _moved(o, h, 1, "RIGHT"), a["mod_by"])
    whole_number = _two(o, "Add", _two(o, "Mul", half, 2), _two(o, "BitwiseAnd", h, 1))
    o.node("Mod", [whole_number, o.const(a["mod_by"])], to="Out")
