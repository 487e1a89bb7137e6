"""MultiSlot text: one instance per line, for every slot in order `<n> <v1> ... <vn>`, separated by single spaces."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from pe_cli.core.errors import ExitCode, PeError, Span

#: Type of a slot -> element type of its values.
SLOT_TYPES = {"uint64": "int64", "float": "float32"}
_REAL = frozenset("0123456789+-.eE")
_WORDS = 1 << 64
#: Characters of a line that an error shows.
_SHOWN = 120
#: Digits of a number of values, with leading zeros.
_DIGITS = 18
Values = list[int] | list[float]
#: Name, type, and number of values of a slot, 0 for any.
Slot = tuple[str, str, int]


def parse_line(line: str, slots: Sequence[Slot], file: str, number: int) -> list[Values]:
    """Return the values of every slot of one instance; ids from 2^63 on as the int64 of the same bits.

    Args:
        line: without its newline.
        slots: of the line in order, used or not.
        file: its name, for errors.
        number: of the line, from 1.

    Raises:
        PeError: a number of values that is not at least 1, values that are missing, left over or of another type (exit
            code 3); with file, line and slot.
    """
    words = line.strip().split(" ")
    out: list[Values] = []
    at = 0
    for name, kind, wanted in slots:
        count = words[at] if at < len(words) else ""
        if not (count.isascii() and count.isdigit() and len(count) <= _DIGITS) or int(count) < 1:
            said = f"'{count:.40}'" if count else "nothing"
            what = f"slot '{name}' begins with the number of its values, at least 1, and here is {said}"
            raise _error(what, "write a padding value where a slot has none: 1 0", words, at, file, number)
        if wanted and int(count) != wanted:
            what = f"slot '{name}' has {int(count)} values, but its shape has {wanted}"
            raise _error(what, "make the slot sparse, or give it another shape", words, at, file, number)
        values = words[at + 1 : at + 1 + int(count)]
        if len(values) < int(count):
            what = f"slot '{name}' should have {count} values, but the line has {len(values)} left"
            raise _error(what, "correct the number before the values", words, at, file, number)
        out.append(
            _ids(values, name, words, at, file, number)
            if kind == "uint64"
            else _reals(values, name, words, at, file, number)
        )
        at += 1 + len(values)
    if at < len(words):
        what = f"{len(words) - at} words are left behind the last slot '{slots[-1][0]}': '{' '.join(words[at:])[:40]}'"
        raise _error(what, "name every slot of the file, in order", words, at, file, number)
    return out


def _ids(values: list[str], name: str, words: list[str], at: int, file: str, number: int) -> list[int]:
    joined = "".join(values)
    if all(values) and joined.isascii() and joined.isdigit() and max(map(len, values)) <= 20:
        found = [int(v) for v in values]
        if max(found) < _WORDS:
            return [v - _WORDS if v >= _WORDS >> 1 else v for v in found]
    k = next(i for i, v in enumerate(values) if not (v.isascii() and v.isdigit() and len(v) <= 20 and int(v) < _WORDS))
    what = f"value {k + 1} of slot '{name}' is '{values[k]:.40}', no uint64"
    raise _error(
        what, "ids are whole numbers from 0 to 2^64 - 1, separated by single spaces", words, at + 1 + k, file, number
    )


def _reals(values: list[str], name: str, words: list[str], at: int, file: str, number: int) -> list[float]:
    found = []
    for k, v in enumerate(values):
        try:
            value = float(v) if _REAL.issuperset(v) else math.nan
        except ValueError:
            value = math.nan
        if not abs(value) < 3.4028235677973366e38:  # from there on, float32 rounds to infinity
            what = f"value {k + 1} of slot '{name}' is '{v:.40}', no float"
            raise _error(
                what, "write finite numbers such as 0.25, separated by single spaces", words, at + 1 + k, file, number
            )
        found.append(value)
    return found


def _error(message: str, hint: str, words: list[str], at: int, file: str, number: int) -> PeError:
    column = sum(len(w) + 1 for w in words[:at]) + 1
    length = len(words[at]) if at < len(words) else 1
    text = " ".join(words)
    shown = text if len(text) <= _SHOWN else ""
    return PeError(message, at=Span(file, number, column, max(1, length), shown), hint=hint, code=ExitCode.DATA)


def read_instances(file: Path | str, slots: Sequence[Slot]) -> Iterator[list[Values]]:
    """Yield the instances of a file; empty lines are left out.

    Raises:
        PeError: it cannot be read, or see `parse_line` (exit code 3).
    """
    for number, line in read_lines(file):
        yield parse_line(line, slots, str(file), number)


def read_lines(file: Path | str) -> Iterator[tuple[int, str]]:
    """Yield the numbers and texts of the lines that are not empty.

    Raises:
        PeError: the file cannot be read (exit code 3).
    """
    try:
        with Path(file).open(encoding="utf-8", errors="replace") as stream:
            yield from ((number, line) for number, line in enumerate(stream, 1) if line.strip())
    except OSError as error:
        raise PeError(f"{file}: {error.strerror}", code=ExitCode.DATA, hint="check the path") from None
