"""Loops of machine code: what a card does again and again, counted in instructions.

NVIDIA's disassembler is not needed for that: an instruction of capability 9.0 has 16 bytes, the lowest 12 bits say which it is, and a
branch says how far it goes. Others say that elsewhere.

A loop is all from which its beginning is reached again, and which is not reached but through its beginning: what a compiler has put behind
the loop, because it is done seldom, is part of it wherever it lies. Functions that are called, such as the seldom way of a division, are
not: they are there once for a kernel.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence

from pe_cli.kernels.cuda.compiler import INSTRUCTION, code_of

#: Instructions that go elsewhere; that say where threads of a warp meet again, and that go there; that end; and the last of a function.
BRANCH, MEETING, MEET, EXIT, RETURN = 0x947, 0x945, 0x941, 0x94D, 0x950
#: Of an instruction that multiplies and adds float32 the lowest 9 bits; those above say where its operands lie.
MULTIPLY_ADD, KIND = 0x023, 0x1FF
_DISTANCE, _FAR = 8, 48
#: What an instruction's condition is that always holds, in bits 12 to 15, and that of a branch's operand, from bit 87 on.
_ALWAYS = 7


def loops(image: bytes) -> list[Sequence[int]]:
    """Return the innermost loops of a cubin: the numbers of their instructions, in order."""
    return [codes for code in code_of(image) for codes, inner, _ in _loops_of(code) if inner]


def whole_loops(image: bytes) -> list[Sequence[int]]:
    """Return the loops of a cubin that are in no other, with those in them: the numbers of their instructions, in order."""
    return [codes for code in code_of(image) for codes, _, outer in _loops_of(code) if outer]


def _loops_of(code: bytes) -> Iterator[tuple[Sequence[int], bool, bool]]:
    """Yield the loops of a function: their instructions, whether no other loop is in one, and whether it is in no other."""
    words = [struct.unpack_from("<QQ", code, at) for at in range(0, len(code), INSTRUCTION)]
    after = [[to for to in _next(words, i) if 0 <= to < len(words)] for i in range(len(words))]
    begins = sorted({0, *(to for i, each in enumerate(after) if each != [i + 1] for to in (*each, i + 1) if to < len(words))})
    spans = {begin: range(begin, end) for begin, end in itertools.pairwise([*begins, len(words)])}
    links = {begin: after[span[-1]] for begin, span in spans.items()}
    found: dict[int, set[int]] = {}
    before = _before(links)
    for end, heads in links.items():
        for head in heads:
            if head != end or len(spans[end]) > 1:  # what goes to itself alone fills up the last line
                body = _body(head, end, before)
                if body is not None:
                    found.setdefault(head, set()).update(body)
    for head, body in found.items():
        codes = [words[i][0] & 0xFFF for begin in sorted(body) for i in spans[begin]]
        others = [(other, each) for other, each in found.items() if other != head]
        yield codes, not any(other in body for other, _ in others), not any(head in each for _, each in others)


def _next(words: Sequence[tuple[int, int]], i: int) -> list[int]:
    """Return the numbers of the instructions that may come behind one."""
    low, high = words[i]
    which = low & 0xFFF
    always = low >> 12 & 0xF == _ALWAYS
    if which == BRANCH:
        always = always and high >> 23 & 0xF == _ALWAYS
        return [_target(i, low, high)] + [i + 1] * (not always)
    if which in (EXIT, RETURN):
        return [i + 1] * (not always)
    if which == MEET:
        said = next((j for j in range(i, -1, -1) if words[j][0] & 0xFFF == MEETING and _register(words[j]) == _register(words[i])), None)
        if said is not None:
            return [_meeting(said, words[said][0])] + [i + 1] * (not always)
    return [i + 1]


def _meeting(at: int, low: int) -> int:
    """Return the number of the instruction behind which threads meet, as the instruction says that announces it."""
    return at + 1 + (low >> 34) * 4 // INSTRUCTION


def _register(word: tuple[int, int]) -> int:
    """Return which of the registers that hold where threads meet an instruction has."""
    return word[0] >> 16 & 0xFF


def _before(links: dict[int, list[int]]) -> dict[int, list[int]]:
    """Return what comes before each of what can be reached from the beginning."""
    before: dict[int, list[int]] = {0: []}
    waiting = [0]
    while waiting:
        for to in links[here := waiting.pop()]:
            if to not in before:
                before[to] = []
                waiting.append(to)
            before[to].append(here)
    return before


def _body(head: int, end: int, before: dict[int, list[int]]) -> set[int] | None:
    """Return what leads from a head to an end that goes back to it; None where the end is reached without the head."""
    if end not in before:
        return None
    body, waiting = {head}, [end]
    while waiting:
        here = waiting.pop()
        if here not in body:
            if here == 0:
                return None
            body.add(here)
            waiting += before[here]
    return body


def _target(at: int, low: int, high: int) -> int:
    """Return the number of the instruction that a branch goes to: a signed count of fourths of an instruction, in two pieces."""
    near = low >> 16 & ((1 << _DISTANCE) - 1)
    far = (low >> 34 | high << 30) & ((1 << _FAR) - 1)
    far -= (far >> (_FAR - 1)) << _FAR
    return at + 1 + ((far << _DISTANCE | near) * 4) // INSTRUCTION
