"""Loops of machine code: what a card does again and again, counted in instructions.

NVIDIA's disassembler is not needed for that: an instruction of capability 9.0 has 16 bytes, the lowest 12 bits say which it is, and a
branch says how far it goes. Others say that elsewhere.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from pe_cli.kernels.cuda_compiler import INSTRUCTION, code_of

#: The instruction that goes elsewhere.
BRANCH = 0x947
#: Of an instruction that multiplies and adds float32 the lowest 9 bits; those above say where its operands lie.
MULTIPLY_ADD, KIND = 0x023, 0x1FF
_DISTANCE, _FAR = 8, 48


def loops(image: bytes) -> list[Sequence[int]]:
    """Return the innermost loops of a cubin: the numbers of their instructions, in order."""
    found: list[Sequence[int]] = []
    for code in code_of(image):
        words = [struct.unpack_from("<QQ", code, at) for at in range(0, len(code), INSTRUCTION)]
        whole = [low & 0xFFF for low, _ in words]
        spans = [(_target(i, low, high), i) for i, (low, high) in enumerate(words) if whole[i] == BRANCH]
        back = [(begin, end) for begin, end in spans if begin < end]  # what goes to itself fills up the last line
        inner = [s for s in back if not any(s != other and s[0] <= other[0] and other[1] <= s[1] for other in back)]
        found += [whole[begin : end + 1] for begin, end in inner]
    return found


def _target(at: int, low: int, high: int) -> int:
    """Return the number of the instruction that a branch goes to: a signed count of fourths of an instruction, in two pieces."""
    near = low >> 16 & ((1 << _DISTANCE) - 1)
    far = (low >> 34 | high << 30) & ((1 << _FAR) - 1)
    far -= (far >> (_FAR - 1)) << _FAR
    return at + 1 + ((far << _DISTANCE | near) * 4) // INSTRUCTION
