"""What users say of the inputs of a model that they import, as options of `pe import` have it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from pe_cli.core.errors import PeError


def parsed_shapes(texts: Sequence[str]) -> dict[str, list[int | None]]:
    """Return the sizes of `INPUT=N,3,224,224`, None for N.

    Raises:
        PeError: USAGE; a text is none of this kind, or two are about one input.
    """
    found: dict[str, list[int | None]] = {}
    for name, text in _pairs(texts, "shape", "image=N,3,224,224"):
        parts = [part.strip() for part in text.split(",")]
        if not all(part == "N" or (part.isascii() and part.isdigit() and 0 < len(part) < 10 and int(part)) for part in parts):
            raise PeError(f"--shape {name}: '{text}' are no sizes", hint="whole numbers from 1 on, and N for the batch: image=N,3,224,224")
        if parts.count("N") > 1:
            raise PeError(f"--shape {name}: N stands there twice, and the batch is one axis")
        found[name] = [None if part == "N" else int(part) for part in parts]
    return found


def parsed_constants(texts: Sequence[str]) -> dict[str, float]:
    """Return the numbers of `INPUT=NUMBER`.

    Raises:
        PeError: USAGE; a text is none of this kind, or two are about one input.
    """
    found: dict[str, float] = {}
    for name, text in _pairs(texts, "constant", "sr=16000"):
        try:
            found[name] = float(text)
        except ValueError:
            raise PeError(f"--constant {name}: '{text}' is no number", hint="as in sr=16000") from None
        if not math.isfinite(found[name]):
            raise PeError(f"--constant {name}: {text} is not finite")
    return found


def _pairs(texts: Sequence[str], option: str, example: str) -> list[tuple[str, str]]:
    # Names of inputs may have '=' in them, and sizes have none.
    pairs = [text.rpartition("=")[::2] for text in texts]
    for name, value in pairs:
        if not name or not value:
            raise PeError(f"--{option} takes INPUT=VALUE", hint=f"as in --{option} {example}")
    twice = next((name for name, count in Counter(name for name, _ in pairs).items() if count > 1), None)
    if twice is not None:
        raise PeError(f"--{option} {twice} is said twice")
    return pairs
