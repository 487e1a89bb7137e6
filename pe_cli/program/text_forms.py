"""Programs to and from text and JSON."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.program.ir import Program
from pe_cli.program.parse import parse_program
from pe_cli.program.serialize import from_json
from pe_cli.program.text import print_program
from pe_cli.program.verify import verify


def to_string(program: Program, throw_on_error: bool = False, with_details: bool = False) -> str:
    """Return a program as text, one op per line; see `pe_cli.program.text`.

    Args:
        program: any.
        throw_on_error: verify the program first.
        with_details: show attributes and facts that have their default values too.

    Raises:
        PeError: throw_on_error is set and the program is not valid.
    """
    if throw_on_error:
        verify(program)
    return print_program(program, details=with_details)


def from_string(text: str | bytes) -> Program:
    """Return the program of a text or of JSON (`pe_cli.program.serialize.to_json`), verified: its ops write what it declares.

    Raises:
        PeError: it is neither, holds half of a surrogate pair, which no file can hold, or is not valid; with the place in the text.
    """
    plain = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    # Checked before parsing: messages with such a character could not be printed.
    if any("\ud800" <= c <= "\udfff" for c in set(plain)):
        raise PeError("the program holds half of a surrogate pair, which is no text", hint="write it as UTF-8")
    made = from_json(plain) if plain.lstrip().startswith("{") else parse_program(plain)
    verify(made, read=True)
    return made
