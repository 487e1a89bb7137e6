"""Errors that say where, what, why and what to do; and the exit codes of the command."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from enum import IntEnum

from pe_cli.core.lazy_dataclass import dataclass

#: What steers a terminal, turns the direction of text, or has no bytes in UTF-8.
_UNSHOWN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

#: Characters of a line that an error shows.
_WIDEST = 240


def shown(text: str) -> str:
    """Return text of a file or of the command line as a terminal may show it: with U+FFFD for what would steer it."""
    return _UNSHOWN.sub("\ufffd", text)


class ExitCode(IntEnum):
    """What the process returns; documented in docs/exit-codes.md."""

    DONE = 0
    BUG = 1
    USAGE = 2
    DATA = 3
    DIVERGED = 4
    DEVICE = 5
    PEER_LOST = 6
    STALLED = 7
    DIFFERENT = 8
    STOPPED = 75
    INTERRUPTED = 130


@dataclass(frozen=True)
class Span:
    """A place in a text file.

    Args:
        file: path as the user gave it.
        line: 1-based.
        column: 1-based.
        length: characters to underline, at least 1.
        text: the whole source line, without its newline; empty when unknown.
    """

    file: str
    line: int
    column: int
    length: int = 1
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def excerpt(self) -> str:
        """Return the source line, or what of a long one is near, with a caret line under the offending text; empty without text."""
        if not self.text:
            return ""
        # Lines of generated files may be very long: what is near the mistake is shown, and the caret moves with it.
        begin = max(0, self.column - 1 - _WIDEST // 2) if len(self.text) > _WIDEST else 0
        text = self.text[begin : begin + _WIDEST]
        start = self.column - 1 - begin
        width = max(1, min(self.length, len(text) - start))
        # Tabs stay tabs, or the caret would stand elsewhere than under the text.
        pad = "".join("\t" if c == "\t" else " " for c in text[:start])
        return f"      {text}\n      {pad}{'^' * width}"


class PeError(Exception):
    """A mistake of the user's or a failure of the machine, never a bug of ours.

    Args:
        message: one line with the real values.
        at: the place in a file, where one is known; `Program.append_op` adds it for errors of inference.
        hint: what to do about it.
        notes: other places that explain the error, each with a sentence.
        code: exit code of the process.
    """

    def __init__(
        self,
        message: str,
        *,
        at: Span | None = None,
        hint: str | None = None,
        notes: Iterable[tuple[Span, str]] = (),
        code: ExitCode = ExitCode.USAGE,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.at = at
        self.hint = hint
        self.notes = list(notes)
        self.code = code

    @property
    def each(self) -> list[PeError]:
        """The single mistakes that this error stands for: itself, or those of a `PeErrors`."""
        return [self]

    def render(self) -> str:
        """Return the whole error as the user sees it, several lines without a trailing newline."""
        lines = [f"{self.at}: error: {self.message}" if self.at else f"error: {self.message}"]
        if self.at and self.at.text:
            lines.append(self.at.excerpt())
        for span, sentence in self.notes:
            lines.append(f"{span}: note: {sentence}")
            if span.text:
                lines.append(span.excerpt())
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return shown("\n".join(lines))

    def __str__(self) -> str:
        return self.render()


class WrongType(PeError):
    """A value of a type that is not taken there: another element type, or no variable where one is needed."""


def is_silent(error: BaseException) -> bool:
    """Return whether Python says that a call failed and did not say why: there was no memory for the exception."""
    return isinstance(error, SystemError) and re.search("without (setting an exception|exception set)", str(error)) is not None


def system_error(error: BaseException) -> PeError | None:
    """Return the message for an error of the operating system that no other code has explained; None for other errors."""
    if isinstance(error, MemoryError) or is_silent(error):
        return PeError("out of memory", hint="use a smaller batch_size", code=ExitCode.DEVICE)
    if isinstance(error, OSError) and error.filename is not None:
        return PeError(f"{error.filename}: {(error.strerror or str(error)).lower()}", hint="check the path and its permissions")
    return None


def is_local(error: PeError) -> bool:
    """Return whether an error is one of the machine that this process runs on, so that other processes may have been spared it.

    That is a full or failing disk, a device, memory, and a file of data that the system does not give. Config and numbers are alike in
    all processes, and so is what files hold, whoever reads it.
    """
    if error.code != ExitCode.DATA:
        return error.code == ExitCode.DEVICE
    # The reader that found the file wrong may have wrapped the system's error several times.
    cause: BaseException | None = error
    # without a number it is no error of the system, but one that a library calls so: Pillow's, of a picture that is cut off
    while cause is not None and not (isinstance(cause, OSError) and cause.errno is not None):
        cause = cause.__cause__ or cause.__context__
    return cause is not None


class PeErrors(PeError):
    """All mistakes found in one run; its exit code is the first one's."""

    def __init__(self, errors: list[PeError]) -> None:
        assert errors, "an empty list of errors is no error"
        super().__init__(errors[0].message, code=errors[0].code)
        self.errors = errors

    @property
    def each(self) -> list[PeError]:
        """All mistakes, in order."""
        return [one for error in self.errors for one in error.each]

    def render(self) -> str:
        """Return every error in order, then how many there were."""
        parts = [error.render() for error in self.errors]
        if len(parts) > 1:
            parts.append(f"{len(parts)} errors")
        return "\n".join(parts)


def as_one(errors: list[PeError]) -> PeError:
    """Return mistakes, at least one, as one error to raise: the mistake itself where there is no other."""
    return errors[0] if len(errors) == 1 else PeErrors(errors)


#: What other systems call it -> what it is called here.
_ELSEWHERE = {
    "int": "int64", "integer": "int64", "long": "int64", "float": "float32", "double": "float64", "single": "float32", "byte": "uint8",
    "boolean": "bool",
}  # fmt: skip


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return `did you mean 'x'?` for the closest known name, or None when nothing is close.

    Args:
        name: what the user wrote.
        known: every name that would have been right.

    Returns:
        A hint for `PeError`, or None.
    """
    options = [str(option) for option in known]
    if _ELSEWHERE.get(name.lower()) in options:
        return f"did you mean '{_ELSEWHERE[name.lower()]}'?"
    # As written first, then without case: names of layers differ by case alone, and the exact one is meant more often.
    for pool, wanted in ((options, name), ([o.lower() for o in options], name.lower())):
        close = difflib.get_close_matches(wanted, pool, n=1, cutoff=0.6)
        if close:
            return f"did you mean '{options[pool.index(close[0])]}'?"
    return None
