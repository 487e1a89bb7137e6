"""The kinds of tokenizers: how each is learned, and made from a state."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pe_cli.data.fields import Rows
from pe_cli.data.raw_cells import Strings
from pe_cli.data.tokens import bpe, characters, words
from pe_cli.data.tokens.base import State, Tokenizer, Wanted, damaged
from pe_cli.data.tokens.text_chunks import Texts
from pe_cli.data.tokens.tokenizer_json import FileTokens


def learn(wanted: Wanted, strings: Strings, rows: Rows | None = None, threads: int | None = None) -> State:
    """Learn a tokenizer from texts; the same for any number of threads.

    Args:
        wanted: what.
        strings: a column of texts.
        rows: int64, those that are learned from; all when None.
        threads: number of threads; one per core when None.

    Raises:
        BadTextError: a text has a NUL byte, or is no UTF-8.
    """
    texts = Texts(strings, rows, wanted.lower)
    learners: dict[str, Callable[..., State]] = {"words": words.learn, "characters": characters.learn, "bpe": bpe.learn}
    return {"kind": wanted.kind, **learners[wanted.kind](wanted, texts, threads)}


def open_tokens(state: State, template: bool = True) -> Tokenizer:
    """Return the tokenizer of a state.

    Args:
        state: what `learn` gave, or `file.read`.
        template: let the tokenizer of a file add its special tokens to every text.

    Raises:
        PeError: DATA; the state is none that `learn` gives.
    """
    kinds: dict[str, Callable[[State], Tokenizer]] = {kind.kind: partial(kind) for kind in (words.Words, characters.Characters, bpe.Pairs)}
    kinds[FileTokens.kind] = partial(FileTokens, template=template)
    kind = state.get("kind")
    if kind not in kinds:
        raise damaged(f"there is no kind '{kind}'")
    try:
        return kinds[kind](state)
    # A checkpoint may have been edited: whatever a kind stumbles over is told as damage.
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise damaged(f"{type(error).__name__}: {error}") from None
