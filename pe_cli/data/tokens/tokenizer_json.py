"""Tokenizers of `tokenizer.json` files, by the package `tokenizers`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data.tokens import tokenizer_json_check as checked
from pe_cli.data.tokens.base import Encoder, Ids, Kind, State, Tokenizer
from pe_cli.data.tokens.text_chunks import Chunk

#: Bytes of a file that is read, at most.
LIMIT = 1 << 26
#: Names of the padding token, where the file does not say.
_PADDING = ("<pad>", "[PAD]", "<|padding|>", "<|endoftext|>")


def read(path: Path, error: Callable[[str, str], PeError]) -> State:
    """Return the state of a file: all of it, so that the checkpoint stands alone.

    Args:
        path: of a file that is there.
        error: makes a data error of a message and a hint.

    Raises:
        PeError: it is too large, or no tokenizer.
    """
    _package()
    size = path.stat().st_size
    if size > LIMIT:
        raise error(f"{path} has {size:,} bytes, and a tokenizer has {LIMIT:,} at most", "name a tokenizer.json")
    try:
        text = path.read_bytes().decode("utf-8")
        value = json.loads(text)
        if not isinstance(value, dict):
            raise ValueError(f"it is a {type(value).__name__}")
    except (ValueError, RecursionError) as failure:
        raise error(f"{path} is no tokenizer.json: {failure}", "name the file that tokenizers' save() wrote") from None
    if "model" not in value:
        raise error(f"{path} is no tokenizer.json: it has no model", "name the file that tokenizers' save() wrote")
    state: State = {"kind": "file", "lines": json.dumps(value, ensure_ascii=False, indent=0).split("\n")}
    try:
        FileTokens(state)
    except PeError as failure:
        raise error(f"{path}: {failure.message}", "save it again with the installed version of tokenizers") from None
    return state


def _package() -> Any:
    try:
        import tokenizers
    except ImportError:
        raise PeError(
            "a tokenizer.json is read by the package tokenizers, which is not installed",
            hint="pip install 'pe-cli[text]'",
        ) from None
    return tokenizers


@contextlib.contextmanager
def _native(what: str) -> Iterator[None]:
    """Turn what the Rust code of tokenizers raises into a data error; what it does not expect is no Exception.

    Raises:
        PeError: DATA; says what it cannot do, and why.
    """
    try:
        yield
    except BaseException as failure:
        # The package's Rust code raises exceptions that derive from BaseException alone.
        if isinstance(failure, (KeyboardInterrupt, SystemExit, MemoryError)):
            raise
        said = " ".join(str(failure).split())
        raise PeError(f"tokenizers {what}: {said}", hint="name another tokenizer.json", code=ExitCode.DATA) from None


class FileTokens(Tokenizer):
    """What a file says, by `tokenizers`; its ids are those of the file. Truncation and padding of the file are left out.

    Raises:
        PeError: `tokenizers` does not take the file (exit code 3).
    """

    kind: ClassVar[Kind] = "file"

    def __init__(self, state: State, template: bool = True) -> None:
        self._template = template
        package = _package()
        text = "\n".join(state["lines"])
        value = json.loads(text)
        try:
            # Before the package reads it: patterns and sizes of a file are no more trusted than data.
            checked.check(value)
        except ValueError as failure:
            raise PeError(f"it could be made to take all memory or very long: {failure}", code=ExitCode.DATA) from None
        with _native("does not take it"):
            self._tokens = package.Tokenizer.from_str(text)
        padding = self._tokens.padding
        names = [padding["pad_token"]] if padding else []
        self._tokens.no_padding()
        # Padding and cutting are the column's options here.
        self._tokens.no_truncation()
        found = [self._tokens.token_to_id(name) for name in (*names, *_PADDING)]
        self.padding = next((i for i in found if i is not None), 0)
        model = value["model"]
        unknown = model.get("unk_token") if isinstance(model, dict) else None
        self.unknown = self._tokens.token_to_id(unknown) if isinstance(unknown, str) else None
        # ids may have gaps
        self.size = 1 + max(self._tokens.get_vocab(with_added_tokens=True).values(), default=0)
        if self.size > checked.MOST_ID:
            raise PeError(f"a token has the id {self.size - 1:,}, and ids are below {checked.MOST_ID:,}", code=ExitCode.DATA)

    def bound(self, size: int, texts: int) -> int:
        """Return how many ids texts have at most: normalisers may make a text longer, and templates add tokens."""
        return 4 * size + 64 * texts

    def worker(self) -> Encoder:
        """Return an encoder of chunks for one thread."""

        def encode(chunk: Chunk, filled: int, most: int) -> Ids:
            data = chunk.buffer[: chunk.size].tobytes()
            bounds = chunk.ends.tolist()
            texts = [data[bounds[i] : bounds[i + 1]].decode() for i in range(len(chunk))]
            with _native("cannot encode a text"):
                lists = [found.ids for found in self._tokens.encode_batch_fast(texts, add_special_tokens=self._template)]
            self._check(lists, chunk)
            lists = [ids[:most] for ids in lists]
            lists = [ids + [self.padding] * (filled - len(ids)) for ids in lists]
            flat = np.array([i for ids in lists for i in ids], np.int32)
            ends = np.append(0, np.cumsum([len(ids) for ids in lists])).astype(np.int64)
            return flat, ends, int((flat == self.unknown).sum()) if self.unknown is not None else 0

        return encode

    def _check(self, lists: Sequence[Sequence[int]], chunk: Chunk) -> None:
        """Look at ids before a model gets them.

        Raises:
            PeError: there are more of them than `bound` says, or one that no token has (exit code 3).
        """
        # A file may say a size and give larger ids: a model would look behind its table.
        most = self.bound(chunk.size, len(chunk))
        if sum(map(len, lists)) > most:
            raise PeError(f"the tokenizer makes more than {most:,} tokens of {chunk.size:,} bytes", code=ExitCode.DATA)
        largest = max((max(ids) for ids in lists if ids), default=0)
        if largest >= self.size:
            raise PeError(f"the tokenizer gives the id {largest:,}, and its tokens have ids below {self.size:,}", code=ExitCode.DATA)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, as the file's decoder makes it; special tokens have none.

        Raises:
            PeError: the decoder fails (exit code 3).
        """
        with _native("cannot decode ids"):
            text: str = self._tokens.decode(list(ids), skip_special_tokens=True)
        return text

    def pieces(self, ids: Sequence[int]) -> list[bytes]:
        """Return the text that every id adds to that before it."""
        found, before = [], ""
        for k in range(len(ids)):
            text = self.decode(ids[: k + 1])
            # the end of a text may change when a character becomes whole
            keep = text.rstrip("\ufffd")
            found.append(keep.removeprefix(before).encode())
            before = keep if keep.startswith(before) else before
        return found

    def exported(self) -> dict[str, Any]:
        """Return the file."""
        found: dict[str, Any] = json.loads(self._tokens.to_str())
        return found
