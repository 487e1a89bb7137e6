"""Damage to whole inputs, as hypothesis strategies: what fails is shrunk to the fewest and simplest edits."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

BYTES = [b"\x00", b"\xff", b"\xff\xff\xff\x7f", b"\xff" * 8, b"\x80", b"PK\x03\x04", b"\x1f\x8b", b"\x93NUMPY", b"{", b"\n"]
NUMBERS = ["-1", "0", "1e308", "-0.0", ".nan", ".inf", "1_0", "9" * 25, "9" * 5000, "9223372036854775808", "true", "null", "~", "''"]
WORDS = [
    "[]", "{}", "[[[[]]]]", "{a: {a: {a: 1}}}", "*a", "&a [*a]", "!!python/object/apply:os.system [ls]", "!!binary aGk=", "<<: {a: 1}",
    "${a}", "${", "${features}", "$$", '"\\ud800"', '"\\0"', '"\\e[31m"', "/", "..", "~nobody/x", ".", "a.b", "é", "\u202e", "'", '"',
    ":", "- ", "? ", "|", ">", "---", "#", "\t", "x" * 300, "0x10", "0o7", "1:30", "2001-01-01", "NO", "=", "%YAML 1.3",
]  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn, wholes: Sequence[bytes]) -> bytes:
    """Return one of some inputs after one to four edits of its bytes."""
    data = bytearray(draw(st.sampled_from(wholes)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        # headers and directories stand near the ends
        at = draw(st.sampled_from([at, min(at, 128), max(0, len(data) - at)]))
        how = draw(st.sampled_from(["bit", "byte", "cut", "drop", "repeat", "insert", "overwrite"]))
        size = draw(st.integers(1, 16))
        new = draw(st.one_of(st.sampled_from(BYTES), st.binary(max_size=8)))
        if how == "bit" and at < len(data):
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif how == "byte" and at < len(data):
            data[at] = draw(st.integers(0, 255))
        elif how == "cut":
            del data[at:]
        elif how == "drop":
            del data[at : at + size]
        elif how == "repeat":
            data[at:at] = data[at : at + size] * draw(st.sampled_from([1, 2, 300]))
        elif how == "insert":
            data[at:at] = new
        else:
            data[at : at + len(new)] = new
    return bytes(data)


@st.composite
def rewritten(draw: st.DrawFn, wholes: Sequence[str]) -> str:
    """Return one of some texts with one to four of its words or lines replaced, moved, doubled or left out."""
    text = draw(st.sampled_from(wholes))
    for _ in range(draw(st.integers(1, 4))):
        places = words(text)
        begin, end = draw(st.sampled_from(places)) if places else (0, 0)
        other = draw(st.sampled_from(places)) if places else (0, 0)
        new = draw(
            st.one_of(
                st.sampled_from(NUMBERS),
                st.sampled_from(WORDS),
                st.just(text[other[0] : other[1]]),
                st.integers(-(2**70), 2**70).map(str),
                st.floats().map(str),
                st.text(max_size=6),
            )
        )
        how = draw(st.sampled_from(["replace", "replace", "insert", "drop", "double line", "drop line"]))
        if how == "replace":
            text = text[:begin] + new + text[end:]
        elif how == "insert":
            text = text[:begin] + new + text[begin:]
        elif how == "drop":
            text = text[:begin] + text[end:]
        else:
            lines = text.split("\n")
            row = text.count("\n", 0, begin)
            lines[row : row + 1] = [lines[row]] * 2 if how == "double line" else []
            text = "\n".join(lines)
    return text


def words(text: str) -> list[tuple[int, int]]:
    """Return begin and end of the words and marks of a text."""
    out: list[tuple[int, int]] = []
    begin = 0
    for at, character in enumerate(text + " "):
        if not (character.isalnum() or character in "._"):
            out += [(begin, at)] * (at > begin) + [(at, at + 1)] * (at < len(text) and not character.isspace())
            begin = at + 1
    return out


def deep(opening: str, closing: str, most: int = 1500) -> st.SearchStrategy[str]:
    """Return strategies of texts that are nested deeply."""
    return st.integers(1, most).map(lambda levels: opening * levels + closing * levels)


def bomb() -> st.SearchStrategy[str]:
    """Return YAML whose aliases multiply: ten levels of ten are 10^10 values."""

    def write(levels: int, wide: int) -> str:
        rows = ["a0: &a0 [x]"]
        rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * wide)}]" for n in range(1, levels + 1)]
        return "\n".join(rows) + "\n"

    return st.builds(write, st.integers(1, 40), st.integers(1, 12))
