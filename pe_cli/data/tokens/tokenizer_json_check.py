"""Checks a tokenizer.json before the package `tokenizers` reads it: that package's native code can be neither bounded nor stopped.

Regular expressions are read as Oniguruma's syntax; one whose time may be exponential in the length of a text is refused.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any

#: Ids of a file are below this: it has fewer bytes, and each token has several.
MOST_ID = 1 << 26
#: A normaliser or decoder makes a text so many times as long, at most; and tokens that a template adds to each text.
GROWTH, TEMPLATE = 64, 64
#: Repetitions without an upper bound in one branch of a pattern, each of which is another power of a text's length; and of bounded ones.
REPEATS, BOUNDED = 3, 1000
_QUANTIFIER = re.compile(r"(?:[*+?]|\{(\d*)(,?)(\d*)\})[+?]?")
_REFUSED = re.compile(r"\\(?:[1-9]|[gk]<)|\(\?(?:R|&|\d|\(|~)")


def check(value: dict[str, Any]) -> None:
    """Look at what a file says.

    Args:
        value: JSON of the file.

    Raises:
        ValueError: a pattern, a replacement or a template asks for more than any tokenizer needs.
    """
    for part in _parts(value):
        pattern = part.get("pattern")
        if isinstance(pattern, dict) and isinstance(pattern.get("Regex"), str):
            check_pattern(pattern["Regex"])
        if part.get("type") == "Precompiled":
            _check_map(part.get("precompiled_charsmap"))
    for key in ("normalizer", "decoder"):
        if _growth(value.get(key)) > GROWTH:
            raise ValueError(f"its {key} may make a text more than {GROWTH} times as long")
    if _added(value.get("post_processor")) > TEMPLATE:
        raise ValueError(f"its template adds more than {TEMPLATE} tokens to a text")
    padding = value.get("padding")
    if isinstance(padding, dict):
        strategy, multiple = padding.get("strategy"), padding.get("pad_to_multiple_of")
        fixed = strategy.get("Fixed") if isinstance(strategy, dict) else None
        if any(isinstance(number, int) and number >= MOST_ID for number in (fixed, multiple)):
            raise ValueError(f"its padding makes texts of {MOST_ID:,} tokens or more")


def _parts(value: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects but those of the vocabulary."""
    waiting = [value.get(key) for key in ("normalizer", "pre_tokenizer", "post_processor", "decoder")]
    # By hand instead of recursion, because a file may be nested as deep as it likes.
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            yield each
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each


def _check_map(value: Any) -> None:
    """Refuse a map of characters that native code cannot take apart, which it does not expect: a size, a trie of so many bytes, texts."""
    try:
        data = base64.b64decode(value, validate=True)
        size = int.from_bytes(data[:4], "little")
        whole = len(data) >= 4 and size % 4 == 0 and 4 + size <= len(data)
        data[4 + size :].decode("utf-8")
    except (ValueError, TypeError):
        whole = False
    if not whole:
        raise ValueError("its map of characters is damaged")


def _growth(part: Any) -> float:
    """Return how many times as long a part may make a text."""
    if isinstance(part, list):
        found = 1.0
        # Bounded: a product of many growths is an infinity otherwise.
        for each in part:
            found = min(1e9, found * _growth(each))
        return found
    if not isinstance(part, dict):
        return 1
    if part.get("type") == "Sequence":
        return _growth(part.get("normalizers") or part.get("decoders"))
    if part.get("type") == "Replace":
        pattern, content = part.get("pattern"), part.get("content")
        text = pattern.get("String") if isinstance(pattern, dict) else pattern
        size = len(content.encode("utf-8", "replace")) if isinstance(content, str) else 0
        # an expression, and the empty text, may fit between all bytes
        return max(1.0, size / len(text.encode("utf-8", "replace"))) if isinstance(text, str) and text else 1.0 + size
    return 1.0  # of what else there is, nothing makes a text much longer twice


