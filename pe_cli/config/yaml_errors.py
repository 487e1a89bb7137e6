"""Turns PyYAML's syntax errors into ours: where, what is wrong, and what to do."""

from __future__ import annotations

import re
from typing import Any

import yaml

from pe_cli.config.source import Source
from pe_cli.core.errors import PeError

_QUOTE = "quote text that begins or goes on with a special character"
_INDENT = "give all keys of one mapping the same indentation"
_UNQUOTED_REFERENCE = re.compile(r"""(?<!["'\w])\$\{\w*\}""")

# problem of PyYAML -> (sentence, hint, whether the place is where the construct starts)
_SENTENCES: tuple[tuple[str, str, str, bool], ...] = (
    (r"found character '\\t'", "a tab is not allowed here", "use spaces", False),
    (r"found character '(.)' that", "text cannot begin with '{0}'", "quote it", False),
    (
        r"mapping values are not allowed",
        "a ':' is not allowed here",
        "check the indentation of this line and of the line before, or quote text that holds ': '",
        False,
    ),
    (r"could not find expected ':'", "this line has no ':'", "write key: value, or check the indentation", True),
    (r"expected ',' or '}'", "expected ',' or '}' in the mapping that begins with '{'", "add what is missing", False),
    (r"expected ',' or '\]'", "expected ',' or ']' in the list that begins with '['", "add what is missing", False),
    (
        r"expected <block end>.*'<block mapping start>'",
        "this line's indentation is that of no mapping around it",
        _INDENT,
        False,
    ),
    (r"expected <block end>.*'(-)'", "a list item cannot follow here", _INDENT, False),
    (r"expected <block end>.*'([\]},])'", "'{0}' closes nothing", "delete it, or open the list or mapping", False),
    (r"expected <block end>.*'<scalar>'", "text cannot follow here", _QUOTE, False),
    (r"expected <block end>.*'\?'", "a key cannot follow a list's items at the same indentation", _INDENT, False),
    (
        r"sequence entries are not allowed",
        "a list item '-' is not allowed here",
        "begin the list on its own line, or use [a, b]",
        False,
    ),
    (r"found unexpected end of stream", "the quote is not closed", "close it on the same line", True),
    (r"found unexpected document separator", "the quote is not closed before the next document", "close it", True),
    (
        r"found unknown escape character '(.)'",
        "'\\{0}' is no escape that YAML knows",
        "use single quotes, in which a backslash is a backslash",
        False,
    ),
    (r"expected the node content", "a value is missing here", _QUOTE, False),
    (r"expected alphabetic or numeric character", "text that begins with '*' or '&' must be quoted", _QUOTE, True),
    (r"found undefined tag handle|^expected '>'|expected URI", "tags are not supported", "write the plain value", True),
)


def explain_syntax(error: yaml.MarkedYAMLError, source: Source) -> PeError:
    """Return PyYAML's error as one of ours.

    Args:
        error: with the marks of the problem and of the construct around it.
        source: the text that the marks point into.
    """
    problem = " ".join(str(error.problem or error).split())
    mark: Any = error.problem_mark or error.context_mark
    message, hint = f"not valid YAML: {problem}", None
    for pattern, sentence, remedy, at_start in _SENTENCES:
        found = re.search(pattern, problem)
        if found:
            message, hint = sentence.replace("{0}", (*found.groups(), "")[0]), remedy
            if at_start and error.context_mark:
                mark = error.context_mark
            break
    # At the end of a file PyYAML's mark stands one line behind the last.
    line = min(mark.line, len(source.lines) - 1) if mark else 0
    at = source.span(line, mark.column if mark and mark.line == line else 0)
    notes = []
    context: Any = error.context_mark
    if context and (context.line, context.column) != (mark.line, mark.column) and "flow" in str(error.context):
        notes.append((source.span(context.line, context.column), "it begins here"))
    # `${...}` begins a mapping for YAML, so its errors are nearly always about missing quotes.
    if _UNQUOTED_REFERENCE.search(at.text):
        reference = _UNQUOTED_REFERENCE.search(at.text)
        hint = f'quote it: "{reference[0]}"' if reference else hint
    return PeError(message, at=at, hint=hint, notes=notes)