def _added(part: Any) -> int:
    """Return how many tokens a post-processor may add to a text."""
    if isinstance(part, list):
        return sum(map(_added, part))
    if not isinstance(part, dict):
        return 0
    if part.get("type") == "Sequence":
        return _added(part.get("processors"))
    if part.get("type") != "TemplateProcessing":
        return 2
    given, template = part.get("special_tokens"), part.get("single")
    tokens = given.values() if isinstance(given, dict) else given if isinstance(given, list) else ()
    longest = max((len(token["ids"]) for token in tokens if isinstance(token, dict) and isinstance(token.get("ids"), list)), default=0)
    return max(1, longest) * (len(template) if isinstance(template, (list, str)) else 0)


def check_pattern(text: str) -> None:
    """Refuse a regular expression whose time may be exponential in the length of a text, or a high power of it.

    That is one that repeats what repeats itself or has branches, that refers to what it has found, or repeats many times in one branch.

    Args:
        text: pattern.

    Raises:
        ValueError: says why.
    """
    refused = _REFUSED.search(text)
    if refused:
        raise ValueError(f"its pattern {_shown(text)} refers to itself or to what it has found: {refused[0]}")
    # of every open group: repetitions without a bound in this branch, the most in another, whether there is one, bounded repetitions
    groups: list[list[int]] = [[0, 0, 0, 1]]
    at = 0
    while at < len(text):
        closed: list[int] | None = None
        character = text[at]
        if character == "\\":
            at += 2
            # Properties such as \p{Letter} are one character of the pattern.
            if text[at - 1 : at] in "pP" and text[at : at + 1] == "{":
                at = max(at, text.find("}", at) + 1)
        elif character == "[":
            at = _behind_class(text, at)
        elif character == "(":
            groups.append([0, 0, 0, 1])
            at += 1 + (2 if text[at + 1 : at + 2] == "?" else 0)
            continue
        elif character == "|":
            groups[-1][1], groups[-1][0], groups[-1][2] = max(groups[-1][:2]), 0, 1
            at += 1
            continue
        elif character == ")" and len(groups) > 1:
            closed = groups.pop()
            at += 1
        else:
            at += 1
        at = _repeated(text, at, groups[-1], closed)
    if max(groups[0][:2]) > REPEATS:
        raise ValueError(f"its pattern {_shown(text)} has more than {REPEATS} repetitions in a branch")


def _repeated(text: str, at: int, group: list[int], closed: list[int] | None) -> int:
    """Count the quantifiers behind an element of a group, and return where they end."""
    inside = max(closed[:2]) if closed else 0
    bounded = closed[3] if closed else 1
    while (found := _QUANTIFIER.match(text, at)) is not None:
        at = found.end()
        low, comma, high = found.groups()
        endless = found[0][0] in "*+" or bool(comma and not high and low is not None)
        # A repetition inside of a repetition takes time that doubles with every letter of a text.
        if endless and (inside or (closed is not None and closed[2])):
            raise ValueError(f"its pattern {_shown(text)} repeats what repeats itself or has branches")
        if endless:
            inside = 1
        elif found[0][0] == "{":
            bounded *= max(1, int((high or low or "1")[:9]))
    group[0] += inside
    group[3] = max(group[3], bounded)
    if bounded > BOUNDED or group[0] > REPEATS:
        raise ValueError(f"its pattern {_shown(text)} repeats more than {BOUNDED} times, or more than {REPEATS} times without a bound")
    return at


def _behind_class(text: str, at: int) -> int:
    """Return where a class of characters ends; one may stand in another."""
    depth = 0
    while at < len(text):
        if text[at] == "\\":
            at += 1
        elif text[at] == "[":
            depth += 1
            at += 1 if text[at + 1 : at + 2] == "^" else 0
            at += 1 if text[at + 1 : at + 2] == "]" else 0  # the first one is a character
        elif text[at] == "]":
            depth -= 1
            if not depth:
                return at + 1
        at += 1
    return at


def _shown(text: str) -> str:
    line = "".join(c if c.isprintable() else " " for c in text)
    return f"'{line if len(line) <= 60 else line[:57] + '...'}'"
